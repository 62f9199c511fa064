//! Reads the bytes of copies for responses, into buffers of bounded size.

use crate::io::Filled;
use crate::peers::served_cache::CopyBytes;
use base::error::Result;
use base::slot::{Slot, SlotPool};
use base::threads::start_thread;
use bytes::Bytes;
use crossbeam_channel::{Receiver, Sender, bounded};
use rustix::io::{Errno, ReadWriteFlags};
use std::fs::File;
use std::io::IoSliceMut;
use std::ops::Range;
use std::sync::Arc;
use tokio::sync::oneshot;

const QUEUED_READS: usize = 256;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ServeFailure {
    /// All buffers are in use, or too many reads are queued.
    Busy,
    Unreadable,
}

/// Reads copies from files into slots: on the calling thread if the bytes are in the page cache, else on its own
/// threads.
pub(super) struct CopyReader {
    slots: SlotPool,
    reads: Sender<QueuedRead>,
}

struct QueuedRead {
    read: CopyRead,
    /// Receives the slot when the bytes have arrived, or `None` if they cannot be read.
    reply: oneshot::Sender<Option<Slot>>,
}

struct CopyRead {
    file: Arc<File>,
    /// The range of the file to read, aligned as the file requires. The range may extend beyond the end of the file.
    range: Range<u64>,
    enough: usize,
    slot: Slot,
    arrived: usize,
}

impl CopyReader {
    /// Makes a reader with `threads` threads and `buffers` bytes of slots.
    ///
    /// # Errors
    /// The error of [`SlotPool::new`] if there is not enough memory, and of [`start_thread`] if the system refuses a
    /// thread.
    pub(super) fn new(threads: usize, buffers: usize) -> Result<Self> {
        let slots = SlotPool::new(buffers)?;
        let (reads, queue) = bounded(QUEUED_READS);
        for _ in 0..threads {
            let queue = queue.clone();
            // A thread ends when the reader is dropped. The thread is not joined, because a dead drive may block it for
            // ever.
            let work = move || read_queued(&queue);
            start_thread("foreload-copies", "a thread that reads for peers", work)?;
        }
        Ok(Self { slots, reads })
    }

    /// Takes a buffer for a pushed sample. Returns `None` if more than half of the bytes would then be in use, because
    /// reads need the other half.
    pub(super) fn push_buffer(&self, length: usize) -> Option<Slot> {
        let usage = self.slots.usage();
        if usage.in_use + length > usage.bytes / 2 && usage.in_use > 0 {
            return None;
        }
        self.slots.try_take(length)
    }

    pub(super) async fn read(&self, copy: CopyBytes, part: Range<u64>) -> Result<Bytes, ServeFailure> {
        let (file, offset, alignment) = match copy {
            CopyBytes::Memory(bytes) => return Ok(bytes.slice(part.start as usize..part.end as usize)),
            CopyBytes::File { file, offset, alignment, .. } => (file, offset, u64::from(alignment)),
        };
        let first = (offset + part.start) / alignment * alignment;
        let range = first..(offset + part.end).next_multiple_of(alignment);
        let (within, length) = ((offset + part.start - first) as usize, (part.end - part.start) as usize);
        let slot = self.slots.try_take(length).ok_or(ServeFailure::Busy)?;
        let mut read = CopyRead { file, range, enough: within + length, slot, arrived: 0 };
        // A direct read always waits for the drive, even with the flag NOWAIT.
        let slot = if alignment == 1 && read.cached() {
            read.slot
        } else {
            let (reply, answer) = oneshot::channel();
            self.reads.try_send(QueuedRead { read, reply }).map_err(|_| ServeFailure::Busy)?;
            answer.await.ok().flatten().ok_or(ServeFailure::Unreadable)?
        };
        Ok(Bytes::from_owner(Filled::new(slot, within..within + length)))
    }
}

impl CopyRead {
    /// Reads the bytes that are in the page cache, without blocking. Returns whether all needed bytes have arrived.
    fn cached(&mut self) -> bool {
        // Ignore an error, because a reading thread then repeats the read and handles the error.
        self.arrived = self.step(ReadWriteFlags::NOWAIT).unwrap_or(0);
        self.arrived >= self.enough
    }

    fn finish(&mut self) -> bool {
        while self.arrived < self.enough {
            match self.step(ReadWriteFlags::empty()) {
                Ok(0) => return false,
                Ok(more) => self.arrived += more,
                Err(Errno::INTR) => {}
                Err(_) => return false,
            }
        }
        true
    }

    fn step(&mut self, flags: ReadWriteFlags) -> Result<usize, Errno> {
        let length = (self.range.end - self.range.start) as usize;
        let rest = &mut self.slot.bytes_mut()[self.arrived..length];
        let position = self.range.start + self.arrived as u64;
        rustix::io::preadv2(&self.file, &mut [IoSliceMut::new(rest)], position, flags)
    }
}

fn read_queued(queue: &Receiver<QueuedRead>) {
    for QueuedRead { mut read, reply } in queue {
        // Skip the request if its sender has abandoned it.
        if !reply.is_closed() {
            let _ = reply.send(read.finish().then_some(read.slot));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::unix::fs::OpenOptionsExt;

    fn bytes(count: usize) -> Vec<u8> {
        (0..count).map(|at| (at * at / 7) as u8).collect()
    }

    fn read(reader: &CopyReader, copy: CopyBytes, part: Range<u64>) -> Result<Bytes, ServeFailure> {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(reader.read(copy, part))
    }

    #[test]
    fn parts_of_files_are_read_through_the_page_cache_and_past_it() {
        let content = bytes(40_000);
        let mut named = tempfile::NamedTempFile::new().unwrap();
        named.write_all(&content).unwrap();
        named.as_file().sync_all().unwrap();
        let reader = CopyReader::new(1, 2 << 20).unwrap();
        let direct = std::fs::OpenOptions::new().read(true).custom_flags(libc::O_DIRECT).open(named.path());
        let mut ways = vec![
            (Arc::new(File::open(named.path()).unwrap()), 1),
            (Arc::new(File::open(named.path()).unwrap()), 4096),
        ];
        match direct {
            Ok(file) => ways.push((Arc::new(file), 4096)),
            Err(error) => println!("the temporary directory takes no O_DIRECT: {error}"),
        }
        for (file, alignment) in ways {
            for (offset, length, part) in [
                (0, 40_000, 0..40_000),
                (5000, 30_000, 0..30_000),
                (5000, 35_000, 100..34_999),
                (39_999, 1, 0..1),
            ] {
                let copy = CopyBytes::File { file: file.clone(), offset, length, alignment };
                let expected = &content[(offset + part.start) as usize..(offset + part.end) as usize];
                assert_eq!(
                    read(&reader, copy, part.clone()).unwrap(),
                    expected,
                    "{offset} {part:?} {alignment}"
                );
            }
        }
    }

    #[test]
    fn a_file_that_is_too_short_or_cannot_be_read_is_not_served() {
        let mut named = tempfile::NamedTempFile::new().unwrap();
        named.write_all(&bytes(1000)).unwrap();
        let reader = CopyReader::new(1, 2 << 20).unwrap();
        let copy =
            |file: File| CopyBytes::File { file: Arc::new(file), offset: 900, length: 200, alignment: 1 };
        assert_eq!(read(&reader, copy(named.reopen().unwrap()), 0..200), Err(ServeFailure::Unreadable));
        let directory = File::open("/").unwrap();
        assert_eq!(read(&reader, copy(directory), 0..200), Err(ServeFailure::Unreadable));
        let memory = CopyBytes::Memory(Bytes::from(bytes(1000)));
        assert_eq!(read(&reader, memory, 10..20).unwrap(), &bytes(1000)[10..20]);
    }

    #[test]
    fn buffers_are_bounded_and_come_back() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(4 << 20).unwrap();
        let file = Arc::new(file);
        let reader = CopyReader::new(1, 2 << 20).unwrap();
        let copy = |length: u32| CopyBytes::File { file: file.clone(), offset: 0, length, alignment: 1 };
        assert_eq!(read(&reader, copy(3 << 20), 0..3 << 20), Err(ServeFailure::Busy));
        let held = read(&reader, copy(1 << 20), 0..1 << 20).unwrap();
        assert_eq!(read(&reader, copy(1 << 20), 0..1 << 20), Err(ServeFailure::Busy));
        assert!(reader.push_buffer(1 << 19).is_none(), "reads keep half of the buffers");
        drop(held);
        assert!(reader.push_buffer(1 << 19).is_some());
        assert!(read(&reader, copy(1 << 20), 0..1 << 20).is_ok());
    }
}
