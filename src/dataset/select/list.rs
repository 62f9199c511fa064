//! Files of a dataset that are listed in a text file. The lines are hashed, and one pass over the dataset's names finds
//! them all.

use super::SampleSet;
use crate::dataset::DatasetIndex;
use crate::error::{Error, Result};
use crate::source::{read_named, shown};
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
    let found = wanted.find(index, lines.len())?;
    let mut seen = SampleSet::among(index.len());
    let mut samples = Vec::with_capacity(lines.len());
    let mut take = |at: usize, line: &ListLine<'_>| {
        let Some(ListedFile { file, how, other }) = &found[at] else {
            let rival = wanted.rival(line, &found);
            return Err(rival.map_or_else(|| names_nothing(&found, index), |first| again(&lines[first])));
        };
        if let Some(other) = other {
            let [one, other] = [file, other].map(|file| index.shown_path(file.start));
            let message =
                format!("is {} and {}: write its extension or whole path", one.display(), other.display());
            return Err(message);
        }
        let label = line.label().filter(|_| how.is_labeled());
        if let (Some((_, label)), false) = (label, index.is_labeled()) {
            return Err(format!("says class {label}; the dataset has no labels: leave the numbers out"));
        }
        for sample in file.clone() {
            let here = index.label(sample);
            if let Some((_, label)) = label.filter(|&(_, label)| label != here) {
                return Err(format!("says class {label}; the dataset has it in class {here}"));
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
        take(at, line).map_err(|message| {
            let text = String::from_utf8_lossy(line.text);
            Error::config("files", format!("{}, line {}: {text:?} {message}", shown.display(), line.number))
        })?;
    }
    Ok(samples)
}

/// A line that names something.
struct ListLine<'a> {
    /// The number of the line in the file, from 1.
    number: usize,
    text: &'a [u8],
}

fn lines(text: &[u8]) -> Vec<ListLine<'_>> {
    let numbered = (1..).zip(text.split(|&byte| byte == b'\n'));
    let trimmed = numbered.map(|(number, line)| ListLine { number, text: line.trim_ascii() });
    trimmed.filter(|line| !line.text.is_empty() && !line.text.starts_with(b"#")).collect()
}

impl<'a> ListLine<'a> {
    /// The line as a path; the lists of `find` begin with "./".
    fn path(&self) -> &'a [u8] {
        self.text.strip_prefix(b"./").unwrap_or(self.text)
    }

    /// The line as a path and a class number.
    fn label(&self) -> Option<(&'a [u8], u32)> {
        let path = self.path();
        let space = path.iter().rposition(u8::is_ascii_whitespace)?;
        let label = std::str::from_utf8(&path[space + 1..]).ok()?.parse().ok()?;
        Some((path[..space].trim_ascii_end(), label))
    }
}

/// How a file's name and a line agree, the best way first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum MatchKind {
    Path,
    Stem,
    LabeledPath,
    LabeledStem,
}

impl MatchKind {
    fn is_labeled(self) -> bool {
        self >= Self::LabeledPath
    }
}

/// The file that a line names.
#[derive(Debug, Clone)]
struct ListedFile {
    /// The samples of the file.
    file: Range<u64>,
    how: MatchKind,
    /// The samples of another file that it names as well.
    other: Option<Range<u64>>,
}

/// The lines by what they name: the whole line, and the line without the number after it.
struct WantedLines<'a> {
    whole: HashMap<&'a [u8], u32>,
    labeled: HashMap<&'a [u8], u32>,
    /// Whether some line is an absolute path.
    absolute: bool,
}

impl<'a> WantedLines<'a> {
    fn of(lines: &[ListLine<'a>]) -> Self {
        let mut wanted = Self {
            whole: HashMap::with_capacity(lines.len()),
            labeled: HashMap::new(),
            absolute: lines.iter().any(|line| line.text.starts_with(b"/")),
        };
        for (number, line) in (0..).zip(lines) {
            wanted.whole.entry(line.path()).or_insert(number);
            if let Some((path, _)) = line.label() {
                wanted.labeled.entry(path).or_insert(number);
            }
        }
        wanted
    }

    /// The line that has the file which `line` names too.
    fn rival(&self, line: &ListLine<'_>, found: &[Option<ListedFile>]) -> Option<usize> {
        let labeled = line.label().and_then(|(path, _)| self.labeled.get(path));
        let same = [self.whole.get(line.path()), labeled].into_iter().flatten();
        same.map(|&first| first as usize).find(|&first| found[first].is_some())
    }

    /// The files of this many lines.
    fn find(&self, index: &DatasetIndex, lines: usize) -> Result<Vec<Option<ListedFile>>> {
        let mut found = vec![None; lines];
        index.each_name(|samples, path| {
            self.look_up(&samples, path, &mut found);
            let file = index.extent(samples.start).file;
            // A shard of a packed dataset is none of the files that it was made of.
            if self.absolute && index.samples_of(file) == samples {
                self.look_up(&samples, index.path(file).as_os_str().as_bytes(), &mut found);
            }
        })?;
        Ok(found)
    }

    fn look_up(&self, file: &Range<u64>, path: &[u8], found: &mut [Option<ListedFile>]) {
        let stem = stem(path);
        let places = [
            (MatchKind::Path, self.whole.get(path)),
            (MatchKind::Stem, stem.and_then(|stem| self.whole.get(stem))),
            (MatchKind::LabeledPath, self.labeled.get(path)),
            (MatchKind::LabeledStem, stem.and_then(|stem| self.labeled.get(stem))),
        ];
        for (how, line) in places {
            let Some(&line) = line else { continue };
            let known = &mut found[line as usize];
            match known {
                Some(better) if better.how < how => {}
                Some(same) if same.how == how => same.other = Some(file.clone()),
                _ => *known = Some(ListedFile { file: file.clone(), how, other: None }),
            }
        }
    }
}

/// A path without the extension of its file name; `None` where there is none.
fn stem(path: &[u8]) -> Option<&[u8]> {
    let dot = path.iter().rposition(|&byte| byte == b'.')?;
    let name = path.iter().rposition(|&byte| byte == b'/').map_or(0, |slash| slash + 1);
    (dot > name).then(|| &path[..dot])
}

fn again(first: &ListLine<'_>) -> String {
    format!("is what line {} names: use weights to repeat samples", first.number)
}

fn names_nothing(found: &[Option<ListedFile>], index: &DatasetIndex) -> String {
    let mut first = String::new();
    // Without the names there is one example less.
    let _ = index.each_name(|samples, name| {
        if samples.start == 0 {
            first = String::from_utf8_lossy(name).into_owned();
        }
    });
    let such = match found.iter().filter(|found| found.is_none()).count() {
        0 | 1 => String::new(),
        count => format!(" (one of {count} such lines)"),
    };
    format!("names no file of the dataset{such}; its files are written like {first:?}")
}
