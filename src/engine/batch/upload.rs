//! Copies batches to a GPU whose memory another process, the producer, has leased to this process.
//!
//! The driver page-locks the producer's memory in place, so that the device copies from it without the CPU. If the
//! driver refuses to lock memory that is read-only, a batch is first copied to this process's own page-locked memory.

use super::Batch;
use super::leased::{LeasedMap, LeasedMemory};
use super::parcel::Parcel;
use super::pool::{BatchBuffer, BatchPool};
use base::error::{Error, Result};
use base::slot::{PAGE, SlotPool};
use pixels::gpu::{GpuDevice, InFlight, PinnedSlice, Registration, Stream};
use std::sync::{Arc, Weak};

/// Copies leased batches to a GPU, one at a time.
pub struct Uploader {
    flight: InFlight,
    /// Page-locked mappings of leased memory. A mapping is kept while its memory may be leased again.
    locked: Vec<(Weak<LeasedMap>, PinnedSlice)>,
    /// Set if the driver refuses to page-lock leased memory: the reason, and the page-locked memory through which
    /// batches are copied instead.
    refused: Option<(String, Registration)>,
}

/// A buffer on a GPU for the next batch.
pub struct UploadBuffer(BatchBuffer);

impl BatchPool {
    /// Takes a buffer for a batch that will be copied to the GPU. Returns `None` if no buffer is free within the pool's
    /// limits.
    ///
    /// # Errors
    /// [`Error::Gpu`] if the device has no memory left.
    pub fn take_for_upload(&self) -> Result<Option<UploadBuffer>> {
        let mut buffer = self.take(0)?;
        if let Some(buffer) = &mut buffer {
            buffer.is_from_producer = true;
        }
        Ok(buffer.map(UploadBuffer))
    }

    /// Copies the batch of step `step`, which has `len` samples, to a buffer on a GPU. Another process has made the
    /// batch, which consists of the leased `memory` and its `parcel`. This function gives the memory back before it
    /// returns.
    ///
    /// # Errors
    /// [`Error::Internal`] for memory that holds no such batch; [`Error::Gpu`].
    pub fn upload(
        &self,
        (step, len): (u64, u32),
        memory: LeasedMemory,
        parcel: Parcel,
        UploadBuffer(mut buffer): UploadBuffer,
        uploader: &mut Uploader,
    ) -> Result<Batch> {
        self.check_leased(len, &memory, &parcel)?;
        let Parcel { failures, values, .. } = parcel;
        buffer.values = values;
        uploader.copy(&memory.map, &mut buffer)?;
        drop(memory);
        Ok(Batch { step, len, failures, buffer: Arc::new(buffer) })
    }
}

impl Uploader {
    /// # Errors
    /// [`Error::Gpu`].
    pub fn new(device: &GpuDevice) -> Result<Self> {
        let flight = InFlight::new(&Stream::new(device)?)?;
        Ok(Self { flight, locked: Vec::new(), refused: None })
    }

    /// Returns why batches are first copied to this process's page-locked memory; `None` if the driver page-locks
    /// leased memory.
    pub fn refused(&self) -> Option<&str> {
        self.refused.as_ref().map(|(why, _)| why.as_str())
    }

    fn copy(&mut self, map: &Arc<LeasedMap>, buffer: &mut BatchBuffer) -> Result<()> {
        let copied =
            self.queue(map, buffer).and_then(|()| self.flight.submit()).and_then(|()| self.flight.wait());
        if copied.is_err() {
            // On failure the buffer still returns to its pool and the memory to the producer. So wait until no copy
            // runs.
            let _ = self.flight.wait();
        }
        copied
    }

    fn queue(&mut self, map: &Arc<LeasedMap>, buffer: &mut BatchBuffer) -> Result<()> {
        let plan = buffer.plan().clone();
        let on_host = || Error::Internal("a copy to a GPU has a batch in host memory as its target".into());
        let images = self.images(map, plan.columns)?;
        let cuda = buffer.memory().cuda().ok_or_else(on_host)?;
        cuda.wait_for_former_users(self.flight.stream())?;
        self.flight.copy_to_device(cuda.buffer().range(0, plan.columns)?, &images)?;
        buffer.fill_columns(&map.bytes()[plan.columns..plan.bytes]);
        buffer.memory_mut().cuda_mut().ok_or_else(on_host)?.complete(&plan, &mut self.flight)
    }

    fn images(&mut self, map: &Arc<LeasedMap>, bytes: usize) -> Result<PinnedSlice> {
        self.locked.retain(|(of, _)| of.strong_count() > 0);
        if let Some((_, slice)) = self.locked.iter().find(|(of, _)| of.as_ptr() == Arc::as_ptr(map)) {
            return slice.part(0..bytes);
        }
        let device = self.flight.stream().device().clone();
        if self.refused.is_none() {
            match map.read_only().and_then(|map| PinnedSlice::read_only(&device, map)) {
                Ok(slice) => {
                    let images = slice.part(0..bytes)?;
                    self.locked.push((Arc::downgrade(map), slice));
                    return Ok(images);
                }
                Err(error) => {
                    let why = match &error {
                        Error::Gpu { call, status, .. } => format!("{call}: {status}"),
                        other => other.to_string(),
                    };
                    let staging = Registration::new(&device, &SlotPool::new(bytes + PAGE)?)?;
                    self.refused = Some((why, staging));
                }
            }
        }
        let staging = self.refused.as_ref().and_then(|(_, staging)| staging.buffer(bytes));
        let full = || Error::Internal("the staging buffer still holds the previous batch".into());
        let mut staging = staging.ok_or_else(full)?;
        staging.copy_from_slice(&map.bytes()[..bytes]);
        staging.into_slice()
    }
}
