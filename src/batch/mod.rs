//! The batch: one buffer of images, labels, sample ids and mask, filled by many threads, owned by whoever holds it.
//!
//! A buffer lives in one of three places: free in its [`BatchPool`], in the pipeline (a [`Ticket`] per place, then
//! waiting to be delivered), or with the consumer, who keeps it for as long as any [`Tensor`] of it exists.

mod tensor;

pub use tensor::{Element, Tensor};

use crate::augment::{DType, MemoryFormat, Output};
use crate::error::{Error, Result};
use memmap2::{Advice, MmapMut};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Every tensor of a batch begins at a multiple of this: what DLPack asks of a tensor's data.
const ALIGN: usize = 256;

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

/// Where a finished batch goes.
pub trait Sink: Send + Sync {
    /// Takes the batch, or drops it when nobody waits for it any more.
    fn put(&self, batch: Batch);
}

/// Bytes of a buffer for `capacity` samples of `image_bytes` each.
pub fn buffer_bytes(capacity: usize, image_bytes: usize) -> usize {
    Plan::new(capacity, image_bytes).bytes
}

/// Where the four tensors lie in a buffer.
#[derive(Debug, Clone, Copy)]
struct Plan {
    image_bytes: usize,
    labels: usize,
    ids: usize,
    mask: usize,
    bytes: usize,
}

impl Plan {
    /// Saturates instead of overflowing: such a batch is refused by whoever compares it with memory.
    fn new(capacity: usize, image_bytes: usize) -> Self {
        let aligned = |bytes: usize| bytes.checked_next_multiple_of(ALIGN).unwrap_or(usize::MAX);
        let labels = aligned(capacity.saturating_mul(image_bytes));
        let ids = labels.saturating_add(aligned(8 * capacity));
        let mask = ids.saturating_add(aligned(8 * capacity));
        Self { image_bytes, labels, ids, mask, bytes: mask.saturating_add(aligned(capacity)) }
    }
}

/// Batch buffers up to a fixed number, allocated when first needed and used again and again.
#[derive(Clone)]
pub struct BatchPool(Arc<PoolShared>);

struct PoolShared {
    plan: Plan,
    output: Output,
    limits: Pools,
    state: Mutex<PoolState>,
    /// Called when a buffer comes back: the reader thread may be waiting for one.
    on_free: Box<dyn Fn() + Send + Sync>,
}

#[derive(Default)]
struct PoolState {
    free: Vec<MmapMut>,
    allocated: usize,
    in_pipeline: usize,
    /// The consumer waits for a batch and has not given an earlier one back: it keeps some.
    may_grow: bool,
}

impl BatchPool {
    /// A pool of buffers for `capacity` samples of `output`, within `limits`.
    pub fn new(
        capacity: usize,
        output: Output,
        limits: Pools,
        on_free: impl Fn() + Send + Sync + 'static,
    ) -> Self {
        let plan = Plan::new(capacity, output.bytes());
        let state = Mutex::default();
        Self(Arc::new(PoolShared { plan, output, limits, state, on_free: Box::new(on_free) }))
    }

    /// A buffer for the pipeline, or `None` while it holds its share or the consumer holds all.
    ///
    /// # Errors
    /// [`Error::Io`] when the system has no memory left.
    fn take(&self) -> Result<Option<Buffer>> {
        let mut state = self.0.lock();
        if state.in_pipeline >= self.0.limits.prefetch {
            return Ok(None);
        }
        // One more than the pipeline's share is what a consumer needs that drops each batch when it has the next.
        let may_allocate = state.allocated <= self.0.limits.prefetch || state.may_grow;
        let mut memory = match state.free.pop() {
            Some(memory) => memory,
            None if may_allocate && state.allocated < self.0.limits.batches => {
                let memory = allocate(self.0.plan.bytes)?;
                state.allocated += 1;
                memory
            }
            None => return Ok(None),
        };
        state.in_pipeline += 1;
        let base = Base(memory.as_mut_ptr());
        Ok(Some(Buffer { memory: Some(memory), base, delivered: false, pool: self.0.clone() }))
    }

    /// Takes a buffer for batch `step` of `len` samples and hands out one ticket per place. When the last ticket is
    /// done the batch goes to `ready`. `None`: see [`BatchPool`]'s limits; try again after a buffer came back.
    ///
    /// # Errors
    /// [`Error::Io`] when the system has no memory left.
    pub fn begin(&self, step: u64, len: u32, ready: &Arc<dyn Sink>) -> Result<Option<Vec<Ticket>>> {
        let Some(buffer) = self.take()? else { return Ok(None) };
        if len == 0 {
            // Nobody will finish a ticket of a batch without places.
            ready.put(Batch { step, len, failures: Vec::new(), buffer: Arc::new(buffer) });
            return Ok(Some(Vec::new()));
        }
        let filling = Arc::new(Filling {
            step,
            len,
            plan: self.0.plan,
            base: buffer.base,
            open: AtomicUsize::new(len as usize),
            spoiled: AtomicBool::new(false),
            failures: Mutex::default(),
            buffer: Mutex::new(Some(buffer)),
            ready: ready.clone(),
        });
        Ok(Some((0..len).map(|index| Ticket { filling: filling.clone(), index, finished: false }).collect()))
    }

    /// The consumer asks for the next batch: what it has not given back by now it keeps for longer.
    pub(crate) fn consumer_waits(&self) {
        self.0.lock().may_grow = true;
        (self.0.on_free)();
    }

    /// Whether nothing can move until the consumer gives a buffer back: it holds every one there may be.
    pub fn all_held(&self) -> bool {
        let state = self.0.lock();
        state.in_pipeline == 0 && state.free.is_empty() && state.allocated == self.0.limits.batches
    }

    /// Number of buffers there may be, and bytes of each.
    pub fn limits(&self) -> (usize, usize) {
        (self.0.limits.batches, self.0.plan.bytes)
    }
}

impl PoolShared {
    fn lock(&self) -> MutexGuard<'_, PoolState> {
        // The state is valid after every statement, so a panic elsewhere cannot have broken it.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn allocate(bytes: usize) -> Result<MmapMut> {
    let memory = MmapMut::map_anon(bytes)
        .map_err(|e| Error::io(format!("allocate a batch of {bytes} bytes from"), "memory", e))?;
    // Huge pages make first touch and TLB misses cheap; a kernel without them still works.
    let _ = memory.advise(Advice::HugePage);
    Ok(memory)
}

/// One buffer; its memory goes back to the pool when it is dropped.
struct Buffer {
    memory: Option<MmapMut>,
    /// Its first byte: all that write to the buffer, consumers included, go through this one pointer.
    base: Base,
    delivered: bool,
    pool: Arc<PoolShared>,
}

impl Drop for Buffer {
    fn drop(&mut self) {
        {
            let mut state = self.pool.lock();
            state.free.extend(self.memory.take());
            if !self.delivered {
                state.in_pipeline -= 1;
            }
        }
        (self.pool.on_free)();
    }
}

/// Address of a buffer's first byte.
#[derive(Clone, Copy)]
struct Base(*mut u8);

// SAFETY: the memory is kept by the `Buffer` beside it; tickets write through it each to a place of its own, and
// tensors exist only when the last ticket is gone.
unsafe impl Send for Base {}
// SAFETY: as above.
unsafe impl Sync for Base {}

/// A batch in the making; shared by its tickets.
struct Filling {
    step: u64,
    len: u32,
    plan: Plan,
    base: Base,
    open: AtomicUsize,
    spoiled: AtomicBool,
    failures: Mutex<Vec<Failure>>,
    buffer: Mutex<Option<Buffer>>,
    ready: Arc<dyn Sink>,
}

/// The right to fill one place of a batch. A ticket dropped without [`Ticket::finish`] spoils its batch, which then is
/// never delivered.
pub struct Ticket {
    filling: Arc<Filling>,
    index: u32,
    finished: bool,
}

impl Ticket {
    /// The bytes of this place's image.
    pub fn image(&mut self) -> &mut [u8] {
        let bytes = self.filling.plan.image_bytes;
        // SAFETY: places are disjoint, inside the buffer, and this ticket is the only one of its place; `&mut self`
        // keeps the slice unique, and the buffer lives until the last ticket is gone.
        unsafe {
            let start = self.filling.base.0.add(self.index as usize * bytes);
            std::slice::from_raw_parts_mut(start, bytes)
        }
    }

    /// Notes that a sample that belongs here failed; `fatal` when there is nothing to put in its place.
    pub fn fail(&mut self, sample: u64, error: Error, fatal: bool) {
        let failure = Failure { index: self.index, sample, error, fatal };
        self.filling.failures.lock().unwrap_or_else(PoisonError::into_inner).push(failure);
    }

    /// The place is filled: with `sample` of class `label`; `valid` is its mask.
    pub fn finish(mut self, sample: u64, label: u32, valid: bool) {
        let (plan, index) = (&self.filling.plan, self.index as usize);
        // SAFETY: the three elements lie inside the buffer at their natural alignment (each array starts at a
        // multiple of 64) and belong to this ticket's place alone.
        unsafe {
            let base = self.filling.base.0;
            base.add(plan.labels).cast::<i64>().add(index).write(i64::from(label));
            base.add(plan.ids).cast::<i64>().add(index).write(sample.cast_signed());
            base.add(plan.mask).add(index).write(u8::from(valid));
        }
        self.finished = true;
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let filling = &*self.filling;
        if !self.finished {
            filling.spoiled.store(true, Ordering::Relaxed);
        }
        // AcqRel: the last ticket sees everything the others wrote.
        if filling.open.fetch_sub(1, Ordering::AcqRel) > 1 {
            return;
        }
        let buffer = filling.buffer.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let (Some(buffer), false) = (buffer, filling.spoiled.load(Ordering::Relaxed)) {
            let mut failures =
                std::mem::take(&mut *filling.failures.lock().unwrap_or_else(PoisonError::into_inner));
            // Threads finish in any order; what the consumer sees does not depend on it.
            failures.sort_by_key(|f| f.index);
            let batch = Batch { step: filling.step, len: filling.len, failures, buffer: Arc::new(buffer) };
            filling.ready.put(batch);
        }
    }
}

/// A sample that could not become an image.
#[derive(Debug)]
pub struct Failure {
    /// Its place in the batch.
    pub index: u32,
    /// Its id.
    pub sample: u64,
    /// Why.
    pub error: Error,
    /// The epoch cannot go on without it.
    pub fatal: bool,
}

/// A finished batch.
pub struct Batch {
    step: u64,
    len: u32,
    failures: Vec<Failure>,
    buffer: Arc<Buffer>,
}

impl Batch {
    /// Its number in the epoch.
    pub fn step(&self) -> u64 {
        self.step
    }

    /// Number of samples.
    pub fn len(&self) -> usize {
        self.len as usize
    }

    /// Whether it holds no sample (a partial last batch of a large world).
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The samples that failed, by place.
    pub fn take_failures(&mut self) -> Vec<Failure> {
        std::mem::take(&mut self.failures)
    }

    /// From here on the buffer is the consumer's and no longer counts as the pipeline's.
    pub(crate) fn deliver(&mut self) {
        let buffer =
            Arc::get_mut(&mut self.buffer).expect("nobody has a tensor of a batch before its delivery");
        buffer.delivered = true;
        let mut state = buffer.pool.lock();
        state.in_pipeline -= 1;
        // The consumer is about to drop the batch before this one, whose buffer will serve.
        state.may_grow = false;
    }

    /// Images: [n, 3, height, width] or [n, height, width, 3], in the loader's dtype.
    pub fn images(&self) -> Tensor {
        let output = &self.buffer.pool.output;
        let (h, w) = (i64::from(output.height), i64::from(output.width));
        let shape = match output.format {
            MemoryFormat::Nchw => vec![i64::from(self.len), 3, h, w],
            MemoryFormat::Nhwc => vec![i64::from(self.len), h, w, 3],
        };
        let element = match output.dtype {
            DType::F32 => Element::F32,
            DType::F16 => Element::F16,
            DType::Bf16 => Element::Bf16,
            DType::U8 => Element::U8,
        };
        self.tensor(0, shape, element)
    }

    /// Class numbers: int64 [n].
    pub fn labels(&self) -> Tensor {
        self.tensor(self.buffer.pool.plan.labels, vec![i64::from(self.len)], Element::I64)
    }

    /// Sample ids: int64 [n].
    pub fn sample_ids(&self) -> Tensor {
        self.tensor(self.buffer.pool.plan.ids, vec![i64::from(self.len)], Element::I64)
    }

    /// As [`Batch::mask`], as bytes, for consumers that know no bool.
    pub fn mask_bytes(&self) -> Tensor {
        Tensor { element: Element::U8, ..self.mask() }
    }

    /// Which images count: bool [n]; false for padding and for failed samples replaced by zeros.
    pub fn mask(&self) -> Tensor {
        self.tensor(self.buffer.pool.plan.mask, vec![i64::from(self.len)], Element::Bool)
    }

    fn tensor(&self, offset: usize, shape: Vec<i64>, element: Element) -> Tensor {
        Tensor { buffer: self.buffer.clone(), offset, shape, element }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::augment::Fidelity;

    /// Batches as they come.
    #[derive(Default)]
    struct Shelf(Mutex<Vec<Batch>>);

    impl Sink for Shelf {
        fn put(&self, batch: Batch) {
            self.0.lock().unwrap().push(batch);
        }
    }

    fn shelf() -> (Arc<dyn Sink>, Arc<Shelf>) {
        let shelf = Arc::<Shelf>::default();
        (shelf.clone(), shelf)
    }

    fn pool(prefetch: usize, batches: usize) -> BatchPool {
        let output = Output {
            height: 2,
            width: 3,
            dtype: DType::U8,
            format: MemoryFormat::Nhwc,
            mean: [0.0; 3],
            std: [1.0; 3],
            fidelity: Fidelity::Fast,
        };
        BatchPool::new(4, output, Pools { slot_bytes: 0, prefetch, batches }, || {})
    }

    #[test]
    fn a_batch_is_ready_when_its_last_place_is() {
        let (ready, finished) = shelf();
        let mut tickets = pool(1, 1).begin(7, 3, &ready).unwrap().unwrap();
        for (index, mut ticket) in tickets.drain(..).enumerate().rev() {
            assert!(finished.0.lock().unwrap().is_empty());
            ticket.image().fill(index as u8);
            ticket.finish(10 + index as u64, 20 + index as u32, index != 1);
        }
        let batch = finished.0.lock().unwrap().pop().unwrap();
        assert_eq!((batch.step(), batch.len()), (7, 3));
        assert_eq!(batch.images().shape(), [3, 2, 3, 3]);
        assert!(batch.images().bytes().chunks(18).zip(0..).all(|(image, i)| image == [i; 18]));
        assert_eq!(batch.mask().bytes(), [1, 0, 1]);
        let longs = |tensor: Tensor| -> Vec<i64> {
            tensor.bytes().chunks(8).map(|raw| i64::from_ne_bytes(raw.try_into().unwrap())).collect()
        };
        assert_eq!(longs(batch.sample_ids()), [10, 11, 12]);
        assert_eq!(longs(batch.labels()), [20, 21, 22]);
    }

    #[test]
    fn an_unfinished_place_spoils_the_batch_but_not_the_buffer() {
        let (ready, finished) = shelf();
        let pool = pool(1, 1);
        let mut tickets = pool.begin(0, 2, &ready).unwrap().unwrap();
        tickets.pop().unwrap().finish(0, 0, true);
        assert!(pool.begin(1, 2, &ready).unwrap().is_none(), "the pipeline's share is one buffer");
        drop(tickets);
        assert!(finished.0.lock().unwrap().is_empty());
        assert!(pool.begin(1, 2, &ready).unwrap().is_some());
    }

    #[test]
    fn a_held_tensor_keeps_its_buffer_out_of_the_pool() {
        let (ready, finished) = shelf();
        let pool = pool(1, 3);
        let next = |step| {
            for ticket in pool.begin(step, 1, &ready).unwrap()? {
                ticket.finish(step, 0, true);
            }
            let mut batch = finished.0.lock().unwrap().pop().unwrap();
            batch.deliver();
            Some(batch)
        };
        let labels = next(0).unwrap().labels();
        let second = next(1).unwrap();
        assert!(next(2).is_none(), "two are enough for who drops each batch when it has the next");
        pool.consumer_waits();
        let third = next(2).unwrap();
        pool.consumer_waits();
        assert!(next(3).is_none(), "three is all there may be");
        assert!(pool.all_held());
        drop(labels);
        assert!(!pool.all_held());
        assert!(next(3).is_some());
        drop((second, third));
    }
}
