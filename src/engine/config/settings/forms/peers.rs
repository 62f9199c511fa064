//! The kind of values of the setting `peers`.

use super::{Description, ValueKind, is};
use crate::config::{Peers, UserValue};

pub(in crate::config::settings) struct PeersChoice;

impl ValueKind<Peers> for PeersChoice {
    fn read(&self, given: &UserValue) -> Result<Peers, String> {
        let entries = match given {
            UserValue::Text(text) if text == "off" => return Ok(Peers::default()),
            UserValue::Text(text) if text == "auto" => &[][..],
            UserValue::Map(map) => map,
            _ => return is(given),
        };
        let mut peers = Peers { on: true, ..Peers::default() };
        for (key, value) in entries {
            let wrong = || format!("has {key}: {value}");
            match (key, value) {
                (UserValue::Text(key), value) if key == "allgather" && *value != UserValue::Nothing => {
                    // Python keeps and calls the function. Rust only has its text.
                    let UserValue::Other(shown) = value else { return Err(wrong()) };
                    peers.allgather = Some(shown.clone());
                }
                (UserValue::Text(key), UserValue::Text(address)) if key == "listen" => {
                    peers.listen = Some(address.clone());
                }
                (UserValue::Text(key), value) if key == "directory" && value.path().is_some() => {
                    peers.directory =
                        value.path().filter(|path| UserValue::is_usable_path(path)).map(Into::into);
                    peers.directory.as_ref().ok_or_else(wrong)?;
                }
                (UserValue::Text(key), UserValue::Truth(tls)) if key == "tls" => peers.tls = *tls,
                (UserValue::Text(key), UserValue::Nothing)
                    if ["listen", "allgather", "directory"].contains(&key.as_str()) => {}
                _ => return Err(wrong()),
            }
        }
        Ok(peers)
    }

    fn show(&self, peers: &Peers) -> UserValue {
        if !peers.on {
            return UserValue::Text("off".into());
        }
        let mut entries = Vec::new();
        let mut add = |key: &str, value: UserValue| entries.push((UserValue::Text(key.into()), value));
        if let Some(listen) = &peers.listen {
            add("listen", UserValue::Text(listen.clone()));
        }
        if let Some(directory) = &peers.directory {
            add("directory", UserValue::Path(directory.clone()));
        }
        if let Some(allgather) = &peers.allgather {
            add("allgather", UserValue::Other(allgather.clone()));
        }
        if peers.tls {
            add("tls", UserValue::Truth(true));
        }
        if entries.is_empty() { UserValue::Text("auto".into()) } else { UserValue::Map(entries) }
    }

    fn describe(&self) -> Description {
        Description::new(
            "\"off\", \"auto\", or a dict of listen (\"address:port\"), allgather (a function), directory (a path), \
            tls (True or False)",
            "Literal[\"off\", \"auto\"] | dict[str, Any]",
            "CHOICE",
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_read_is_shown_again() {
        let text = |text: &str| UserValue::Text(text.into());
        for given in [
            text("off"),
            text("auto"),
            UserValue::Map(vec![
                (text("listen"), text("10.0.0.7:7100")),
                (text("tls"), UserValue::Truth(true)),
            ]),
            UserValue::Map(vec![
                (text("directory"), UserValue::Path("/shared".into())),
                (text("allgather"), UserValue::Other("<function f>".into())),
            ]),
        ] {
            assert_eq!(PeersChoice.show(&PeersChoice.read(&given).unwrap()), given);
        }
        let empty = UserValue::Map(vec![(text("listen"), UserValue::Nothing)]);
        assert_eq!(PeersChoice.show(&PeersChoice.read(&empty).unwrap()), text("auto"));
    }

    #[test]
    fn what_is_no_choice_is_refused() {
        let entry = |key: &str, value| UserValue::Map(vec![(UserValue::Text(key.into()), value)]);
        for given in [
            UserValue::Truth(true),
            UserValue::Nothing,
            UserValue::Text("on".into()),
            entry("port", UserValue::Whole(7)),
            entry("listen", UserValue::Whole(7)),
            entry("allgather", UserValue::Text("mpi".into())),
            entry("directory", UserValue::Text(String::new())),
            entry("tls", UserValue::Whole(1)),
        ] {
            assert!(PeersChoice.read(&given).is_err(), "{given}");
        }
    }
}
