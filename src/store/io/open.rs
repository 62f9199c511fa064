//! Chooses a reader by the user's settings, the storage and the abilities of the system, in this order.

use super::blocks;
use super::files::Files;
use super::gather::{GatherReader, record_gap};
use super::mixed::MixedReader;
use super::near::NeighbourFiles;
use super::pread::{PreadOptions, PreadReader};
use super::probe::huge_pages;
use super::ranged::RangedReader;
use super::read_blocking::read_blocking;
use super::storage::{Storage, StorageKind, available_memory};
use super::uring::{UringOptions, UringReader};
use super::{Direct, IoChoice, ReadRequest, Reader};
use base::error::{Error, Result};
use base::notices::Notices;
use base::slot::SlotPool;
use data::dataset::{DatasetIndex, Extent, FileId, NeighbourBlocks, Stamp};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The number of bytes before the end of a file that [`test_past_end`] reads.
const PAST_END: u64 = 4096;

/// The self-test reads no more than this of a compressed block or of an array, although samples may be larger.
const MAX_TESTED: u32 = 1 << 20;

/// Opens a reader of `index`, as `io` and `direct` choose. The reader reads into slots of `slots`, with up to `depth`
/// reads in flight. A depth of 32 suits local NVMe; storage with more latency needs more.
///
/// # Errors
/// [`Error::Unavailable`] if `io` requires io_uring and the system refuses it; [`Error::Config`] if `direct` requires
/// O_DIRECT and the file system refuses it.
pub fn open(
    index: &Arc<DatasetIndex>,
    slots: &SlotPool,
    io: IoChoice,
    direct: Direct,
    depth: usize,
) -> Result<Box<dyn Reader>> {
    open_with_neighbours(index, None, slots, io, direct, depth)
}

/// Opens a reader like [`open`], for a sample order in which neighbouring samples follow each other closely. From
/// servers, it reads each block of neighbouring samples (`neighbour_blocks`) in one request.
///
/// # Errors
/// The errors of [`open`].
pub fn open_with_neighbours(
    index: &Arc<DatasetIndex>,
    neighbour_blocks: Option<&Arc<NeighbourBlocks>>,
    slots: &SlotPool,
    io: IoChoice,
    direct: Direct,
    depth: usize,
) -> Result<Box<dyn Reader>> {
    let mut reader = open_in_files(index, slots, io, direct, depth)?;
    let near = neighbour_blocks.filter(|_| index.has_remote());
    let files: Arc<dyn Files> = match near {
        Some(neighbour_blocks) => Arc::new(NeighbourFiles::new(index, neighbour_blocks)),
        None => index.clone(),
    };
    if near.is_some() || index.has_blocks() {
        reader = blocks::unpacking(files.clone(), reader, depth, index.has_remote())?;
    }
    if index.has_arrays() {
        reader = Box::new(GatherReader::new(files, reader, record_gap(index)));
    }
    Ok(reader)
}

fn open_in_files(
    index: &Arc<DatasetIndex>,
    slots: &SlotPool,
    io: IoChoice,
    direct: Direct,
    depth: usize,
) -> Result<Box<dyn Reader>> {
    let Some((root, sample)) = index.local_parts().next() else {
        return Ok(Box::new(RangedReader::new(index.clone(), depth)?));
    };
    let mut extent = index.extent(sample);
    if let Some(record) = index.record(extent) {
        let nothing = Extent { offset: 0, length: 0, ..extent };
        extent = record.pieces.first().map_or(nothing, |piece| piece.extent);
    }
    let can_be_cut = index.has_arrays() && index.shard_stamp(extent.file).is_some();
    let block = index.block(extent).map(|block| block.extent());
    let first = match block.or_else(|| can_be_cut.then_some(extent)) {
        Some(extent) => Extent { length: extent.length.min(MAX_TESTED), ..extent },
        None => extent,
    };
    let root = root.to_path_buf();
    let source = DataSource { files: index.clone(), root, first, bytes: index.total_bytes() };
    let local = choose(&source, slots, io, direct, depth, index.notices())?;
    if !index.has_remote() {
        return Ok(local);
    }
    Ok(Box::new(MixedReader::of_servers(index.clone(), local, depth)?))
}

/// The input of [`open_source`].
pub struct DataSource {
    /// The files.
    pub files: Arc<dyn Files>,
    /// The absolute path of the directory that holds all files, or of the only file.
    pub root: PathBuf,
    /// The extent of any one sample. Its file identifies the storage, and its bytes test the reader.
    pub first: Extent,
    /// The total size of all samples in bytes.
    pub bytes: u64,
}

/// Opens a reader like [`open`], but of any [`Files`], and without warnings about slow settings.
pub fn open_source(
    source: &DataSource,
    slots: &SlotPool,
    io: IoChoice,
    direct: Direct,
    depth: usize,
) -> Result<Box<dyn Reader>> {
    choose(source, slots, io, direct, depth, &Notices::default())
}

fn choose(
    source: &DataSource,
    slots: &SlotPool,
    io: IoChoice,
    direct: Direct,
    depth: usize,
    notices: &Notices,
) -> Result<Box<dyn Reader>> {
    let storage = Storage::near(&source.files.path(source.first.file), &source.root)?;
    let (is_direct, why_direct) = storage.choose(direct, source.bytes, available_memory())?;
    let direct_is_required = direct == Direct::On;
    if is_direct && huge_pages().as_deref() == Some("never") {
        // Small pages make O_DIRECT reads slower; `base::slot` says how much.
        notices.warn_once("huge pages", || SMALL_PAGES.to_owned());
    }
    let uring = || {
        let options = UringOptions {
            direct: is_direct,
            direct_is_required,
            longest_gap: storage.longest_gap(),
            why: why_direct.clone(),
            ..UringOptions::default()
        };
        if storage.file_system == "fuse" {
            test_past_end(&source.files.path(source.first.file), &options)?;
        }
        self_test(source, &options)?;
        let reader = UringReader::new(source.files.clone(), slots, depth, options);
        let reader = reader.map_err(|error| refusal(&error))?;
        if let Some(why) = reader.unregistered() {
            notices
                .inform_once("buffers", || format!("read buffers are not registered with io_uring: {why}"));
        }
        Ok(reader)
    };
    let why_threads = match io {
        IoChoice::Pread => "io=pread".to_owned(),
        IoChoice::Uring => {
            return match uring() {
                Ok(reader) => Ok(Box::new(reader)),
                Err(why) => {
                    Err(Error::Unavailable(format!("config: io: is io_uring, but {why}; or use io=\"auto\"")))
                }
            };
        }
        IoChoice::Auto => match uring_suits(&storage).map(|()| uring()) {
            Ok(Ok(reader)) => return Ok(Box::new(reader)),
            // No warning, because threads are the right choice on this storage.
            Err(why) => why,
            Ok(Err(why)) => {
                notices.warn_once("io", || {
                    format!(
                        "files are read by threads, which needs more CPU time than io_uring: {why}; set io=\"pread\" \
                         to use threads without this warning"
                    )
                });
                why
            }
        },
    };
    let why = format!("{why_threads}; {why_direct}");
    let longest_gap = storage.longest_gap();
    let options = PreadOptions { direct: is_direct, direct_is_required, longest_gap, short_reads: None, why };
    Ok(Box::new(PreadReader::new(source.files.clone(), depth, options)?))
}

const SMALL_PAGES: &str = "huge pages are disabled on this machine, so O_DIRECT reads take up to 1.6 times as long: \
    enable them with `echo madvise > /sys/kernel/mm/transparent_hugepage/enabled`, or read through the page cache with \
    direct=\"off\"";

/// Returns an error that says why io_uring must not be used on this storage, if there is a reason.
pub(super) fn uring_suits(storage: &Storage) -> Result<(), String> {
    match storage.kind {
        StorageKind::Lustre => Err("Lustre starts every io_uring read in a kernel thread".to_owned()),
        _ => Ok(()),
    }
}

pub(super) fn refusal(error: &std::io::Error) -> String {
    match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => "io_uring is refused (EPERM: by a seccomp filter such as Docker's \
            default profile, or by sysctl kernel.io_uring_disabled): run with `--security-opt seccomp=unconfined` \
            or set the sysctl to 0"
            .to_owned(),
        Some(libc::ENOSYS) => "this kernel has no io_uring (ENOSYS)".to_owned(),
        Some(libc::ENOMEM) => "io_uring may not lock memory for its ring (ENOMEM): raise `ulimit -l`".to_owned(),
        Some(libc::EMFILE | libc::ENFILE) => "io_uring cannot open its ring: raise `ulimit -n`".to_owned(),
        _ => format!("io_uring is refused: {error}"),
    }
}

/// Reads one sample by io_uring and by pread, and compares the bytes. The error describes the difference.
///
/// The kernel may claim support that a sandbox, a network file system or an old kernel does not deliver. So this is a
/// real read, into memory of its own.
fn self_test(source: &DataSource, options: &UringOptions) -> Result<(), String> {
    match read_blocking(&*source.files, source.first) {
        Ok(expected) => compare(source.files.clone(), source.first, &expected, options),
        // The sample itself cannot be read, which its own read reports later. Test io_uring on the running program
        // instead.
        Err(_) => test_on_program(),
    }
}

fn compare(
    files: Arc<dyn Files>,
    extent: Extent,
    expected: &[u8],
    options: &UringOptions,
) -> Result<(), String> {
    let slots = SlotPool::new(extent.length as usize + (1 << 20)).map_err(|error| error.to_string())?;
    let slot = slots.try_take(extent.length as usize).ok_or("no slot for a test read")?;
    let mut reader = UringReader::new(files, &slots, 2, options.clone()).map_err(|error| refusal(&error))?;
    reader.submit(ReadRequest::new(0, extent, slot));
    let mut out = Vec::new();
    reader.wait(&mut out).map_err(|error| error.to_string())?;
    match out.pop().map(|completion| completion.result) {
        Some(Ok(filled)) if filled[..] == *expected => Ok(()),
        Some(Ok(_)) => Err("io_uring and pread read different bytes".to_owned()),
        Some(Err(error)) => Err(format!("io_uring failed its test read: {error}")),
        None => Err("io_uring did not answer its test read".to_owned()),
    }
}

/// A file for tests of io_uring.
struct TestFile {
    path: PathBuf,
    /// The stamp of a shard; `None` for a file that is a sample, which is read past its end.
    stamp: Option<Stamp>,
}

impl Files for TestFile {
    fn path(&self, _file: FileId) -> PathBuf {
        self.path.clone()
    }
    fn stamp(&self, _file: FileId) -> Option<Stamp> {
        self.stamp
    }
}

/// Tests io_uring by reading the running program as if it were a shard, for use without a dataset.
pub(super) fn test_on_program() -> Result<(), String> {
    let path = PathBuf::from("/proc/self/exe");
    let found = std::fs::metadata(&path).map_err(|error| error.to_string())?;
    let program = TestFile { path, stamp: Some(Stamp::of(&found)) };
    let extent = Extent { file: FileId(0), offset: 5, length: 5000 };
    let expected = read_blocking(&program, extent).map_err(|error| error.to_string())?;
    compare(Arc::new(program), extent, &expected, &UringOptions::default())
}

/// Tests io_uring by reading past the end of a file on FUSE.
///
/// Where FUSE bypasses the page cache and its server does not ask for asynchronous reads (FUSE_ASYNC_DIO), Linux 6.18
/// gives such a read the first bytes of the file once more. Worse for training, it reads one sample after another.
fn test_past_end(path: &Path, options: &UringOptions) -> Result<(), String> {
    let size = std::fs::metadata(path).map_err(|error| error.to_string())?.len();
    let length = size.min(PAST_END);
    let extent = Extent { file: FileId(0), offset: size - length, length: length as u32 };
    let files: Arc<dyn Files> = Arc::new(TestFile { path: path.to_owned(), stamp: None });
    // A file that pread finds changed is reported when a sample of it is read.
    let Ok(expected) = read_blocking(&*files, extent) else { return Ok(()) };
    // A system that refuses io_uring has another error.
    test_on_program()?;
    compare(files, extent, &expected, options).map_err(|_| {
        "this FUSE mount answers io_uring's reads one after another, and wrongly at the end of a file: its server does \
         not set FUSE_ASYNC_DIO"
            .to_owned()
    })
}
