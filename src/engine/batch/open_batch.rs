//! A batch that is being filled. For each sample there is a ticket, which lets one thread write the sample's row of the
//! batch.

use super::encoded::{Encoded, EncodedFiles};
use super::layout::{BufferPlan, TensorSpan};
use super::memory::BufferAddress;
use super::pool::BatchBuffer;
use super::values::{Gathered, Value, gather};
use super::{Batch, Failure, Sink};
use base::error::{Error, Result};
use base::locks::lock;
use pixels::gpu::{InFlight, PinnedSlice, Stream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

struct OpenBatch {
    step: u64,
    len: u32,
    plan: BufferPlan,
    images: Option<BufferAddress>,
    columns: BufferAddress,
    /// Number of tickets and closers that are not dropped yet. The last drop completes the batch.
    open: AtomicUsize,
    spoiled: AtomicBool,
    failures: Mutex<Vec<Failure>>,
    encoded: Mutex<EncodedFiles>,
    /// The values of the fields whose lengths differ from sample to sample, by field and then by sample.
    values: Mutex<Vec<Vec<Option<Value>>>>,
    buffer: Mutex<Option<BatchBuffer>>,
    ready: Arc<dyn Sink>,
}

/// Starts a batch in `buffer`. Returns the closer and one ticket for each of `len` samples. When the closer and all
/// tickets are dropped, the batch goes to `ready`.
pub(super) fn begin(
    mut buffer: BatchBuffer,
    step: u64,
    len: u32,
    ready: &Arc<dyn Sink>,
) -> (BatchCloser, Vec<Ticket>) {
    let plan = buffer.plan().clone();
    let values = vec![vec![None; len as usize]; buffer.layout().values.len()];
    let batch = Arc::new(OpenBatch {
        step,
        len,
        images: buffer.memory().host_images(),
        columns: buffer.memory_mut().host_columns(&plan),
        plan,
        open: AtomicUsize::new(len as usize + 1),
        spoiled: AtomicBool::new(false),
        failures: Mutex::default(),
        encoded: Mutex::default(),
        values: Mutex::new(values),
        buffer: Mutex::new(Some(buffer)),
        ready: ready.clone(),
    });
    let tickets = (0..len).map(|index| Ticket { batch: batch.clone(), index, finished: false }).collect();
    (BatchCloser { batch, closed: false }, tickets)
}

impl OpenBatch {
    /// Records that a ticket or the closer was dropped. `finished` is false if its work was not done, which spoils the
    /// batch. The last drop sends the batch to `ready`.
    fn close_part(&self, finished: bool) {
        if !finished {
            self.spoiled.store(true, Ordering::Relaxed);
        }
        // AcqRel: the thread of the last drop must see everything that other threads wrote.
        if self.open.fetch_sub(1, Ordering::AcqRel) > 1 {
            return;
        }
        let mut buffer = lock(&self.buffer).take();
        if let Some(buffer) = &mut buffer {
            buffer.encoded = std::mem::take(&mut *lock(&self.encoded));
        }
        if let (Some(mut buffer), false) = (buffer, self.spoiled.load(Ordering::Relaxed)) {
            match self.gather(&buffer) {
                Ok(values) => buffer.values = values,
                Err(error) => return self.ready.fail(error),
            }
            let mut failures = std::mem::take(&mut *lock(&self.failures));
            // Threads finish in any order, and the consumer must not see that order.
            failures.sort_by_key(|f| f.index);
            self.ready.put(Batch { step: self.step, len: self.len, failures, buffer: Arc::new(buffer) });
        }
    }

    fn gather(&self, buffer: &BatchBuffer) -> Result<Vec<Gathered>> {
        let values = std::mem::take(&mut *lock(&self.values));
        values.into_iter().zip(&buffer.layout().values).map(|(of, ragged)| gather(of, *ragged)).collect()
    }
}

/// The right to fill the row of one sample in a batch. A ticket that is dropped without [`Ticket::finish`] spoils its
/// batch, which is then never delivered.
pub struct Ticket {
    batch: Arc<OpenBatch>,
    index: u32,
    finished: bool,
}

impl Ticket {
    /// Returns the index of the sample in the batch.
    pub fn index(&self) -> u32 {
        self.index
    }

    /// Returns the sample's bytes in the image tensor with the index `number`.
    ///
    /// # Panics
    /// Panics for a batch on a GPU, whose images are written by kernels.
    pub fn image(&mut self, number: usize) -> &mut [u8] {
        let images = self.batch.images.expect("a batch in host memory");
        let span = self.batch.plan.images[number];
        self.row(images, span)
    }

    /// Returns the sample's bytes in the additional tensor with the index `number`.
    pub fn column(&mut self, number: usize) -> &mut [u8] {
        let span = self.batch.plan.further[number];
        self.row(self.batch.columns, span)
    }

    fn row(&mut self, base: BufferAddress, TensorSpan { start, sample_bytes }: TensorSpan) -> &mut [u8] {
        // SAFETY: the rows of samples are disjoint and inside the buffer, and this is the only ticket of its row. `&mut
        // self` keeps the slice unique, and the buffer lives until the last ticket is dropped.
        unsafe {
            std::slice::from_raw_parts_mut(
                base.0.add(start + self.index as usize * sample_bytes),
                sample_bytes,
            )
        }
    }

    /// Sets the sample's value of a field. `field` is the index of the field among the fields whose values differ in
    /// length.
    pub fn put(&mut self, field: usize, value: Option<Value>) {
        let mut values = lock(&self.batch.values);
        values[field][self.index as usize] = value;
    }

    /// Moves the bytes of the sample's file into the batch, which keeps them until its last tensor is dropped.
    pub fn keep(&mut self, bytes: Encoded) {
        lock(&self.batch.encoded).insert(self.index, bytes);
    }

    /// Records that the sample failed. The failure is `fatal` if the epoch cannot continue without the sample.
    pub fn fail(&mut self, sample: u64, error: Error, fatal: bool) {
        let failure = Failure { index: self.index, sample, error, fatal };
        lock(&self.batch.failures).push(failure);
    }

    /// Finishes the row, which holds `sample` of class `label`. `valid` is the row's value in the mask. `occurrence` is
    /// the index of this draw among the epoch's draws of the sample.
    pub fn finish(mut self, sample: u64, occurrence: u32, label: u32, valid: bool) {
        let (plan, index) = (&self.batch.plan, self.index as usize);
        // SAFETY: the four elements are inside the columns at their natural alignment (each array starts at a multiple
        // of `layout::ALIGN`) and belong only to this ticket's row.
        unsafe {
            let base = self.batch.columns.0;
            base.add(plan.labels).cast::<i64>().add(index).write(i64::from(label));
            base.add(plan.ids).cast::<i64>().add(index).write(sample.cast_signed());
            base.add(plan.occurrences).cast::<i64>().add(index).write(i64::from(occurrence));
            base.add(plan.mask).add(index).write(u8::from(valid));
        }
        self.finished = true;
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.batch.close_part(self.finished);
    }
}

/// The right to close a batch. A batch is delivered only after it is closed, even if all its tickets are finished. A
/// closer that is dropped without [`BatchCloser::close`] or [`BatchCloser::close_on`] spoils the batch.
pub struct BatchCloser {
    batch: Arc<OpenBatch>,
    closed: bool,
}

impl BatchCloser {
    /// Closes a batch in host memory. The batch is complete when its last row is filled.
    pub fn close(mut self) {
        self.closed = true;
    }

    /// Returns the device addresses of the image tensors of a batch on a GPU, in the order of
    /// [`BatchLayout::images`](super::BatchLayout::images). Kernels that are queued on `stream` after this call may
    /// write there, because the call makes the stream wait for all former readers of the buffer.
    ///
    /// # Errors
    /// [`Error::Internal`] for a batch in host memory; [`Error::Gpu`].
    pub fn images(&self, stream: &Stream) -> Result<impl Iterator<Item = u64>> {
        let base = self.with_buffer(|buffer| {
            buffer.memory().cuda().ok_or_else(on_host)?.wait_for_former_users(stream)?;
            Ok(buffer.memory().base().0 as u64)
        })?;
        Ok(self.batch.plan.images.iter().map(move |tensor| base + tensor.start as u64))
    }

    /// Closes a batch on a GPU after its images were queued on the stream of `flight`. Queues the copy of its other
    /// tensors on the same stream. All tickets must have been finished or dropped.
    ///
    /// # Errors
    /// [`Error::Internal`] for a batch in host memory, or if tickets still exist; [`Error::Gpu`].
    pub fn close_on(mut self, flight: &mut InFlight) -> Result<()> {
        // Acquire: the copy below must see everything that the tickets wrote.
        if self.batch.open.load(Ordering::Acquire) != 1 {
            return Err(Error::Internal("a batch was closed before its places were filled".into()));
        }
        let plan = &self.batch.plan;
        let completed = self
            .with_buffer(|buffer| buffer.memory_mut().cuda_mut().ok_or_else(on_host)?.complete(plan, flight));
        if completed.is_err() {
            // The buffer returns to its pool without an event to wait for. So wait until no queued work can write to
            // the buffer.
            let _ = flight.wait();
        }
        completed?;
        self.closed = true;
        Ok(())
    }

    /// Queues a copy to a batch on a GPU, on the stream of `flight`: `bytes` are the elements of the column with the
    /// index `column` from byte `at` of row `index` on. The ticket's bytes there are ignored. All copies of a batch,
    /// and [`BatchCloser::close_on`], must be queued on one stream.
    ///
    /// # Errors
    /// [`Error::Internal`] for a batch in host memory; [`Error::Gpu`]. The batch is then never delivered.
    pub fn copy_to_row(
        &self,
        (index, column, at): (u32, usize, usize),
        bytes: &PinnedSlice,
        flight: &mut InFlight,
    ) -> Result<()> {
        let plan = &self.batch.plan;
        let TensorSpan { start, sample_bytes } = plan.further[column];
        let at = start + index as usize * sample_bytes + at;
        let copied = self.with_buffer(|buffer| {
            buffer.memory_mut().cuda_mut().ok_or_else(on_host)?.copy_to_columns(plan, at, bytes, flight)
        });
        if copied.is_err() {
            self.batch.spoiled.store(true, Ordering::Relaxed);
        }
        copied
    }

    fn with_buffer<T>(&self, act: impl FnOnce(&mut BatchBuffer) -> Result<T>) -> Result<T> {
        let mut buffer = lock(&self.batch.buffer);
        act(buffer.as_mut().expect("a batch keeps its buffer until its closer is dropped"))
    }
}

fn on_host() -> Error {
    Error::Internal("a batch in host memory was treated as one on a GPU".into())
}

impl Drop for BatchCloser {
    fn drop(&mut self) {
        self.batch.close_part(self.closed);
    }
}
