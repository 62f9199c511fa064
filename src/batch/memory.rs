//! Where the bytes of a batch are: in host memory, or on a GPU.

use super::layout::Plan;
use super::tensor::Place;
use crate::error::{Error, Result};
use crate::gpu::{
    DeviceBuffer, Event, GpuDevice, InFlight, MemoryPool, PinnedBuffer, Registration, Stream, StreamRef,
};
use crate::slot::Slot;
use memmap2::{Advice, MmapMut};
use std::sync::{Arc, Mutex, PoisonError};

/// Events of a buffer that are kept for its next batches.
const MOST_SPARE: usize = 8;

/// Where a pool's buffers are.
#[derive(Clone, Default)]
pub(crate) enum Storage {
    /// In host memory.
    #[default]
    Host,
    /// Host memory for the columns; encoded files stay in the slots they were read into.
    Slots,
    /// On a GPU.
    Cuda(CudaStorage),
}

/// What buffers on a GPU are made of.
#[derive(Clone)]
pub(crate) struct CudaStorage {
    /// Where their memory comes from.
    pub pool: MemoryPool,
    /// In whose order it is taken and given back; nothing else is queued there.
    pub stream: Stream,
    /// Page-locked memory, of which each batch in the making takes a slot for its columns.
    pub desk: Registration,
}

impl Storage {
    pub(super) fn allocate(&self, plan: &Plan) -> Result<Memory> {
        match self {
            Self::Host | Self::Slots => {
                let mut map = map(plan.bytes)?;
                let base = Base(map.as_mut_ptr());
                Ok(Memory::Host(HostMemory { base, _map: map }))
            }
            Self::Cuda(storage) => {
                let buffer = storage.pool.allocate(&storage.stream, plan.bytes)?;
                let allocated = Event::new(storage.pool.device())?;
                allocated.record(&storage.stream)?;
                Ok(Memory::Cuda(CudaMemory {
                    buffer: Some(buffer),
                    desk: storage.desk.clone(),
                    columns: None,
                    users: Mutex::new(Users { earlier: vec![Arc::new(allocated)], ..Users::default() }),
                }))
            }
        }
    }
}

/// The memory of one buffer.
pub(super) enum Memory {
    Host(HostMemory),
    Cuda(CudaMemory),
}

impl Memory {
    /// Makes it ready for a batch; false when there is no page-locked memory for its columns now.
    pub(super) fn open(&mut self, plan: &Plan) -> bool {
        match self {
            Self::Host(_) => true,
            Self::Cuda(memory) => {
                memory.columns = memory.desk.slots().try_take(plan.bytes - plan.columns);
                memory.columns.is_some()
            }
        }
    }

    /// Whether nobody who had it is in the way of its next user.
    pub(super) fn is_left(&self) -> bool {
        self.cuda().is_none_or(CudaMemory::is_left)
    }

    /// Where the images are written by the CPU.
    pub(super) fn host_images(&self) -> Option<Base> {
        match self {
            Self::Host(memory) => Some(memory.base),
            Self::Cuda(_) => None,
        }
    }

    /// Where the columns are written, by the CPU always.
    pub(super) fn host_columns(&mut self, plan: &Plan) -> Base {
        match self {
            Self::Host(memory) => Base(memory.base.0.wrapping_add(plan.columns)),
            Self::Cuda(memory) => Base(memory.columns.as_mut().expect("opened").as_mut_ptr()),
        }
    }

    /// Its first byte, where [`Memory::place`] says: all that use the buffer go through this pointer.
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

    /// What the pool keeps of a buffer nobody uses any more.
    pub(super) fn given_back(mut self) -> Self {
        if let Self::Cuda(memory) = &mut self {
            memory.columns = None;
            let until_the_end = std::mem::take(&mut memory.users().until_the_end);
            until_the_end.into_iter().for_each(|stream| memory.return_from(stream));
            memory.users().leave();
        }
        self
    }
}

pub(super) struct HostMemory {
    base: Base,
    /// Owns what `base` points to.
    _map: MmapMut,
}

/// A buffer on a GPU, and who must have passed before somebody else writes to it.
pub(super) struct CudaMemory {
    buffer: Option<DeviceBuffer>,
    desk: Registration,
    /// Labels, ids and mask while the batch is made.
    columns: Option<Slot>,
    users: Mutex<Users>,
}

#[derive(Default)]
struct Users {
    /// Who had the buffer before, or its allocation.
    earlier: Vec<Arc<Event>>,
    /// Events that nobody waits for any more: no batch shall have to make any.
    spare: Vec<Arc<Event>>,
    /// The batch is there.
    ready: Option<Arc<Event>>,
    /// Streams that have read it, each with its latest mark: a batch may be lent again and again.
    passed: Vec<(StreamRef, Arc<Event>)>,
    /// Streams that may read it until the batch is over.
    until_the_end: Vec<StreamRef>,
    /// Those that have read it and capture a CUDA graph, of which a mark would become a part.
    capturing: Vec<StreamRef>,
    /// One that has read it could not be marked, for its handle is no stream's any more.
    gone: bool,
}

impl Users {
    /// The batch is over: what its readers had queued is what the next user waits for.
    fn leave(&mut self) {
        // A batch that nobody made has the users it had before.
        if let Some(ready) = self.ready.take() {
            // Readers waited for it; but there may be none.
            self.earlier = vec![ready];
        }
        self.earlier.extend(self.passed.drain(..).map(|(_, event)| event));
    }

    /// An event that nobody waits for.
    fn event(&mut self, device: &GpuDevice) -> Result<Arc<Event>> {
        // One that somebody holds may be waited for by now, for the batch that it was the end of.
        let unused = self.spare.iter().position(|event| Arc::strong_count(event) == 1);
        unused.map_or_else(|| Event::new(device).map(Arc::new), |at| Ok(self.spare.swap_remove(at)))
    }

    /// `ready` lies behind all that was waited for.
    fn complete(&mut self, ready: Arc<Event>) {
        self.ready = Some(ready);
        self.spare.append(&mut self.earlier);
        self.spare.truncate(MOST_SPARE);
    }
}

impl CudaMemory {
    fn users(&self) -> std::sync::MutexGuard<'_, Users> {
        // Valid after every statement: a panic elsewhere cannot have broken it.
        self.users.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn device(&self) -> &GpuDevice {
        self.buffer().stream().device()
    }

    /// Whether all who had the buffer are marked, so that it can be waited for them: not while one of them captures.
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

    /// Marks what `stream` has queued, by `event` or a new one; `None` when it captures.
    fn mark(
        &self,
        users: &mut Users,
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

    /// Lets `stream` write to the buffer once everybody before has passed.
    pub(super) fn wait_for_earlier(&self, stream: &Stream) -> Result<()> {
        let mut users = self.users();
        if users.gone {
            // Nobody can tell what is left of that reader's work: all work is waited for.
            self.device().synchronize()?;
            users.gone = false;
        }
        users.earlier.iter().try_for_each(|event| stream.wait(event))
    }

    /// Queues the copy of the columns behind the images and marks the batch as ready from there on.
    pub(super) fn complete(&mut self, plan: &Plan, flight: &mut InFlight) -> Result<()> {
        // A batch without a single image was not waited for before.
        self.wait_for_earlier(flight.stream())?;
        let columns = self.columns.take().ok_or_else(|| Error::Internal("a batch completed twice".into()))?;
        let bytes = plan.bytes - plan.columns;
        let from = self.desk.pin(columns)?.part(0..bytes)?;
        flight.copy_to_device(self.buffer().range(plan.columns, bytes)?, &from)?;
        let ready = self.users().event(self.device())?;
        ready.record(flight.stream())?;
        self.users().complete(ready);
        Ok(())
    }

    /// The batch is there when this has passed.
    pub(super) fn ready(&self) -> Option<Arc<Event>> {
        self.users().ready.clone()
    }

    /// `stream` reads the batch from now on, once it is there.
    pub(super) fn lend(&self, stream: StreamRef) -> Result<()> {
        if stream.captures(self.device())? {
            let message = "captures a CUDA graph, of which no batch can be a part: take batches before the capture, \
                           and copy them into what the graph reads";
            return Err(Error::config("stream", message));
        }
        self.ready().map_or(Ok(()), |ready| stream.wait(&ready))
    }

    /// Likewise, until the batch is over.
    pub(super) fn lend_until_the_end(&self, stream: StreamRef) -> Result<()> {
        self.lend(stream)?;
        let mut users = self.users();
        if !users.until_the_end.contains(&stream) {
            users.until_the_end.push(stream);
        }
        Ok(())
    }

    /// `stream` reads no more than what it has queued: the next user of the buffer waits for that. May come from any
    /// thread.
    pub(super) fn return_from(&self, stream: StreamRef) {
        // "This thread's default stream" was another thread's when it was lent. The legacy default stream waits for
        // those of all threads.
        let stream = if stream == StreamRef::PER_THREAD { StreamRef::LEGACY } else { stream };
        let mut users = self.users();
        // Nobody waits for a mark of this batch before the batch is over: it may be set anew.
        let known = users.passed.iter().find(|(known, _)| *known == stream).map(|(_, event)| event.clone());
        let is_new = known.is_none();
        match self.mark(&mut users, known, stream) {
            Ok(Some(event)) if is_new => users.passed.push((stream, event)),
            Ok(Some(_)) => {}
            Ok(None) => users.capturing.push(stream),
            // Where the GPU is lost, waiting for it fails the next batch.
            Err(_) => users.gone = true,
        }
    }

    /// Copies a part of the buffer to the host; returns when it is there.
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
            // A reader captures, perhaps this very thread: nobody can wait for it. Leaking is the one safe end.
            std::mem::forget(self.buffer.take());
            return;
        }
        // The memory goes back in the order of its stream.
        let stream = self.buffer().stream().clone();
        let _ = self.wait_for_earlier(&stream);
    }
}

/// An address in a buffer.
#[derive(Clone, Copy)]
pub(super) struct Base(pub *mut u8);

// SAFETY: the memory is kept by the buffer (or the encoded file) beside it; tickets write through it each to a place of
// its own, and tensors exist only when the last ticket is gone.
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
