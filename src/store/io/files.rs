//! How files are opened, what a reader knows of them, and the shards that stay open.

use base::error::{Error, Result};
use base::slot::PAGE;
use data::dataset::{DatasetIndex, Extent, FileBlock, FileId, Stamp, TICK, UnpackedBlocks};
use data::source::RangeSource;
use rustix::fs::{Advice, AtFlags, CWD, Mode as Permissions, OFlags, StatxFlags};
use rustix::io::Errno;
use std::collections::HashMap;
use std::ffi::CStr;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Instant;

/// What a reader asks about files. [`DatasetIndex`] implements it; tests have their own.
pub trait Files: Send + Sync {
    /// The full path of a file.
    fn path(&self, file: FileId) -> PathBuf;
    /// The stamp that a shard must have; `None` for a file that is one sample.
    fn stamp(&self, file: FileId) -> Option<Stamp>;
    /// Reports that a shard has another stamp than [`Files::stamp`] gave, with the difference in words. Where the shard
    /// holds the samples it held, `stamp` gives the new one from now on.
    ///
    /// # Errors
    /// [`Error::DatasetChanged`] where it holds others.
    fn accept(&self, file: FileId, difference: String) -> Result<()> {
        Err(Error::DatasetChanged { path: self.path(file), message: difference })
    }
    /// Who gives a file's bytes by requests; `None` where it is read by its path.
    fn remote(&self, _file: FileId) -> Option<RemoteFile> {
        None
    }
    /// The compressed block that the bytes of an extent lie in; `None` where they lie in the file as they are.
    fn block(&self, _extent: Extent) -> Option<FileBlock> {
        None
    }
    /// The blocks that are unpacked, where any file has blocks.
    fn unpacked(&self) -> Option<&UnpackedBlocks> {
        None
    }
    /// Whether shards never change while they exist: then their stamps are not compared after each read.
    fn never_change(&self) -> bool {
        false
    }
    /// Whether a shard will never be asked for again: it need not stay open, which would keep its bytes on the drive.
    fn is_gone(&self, _file: FileId) -> bool {
        false
    }
    /// How many shards are gone; whoever keeps shards open looks for them when this has changed.
    fn gone(&self) -> u64 {
        0
    }
}

/// A file whose bytes are asked for by requests.
pub struct RemoteFile {
    /// Who prepares the requests.
    pub(super) ranges: Arc<dyn RangeSource>,
    /// The file's name there.
    pub(super) name: Vec<u8>,
}

impl Files for DatasetIndex {
    fn remote(&self, file: FileId) -> Option<RemoteFile> {
        DatasetIndex::remote(self, file).map(|(ranges, name)| RemoteFile { ranges, name })
    }
    fn accept(&self, file: FileId, _: String) -> Result<()> {
        self.accept_shard(file)
    }
    fn block(&self, extent: Extent) -> Option<FileBlock> {
        DatasetIndex::block(self, extent)
    }
    fn unpacked(&self) -> Option<&UnpackedBlocks> {
        Some(DatasetIndex::unpacked(self))
    }
    fn path(&self, file: FileId) -> PathBuf {
        DatasetIndex::path(self, file)
    }
    fn stamp(&self, file: FileId) -> Option<Stamp> {
        self.shard_stamp(file)
    }
}

/// How one file is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct OpenMode {
    /// Whether with O_DIRECT, past the page cache.
    pub direct: bool,
    /// Whether the file is opened with O_NOATIME, because a first pass over a million files must not dirty a million
    /// inodes.
    pub noatime: bool,
}

impl OpenMode {
    pub(super) fn flags(self) -> OFlags {
        let mut flags = OFlags::RDONLY | OFlags::CLOEXEC;
        flags.set(OFlags::DIRECT, self.direct);
        flags.set(OFlags::NOATIME, self.noatime);
        flags
    }

    /// The number of bytes that offsets and lengths of reads must be multiples of.
    pub(super) fn alignment(self) -> usize {
        if self.direct { PAGE } else { 1 }
    }
}

/// The mode that files are opened in. It is weakened for good when the system refuses a part of it.
///
/// A dataset is taken to be on one mount, so that a refusal is paid for once and not at every file.
pub(super) struct OpenPolicy {
    direct: AtomicBool,
    noatime: AtomicBool,
    direct_is_required: bool,
}

impl OpenPolicy {
    pub(super) fn new(direct: bool, direct_is_required: bool) -> Self {
        Self { direct: direct.into(), noatime: true.into(), direct_is_required }
    }

    pub(super) fn mode(&self) -> OpenMode {
        OpenMode { direct: self.direct.load(Relaxed), noatime: self.noatime.load(Relaxed) }
    }

    /// The mode to try after `mode` failed, if a weaker one can help.
    pub(super) fn weaker(&self, mode: OpenMode, failure: &ReadFailure) -> Option<OpenMode> {
        let (ReadFailure::Open(error) | ReadFailure::Read(error)) = failure else { return None };
        match *error {
            // Only the owner of a file may use O_NOATIME.
            Errno::PERM if mode.noatime => Some(OpenMode { noatime: false, ..mode }),
            Errno::INVAL if mode.direct && !self.direct_is_required => {
                Some(OpenMode { direct: false, ..mode })
            }
            _ => None,
        }
    }

    /// Remembers that a file could be read in `mode`: what the system refused is not tried with the next files. It is
    /// not called for a file that failed in a weaker mode too: a directory refuses O_DIRECT, yet its neighbours may
    /// not.
    pub(super) fn worked(&self, mode: OpenMode) {
        if !mode.direct {
            self.direct.store(false, Relaxed);
        }
        if !mode.noatime {
            self.noatime.store(false, Relaxed);
        }
    }
}

/// Why a file could not be read: the system's error, or what is wrong with the file.
#[derive(Debug)]
pub(super) enum ReadFailure {
    Open(Errno),
    Read(Errno),
    /// The shard has another stamp than was known; the difference in words.
    Moved(String),
    /// The file, which is one sample, may have been written to while it was read.
    Written,
    Other(Error),
}

impl From<Error> for ReadFailure {
    fn from(error: Error) -> Self {
        Self::Other(error)
    }
}

impl ReadFailure {
    /// The failure once more, for another of several reads that failed by one cause.
    pub(super) fn again(&self) -> Self {
        match self {
            Self::Open(error) => Self::Open(*error),
            Self::Read(error) => Self::Read(*error),
            Self::Moved(difference) => Self::Moved(difference.clone()),
            Self::Written => Self::Written,
            Self::Other(Error::DatasetChanged { path, message }) => {
                Self::Other(Error::DatasetChanged { path: path.clone(), message: message.clone() })
            }
            Self::Other(other) => Self::Other(Error::Unavailable(other.to_string())),
        }
    }

    /// The error of reading `extent` of the file at `path`. It names the setting to change where there is one.
    pub(super) fn into_error(self, path: &Path, extent: Extent) -> Error {
        match self {
            Self::Open(error) => {
                let what = match error {
                    Errno::MFILE => "open (raise `ulimit -n`)",
                    Errno::INVAL => "open (if it is for O_DIRECT, set direct=\"off\")",
                    _ => "open",
                };
                Error::io(what, path, error.into())
            }
            Self::Read(error) => {
                let Extent { offset, length, .. } = extent;
                Error::io(format!("read {length} bytes at {offset} of"), path, error.into())
            }
            Self::Moved(message) => Error::DatasetChanged { path: path.to_owned(), message },
            Self::Written => {
                let message = "is written to again and again while it is read".to_owned();
                Error::DatasetChanged { path: path.to_owned(), message }
            }
            Self::Other(error) => error,
        }
    }
}

/// Opens `path` as `mode` says.
pub(super) fn open_file(path: &Path, mode: OpenMode) -> Result<OwnedFd, ReadFailure> {
    rustix::io::retry_on_intr(|| rustix::fs::open(path, mode.flags(), Permissions::empty()))
        .map_err(ReadFailure::Open)
}

/// The flags of a stat after a read. On a network file system the answer is what this machine knows already.
const LOOK_AFTER: AtFlags = AtFlags::STATX_DONT_SYNC;

/// An attempt to read a file that is one sample, all of it in one version.
#[derive(Debug, Clone, Copy)]
pub(super) struct ReadAttempt {
    begun: Instant,
    /// The stamp of the file before the read, where that was asked for.
    before: Option<Stamp>,
    is_last: bool,
}

impl ReadAttempt {
    /// An attempt that begins now, after `former` others.
    pub(super) fn begin(former: u8) -> Self {
        Self { begun: Instant::now(), before: None, is_last: former >= MOST_MOVES }
    }

    /// An attempt to read a file that is open. Its stamp is asked for before the read too, so that clocks which differ
    /// from this machine's do not matter.
    pub(super) fn of_open(fd: &OwnedFd, former: u8) -> Self {
        Self { before: look_after(fd), ..Self::begin(former) }
    }

    /// Checks the open file after its read, like [`ReadAttempt::check_path`].
    pub(super) fn check_open(self, fd: &OwnedFd) -> Result<(), ReadFailure> {
        self.check(look_after(fd))
    }

    /// Checks the file at `path` after its read. Where its last change lies before the attempt, its bytes are of one
    /// moment. Else a part of them may be older than the rest, and the file must be read once more.
    pub(super) fn check_path(self, path: &CStr) -> Result<(), ReadFailure> {
        let found = rustix::fs::statx(CWD, path, LOOK_AFTER, StatxFlags::BASIC_STATS);
        self.check(found.ok().map(|found| Stamp::of_statx(&found)))
    }

    fn check(self, found: Option<Stamp>) -> Result<(), ReadFailure> {
        // A file that is gone by now, or that nobody may stat, could be read all the same.
        let Some(found) = found else { return Ok(()) };
        let same = self.before.is_none_or(|before| before == found);
        if same && !found.changed_within(self.begun.elapsed() + TICK) {
            return Ok(());
        }
        if !self.is_last && found.changed_within(TICK) {
            // What is read from then on is known to be whole, unless the writing goes on.
            std::thread::sleep(TICK);
        }
        Err(ReadFailure::Written)
    }
}

/// The stamp of an open file that has just been read.
fn look_after(fd: &OwnedFd) -> Option<Stamp> {
    let flags = AtFlags::EMPTY_PATH | LOOK_AFTER;
    let found = rustix::fs::statx(fd, c"", flags, StatxFlags::BASIC_STATS).ok()?;
    Some(Stamp::of_statx(&found))
}

/// An open shard, checked to be the file that was indexed.
pub(super) struct OpenShard {
    pub fd: OwnedFd,
    pub mode: OpenMode,
    stamp: Stamp,
}

impl OpenShard {
    /// Opens and checks the shard at `path`.
    pub(super) fn open(path: &Path, stamp: Stamp, mode: OpenMode) -> Result<Self, ReadFailure> {
        Self::check(open_file(path, mode)?, mode, path, stamp)
    }

    /// Checks an opened shard against its `stamp`, and that slots are aligned well enough for its O_DIRECT.
    pub(super) fn check(fd: OwnedFd, mode: OpenMode, path: &Path, stamp: Stamp) -> Result<Self, ReadFailure> {
        let wanted = StatxFlags::BASIC_STATS | StatxFlags::DIOALIGN;
        let found = rustix::fs::statx(&fd, c"", AtFlags::EMPTY_PATH, wanted)
            .map_err(|error| Error::io("stat", path, error.into()))?;
        if let Some(message) = stamp.difference(Stamp::of_statx(&found)) {
            return Err(ReadFailure::Moved(message));
        }
        if mode.direct && !dio_fits(found.stx_dio_mem_align, found.stx_dio_offset_align) {
            return Err(ReadFailure::Open(Errno::INVAL));
        }
        if !mode.direct {
            // Samples are read in random order: read-ahead would fetch their neighbours in vain.
            let _ = rustix::fs::fadvise(&fd, 0, None, Advice::Random);
        }
        Ok(Self { fd, mode, stamp })
    }

    /// Checks the open shard after a read: bytes of a shard that is overwritten meanwhile are never taken for the
    /// sample that was indexed there.
    pub(super) fn check_again(&self) -> Result<(), ReadFailure> {
        let flags = AtFlags::EMPTY_PATH | LOOK_AFTER;
        let found =
            rustix::fs::statx(&self.fd, c"", flags, StatxFlags::BASIC_STATS).map_err(ReadFailure::Read)?;
        self.stamp
            .difference(Stamp::of_statx(&found))
            .map_or(Ok(()), |message| Err(ReadFailure::Moved(message)))
    }

    /// Whether the open shard can be used for reads in `mode`.
    pub(super) fn serves(&self, mode: OpenMode) -> bool {
        mode.direct || !self.mode.direct
    }
}

/// Whether slots, which are aligned to [`PAGE`], satisfy what STATX_DIOALIGN says. Zeros mean that the kernel does not
/// say.
pub(super) fn dio_fits(memory: u32, offset: u32) -> bool {
    let fits = |alignment: u32| alignment == 0 || (PAGE as u32).is_multiple_of(alignment);
    fits(memory) && fits(offset)
}

/// How often a read begins anew because its file changed meanwhile.
pub const MOST_MOVES: u8 = 3;

/// The shards that are kept open; the least recently used one is closed first. A shard in use stays open until its last
/// read is over, because readers hold it by `Arc`.
pub(super) struct OpenShards {
    capacity: usize,
    clock: u64,
    /// How many shards were gone when they were last looked for.
    gone: u64,
    shards: HashMap<FileId, (u64, Arc<ShardCell>)>,
}

/// One shard's entry in the table. Whoever locks it first opens the shard.
pub(super) type ShardCell = Mutex<Option<Arc<OpenShard>>>;

impl OpenShards {
    /// A table of at most a quarter of the files that this process may have open, and at most 4096: up to three readers
    /// have one, for the source, for the cache and for staging.
    pub(super) fn new() -> Self {
        let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
        Self::with_capacity(limit.map_or(4096, |files| (files / 4).clamp(1, 4096) as usize))
    }

    pub(super) fn with_capacity(capacity: usize) -> Self {
        Self { capacity, clock: 0, gone: 0, shards: HashMap::new() }
    }

    /// Closes `file` once nobody reads it, so that the next read opens it anew.
    pub(super) fn forget(&mut self, file: FileId) {
        self.shards.remove(&file);
    }

    /// The entry of `file`. A new one may close the oldest. Shards that are gone from `files` are closed first.
    pub(super) fn cell(&mut self, file: FileId, files: &dyn Files) -> Arc<ShardCell> {
        self.clock += 1;
        let gone = files.gone();
        if gone != self.gone {
            self.gone = gone;
            self.shards.retain(|&file, _| !files.is_gone(file));
        }
        if let Some((used, cell)) = self.shards.get_mut(&file) {
            *used = self.clock;
            return cell.clone();
        }
        if self.shards.len() >= self.capacity
            && let Some(oldest) = self.shards.iter().min_by_key(|(_, (used, _))| *used).map(|(&file, _)| file)
        {
            self.shards.remove(&oldest);
        }
        // A file that has gone since it was asked for is opened for this read alone.
        if files.is_gone(file) {
            return Arc::default();
        }
        self.shards.entry(file).or_insert((self.clock, Arc::default())).1.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn the_table_forgets_what_was_used_longest_ago() {
        let mut table = OpenShards::with_capacity(2);
        let none = Evicted::default();
        let mut cell = |file| table.cell(FileId(file), &none);
        let first = cell(1);
        let second = cell(2);
        assert!(Arc::ptr_eq(&first, &cell(1)));
        cell(3);
        assert!(Arc::ptr_eq(&first, &cell(1)));
        assert!(!Arc::ptr_eq(&second, &cell(2)));
    }

    #[test]
    fn what_is_gone_is_closed_before_its_turn() {
        let (mut table, files) = (OpenShards::with_capacity(100), Evicted::default());
        for file in 0..12 {
            table.cell(FileId(file), &files);
        }
        files.0.lock().unwrap().extend(3..9);
        table.cell(FileId(11), &files);
        let left: Vec<_> = (0..12).filter(|&file| table.shards.contains_key(&FileId(file))).collect();
        assert_eq!(left, [0, 1, 2, 9, 10, 11]);
    }

    /// Files of which some are gone.
    #[derive(Default)]
    struct Evicted(Mutex<HashSet<u32>>);

    impl Files for Evicted {
        fn path(&self, file: FileId) -> PathBuf {
            file.0.to_string().into()
        }
        fn stamp(&self, _: FileId) -> Option<Stamp> {
            None
        }
        fn is_gone(&self, file: FileId) -> bool {
            self.0.lock().unwrap().contains(&file.0)
        }
        fn gone(&self) -> u64 {
            self.0.lock().unwrap().len() as u64
        }
    }

    #[test]
    fn alignments_beyond_a_page_are_not_ours() {
        assert!(dio_fits(0, 0));
        assert!(dio_fits(512, 512));
        assert!(dio_fits(4, 4096));
        assert!(!dio_fits(512, 65536));
    }
}
