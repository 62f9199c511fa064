//! The memory of a batch's bytes, on the host or on a GPU.

use super::layout::BufferPlan;
use super::leased::LeasedMemory;
use super::shared::SharedMemory;
use super::tensor::Place;
use base::error::{Error, Result};
use base::locks::lock;
use base::slot::Slot;
use memmap2::{Advice, MmapMut};
use pixels::gpu::{
    DeviceBuffer, Event, GpuDevice, InFlight, MemoryPool, PinnedBuffer, PinnedSlice, Registration, Stream,
    StreamRef,
};
use std::ops::Range;
use std::sync::{Arc, Mutex};

/// Maximum number of unused GPU events that a buffer keeps for its next batches.
const MAX_SPARE: usize = 8;

/// Where the buffers of a pool are allocated.
#[derive(Clone, Default)]
pub enum BatchStorage {
    /// Buffers are in host memory.
    #[default]
    Host,
    /// Buffers are in host memory that can be leased to other processes.
    Shared,
    /// Tensors other than images are in host memory. Encoded files stay in the slots that they were read into.
    Slots,
    /// Buffers are on a GPU.
    Cuda(CudaStorage),
}

/// The resources from which buffers on a GPU are allocated.
#[derive(Clone)]
pub struct CudaStorage {
    /// The pool that their memory comes from.
    pub pool: MemoryPool,
    /// The stream on which memory is allocated and freed. No other work is queued on this stream.
    pub stream: Stream,
    /// Page-locked staging buffers. Each batch that is being filled takes one of them for its tensors other than
    /// images.
    pub staging: Registration,
}

impl BatchStorage {
    pub(super) fn allocate(&self, bytes: usize) -> Result<BufferMemory> {
        match self {
            Self::Host | Self::Slots => {
                let mut map = map(bytes)?;
                let base = BufferAddress(map.as_mut_ptr());
                Ok(BufferMemory::Host(HostMemory { base, owner: HostOwner::Process(map) }))
            }
            Self::Shared => SharedMemory::new(bytes).map(BufferMemory::from),
            Self::Cuda(storage) => {
                let buffer = storage.pool.allocate(&storage.stream, bytes)?;
                let allocated = Event::new(storage.pool.device())?;
                allocated.record(&storage.stream)?;
                Ok(BufferMemory::Cuda(CudaMemory {
                    buffer: Some(buffer),
                    staging: storage.staging.clone(),
                    columns: None,
                    copied: Vec::new(),
                    users: Mutex::new(BufferUsers {
                        former_events: vec![Arc::new(allocated)],
                        ..BufferUsers::default()
                    }),
                }))
            }
        }
    }
}

pub(super) enum BufferMemory {
    Host(HostMemory),
    Cuda(CudaMemory),
}

impl BufferMemory {
    /// Makes the kernel back all pages with memory now. Kernels before 5.14 back a page only when it is first written.
    pub(super) fn touch(&self) {
        match self {
            Self::Host(HostMemory { owner: HostOwner::Process(map), .. }) => {
                let _ = map.advise(Advice::PopulateWrite);
            }
            Self::Host(HostMemory { owner: HostOwner::Shared(memory), .. }) => memory.touch(),
            Self::Host(HostMemory { owner: HostOwner::Leased(_), .. }) | Self::Cuda(_) => {}
        }
    }

    /// Prepares the memory for a batch. Returns false if no staging buffer is free now.
    pub(super) fn open(&mut self, plan: &BufferPlan) -> bool {
        match self {
            Self::Host(_) => true,
            Self::Cuda(memory) => {
                memory.copied.clear();
                memory.columns = memory.staging.slots().try_take(plan.bytes - plan.columns);
                memory.columns.is_some()
            }
        }
    }

    pub(super) fn can_be_reused(&self) -> bool {
        self.cuda().is_none_or(CudaMemory::can_be_reused)
    }

    pub(super) fn host_images(&self) -> Option<BufferAddress> {
        match self {
            Self::Host(memory) => Some(memory.base),
            Self::Cuda(_) => None,
        }
    }

    /// Returns the address at which the CPU writes the columns (labels, ids and other tensors except images). For a
    /// batch on a GPU, the columns are in a staging buffer.
    pub(super) fn host_columns(&mut self, plan: &BufferPlan) -> BufferAddress {
        match self {
            Self::Host(memory) => BufferAddress(memory.base.0.wrapping_add(plan.columns)),
            Self::Cuda(memory) => BufferAddress(memory.columns.as_mut().expect("opened").as_mut_ptr()),
        }
    }

    /// Returns the address of the first byte, on the host or on the GPU. All access to the buffer goes through this
    /// pointer.
    pub(super) fn base(&self) -> BufferAddress {
        match self {
            Self::Host(memory) => memory.base,
            Self::Cuda(memory) => BufferAddress(memory.buffer().ptr() as *mut u8),
        }
    }

    pub(super) fn place(&self) -> Place {
        match self {
            Self::Host(_) => Place::Host,
            Self::Cuda(memory) => Place::Cuda(memory.device().ordinal()),
        }
    }

    pub(super) fn cuda(&self) -> Option<&CudaMemory> {
        match self {
            Self::Host(_) => None,
            Self::Cuda(memory) => Some(memory),
        }
    }

    pub(super) fn cuda_mut(&mut self) -> Option<&mut CudaMemory> {
        match self {
            Self::Host(_) => None,
            Self::Cuda(memory) => Some(memory),
        }
    }

    pub(super) fn prepared_for_reuse(mut self) -> Self {
        if let Self::Cuda(memory) = &mut self {
            memory.columns = None;
            let readers_until_drop = std::mem::take(&mut lock(&memory.users).readers_until_drop);
            readers_until_drop.into_iter().for_each(|stream| memory.remove_reader(stream));
            lock(&memory.users).end_batch();
        }
        self
    }
}

pub(super) struct HostMemory {
    base: BufferAddress,
    owner: HostOwner,
}

enum HostOwner {
    Process(MmapMut),
    Shared(SharedMemory),
    Leased(#[expect(dead_code, reason = "held, not used")] LeasedMemory),
}

impl From<SharedMemory> for BufferMemory {
    fn from(memory: SharedMemory) -> Self {
        Self::Host(HostMemory { base: memory.base, owner: HostOwner::Shared(memory) })
    }
}

impl From<LeasedMemory> for BufferMemory {
    fn from(memory: LeasedMemory) -> Self {
        Self::Host(HostMemory { base: memory.map.base, owner: HostOwner::Leased(memory) })
    }
}

impl BufferMemory {
    pub(super) fn shared(&self) -> Option<&SharedMemory> {
        match self {
            Self::Host(HostMemory { owner: HostOwner::Shared(memory), .. }) => Some(memory),
            _ => None,
        }
    }
}

pub(super) struct CudaMemory {
    buffer: Option<DeviceBuffer>,
    staging: Registration,
    columns: Option<Slot>,
    /// The ranges of the columns whose bytes were copied from other memory than `columns`.
    copied: Vec<Range<usize>>,
    // Valid after every statement, so a panic elsewhere cannot break it.
    users: Mutex<BufferUsers>,
}

#[derive(Default)]
struct BufferUsers {
    /// Events that the next writer of the buffer waits for. They mark the end of the former users' work. In a new
    /// buffer, they mark its allocation.
    former_events: Vec<Arc<Event>>,
    /// Unused events, kept so that later batches need not create new ones.
    spare: Vec<Arc<Event>>,
    ready: Option<Arc<Event>>,
    /// The streams that have read the batch, each with one event. If a stream reads the batch again, its event is
    /// recorded again.
    reader_events: Vec<(StreamRef, Arc<Event>)>,
    readers_until_drop: Vec<StreamRef>,
    /// The streams that have read the batch and are now capturing a CUDA graph. An event recorded now would become part
    /// of that graph.
    capturing: Vec<StreamRef>,
    /// Whether no event could be recorded for a stream that has read the batch, for example because the stream was
    /// destroyed.
    reader_lost: bool,
}

impl BufferUsers {
    /// Ends the batch: the next user of the buffer waits for the work that the batch's readers have queued.
    fn end_batch(&mut self) {
        // If the batch was never completed, the events of the buffer's former users stay.
        if let Some(ready) = self.ready.take() {
            // The events of all readers come after this event, but the batch may have had no reader.
            self.former_events = vec![ready];
        }
        self.former_events.extend(self.reader_events.drain(..).map(|(_, event)| event));
    }

    fn event(&mut self, device: &GpuDevice) -> Result<Arc<Event>> {
        // An event that is shared may mark the end of an earlier batch, and some code may still wait for it.
        let unused = self.spare.iter().position(|event| Arc::strong_count(event) == 1);
        unused.map_or_else(|| Event::new(device).map(Arc::new), |at| Ok(self.spare.swap_remove(at)))
    }

    /// Records that the batch is complete. `ready` comes after all events in `former_events`, so these become unused.
    fn complete(&mut self, ready: Arc<Event>) {
        self.ready = Some(ready);
        self.spare.append(&mut self.former_events);
        self.spare.truncate(MAX_SPARE);
    }
}

impl CudaMemory {
    fn device(&self) -> &GpuDevice {
        self.buffer().stream().device()
    }

    /// Returns whether an event is recorded for every former user of the buffer. No event can be recorded on a stream
    /// while it captures a CUDA graph.
    fn can_be_reused(&self) -> bool {
        let mut users = lock(&self.users);
        while let Some(&reader) = users.capturing.last() {
            match self.mark(&mut users, None, reader) {
                Ok(Some(event)) => users.former_events.push(event),
                Ok(None) => return false,
                Err(_) => users.reader_lost = true,
            }
            users.capturing.pop();
        }
        true
    }

    /// Records an event after the work that `stream` has queued: `event`, or a new one if it is `None`. Returns `None`
    /// if the stream captures a CUDA graph.
    fn mark(
        &self,
        users: &mut BufferUsers,
        event: Option<Arc<Event>>,
        stream: StreamRef,
    ) -> Result<Option<Arc<Event>>> {
        if stream.captures(self.device())? {
            return Ok(None);
        }
        let event = event.map_or_else(|| users.event(self.device()), Ok)?;
        event.record(stream)?;
        Ok(Some(event))
    }

    /// Makes `stream` wait for all former users of the buffer, so that it can write to the buffer.
    pub(super) fn wait_for_former_users(&self, stream: &Stream) -> Result<()> {
        let mut users = lock(&self.users);
        if users.reader_lost {
            // The end of a reader's work is unknown, so wait for all work of the device.
            self.device().synchronize()?;
            users.reader_lost = false;
        }
        users.former_events.iter().try_for_each(|event| stream.wait(event))
    }

    /// Queues the copy of `from` to the columns, from byte `at` on. What is in the staging buffer there is ignored.
    pub(super) fn copy_to_columns(
        &mut self,
        plan: &BufferPlan,
        at: usize,
        from: &PinnedSlice,
        flight: &mut InFlight,
    ) -> Result<()> {
        if self.copied.is_empty() {
            self.wait_for_former_users(flight.stream())?;
        }
        flight.copy_to_device(self.buffer().range(plan.columns + at, from.len())?, from)?;
        self.copied.push(at..at + from.len());
        Ok(())
    }

    pub(super) fn complete(&mut self, plan: &BufferPlan, flight: &mut InFlight) -> Result<()> {
        // For a batch without images, no stream has waited for the former users yet.
        self.wait_for_former_users(flight.stream())?;
        let columns =
            self.columns.take().ok_or_else(|| Error::Internal("a batch was completed twice".into()))?;
        let bytes = plan.bytes - plan.columns;
        let from = self.staging.pin(columns)?.part(0..bytes)?;
        let mut copied = std::mem::take(&mut self.copied);
        copied.sort_unstable_by_key(|range| range.start);
        let mut at = 0;
        for range in copied.into_iter().chain(std::iter::once(bytes..bytes)) {
            let gap = at..range.start.max(at);
            flight.copy_to_device(self.buffer().range(plan.columns + at, gap.len())?, &from.part(gap)?)?;
            at = at.max(range.end);
        }
        let ready = lock(&self.users).event(self.device())?;
        ready.record(flight.stream())?;
        lock(&self.users).complete(ready);
        Ok(())
    }

    pub(super) fn ready(&self) -> Option<Arc<Event>> {
        lock(&self.users).ready.clone()
    }

    pub(super) fn add_reader(&self, stream: StreamRef) -> Result<()> {
        if stream.captures(self.device())? {
            let message = "is capturing a CUDA graph, and a batch cannot be part of a graph: take batches before the \
                           capture, and copy them into the graph's input tensors";
            return Err(Error::config("stream", message));
        }
        self.ready().map_or(Ok(()), |ready| stream.wait(&ready))
    }

    /// Makes `stream` wait until the batch is complete, and records it as a reader until the batch's last tensor is
    /// dropped.
    pub(super) fn add_reader_until_drop(&self, stream: StreamRef) -> Result<()> {
        self.add_reader(stream)?;
        let mut users = lock(&self.users);
        if !users.readers_until_drop.contains(&stream) {
            users.readers_until_drop.push(stream);
        }
        Ok(())
    }

    /// Records that `stream` has queued all its work that reads the batch. The next user of the buffer waits for that
    /// work. Any thread may call this.
    pub(super) fn remove_reader(&self, stream: StreamRef) {
        // Each thread has its own per-thread default stream, and `add_reader` may have been called on another thread.
        // So use the legacy default stream, which waits for the default streams of all threads.
        let stream = if stream == StreamRef::PER_THREAD { StreamRef::LEGACY } else { stream };
        let mut users = lock(&self.users);
        // No stream waits for a reader's event before the batch has ended, so the event can be recorded again.
        let known =
            users.reader_events.iter().find(|(known, _)| *known == stream).map(|(_, event)| event.clone());
        let is_new = known.is_none();
        match self.mark(&mut users, known, stream) {
            Ok(Some(event)) if is_new => users.reader_events.push((stream, event)),
            Ok(Some(_)) => {}
            Ok(None) => users.capturing.push(stream),
            // If the GPU is lost, `wait_for_former_users` makes the next batch fail.
            Err(_) => users.reader_lost = true,
        }
    }

    pub(super) fn read(&self, offset: usize, bytes: usize) -> Result<Vec<u8>> {
        let stream = Stream::new(self.device())?;
        if let Some(ready) = self.ready() {
            stream.wait(&ready)?;
        }
        let host = PinnedBuffer::new(stream.device(), bytes)?;
        Ok(stream.copy_to_host(host, self.buffer().range(offset, bytes)?)?.to_vec())
    }

    pub(super) fn buffer(&self) -> &DeviceBuffer {
        self.buffer.as_ref().expect("only dropping takes it out")
    }
}

impl Drop for CudaMemory {
    fn drop(&mut self) {
        if !self.can_be_reused() {
            // A reader captures a CUDA graph, perhaps on this very thread, so waiting for it is impossible. The only
            // safe action is to leak the memory.
            std::mem::forget(self.buffer.take());
            return;
        }
        // The deallocation is queued on this stream, after the waits.
        let stream = self.buffer().stream().clone();
        let _ = self.wait_for_former_users(&stream);
    }
}

#[derive(Clone, Copy)]
pub(super) struct BufferAddress(pub *mut u8);

// SAFETY: the buffer or encoded file at this address keeps the memory alive. Each ticket writes through the address
// only to its own sample's bytes, and tensors exist only after the last ticket is dropped.
unsafe impl Send for BufferAddress {}
// SAFETY: the same reasons as for `Send`.
unsafe impl Sync for BufferAddress {}

pub(super) fn map(bytes: usize) -> Result<MmapMut> {
    let memory = MmapMut::map_anon(bytes)
        .map_err(|e| Error::io(format!("allocate a batch of {bytes} bytes from"), "memory", e))?;
    // Huge pages make first touch and TLB misses cheap; a kernel without them still works.
    let _ = memory.advise(Advice::HugePage);
    Ok(memory)
}
