//! The labels in the members of tar shards: class numbers in `.cls` members, numbers or names of classes in `.json`
//! members, or the member or key that the user named.

use super::archive::{TarMember, TarMembers};
use super::class_names::{ClassNames, LONGEST_NAME};
use super::samples::text;
use crate::source::{Malformed, ReadAt, without_mark};
use base::json;

/// The maximum size in bytes of a `.cls` member, which holds a number and white space.
const MAX_CLS: u64 = 64;
/// The maximum size in bytes of a `.json` member that is searched for a label.
const MAX_JSON: u64 = 16 << 20;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Label {
    #[default]
    Missing,
    Number(u32),
    Name(u32),
    /// The value of the member is not a label. The reason is not stored, and is determined again when it is needed.
    Unusable,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum LabelValue {
    Number(u32),
    Name(String),
}

/// A label, or the reason why there is none.
pub(super) type ReadLabel = Result<Option<LabelValue>, Malformed>;

/// Drops the reason why there is no label, because the reason is long and mostly not needed.
pub(super) fn reduced(label: ReadLabel, names: &mut ClassNames) -> Label {
    match label {
        Ok(None) => Label::Missing,
        Ok(Some(LabelValue::Number(number))) => Label::Number(number),
        Ok(Some(LabelValue::Name(name))) => Label::Name(names.number(&name)),
        Err(_) => Label::Unusable,
    }
}

#[derive(Debug, Clone, Copy)]
pub(super) struct LabelMembers<'a> {
    /// The key of a member, or of a value in `.json` members, that the user named.
    pub(super) asked: Option<&'a str>,
}

impl<'a> LabelMembers<'a> {
    /// The key of the members that contain nothing but the label. They have priority over `.json` members, wherever in
    /// the shard they are stored.
    pub(super) fn whole(self) -> &'a str {
        self.asked.unwrap_or(CLS)
    }

    /// Reads the label from a member that contains nothing but the label.
    ///
    /// # Errors
    /// The outer error says that the member cannot be read, the inner error that its value is not a label.
    pub(super) fn read_whole<S: ReadAt + ?Sized>(
        self,
        members: &mut TarMembers<'_, S>,
        member: &TarMember,
    ) -> Result<ReadLabel, Malformed> {
        // Only a member that the user named can hold a class name, because `.cls` is WebDataset's name for numbers.
        let takes_names = self.asked.is_some();
        let most = if takes_names { LONGEST_NAME as u64 } else { MAX_CLS };
        let data = if member.size <= most { Some(members.read(member.offset, member.size)?) } else { None };
        let written = data.as_deref().and_then(|data| std::str::from_utf8(data).ok()).map(str::trim);
        let is_name = |name: &&str| takes_names && !name.is_empty() && !name.contains(char::is_control);
        let class = if takes_names { class_number_with_point } else { class_number_in_text };
        let number = written.and_then(|written| class(written.as_bytes()));
        let name = || written.filter(is_name).map(|name| LabelValue::Name(name.to_owned()));
        let what = match takes_names {
            true => ", or the name of a class in one line",
            false => "; label=\"cls\" reads names of classes, too",
        };
        Ok(number.map(LabelValue::Number).or_else(name).map(Some).ok_or_else(|| Malformed {
            offset: member.offset,
            message: format!(
                "{:?} should hold a class number from 0 to 4294967294 as text{what}",
                text(&member.name)
            ),
        }))
    }

    pub(super) fn read_json<S: ReadAt + ?Sized>(
        self,
        members: &mut TarMembers<'_, S>,
        member: &TarMember,
    ) -> Result<ReadLabel, Malformed> {
        let name = text(&member.name);
        let fail = |message: String| Err(Malformed { offset: member.offset, message });
        if member.size > MAX_JSON {
            return Ok(fail(format!(
                "{name:?} has {} bytes; labels are read only from .json members of up to 16 MiB",
                member.size
            )));
        }
        let data = members.read(member.offset, member.size)?;
        let asked = self.asked.map(|asked| [asked]);
        let keys = asked.as_ref().map_or(&NAMES[..], |asked| &asked[..]);
        Ok(label_in_json(&data, keys).or_else(|wrong| fail(format!("{name:?} {wrong}"))))
    }
}

fn label_in_json(data: &[u8], keys: &[&str]) -> Result<Option<LabelValue>, String> {
    let Some((key, value)) = value_in_json(data, keys)? else { return Ok(None) };
    let is_name = |name: &String| (1..=LONGEST_NAME).contains(&name.len());
    let name = || json::text(&value).filter(|name| value.starts_with(b"\"") && is_name(name));
    let number = truth(&value).or_else(|| class_number_with_point(&value)).map(LabelValue::Number);
    number.or_else(|| name().map(LabelValue::Name)).map(Some).ok_or_else(|| {
        format!(
            "has {key}, which should be a class number from 0 to 4294967294, true or false, or the name of a class"
        )
    })
}

/// The integer under `label` or `cls` in a JSON document; `None` if neither key exists.
///
/// # Errors
/// What is wrong with the document: a phrase that follows its name in the message.
pub fn class_number_in_json(data: &[u8]) -> Result<Option<u32>, String> {
    let Some((key, label)) = value_in_json(data, &NAMES)? else { return Ok(None) };
    let wrong = || format!("has {key}, which should be a class number from 0 to 4294967294");
    class_number_in_text(&label).map(Some).ok_or_else(wrong)
}

fn value_in_json<'a>(data: &[u8], keys: &[&'a str]) -> Result<Option<(&'a str, Vec<u8>)>, String> {
    let mut found: Vec<Option<Vec<u8>>> = vec![None; keys.len()];
    let scanned = json::utf8(data).and_then(|document| {
        json::scan(&document, |key, value| {
            let key = key.and_then(json::text);
            if let Some(at) = keys.iter().position(|name| key.as_deref() == Some(name)) {
                found[at] = Some(value.to_vec());
            }
        })
    });
    scanned.map_err(|error| format!("is not JSON: {error}"))?;
    Ok(keys.iter().zip(found).find_map(|(key, value)| Some((*key, value?))))
}

const CLS: &str = "cls";

/// The keys under which a JSON object can hold the class of its sample. The first key that exists is used.
const NAMES: [&str; 2] = ["label", CLS];

/// Parses a class number. The largest u32 is refused, because other code uses it to mark a missing label.
pub fn class_number_in_text(written: &[u8]) -> Option<u32> {
    let number = std::str::from_utf8(without_mark(written)).ok()?.trim().parse().ok()?;
    (number < u32::MAX).then_some(number)
}

fn truth(written: &[u8]) -> Option<u32> {
    match written {
        b"false" => Some(0),
        b"true" => Some(1),
        _ => None,
    }
}

/// Parses a class number that can be written as `3.0`. Programs write integers in this way if the column also has
/// fractions.
fn class_number_with_point(written: &[u8]) -> Option<u32> {
    let (whole, zeros) = match written.iter().position(|&byte| byte == b'.') {
        Some(point) => (&written[..point], &written[point + 1..]),
        None => (written, &[][..]),
    };
    class_number_in_text(whole).filter(|_| zeros.iter().all(|&byte| byte == b'0'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn class_numbers_are_whole() {
        let cases =
            [("3", Some(3)), ("10", Some(10)), ("2.0", Some(2)), ("0.00", Some(0)), ("100", Some(100))];
        for (written, number) in
            cases.into_iter().chain([("1.5", None), (".0", None), ("-1", None), ("", None)])
        {
            assert_eq!(class_number_with_point(written.as_bytes()), number, "{written:?}");
        }
        assert_eq!(class_number_in_text(b"4294967295"), None);
    }

    #[test]
    fn json_has_numbers_or_names() {
        use LabelValue::{Name, Number};
        let label = |document: &str| label_in_json(document.as_bytes(), &NAMES);
        assert_eq!(label(r#"{"cls": 1, "label": 3.0}"#), Ok(Some(Number(3))));
        assert_eq!(label(r#"{"label": "c\u0061t"}"#), Ok(Some(Name("cat".to_owned()))));
        assert_eq!(label(r#"{"label": "3"}"#), Ok(Some(Name("3".to_owned()))));
        assert_eq!(label(r#"{"label": true}"#), Ok(Some(Number(1))));
        assert_eq!(label(r#"{"cls": false }"#), Ok(Some(Number(0))));
        assert_eq!(label(r#"{"label": "true"}"#), Ok(Some(Name("true".to_owned()))));
        assert_eq!(label(r#"{"width": 3}"#), Ok(None));
        for wrong in [r#"{"label": [1]}"#, r#"{"label": 0.5}"#, r#"{"label": null}"#, r#"{"label": ""}"#] {
            assert!(label(wrong).unwrap_err().contains("or the name of a class"), "{wrong}");
        }
    }
}
