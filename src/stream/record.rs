//! A sample of a stream in one contiguous buffer: a table of its members, then their bytes.
//!
//! ```text
//! table              number of members u32 · for each member: length of its name u16 · its length u32 · its name
//! members            their bytes, in the order of the table
//! ```
//!
//! All numbers are little-endian. The first two members are the key and the stream's name. The same bytes are queued in
//! memory, stored in segments and copied into slots, so members are found by this table alone.

use base::crc::checksum;
use base::error::{DecodeError, Error, Result};
use data::dataset::{class_number_in_json, class_number_in_text};
use sha2::{Digest, Sha256};
use std::ops::Range;

/// The name of the member with a sample's key, which is unique in its stream.
pub const KEY: &str = "__key__";
/// The name of the member with the name of the stream that a sample came from.
pub const STREAM: &str = "__stream__";

/// The maximum length of a sample's key in bytes.
const LONGEST_KEY: usize = 1024;
/// The maximum number of members of a sample, not counting the key and the stream's name.
const MAX_MEMBERS: usize = 256;
/// The maximum length of a member's name in bytes.
const LONGEST_NAME: usize = 255;
/// The length of a table entry without the member's name, in bytes.
const ENTRY: usize = 6;

/// A sample of a stream as it arrived, with all its members in one buffer.
#[derive(Debug, Clone, PartialEq)]
pub struct Record {
    /// The sample id: a hash of stream and key.
    pub id: u64,
    /// The class index, if a member gives one.
    pub label: Option<u32>,
    /// The weight with which the rehearsal buffer keeps the sample; 1 unless the user scores samples.
    pub weight: f64,
    bytes: Vec<u8>,
}

/// The id of a sample: 63 bits of the hash of its stream and its key, so that it is a positive `int64`.
pub fn sample_id(stream: &str, key: &str) -> u64 {
    let mut hash = Sha256::new_with_prefix(b"foreload stream sample 1");
    hash.update((stream.len() as u64).to_le_bytes());
    hash.update(stream);
    hash.update(key);
    let digest: [u8; 32] = hash.finalize().into();
    u64::from_le_bytes(*digest.first_chunk().expect("a digest has eight bytes")) >> 1
}

impl Record {
    /// Creates a sample of `stream` with these members. Names are converted to lower case, like the member names of all
    /// other samples.
    ///
    /// # Errors
    /// The reason as text: an invalid key or name, two members with the same name, or a class that is not a number.
    pub fn new(stream: &str, key: &str, members: &[(&str, &[u8])]) -> Result<Self, String> {
        let sizes: Vec<(&str, usize)> = members.iter().map(|(name, bytes)| (*name, bytes.len())).collect();
        Self::filled(stream, key, &sizes, |number, into| {
            into.extend(members[number].1);
            Ok(())
        })
    }

    /// Creates a sample of `stream` whose members have the given names and lengths. Calls `fill` once for each member,
    /// in order, with the member's index. `fill` must append exactly as many bytes as the member's length. So the bytes
    /// are written straight to their final place.
    ///
    /// # Errors
    /// The errors of [`Record::new`] and of `fill`.
    pub fn filled(
        stream: &str,
        key: &str,
        members: &[(&str, usize)],
        mut fill: impl FnMut(usize, &mut Vec<u8>) -> Result<(), String>,
    ) -> Result<Self, String> {
        if key.is_empty() || key.len() > LONGEST_KEY {
            return Err(format!("its key has {} bytes, must have 1 to {LONGEST_KEY}", key.len()));
        }
        if members.is_empty() || members.len() > MAX_MEMBERS {
            return Err(format!("it has {} members, must have 1 to {MAX_MEMBERS}", members.len()));
        }
        let lower: Vec<String> = members.iter().map(|(name, _)| name.to_lowercase()).collect();
        for (number, name) in lower.iter().enumerate() {
            if name.is_empty() || name.len() > LONGEST_NAME || name.starts_with("__") {
                return Err(format!(
                    "a member is called {name:?}, must have a name such as \"jpg\" or \"cls\""
                ));
            }
            if lower[..number].contains(name) {
                return Err(format!("it has two members called {name:?}"));
            }
        }
        let own = [(KEY, key.len()), (STREAM, stream.len())];
        let all =
            || own.into_iter().chain(lower.iter().map(String::as_str).zip(members.iter().map(|of| of.1)));
        let sum: usize = all().map(|(name, length)| ENTRY + name.len() + length).sum();
        if u32::try_from(sum + 4).is_err() {
            return Err(format!("it has {sum} bytes, must have less than 4 GiB"));
        }
        // One spare byte: a read to the end of a file needs free space for the last read, which returns 0.
        let mut bytes = Vec::with_capacity(sum + 4 + 1);
        bytes.extend((all().count() as u32).to_le_bytes());
        for (name, length) in all() {
            bytes.extend((name.len() as u16).to_le_bytes());
            bytes.extend((length as u32).to_le_bytes());
            bytes.extend(name.as_bytes());
        }
        bytes.extend(key.as_bytes());
        bytes.extend(stream.as_bytes());
        for (number, &(name, length)) in members.iter().enumerate() {
            let before = bytes.len();
            fill(number, &mut bytes)?;
            if bytes.len() != before + length {
                return Err(format!("its member {name:?} has {} bytes, not {length}", bytes.len() - before));
            }
        }
        let label = label(self::members(&bytes).map(|(name, range)| (name, &bytes[range])))?;
        Ok(Self { id: sample_id(stream, key), label, weight: 1.0, bytes })
    }

    /// Parses a sample from the bytes that [`Record::bytes`] returned.
    ///
    /// # Errors
    /// What is wrong with the bytes, as text.
    pub fn parse(bytes: Vec<u8>) -> Result<Self, String> {
        let damaged = || "its table of members is damaged".to_owned();
        let text = |name| {
            let range = find(&bytes, name).ok_or_else(damaged)?;
            std::str::from_utf8(&bytes[range]).map_err(|_| damaged())
        };
        let id = sample_id(text(STREAM)?, text(KEY)?);
        let label = label(members(&bytes).map(|(name, range)| (name, &bytes[range])))?;
        Ok(Self { id, label, weight: 1.0, bytes })
    }

    /// All bytes of the sample, including its table of members.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The checksum of all bytes of the sample.
    pub fn checksum(&self) -> u32 {
        checksum(&self.bytes)
    }

    /// The key, which is unique in the stream.
    pub fn key(&self) -> &str {
        self.text(KEY)
    }

    /// The name of the stream that the sample came from.
    pub fn stream(&self) -> &str {
        self.text(STREAM)
    }

    /// The bytes of the member with this name.
    pub fn member(&self, name: &str) -> Option<&[u8]> {
        find(&self.bytes, name).map(|range| &self.bytes[range])
    }

    fn text(&self, name: &str) -> &str {
        find(&self.bytes, name)
            .and_then(|range| std::str::from_utf8(&self.bytes[range]).ok())
            .unwrap_or_default()
    }
}

/// The class that a sample's members give: the number in `cls`, otherwise the number in `json`.
fn label<'a>(members: impl Iterator<Item = (&'a str, &'a [u8])> + Clone) -> Result<Option<u32>, String> {
    let named = |wanted: &str| members.clone().find(|(name, _)| *name == wanted).map(|(_, bytes)| bytes);
    match (named("cls"), named("json")) {
        (Some(cls), _) => class_number_in_text(cls)
            .map(Some)
            .ok_or_else(|| "its cls is not a class number from 0 to 4294967294, as text".to_owned()),
        (None, Some(json)) => class_number_in_json(json).map_err(|wrong| format!("its json {wrong}")),
        (None, None) => Ok(None),
    }
}

/// The members of a sample with these bytes: the name and the byte range of each member. A damaged or truncated table
/// ends the iteration.
pub fn members(bytes: &[u8]) -> impl Iterator<Item = (&str, Range<usize>)> + Clone {
    let count = bytes.first_chunk().map_or(0, |count| u32::from_le_bytes(*count)) as usize;
    let entry = |at: usize| -> Option<(usize, usize)> {
        let entry = bytes.get(at..)?.first_chunk::<ENTRY>()?;
        let name = u16::from_le_bytes([entry[0], entry[1]]).into();
        Some((name, u32::from_le_bytes([entry[2], entry[3], entry[4], entry[5]]) as usize))
    };
    let mut start = Some(4);
    for _ in 0..count.min(MAX_MEMBERS + 2) {
        start = start.and_then(|at| Some(at + ENTRY + entry(at)?.0));
    }
    let (mut at, mut start) = (4, start.filter(|_| count <= MAX_MEMBERS + 2).unwrap_or(usize::MAX));
    (0..count).map_while(move |_| {
        let (name, length) = entry(at)?;
        let named = std::str::from_utf8(bytes.get(at + ENTRY..at + ENTRY + name)?).ok()?;
        let range = start..start.checked_add(length)?;
        bytes.get(range.clone())?;
        (at, start) = (at + ENTRY + name, range.end);
        Some((named, range))
    })
}

/// The byte range of the member called `name` in a sample with these bytes.
pub fn find(bytes: &[u8], name: &str) -> Option<Range<usize>> {
    members(bytes).find(|(found, _)| *found == name).map(|(_, range)| range)
}

/// Makes the error for data that arrived but cannot be a sample. `what` is the reason.
pub fn unusable(stream: &str, key: &str, what: &str) -> Error {
    Error::Decode(DecodeError::Damaged(format!("sample {key:?} of stream {stream:?} cannot be used: {what}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_gives_back_its_members_and_its_class() {
        let members_in: [(&str, &[u8]); 3] = [("JPG", b"pixels"), ("cls", b" 7\n"), ("txt", b"")];
        let record = Record::new("camera", "0001", &members_in).unwrap();
        assert_eq!((record.key(), record.stream(), record.label), ("0001", "camera", Some(7)));
        assert_eq!(record.id, sample_id("camera", "0001"));
        assert_ne!(record.id, sample_id("camer", "a0001"), "where a name ends matters");
        let found: Vec<_> =
            members(record.bytes()).map(|(name, range)| (name, &record.bytes()[range])).collect();
        let expected: [(&str, &[u8]); 5] =
            [(KEY, b"0001"), (STREAM, b"camera"), ("jpg", b"pixels"), ("cls", b" 7\n"), ("txt", b"")];
        assert_eq!(found, expected);
        assert_eq!(Record::parse(record.bytes().to_vec()).unwrap(), record);
        let labelled = Record::new("s", "k", &[("json", br#"{"label": 3}"#)]).unwrap();
        assert_eq!(labelled.label, Some(3));
    }

    #[test]
    fn what_cannot_be_a_sample_is_refused_in_words() {
        let refused = |key: &str, members: &[(&str, &[u8])]| Record::new("s", key, members).unwrap_err();
        assert!(refused("", &[("jpg", b"")]).contains("its key has 0 bytes"));
        assert!(refused("k", &[]).contains("0 members"));
        assert!(refused("k", &[("jpg", b""), ("JPG", b"")]).contains("two members called \"jpg\""));
        assert!(refused("k", &[("__key__", b"")]).contains("__key__"));
        assert!(refused("k", &[("cls", b"cat")]).contains("not a class number"));
        assert!(refused("k", &[("json", b"{")]).contains("its json"));
    }

    #[test]
    fn damaged_bytes_end_a_table_and_nothing_else() {
        let record = Record::new("s", "k", &[("jpg", b"abc"), ("cls", b"1")]).unwrap();
        for cut in 0..record.bytes().len() {
            let _ = Record::parse(record.bytes()[..cut].to_vec());
            assert!(members(&record.bytes()[..cut]).count() <= 4);
        }
        for at in 0..record.bytes().len() {
            for value in [0, 1, 127, 255] {
                let mut bytes = record.bytes().to_vec();
                bytes[at] = value;
                members(&bytes).for_each(|(_, range)| assert!(range.end <= bytes.len()));
            }
        }
    }
}
