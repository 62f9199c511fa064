//! The buffers of batches: a fixed number of them, used again and again.

use super::Sink;
use super::encoded::Kept;
use super::filling::{self, Seal, Ticket};
use super::layout::{BatchLayout, Plan};
use super::memory::{Memory, Storage};
use super::values::Gathered;
use crate::error::Result;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// How the memory is shared out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pools {
    /// Bytes of the arena that files are read into.
    pub slot_bytes: usize,
    /// Batches being filled or waiting for the consumer.
    pub prefetch: usize,
    /// Batch buffers in all, those the consumer keeps included.
    pub batches: usize,
}

/// Batch buffers up to a fixed number, allocated when first needed and used again and again.
#[derive(Clone)]
pub(crate) struct BatchPool(Arc<PoolShared>);

struct PoolShared {
    plan: Plan,
    layout: BatchLayout,
    limits: Pools,
    storage: Storage,
    state: Mutex<PoolState>,
    /// Called when a buffer comes back: the reader thread may be waiting for one.
    on_free: Box<dyn Fn() + Send + Sync>,
}

#[derive(Default)]
struct PoolState {
    free: Vec<Memory>,
    allocated: usize,
    in_pipeline: usize,
    /// The consumer waits for a batch and has not given an earlier one back: it keeps some.
    may_grow: bool,
}

impl BatchPool {
    /// A pool of buffers in `storage` for `capacity` samples of `layout`, within `limits`.
    pub(crate) fn new(
        capacity: usize,
        layout: BatchLayout,
        limits: Pools,
        storage: Storage,
        on_free: impl Fn() + Send + Sync + 'static,
    ) -> Self {
        let plan = Plan::new(&layout, capacity);
        let state = Mutex::default();
        Self(Arc::new(PoolShared { plan, layout, limits, storage, state, on_free: Box::new(on_free) }))
    }

    /// A buffer for the pipeline, or `None` while it holds its share or the consumer holds all.
    ///
    /// # Errors
    /// As [`BatchPool::begin`].
    fn take(&self) -> Result<Option<Buffer>> {
        let mut state = self.0.lock();
        if state.in_pipeline >= self.0.limits.prefetch {
            return Ok(None);
        }
        // One more than the pipeline's share is what a consumer needs that drops each batch when it has the next.
        let may_allocate = state.allocated <= self.0.limits.prefetch || state.may_grow;
        let mut memory = match state.free.iter().rposition(Memory::is_left) {
            Some(latest) => state.free.remove(latest),
            None if may_allocate && state.allocated < self.0.limits.batches => {
                let memory = self.0.storage.allocate(&self.0.plan)?;
                state.allocated += 1;
                memory
            }
            None => return Ok(None),
        };
        if !memory.open(&self.0.plan) {
            state.free.push(memory);
            return Ok(None);
        }
        state.in_pipeline += 1;
        Ok(Some(Buffer {
            memory: Some(memory),
            kept: Kept::default(),
            values: Vec::new(),
            delivered: false,
            pool: self.0.clone(),
            process: std::process::id(),
        }))
    }

    /// Takes a buffer for batch `step` of `len` samples and hands out one ticket per place and the seal. When all of
    /// them are done the batch goes to `ready`. `None`: see [`BatchPool`]'s limits; try again after a buffer came back.
    ///
    /// # Errors
    /// [`Error::Io`](crate::Error::Io) when the system, [`Error::Gpu`](crate::Error::Gpu) when the device has no memory
    /// left.
    pub(crate) fn begin(
        &self,
        step: u64,
        len: u32,
        ready: &Arc<dyn Sink>,
    ) -> Result<Option<(Seal, Vec<Ticket>)>> {
        Ok(self.take()?.map(|buffer| filling::begin(buffer, step, len, ready)))
    }

    /// The consumer asks for the next batch: what it has not given back by now it keeps for longer.
    pub(crate) fn consumer_waits(&self) {
        self.0.lock().may_grow = true;
        (self.0.on_free)();
    }

    /// Whether nothing can move until the consumer gives a buffer back: it holds every one there may be.
    pub(crate) fn all_held(&self) -> bool {
        let state = self.0.lock();
        state.in_pipeline == 0 && state.free.is_empty() && state.allocated == self.0.limits.batches
    }

    /// Number of buffers there may be, and bytes of each.
    pub(crate) fn limits(&self) -> (usize, usize) {
        (self.0.limits.batches, self.0.plan.bytes)
    }
}

impl PoolShared {
    fn lock(&self) -> MutexGuard<'_, PoolState> {
        // The state is valid after every statement, so a panic elsewhere cannot have broken it.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One buffer; its memory goes back to the pool when it is dropped.
pub(super) struct Buffer {
    memory: Option<Memory>,
    /// Encoded files that stay where they are.
    pub(super) kept: Kept,
    /// Values whose lengths differ, by field.
    pub(super) values: Vec<Gathered>,
    delivered: bool,
    pool: Arc<PoolShared>,
    /// Which took it: a forked child has a copy of the buffer, but the pool's locks may be held by threads that it has
    /// not.
    process: u32,
}

impl Buffer {
    pub(super) fn plan(&self) -> &Plan {
        &self.pool.plan
    }

    pub(super) fn layout(&self) -> &BatchLayout {
        &self.pool.layout
    }

    pub(super) fn storage(&self) -> &Storage {
        &self.pool.storage
    }

    pub(super) fn memory(&self) -> &Memory {
        self.memory.as_ref().expect("only dropping takes it out")
    }

    pub(super) fn memory_mut(&mut self) -> &mut Memory {
        self.memory.as_mut().expect("only dropping takes it out")
    }

    /// From here on it is the consumer's and no longer counts as the pipeline's.
    pub(super) fn deliver(&mut self) {
        self.delivered = true;
        let mut state = self.pool.lock();
        state.in_pipeline -= 1;
        // The consumer is about to drop the batch before this one, whose buffer will serve.
        state.may_grow = false;
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if self.process != std::process::id() {
            std::mem::forget((
                self.memory.take(),
                std::mem::take(&mut self.kept),
                std::mem::take(&mut self.values),
            ));
            return;
        }
        let memory = self.memory.take().map(Memory::given_back);
        // Before anybody is told that something came free.
        self.kept = Kept::default();
        {
            let mut state = self.pool.lock();
            state.free.extend(memory);
            if !self.delivered {
                state.in_pipeline -= 1;
            }
        }
        (self.pool.on_free)();
    }
}
