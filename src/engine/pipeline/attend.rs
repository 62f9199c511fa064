//! The thread of a loader that shares its batches: instead of reading and decoding, it takes them from the process that
//! makes them for all.

use super::EpochRun;
use super::cuda::storage_of_made;
use super::threads::Threads;
use super::{Pipeline, PipelineShared, fetch::FetchWaker};
use crate::batch::{BatchPool, BatchStorage, Pools, Sink, UploadBuffer, Uploader};
use crate::config::Device;
use crate::sharing::{Attendant, Attended, BatchPosition, Bell, Sharing, SharingStats, wait_for};
use base::error::{Error, Result};
use crossbeam_channel::Receiver;
use data::state::OrderIdentity;
use std::os::fd::AsFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use store::io::Waker;
use store::tier::RankPlace;

/// How many batches the consumer may keep beyond those of the window.
const KEPT: usize = 16;

/// How a pipeline takes batches from another process.
#[derive(Clone)]
pub(super) struct SharedBatches {
    pub sharing: Arc<Sharing>,
    pub stats: Arc<SharingStats>,
}

/// Takes the batches of one run after another.
struct Attending {
    shared: Arc<PipelineShared>,
    attendant: Attendant,
    pool: BatchPool,
    bell: Arc<Bell>,
    waker: Arc<FetchWaker>,
    /// What copies batches to a GPU, where they end on one.
    uploader: Option<Uploader>,
}

/// Room for one more batch.
enum Room {
    /// It stays where it is lent.
    Lent,
    /// It is copied to a GPU.
    Cuda(Box<UploadBuffer>),
}

impl Pipeline {
    /// Has another process make the batches, for all that share them.
    ///
    /// # Panics
    /// Panics when an epoch has begun already.
    pub fn sharing(mut self, sharing: Sharing) -> Self {
        let batches = SharedBatches { sharing: Arc::new(sharing), stats: Arc::default() };
        self.not_begun().for_each(|shared| shared.shared_batches = Some(batches.clone()));
        self
    }

    /// Has batches made in memory that other processes can be lent.
    ///
    /// # Panics
    /// Panics when an epoch has begun already.
    pub fn lending(mut self) -> Self {
        self.not_begun().for_each(|shared| shared.lends = true);
        self
    }

    /// What the threads of all epochs will share.
    pub(super) fn not_begun(&mut self) -> impl Iterator<Item = &mut PipelineShared> {
        let later = self.later.iter_mut().map(|(_, shared)| shared);
        let all = std::iter::once(&mut self.shared).chain(later);
        all.map(|shared| Arc::get_mut(shared).expect("no epoch has begun"))
    }

    /// What was had of the processes that share batches; `None` where none are shared.
    pub fn sharing_stats(&self) -> Option<&SharingStats> {
        self.shared.shared_batches.as_ref().map(|batches| &*batches.stats)
    }

    /// What the order of samples depends on.
    pub fn identity(&self) -> &OrderIdentity {
        &self.shared.identity
    }
}

impl Threads {
    /// Starts the one thread of a pipeline whose batches another process makes, with a producer for the batches from
    /// `at` on.
    ///
    /// # Errors
    /// Those of [`Attendant::find`]; [`Error::Unavailable`] when no thread can be started.
    pub(super) fn attend(
        shared: &Arc<PipelineShared>,
        batches: &SharedBatches,
        place: RankPlace,
        at: BatchPosition,
    ) -> Result<Self> {
        let config = &shared.config;
        let bell = Arc::new(Bell::new()?);
        let notices = shared.index.notices().clone();
        let (sharing, stats) = (batches.sharing.clone(), batches.stats.clone());
        let mut attendant = Attendant::new(sharing, notices, stats, bell.clone());
        // One waits for the consumer while it is busy with another.
        let on_host = Pools { slot_bytes: 0, prefetch: 1, batches: config.pools.batches.max(KEPT) };
        let (limits, storage, device) = match (config.device, &config.device_pools) {
            (Device::Cuda { ordinal }, Some(pools)) => {
                let (device, storage) = storage_of_made(ordinal, config, pools)?;
                (Pools { prefetch: 1, ..config.pools }, BatchStorage::Cuda(storage), Some(device))
            }
            _ => (on_host, BatchStorage::Host, None),
        };
        let uploader = device.as_ref().map(Uploader::new).transpose()?;
        attendant.find((place.rank, place.world_size), at)?;
        let waker = shared.fetch_waker.clone();
        waker.wake_by(Waker(Arc::new({
            let bell = bell.clone();
            move || bell.ring()
        })));
        let on_free = {
            let waker = waker.clone();
            move || waker.wake_if_starved()
        };
        let (capacity, layout) = (config.batch_size as usize, config.layout.clone());
        let pool = BatchPool::new(capacity, layout, limits, storage, on_free);
        let mut attending =
            Attending { shared: shared.clone(), attendant, pool: pool.clone(), bell, waker, uploader };
        Self::start_alone(shared, pool, move |runs| {
            if let Some(device) = &device {
                // If that fails, so does the first copy, which reports it.
                let _ = device.attach_thread();
            }
            attending.run(runs);
        })
    }
}

impl Attending {
    fn run(&mut self, runs: &Receiver<Arc<EpochRun>>) {
        for run in runs {
            let outcome = catch_unwind(AssertUnwindSafe(|| self.attend(&run)));
            let outcome = outcome.unwrap_or_else(|panic| Err(Error::panicked("sharing", &*panic)));
            match outcome {
                Ok(true) => {}
                Ok(false) => self.attendant.rest(),
                Err(error) => run.inbox.fail(error),
            }
        }
    }

    /// Takes the batches of a run, each when there is room for it. Returns whether it came to the end of the epoch.
    fn attend(&mut self, run: &EpochRun) -> Result<bool> {
        let RankPlace { rank, world_size } = run.course.place();
        let stopped = || run.stopped();
        self.attendant.begin();
        for step in run.first_step..run.course.steps() {
            let Some(room) = self.wait_for_room(&stopped)? else { return Ok(false) };
            let at = BatchPosition { epoch: run.epoch, step };
            let Some(lent) = self.attendant.take((rank, world_size), at, &stopped)? else { return Ok(false) };
            let Attended { memory, mut parcel, samples, .. } = lent;
            for remark in parcel.remarks.drain(..).filter(|(sample, _)| *sample < self.shared.index.len()) {
                run.conceal_as_told(&self.shared, remark);
            }
            if samples != run.course.batch_len(step) {
                let message =
                    format!("a shared batch has {samples} samples instead of {}", run.course.batch_len(step));
                return Err(Error::Internal(message));
            }
            if parcel.failures.iter().any(|failure| failure.sample >= self.shared.index.len()) {
                return Err(Error::Internal("a sample of a shared batch is none of this dataset".into()));
            }
            run.inbox.put(match (room, &mut self.uploader) {
                (Room::Cuda(buffer), Some(uploader)) => {
                    let (_, bytes) = self.pool.limits();
                    let batch = self.pool.upload((step, samples), memory, parcel, *buffer, uploader)?;
                    run.counters.add_uploaded(bytes);
                    self.shared.notify_copied_twice(uploader.refused());
                    batch
                }
                _ => self.pool.adopt(step, samples, memory, parcel)?,
            });
        }
        Ok(true)
    }

    /// Sleeps until there is room for one more batch; `None` when the consumer wants none.
    fn wait_for_room(&self, stopped: &dyn Fn() -> bool) -> Result<Option<Room>> {
        loop {
            // Set before the pool is asked, so that what comes free in between rings the bell.
            self.waker.starve();
            if stopped() {
                return Ok(None);
            }
            let room = match self.uploader {
                None => self.pool.may_adopt().then_some(Room::Lent),
                Some(_) => self.pool.take_for_upload()?.map(|buffer| Room::Cuda(Box::new(buffer))),
            };
            if room.is_some() {
                return Ok(room);
            }
            wait_for(&[self.bell.as_fd()], None);
            self.bell.heard();
        }
    }
}
