//! Finds, loads or builds the index of a dataset.

use super::build::{self, Builder, Whole};
use super::cancel::Cancel;
use super::format::{Map, Section};
use super::part::Part;
use super::survey::{self, Survey};
use super::{Contents, IndexOptions, Origin, Stamp, folder, shards};
use crate::error::{Error, Result};
use indicatif::{ProgressBar, ProgressStyle};
use rustix::fs::FlockOperation;
use rustix::io::Errno;
use sha2::{Digest, Sha256};
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

pub(super) fn open(root: &Path, options: &IndexOptions, cancel: &Cancel) -> Result<Part> {
    let start = Instant::now();
    let canonical = root.canonicalize().map_err(|error| Error::io("open dataset", root, error))?;
    let stamp = Stamp::of(&canonical.metadata().map_err(|error| Error::io("open dataset", root, error))?);
    let directory = index_directory(options)?;
    refuse_inside(&directory, &canonical)?;
    let file = directory.join(file_name(&canonical, options.contents));

    let load = || -> Result<Part> {
        let index = Part::new(root, Map::load(&file)?)?;
        let same_root = index.map.section(Section::Root) == canonical.as_os_str().as_bytes();
        if !same_root || index.map.header().contents != options.contents {
            return Err(Error::dataset(&file, "is the index of another dataset"));
        }
        Ok(index)
    };
    let usable = |because: &mut String| -> Option<Part> {
        match load() {
            Ok(index) => return Some(index),
            Err(Error::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {}
            // An index can always be made again; what was wrong with this one is in the summary.
            Err(error) => *because = error.to_string(),
        }
        None
    };

    let mut because = "there was no index yet".to_owned();
    let mut index = None;
    if options.rebuild {
        "a rebuild was asked for".clone_into(&mut because);
    } else {
        index = usable(&mut because);
    }
    if index.is_none() {
        std::fs::create_dir_all(&directory)
            .map_err(|error| Error::io("create index directory", &directory, error))?;
        let _lock = lock(&file, root, cancel)?;
        // Another process may have built it while this one waited.
        if !options.rebuild {
            index = usable(&mut because);
        }
        if index.is_none() {
            // What the interruption looked like where it was noticed says less.
            build_index(root, &canonical, stamp, &file, options, cancel)
                .map_err(|error| cancel.check(root).err().unwrap_or(error))?;
            let mut built = load()?;
            built.origin = Origin::Built(because);
            index = Some(built);
        }
    }
    let Some(mut index) = index else {
        return Err(Error::Internal("no index after building one".to_owned()));
    };
    check_root(&index, root, stamp)?;
    index.seconds = start.elapsed().as_secs_f64();
    Ok(index)
}

/// Entries added to the root or removed are seen by its time: the one thing looked at in every start.
fn check_root(index: &Part, root: &Path, now: Stamp) -> Result<()> {
    if index.map.header().root.difference(now).is_none() {
        return Ok(());
    }
    let message = "entries of it were added, removed or replaced since it was indexed".to_owned();
    Err(Error::DatasetChanged { path: root.to_path_buf(), message })
}

fn index_directory(options: &IndexOptions) -> Result<PathBuf> {
    let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let directory = options
        .directory
        .clone()
        .or_else(|| variable("FORELOAD_INDEX_DIR"))
        .or_else(|| variable("XDG_CACHE_HOME").map(|cache| cache.join("foreload/index")))
        .or_else(|| variable("HOME").map(|home| home.join(".cache/foreload/index")))
        .ok_or_else(|| {
            Error::config(
                "index_dir",
                "is not set and neither is HOME: set FORELOAD_INDEX_DIR to a directory",
            )
        })?;
    std::path::absolute(&directory).map_err(|error| Error::io("resolve", directory, error))
}

/// Sources are read-only: not even an index is written into one.
fn refuse_inside(directory: &Path, dataset: &Path) -> Result<()> {
    let existing = directory.ancestors().find_map(|path| path.canonicalize().ok());
    if existing.is_some_and(|path| path.starts_with(dataset)) {
        let message = format!(
            "is {}, inside the dataset {}, which Foreload never writes to: choose another or set FORELOAD_INDEX_DIR",
            directory.display(),
            dataset.display()
        );
        return Err(Error::config("index_dir", message));
    }
    Ok(())
}

/// One name a dataset path: moving or copying a dataset means a new index, with the same fingerprint.
fn file_name(canonical: &Path, contents: Contents) -> String {
    let digest = Sha256::digest(canonical.as_os_str().as_bytes());
    let suffix = match contents {
        Contents::Images => ".index",
        Contents::Files => "-files.index",
    };
    digest[..16].iter().map(|byte| format!("{byte:02x}")).chain([suffix.to_owned()]).collect()
}

/// Waits until no other process builds this index. The kernel releases the lock of a process that dies.
fn lock(index: &Path, root: &Path, cancel: &Cancel) -> Result<File> {
    let path = index.with_extension("lock");
    let file = File::options().write(true).create(true).truncate(false).open(&path);
    let file = file.map_err(|error| Error::io("create", &path, error))?;
    loop {
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => build::remove_leftovers(index),
            // Asked for again and again: a call that blocks could not be cancelled.
            Err(Errno::WOULDBLOCK | Errno::INTR) => {
                cancel.check(root)?;
                std::thread::sleep(Duration::from_millis(20));
                continue;
            }
            // A file system without locks: two processes may then build the same index, each to its own file.
            Err(Errno::NOSYS | Errno::OPNOTSUPP | Errno::NOLCK) => {}
            Err(error) => return Err(Error::io("lock", &path, error.into())),
        }
        return Ok(file);
    }
}

fn build_index(
    root: &Path,
    canonical: &Path,
    stamp: Stamp,
    file: &Path,
    options: &IndexOptions,
    cancel: &Cancel,
) -> Result<()> {
    cancel.check(root)?;
    let threads = match options.threads {
        0 => std::thread::available_parallelism().map_or(4, |n| n.get().max(4)),
        threads => threads,
    };
    let progress = Progress::new(options.progress);
    let Survey { layout, classes, shards, mut notes, nothing } =
        survey::survey(root, canonical, options.contents, cancel)?;
    let mut builder = Builder::new(file, layout, options.contents)?.cancelled_by(cancel);
    let more = if layout.is_sharded() {
        shards::index(root, &shards, layout, &mut builder, threads, &progress, cancel)?
    } else {
        folder::index(root, &classes, options.contents, &mut builder, threads, &progress, cancel)?
    };
    notes.absorb(more);
    if builder.samples() == 0 {
        return Err(Error::dataset(root, notes.explain(nothing)));
    }
    builder.finish(&Whole { root: canonical.to_path_buf(), root_stamp: stamp, classes, notes })
}

/// Runs `work` on `threads` threads; what they send goes, one at a time, to `take` on this one. The first error ends it.
///
/// `work` gets a function to send with, which says whether to go on.
pub(super) fn collect<T: Send>(
    threads: usize,
    work: impl Fn(&dyn Fn(Result<T>) -> bool) + Sync,
    mut take: impl FnMut(T) -> Result<()>,
) -> Result<()> {
    std::thread::scope(|scope| {
        let (sender, receiver) = crossbeam_channel::bounded(threads);
        for i in 0..threads {
            let (work, sender) = (&work, sender.clone());
            let thread = std::thread::Builder::new().name(format!("foreload-index-{i}"));
            let spawned = thread.spawn_scoped(scope, move || {
                work(&|item: Result<T>| {
                    let go_on = item.is_ok();
                    sender.send(item).is_ok() && go_on
                });
            });
            if let Err(error) = spawned {
                // Fewer threads do the same work; none cannot.
                if i == 0 {
                    return Err(Error::Unavailable(format!("no thread could be started: {error}")));
                }
                break;
            }
        }
        drop(sender);
        for item in receiver {
            take(item?)?;
        }
        Ok(())
    })
}

/// A progress bar on stderr: of known length, or counting up.
pub(super) struct Progress(ProgressBar);

impl Progress {
    fn new(visible: bool) -> Self {
        // Draws nothing where stderr is no terminal.
        Self(if visible { ProgressBar::new_spinner() } else { ProgressBar::hidden() })
    }

    /// `total` of `what` are to come; 0: nobody knows how many.
    pub(super) fn expect(&self, total: u64, what: &str) {
        let template = if total > 0 {
            "{spinner} indexing [{bar:40}] {human_pos}/{human_len} {msg} ({per_sec}, {eta} left)"
        } else {
            "{spinner} indexing {human_pos} {msg} ({per_sec})"
        };
        if total > 0 {
            self.0.set_length(total);
        }
        if let Ok(style) = ProgressStyle::with_template(template) {
            self.0.set_style(style);
        }
        self.0.set_message(what.to_owned());
        self.0.enable_steady_tick(Duration::from_millis(200));
    }

    pub(super) fn step(&self, count: u64) {
        self.0.inc(count);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
