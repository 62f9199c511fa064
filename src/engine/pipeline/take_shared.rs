//! The thread of a loader that shares its batches. Instead of reading and decoding, it takes batches from the producer,
//! the process that makes them for all loaders.
//!
//! The thread puts the batches into the same inbox as the threads of other loaders do. So order, states, failures and
//! warnings work as usual, and nothing after the inbox depends on sharing. A leased batch goes back to the producer
//! when its last tensor is dropped.

use super::{
    context::SampleContext, cuda::storage_for_complete_batches, engine::ThreadContext, notify, run::EpochRun,
    threads::Spawner, threads::Threads, threads::pool, waker::FetchWaker,
};
use crate::batch::{BatchPool, BatchStorage, Pools, Sink, UploadBuffer, Uploader};
use crate::config::Device;
use crate::sharing::{BatchClient, BatchPosition, LeasedBatch, Sharing, SharingStats, WakeEvent, wait_for};
use base::error::{Error, Result};
use base::threads::caught;
use crossbeam_channel::{Receiver, unbounded};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use store::io::Waker;
use store::tier::RankPlace;

/// A loader may always hold this number of leased batches, in its inbox and at the consumer.
const MIN_LEASE_LIMIT: usize = 16;

struct SharedBatchThread {
    context: Arc<SampleContext>,
    batch_client: BatchClient,
    pool: BatchPool,
    bell: Arc<WakeEvent>,
    waker: Arc<FetchWaker>,
    uploader: Option<Uploader>,
}

enum BatchSpace {
    Leased,
    Cuda(Box<UploadBuffer>),
}

/// Starts the one thread of a pipeline whose batches another process makes. Finds or starts a producer for the batches
/// from `at` on.
///
/// # Errors
/// The errors of [`BatchClient::find`]; [`Error::Unavailable`] if no thread can be started.
pub(crate) fn start(
    of: ThreadContext,
    (sharing, stats): &(Arc<Sharing>, Arc<SharingStats>),
    place: RankPlace,
    at: BatchPosition,
) -> Result<Threads> {
    let (context, config) = (of.context.clone(), &of.context.config);
    let bell = Arc::new(WakeEvent::new()?);
    let notices = context.index.notices().clone();
    let mut batch_client = BatchClient::new(sharing.clone(), notices, stats.clone(), bell.clone());
    // `prefetch` is 1: one batch waits for the consumer while the consumer uses another one.
    let on_host = Pools { slot_bytes: 0, prefetch: 1, batches: config.pools.batches.max(MIN_LEASE_LIMIT) };
    let (limits, storage, device) = match (config.device, &config.device_pools) {
        (Device::Cuda { ordinal }, Some(pools)) => {
            let (device, storage) = storage_for_complete_batches(ordinal, config, pools, 2)?;
            (Pools { prefetch: 1, ..config.pools }, BatchStorage::Cuda(storage), Some(device))
        }
        _ => (on_host, BatchStorage::Host, None),
    };
    let uploader = device.as_ref().map(Uploader::new).transpose()?;
    batch_client.find((place.rank, place.world_size), at)?;
    let waker = of.waker.clone();
    waker.wake_by(Waker(Arc::new({
        let bell = bell.clone();
        move || bell.ring()
    })));
    let pool = pool(&of, limits, storage);
    let mut batch_thread =
        SharedBatchThread { context, batch_client, pool: pool.clone(), bell, waker, uploader };
    let (runs, run_queue) = unbounded();
    let mut spawner = Spawner::new();
    spawner.spawn("foreload-share".into(), move || {
        if let Some(device) = &device {
            // If this fails, the first copy also fails, and reports the error.
            let _ = device.attach_thread();
        }
        batch_thread.run(&run_queue);
    })?;
    Ok(spawner.started(of, pool, runs))
}

impl SharedBatchThread {
    fn run(&mut self, runs: &Receiver<Arc<EpochRun>>) {
        for run in runs {
            match caught("sharing", || self.take_shared(&run)) {
                Ok(true) => {}
                Ok(false) => self.batch_client.rest(),
                Err(error) => run.inbox.fail(error),
            }
        }
    }

    fn take_shared(&mut self, run: &Arc<EpochRun>) -> Result<bool> {
        let RankPlace { rank, world_size } = run.place;
        let stopped = || run.stopped();
        self.batch_client.begin();
        for step in run.first_step..run.run_plan.steps() {
            let Some(space) = self.wait_for_space(&stopped)? else { return Ok(false) };
            let at = BatchPosition { epoch: run.epoch, step };
            let Some(leased) = self.batch_client.take((rank, world_size), at, &stopped)? else {
                return Ok(false);
            };
            let LeasedBatch { memory, mut parcel, samples, .. } = leased;
            for remark in parcel.remarks.drain(..).filter(|(sample, _)| *sample < self.context.index.len()) {
                run.counters.concealed.fetch_add(1, Ordering::Relaxed);
                run.concealed.record_remark(&self.context, remark);
            }
            if samples != run.run_plan.batch_len(step) {
                let message = format!(
                    "a shared batch has {samples} samples, expected {}",
                    run.run_plan.batch_len(step)
                );
                return Err(Error::Internal(message));
            }
            if parcel.failures.iter().any(|failure| failure.sample >= self.context.index.len()) {
                return Err(Error::Internal(
                    "a shared batch has a sample that this dataset does not have".into(),
                ));
            }
            run.inbox.put(match (space, &mut self.uploader) {
                (BatchSpace::Cuda(buffer), Some(uploader)) => {
                    let (_, bytes) = self.pool.limits();
                    let batch = self.pool.upload((step, samples), memory, parcel, *buffer, uploader)?;
                    run.counters.add_uploaded(bytes);
                    notify::copied_twice(&self.context, uploader.refused());
                    batch
                }
                _ => self.pool.wrap_leased((step, samples), run.at(step).layout, memory, parcel)?,
            });
        }
        Ok(true)
    }

    fn wait_for_space(&self, stopped: &dyn Fn() -> bool) -> Result<Option<BatchSpace>> {
        loop {
            // Set the flag before asking the pool, so that a buffer that becomes free after that wakes this thread.
            self.waker.prepare_to_wait();
            if stopped() {
                return Ok(None);
            }
            let space = match self.uploader {
                None => self.pool.has_lease_space().then_some(BatchSpace::Leased),
                Some(_) => self.pool.take_for_upload()?.map(|buffer| BatchSpace::Cuda(Box::new(buffer))),
            };
            if space.is_some() {
                return Ok(space);
            }
            wait_for(&[self.bell.as_fd()], None);
            self.bell.heard();
        }
    }
}
