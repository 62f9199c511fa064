//! Selects the files of a dataset that a text file lists. The lines are stored in a hash map, and one pass over the
//! file names of the dataset finds the samples of all lines.

use super::SampleSet;
use crate::dataset::{DatasetIndex, UNLISTED};
use crate::source::{read_named, shown};
use base::error::{Error, Result};
use base::notices::NoticeKind;
use std::collections::HashMap;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// The samples of the files that the text file at `path` lists, in the order of the lines.
pub(super) fn samples(path: &Path, index: &DatasetIndex) -> Result<Vec<u32>> {
    let shown = &*shown(path);
    let unread = |error| Error::config("files", format!("{} cannot be read: {error}", shown.display()));
    let text = read_named(path).map_err(unread)?;
    let lines = lines(&text);
    let wanted = WantedLines::of(&lines);
    let found = wanted.find(index, &lines)?;
    let wrong = |line: &ListLine<'_>, message: String| {
        let text = String::from_utf8_lossy(line.text.trim_ascii());
        Error::config("files", format!("{}, line {}: {text:?} {message}", shown.display(), line.number))
    };
    let mut bad = 0;
    for (shard, path) in index.bad_shards(true) {
        let names = [shard.shard.as_bytes(), path.as_os_str().as_bytes()];
        let mut naming = names.into_iter().flat_map(|name| wanted.naming(name));
        if let Some((_, line)) = naming.next() {
            let message = format!("cannot be read: {}", shard.message);
            return Err(wrong(&lines[line], message));
        }
        bad += 1;
    }
    if bad > 0 {
        let message = format!(
            "{}: {bad} of its shards cannot be read, but files= names none of them: `foreload index {0}` lists them",
            index.root().display()
        );
        index.notices().notify(NoticeKind::Information, message);
    }
    let mut seen = SampleSet::among(index.len());
    let mut samples = Vec::with_capacity(lines.len());
    let mut take = |at: usize, line: &ListLine<'_>| {
        let Some(ListedFile { file, match_kind, other }) = &found[at] else {
            let line_with_same_file = wanted.line_with_same_file(line, &found);
            return Err(line_with_same_file
                .map_or_else(|| names_nothing(&found, index), |first| again(&lines[first])));
        };
        if let Some(other) = other {
            return Err(ambiguous_name(index, file.start, other.start, "write its extension or whole path"));
        }
        let label = line.label(match_kind.reading);
        if let (Some(label), false) = (label, index.is_labeled()) {
            return Err(format!("states class {label}, but the dataset has no labels: omit the numbers"));
        }
        for sample in file.clone() {
            match (label, index.label(sample)) {
                (Some(label), UNLISTED) => {
                    return Err(format!(
                        "states class {label}, but class_names lacks the dataset's class of this file"
                    ));
                }
                (Some(label), here) if label != here => {
                    return Err(format!("states class {label}, but the dataset has it in class {here}"));
                }
                _ => {}
            }
            if !seen.insert(sample as u32) {
                let first =
                    found.iter().position(|known| known.as_ref().is_some_and(|known| known.file == *file));
                return Err(again(&lines[first.unwrap_or(at)]));
            }
            samples.push(sample as u32);
        }
        Ok(())
    };
    for (at, line) in lines.iter().enumerate() {
        take(at, line).map_err(|message| wrong(line, message))?;
    }
    Ok(samples)
}

struct ListLine<'a> {
    number: usize,
    text: &'a [u8],
}

fn lines(text: &[u8]) -> Vec<ListLine<'_>> {
    let numbered = (1..).zip(text.split(|&byte| byte == b'\n'));
    let whole =
        numbered.map(|(number, line)| ListLine { number, text: line.strip_suffix(b"\r").unwrap_or(line) });
    whole.filter(|line| !matches!(line.text.trim_ascii(), b"" | [b'#', ..])).collect()
}

/// The ways to parse a line. Earlier variants are preferred.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum LineReading {
    /// A path, exactly as written, because a file name can begin or end with a space.
    Verbatim,
    /// A path, without white space around it.
    Trimmed,
    /// A path, white space and a class number.
    Labeled,
    /// A path, white space and a class number, without white space around them.
    TrimmedLabeled,
}

impl LineReading {
    const ALL: [Self; 4] = [Self::Verbatim, Self::Trimmed, Self::Labeled, Self::TrimmedLabeled];
}

impl<'a> ListLine<'a> {
    /// The path and the class number of the line if it is parsed as `reading`. `None` if this is impossible, or if
    /// another way gives the same result.
    fn read(&self, reading: LineReading) -> Option<(&'a [u8], Option<u32>)> {
        // Lists made by `find` begin with "./".
        let path = |text: &'a [u8]| text.strip_prefix(b"./").unwrap_or(text);
        let trimmed = self.text.trim_ascii();
        let labeled = |text: &'a [u8]| {
            let text = path(text).trim_ascii_end();
            let space = text.iter().rposition(u8::is_ascii_whitespace)?;
            let label = std::str::from_utf8(&text[space + 1..]).ok()?.parse().ok()?;
            Some((text[..space].trim_ascii_end(), Some(label)))
        };
        match reading {
            LineReading::Verbatim => Some((path(self.text), None)),
            LineReading::Trimmed => (trimmed != self.text).then(|| (path(trimmed), None)),
            LineReading::Labeled => labeled(self.text),
            LineReading::TrimmedLabeled => labeled(trimmed).filter(|_| trimmed != self.text),
        }
    }

    fn label(&self, reading: LineReading) -> Option<u32> {
        self.read(reading)?.1
    }
}

/// How a line matches a file name. Smaller values are preferred.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct MatchKind {
    reading: LineReading,
    /// Whether the line gives the file name without its extension.
    is_stem: bool,
}

#[derive(Debug, Clone)]
struct ListedFile {
    file: Range<u64>,
    match_kind: MatchKind,
    /// The samples of another file that the line also matches.
    other: Option<Range<u64>>,
}

/// For each of the four ways to parse a line, maps the parsed path to the index of the first line with this path.
struct WantedLines<'a>([HashMap<&'a [u8], u32>; 4]);

impl<'a> WantedLines<'a> {
    fn of(lines: &[ListLine<'a>]) -> Self {
        Self(LineReading::ALL.map(|reading| {
            let mut wanted = HashMap::new();
            for (number, line) in (0..).zip(lines) {
                if let Some((path, _)) = line.read(reading) {
                    wanted.entry(path).or_insert(number);
                }
            }
            wanted
        }))
    }

    /// Returns the index of another line that matches the same file as `line`.
    fn line_with_same_file(&self, line: &ListLine<'_>, found: &[Option<ListedFile>]) -> Option<usize> {
        let same = LineReading::ALL.into_iter().zip(&self.0).filter_map(|(reading, wanted)| {
            let (path, _) = line.read(reading)?;
            wanted.get(path)
        });
        same.map(|&first| first as usize).find(|&first| found[first].is_some())
    }

    fn find(&self, index: &DatasetIndex, lines: &[ListLine<'_>]) -> Result<Vec<Option<ListedFile>>> {
        let is_absolute = lines.iter().any(|line| line.text.trim_ascii_start().starts_with(b"/"));
        let mut found = vec![None; lines.len()];
        index.each_name(|samples, path| {
            self.look_up(&samples, path, &mut found);
            if samples.is_empty() {
                return;
            }
            let file = index.extent(samples.start).file;
            // A shard of a packed dataset is not a file of the source.
            if is_absolute && index.samples_of(file) == samples {
                self.look_up(&samples, index.path(file).as_os_str().as_bytes(), &mut found);
            }
        })?;
        Ok(found)
    }

    fn naming(&self, path: &[u8]) -> impl Iterator<Item = (MatchKind, usize)> {
        let names = [(false, Some(path)), (true, stem(path))];
        LineReading::ALL.into_iter().zip(&self.0).flat_map(move |(reading, wanted)| {
            let line = move |(is_stem, name): (bool, Option<&[u8]>)| {
                let line = wanted.get(name?)?;
                Some((MatchKind { reading, is_stem }, *line as usize))
            };
            names.into_iter().filter_map(line)
        })
    }

    fn look_up(&self, file: &Range<u64>, path: &[u8], found: &mut [Option<ListedFile>]) {
        for (match_kind, line) in self.naming(path) {
            let known = &mut found[line];
            match known {
                Some(better) if better.match_kind < match_kind => {}
                Some(same) if same.match_kind == match_kind => same.other = Some(file.clone()),
                _ => *known = Some(ListedFile { file: file.clone(), match_kind, other: None }),
            }
        }
    }
}

/// Describes a name that matches the files of two samples, as a phrase that follows the name.
pub(in crate::dataset) fn ambiguous_name(index: &DatasetIndex, one: u64, other: u64, remedy: &str) -> String {
    let [one, other] = [one, other].map(|sample| index.shown_path(sample));
    format!("matches both {} and {}: {remedy}", one.display(), other.display())
}

/// A path without the extension of its file name; `None` if it has no extension.
pub(in crate::dataset) fn stem(path: &[u8]) -> Option<&[u8]> {
    let dot = path.iter().rposition(|&byte| byte == b'.')?;
    let name = path.iter().rposition(|&byte| byte == b'/').map_or(0, |slash| slash + 1);
    (dot > name).then(|| &path[..dot])
}

fn again(first: &ListLine<'_>) -> String {
    format!("names the same file as line {}: use weights to repeat samples", first.number)
}

fn names_nothing(found: &[Option<ListedFile>], index: &DatasetIndex) -> String {
    let mut first = String::new();
    let _ = index.each_name(|samples, name| {
        if samples.start == 0 {
            first = String::from_utf8_lossy(name).into_owned();
        }
    });
    let such = match found.iter().filter(|found| found.is_none()).count() {
        0 | 1 => String::new(),
        count => format!(" (one of {count} such lines)"),
    };
    let bad = match index.bad_shards(false).count() {
        0 => String::new(),
        count => format!("; {count} of its shards cannot be read (`foreload index` lists them)"),
    };
    format!("names no file of the dataset{such}; its files have names like {first:?}{bad}")
}
