//! Names of files that belong together: patterns with one `*`, and stems. Pure.

use super::super::FieldKind;
use super::super::survey::{MASKS, is_called, without_mask_suffix};
use std::collections::HashMap;

/// The files of a field: those below a directory, or those that a pattern with one `*` matches. `*` matches any text,
/// also with slashes.
#[derive(Debug)]
pub(super) struct StemPattern<'a> {
    source: &'a str,
    prefix: String,
    /// What names end in after `*`; `None` for a directory, and after a `*` at the end: files may have any extension.
    suffix: Option<&'a str>,
}

impl<'a> StemPattern<'a> {
    /// # Errors
    /// Why the source cannot name files below the root.
    pub(super) fn parse(source: &'a str) -> Result<Self, String> {
        let plain = source.strip_prefix("./").unwrap_or(source);
        let (prefix, suffix) = match plain.split_once('*') {
            Some((_, after)) if after.contains('*') => return Err("has more than one *".to_owned()),
            Some((before, "")) => (before.to_owned(), None),
            Some((before, after)) => (before.to_owned(), Some(after)),
            None => (format!("{}/", plain.trim_end_matches('/')), None),
        };
        let parts = plain.trim_end_matches('/').split('/');
        if parts.clone().any(|part| matches!(part, "" | "." | "..")) {
            return Err("must be a path below the root, without . and ..".to_owned());
        }
        Ok(Self { source, prefix, suffix })
    }

    pub(super) fn source(&self) -> &str {
        self.source
    }

    pub(super) fn takes_any_extension(&self) -> bool {
        self.suffix.is_none()
    }

    /// The directory that has all files of the field; empty for the root.
    pub(super) fn directory(&self) -> &str {
        self.prefix.rsplit_once('/').map_or("", |(directory, _)| directory)
    }

    /// What identifies the sample of a file: the text that `*` stands for, or without text after `*` the path without
    /// its extension. `None` for a file of another field.
    pub(super) fn stem<'p>(&self, path: &'p [u8]) -> Option<&'p [u8]> {
        let rest = path.strip_prefix(self.prefix.as_bytes())?;
        match self.suffix {
            Some(suffix) => rest.strip_suffix(suffix.as_bytes()),
            None => {
                let name = rest.iter().rposition(|&byte| byte == b'/').map_or(0, |slash| slash + 1);
                let dot = rest[name..].iter().rposition(|&byte| byte == b'.');
                Some(&rest[..dot.map_or(rest.len(), |dot| name + dot)])
            }
        }
    }

    /// The kind of the field's files, by their extension. Images are masks if the directory is called like one.
    pub(super) fn kind<'p>(&self, paths: impl Iterator<Item = &'p str>) -> FieldKind {
        let of = |path: &str| match path.rsplit_once('.') {
            Some((_, extension)) => FieldKind::of_key(&extension.to_ascii_lowercase()),
            None => FieldKind::Bytes,
        };
        let kind = paths.map(of).reduce(|a, b| if a == b { a } else { FieldKind::Bytes });
        match kind.unwrap_or(FieldKind::Bytes) {
            FieldKind::Image if is_called(self.directory().as_bytes(), MASKS) => FieldKind::Mask,
            kind => kind,
        }
    }
}

/// The files of one field for the samples, in the order of the samples.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Partners<'p> {
    pub(super) of_samples: Vec<Option<&'p [u8]>>,
    /// The files that belong to no sample.
    pub(super) others: Vec<&'p [u8]>,
    /// A sample with two files.
    pub(super) twice: Option<(usize, [&'p [u8]; 2])>,
}

/// Finds the files of `pattern` among `paths`, which are sorted, for the samples with these `stems`. A file belongs to
/// the sample with its stem. In a directory, a sample without such a file takes the file whose stem is its own with a
/// suffix of masks such as `_mask`.
pub(super) fn partners<'p>(
    pattern: &StemPattern<'_>,
    stems: &[&[u8]],
    paths: impl Iterator<Item = &'p [u8]>,
) -> Partners<'p> {
    let sample_of: HashMap<&[u8], usize> = stems.iter().zip(0..).map(|(stem, at)| (*stem, at)).collect();
    let mut found = Partners { of_samples: vec![None; stems.len()], ..Partners::default() };
    let mut rest = Vec::new();
    for path in paths {
        let Some(stem) = pattern.stem(path) else { continue };
        match sample_of.get(stem) {
            Some(&sample) => found.take(sample, path),
            None => rest.push((stem, path)),
        }
    }
    let has_own: Vec<bool> = found.of_samples.iter().map(Option::is_some).collect();
    for (stem, path) in rest {
        let shorter = if pattern.takes_any_extension() { without_mask_suffix(stem) } else { stem };
        match sample_of.get(shorter) {
            Some(&sample) if !has_own[sample] => found.take(sample, path),
            _ => found.others.push(path),
        }
    }
    found
}

impl<'p> Partners<'p> {
    fn take(&mut self, sample: usize, path: &'p [u8]) {
        let Some(known) = self.of_samples[sample].replace(path) else { return };
        if self.twice.is_none_or(|(other, _)| sample < other) {
            self.twice = Some((sample, [known, path]));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_give_stems() {
        let stem = |source: &str, path: &str| {
            let pattern = StemPattern::parse(source).unwrap();
            pattern.stem(path.as_bytes()).map(|stem| String::from_utf8_lossy(stem).into_owned())
        };
        for (source, path, expected) in [
            ("images", "images/a.b.jpg", Some("a.b")),
            ("./images/", "images/x.y/a", Some("x.y/a")),
            ("images", "images2/a.jpg", None),
            ("left/train/*_left.png", "left/train/ulm/1_left.png", Some("ulm/1")),
            ("left/train/*_left.png", "left/train/ulm/1_right.png", None),
            ("*/image.png", "7/image.png", Some("7")),
            ("images/l*", "images/left.jpg", Some("eft")),
            // Prefix and suffix must not share bytes.
            ("a_*_a.png", "a_a.png", None),
        ] {
            assert_eq!(stem(source, path).as_deref(), expected, "{source} {path}");
        }
        assert_eq!(StemPattern::parse("left/train/*_left.png").unwrap().directory(), "left/train");
        assert_eq!(StemPattern::parse("*/image.png").unwrap().directory(), "");
        for wrong in ["a*b*", "../images", "/images", "a//b", "."] {
            assert!(StemPattern::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn names_say_what_files_hold() {
        let kind = |source, paths: &[&str]| StemPattern::parse(source).unwrap().kind(paths.iter().copied());
        assert_eq!(kind("masks", &["masks/a.PNG", "masks/b.png"]), FieldKind::Mask);
        assert_eq!(kind("train/right", &["train/right/a.jpg", "train/right/a.png"]), FieldKind::Image);
        assert_eq!(kind("labels", &["labels/a.txt"]), FieldKind::Text);
        assert_eq!(kind("labels", &["labels/a.txt", "labels/b.json"]), FieldKind::Bytes);
    }

    #[test]
    fn a_file_with_the_same_stem_goes_before_one_with_a_suffix() {
        let pattern = StemPattern::parse("masks").unwrap();
        let find = |paths: &[&'static str]| {
            partners(&pattern, &[b"a", b"b_mask", b"c"], paths.iter().map(|path| path.as_bytes()))
        };
        let found = find(&["masks/a.png", "masks/a_gt.png", "masks/b_mask.png", "masks/c_mask.png"]);
        let expected: [Option<&[u8]>; 3] =
            [Some(b"masks/a.png"), Some(b"masks/b_mask.png"), Some(b"masks/c_mask.png")];
        assert_eq!(found.of_samples, expected);
        assert_eq!((found.others, found.twice), (vec![&b"masks/a_gt.png"[..]], None));
        let twice = find(&["masks/c_gt.png", "masks/c_mask.png", "masks/x.png"]);
        let both: [&[u8]; 2] = [b"masks/c_gt.png", b"masks/c_mask.png"];
        assert_eq!(twice.twice, Some((2, both)));
    }
}
