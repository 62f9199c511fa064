//! The memory of a batch's bytes, on the host or on a GPU.

use super::layout::BufferPlan;
use super::leased::LeasedMemory;
use super::shared::SharedMemory;
use super::tensor::Place;
use base::error::{Error, Result};
use base::slot::Slot;
use memmap2::{Advice, MmapMut};
use pixels::gpu::{
    DeviceBuffer, Event, GpuDevice, InFlight, MemoryPool, PinnedBuffer, Registration, Stream, StreamRef,
};
use std::sync::{Arc, Mutex, PoisonError};

/// The most events that a buffer keeps for its next batches.
const MAX_SPARE: usize = 8;

/// Where the buffers of a pool are.
#[derive(Clone, Default)]
pub enum BatchStorage {
    /// Buffers are in host memory.
    #[default]
    Host,
    /// Buffers are in host memory that can be leased to other processes.
    Shared,
    /// The columns are in host memory, and encoded files stay in the slots that they were read into.
    Slots,
    /// Buffers are on a GPU.
    Cuda(CudaStorage),
}

/// What buffers on a GPU are allocated from.
#[derive(Clone)]
pub struct CudaStorage {
    /// The pool that their memory comes from.
    pub pool: MemoryPool,
    /// The stream in whose order memory is allocated and freed; nothing else is queued there.
    pub stream: Stream,
    /// Staging buffers: page-locked memory. Each batch that is being filled takes a slot of it for its columns.
    pub staging: Registration,
}

impl BatchStorage {
    pub(super) fn is_cuda(&self) -> bool {
        matches!(self, Self::Cuda(_))
    }

    pub(super) fn allocate(&self, plan: &BufferPlan) -> Result<BufferMemory> {
        match self {
            Self::Host | Self::Slots => {
                let mut map = map(plan.bytes)?;
                let base = Base(map.as_mut_ptr());
                Ok(BufferMemory::Host(HostMemory { base, owner: HostOwner::Process(map) }))
            }
            Self::Shared => SharedMemory::new(plan.bytes).map(BufferMemory::from),
            Self::Cuda(storage) => {
                let buffer = storage.pool.allocate(&storage.stream, plan.bytes)?;
                let allocated = Event::new(storage.pool.device())?;
                allocated.record(&storage.stream)?;
                Ok(BufferMemory::Cuda(CudaMemory {
                    buffer: Some(buffer),
                    staging: storage.staging.clone(),
                    columns: None,
                    users: Mutex::new(BufferUsers {
                        earlier: vec![Arc::new(allocated)],
                        ..BufferUsers::default()
                    }),
                }))
            }
        }
    }
}

/// The memory of one buffer.
pub(super) enum BufferMemory {
    Host(HostMemory),
    Cuda(CudaMemory),
}

impl BufferMemory {
    /// Makes the kernel back all pages with memory now. Kernels before 5.14 do so when the pages are written.
    pub(super) fn touch(&self) {
        match self {
            Self::Host(HostMemory { owner: HostOwner::Process(map), .. }) => {
                let _ = map.advise(Advice::PopulateWrite);
            }
            Self::Host(HostMemory { owner: HostOwner::Shared(memory), .. }) => memory.touch(),
            Self::Host(HostMemory { owner: HostOwner::Leased(_), .. }) | Self::Cuda(_) => {}
        }
    }

    /// Prepares the memory for a batch. Returns false if no staging buffer is free for its columns now.
    pub(super) fn open(&mut self, plan: &BufferPlan) -> bool {
        match self {
            Self::Host(_) => true,
            Self::Cuda(memory) => {
                memory.columns = memory.staging.slots().try_take(plan.bytes - plan.columns);
                memory.columns.is_some()
            }
        }
    }

    /// Returns whether all former users of the buffer can be waited for, so that it can have a next one.
    pub(super) fn is_left(&self) -> bool {
        self.cuda().is_none_or(CudaMemory::is_left)
    }

    /// Returns the address at which the CPU writes the images; `None` on a GPU.
    pub(super) fn host_images(&self) -> Option<Base> {
        match self {
            Self::Host(memory) => Some(memory.base),
            Self::Cuda(_) => None,
        }
    }

    /// Returns the address at which the CPU writes the columns, also for a batch on a GPU.
    pub(super) fn host_columns(&mut self, plan: &BufferPlan) -> Base {
        match self {
            Self::Host(memory) => Base(memory.base.0.wrapping_add(plan.columns)),
            Self::Cuda(memory) => Base(memory.columns.as_mut().expect("opened").as_mut_ptr()),
        }
    }

    /// Returns the address of the first byte, in the memory that [`BufferMemory::place`] names. All access to the
    /// buffer goes through this pointer.
    pub(super) fn base(&self) -> Base {
        match self {
            Self::Host(memory) => memory.base,
            Self::Cuda(memory) => Base(memory.buffer().ptr() as *mut u8),
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

    /// Prepares the memory for the pool, when the buffer has no users any more.
    pub(super) fn given_back(mut self) -> Self {
        if let Self::Cuda(memory) = &mut self {
            memory.columns = None;
            let until_the_end = std::mem::take(&mut memory.users().until_the_end);
            until_the_end.into_iter().for_each(|stream| memory.remove_reader(stream));
            memory.users().leave();
        }
        self
    }
}

pub(super) struct HostMemory {
    base: Base,
    /// Owns the memory at `base`.
    owner: HostOwner,
}

/// What owns host memory.
enum HostOwner {
    /// A mapping that only this process has.
    Process(MmapMut),
    /// Memory that is leased to other processes.
    Shared(SharedMemory),
    /// Memory that another process has leased to this one.
    Leased(#[expect(dead_code, reason = "held, not used")] LeasedMemory),
}

impl From<SharedMemory> for BufferMemory {
    fn from(memory: SharedMemory) -> Self {
        Self::Host(HostMemory { base: memory.base(), owner: HostOwner::Shared(memory) })
    }
}

impl From<LeasedMemory> for BufferMemory {
    fn from(memory: LeasedMemory) -> Self {
        Self::Host(HostMemory { base: memory.base(), owner: HostOwner::Leased(memory) })
    }
}

impl BufferMemory {
    /// Returns the memory if it can be leased to other processes.
    pub(super) fn shared(&self) -> Option<&SharedMemory> {
        match self {
            Self::Host(HostMemory { owner: HostOwner::Shared(memory), .. }) => Some(memory),
            _ => None,
        }
    }
}

/// A buffer on a GPU, and the users that its next writer must wait for.
pub(super) struct CudaMemory {
    buffer: Option<DeviceBuffer>,
    staging: Registration,
    /// The staging buffer of labels, ids, mask and further columns, while the batch is being filled.
    columns: Option<Slot>,
    users: Mutex<BufferUsers>,
}

#[derive(Default)]
struct BufferUsers {
    /// The events that the next writer waits for: of the former users of the buffer, or of its allocation.
    earlier: Vec<Arc<Event>>,
    /// Events that are not waited for any more, kept so that no batch has to create any.
    spare: Vec<Arc<Event>>,
    /// Passed when the batch is complete.
    ready: Option<Arc<Event>>,
    /// The streams that have read the batch, each with its latest event, because a stream may read it several times.
    passed: Vec<(StreamRef, Arc<Event>)>,
    /// The streams that may read the batch until its last tensor is dropped.
    until_the_end: Vec<StreamRef>,
    /// The streams that have read the batch and capture a CUDA graph. An event recorded now would become part of the
    /// graph.
    capturing: Vec<StreamRef>,
    /// Whether no event could be recorded on a stream that has read the batch, because its handle no longer belongs to
    /// a stream.
    gone: bool,
}

impl BufferUsers {
    /// Ends the batch: the next user waits for the work that its readers have queued.
    fn leave(&mut self) {
        // A batch that was never completed keeps the former users of the buffer.
        if let Some(ready) = self.ready.take() {
            // All readers waited for this event, but there may have been none.
            self.earlier = vec![ready];
        }
        self.earlier.extend(self.passed.drain(..).map(|(_, event)| event));
    }

    /// Returns an event that is not waited for, a spare one if there is one.
    fn event(&mut self, device: &GpuDevice) -> Result<Arc<Event>> {
        // An event with another owner may be the end of an earlier batch, and be waited for.
        let unused = self.spare.iter().position(|event| Arc::strong_count(event) == 1);
        unused.map_or_else(|| Event::new(device).map(Arc::new), |at| Ok(self.spare.swap_remove(at)))
    }

    /// Records that the batch is complete. `ready` comes after everything that was waited for before.
    fn complete(&mut self, ready: Arc<Event>) {
        self.ready = Some(ready);
        self.spare.append(&mut self.earlier);
        self.spare.truncate(MAX_SPARE);
    }
}

impl CudaMemory {
    fn users(&self) -> std::sync::MutexGuard<'_, BufferUsers> {
        // Valid after every statement: a panic elsewhere cannot have broken it.
        self.users.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn device(&self) -> &GpuDevice {
        self.buffer().stream().device()
    }

    /// Returns whether an event is recorded for every former user of the buffer, so that they can be waited for. No
    /// event can be recorded on a stream that captures a CUDA graph.
    fn is_left(&self) -> bool {
        let mut users = self.users();
        while let Some(&reader) = users.capturing.last() {
            match self.mark(&mut users, None, reader) {
                Ok(Some(event)) => users.earlier.push(event),
                Ok(None) => return false,
                Err(_) => users.gone = true,
            }
            users.capturing.pop();
        }
        true
    }

    /// Records `event`, or else a new one, after the work that `stream` has queued. Returns `None` if the stream
    /// captures.
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

    /// Lets `stream` write to the buffer when all its former users are done.
    pub(super) fn wait_for_earlier(&self, stream: &Stream) -> Result<()> {
        let mut users = self.users();
        if users.gone {
            // The rest of that reader's work is unknown, so wait for all work of the device.
            self.device().synchronize()?;
            users.gone = false;
        }
        users.earlier.iter().try_for_each(|event| stream.wait(event))
    }

    /// Queues the copy of the columns after the images, and then the event that marks the batch as complete.
    pub(super) fn complete(&mut self, plan: &BufferPlan, flight: &mut InFlight) -> Result<()> {
        // A batch without images has not waited for its former users yet.
        self.wait_for_earlier(flight.stream())?;
        let columns =
            self.columns.take().ok_or_else(|| Error::Internal("a batch was completed twice".into()))?;
        let bytes = plan.bytes - plan.columns;
        let from = self.staging.pin(columns)?.part(0..bytes)?;
        flight.copy_to_device(self.buffer().range(plan.columns, bytes)?, &from)?;
        let ready = self.users().event(self.device())?;
        ready.record(flight.stream())?;
        self.users().complete(ready);
        Ok(())
    }

    /// Returns the event that is passed when the batch is complete.
    pub(super) fn ready(&self) -> Option<Arc<Event>> {
        self.users().ready.clone()
    }

    /// Lets `stream` read the batch when it is complete.
    pub(super) fn lend(&self, stream: StreamRef) -> Result<()> {
        if stream.captures(self.device())? {
            let message = "is capturing a CUDA graph, and a batch cannot be part of a graph: take batches before the \
                           capture, and copy them into the graph's input tensors";
            return Err(Error::config("stream", message));
        }
        self.ready().map_or(Ok(()), |ready| stream.wait(&ready))
    }

    /// Lets `stream` read the batch when it is complete, until its last tensor is dropped.
    pub(super) fn add_reader_until_drop(&self, stream: StreamRef) -> Result<()> {
        self.lend(stream)?;
        let mut users = self.users();
        if !users.until_the_end.contains(&stream) {
            users.until_the_end.push(stream);
        }
        Ok(())
    }

    /// Records that `stream` reads nothing beyond the work that it has queued by now. The next user of the buffer waits
    /// for that work. Any thread may call this.
    pub(super) fn remove_reader(&self, stream: StreamRef) {
        // "This thread's default stream" may have been another thread's when `lend` was called. The legacy default
        // stream waits for those of all threads.
        let stream = if stream == StreamRef::PER_THREAD { StreamRef::LEGACY } else { stream };
        let mut users = self.users();
        // An event of this batch is waited for only after the batch has ended, so it can be recorded again.
        let known = users.passed.iter().find(|(known, _)| *known == stream).map(|(_, event)| event.clone());
        let is_new = known.is_none();
        match self.mark(&mut users, known, stream) {
            Ok(Some(event)) if is_new => users.passed.push((stream, event)),
            Ok(Some(_)) => {}
            Ok(None) => users.capturing.push(stream),
            // If the GPU is lost, waiting for it makes the next batch fail.
            Err(_) => users.gone = true,
        }
    }

    /// Copies a part of the buffer to the host, and waits until the copy is complete.
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
        if !self.is_left() {
            // A reader captures a CUDA graph, perhaps on this very thread, so it cannot be waited for. Leaking the
            // memory is the only safe end.
            std::mem::forget(self.buffer.take());
            return;
        }
        // The memory is freed in the order of its stream.
        let stream = self.buffer().stream().clone();
        let _ = self.wait_for_earlier(&stream);
    }
}

/// An address in a buffer, which threads may share.
#[derive(Clone, Copy)]
pub(super) struct Base(pub *mut u8);

// SAFETY: the buffer, or the encoded file that holds this address, keeps the memory. Each ticket writes through it only
// to its own place, and tensors exist only after the last ticket is dropped.
unsafe impl Send for Base {}
// SAFETY: as above.
unsafe impl Sync for Base {}

pub(super) fn map(bytes: usize) -> Result<MmapMut> {
    let memory = MmapMut::map_anon(bytes)
        .map_err(|e| Error::io(format!("allocate a batch of {bytes} bytes from"), "memory", e))?;
    // Huge pages make first touch and TLB misses cheap; a kernel without them still works.
    let _ = memory.advise(Advice::HugePage);
    Ok(memory)
}
