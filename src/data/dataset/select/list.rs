//! Selects the files of a dataset that a text file lists. The lines are hashed, and one pass over the dataset's names
//! finds them all.

use super::SampleSet;
use crate::dataset::{DatasetIndex, UNLISTED};
use crate::source::{read_named, shown};
use base::error::{Error, Result};
use base::notices::NoticeKind;
use std::collections::HashMap;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// The samples of the files that the file at `path` lists, in its order.
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
        let Some(ListedFile { file, how, other }) = &found[at] else {
            let rival = wanted.rival(line, &found);
            return Err(rival.map_or_else(|| names_nothing(&found, index), |first| again(&lines[first])));
        };
        if let Some(other) = other {
            return Err(are_several(index, file.start, other.start, "write its extension or whole path"));
        }
        let label = line.label(how.reading);
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

/// A line that is neither empty nor a comment.
struct ListLine<'a> {
    /// The number of the line in the file, from 1.
    number: usize,
    text: &'a [u8],
}

fn lines(text: &[u8]) -> Vec<ListLine<'_>> {
    let numbered = (1..).zip(text.split(|&byte| byte == b'\n'));
    let whole =
        numbered.map(|(number, line)| ListLine { number, text: line.strip_suffix(b"\r").unwrap_or(line) });
    whole.filter(|line| !matches!(line.text.trim_ascii(), b"" | [b'#', ..])).collect()
}

/// A way to read a line, in order of preference.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum LineReading {
    /// A path, exactly as written, because a file name may begin or end with a space.
    Whole,
    /// A path, without white space around it.
    Trimmed,
    /// A path, white space and a class number.
    Labeled,
    /// The same, without white space around it.
    TrimmedLabeled,
}

impl LineReading {
    const ALL: [Self; 4] = [Self::Whole, Self::Trimmed, Self::Labeled, Self::TrimmedLabeled];
}

impl<'a> ListLine<'a> {
    /// The path and the class number of the line in one reading; `None` if this reading does not apply, or adds
    /// nothing.
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
            LineReading::Whole => Some((path(self.text), None)),
            LineReading::Trimmed => (trimmed != self.text).then(|| (path(trimmed), None)),
            LineReading::Labeled => labeled(self.text),
            LineReading::TrimmedLabeled => labeled(trimmed).filter(|_| trimmed != self.text),
        }
    }

    /// The class number of the line, read in one way.
    fn label(&self, reading: LineReading) -> Option<u32> {
        self.read(reading)?.1
    }
}

/// How a line matches a file's name, in order of preference.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct MatchKind {
    reading: LineReading,
    /// Whether the line gives the name without its extension.
    is_stem: bool,
}

/// The file that a line names.
#[derive(Debug, Clone)]
struct ListedFile {
    /// The samples of the file.
    file: Range<u64>,
    how: MatchKind,
    /// The samples of another file that the line names as well.
    other: Option<Range<u64>>,
}

/// The lines by the path that they name, for each way to read them.
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

    /// Another line that already names the file of `line`.
    fn rival(&self, line: &ListLine<'_>, found: &[Option<ListedFile>]) -> Option<usize> {
        let same = LineReading::ALL.into_iter().zip(&self.0).filter_map(|(reading, wanted)| {
            let (path, _) = line.read(reading)?;
            wanted.get(path)
        });
        same.map(|&first| first as usize).find(|&first| found[first].is_some())
    }

    /// The files of these lines.
    fn find(&self, index: &DatasetIndex, lines: &[ListLine<'_>]) -> Result<Vec<Option<ListedFile>>> {
        let is_absolute = lines.iter().any(|line| line.text.trim_ascii_start().starts_with(b"/"));
        let mut found = vec![None; lines.len()];
        index.each_name(|samples, path| {
            self.look_up(&samples, path, &mut found);
            if samples.is_empty() {
                return;
            }
            let file = index.extent(samples.start).file;
            // A shard of a packed dataset is not one of the source's files.
            if is_absolute && index.samples_of(file) == samples {
                self.look_up(&samples, index.path(file).as_os_str().as_bytes(), &mut found);
            }
        })?;
        Ok(found)
    }

    /// The lines that name the file at `path`, each with how it matches.
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
        for (how, line) in self.naming(path) {
            let known = &mut found[line];
            match known {
                Some(better) if better.how < how => {}
                Some(same) if same.how == how => same.other = Some(file.clone()),
                _ => *known = Some(ListedFile { file: file.clone(), how, other: None }),
            }
        }
    }
}

/// Describes a name that stands for the files of two samples, in words that follow the name.
pub(in crate::dataset) fn are_several(index: &DatasetIndex, one: u64, other: u64, remedy: &str) -> String {
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
    // If the names cannot be read, the message has no example.
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
