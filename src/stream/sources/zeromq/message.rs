//! Parses the frames of a message. No I/O.

/// The name of the frame with a message's sequence number, as decimal text. Each publisher numbers its own messages.
pub(super) const SEQUENCE: &str = "__seq__";
const KEY: &str = "__key__";

#[derive(Debug, PartialEq, Eq)]
pub(super) struct MessageParts<'a> {
    pub sequence: Option<u64>,
    pub key: Option<&'a str>,
    pub members: Vec<(&'a str, &'a [u8])>,
}

impl<'a> MessageParts<'a> {
    /// Parses a message: alternating names and values, after a topic if `topic` allows one.
    ///
    /// # Errors
    /// The reason why the message cannot be a sample, as text.
    pub(super) fn of(frames: &[&'a [u8]], topic: bool) -> Result<Self, String> {
        let frames = match (frames.len() % 2, topic) {
            (0, _) => frames,
            (_, true) => &frames[1..],
            (_, false) => {
                return Err(format!(
                    "it has {} frames; names and values must alternate: \"jpg\", its bytes, \"cls\", \"3\"",
                    frames.len()
                ));
            }
        };
        let mut parts = Self { sequence: None, key: None, members: Vec::with_capacity(frames.len() / 2) };
        for pair in frames.chunks_exact(2) {
            let name = std::str::from_utf8(pair[0]).map_err(|_| "a member's name is not text in UTF-8")?;
            let text = || std::str::from_utf8(pair[1]).ok();
            match name {
                SEQUENCE => {
                    let number = text().and_then(|text| text.trim().parse().ok());
                    parts.sequence =
                        Some(number.ok_or_else(|| format!("its {SEQUENCE} is not a decimal number"))?);
                }
                KEY => parts.key = Some(text().ok_or_else(|| format!("its {KEY} is not text in UTF-8"))?),
                _ => parts.members.push((name, pair[1])),
            }
        }
        Ok(parts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_values_alternate_behind_a_topic_perhaps() {
        let of = |frames: &[&'static [u8]], topic| MessageParts::of(frames, topic);
        let plain = of(&[b"jpg", b"pixels", b"__seq__", b"7", b"cls", b"3"], false).unwrap();
        assert_eq!((plain.sequence, plain.key), (Some(7), None));
        assert_eq!(plain.members, [("jpg", &b"pixels"[..]), ("cls", b"3")]);
        assert_eq!(of(&[b"topic", b"jpg", b"x"], true).unwrap().members, [("jpg", &b"x"[..])]);
        assert_eq!(of(&[b"__key__", b"a/1"], false).unwrap().key, Some("a/1"));
        assert!(of(&[b"jpg", b"x", b"cls"], false).unwrap_err().contains("3 frames"));
        assert!(of(&[b"\xff", b"x"], false).unwrap_err().contains("UTF-8"));
        assert!(of(&[b"__seq__", b"-1"], false).unwrap_err().contains("decimal"));
        assert!(of(&[b"topic"], true).unwrap().members.is_empty());
    }
}
