//! Files that are numbered as parts of a dataset, `NAME-00000-of-00010`, and checks for missing parts.

use std::collections::{BTreeMap, BTreeSet, HashSet};

const TOTAL_SEPARATOR: &[u8] = b"-of-";
/// The number of digits of a part number. A shorter number can mean something else, and no dataset needs more than 9
/// digits.
const DIGITS: std::ops::RangeInclusive<usize> = 4..=9;
const NAMED: usize = 3;

/// A file name such as `NAME-00000-of-00010.tar`, split into its components.
struct NumberedName<'a> {
    before: &'a [u8],
    number: u64,
    /// The total number of parts according to the name, which writes it with `digits` digits.
    total: u64,
    digits: usize,
    /// The text after the total: an extension, possibly preceded by a digest of the file.
    suffix: &'a [u8],
    ending: &'a [u8],
}

impl<'a> NumberedName<'a> {
    fn of(name: &'a [u8]) -> Option<Self> {
        let at = name.windows(TOTAL_SEPARATOR.len()).rposition(|part| part == TOTAL_SEPARATOR)?;
        let (start, suffix) = (&name[..at], &name[at + TOTAL_SEPARATOR.len()..]);
        let digits = suffix.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let before = start.iter().rev().take_while(|byte| byte.is_ascii_digit()).count();
        if before != digits || !DIGITS.contains(&digits) {
            return None;
        }
        let number = |text: &[u8]| std::str::from_utf8(text).ok()?.parse().ok();
        let ((before, part), (all, suffix)) = (start.split_at(start.len() - digits), suffix.split_at(digits));
        let ending = &suffix[suffix.iter().position(|&byte| byte == b'.').unwrap_or(suffix.len())..];
        Some(Self { before, number: number(part)?, total: number(all)?, digits, suffix, ending })
    }

    fn text(&self) -> String {
        let Self { before, number, total, digits, suffix, .. } = self;
        let text = String::from_utf8_lossy;
        format!("{}{number:0digits$}-of-{total:0digits$}{}", text(before), text(suffix))
    }

    fn with_number(&self, number: &str) -> String {
        let text = String::from_utf8_lossy;
        let own = if self.suffix.len() > self.ending.len() { "-*" } else { "" };
        let Self { before, total, digits, ending, .. } = self;
        format!("{}{number}-of-{total:0digits$}{own}{}", text(before), text(ending))
    }
}

/// Finds two files in `names` whose names differ only in their compression. This happens if the compressed file is kept
/// after decompression.
pub(super) fn same_file_twice(names: &[Vec<u8>]) -> Option<(Vec<u8>, Vec<u8>)> {
    let all: HashSet<&[u8]> = names.iter().map(Vec::as_slice).collect();
    names.iter().find_map(|name| {
        let ending = |ending: &[u8]| name.strip_suffix(ending);
        let plain = ending(b".gz").or_else(|| ending(b".zst")).map(<[u8]>::to_vec);
        let plain = plain.or_else(|| ending(b".tgz").map(|stem| [stem, b".tar"].concat()))?;
        let found = [plain.clone(), [&plain[..], b".gz"].concat()];
        let same = found.into_iter().find(|other| other != name && all.contains(&other[..]))?;
        Some((same, name.clone()))
    })
}

/// If the file names show that parts are missing, returns a phrase that follows the name of the dataset. The phrase
/// says what is wrong, and how to read the files anyway.
pub(super) fn missing_parts(names: &[Vec<u8>]) -> Option<String> {
    let mut wholes: BTreeMap<_, Vec<NumberedName<'_>>> = BTreeMap::new();
    for name in names.iter().filter_map(|name| NumberedName::of(name)) {
        wholes.entry((name.before, name.ending)).or_default().push(name);
    }
    wholes.values().find_map(|parts| parts_missing(parts))
}

fn parts_missing(parts: &[NumberedName<'_>]) -> Option<String> {
    let first = parts.first()?;
    let numbered = |of: &NumberedName<'_>, number: u64| {
        let digits = of.digits;
        of.with_number(&format!("{number:0digits$}"))
    };
    if let Some(other) = parts.iter().find(|part| part.total != first.total) {
        return Some(format!(
            "mixes two versions: {} is one of {} files, {} one of {}: remove the files of one version",
            numbered(first, first.number),
            first.total,
            numbered(other, other.number),
            other.total
        ));
    }
    let mut there = BTreeSet::new();
    if let Some(twice) = parts.iter().find(|part| !there.insert(part.number)) {
        let same: Vec<String> =
            parts.iter().filter(|part| part.number == twice.number).map(NumberedName::text).collect();
        return Some(format!(
            "has several files for the same part ({}): remove the files of the other version",
            same.join(" and ")
        ));
    }
    // Some writers number the parts from 1, not from 0.
    let begin = u64::from(there.contains(&first.total) && !there.contains(&0));
    let wanted = begin..begin + first.total;
    if let Some(&beyond) = there.iter().find(|number| !wanted.contains(number)) {
        let (name, total) = (numbered(first, beyond), first.total);
        return Some(format!("has {name}, whose number is not one of {total} files: rename or remove it"));
    }
    let missing = first.total - there.len() as u64;
    if missing == 0 {
        return None;
    }
    let absent = wanted.filter(|number| !there.contains(number)).take(NAMED);
    let absent: Vec<String> = absent.map(|number| numbered(first, number)).collect();
    let more = if missing > absent.len() as u64 { ", ..." } else { "" };
    let digits = first.digits;
    let (from, to) = (there.first()?, there.last()?);
    let part = first.with_number(&format!("{{{from:0digits$}..{to:0digits$}}}"));
    let braces = if part.contains('*') {
        "open another copy of the dataset".to_owned()
    } else {
        format!("to read only a part, name the existing files by braces, as in {part}")
    };
    Some(format!(
        "is incomplete: {missing} of {} files are missing ({}{more}): download them, or {braces}",
        first.total,
        absent.join(", ")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_unpacked_beside_itself_is_there_twice() {
        let found = |names: &[&str]| {
            let names: Vec<Vec<u8>> = names.iter().map(|name| name.as_bytes().to_vec()).collect();
            same_file_twice(&names)
                .map(|(one, other)| [one, other].map(|name| String::from_utf8(name).unwrap()))
        };
        let pair = |one: &str, other: &str| Some([one.to_owned(), other.to_owned()]);
        assert_eq!(found(&["a.tar", "b.tar.gz", "c.tgz", "d.tar.zst", "e.tfrecord.gz"]), None);
        assert_eq!(found(&["d/a.tar", "d/a.tar.gz"]), pair("d/a.tar", "d/a.tar.gz"));
        assert_eq!(found(&["a.tar", "a.tgz"]), pair("a.tar", "a.tgz"));
        assert_eq!(found(&["a.tar.gz", "a.tgz"]), pair("a.tar.gz", "a.tgz"));
        assert_eq!(found(&["x.tar", "x.tar.zst"]), pair("x.tar", "x.tar.zst"));
        assert_eq!(found(&["x.tfrecord", "x.tfrecord.gz"]), pair("x.tfrecord", "x.tfrecord.gz"));
    }

    fn said(names: &[&str]) -> String {
        let names: Vec<Vec<u8>> = names.iter().map(|name| name.as_bytes().to_vec()).collect();
        missing_parts(&names).unwrap_or_default()
    }

    #[test]
    fn what_is_whole_or_has_no_numbers_says_nothing() {
        for whole in [
            &["a.parquet", "b.parquet"][..],
            &["d/a-00000-of-00002.parquet", "d/a-00001-of-00002.parquet", "d/b-00000-of-00001.parquet"],
            &["a-00000-of-00002-0123abcd.parquet", "a-00001-of-00002-456789ef.parquet"],
            &["x.tfrecord-00000-of-00001", "x.tfrecord-00000-of-00001.gz"],
            // Parts that are numbered from 1, and names without such numbers.
            &["a-00001-of-00002.tar", "a-00002-of-00002.tar"],
            &["a-1-of-9.tar", "a-0001-of-00009.tar", "best-of-2020.tar", "-of-", "0000000000-of-0000000009"],
        ] {
            assert_eq!(said(whole), "", "{whole:?}");
        }
    }

    #[test]
    fn missing_files_are_counted_and_named() {
        let told = said(&["d/a-00002-of-01000.parquet", "d/a-00000-of-01000.parquet"]);
        assert_eq!(
            told,
            "is incomplete: 998 of 1000 files are missing (d/a-00001-of-01000.parquet, d/a-00003-of-01000.parquet, \
             d/a-00004-of-01000.parquet, ...): download them, or to read only a part, name the existing files by \
             braces, as in d/a-{00000..00002}-of-01000.parquet"
        );
        let told = said(&["a-00000-of-00002-0123abcd.parquet"]);
        assert!(told.contains("1 of 2 files are missing (a-00001-of-00002-*.parquet)"), "{told}");
        let told = said(&["x.tfrecord-999999998-of-999999999"]);
        assert!(told.contains("999999998 of 999999999"), "{told}");
        assert!(said(&["a-0002-of-0002.tar"]).contains("1 of 2 files are missing (a-0001-of-0002.tar)"));
    }

    #[test]
    fn several_versions_are_told_apart() {
        let told = said(&["a-00000-of-00001.parquet", "a-00001-of-00002.parquet"]);
        assert!(
            told.contains("a-00000-of-00001.parquet is one of 1 files, a-00001-of-00002.parquet one of 2"),
            "{told}"
        );
        let told = said(&["a-00000-of-00001.parquet", "a-00007-of-00001.parquet"]);
        assert!(told.contains("a-00007-of-00001.parquet, whose number is not one of 1 files"), "{told}");
        let told = said(&["a-00000-of-00001-0123abcd.parquet", "a-00000-of-00001-456789ef.parquet"]);
        let both = "(a-00000-of-00001-0123abcd.parquet and a-00000-of-00001-456789ef.parquet)";
        assert!(told.contains(both), "{told}");
    }
}
