//! Files as readers see them: paths and stamps, how to open a file, the check for changes, and the shards that stay
//! open.

use base::error::{Error, Result};
use base::slot::PAGE;
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
    /// Returns the stamp that a shard must have; `None` for a file that is one sample.
    fn stamp(&self, file: FileId) -> Option<Stamp>;
    /// Reports that a shard's stamp differs from the one that [`Files::stamp`] gave; `difference` describes how. If the
    /// shard still holds the same samples, `stamp` returns the new stamp from now on.
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
    /// Returns the block to read an extent with: a compressed block, or a block of neighbouring samples. `None` if the
    /// extent is read alone.
    fn block(&self, _extent: Extent) -> Option<FileBlock> {
        None
    }
    /// Returns the cache of decompressed blocks; `None` if no file has blocks.
    fn unpacked(&self) -> Option<&BlockCache> {
        None
    }
    /// Returns whether shards never change while they exist. If so, their stamps are not compared after each read.
    fn never_change(&self) -> bool {
        false
    }
    /// Returns whether a shard will never be requested again. Readers then close it, because an open file keeps its
    /// bytes on the drive.
    fn is_gone(&self, _file: FileId) -> bool {
        false
    }
    /// Returns how many shards are gone. Readers that keep shards open search for gone ones when this number changes.
    fn gone(&self) -> u64 {
        0
    }
}

/// A file on a server.
pub struct RemoteFile {
    /// Prepares the requests.
    pub(super) ranges: Arc<dyn RangeSource>,
    /// The file's name on the server.
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

/// The flags that one file is opened with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct OpenMode {
    /// Whether with O_DIRECT, which bypasses the page cache.
    pub direct: bool,
    /// Whether with O_NOATIME: a first pass over a million files must not dirty a million inodes.
    pub noatime: bool,
}

impl OpenMode {
    pub(super) fn flags(self) -> OFlags {
        let mut flags = OFlags::RDONLY | OFlags::CLOEXEC;
        flags.set(OFlags::DIRECT, self.direct);
        flags.set(OFlags::NOATIME, self.noatime);
        flags
    }

    /// Returns the number of bytes that offsets and lengths of reads must be multiples of.
    pub(super) fn alignment(self) -> usize {
        if self.direct { PAGE } else { 1 }
    }
}

/// The mode that files are opened in.
///
/// If the system refuses O_DIRECT or O_NOATIME for a file, later files are opened without it. A dataset is assumed to
/// be on one mount, so that the refusal costs one attempt and not one for every file.
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

    /// Returns the weaker mode to retry with after `mode` failed; `None` if none can help.
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

    /// Records that a file was read in `mode`, so that later files skip the flags that the system refused. Not called
    /// for a file that fails in the weaker mode too: a directory refuses O_DIRECT, but files next to it may accept it.
    pub(super) fn worked(&self, mode: OpenMode) {
        if !mode.direct {
            self.direct.store(false, Relaxed);
        }
        if !mode.noatime {
            self.noatime.store(false, Relaxed);
        }
    }
}

/// Why a file could not be read: the system's error, or a change of the file.
#[derive(Debug)]
pub(super) enum ReadFailure {
    Open(Errno),
    Read(Errno),
    /// The shard's stamp differs from the known one; the text describes how.
    Moved(String),
    /// The file, which is one sample, may have been written to during the read.
    Written,
    Other(Error),
}

impl From<Error> for ReadFailure {
    fn from(error: Error) -> Self {
        Self::Other(error)
    }
}

impl ReadFailure {
    /// Copies the failure, for another read that failed for the same reason.
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

    /// Returns the error of reading `extent` of the file at `path`. It names the setting to change, if there is one.
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
            Self::Moved(message) => Error::DatasetChanged { path: path.to_owned(), message },
            Self::Written => {
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

/// Opens `path` as `mode` says.
pub(super) fn open_file(path: &Path, mode: OpenMode) -> Result<OwnedFd, ReadFailure> {
    rustix::io::retry_on_intr(|| rustix::fs::open(path, mode.flags(), Permissions::empty()))
        .map_err(ReadFailure::Open)
}

/// The flags of a stat after a read. On a network file system, this machine's cache answers it.
const LOOK_AFTER: AtFlags = AtFlags::STATX_DONT_SYNC;

/// One attempt to read a file that is one sample, with all bytes from one version.
#[derive(Debug, Clone, Copy)]
pub(super) struct ReadAttempt {
    begun: Instant,
    /// The stamp of the file before the read, if it was taken.
    before: Option<Stamp>,
    is_last: bool,
}

impl ReadAttempt {
    /// Begins an attempt, after `former` others.
    pub(super) fn begin(former: u8) -> Self {
        Self { begun: Instant::now(), before: None, is_last: former >= MAX_MOVES }
    }

    /// Begins an attempt on an open file. It takes the stamp before the read too, so that a file server's clock does
    /// not have to agree with this machine's.
    pub(super) fn of_open(fd: &OwnedFd, former: u8) -> Self {
        Self { before: look_after(fd), ..Self::begin(former) }
    }

    /// Checks the open file after its read, like [`ReadAttempt::check_path`].
    pub(super) fn check_open(self, fd: &OwnedFd) -> Result<(), ReadFailure> {
        self.check(look_after(fd))
    }

    /// Checks the file at `path` after its read. If its last change is earlier than the attempt, all bytes are of one
    /// version. Otherwise they may be of two, and the file must be read again.
    pub(super) fn check_path(self, path: &CStr) -> Result<(), ReadFailure> {
        let found = rustix::fs::statx(CWD, path, LOOK_AFTER, StatxFlags::BASIC_STATS);
        self.check(found.ok().map(|found| Stamp::of_statx(&found)))
    }

    fn check(self, found: Option<Stamp>) -> Result<(), ReadFailure> {
        // The read succeeded even if the file was removed since, or if this process may not stat it.
        let Some(found) = found else { return Ok(()) };
        let same = self.before.is_none_or(|before| before == found);
        if same && !found.changed_within(self.begun.elapsed() + TICK) {
            return Ok(());
        }
        if !self.is_last && found.changed_within(TICK) {
            // All bytes of the next read are of one version, unless writing continues.
            std::thread::sleep(TICK);
        }
        Err(ReadFailure::Written)
    }
}

/// Returns the stamp of an open file that has just been read.
fn look_after(fd: &OwnedFd) -> Option<Stamp> {
    let flags = AtFlags::EMPTY_PATH | LOOK_AFTER;
    let found = rustix::fs::statx(fd, c"", flags, StatxFlags::BASIC_STATS).ok()?;
    Some(Stamp::of_statx(&found))
}

/// An open shard whose stamp matches the index.
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

    /// Checks an opened shard against its `stamp`, and that the alignment of slots suffices for its O_DIRECT.
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
            // Samples are read in random order: read-ahead would only fetch unwanted neighbours.
            let _ = rustix::fs::fadvise(&fd, 0, None, Advice::Random);
        }
        Ok(Self { fd, mode, stamp })
    }

    /// Checks the open shard after a read, so that bytes of a shard that was overwritten during the read are rejected.
    pub(super) fn check_again(&self) -> Result<(), ReadFailure> {
        let flags = AtFlags::EMPTY_PATH | LOOK_AFTER;
        let found =
            rustix::fs::statx(&self.fd, c"", flags, StatxFlags::BASIC_STATS).map_err(ReadFailure::Read)?;
        self.stamp
            .difference(Stamp::of_statx(&found))
            .map_or(Ok(()), |message| Err(ReadFailure::Moved(message)))
    }

    /// Returns whether the open shard can be used for reads in `mode`.
    pub(super) fn serves(&self, mode: OpenMode) -> bool {
        mode.direct || !self.mode.direct
    }
}

/// Returns whether slots, which are aligned to [`PAGE`], meet the alignments that STATX_DIOALIGN reports. Zero means
/// that the kernel does not report one.
pub(super) fn dio_fits(memory: u32, offset: u32) -> bool {
    let fits = |alignment: u32| alignment == 0 || (PAGE as u32).is_multiple_of(alignment);
    fits(memory) && fits(offset)
}

/// The most times that a read starts over because its file changed during the read.
pub const MAX_MOVES: u8 = 3;

/// The shards that are kept open; the least recently used one is closed first. A shard in use stays open until its last
/// read is over, because readers hold it by `Arc`.
pub(super) struct OpenShards {
    capacity: usize,
    clock: u64,
    /// The last value of [`Files::gone`] that was acted on.
    gone: u64,
    shards: HashMap<FileId, (u64, Arc<ShardCell>)>,
}

/// One shard's entry in the table. The first thread that locks it opens the shard.
pub(super) type ShardCell = Mutex<Option<Arc<OpenShard>>>;

impl OpenShards {
    /// Makes a table of at most a quarter of the files that this process may have open, and at most 4096. Up to three
    /// readers have a table: those of the source, of the cache and of the stager.
    pub(super) fn new() -> Self {
        let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
        Self::with_capacity(limit.map_or(4096, |files| (files / 4).clamp(1, 4096) as usize))
    }

    pub(super) fn with_capacity(capacity: usize) -> Self {
        Self { capacity, clock: 0, gone: 0, shards: HashMap::new() }
    }

    /// Removes `file` from the table. It is closed after its last read, and the next read opens it again.
    pub(super) fn forget(&mut self, file: FileId) {
        self.shards.remove(&file);
    }

    /// Returns the entry of `file`. A new entry may close the least recently used shard. Shards that are gone from
    /// `files` are closed first.
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
        // The file has gone since the request was made: open it for this read only.
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

    /// Files, some of which are gone.
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
