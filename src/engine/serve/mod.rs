//! The producer of shared batches: a process that makes each batch once, and leases it to all consumers that ask for
//! it.
//!
//! One thread talks to the consumers and decides what to do ([`window`], pure code). Another thread makes batches
//! ([`maker`]) with a normal pipeline.
//!
//! - Consumers are not trusted. They can only read the memory of batches, their requests are bounded, and a consumer
//!   that does not read its messages is dropped.
//! - For each batch, the producer records a time before which none of its samples was read. If this time is too early
//!   for a consumer, the batch is made again. If a loader joins that was created after all loaders before it, the tiers
//!   revalidate their copies, as they do at a start.
//! - If a batch leaves the window while a consumer still holds it, the producer gives up the memory and leaves it to
//!   that consumer. The same applies to memory that a forked child of a consumer may read.
//!
//! Each loader gets the same bytes as it would get alone, each batch once, even if other processes are killed, stopped,
//! slow or hostile. No consumer sees what another writes. → `tests/python/test_shared.py`,
//! `tests/python/test_shared_kills.py`

mod consumer_table;
mod maker;
mod tasks;
mod window;

use crate::batch::{check_leasing, take_freed_buffers};
use crate::config::{Device, LoaderOptions};
use crate::pipeline::Pipeline;
use crate::sharing::{
    Listener, PlaceLock, ProducerPlaces, ProducerStart, ProducerStdio, RequestedKeys, Sharing, WakeEvent,
    wait_for,
};
use base::error::{Error, Result};
use base::notices::Notices;
use consumer_table::ConsumerTable;
use data::dataset::{Contents, DatasetIndex};
use maker::StepRequest;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};
use window::{Action, SharedWindow};

/// The maximum number of leased batches outside the window. If there are more, the memory of the oldest is given up to
/// the consumers that hold them.
const RESERVE: u32 = 2;

/// How long a producer without consumers waits for new ones before it exits, if a loader started it.
const IDLE_TIMEOUT: Duration = Duration::from_secs(1);

/// How long a producer that a loader started waits for its first consumer.
const FIRST: Duration = Duration::from_secs(10);

/// How long no connection is accepted after the process ran out of file descriptors. New connections wait during that
/// time.
const ACCEPT_BACKOFF: Duration = Duration::from_millis(100);

/// Runs the producer process that a loader with `shared=` has started. It serves while there are consumers.
///
/// # Errors
/// [`Error::Unavailable`] if the process was not started by a loader.
pub fn started_by_a_loader() -> Result<()> {
    let started = ProducerStdio::read()?;
    let opened = Producer::open(&started.start);
    match opened.and_then(|producer| Ok((producer.listen(&started.claim)?, producer))) {
        Ok((listener, producer)) => {
            // The loader has opened the same dataset with the same settings, and has shown these warnings already.
            while producer.notices().next().is_some() {}
            let (start, claim) = started.serves();
            producer.serve(&listener, &start, &claim, Some(IDLE_TIMEOUT))
        }
        Err(error) => {
            started.fail(&error);
            Ok(())
        }
    }
}

/// A producer that is ready to make batches, before any consumer asks.
pub struct Producer {
    pipeline: Arc<Pipeline>,
    options: LoaderOptions,
    places: ProducerPlaces,
    place: (u32, u32),
    steps: u64,
}

impl Producer {
    /// Opens the dataset with the settings of the loader that will use the batches.
    ///
    /// # Errors
    /// The errors of a loader; [`Error::Unavailable`] if memory cannot be leased.
    pub fn open(start: &ProducerStart) -> Result<Self> {
        check_leasing()?;
        let options = options(start)?;
        let checked = options.validate()?;
        let index = DatasetIndex::open_all(
            &start.roots,
            &checked.index_options(Contents::Images),
            &Arc::new(AtomicBool::new(false)),
        )?;
        let config = checked.check(&index)?;
        let pipeline = Pipeline::new(Arc::new(index), config).with_leasable_batches();
        let opened = (&**pipeline.index(), pipeline.identity(), pipeline.config());
        let sharing = Sharing::new(&start.roots, &start.settings, &options, opened, Vec::new())?;
        let sharing =
            sharing.ok_or_else(|| Error::config("shared", "is off, so there are no batches to share"))?;
        let place = (start.rank, start.world_size);
        let dataset = sharing.dataset_key(place.0, place.1);
        let asked =
            start.keys.unwrap_or_else(|| RequestedKeys { batches: sharing.key(place.0, place.1), dataset });
        if dataset != asked.dataset {
            let path = start.roots.first().cloned().unwrap_or_default();
            let message =
                "has changed since the loaders that share its batches were made, or the file of labels= \
                           has: make the loaders again"
                    .into();
            return Err(Error::DatasetChanged { path, message });
        }
        let (steps, places) = (pipeline.steps(0, place.0, place.1)?, ProducerPlaces::open(asked.batches)?);
        Ok(Self { pipeline: Arc::new(pipeline), options, places, place, steps })
    }

    /// Returns the warnings for the user.
    pub fn notices(&self) -> &Notices {
        self.pipeline.index().notices()
    }

    /// Returns the places (locks and sockets) at which consumers find producers of these batches.
    pub fn places(&self) -> &ProducerPlaces {
        &self.places
    }

    /// Listens at a locked place.
    ///
    /// # Errors
    /// The errors of [`ProducerPlaces::listen`].
    pub fn listen(&self, claim: &PlaceLock) -> Result<Listener> {
        self.places.listen(claim)
    }

    /// Serves consumers. Returns after the time `linger` without consumers; never if `linger` is `None`.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if the process has no threads or descriptors left.
    pub fn serve(
        self,
        listener: &Listener,
        start: &ProducerStart,
        claim: &PlaceLock,
        linger: Option<Duration>,
    ) -> Result<()> {
        let bell = Arc::new(WakeEvent::new()?);
        let maker = maker::start(self.pipeline.clone(), self.place, bell.clone())?;
        let begun = Instant::now();
        let gathering = (start.consumers, begun + Duration::from_millis(start.patience));
        let size = self.options.shared_window as usize;
        let window =
            SharedWindow::new(size, self.options.shared_policy, self.steps, start.at, gathering, begun);
        let mut consumer_table = ConsumerTable::new(window, self.places.key().to_string(), begun);
        let mut alone_since = Some(begun + FIRST.saturating_sub(linger.unwrap_or_default()));
        let mut crowded_until: Option<Instant> = None;
        loop {
            let now = Instant::now();
            while let Some(outcome) = maker.take() {
                consumer_table.made(outcome);
            }
            // Warnings go out before batches are leased, because a consumer may stop listening after its last batch.
            consumer_table.tell(std::iter::from_fn(|| self.notices().next()));
            for action in consumer_table.window.act(now) {
                match action {
                    Action::Make(at) => {
                        maker.give(StepRequest { at, youngest: consumer_table.youngest });
                    }
                    Action::Lend(id, at) => consumer_table.lend(id, at),
                    Action::Refuse(id) => consumer_table.refuse(id),
                }
            }
            consumer_table.give_up_memory(RESERVE as usize);
            consumer_table.forget(take_freed_buffers());
            consumer_table.warn_of_long_waits(now);
            if consumer_table.window.consumers() > 0 {
                alone_since = None;
            } else if let Some(linger) = linger
                && *alone_since.get_or_insert(now) + linger <= now
            {
                break;
            }
            let due = consumer_table.window.due(now).into_iter();
            crowded_until = crowded_until.filter(|until| now < *until);
            let due =
                due.chain(alone_since.and_then(|since| Some(since + linger?))).chain(crowded_until).min();
            let mut files: Vec<_> = std::iter::once(bell.as_fd()).chain(consumer_table.sockets()).collect();
            let connected = files.len();
            files.extend(crowded_until.is_none().then(|| listener.as_fd()));
            let ready = wait_for(&files, due);
            if ready[0] {
                bell.heard();
            }
            consumer_table.hear(&ready[1..connected], Instant::now());
            if ready[connected..].contains(&true)
                && consumer_table.accept_connections(listener, Instant::now()).is_err()
            {
                crowded_until = Some(Instant::now() + ACCEPT_BACKOFF);
            }
        }
        self.places.leave(claim);
        Ok(())
    }
}

fn options(start: &ProducerStart) -> Result<LoaderOptions> {
    let mut options = start.settings.options(start.kind)?;
    options.progress = false;
    // The pipeline must be able to keep all batches of the window.
    options.keep = options.shared_window.saturating_add(RESERVE);
    options.device = Device::Cpu.to_string();
    Ok(options)
}
