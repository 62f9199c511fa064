//! Parsers of the server's responses. Bytes are moved out of a response, not copied.

use crate::record::Record;
use redis::Value;

/// The id of an entry: milliseconds, and a counter within the same millisecond.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(super) struct EntryId(pub u64, pub u64);

impl EntryId {
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (time, number) = text.split_once('-').unwrap_or((text, "0"));
        Some(Self(time.parse().ok()?, number.parse().ok()?))
    }

    pub(super) fn next(self) -> Self {
        match self.1.checked_add(1) {
            Some(number) => Self(self.0, number),
            None => Self(self.0.saturating_add(1), 0),
        }
    }
}

impl std::fmt::Display for EntryId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}-{}", self.0, self.1)
    }
}

pub(super) struct StreamEntry {
    pub id: EntryId,
    /// The names and values of its fields, alternating. `None` for a pending entry that was deleted.
    fields: Option<Vec<Value>>,
}

impl StreamEntry {
    pub(super) fn deleted(id: EntryId) -> Self {
        Self { id, fields: None }
    }

    pub(super) fn len(&self) -> usize {
        self.fields.iter().flatten().map(|field| text_bytes(field).map_or(0, <[u8]>::len)).sum()
    }

    /// The entry as a sample, or the reason why it cannot be one.
    pub(super) fn record(&self, stream: &str, key: &str, max_bytes: usize) -> Result<Record, String> {
        let Some(fields) = &self.fields else {
            return Err("it was deleted from the stream before it was read".to_owned());
        };
        let bytes = self.len();
        if bytes > max_bytes {
            return Err(format!("it has {bytes} bytes, but max_bytes is {max_bytes}"));
        }
        let mut members = Vec::with_capacity(fields.len() / 2);
        for pair in fields.chunks(2) {
            let [name, value] = pair else { return Err("its fields and values are not in pairs".to_owned()) };
            let name = text_bytes(name).and_then(|name| std::str::from_utf8(name).ok());
            let name = name.ok_or("a field's name is not text in UTF-8")?;
            members.push((name, text_bytes(value).ok_or("a field's value is not bytes")?));
        }
        Record::new(stream, key, &members)
    }
}

fn text_bytes(value: &Value) -> Option<&[u8]> {
    match value {
        Value::BulkString(bytes) => Some(bytes),
        Value::SimpleString(text) => Some(text.as_bytes()),
        _ => None,
    }
}

pub(super) fn text(value: &Value) -> Option<&str> {
    std::str::from_utf8(text_bytes(value)?).ok()
}

/// The values of a list; empty for `nil`.
pub(super) fn list(value: Value) -> Option<Vec<Value>> {
    match value {
        Value::Array(values) => Some(values),
        Value::Nil => Some(Vec::new()),
        _ => None,
    }
}

pub(super) fn entries(value: Value) -> Option<Vec<StreamEntry>> {
    let entry = |value| {
        let mut parts = list(value)?.into_iter();
        let id = EntryId::parse(text(&parts.next()?)?)?;
        let fields = match parts.next()? {
            Value::Nil => None,
            fields => Some(list(fields)?),
        };
        Some(StreamEntry { id, fields })
    };
    // Before 7.0 a server answers `nil` for a pending entry that was deleted.
    list(value)?.into_iter().filter(|value| !matches!(value, Value::Nil)).map(entry).collect()
}

pub(super) fn entries_of_stream(value: Value) -> Option<Vec<StreamEntry>> {
    match list(value)?.into_iter().next() {
        None => Some(Vec::new()),
        Some(stream) => entries(list(stream)?.into_iter().nth(1)?),
    }
}

/// A response of alternating names and values.
pub(super) struct NamedValues(Vec<Value>);

impl NamedValues {
    pub(super) fn of(value: Value) -> Option<Self> {
        list(value).map(Self)
    }

    fn get(&self, name: &str) -> Option<&Value> {
        self.0.chunks_exact(2).find(|pair| text(&pair[0]) == Some(name)).map(|pair| &pair[1])
    }

    pub(super) fn number(&self, name: &str) -> Option<u64> {
        match self.get(name)? {
            Value::Int(number) => u64::try_from(*number).ok(),
            _ => None,
        }
    }

    pub(super) fn text(&self, name: &str) -> Option<&str> {
        text(self.get(name)?)
    }
}

#[derive(Debug, Default, Clone, Copy)]
pub(super) struct StreamInfo {
    pub length: u64,
    pub first: Option<EntryId>,
    /// The highest id that an entry of the stream ever had.
    pub last: EntryId,
    /// The number of entries that were ever added; `None` before Redis 7.
    pub added: Option<u64>,
}

impl StreamInfo {
    pub(super) fn of(value: Value) -> Option<Self> {
        let named = NamedValues::of(value)?;
        let id = |name| EntryId::parse(named.text(name)?);
        let first = match named.get("first-entry") {
            Some(Value::Array(entry)) => entry.first().and_then(text).and_then(EntryId::parse),
            _ => None,
        };
        Some(Self {
            length: named.number("length")?,
            first,
            last: id("last-generated-id")?,
            added: named.number("entries-added"),
        })
    }

    /// The number of removed entries. If entries were only trimmed, all removed entries were before the first existing
    /// entry. A deleted entry may have been anywhere.
    pub(super) fn removed(&self) -> Option<u64> {
        Some(self.added?.saturating_sub(self.length))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bulk(bytes: &[u8]) -> Value {
        Value::BulkString(bytes.to_vec())
    }

    #[test]
    fn ids_are_ordered_by_time_and_number() {
        let id = |text| EntryId::parse(text).unwrap();
        assert_eq!(id("5-7").to_string(), "5-7");
        assert_eq!(id("5"), EntryId(5, 0));
        assert!(id("9-1") < id("10-0") && id("10-2") < id("10-10"));
        assert_eq!(id("5-7").next(), id("5-8"));
        assert_eq!(EntryId(5, u64::MAX).next(), id("6-0"));
        assert_eq!([EntryId::parse("a-1"), EntryId::parse(""), EntryId::parse("1-2-3")], [None; 3]);
    }

    #[test]
    fn entries_are_samples_or_say_why_not() {
        let entry = |fields: &[&[u8]]| {
            let fields = Value::Array(fields.iter().map(|field| bulk(field)).collect());
            entries(Value::Array(vec![Value::Array(vec![bulk(b"1-1"), fields])])).unwrap().remove(0)
        };
        let good = entry(&[b"jpg", b"pixels", b"cls", b"3"]);
        assert_eq!((good.id, good.len()), (EntryId(1, 1), 13));
        assert_eq!(good.record("s", "1-1", 13).unwrap().label, Some(3));
        assert!(good.record("s", "1-1", 12).unwrap_err().contains("13 bytes, but max_bytes is 12"));
        assert!(entry(&[b"jpg"]).record("s", "1-1", 99).unwrap_err().contains("not in pairs"));
        assert!(entry(&[b"\xff", b"x"]).record("s", "1-1", 99).unwrap_err().contains("UTF-8"));
        let deleted = Value::Array(vec![Value::Array(vec![bulk(b"1-1"), Value::Nil]), Value::Nil]);
        let deleted = entries(deleted).unwrap();
        assert!(deleted[0].record("s", "1-1", 99).unwrap_err().contains("deleted"));
        assert_eq!((deleted.len(), deleted[0].len()), (1, 0));
    }

    #[test]
    fn answers_of_another_shape_are_none() {
        for wrong in [Value::Int(3), Value::Okay, Value::Array(vec![Value::Int(1)])] {
            assert!(entries(wrong.clone()).is_none());
            assert!(entries_of_stream(wrong.clone()).is_none());
            assert!(StreamInfo::of(wrong).is_none());
        }
        assert!(entries_of_stream(Value::Nil).unwrap().is_empty());
    }
}
