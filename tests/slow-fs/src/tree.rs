//! The files of the view: inodes are paths in the order in which they were first seen, and open files are the real
//! files.

use crate::later::Later;
use crate::{BACKGROUND, COUNTERS, UringReads, to_json};
use foreload::testing::io::ParallelFsModel;
use fuser::{
    Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo, InitFlags,
    KernelConfig, LockOwner, OpenFlags, ReplyAttr, ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry,
    ReplyOpen, Request,
};
use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

/// How long the kernel may cache names and attributes: effectively without limit.
const REMEMBER: Duration = Duration::from_secs(3600);

/// The inode of the counters: no path gets so high an inode, and the kernel accepts none above it.
const COUNTERS_INODE: INodeNo = INodeNo(1 << 62);

pub struct Tree {
    pfs: Arc<ParallelFsModel>,
    reads: UringReads,
    later: Later,
    inodes: Mutex<Inodes>,
    open: Mutex<HashMap<u64, Opened>>,
    /// The next handle.
    handles: AtomicU64,
}

/// The target of a handle.
#[derive(Clone)]
enum Opened {
    File(Arc<File>),
    Listing(Arc<Vec<(PathBuf, FileType)>>),
}

/// Paths by inode, and inodes by path. The root has inode 1 and index 0.
struct Inodes {
    paths: Vec<PathBuf>,
    numbers: HashMap<PathBuf, u64>,
}

impl Inodes {
    fn number(&mut self, path: PathBuf) -> INodeNo {
        let next = self.paths.len() as u64 + 1;
        let number = *self.numbers.entry(path.clone()).or_insert(next);
        if number == next {
            self.paths.push(path);
        }
        INodeNo(number)
    }
}

impl Tree {
    pub fn new(source: &Path, pfs: Arc<ParallelFsModel>, reads: UringReads) -> io::Result<Self> {
        let source = source.canonicalize()?;
        let inodes = Inodes { paths: vec![source.clone()], numbers: HashMap::from([(source, 1)]) };
        let (inodes, open) = (Mutex::new(inodes), Mutex::default());
        Ok(Self { pfs, reads, later: Later::start()?, inodes, open, handles: AtomicU64::new(1) })
    }

    fn path(&self, inode: INodeNo) -> io::Result<PathBuf> {
        let inodes = self.inodes.lock().unwrap_or_else(PoisonError::into_inner);
        let place = usize::try_from(inode.0 - 1).ok();
        place.and_then(|place| inodes.paths.get(place).cloned()).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn number(&self, path: PathBuf) -> INodeNo {
        self.inodes.lock().unwrap_or_else(PoisonError::into_inner).number(path)
    }

    fn files(&self) -> MutexGuard<'_, HashMap<u64, Opened>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn look_up(&self, parent: INodeNo, name: &OsStr) -> io::Result<FileAttr> {
        let path = self.path(parent)?.join(name);
        let metadata = std::fs::metadata(&path)?;
        Ok(attributes(self.number(path), &metadata))
    }

    fn begin(&self, inode: INodeNo) -> io::Result<FileHandle> {
        let file = File::open(self.path(inode)?)?;
        Ok(self.keep(Opened::File(Arc::new(file))))
    }

    /// Lists a directory in an order that stays the same while the kernel reads it in parts.
    fn list(&self, inode: INodeNo) -> io::Result<Arc<Vec<(PathBuf, FileType)>>> {
        let mut entries = Vec::new();
        for entry in std::fs::read_dir(self.path(inode)?)? {
            let path = entry?.path();
            let kind = std::fs::metadata(&path).map_or(FileType::RegularFile, |found| kind(&found));
            entries.push((path, kind));
        }
        Ok(Arc::new(entries))
    }

    fn keep(&self, opened: Opened) -> FileHandle {
        let handle = self.handles.fetch_add(1, Ordering::Relaxed);
        self.files().insert(handle, opened);
        FileHandle(handle)
    }

    fn opened(&self, handle: FileHandle) -> Option<Opened> {
        self.files().get(&handle.0).cloned()
    }

    fn take(&self, handle: FileHandle, offset: u64, size: u32) -> io::Result<Vec<u8>> {
        let Some(Opened::File(file)) = self.opened(handle) else {
            return Err(io::ErrorKind::NotFound.into());
        };
        let mut bytes = vec![0; size as usize];
        let mut done = 0;
        while done < bytes.len() {
            match file.read_at(&mut bytes[done..], offset + done as u64)? {
                0 => break,
                arrived => done += arrived,
            }
        }
        bytes.truncate(done);
        Ok(bytes)
    }
}

impl Filesystem for Tree {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        // Requests of kernel threads count as background ones: allow more at once than the default of a dozen.
        let _ = config.set_max_background(BACKGROUND);
        if self.reads == UringReads::AtOnce {
            let _ = config.add_capabilities(InitFlags::FUSE_ASYNC_DIO);
        }
        Ok(())
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        if parent == INodeNo::ROOT && name == COUNTERS {
            return reply.entry(&Duration::ZERO, &counters(), Generation(0));
        }
        match self.look_up(parent, name) {
            Ok(attributes) => reply.entry(&REMEMBER, &attributes, Generation(0)),
            Err(error) => reply.error(error.into()),
        }
    }

    fn getattr(&self, _: &Request, inode: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        if inode == COUNTERS_INODE {
            return reply.attr(&Duration::ZERO, &counters());
        }
        match self.path(inode).and_then(std::fs::metadata) {
            Ok(metadata) => reply.attr(&REMEMBER, &attributes(inode, &metadata)),
            Err(error) => reply.error(error.into()),
        }
    }

    fn open(&self, _: &Request, inode: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        // Bypass the page cache, so that every read arrives here.
        let flags = FopenFlags::FOPEN_DIRECT_IO;
        if inode == COUNTERS_INODE {
            return reply.opened(FileHandle(0), flags);
        }
        let opened = self.begin(inode);
        self.later.at(self.pfs.open(), move || match opened {
            Ok(handle) => reply.opened(handle, flags),
            Err(error) => reply.error(error.into()),
        });
    }

    fn read(
        &self,
        _: &Request,
        inode: INodeNo,
        handle: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        if inode == COUNTERS_INODE {
            let text = to_json(&self.pfs.stats());
            let rest = text.as_bytes().get(offset as usize..).unwrap_or_default();
            return reply.data(&rest[..rest.len().min(size as usize)]);
        }
        let bytes = self.take(handle, offset, size);
        let due = self.pfs.read(false, bytes.as_ref().map_or(0, |bytes| bytes.len() as u64));
        self.later.at(due, move || match bytes {
            Ok(bytes) => reply.data(&bytes),
            Err(error) => reply.error(error.into()),
        });
    }

    fn release(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        self.files().remove(&handle.0);
        reply.ok();
    }

    fn opendir(&self, _: &Request, inode: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        match self.list(inode) {
            Ok(listing) => reply.opened(self.keep(Opened::Listing(listing)), FopenFlags::empty()),
            Err(error) => reply.error(error.into()),
        }
    }

    fn readdir(&self, _: &Request, _: INodeNo, handle: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        let Some(Opened::Listing(entries)) = self.opened(handle) else { return reply.error(Errno::EBADF) };
        for (place, (path, kind)) in entries.iter().enumerate().skip(offset as usize) {
            let name = path.file_name().unwrap_or_default();
            if reply.add(self.number(path.clone()), place as u64 + 1, *kind, name) {
                break;
            }
        }
        reply.ok();
    }

    fn releasedir(&self, _: &Request, _: INodeNo, handle: FileHandle, _: OpenFlags, reply: ReplyEmpty) {
        self.files().remove(&handle.0);
        reply.ok();
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        // After this error the kernel does not send this request again.
        reply.error(Errno::ENOSYS);
    }
}

/// The type of a file. Links are followed: a view has directories and files only.
fn kind(metadata: &Metadata) -> FileType {
    if metadata.is_dir() { FileType::Directory } else { FileType::RegularFile }
}

fn attributes(inode: INodeNo, metadata: &Metadata) -> FileAttr {
    let time = |time: io::Result<SystemTime>| time.unwrap_or(SystemTime::UNIX_EPOCH);
    FileAttr {
        ino: inode,
        size: metadata.len(),
        blocks: metadata.blocks(),
        atime: time(metadata.accessed()),
        mtime: time(metadata.modified()),
        ctime: time(metadata.modified()),
        crtime: SystemTime::UNIX_EPOCH,
        kind: kind(metadata),
        perm: (metadata.permissions().mode() & 0o7777) as u16,
        nlink: metadata.nlink() as u32,
        uid: metadata.uid(),
        gid: metadata.gid(),
        rdev: 0,
        blksize: 4096,
        flags: 0,
    }
}

fn counters() -> FileAttr {
    FileAttr {
        ino: COUNTERS_INODE,
        size: 0,
        blocks: 0,
        atime: SystemTime::UNIX_EPOCH,
        mtime: SystemTime::UNIX_EPOCH,
        ctime: SystemTime::UNIX_EPOCH,
        crtime: SystemTime::UNIX_EPOCH,
        kind: FileType::RegularFile,
        perm: 0o444,
        nlink: 1,
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: 4096,
        flags: 0,
    }
}
