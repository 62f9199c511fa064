//! The consumer's end of a run: yields batches in order and counts failures against `max_errors`.

use super::{
    concealed::ConcealedLog, notify, progress::Progress, run::EpochRun, stats::EpochStats,
    stopwatch::Stopwatch, threads::forked,
};
use crate::batch::{Batch, Failure};
use crate::config::{Device, OnError};
use base::error::{Error, Result};
use base::trace::Stage;
use crossbeam_channel::{Receiver, TryRecvError};
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long the consumer may wait for a batch while it holds every buffer itself. During this time another thread of
/// the consumer may return a buffer. A longer wait is an error.
const ALL_HELD_TIMEOUT: Duration = Duration::from_secs(5);

/// The largest number of failures that are listed for the user. Further failures are only counted.
const MAX_LISTED_FAILURES: usize = 1000;

/// The failures of an epoch so far. Clones share one list.
pub type FailureLog = Arc<Mutex<Vec<SampleFailure>>>;

/// One pass over this rank's part of the dataset. Dropping it stops the epoch.
pub struct Epoch {
    pub(crate) run: Arc<EpochRun>,
    consumer: Arc<Mutex<Stopwatch>>,
    ended: Receiver<()>,
    process: u32,
    next_step: u64,
    /// Whether no more batches come, even if the run plan has further steps.
    is_over: bool,
    failed: u64,
    progress: Arc<Progress>,
    failures: FailureLog,
    all_held_since: Option<Instant>,
    stalled: Duration,
    /// The number of samples in the batch that the consumer is using; `None` while it waits for a batch.
    busy_with: Option<u64>,
}

/// The result of [`Epoch::poll`].
pub enum Poll {
    /// The next batch.
    Batch(Batch),
    /// The epoch is over.
    End,
    /// The next batch is not ready yet.
    Pending,
}

/// A sample that was skipped or replaced by zeros.
#[derive(Debug, Clone)]
pub struct SampleFailure {
    /// The step whose batch the sample belonged to.
    pub step: u64,
    /// The sample's id.
    pub sample: u64,
    /// The file or shard that holds the sample.
    pub path: PathBuf,
    /// The offset of the sample's bytes in the file.
    pub offset: u64,
    /// The full error message.
    pub message: String,
}

impl Epoch {
    pub(crate) fn new(
        run: Arc<EpochRun>,
        consumer: Arc<Mutex<Stopwatch>>,
        ended: Receiver<()>,
        progress: Arc<Progress>,
    ) -> Self {
        Self {
            consumer,
            ended,
            process: std::process::id(),
            next_step: run.first_step,
            is_over: false,
            failed: progress.failed(),
            progress,
            failures: FailureLog::default(),
            all_held_since: None,
            stalled: Duration::ZERO,
            busy_with: None,
            run,
        }
    }

    /// Returns the epoch number that was passed to [`super::Pipeline::epoch`].
    pub fn number(&self) -> u64 {
        self.run.epoch
    }

    /// Returns the number of steps of the whole epoch. For a stream it is `u64::MAX` until the end is known.
    pub fn steps(&self) -> u64 {
        if self.is_over { self.next_step } else { self.run.run_plan.steps() }
    }

    /// Returns the index of the next batch's step in the epoch, which is the number of steps before it.
    pub fn next_step(&self) -> u64 {
        self.next_step
    }

    /// Returns how far the consumer has come. The progress outlives the epoch.
    pub fn progress(&self) -> &Arc<Progress> {
        &self.progress
    }

    /// Returns the number of samples that failed in the batches delivered so far, including failures before the epoch
    /// was resumed.
    pub fn failed(&self) -> u64 {
        self.failed
    }

    /// Returns the samples that failed so far; the first 1000 are kept.
    pub fn failures(&self) -> &FailureLog {
        &self.failures
    }

    /// Returns the samples whose damage was concealed so far, including samples that were read ahead of the consumer;
    /// the first 1000 are kept. None of them counts as failed.
    pub fn concealed(&self) -> &ConcealedLog {
        &self.run.concealed
    }

    /// Returns the counters of all stages so far.
    pub fn stats(&self) -> EpochStats {
        let mut stats = self.run.counters.snapshot();
        stats.cache = self.run.context.source.cached().since(&self.run.cached);
        stats.unpacked = self.run.context.index.unpacked().stats().since(self.run.counters.unpacked);
        if self.busy_with.is_some() {
            stats.stalls.record(self.stalled);
        }
        stats
    }

    /// Waits until the images of `batch`, which is the latest delivered batch, are complete, because a GPU may still be
    /// making them. The time counts as waiting for that batch.
    ///
    /// # Errors
    /// The errors of [`Batch::synchronize`].
    pub fn synchronize(&mut self, batch: &Batch) -> Result<()> {
        batch.synchronize()?;
        if self.run.context.config.device != Device::Cpu {
            self.waited();
        }
        Ok(())
    }

    /// Waits for the next batch; `None` at the end of the epoch.
    ///
    /// # Errors
    /// The errors of [`Epoch::poll`].
    pub fn next_batch(&mut self) -> Result<Option<Batch>> {
        loop {
            match self.poll(Duration::from_secs(1))? {
                Poll::Batch(batch) => return Ok(Some(batch)),
                Poll::End => return Ok(None),
                Poll::Pending => {}
            }
        }
    }

    /// Waits up to `patience` for the next batch. After an error the epoch is over.
    ///
    /// # Errors
    /// [`Error::Sample`] with `on_error = raise`; [`Error::TooManyErrors`]; [`Error::Config`] for `memory` when the
    /// consumer has kept every buffer for some seconds; [`Error::Internal`] when a thread died.
    pub fn poll(&mut self, patience: Duration) -> Result<Poll> {
        self.poll_by(patience, Self::deliver)
    }

    /// Waits up to `patience` for the next batch, and leaves its failed samples in it. They are neither counted nor
    /// raised.
    ///
    /// # Errors
    /// The errors of [`Epoch::poll`], except errors of samples.
    pub fn poll_with_failures(&mut self, patience: Duration) -> Result<Poll> {
        self.poll_by(patience, |epoch, batch| epoch.hand_over(batch, &[]))
    }

    fn poll_by(
        &mut self,
        patience: Duration,
        deliver: impl FnOnce(&mut Self, Batch) -> Result<Batch>,
    ) -> Result<Poll> {
        self.progress.asked();
        if self.next_step >= self.steps() {
            self.progress.end();
            return Ok(Poll::End);
        }
        if self.process != std::process::id() {
            return Err(forked());
        }
        self.turn();
        self.run.batches.consumer_waits();
        let polled = self.run.inbox.wait_for(self.next_step, Instant::now() + patience);
        self.waited();
        let outcome = polled.and_then(|polled| match polled {
            Some(batch) => deliver(self, batch).map(Poll::Batch),
            None if self.next_step >= self.steps() => Ok(Poll::End),
            None => self.check_alive().map(|()| Poll::Pending),
        });
        if outcome.is_err() {
            self.stop();
        }
        outcome
    }

    fn deliver(&mut self, mut batch: Batch) -> Result<Batch> {
        self.all_held_since = None;
        let failures = batch.take_failures();
        let failed: Vec<u64> = failures.iter().map(|failure| failure.sample).collect();
        if let Err(error) = failures.into_iter().try_for_each(|failure| self.count_failure(failure)) {
            self.run.run_plan.give_up(&failed)?;
            return Err(error);
        }
        self.hand_over(batch, &failed)
    }

    fn hand_over(&mut self, mut batch: Batch, failed: &[u64]) -> Result<Batch> {
        batch.deliver();
        self.run.run_plan.deliver(self.next_step, failed)?;
        self.busy_with = Some(batch.len() as u64);
        self.run.counters.delivered.fetch_add(batch.len() as u64, Ordering::Relaxed);
        self.next_step += 1;
        self.progress.step(self.failed);
        if self.next_step == self.steps() {
            self.conclude();
        }
        Ok(batch)
    }

    /// Warns the user about failures and the cache in the whole epoch. The warnings come with the epoch's last batch,
    /// because some consumers do not ask for another batch, which would report the end.
    fn conclude(&self) {
        notify::failures(&self.run.context, self.run.epoch, self.failed);
        notify::cache_full(&self.run.context, &self.stats().cache);
    }

    /// Records that the consumer has finished with its latest batch and asks for the next one.
    fn turn(&mut self) {
        let mut stopwatch = self.consumer.lock().unwrap_or_else(PoisonError::into_inner);
        let before = stopwatch.now();
        stopwatch.skip_to(Instant::now());
        if let Some(samples) = self.busy_with.take() {
            self.run.counters.stalls.record(std::mem::take(&mut self.stalled));
            stopwatch.turn_to(self.run.epoch, self.next_step.saturating_sub(1));
            stopwatch.log(Stage::Train, before, 0, samples);
        }
    }

    fn waited(&mut self) {
        let mut stopwatch = self.consumer.lock().unwrap_or_else(PoisonError::into_inner);
        let before = stopwatch.now();
        stopwatch.turn_to(self.run.epoch, self.next_step - u64::from(self.busy_with.is_some()));
        self.stalled += stopwatch.lap(&self.run.counters.consumer);
        stopwatch.log(Stage::Wait, before, 0, 0);
    }

    /// Counts one failure. Failures are counted in the order of the batches, so that the same run always ends at the
    /// same failure.
    fn count_failure(&mut self, Failure { sample, error, fatal, .. }: Failure) -> Result<()> {
        let context = &self.run.context;
        let config = &context.config;
        if fatal || config.on_error == OnError::Raise {
            return Err(error);
        }
        self.failed += 1;
        if let Some(max_errors) = config.max_errors.filter(|most| self.failed > *most) {
            let count = self.failed;
            return Err(Error::TooManyErrors { count, max_errors, source: Box::new(error) });
        }
        notify::failure(context, &error);
        let mut failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        if failures.len() < MAX_LISTED_FAILURES {
            let extent = context.index.place_in_file(context.index.extent(sample));
            failures.push(SampleFailure {
                step: self.next_step,
                sample,
                path: context.index.path(extent.file),
                offset: extent.offset,
                message: error.to_string(),
            });
        }
        Ok(())
    }

    fn check_alive(&mut self) -> Result<()> {
        if self.run.stopped() {
            return Err(Error::Unavailable(
                "this iteration was stopped because the loader began another one: a loader runs one epoch at a time"
                    .into(),
            ));
        }
        if self.ended.try_recv() == Err(TryRecvError::Disconnected) {
            return Err(Error::Internal("the pipeline's threads have ended".into()));
        }
        // With `decoded=False`, encoded files stay in their slots until the consumer drops their batch. So the consumer
        // may hold all slots even if it does not hold all buffers.
        let config = &self.run.context.config;
        let slots_held = !config.decoded && self.run.waker.idle_and_blocked.load(Ordering::SeqCst);
        if !slots_held && !self.run.batches.all_held() {
            self.all_held_since = None;
            return Ok(());
        }
        let since = *self.all_held_since.get_or_insert_with(Instant::now);
        if since.elapsed() < ALL_HELD_TIMEOUT {
            return Ok(());
        }
        if slots_held {
            let message = format!(
                "leaves {} bytes for encoded files, and the batches that you keep use them up: drop batches, or raise \
                 keep, the number of batches that you keep at once (and memory, if you set it)",
                config.pools.slot_bytes
            );
            return Err(Error::config("memory", message));
        }
        let (count, bytes) = self.run.batches.limits();
        let (setting, enough) = match &config.device_pools {
            // Recommend twice the bytes: up to half of a larger limit may go to the decoders' arenas. The 64 bytes
            // allow for rounding.
            Some(pools) => {
                ("device_memory", pools.cap.saturating_add(bytes.saturating_mul(2)).saturating_add(64))
            }
            None => {
                let batches = (count + 1).saturating_mul(bytes);
                ("memory", batches.saturating_add(config.pools.slot_bytes))
            }
        };
        let message = format!(
            "allows {count} batches of {bytes} bytes, and you hold all of them: drop or copy batches, or raise \
             {setting} to at least {enough}"
        );
        Err(Error::config(setting, message))
    }

    fn stop(&mut self) {
        // In a forked child, the locks may be held by threads that exist only in the parent.
        if self.process != std::process::id() {
            return;
        }
        self.turn();
        self.is_over = true;
        self.progress.end();
        self.run.stop();
    }
}

impl Drop for Epoch {
    fn drop(&mut self) {
        self.stop();
    }
}
