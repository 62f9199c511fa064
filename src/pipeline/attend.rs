//! The thread of a loader that shares its batches: in place of reading and decoding, it takes them from the process that
//! makes them for all.

use super::EpochRun;
use super::threads::Threads;
use super::{PipelineShared, fetch::FetchWaker};
use crate::batch::{BatchPool, BatchStorage, Pools, Sink};
use crate::error::{Error, Result};
use crate::io::Waker;
use crate::sharing::{Attendant, Attended, Bell, Position, Sharing, SharingStats, wait_for};
use crate::tier::RankPlace;
use crossbeam_channel::Receiver;
use std::os::fd::AsFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

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
    attendant: Attendant,
    pool: BatchPool,
    bell: Arc<Bell>,
    waker: Arc<FetchWaker>,
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
        at: Position,
    ) -> Result<Self> {
        let config = &shared.config;
        let bell = Arc::new(Bell::new()?);
        let notices = shared.index.notices().clone();
        let (sharing, stats) = (batches.sharing.clone(), batches.stats.clone());
        let mut attendant = Attendant::new(sharing, notices, stats, bell.clone());
        attendant.find((place.rank, place.world_size), at)?;
        let waker = shared.fetch_waker.clone();
        waker.wake_by(Waker(Arc::new({
            let bell = bell.clone();
            move || bell.ring()
        })));
        // One waits for the consumer while it is busy with another.
        let limits = Pools { slot_bytes: 0, prefetch: 1, batches: config.pools.batches.max(KEPT) };
        let on_free = {
            let waker = waker.clone();
            move || waker.wake_if_starved()
        };
        let (capacity, layout) = (config.batch_size as usize, config.layout.clone());
        let pool = BatchPool::new(capacity, layout, limits, BatchStorage::Host, on_free);
        let mut attending = Attending { attendant, pool: pool.clone(), bell, waker };
        Self::start_alone(shared, pool, move |runs| attending.run(runs))
    }
}

impl Attending {
    fn run(&mut self, runs: &Receiver<Arc<EpochRun>>) {
        for run in runs {
            let outcome = catch_unwind(AssertUnwindSafe(|| self.attend(&run)));
            let outcome = outcome.unwrap_or_else(|panic| Err(Error::panicked("sharing", &*panic)));
            if let Err(error) = outcome {
                run.inbox.fail(error);
            }
        }
    }

    /// Takes the batches of a run, each when there is room for it.
    fn attend(&mut self, run: &EpochRun) -> Result<()> {
        let place = run.course.place()?;
        let stopped = || run.stopped();
        for step in run.first_step..run.course.steps() {
            self.wait_for_room(&stopped);
            let at = Position { epoch: run.epoch, step };
            let Some(lent) = self.attendant.take(place, at, &stopped)? else { return Ok(()) };
            let Attended { memory, parcel, samples, .. } = lent;
            if samples != run.course.batch_len(step) {
                let message = format!("a shared batch has {samples} samples instead of {}", run.course.batch_len(step));
                return Err(Error::Internal(message));
            }
            run.inbox.put(self.pool.adopt(step, samples, memory, parcel)?);
        }
        Ok(())
    }

    /// Sleeps until the consumer has room for one more batch, or wants none.
    fn wait_for_room(&self, stopped: &dyn Fn() -> bool) {
        loop {
            // Set before the pool is asked, so that what comes free in between rings the bell.
            self.waker.starve();
            if stopped() || self.pool.may_adopt() {
                return;
            }
            wait_for(&[self.bell.as_fd()], None);
            self.bell.heard();
        }
    }
}
