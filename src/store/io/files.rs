//! What readers know about files: paths and stamps, how to open a file, the check for changes, and the table of open
//! shards.

use base::error::{Error, Result};
use base::slot::PAGE;
use data::dataset::arrays::record::SampleRecord;
use data::dataset::{BlockCache, DatasetIndex, Extent, FileBlock, FileId, Stamp, TICK};
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

/// Information about files that readers need. [`DatasetIndex`] implements it; tests have their own implementations.
pub trait Files: Send + Sync {
    /// Returns the full path of a file.
    fn path(&self, file: FileId) -> PathBuf;
    /// Returns the stamp (size, times and inode) that a shard must have; `None` for a file that is one sample.
    fn stamp(&self, file: FileId) -> Option<Stamp>;
    /// Is called when a shard's stamp differs from the one that [`Files::stamp`] returned; `difference` describes how.
    /// If the shard still holds the same samples, succeeds, and `stamp` returns the new stamp from now on.
    ///
    /// # Errors
    /// [`Error::DatasetChanged`] if the shard holds other samples.
    fn accept(&self, file: FileId, difference: String) -> Result<()> {
        Err(Error::DatasetChanged { path: self.path(file), message: difference })
    }
    /// Returns how to request the bytes of a file on a server; `None` if the file is read by its path.
    fn remote(&self, _file: FileId) -> Option<RemoteFile> {
        None
    }
    /// Returns the block with which an extent is read: a compressed block, or a block of neighbouring samples. `None`
    /// if the extent is read alone.
    fn block(&self, _extent: Extent) -> Option<FileBlock> {
        None
    }
    /// Returns the record of a sample whose bytes are in many places; `None` if the extent is one place.
    fn record(&self, _extent: Extent) -> Option<SampleRecord> {
        None
    }
    /// Returns the cache of decompressed blocks; `None` if no file has blocks.
    fn unpacked(&self) -> Option<&BlockCache> {
        None
    }
    /// Returns whether shards never change while they exist. If so, readers do not check their stamps after each read.
    fn never_change(&self) -> bool {
        false
    }
    /// Returns whether a shard will never be requested again. Readers then close it, because a deleted file takes up
    /// space on the drive until it is closed.
    fn is_gone(&self, _file: FileId) -> bool {
        false
    }
    /// Returns the number of shards for which [`Files::is_gone`] is true. Readers that keep shards open search for
    /// shards to close when this number changes.
    fn gone(&self) -> u64 {
        0
    }
}

/// A file on a server.
pub struct RemoteFile {
    pub(super) ranges: Arc<dyn RangeSource>,
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
    fn record(&self, extent: Extent) -> Option<SampleRecord> {
        DatasetIndex::record(self, extent)
    }
    fn unpacked(&self) -> Option<&BlockCache> {
        Some(DatasetIndex::unpacked(self))
    }
    fn path(&self, file: FileId) -> PathBuf {
        DatasetIndex::path(self, file)
    }
    fn stamp(&self, file: FileId) -> Option<Stamp> {
        self.shard_stamp(file)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct OpenMode {
    pub direct: bool,
    /// O_NOATIME: a first pass over a million files must not dirty a million inodes.
    pub noatime: bool,
}

impl OpenMode {
    pub(super) fn flags(self) -> OFlags {
        let mut flags = OFlags::RDONLY | OFlags::CLOEXEC;
        flags.set(OFlags::DIRECT, self.direct);
        flags.set(OFlags::NOATIME, self.noatime);
        flags
    }

    pub(super) fn alignment(self) -> usize {
        if self.direct { PAGE } else { 1 }
    }
}

/// The modes in which files are opened: with O_DIRECT and O_NOATIME, until the system refuses one of the flags for a
/// file. Later files are then opened without that flag. A dataset is assumed to be on one mount, so that a refusal
/// costs one failed attempt per dataset instead of one per file.
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

    /// Returns the mode without one of the flags, to retry with after `mode` failed; `None` if that cannot help.
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

    /// Records that a file was read in `mode`, so that later files skip the flags that the system refused. Must be
    /// called only after a successful read: a directory, for example, refuses O_DIRECT, but the files next to it may
    /// accept it.
    pub(super) fn worked(&self, mode: OpenMode) {
        if !mode.direct {
            self.direct.store(false, Relaxed);
        }
        if !mode.noatime {
            self.noatime.store(false, Relaxed);
        }
    }
}

#[derive(Debug)]
pub(super) enum ReadFailure {
    Open(Errno),
    Read(Errno),
    /// The shard's stamp differs from the expected stamp; the text describes how.
    VersionChanged(String),
    /// The file, which is one sample, may have been written to during the read.
    WrittenDuringRead,
    Other(Error),
}

impl From<Error> for ReadFailure {
    fn from(error: Error) -> Self {
        Self::Other(error)
    }
}

impl ReadFailure {
    /// Copies the failure, because one cause can make several reads fail.
    pub(super) fn again(&self) -> Self {
        match self {
            Self::Open(error) => Self::Open(*error),
            Self::Read(error) => Self::Read(*error),
            Self::VersionChanged(difference) => Self::VersionChanged(difference.clone()),
            Self::WrittenDuringRead => Self::WrittenDuringRead,
            Self::Other(Error::DatasetChanged { path, message }) => {
                Self::Other(Error::DatasetChanged { path: path.clone(), message: message.clone() })
            }
            Self::Other(other) => Self::Other(Error::Unavailable(other.to_string())),
        }
    }

    /// Returns the error of reading `extent` of the file at `path`. If a limit or setting can prevent the error, the
    /// message names it.
    pub(super) fn into_error(self, path: &Path, extent: Extent) -> Error {
        match self {
            Self::Open(error) => {
                let what = match error {
                    Errno::MFILE => "open (raise `ulimit -n`)",
                    Errno::INVAL => "open (if O_DIRECT is the cause, set direct=\"off\")",
                    _ => "open",
                };
                Error::io(what, path, error.into())
            }
            Self::Read(error) => {
                let Extent { offset, length, .. } = extent;
                Error::io(format!("read {length} bytes at {offset} of"), path, error.into())
            }
            Self::VersionChanged(message) => Error::DatasetChanged { path: path.to_owned(), message },
            Self::WrittenDuringRead => {
                let message =
                    "was written to during every attempt to read it: stop the program that writes to the \
                               dataset"
                        .to_owned();
                Error::DatasetChanged { path: path.to_owned(), message }
            }
            Self::Other(error) => error,
        }
    }
}

pub(super) fn open_file(path: &Path, mode: OpenMode) -> Result<OwnedFd, ReadFailure> {
    rustix::io::retry_on_intr(|| rustix::fs::open(path, mode.flags(), Permissions::empty()))
        .map_err(ReadFailure::Open)
}

/// DONT_SYNC: on a network file system, the attribute cache of the client may answer a stat after a read.
const STAT_AFTER_READ: AtFlags = AtFlags::STATX_DONT_SYNC;

/// One attempt to read a file that is one sample, with all bytes from one version.
#[derive(Debug, Clone, Copy)]
pub(super) struct ReadAttempt {
    begun: Instant,
    before: Option<Stamp>,
    is_last: bool,
}

impl ReadAttempt {
    pub(super) fn begin(former: u8) -> Self {
        Self { begun: Instant::now(), before: None, is_last: former >= MAX_RESTARTS }
    }

    /// Begins an attempt on an open file, and takes the file's stamp before the read. Comparing this stamp with the
    /// stamp after the read detects a change even if the clocks of a file server and of this machine disagree.
    pub(super) fn of_open(fd: &OwnedFd, former: u8) -> Self {
        Self { before: stat_after_read(fd), ..Self::begin(former) }
    }

    pub(super) fn check_open(self, fd: &OwnedFd) -> Result<(), ReadFailure> {
        self.check(stat_after_read(fd))
    }

    /// Checks the file at `path` after its read. If the file last changed before the attempt began, all bytes are of
    /// one version. Otherwise the bytes may be of two versions, and the file must be read again.
    pub(super) fn check_path(self, path: &CStr) -> Result<(), ReadFailure> {
        let found = rustix::fs::statx(CWD, path, STAT_AFTER_READ, StatxFlags::BASIC_STATS);
        self.check(found.ok().map(|found| Stamp::of_statx(&found)))
    }

    fn check(self, found: Option<Stamp>) -> Result<(), ReadFailure> {
        // If the file was removed since, or this process may not stat it, the read still counts as successful.
        let Some(found) = found else { return Ok(()) };
        let same = self.before.is_none_or(|before| before == found);
        if same && !found.changed_within(self.begun.elapsed() + TICK) {
            return Ok(());
        }
        if !self.is_last && found.changed_within(TICK) {
            // A change within one tick of the clock cannot be ordered before or after a read. After this pause the next
            // read sees one version, unless writing continues.
            std::thread::sleep(TICK);
        }
        Err(ReadFailure::WrittenDuringRead)
    }
}

fn stat_after_read(fd: &OwnedFd) -> Option<Stamp> {
    let flags = AtFlags::EMPTY_PATH | STAT_AFTER_READ;
    let found = rustix::fs::statx(fd, c"", flags, StatxFlags::BASIC_STATS).ok()?;
    Some(Stamp::of_statx(&found))
}

pub(super) struct OpenShard {
    pub fd: OwnedFd,
    pub mode: OpenMode,
    stamp: Stamp,
}

impl OpenShard {
    pub(super) fn open(path: &Path, stamp: Stamp, mode: OpenMode) -> Result<Self, ReadFailure> {
        Self::check(open_file(path, mode)?, mode, path, stamp)
    }

    /// Checks that an opened shard has the expected `stamp`, and for O_DIRECT, that the alignment of slots is
    /// sufficient.
    pub(super) fn check(fd: OwnedFd, mode: OpenMode, path: &Path, stamp: Stamp) -> Result<Self, ReadFailure> {
        let wanted = StatxFlags::BASIC_STATS | StatxFlags::DIOALIGN;
        let found = rustix::fs::statx(&fd, c"", AtFlags::EMPTY_PATH, wanted)
            .map_err(|error| Error::io("stat", path, error.into()))?;
        if let Some(message) = stamp.difference(Stamp::of_statx(&found)) {
            return Err(ReadFailure::VersionChanged(message));
        }
        if mode.direct && !dio_fits(found.stx_dio_mem_align, found.stx_dio_offset_align) {
            return Err(ReadFailure::Open(Errno::INVAL));
        }
        if !mode.direct {
            // Samples are read in random order, so read-ahead would only fetch bytes that are not needed.
            let _ = rustix::fs::fadvise(&fd, 0, None, Advice::Random);
        }
        Ok(Self { fd, mode, stamp })
    }

    /// Checks the stamp of the shard again, after a read: bytes of a shard that was overwritten during the read are
    /// rejected.
    pub(super) fn check_again(&self) -> Result<(), ReadFailure> {
        let flags = AtFlags::EMPTY_PATH | STAT_AFTER_READ;
        let found =
            rustix::fs::statx(&self.fd, c"", flags, StatxFlags::BASIC_STATS).map_err(ReadFailure::Read)?;
        self.stamp
            .difference(Stamp::of_statx(&found))
            .map_or(Ok(()), |message| Err(ReadFailure::VersionChanged(message)))
    }

    pub(super) fn serves(&self, mode: OpenMode) -> bool {
        mode.direct || !self.mode.direct
    }
}

/// Returns whether slots, which are aligned to [`PAGE`], meet the alignments that STATX_DIOALIGN reports. An alignment
/// of zero means that the kernel reports none.
pub(super) fn dio_fits(memory: u32, offset: u32) -> bool {
    let fits = |alignment: u32| alignment == 0 || (PAGE as u32).is_multiple_of(alignment);
    fits(memory) && fits(offset)
}

/// The maximum number of times that a read starts over because its file changed during the read.
pub const MAX_RESTARTS: u8 = 3;

/// The table of open shards. When it is full, the least recently used shard is removed. Readers hold a shard by `Arc`,
/// so the shard stays open until its last read is over.
pub(super) struct OpenShards {
    capacity: usize,
    clock: u64,
    /// The value of [`Files::gone`] when the table was last searched for shards to close.
    gone: u64,
    shards: HashMap<FileId, (u64, Arc<ShardCell>)>,
}

/// An entry of the table of open shards. The first thread that locks the entry opens the shard.
pub(super) type ShardCell = Mutex<Option<Arc<OpenShard>>>;

impl OpenShards {
    /// Makes a table of at most 4096 shards, and at most a quarter of the process's limit on open files, because up to
    /// three readers (of the source, the cache and staging) have such a table.
    pub(super) fn new() -> Self {
        let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
        Self::with_capacity(limit.map_or(4096, |files| (files / 4).clamp(1, 4096) as usize))
    }

    pub(super) fn with_capacity(capacity: usize) -> Self {
        Self { capacity, clock: 0, gone: 0, shards: HashMap::new() }
    }

    pub(super) fn forget(&mut self, file: FileId) {
        self.shards.remove(&file);
    }

    /// Returns the entry of `file`. First removes shards that will never be requested again. If the table is full, a
    /// new entry replaces the least recently used shard.
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
        // The file will never be requested again, so do not keep it open after this read.
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
