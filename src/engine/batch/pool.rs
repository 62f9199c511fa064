//! A pool with a fixed number of batch buffers, which are used again and again.

use super::encoded::EncodedFiles;
use super::layout::{BatchLayout, BufferPlan};
use super::leased::LeasedMemory;
use super::memory::{BatchStorage, BufferMemory};
use super::open_batch::{self, BatchCloser, Ticket};
use super::parcel::Parcel;
use super::values::Gathered;
use super::{Batch, Sink};
use base::error::{Error, Result};
use base::locks::lock;
use std::sync::{Arc, Mutex};

/// How the memory is divided into pools.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pools {
    /// The number of bytes of the arena that files are read into.
    pub slot_bytes: usize,
    /// The maximum number of batches in the pipeline: being filled, or waiting for the consumer.
    pub prefetch: usize,
    /// The total number of batch buffers, including the buffers that the consumer keeps.
    pub batches: usize,
}

/// A pool of batch buffers. Buffers are allocated when first needed, up to a fixed number, and then reused.
#[derive(Clone)]
pub struct BatchPool(Arc<PoolShared>);

struct PoolShared {
    capacity: usize,
    /// The layouts of batches with their plans: one, or one for each size of images.
    layouts: Vec<(BatchLayout, BufferPlan)>,
    /// The number of bytes of the buffers, which have room for a batch of any layout.
    bytes: usize,
    limits: Pools,
    storage: BatchStorage,
    // Valid after every statement, so a panic elsewhere cannot break it.
    state: Mutex<PoolState>,
    /// Called when a buffer is returned, because the reading thread may be waiting for a buffer.
    on_free: Box<dyn Fn() + Send + Sync>,
}

#[derive(Default)]
struct PoolState {
    free: Vec<BufferMemory>,
    allocated: usize,
    in_pipeline: usize,
    /// Whether the pool may allocate more buffers. Set while the consumer waits for a batch, because the consumer may
    /// keep the buffers that it has not returned by then.
    may_grow: bool,
}

impl BatchPool {
    /// Makes a pool of buffers in `storage` for `capacity` samples of `layout`, within `limits`.
    pub fn new(
        capacity: usize,
        layout: BatchLayout,
        limits: Pools,
        storage: BatchStorage,
        on_free: impl Fn() + Send + Sync + 'static,
    ) -> Self {
        Self::of_layouts(capacity, vec![layout], limits, storage, on_free)
    }

    /// Makes a pool of buffers that each have room for a batch of any of the `layouts`, of which there is at least one.
    /// Batches on a GPU have one layout.
    pub fn of_layouts(
        capacity: usize,
        layouts: Vec<BatchLayout>,
        limits: Pools,
        storage: BatchStorage,
        on_free: impl Fn() + Send + Sync + 'static,
    ) -> Self {
        let planned = |layout| {
            let plan = BufferPlan::new(&layout, capacity);
            (layout, plan)
        };
        let layouts: Vec<_> = layouts.into_iter().map(planned).collect();
        let bytes = layouts.iter().map(|(_, plan)| plan.bytes).max().unwrap_or(0);
        let (state, on_free) = (Mutex::default(), Box::new(on_free));
        Self(Arc::new(PoolShared { capacity, layouts, bytes, limits, storage, state, on_free }))
    }

    /// Allocates one of the buffers that the pipeline will need, and touches its pages, so that the first batches do
    /// not wait for the kernel to clear them. Returns whether a buffer was allocated; on a GPU always false.
    ///
    /// # Errors
    /// The errors of [`BatchPool::begin`].
    pub fn prepare_one(&self) -> Result<bool> {
        let PoolShared { limits, storage, bytes, .. } = &*self.0;
        let is_cuda = matches!(storage, BatchStorage::Cuda(_));
        if is_cuda || lock(&self.0.state).allocated > limits.prefetch.min(limits.batches - 1) {
            return Ok(false);
        }
        // Only the reading thread allocates, so the lock need not be held.
        let memory = storage.allocate(*bytes)?;
        memory.touch();
        let mut state = lock(&self.0.state);
        state.allocated += 1;
        state.free.push(memory);
        Ok(true)
    }

    /// Takes a buffer for a batch of the layout with the number `layout`. Returns `None` while the pipeline has its
    /// maximum number of buffers, or the consumer holds all others.
    ///
    /// # Errors
    /// The errors of [`BatchPool::begin`].
    pub(super) fn take(&self, layout: usize) -> Result<Option<BatchBuffer>> {
        let mut state = lock(&self.0.state);
        if state.in_pipeline >= self.0.limits.prefetch {
            return Ok(None);
        }
        // A consumer that drops a batch only after it gets the next one needs one buffer more than the pipeline's
        // maximum.
        let may_allocate = state.allocated <= self.0.limits.prefetch || state.may_grow;
        let mut memory = match state.free.iter().rposition(BufferMemory::can_be_reused) {
            Some(latest) => state.free.remove(latest),
            None if may_allocate && state.allocated < self.0.limits.batches => {
                let memory = self.0.storage.allocate(self.0.bytes)?;
                state.allocated += 1;
                memory
            }
            None => return Ok(None),
        };
        if !memory.open(&self.0.layouts[layout].1) {
            state.free.push(memory);
            return Ok(None);
        }
        state.in_pipeline += 1;
        Ok(Some(BatchBuffer {
            memory: Some(memory),
            encoded: EncodedFiles::default(),
            values: Vec::new(),
            delivered: false,
            not_reused: false,
            is_from_producer: false,
            layout,
            pool: self.0.clone(),
            process: std::process::id(),
        }))
    }

    /// Returns whether the pool has space for one more batch that another process made.
    pub fn has_lease_space(&self) -> bool {
        let state = lock(&self.0.state);
        state.in_pipeline < self.0.limits.prefetch && state.allocated < self.0.limits.batches
    }

    /// Makes the batch of step `step` with `len` samples and the layout with the number `layout` from memory that
    /// another process has filled and leased, and from the `parcel` of that batch. The memory is given back when the
    /// last tensor of the batch is dropped.
    ///
    /// # Errors
    /// [`Error::Internal`] for memory that holds no such batch.
    pub fn wrap_leased(
        &self,
        (step, len): (u64, u32),
        layout: usize,
        memory: LeasedMemory,
        parcel: Parcel,
    ) -> Result<Batch> {
        self.check_leased(len, &memory, &parcel)?;
        let Parcel { failures, values, .. } = parcel;
        let mut state = lock(&self.0.state);
        state.in_pipeline += 1;
        state.allocated += 1;
        drop(state);
        let buffer = BatchBuffer {
            memory: Some(memory.into()),
            encoded: EncodedFiles::default(),
            values,
            delivered: false,
            not_reused: true,
            is_from_producer: true,
            layout,
            pool: self.0.clone(),
            process: std::process::id(),
        };
        Ok(Batch { step, len, failures, buffer: Arc::new(buffer) })
    }

    pub(super) fn check_leased(&self, len: u32, memory: &LeasedMemory, parcel: &Parcel) -> Result<()> {
        let bytes = memory.map.bytes().len();
        if bytes != self.0.bytes.max(1)
            || len as usize > self.0.capacity
            || parcel.values.len() != self.0.layouts[0].0.values.len()
        {
            let message = format!(
                "a shared batch of {len} samples in {bytes} bytes does not fit this loader's batches"
            );
            return Err(Error::Internal(message));
        }
        Ok(())
    }

    /// Takes a buffer for the batch of step `step`, which has `len` samples and the first layout. Returns the closer
    /// and one ticket for each sample. When the closer and all tickets are dropped, the batch goes to `ready`. Returns
    /// `None` if no buffer is free within the pool's limits; call again after a buffer was returned.
    ///
    /// # Errors
    /// [`Error::Io`] when the system has no memory left, [`Error::Gpu`] when the device has none.
    pub fn begin(
        &self,
        step: u64,
        len: u32,
        ready: &Arc<dyn Sink>,
    ) -> Result<Option<(BatchCloser, Vec<Ticket>)>> {
        self.begin_in(0, step, len, ready)
    }

    /// Takes a buffer like [`BatchPool::begin`], for a batch of the layout with the number `layout`.
    ///
    /// # Errors
    /// The errors of [`BatchPool::begin`].
    pub fn begin_in(
        &self,
        layout: usize,
        step: u64,
        len: u32,
        ready: &Arc<dyn Sink>,
    ) -> Result<Option<(BatchCloser, Vec<Ticket>)>> {
        Ok(self.take(layout)?.map(|buffer| open_batch::begin(buffer, step, len, ready)))
    }

    /// Tells the pool that the consumer waits for the next batch. The pool assumes that the consumer keeps the buffers
    /// that it has not returned by now.
    pub fn consumer_waits(&self) {
        lock(&self.0.state).may_grow = true;
        (self.0.on_free)();
    }

    /// Returns whether the consumer holds all buffers that the limits allow. No batch can be made until the consumer
    /// returns one.
    pub fn all_held(&self) -> bool {
        let state = lock(&self.0.state);
        state.in_pipeline == 0 && state.free.is_empty() && state.allocated == self.0.limits.batches
    }

    /// Returns the maximum number of buffers, and the size of each in bytes.
    pub fn limits(&self) -> (usize, usize) {
        (self.0.limits.batches, self.0.bytes)
    }
}

pub(super) struct BatchBuffer {
    memory: Option<BufferMemory>,
    /// Encoded files are not copied: they stay in the slots that they were read into.
    pub(super) encoded: EncodedFiles,
    pub(super) values: Vec<Gathered>,
    delivered: bool,
    pub(super) not_reused: bool,
    pub(super) is_from_producer: bool,
    layout: usize,
    pool: Arc<PoolShared>,
    /// The process that took the buffer. A forked child has a copy of the buffer, but must not lock the pool, because a
    /// thread that exists only in the parent may hold the lock.
    process: u32,
}

impl BatchBuffer {
    pub(super) fn plan(&self) -> &BufferPlan {
        &self.pool.layouts[self.layout].1
    }

    pub(super) fn layout(&self) -> &BatchLayout {
        &self.pool.layouts[self.layout].0
    }

    pub(super) fn layout_number(&self) -> usize {
        self.layout
    }

    pub(super) fn storage(&self) -> &BatchStorage {
        &self.pool.storage
    }

    pub(super) fn memory(&self) -> &BufferMemory {
        self.memory.as_ref().expect("only dropping takes it out")
    }

    pub(super) fn memory_mut(&mut self) -> &mut BufferMemory {
        self.memory.as_mut().expect("only dropping takes it out")
    }

    /// Copies `bytes` to the columns: all tensors of the buffer except the images, for the buffer's full capacity.
    ///
    /// # Panics
    /// Panics if the columns do not have this number of bytes.
    pub(super) fn fill_columns(&mut self, bytes: &[u8]) {
        let plan = self.plan().clone();
        assert_eq!(bytes.len(), plan.bytes - plan.columns);
        let columns = self.memory_mut().host_columns(&plan);
        // SAFETY: the columns have this number of bytes, and no other code has the buffer yet.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), columns.0, bytes.len()) };
    }

    pub(super) fn deliver(&mut self) {
        self.delivered = true;
        let mut state = lock(&self.pool.state);
        state.in_pipeline -= 1;
        // The consumer is about to drop the previous batch, whose buffer can then be reused.
        state.may_grow = false;
        drop(state);
        if self.is_from_producer {
            // A batch from another process was delivered: the thread that takes such batches may now take the next one.
            (self.pool.on_free)();
        }
    }
}

impl Drop for BatchBuffer {
    fn drop(&mut self) {
        if self.process != std::process::id() {
            std::mem::forget((
                self.memory.take(),
                std::mem::take(&mut self.encoded),
                std::mem::take(&mut self.values),
            ));
            return;
        }
        let memory = self.memory.take().map(BufferMemory::prepared_for_reuse).filter(|_| !self.not_reused);
        // Free the files' slots before `on_free` reports that memory is free.
        self.encoded = EncodedFiles::default();
        {
            let mut state = lock(&self.pool.state);
            state.allocated -= usize::from(self.not_reused);
            state.free.extend(memory);
            if !self.delivered {
                state.in_pipeline -= 1;
            }
        }
        (self.pool.on_free)();
    }
}
