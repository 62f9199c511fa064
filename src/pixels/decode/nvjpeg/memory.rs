//! nvJPEG's working memory. Its blocks are kept, so that nothing is allocated after all sizes have occurred.
//!
//! nvJPEG grows its buffers by freeing and allocating, and may free a buffer that its stream still uses. So freed
//! blocks are *retired*, and reused only after the decoder has found that all its streams are done.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nvjpeg_sys::safe::{Allocator, Backend, Handle};

use super::Library;
use crate::gpu::{DeviceBuffer, GpuDevice, MemoryPool, PinnedBuffer, Stream};
use base::error::Result;

/// The smallest block. Sizes are powers of two, so that growing buffers rarely need another block.
const SMALLEST: usize = 64 << 10;

struct MemoryBlocks<B> {
    used: HashMap<u64, MemoryBlock<B>>,
    retired: Vec<MemoryBlock<B>>,
    free: Vec<MemoryBlock<B>>,
    made: u64,
}

struct MemoryBlock<B> {
    address: u64,
    bytes: usize,
    _memory: B,
}

impl<B> MemoryBlocks<B> {
    fn new() -> Self {
        Self { used: HashMap::new(), retired: Vec::new(), free: Vec::new(), made: 0 }
    }

    /// Takes a block of at least `bytes` bytes and returns its address. If no free block fits, `make` allocates a block
    /// and returns (address, memory).
    fn take(&mut self, bytes: usize, make: impl FnOnce(usize) -> Option<(u64, B)>) -> Option<u64> {
        let wanted = bytes.max(SMALLEST).checked_next_power_of_two()?;
        let fits = |block: &MemoryBlock<B>| block.bytes >= wanted && block.bytes / 4 <= wanted;
        let best = (0..self.free.len()).filter(|&i| fits(&self.free[i])).min_by_key(|&i| self.free[i].bytes);
        let block = match best {
            Some(index) => self.free.swap_remove(index),
            None => {
                let (address, memory) = make(wanted)?;
                self.made += 1;
                MemoryBlock { address, bytes: wanted, _memory: memory }
            }
        };
        let address = block.address;
        self.used.insert(address, block);
        Some(address)
    }

    fn retire(&mut self, address: u64) {
        self.retired.extend(self.used.remove(&address));
    }

    fn recycle(&mut self) {
        self.free.append(&mut self.retired);
    }
}

#[derive(Clone)]
pub(super) struct WorkingMemory(Arc<WorkingMemoryInner>);

struct WorkingMemoryInner {
    device: GpuDevice,
    pool: MemoryPool,
    /// The stream for allocations. Memory is handed out after its allocation is done, for use on any stream.
    stream: Stream,
    device_blocks: Mutex<MemoryBlocks<DeviceBuffer>>,
    host_blocks: Mutex<MemoryBlocks<PinnedBuffer>>,
}

fn lock<B>(blocks: &Mutex<MemoryBlocks<B>>) -> MutexGuard<'_, MemoryBlocks<B>> {
    blocks.lock().unwrap_or_else(PoisonError::into_inner)
}

impl WorkingMemory {
    pub(super) fn new(device: &GpuDevice) -> Result<Self> {
        Ok(Self(Arc::new(WorkingMemoryInner {
            device: device.clone(),
            pool: MemoryPool::new(device, device.memory()?.1 as usize)?,
            stream: Stream::new(device)?,
            device_blocks: Mutex::new(MemoryBlocks::new()),
            host_blocks: Mutex::new(MemoryBlocks::new()),
        })))
    }

    /// Makes freed memory available again. All work of the decoder must be done: it may still use this memory.
    pub(super) fn recycle(&self) {
        lock(&self.0.device_blocks).recycle();
        lock(&self.0.host_blocks).recycle();
    }

    pub(super) fn allocations(&self) -> u64 {
        lock(&self.0.device_blocks).made + lock(&self.0.host_blocks).made
    }

    /// Makes an instance of nvJPEG for a backend, which takes its memory from here.
    pub(super) fn handle(&self, library: &Library, backend: Backend) -> nvjpeg_sys::Result<Handle> {
        let flags = nvjpeg_sys::sys::NVJPEG_FLAGS_BITSTREAM_STRICT;
        let (device, host) = (DeviceBlockAllocator(self.clone()), HostBlockAllocator(self.clone()));
        Handle::new(library.raw(), backend, Box::new(device), Box::new(host), flags)
    }
}

struct DeviceBlockAllocator(WorkingMemory);

// SAFETY: blocks come from the device's pool and have one user at a time. They are handed out only after the allocation
// is done, so the decoding engine, which does not wait for its stream, can write them.
unsafe impl Allocator for DeviceBlockAllocator {
    fn allocate(&self, bytes: usize, _stream: u64) -> Option<u64> {
        let WorkingMemoryInner { pool, stream, device_blocks, .. } = &*self.0.0;
        lock(device_blocks).take(bytes, |bytes| {
            let buffer = pool.allocate(stream, bytes).ok()?;
            stream.synchronize().ok()?;
            Some((buffer.ptr(), buffer))
        })
    }

    fn free(&self, address: u64, _bytes: usize, _stream: u64) {
        lock(&self.0.0.device_blocks).retire(address);
    }
}

struct HostBlockAllocator(WorkingMemory);

// SAFETY: blocks are registered with the driver while they exist, and have one user at a time.
unsafe impl Allocator for HostBlockAllocator {
    fn allocate(&self, bytes: usize, _stream: u64) -> Option<u64> {
        let WorkingMemoryInner { device, host_blocks, .. } = &*self.0.0;
        lock(host_blocks).take(bytes, |bytes| {
            let buffer = PinnedBuffer::new(device, bytes).ok()?;
            Some((buffer.as_ptr() as u64, buffer))
        })
    }

    fn free(&self, address: u64, _bytes: usize, _stream: u64) {
        lock(&self.0.0.host_blocks).retire(address);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_serve_again_once_all_is_done() {
        let mut blocks = MemoryBlocks::new();
        let mut next = 0;
        let mut take = |blocks: &mut MemoryBlocks<usize>, bytes| {
            blocks.take(bytes, |bytes| {
                next += 1;
                Some((next, bytes))
            })
        };
        assert_eq!(take(&mut blocks, 1000), Some(1));
        assert_eq!(take(&mut blocks, SMALLEST + 1), Some(2));
        assert_eq!(blocks.used[&2].bytes, 2 * SMALLEST);
        blocks.retire(1);
        blocks.retire(2);
        assert_eq!(take(&mut blocks, 10), Some(3), "the stream may still use the first");
        blocks.recycle();
        assert_eq!(take(&mut blocks, 10), Some(1), "the smallest that fits");
        assert_eq!(take(&mut blocks, 10), Some(2));
        blocks.retire(2);
        blocks.recycle();
        assert_eq!(take(&mut blocks, 10 * SMALLEST), Some(4), "too small");
        blocks.retire(4);
        blocks.recycle();
        assert_eq!(take(&mut blocks, SMALLEST), Some(2));
        assert_eq!(take(&mut blocks, SMALLEST), Some(5), "sixteen times too large");
        assert_eq!(blocks.made, 5);
        assert_eq!(blocks.take(usize::MAX, |_| None), None);
    }
}
