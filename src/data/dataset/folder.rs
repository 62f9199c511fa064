//! Datasets with a file per sample: class directories of images, or files of any kind.
//!
//! The files are in torchvision's order: `sorted(os.walk(class, followlinks=True))`, then sorted names. Both sorts
//! compare code points. For UTF-8 this is the order of bytes.
//!
//! In some cases torchvision fails later or never ends. There this module differs, and reports the case. Broken links,
//! and pipes with names of images, are skipped. Links to a parent directory are not followed. A class without images
//! keeps its number, and is not an error (torchvision's `allow_empty=True`).

use super::below::DatasetSearch;
use super::build::{FileRow, GroupRows, IndexBuilder, IndexGroup};
use super::ignored::ignored_entry;
use super::kind::is_image_file;
use super::left_out::SkipReason;
use super::open::IndexProgress;
use super::parallel::collect;
use super::survey::{self, below};
use super::{Contents, Notes};
use crate::source::{DatasetSource, EntryKind, Identity, SourceDirectory};
use base::error::{Error, Result};
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// The number of files whose sizes one job reads, so that one huge directory keeps all threads busy.
const PORTION: usize = 1024;
/// The number of files whose sizes one job reads if each size needs a request to a server.
const REMOTE_PORTION: usize = 16;
/// Size that marks an entry that is not a regular file.
const NO_FILE: u32 = u32::MAX;

/// Indexes the directories `classes` (sorted names) below the root. Without classes, indexes everything below the root
/// as class 0.
pub(super) fn index(
    search: DatasetSearch<'_>,
    classes: &[Vec<u8>],
    builder: &mut IndexBuilder,
    threads: usize,
    progress: &IndexProgress,
) -> Result<Notes> {
    let mut notes = Notes::default();
    let mut filled = vec![false; classes.len().max(1)];
    progress.expect(0, if search.contents == Contents::Images { "images" } else { "files" });
    walk(search, classes, threads, |group, more| {
        if let GroupRows::Files { class, files, .. } = &group.rows {
            filled[*class as usize] |= !files.is_empty();
            progress.step(files.len() as u64);
        }
        notes.absorb(more.assigned_to(&group.path));
        builder.add(&group)
    })?;
    let empty = classes.iter().zip(filled).filter(|(_, filled)| !filled);
    notes.empty_classes = empty.map(|(name, _)| String::from_utf8_lossy(name).into_owned()).collect();
    Ok(notes)
}

/// Lists the directories `classes` with all directories below them, or without classes the whole root. Passes each
/// directory to `take`, in no particular order.
pub(super) fn walk(
    search: DatasetSearch<'_>,
    classes: &[Vec<u8>],
    threads: usize,
    mut take: impl FnMut(IndexGroup, Notes) -> Result<()>,
) -> Result<()> {
    let walk = FolderWalk::new(search);
    if classes.is_empty() {
        walk.queue.push(WalkJob::List(ListedDirectory { class: 0, path: Vec::new(), above: None }));
    }
    for (class, name) in classes.iter().enumerate().rev() {
        let above = above(search.source, name)?;
        walk.queue.push(WalkJob::List(ListedDirectory { class: class as u32, path: name.clone(), above }));
    }
    collect(
        threads,
        |send| {
            while let Some(job) = walk.queue.take() {
                let running = RunningJob(&walk.queue);
                let go_on = walk.run(job).transpose().is_none_or(send);
                drop(running);
                if !go_on {
                    walk.queue.stop();
                }
            }
        },
        |(group, notes): (IndexGroup, Notes)| take(group, notes),
    )
}

/// Lists one directory again, as [`index`] does. Returns the files, the sorted names of the subdirectories, and what
/// was skipped. The class in the result has no meaning.
pub(super) fn list_again(
    search: DatasetSearch<'_>,
    path: &[u8],
) -> Result<(IndexGroup, Vec<Vec<u8>>, Notes)> {
    let walk = FolderWalk::new(search);
    let listing =
        walk.list(ListedDirectory { class: 0, path: path.to_vec(), above: above(search.source, path)? })?;
    walk.measure(&listing, 0..listing.files.len())?;
    let mut directories: Vec<Vec<u8>> = std::mem::take(&mut walk.queue.state().jobs)
        .into_iter()
        .filter_map(|job| match job {
            WalkJob::List(ListedDirectory { mut path, .. }) => {
                let name = path.iter().rposition(|&byte| byte == b'/').map_or(0, |slash| slash + 1);
                Some(path.split_off(name))
            }
            WalkJob::Measure(..) => None,
        })
        .collect();
    directories.sort_unstable();
    let (group, notes) = listing.finish();
    Ok((group, directories, notes))
}

fn above(source: &dyn DatasetSource, path: &[u8]) -> Result<Option<Arc<Ancestors>>> {
    if path.is_empty() {
        return Ok(None);
    }
    let slashes = (0..path.len()).filter(|&at| path[at] == b'/');
    let mut above = None;
    for end in std::iter::once(0).chain(slashes) {
        let Some(identity) = source.identity(&path[..end])? else { return Ok(None) };
        above = Some(Arc::new(Ancestors { identity, next: above }));
    }
    Ok(above)
}

struct ListedDirectory {
    class: u32,
    path: Vec<u8>,
    above: Option<Arc<Ancestors>>,
}

/// The parent directories of a directory, by device and inode. A link to one of these would form a loop.
struct Ancestors {
    identity: Identity,
    next: Option<Arc<Ancestors>>,
}

struct Listing {
    class: u32,
    path: Vec<u8>,
    directory: Box<dyn SourceDirectory>,
    notes: Notes,
    names: Vec<u8>,
    files: Vec<FolderEntry>,
}

struct FolderEntry {
    name: u32,
    name_length: u32,
    size: AtomicU32,
}

enum WalkJob {
    List(ListedDirectory),
    /// Reads the sizes of some files of a listing. The thread that finishes the last such job of a listing returns the
    /// listing.
    Measure(Arc<Listing>, std::ops::Range<usize>),
}

struct FolderWalk<'a> {
    search: DatasetSearch<'a>,
    root: PathBuf,
    queue: JobQueue,
}

impl<'a> FolderWalk<'a> {
    fn new(search: DatasetSearch<'a>) -> Self {
        Self { search, root: search.source.path(&[]), queue: JobQueue::new() }
    }

    fn run(&self, job: WalkJob) -> Result<Option<(IndexGroup, Notes)>> {
        match job {
            WalkJob::List(place) => {
                let listing = self.list(place)?;
                let count = listing.files.len();
                let portion = if self.search.source.is_remote() { REMOTE_PORTION } else { PORTION };
                if count <= 2 * portion {
                    self.measure(&listing, 0..count)?;
                    return Ok(Some(listing.finish()));
                }
                let listing = Arc::new(listing);
                for start in (0..count).step_by(portion) {
                    self.queue.push(WalkJob::Measure(listing.clone(), start..count.min(start + portion)));
                }
                // Other threads might have finished all portions already.
                Ok(Arc::into_inner(listing).map(Listing::finish))
            }
            WalkJob::Measure(listing, portion) => {
                self.measure(&listing, portion)?;
                Ok(Arc::into_inner(listing).map(Listing::finish))
            }
        }
    }

    fn list(&self, ListedDirectory { class, path, above }: ListedDirectory) -> Result<Listing> {
        let directory = self.search.source.directory(&path)?;
        let identity = directory.identity()?;
        let mut listing =
            Listing { class, path, directory, notes: Notes::default(), names: Vec::new(), files: Vec::new() };
        let known = std::iter::successors(above.as_deref(), |above| above.next.as_deref());
        if identity.is_some_and(|identity| known.into_iter().any(|above| above.identity == identity)) {
            let name = || String::from_utf8_lossy(&listing.path).into_owned();
            listing.notes.skip(SkipReason::LinkToParent, name);
            return Ok(listing);
        }
        let above = identity.map(|identity| Arc::new(Ancestors { identity, next: above }));
        let Listing { path, directory, notes, names, files, .. } = &mut listing;
        directory.entries(&mut |entry| {
            self.search.cancel.check(&self.root)?;
            let name = entry.name;
            if let Some(why) = ignored_entry(entry, self.search.contents) {
                notes.skip(why, || display(path, name));
                return Ok(ControlFlow::Continue(()));
            }
            match entry.kind {
                // The entry cannot be inspected. Ask for its size, because the error of that call says why.
                EntryKind::Unseen => _ = directory.size(name)?,
                EntryKind::Directory => {
                    let path = below(path, name);
                    self.queue.push(WalkJob::List(ListedDirectory { class, path, above: above.clone() }));
                }
                _ if self.search.contents == Contents::Files && survey::is_tfrecord(name) => {
                    let message = "is a TFRecord shard among other files or in a subdirectory: open each directory of \
                                   shards as a dataset of its own; several datasets can be given as a list";
                    return Err(Error::dataset(self.search.source.path(&below(path, name)), message));
                }
                _ if self.search.contents == Contents::Files || is_image_file(name) => {
                    let at = u32::try_from(names.len()).map_err(|_| {
                        let message = "holds more than 4 GiB of file names: split the directory";
                        Error::dataset(self.search.source.path(path), message)
                    })?;
                    names.extend(name);
                    let size = entry.size.and_then(|size| u32::try_from(size).ok()).unwrap_or(NO_FILE);
                    let size = AtomicU32::new(size);
                    files.push(FolderEntry { name: at, name_length: name.len() as u32, size });
                }
                _ => notes.skip(SkipReason::of_file(name), || display(path, name)),
            }
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(listing)
    }

    fn measure(&self, listing: &Listing, portion: std::ops::Range<usize>) -> Result<()> {
        for file in &listing.files[portion] {
            self.search.cancel.check(&self.root)?;
            if file.size.load(Ordering::Relaxed) != NO_FILE {
                continue;
            }
            let name = listing.name(file);
            let Some(bytes) = listing.directory.size(name)? else { continue };
            let size = u32::try_from(bytes).ok().filter(|&size| size != NO_FILE).ok_or_else(|| {
                let message = format!("has {bytes} bytes: files of 4 GiB or more cannot be loaded");
                Error::dataset(self.search.source.path(&below(&listing.path, name)), message)
            })?;
            file.size.store(size, Ordering::Relaxed);
        }
        Ok(())
    }
}

impl Listing {
    fn name(&self, file: &FolderEntry) -> &[u8] {
        let start = file.name as usize;
        &self.names[start..start + file.name_length as usize]
    }

    fn finish(mut self) -> (IndexGroup, Notes) {
        let mut files = std::mem::take(&mut self.files);
        files.retain(|file| {
            let is_file = file.size.load(Ordering::Relaxed) != NO_FILE;
            if !is_file {
                let name = display(&self.path, self.name(file));
                self.notes.skip(SkipReason::BrokenLink, || name);
            }
            is_file
        });
        files.sort_unstable_by(|a, b| self.name(a).cmp(self.name(b)));
        let files = files
            .into_iter()
            .map(|file| FileRow {
                name: file.name,
                name_length: file.name_length,
                length: file.size.into_inner(),
            })
            .collect();
        let rows = GroupRows::Files { class: self.class, names: self.names, files };
        (IndexGroup { path: self.path, stamp: self.directory.stamp(), rows }, self.notes)
    }
}

fn display(directory: &[u8], name: &[u8]) -> String {
    String::from_utf8_lossy(&below(directory, name)).into_owned()
}

/// Queue of jobs; a job can add more jobs. The queue is a stack, so that started work is finished first. The queue is
/// done when it is empty and no job runs.
struct JobQueue {
    state: Mutex<QueueState>,
    changed: Condvar,
}

struct QueueState {
    jobs: Vec<WalkJob>,
    running: usize,
    stopped: bool,
}

impl JobQueue {
    fn new() -> Self {
        let state = QueueState { jobs: Vec::new(), running: 0, stopped: false };
        Self { state: Mutex::new(state), changed: Condvar::new() }
    }

    /// Every statement leaves the state valid, so a poisoned lock can be used.
    fn state(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, job: WalkJob) {
        self.state().jobs.push(job);
        self.changed.notify_one();
    }

    /// Takes the next job; `None` if all jobs are done or the queue was stopped. The caller must hold a [`RunningJob`]
    /// while it runs the job.
    fn take(&self) -> Option<WalkJob> {
        let mut state = self.state();
        loop {
            if state.stopped {
                return None;
            }
            if let Some(job) = state.jobs.pop() {
                state.running += 1;
                return Some(job);
            }
            if state.running == 0 {
                return None;
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn stop(&self) {
        self.state().stopped = true;
        self.changed.notify_all();
    }
}

/// A job that runs. Dropping this guard marks the job as ended, also after a panic, so that other threads do not wait
/// forever.
struct RunningJob<'a>(&'a JobQueue);

impl Drop for RunningJob<'_> {
    fn drop(&mut self) {
        self.0.state().running -= 1;
        self.0.changed.notify_all();
    }
}
