//! A read in the ring: the memory that the read owns, its requests to the kernel, and their results.

use super::ring::Ring;
use crate::io::files::{OpenMode, OpenShard, ReadAttempt, ReadFailure};
use crate::io::transfer::{ReadChunk, ShortReads, Transfer, TransferProgress};
use base::error::{Error, Result};
use io_uring::opcode;
use io_uring::squeue::{self, Flags};
use io_uring::types::{DestinationSlot, Fd, Fixed};
use rustix::fs::OFlags;
use rustix::io::Errno;
use std::ffi::CString;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStringExt;
use std::path::Path;
use std::sync::Arc;

/// The kind of a request to the kernel. The user data of a request is its kind and the number of a read or of a shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RequestTag {
    Open,
    Read,
    Close,
    OpenShard,
    SecondRead,
}

impl RequestTag {
    pub(super) fn with(self, number: u32) -> u64 {
        (self as u64) << 32 | u64::from(number)
    }

    pub(super) fn of(user_data: u64) -> (Self, u32) {
        let tag = match user_data >> 32 {
            0 => Self::Open,
            1 => Self::Read,
            2 => Self::Close,
            3 => Self::OpenShard,
            _ => Self::SecondRead,
        };
        (tag, user_data as u32)
    }
}

#[derive(Debug, Clone, Copy, Default)]
pub(super) struct RequestResults {
    open: i32,
    reads: [i32; 2],
}

impl RequestResults {
    pub(super) fn note(&mut self, tag: RequestTag, result: i32) {
        match tag {
            RequestTag::Open => self.open = result,
            RequestTag::Read => self.reads[0] = result,
            RequestTag::SecondRead => self.reads[1] = result,
            // The result of a close does not matter: it does not affect the bytes, and the next open replaces the
            // descriptor.
            RequestTag::Close | RequestTag::OpenShard => {}
        }
    }

    pub(super) fn bytes(self) -> u64 {
        self.reads.into_iter().map(|read| read.max(0) as u64).sum()
    }
}

pub(super) enum NextStep {
    Again,
    Done,
    Failed(ReadFailure),
}

/// A transfer, and all memory that the kernel uses while the transfer is in flight.
pub(super) struct InFlightRead {
    pub transfer: Transfer,
    pub mode: OpenMode,
    pub path: Option<CString>,
    pub shard: Option<Arc<OpenShard>>,
    /// Only a read of a shard has a second chunk.
    chunks: [Option<ReadChunk>; 2],
    pub pending: u8,
    pub attempt: ReadAttempt,
    /// The number of times that the read started over because its file changed.
    pub restarts: u8,
    pub answers: RequestResults,
}

impl InFlightRead {
    pub(super) fn new(transfer: Transfer, mode: OpenMode, path: Option<CString>) -> Self {
        let answers = RequestResults::default();
        let attempt = ReadAttempt::begin(0);
        let chunks = [None; 2];
        Self { transfer, mode, path, shard: None, chunks, pending: 0, attempt, restarts: 0, answers }
    }

    /// Appends the requests for the next chunks to `entries`. Returns the number of requests that read, and the number
    /// of requests that open files.
    pub(super) fn requests(
        &mut self,
        number: u32,
        ring: &Ring,
        short: Option<&mut ShortReads>,
        entries: &mut Vec<squeue::Entry>,
    ) -> (u64, u64) {
        self.chunks = self.transfer.chunks(short);
        self.answers = RequestResults::default();
        let base = self.transfer.slot.bytes_mut();
        macro_rules! read {
            ($file:expr, $chunk:expr, $tag:expr) => {{
                let chunk: ReadChunk = $chunk;
                let place = &mut base[chunk.at..chunk.at + chunk.length];
                let (address, length) = (place.as_mut_ptr(), place.len() as u32);
                match ring.registered(address as usize, chunk.length) {
                    Some(buffer) => {
                        opcode::ReadFixed::new($file, address, length, buffer).offset(chunk.offset).build()
                    }
                    None => opcode::Read::new($file, address, length).offset(chunk.offset).build(),
                }
                .user_data($tag.with(number))
            }};
        }
        match (&self.path, &self.shard, self.chunks) {
            (Some(path), _, [Some(chunk), _]) => {
                let descriptor = DestinationSlot::try_from_slot_target(number).ok();
                let open = open_request(path, self.mode, descriptor)
                    .flags(Flags::IO_LINK)
                    .user_data(RequestTag::Open.with(number));
                // Use IO_HARDLINK, because with IO_LINK a short read would cancel the close.
                let read = read!(Fixed(number), chunk, RequestTag::Read).flags(Flags::IO_HARDLINK);
                let close =
                    opcode::Close::new(Fixed(number)).build().user_data(RequestTag::Close.with(number));
                entries.extend([open, read, close]);
                (1, 1)
            }
            (None, Some(shard), chunks) => {
                let tagged = chunks.into_iter().zip([RequestTag::Read, RequestTag::SecondRead]);
                for (chunk, tag) in tagged.filter_map(|(chunk, tag)| Some((chunk?, tag))) {
                    entries.push(read!(Fd(shard.fd.as_raw_fd()), chunk, tag));
                }
                (entries.len() as u64, 0)
            }
            _ => (0, 0),
        }
    }

    pub(super) fn step(&mut self) -> NextStep {
        if let Some(error) = errno(self.answers.open) {
            return if is_transient(error) {
                NextStep::Again
            } else {
                NextStep::Failed(ReadFailure::Open(error))
            };
        }
        let mut next = NextStep::Again;
        for (chunk, read) in self.chunks.into_iter().zip(self.answers.reads) {
            let Some(chunk) = chunk else { continue };
            match errno(read) {
                Some(error) if is_transient(error) => {}
                Some(error) => return NextStep::Failed(ReadFailure::Read(error)),
                None if self.transfer.advance(chunk, read as usize) != TransferProgress::More => {
                    next = NextStep::Done;
                }
                None => {}
            }
        }
        next
    }

    pub(super) fn restart(&mut self, mode: OpenMode) {
        self.mode = mode;
        self.transfer.start(mode);
    }

    pub(super) fn used_mode(&self) -> OpenMode {
        self.shard.as_ref().map_or(self.mode, |shard| shard.mode)
    }
}

/// Makes a request to open `path`: as the direct descriptor `descriptor` of the ring, or if it is `None`, as a
/// descriptor of the process.
pub(super) fn open_request(
    path: &CString,
    mode: OpenMode,
    descriptor: Option<DestinationSlot>,
) -> squeue::Entry {
    let mut flags = mode.flags();
    // The kernel refuses this flag for direct descriptors, which a child never inherits.
    flags.set(OFlags::CLOEXEC, descriptor.is_none());
    opcode::OpenAt::new(Fd(libc::AT_FDCWD), path.as_ptr())
        .file_index(descriptor)
        .flags(flags.bits() as i32)
        .build()
}

pub(super) fn errno(result: i32) -> Option<Errno> {
    (result < 0).then(|| Errno::from_raw_os_error(-result))
}

fn is_transient(error: Errno) -> bool {
    matches!(error, Errno::INTR | Errno::AGAIN)
}

/// Converts a path for the kernel. Names of listed files contain no zero byte, but the names in a damaged index might.
pub(super) fn c_path(path: &Path) -> Result<CString> {
    CString::new(path.as_os_str().to_owned().into_vec()).map_err(|_| {
        Error::dataset(path, "the index has a path with a zero byte; run `foreload index --rebuild-index`")
    })
}
