//! The class numbers that lie beside the images in tar shards: in `.cls` members, else in `.json` members.

use super::archive::{TarMember, TarMembers};
use super::samples::text;
use crate::json;
use crate::source::{Malformed, ReadAt};

/// The most bytes of a `.cls` member, which holds a number and white space.
const MAX_CLS: u64 = 64;
/// The most bytes of a `.json` member that is searched for a label.
const MAX_JSON: u64 = 16 << 20;

/// The class number that a sample's members give.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Label {
    /// There is no such member, or it has neither of the keys.
    #[default]
    Missing,
    Number(u32),
    /// The member holds something that is no class number. The reason is found out again where it matters.
    Unusable,
}

/// A label, or the reason for which it is none.
pub(super) type ReadLabel = Result<Option<u32>, Malformed>;

/// Drops the reason, which is long and mostly not asked for.
pub(super) fn reduced(label: ReadLabel) -> Label {
    match label {
        Ok(None) => Label::Missing,
        Ok(Some(number)) => Label::Number(number),
        Err(_) => Label::Unusable,
    }
}

/// Reads the number in a `.cls` member.
///
/// # Errors
/// The outer error says that the member cannot be read, the inner one that it holds no class number.
pub(super) fn cls<S: ReadAt + ?Sized>(
    members: &mut TarMembers<'_, S>,
    member: &TarMember,
) -> Result<ReadLabel, Malformed> {
    let data = if member.size <= MAX_CLS { Some(members.read(member.offset, member.size)?) } else { None };
    let number = data.as_deref().and_then(class_number_in_text);
    Ok(number.map(Some).ok_or_else(|| Malformed {
        offset: member.offset,
        message: format!("{:?} should hold a class number from 0 to 4294967294 as text", text(&member.name)),
    }))
}

/// Reads the integer at `label` or `cls` of a `.json` member; `None` where neither key is there.
///
/// # Errors
/// The errors of [`cls`].
pub(super) fn json<S: ReadAt + ?Sized>(
    members: &mut TarMembers<'_, S>,
    member: &TarMember,
) -> Result<ReadLabel, Malformed> {
    let name = text(&member.name);
    let fail = |message: String| Err(Malformed { offset: member.offset, message });
    if member.size > MAX_JSON {
        return Ok(fail(format!(
            "{name:?} has {} bytes; a label is looked for in up to 16 MiB",
            member.size
        )));
    }
    let data = members.read(member.offset, member.size)?;
    Ok(class_number_in_json(&data).or_else(|wrong| fail(format!("{name:?} {wrong}"))))
}

/// The integer at `label` or `cls` of a JSON document; `None` where neither key is there.
///
/// # Errors
/// What is wrong with the document, in words that go behind its name.
pub(crate) fn class_number_in_json(data: &[u8]) -> Result<Option<u32>, String> {
    let mut found: [Option<Vec<u8>>; 2] = [None, None];
    let scanned = json::utf8(data).and_then(|document| {
        json::scan(&document, |key, value| {
            let key = key.and_then(json::text);
            if let Some(at) = NAMES.iter().position(|name| key.as_deref() == Some(name)) {
                found[at] = Some(value.to_vec());
            }
        })
    });
    scanned.map_err(|error| format!("is not JSON: {error}"))?;
    let Some((key, label)) = NAMES.iter().zip(&found).find_map(|(key, value)| Some((key, value.as_ref()?)))
    else {
        return Ok(None);
    };
    let wrong = || format!("has {key}, which should be a class number from 0 to 4294967294");
    class_number_in_text(label).map(Some).ok_or_else(wrong)
}

/// The keys under which a JSON object may have its sample's class. The first one that is there counts.
const NAMES: [&str; 2] = ["label", "cls"];

/// Parses a class number. The greatest u32 is none, because it stands for a missing label elsewhere.
pub(crate) fn class_number_in_text(written: &[u8]) -> Option<u32> {
    let number = std::str::from_utf8(written).ok()?.trim().parse().ok()?;
    (number < u32::MAX).then_some(number)
}
