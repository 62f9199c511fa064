//! Form of the setting `peers`.

use super::{Form, is};
use crate::config::{Given, Peers};

/// `"off"`, `"auto"`, or a dict with options.
pub(in crate::config::settings) struct PeersChoice;

impl Form<Peers> for PeersChoice {
    fn read(&self, given: &Given) -> Result<Peers, String> {
        let entries = match given {
            Given::Text(text) if text == "off" => return Ok(Peers::default()),
            Given::Text(text) if text == "auto" => &[][..],
            Given::Map(map) => map,
            _ => return is(given),
        };
        let mut peers = Peers { on: true, ..Peers::default() };
        for (key, value) in entries {
            let wrong = || format!("has {key}: {value}");
            match (key, value) {
                (Given::Text(key), value) if key == "allgather" && *value != Given::Nothing => {
                    // Only Python can hold and call the function; here it is text.
                    let Given::Other(shown) = value else { return Err(wrong()) };
                    peers.allgather = Some(shown.clone());
                }
                (Given::Text(key), Given::Text(address)) if key == "listen" => {
                    peers.listen = Some(address.clone());
                }
                (Given::Text(key), value) if key == "directory" && value.path().is_some() => {
                    peers.directory = value.path().filter(|path| Given::is_usable_path(path)).map(Into::into);
                    peers.directory.as_ref().ok_or_else(wrong)?;
                }
                (Given::Text(key), Given::Truth(tls)) if key == "tls" => peers.tls = *tls,
                (Given::Text(key), Given::Nothing)
                    if ["listen", "allgather", "directory"].contains(&key.as_str()) => {}
                _ => return Err(wrong()),
            }
        }
        Ok(peers)
    }

    fn show(&self, peers: &Peers) -> Given {
        if !peers.on {
            return Given::Text("off".into());
        }
        let mut entries = Vec::new();
        let mut add = |key: &str, value: Given| entries.push((Given::Text(key.into()), value));
        if let Some(listen) = &peers.listen {
            add("listen", Given::Text(listen.clone()));
        }
        if let Some(directory) = &peers.directory {
            add("directory", Given::Path(directory.clone()));
        }
        if let Some(allgather) = &peers.allgather {
            add("allgather", Given::Other(allgather.clone()));
        }
        if peers.tls {
            add("tls", Given::Truth(true));
        }
        if entries.is_empty() { Given::Text("auto".into()) } else { Given::Map(entries) }
    }

    fn may_be(&self) -> String {
        "\"off\", \"auto\", or a dict of listen (\"address:port\"), allgather (a function), directory (a path), tls \
         (True or False)"
            .into()
    }

    fn annotation(&self) -> String {
        "Literal[\"off\", \"auto\"] | dict[str, Any]".into()
    }

    fn placeholder(&self) -> String {
        "CHOICE".into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_read_is_shown_again() {
        let text = |text: &str| Given::Text(text.into());
        for given in [
            text("off"),
            text("auto"),
            Given::Map(vec![(text("listen"), text("10.0.0.7:7100")), (text("tls"), Given::Truth(true))]),
            Given::Map(vec![
                (text("directory"), Given::Path("/shared".into())),
                (text("allgather"), Given::Other("<function f>".into())),
            ]),
        ] {
            assert_eq!(PeersChoice.show(&PeersChoice.read(&given).unwrap()), given);
        }
        let empty = Given::Map(vec![(text("listen"), Given::Nothing)]);
        assert_eq!(PeersChoice.show(&PeersChoice.read(&empty).unwrap()), text("auto"));
    }

    #[test]
    fn what_is_no_choice_is_refused() {
        let entry = |key: &str, value| Given::Map(vec![(Given::Text(key.into()), value)]);
        for given in [
            Given::Truth(true),
            Given::Nothing,
            Given::Text("on".into()),
            entry("port", Given::Whole(7)),
            entry("listen", Given::Whole(7)),
            entry("allgather", Given::Text("mpi".into())),
            entry("directory", Given::Text(String::new())),
            entry("tls", Given::Whole(1)),
        ] {
            assert!(PeersChoice.read(&given).is_err(), "{given}");
        }
    }
}
