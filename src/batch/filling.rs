//! A batch in the making: who may write what of it.

use super::encoded::{Encoded, Kept};
use super::layout::{Plan, Span};
use super::memory::Base;
use super::pool::Buffer;
use super::values::{Gathered, Value, gather};
use super::{Batch, Failure, Sink};
use crate::error::{Error, Result};
use crate::gpu::{InFlight, Stream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// A batch in the making; shared by its tickets and its seal.
struct Filling {
    step: u64,
    len: u32,
    plan: Plan,
    /// `None` on a GPU.
    images: Option<Base>,
    columns: Base,
    /// Tickets and seals that are left.
    open: AtomicUsize,
    spoiled: AtomicBool,
    failures: Mutex<Vec<Failure>>,
    kept: Mutex<Kept>,
    /// By field, then by place.
    values: Mutex<Vec<Vec<Option<Value>>>>,
    buffer: Mutex<Option<Buffer>>,
    ready: Arc<dyn Sink>,
}

/// Starts a batch in `buffer`: a ticket for each of `len` places, and the seal. When the last of them is gone the batch
/// goes to `ready`.
pub(super) fn begin(mut buffer: Buffer, step: u64, len: u32, ready: &Arc<dyn Sink>) -> (Seal, Vec<Ticket>) {
    let plan = buffer.plan().clone();
    let values = vec![vec![None; len as usize]; buffer.layout().values.len()];
    let filling = Arc::new(Filling {
        step,
        len,
        images: buffer.memory().host_images(),
        columns: buffer.memory_mut().host_columns(&plan),
        plan,
        open: AtomicUsize::new(len as usize + 1),
        spoiled: AtomicBool::new(false),
        failures: Mutex::default(),
        kept: Mutex::default(),
        values: Mutex::new(values),
        buffer: Mutex::new(Some(buffer)),
        ready: ready.clone(),
    });
    let tickets = (0..len).map(|index| Ticket { filling: filling.clone(), index, finished: false }).collect();
    (Seal { filling, closed: false }, tickets)
}

impl Filling {
    /// One of those who fill the batch has ended; the last one sends the batch on.
    fn leave(&self, finished: bool) {
        if !finished {
            self.spoiled.store(true, Ordering::Relaxed);
        }
        // AcqRel: the last one sees everything the others wrote.
        if self.open.fetch_sub(1, Ordering::AcqRel) > 1 {
            return;
        }
        let mut buffer = self.buffer.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(buffer) = &mut buffer {
            buffer.kept = std::mem::take(&mut *self.kept.lock().unwrap_or_else(PoisonError::into_inner));
        }
        if let (Some(mut buffer), false) = (buffer, self.spoiled.load(Ordering::Relaxed)) {
            match self.gather(&buffer) {
                Ok(values) => buffer.values = values,
                Err(error) => return self.ready.fail(error),
            }
            let mut failures =
                std::mem::take(&mut *self.failures.lock().unwrap_or_else(PoisonError::into_inner));
            // Threads finish in any order; what the consumer sees does not depend on it.
            failures.sort_by_key(|f| f.index);
            self.ready.put(Batch { step: self.step, len: self.len, failures, buffer: Arc::new(buffer) });
        }
    }

    /// Puts the values of each field together.
    fn gather(&self, buffer: &Buffer) -> Result<Vec<Gathered>> {
        let values = std::mem::take(&mut *self.values.lock().unwrap_or_else(PoisonError::into_inner));
        values.into_iter().zip(&buffer.layout().values).map(|(of, ragged)| gather(of, *ragged)).collect()
    }
}

/// The right to fill one place of a batch. A ticket dropped without [`Ticket::finish`] spoils its batch, which then is
/// never delivered.
pub(crate) struct Ticket {
    filling: Arc<Filling>,
    index: u32,
    finished: bool,
}

impl Ticket {
    /// Its place in the batch.
    pub(crate) fn index(&self) -> u32 {
        self.index
    }

    /// The bytes of this place's image in the tensor of images of this number.
    ///
    /// # Panics
    /// In a batch on a GPU: its images are written by kernels.
    pub(crate) fn image(&mut self, number: usize) -> &mut [u8] {
        let images = self.filling.images.expect("a batch in host memory");
        let span = self.filling.plan.images[number];
        self.row(images, span)
    }

    /// The bytes of this place in the further column of this number.
    pub(crate) fn column(&mut self, number: usize) -> &mut [u8] {
        let span = self.filling.plan.further[number];
        self.row(self.filling.columns, span)
    }

    fn row(&mut self, base: Base, Span { start, each }: Span) -> &mut [u8] {
        // SAFETY: places are disjoint, inside the buffer, and this ticket is the only one of its place; `&mut self`
        // keeps the slice unique, and the buffer lives until the last ticket is gone.
        unsafe { std::slice::from_raw_parts_mut(base.0.add(start + self.index as usize * each), each) }
    }

    /// Gives this place's value of the field of this number among those whose lengths differ.
    pub(crate) fn put(&mut self, field: usize, value: Option<Value>) {
        let mut values = self.filling.values.lock().unwrap_or_else(PoisonError::into_inner);
        values[field][self.index as usize] = value;
    }

    /// Puts the bytes of this place's file into the batch, which keeps them until its last tensor is gone.
    pub(crate) fn keep(&mut self, bytes: Encoded) {
        self.filling.kept.lock().unwrap_or_else(PoisonError::into_inner).insert(self.index, bytes);
    }

    /// Notes that a sample that belongs here failed; `fatal` when there is nothing to put in its place.
    pub(crate) fn fail(&mut self, sample: u64, error: Error, fatal: bool) {
        let failure = Failure { index: self.index, sample, error, fatal };
        self.filling.failures.lock().unwrap_or_else(PoisonError::into_inner).push(failure);
    }

    /// The place is filled: with `sample` of class `label`; `valid` is its mask.
    pub(crate) fn finish(mut self, sample: u64, label: u32, valid: bool) {
        let (plan, index) = (&self.filling.plan, self.index as usize);
        // SAFETY: the three elements lie inside the columns at their natural alignment (each array starts at a
        // multiple of 64) and belong to this ticket's place alone.
        unsafe {
            let base = self.filling.columns.0;
            base.add(plan.labels).cast::<i64>().add(index).write(i64::from(label));
            base.add(plan.ids).cast::<i64>().add(index).write(sample.cast_signed());
            base.add(plan.mask).add(index).write(u8::from(valid));
        }
        self.finished = true;
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.filling.leave(self.finished);
    }
}

/// The right to close a batch: it goes nowhere before its seal, whatever became of the tickets. A seal dropped without
/// [`Seal::close`] or [`Seal::close_on`] spoils the batch.
pub(crate) struct Seal {
    filling: Arc<Filling>,
    closed: bool,
}

impl Seal {
    /// Nothing more is to be done to the batch than filling its places.
    pub(crate) fn close(mut self) {
        self.closed = true;
    }

    /// Device addresses of the tensors of images of a batch on a GPU, in the order of
    /// [`BatchLayout::images`](super::BatchLayout::images), for kernels on `stream` from now on: it waits for whoever
    /// read the buffer before.
    ///
    /// # Errors
    /// [`Error::Internal`] for a batch in host memory; [`Error::Gpu`].
    pub(crate) fn images(&self, stream: &Stream) -> Result<impl Iterator<Item = u64>> {
        let base = self.with_buffer(|buffer| {
            buffer.memory().cuda().ok_or_else(on_host)?.wait_for_earlier(stream)?;
            Ok(buffer.memory().base().0 as u64)
        })?;
        Ok(self.filling.plan.images.iter().map(move |tensor| base + tensor.start as u64))
    }

    /// Closes a batch on a GPU whose images are queued on the stream of `flight`: its columns follow there. Every
    /// ticket must be gone.
    ///
    /// # Errors
    /// [`Error::Internal`] for a batch in host memory or with tickets left; [`Error::Gpu`].
    pub(crate) fn close_on(mut self, flight: &mut InFlight) -> Result<()> {
        // Acquire: what the tickets wrote is copied from here.
        if self.filling.open.load(Ordering::Acquire) != 1 {
            return Err(Error::Internal("a batch was closed before its places were filled".into()));
        }
        let plan = &self.filling.plan;
        let completed = self
            .with_buffer(|buffer| buffer.memory_mut().cuda_mut().ok_or_else(on_host)?.complete(plan, flight));
        if completed.is_err() {
            // The buffer goes back to its pool without a mark to wait for: nothing may still write to it then.
            let _ = flight.wait();
        }
        completed?;
        self.closed = true;
        Ok(())
    }

    fn with_buffer<T>(&self, act: impl FnOnce(&mut Buffer) -> Result<T>) -> Result<T> {
        let mut buffer = self.filling.buffer.lock().unwrap_or_else(PoisonError::into_inner);
        act(buffer.as_mut().expect("a batch keeps its buffer until its seal is gone"))
    }
}

fn on_host() -> Error {
    Error::Internal("a batch in host memory was treated as one on a GPU".into())
}

impl Drop for Seal {
    fn drop(&mut self) {
        self.filling.leave(self.closed);
    }
}
