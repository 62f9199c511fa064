//! The bytes of a copy, as they are put on the wire, in buffers of bounded size.

use crate::io::Filled;
use crate::peers::shelf::CopyBytes;
use base::error::{Error, Result};
use base::slot::{Slot, SlotPool};
use bytes::Bytes;
use crossbeam_channel::{Receiver, Sender, bounded};
use rustix::io::{Errno, ReadWriteFlags};
use std::fs::File;
use std::io::IoSliceMut;
use std::ops::Range;
use std::sync::Arc;
use tokio::sync::oneshot;

/// The most reads that wait for a reading thread. The requests behind them are refused.
const QUEUED_READS: usize = 256;

/// Why a copy is not served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NotServed {
    /// Too much is under way.
    Busy,
    /// Its file cannot be read.
    Unreadable,
}

/// Reads copies from files into slots: at once what the page cache has, the rest on threads of its own.
pub(super) struct CopyReader {
    slots: SlotPool,
    reads: Sender<QueuedRead>,
}

/// A read that waits for a thread.
struct QueuedRead {
    read: CopyRead,
    /// Gets the slot when its bytes are there, or `None`.
    reply: oneshot::Sender<Option<Slot>>,
}

/// A read into a slot, of which some may be done.
struct CopyRead {
    file: Arc<File>,
    /// The bytes of the file that are read, as aligned as it wants. The file may end before they do.
    range: Range<u64>,
    /// How many of them must be there.
    enough: usize,
    slot: Slot,
    /// How many of them are there.
    arrived: usize,
}

impl CopyReader {
    /// A reader with `threads`, into slots of `buffers` bytes in all.
    ///
    /// # Errors
    /// [`Error::Config`] without so much memory; [`Error::Unavailable`] when the system refuses a thread.
    pub(super) fn new(threads: usize, buffers: usize) -> Result<Self> {
        let slots = SlotPool::new(buffers)?;
        let (reads, queue) = bounded(QUEUED_READS);
        for _ in 0..threads {
            let queue = queue.clone();
            // A thread ends when the reader is dropped. Nobody waits for one that a dead drive holds.
            std::thread::Builder::new()
                .name("foreload-copies".into())
                .spawn(move || read_queued(&queue))
                .map_err(|error| {
                    Error::Unavailable(format!("cannot start a thread that reads for peers: {error}"))
                })?;
        }
        Ok(Self { slots, reads })
    }

    /// A buffer for what a peer pushes; `None` when buffers are short, of which reads keep half.
    pub(super) fn push_buffer(&self, length: usize) -> Option<Slot> {
        let usage = self.slots.usage();
        if usage.in_use + length > usage.bytes / 2 && usage.in_use > 0 {
            return None;
        }
        self.slots.try_take(length)
    }

    /// The bytes `part` of a copy.
    pub(super) async fn read(&self, copy: CopyBytes, part: Range<u64>) -> Result<Bytes, NotServed> {
        let (file, offset, alignment) = match copy {
            CopyBytes::Memory(bytes) => return Ok(bytes.slice(part.start as usize..part.end as usize)),
            CopyBytes::File { file, offset, alignment, .. } => (file, offset, u64::from(alignment)),
        };
        let first = (offset + part.start) / alignment * alignment;
        let range = first..(offset + part.end).next_multiple_of(alignment);
        let (within, length) = ((offset + part.start - first) as usize, (part.end - part.start) as usize);
        let slot = self.slots.try_take(length).ok_or(NotServed::Busy)?;
        let mut read = CopyRead { file, range, enough: within + length, slot, arrived: 0 };
        // Direct reads always wait for the drive, whatever is asked of the system.
        let slot = if alignment == 1 && read.cached() {
            read.slot
        } else {
            let (reply, answer) = oneshot::channel();
            self.reads.try_send(QueuedRead { read, reply }).map_err(|_| NotServed::Busy)?;
            answer.await.ok().flatten().ok_or(NotServed::Unreadable)?
        };
        Ok(Bytes::from_owner(Filled::new(slot, within..within + length)))
    }
}

impl CopyRead {
    /// Reads what the page cache has, which spares the way to a thread and back. Returns whether that is enough.
    fn cached(&mut self) -> bool {
        // Whatever the reason for not reading now, a thread reads or finds out why not.
        self.arrived = self.step(ReadWriteFlags::NOWAIT).unwrap_or(0);
        self.arrived >= self.enough
    }

    /// Reads until there is enough. Returns whether there is: not when the file is shorter, or cannot be read.
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

    /// Reads once, behind what has arrived.
    fn step(&mut self, flags: ReadWriteFlags) -> Result<usize, Errno> {
        let length = (self.range.end - self.range.start) as usize;
        let rest = &mut self.slot.bytes_mut()[self.arrived..length];
        let position = self.range.start + self.arrived as u64;
        rustix::io::preadv2(&self.file, &mut [IoSliceMut::new(rest)], position, flags)
    }
}

fn read_queued(queue: &Receiver<QueuedRead>) {
    for QueuedRead { mut read, reply } in queue {
        // A request that was given up meanwhile is not read.
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

    fn read(reader: &CopyReader, copy: CopyBytes, part: Range<u64>) -> Result<Bytes, NotServed> {
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
        assert_eq!(read(&reader, copy(named.reopen().unwrap()), 0..200), Err(NotServed::Unreadable));
        let directory = File::open("/").unwrap();
        assert_eq!(read(&reader, copy(directory), 0..200), Err(NotServed::Unreadable));
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
        assert_eq!(read(&reader, copy(3 << 20), 0..3 << 20), Err(NotServed::Busy));
        let held = read(&reader, copy(1 << 20), 0..1 << 20).unwrap();
        assert_eq!(read(&reader, copy(1 << 20), 0..1 << 20), Err(NotServed::Busy));
        assert!(reader.push_buffer(1 << 19).is_none(), "reads keep half of the buffers");
        drop(held);
        assert!(reader.push_buffer(1 << 19).is_some());
        assert!(read(&reader, copy(1 << 20), 0..1 << 20).is_ok());
    }
}
