//! A directory to which files are added while training runs. Its files are samples. A file is complete when it gets its
//! name.

mod watch;

pub use watch::WatchChoice;

use super::super::record::Record;
use super::super::source::{Arrival, Received, Replay, SourcePosition, StreamSource};
use crate::share::RankShare;
use base::error::{Error, Result};
use base::notices::Notices;
use data::dataset::Stamp;
use data::dataset::kind::IMAGE_EXTENSIONS;
use std::collections::{HashMap, HashSet, VecDeque};
use std::fs::{File, Metadata};
use std::path::{Path, PathBuf};
use std::time::Duration;
use watch::Watch;

/// What happens to files when their samples are acknowledged.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum FolderAfter {
    /// The files stay. States contain the names of all used files.
    #[default]
    Keep,
    /// The files are removed.
    Delete,
    /// The files are moved to this directory, and keep their relative paths.
    Move(PathBuf),
}

/// A directory, and the rules by which its files are samples.
#[derive(Debug, Clone)]
pub struct FolderOptions {
    pub root: PathBuf,
    pub name: String,
    /// The suffixes, after a dot, of the names of a sample's files, for example `jpg` and `cls`. `None` if each image
    /// is a sample.
    pub members: Option<Vec<String>>,
    /// The suffix of the names of marker files. A marker says that all files with the same stem are complete.
    pub done: Option<String>,
    /// The names of the directories that are classes, in the order of their numbers.
    pub classes: Option<Vec<String>>,
    pub after: FolderAfter,
    pub watch: WatchChoice,
    /// How often the directory is listed if the kernel does not report changes.
    pub poll: Duration,
    /// The size limit of a sample in bytes.
    pub max_bytes: u64,
    /// This rank's share of the samples.
    pub share: RankShare,
}

/// The maximum number of attempts to read a sample, whose files may change during an attempt.
const READ_ATTEMPTS: u32 = 3;

/// A source whose samples are the files of a directory.
pub struct FolderSource {
    options: FolderOptions,
    notices: Notices,
    watch: Option<Watch>,
    /// The keys of the samples that were given or are settled.
    known: HashSet<String>,
    /// The keys of the complete samples that were not given yet.
    complete: VecDeque<String>,
    /// Samples with some of their files: for each key a bit mask of the files that exist.
    partial: HashMap<String, u64>,
    found: Vec<PathBuf>,
}

impl FolderSource {
    /// Creates the source of a directory.
    ///
    /// # Errors
    /// [`Error::Config`] for rules that cannot work.
    pub fn new(options: FolderOptions, notices: Notices) -> Result<Self> {
        let wrong = |message: String| Error::config("Folder", message);
        if options.members.as_ref().is_some_and(|members| members.is_empty() || members.len() > 64) {
            return Err(wrong("members must have 1 to 64 names, such as [\"jpg\", \"cls\"]".into()));
        }
        if options.done.as_ref().is_some_and(|done| done.is_empty()) {
            return Err(wrong("done is empty, must be a suffix of names such as \".done\"".into()));
        }
        if let FolderAfter::Move(to) = &options.after
            && std::path::absolute(to)
                .is_ok_and(|to| std::path::absolute(&options.root).is_ok_and(|root| to.starts_with(root)))
        {
            return Err(wrong(format!(
                "after moves files to {}, which is inside the watched directory: choose one outside",
                to.display()
            )));
        }
        let (known, complete, partial) = Default::default();
        Ok(Self { options, notices, watch: None, known, complete, partial, found: Vec::new() })
    }

    fn note(&mut self, path: &Path) {
        let Some(name) = path.file_name().map(|name| name.to_string_lossy()) else { return };
        if name.starts_with('.') || [".tmp", ".part", "~"].iter().any(|end| name.ends_with(end)) {
            return;
        }
        let Some(path) = path.to_str() else {
            self.notices.warn_once("names of files", || {
                format!("{}: the name is not UTF-8; files with such names are skipped", path.display())
            });
            return;
        };
        if let Some(done) = &self.options.done {
            if let Some(stem) = path.strip_suffix(done.as_str()) {
                self.add(stem.to_owned());
            }
            return;
        }
        let Some(members) = &self.options.members else {
            if image_extension(path).is_some() {
                self.add(path.to_owned());
            }
            return;
        };
        let ends = |(number, member): (usize, &String)| {
            let stem = path.strip_suffix(member.as_str())?.strip_suffix('.')?;
            Some((number, stem.to_owned()))
        };
        // A name may end in the suffixes of several members, for example "jpg" and "left.jpg": the longest suffix
        // counts.
        let found = members.iter().enumerate().filter_map(ends).min_by_key(|(_, stem)| stem.len());
        let Some((number, stem)) = found else { return };
        let all = u64::MAX >> (64 - members.len());
        let there = self.partial.entry(stem.clone()).or_default();
        *there |= 1 << number;
        if *there == all {
            self.partial.remove(&stem);
            self.add(stem);
        }
    }

    fn add(&mut self, key: String) {
        if self.options.share.owns(&self.options.name, &key) && self.known.insert(key.clone()) {
            self.complete.push_back(key);
        }
    }

    fn files(&self, key: &str) -> Vec<(String, PathBuf)> {
        let at = |name: String| self.options.root.join(name);
        match &self.options.members {
            Some(members) => members.iter().map(|end| (end.clone(), at(format!("{key}.{end}")))).collect(),
            None if self.options.done.is_some() => {
                IMAGE_EXTENSIONS.iter().map(|end| ((*end).to_owned(), at(format!("{key}.{end}")))).collect()
            }
            None => vec![(image_extension(key).unwrap_or("jpg").to_owned(), at(key.to_owned()))],
        }
    }

    fn read(&self, key: &str) -> Result<Record, String> {
        for _ in 0..READ_ATTEMPTS {
            if let Some(record) = self.read_once(key)? {
                return Ok(record);
            }
        }
        Err("it changed while it was read: write files under another name, and rename them when complete"
            .to_owned())
    }

    /// Reads all files of a sample. Returns `None` if one of them changed during the read.
    fn read_once(&self, key: &str) -> Result<Option<Record>, String> {
        let (mut members, mut files) = (Vec::new(), Vec::new());
        let mut left = self.options.max_bytes;
        for (name, path) in self.files(key) {
            match open_member(&path, left) {
                Ok(Some(file)) => {
                    left -= file.before.len();
                    members.push((name, file.before.len() as usize));
                    files.push(file);
                }
                // With a marker file, a missing file is not a part of the sample.
                Ok(None) if self.options.done.is_some() => {}
                Ok(None) => return Err(format!("{} was removed before it was read", path.display())),
                Err(error) => return Err(error),
            }
        }
        if members.is_empty() {
            return Err("its marker exists, but none of its files".to_owned());
        }
        let mut class_text = String::new();
        if let Some(classes) = &self.options.classes {
            let directory = Path::new(key).parent().and_then(Path::file_name).and_then(|name| name.to_str());
            let class = directory.and_then(|name| classes.iter().position(|class| class == name));
            let class = class.ok_or_else(|| {
                format!("its directory {:?} is not one of the classes", directory.unwrap_or_default())
            })?;
            class_text = class.to_string();
            members.push(("cls".to_owned(), class_text.len()));
        }
        let members: Vec<(&str, usize)> =
            members.iter().map(|(name, length)| (name.as_str(), *length)).collect();
        let mut changed = false;
        let record = Record::filled(&self.options.name, key, &members, |number, into| {
            match files.get(number) {
                Some(file) => changed |= !file.append(into)?,
                None => into.extend(class_text.as_bytes()),
            }
            Ok(())
        });
        if changed { Ok(None) } else { record.map(Some) }
    }

    fn release(&self, key: &str) -> Result<()> {
        let mut files: Vec<PathBuf> = self.files(key).into_iter().map(|(_, path)| path).collect();
        files.extend(self.options.done.as_ref().map(|done| self.options.root.join(format!("{key}{done}"))));
        for path in files {
            let outcome = match &self.options.after {
                FolderAfter::Keep => Ok(()),
                FolderAfter::Delete => std::fs::remove_file(&path),
                FolderAfter::Move(to) => move_below(&self.options.root, &path, to),
            };
            match outcome {
                // The file was released before, perhaps by a former run.
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                outcome => outcome.map_err(|error| Error::io("delete or move", &path, error))?,
            }
        }
        Ok(())
    }
}

impl StreamSource for FolderSource {
    fn name(&self) -> &str {
        &self.options.name
    }

    fn replay(&self) -> Replay {
        Replay::Unordered
    }

    fn open(&mut self, position: &SourcePosition) -> Result<()> {
        self.known.extend(position.settled.iter().cloned());
        let FolderOptions { root, watch, poll, .. } = &self.options;
        let watch = Watch::new(root, *watch, *poll)?;
        if !watch.uses_inotify() {
            self.notices.inform_once("polled folder", || {
                format!(
                    "{} is listed every {poll:?}, because its file system does not report changes",
                    root.display()
                )
            });
        }
        self.watch = Some(watch);
        Ok(())
    }

    fn redistribute(&self, former: Vec<SourcePosition>) -> Result<SourcePosition> {
        let FolderOptions { share, name, .. } = &self.options;
        let mut position = SourcePosition::union(former);
        position.settled.retain(|key| share.owns(name, key));
        Ok(position)
    }

    fn receive(&mut self, most: usize, patience: Duration, into: &mut Vec<Arrival>) -> Result<Received> {
        if self.complete.is_empty() {
            let watch =
                self.watch.as_mut().ok_or_else(|| Error::Internal("a folder was not opened".into()))?;
            let mut found = std::mem::take(&mut self.found);
            watch.wait(patience, &mut found)?;
            found.sort_unstable();
            found.drain(..).for_each(|path| self.note(&path));
            self.found = found;
        }
        for _ in 0..most {
            let Some(key) = self.complete.pop_front() else { break };
            let record = self.read(&key);
            into.push(Arrival { key, record, gap: 0 });
        }
        Ok(Received::More)
    }

    fn acknowledge(&mut self, position: &SourcePosition) -> Result<bool> {
        if self.options.after == FolderAfter::Keep {
            return Ok(false);
        }
        for key in &position.settled {
            self.release(key)?;
            self.known.remove(key);
        }
        Ok(true)
    }

    fn fetch(&mut self, key: &str) -> Result<Record> {
        self.read(key).map_err(|what| {
            Error::Unavailable(format!("{:?} of {} cannot be read again: {what}", key, self.describe()))
        })
    }

    fn describe(&self) -> String {
        format!("the directory {}", self.options.root.display())
    }
}

fn image_extension(name: &str) -> Option<&'static str> {
    let extension = Path::new(name).extension()?.to_str()?;
    IMAGE_EXTENSIONS.iter().copied().find(|known| known.eq_ignore_ascii_case(extension))
}

struct MemberFile {
    path: PathBuf,
    file: File,
    before: Metadata,
}

/// Opens a file of up to `most` bytes. Returns `None` if it does not exist.
fn open_member(path: &Path, most: u64) -> Result<Option<MemberFile>, String> {
    let wrong = |error: std::io::Error| format!("{}: {error}", path.display());
    let file = match File::open(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        opened => opened.map_err(wrong)?,
    };
    let before = file.metadata().map_err(wrong)?;
    if !before.is_file() {
        return Err(format!("{}: is not a file", path.display()));
    }
    if before.len() > most {
        return Err(format!("{} has {} bytes, but max_bytes is {most}", path.display(), before.len()));
    }
    Ok(Some(MemberFile { path: path.to_owned(), file, before }))
}

impl MemberFile {
    /// Appends the file's bytes, and returns whether all bytes are of one version of the file.
    fn append(&self, into: &mut Vec<u8>) -> Result<bool, String> {
        let wrong = |error: std::io::Error| format!("{}: {error}", self.path.display());
        let end = into.len() + self.before.len() as usize;
        // A single request reads a whole file of usual size. With the standard `read_to_end` the requests grow from 8
        // KiB.
        while into.len() < end {
            match rustix::io::read(&self.file, rustix::buffer::spare_capacity(into)) {
                Ok(0) => break,
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(wrong(error.into())),
            }
        }
        let after = self.file.metadata().map_err(wrong)?;
        Ok(into.len() == end && Stamp::of(&self.before) == Stamp::of(&after))
    }
}

fn move_below(root: &Path, path: &Path, to: &Path) -> std::io::Result<()> {
    let target = to.join(path.strip_prefix(root).unwrap_or(path));
    if let Some(parent) = target.parent() {
        std::fs::create_dir_all(parent)?;
    }
    std::fs::rename(path, target)
}
