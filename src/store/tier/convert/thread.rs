//! The thread that converts copies to another storage format. Its low priority leaves processor time to training. It
//! pauses while batches wait for reads from this node's own tiers, and when the control group's quota of processor time
//! is used up.

use super::throttled::QuotaPace;
use super::{ConversionResult, CopyMaker};
use crate::tier::END_LIMIT;
use crate::tier::cache::Cache;
use base::error::Result;
use base::locks::lock;
use base::threads::BackgroundThread;
use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The nice value of the thread. With 15, the thread gets about a thirtieth of the time of a normal thread on the same
/// processor.
const NICE: i32 = 15;

/// How long the thread waits after it found nothing to convert.
const PAUSE: Duration = Duration::from_millis(500);

/// The pause of the thread before it checks again whether it would delay batches.
const REST: Duration = Duration::from_millis(20);

pub(in crate::tier) struct Converter {
    signals: Arc<ConverterSignals>,
    thread: BackgroundThread,
}

#[derive(Default)]
struct ConverterSignals {
    over: AtomicBool,
    /// Whether a new epoch has begun, so that space may be free again.
    has_new_epoch: Mutex<bool>,
    arrived: Condvar,
}

impl Converter {
    pub(in crate::tier) fn start(cache: Arc<Cache>) -> Result<Self> {
        let signals = Arc::new(ConverterSignals::default());
        let work = {
            let signals = signals.clone();
            move || {
                lower_priority();
                signals.run(&cache);
            }
        };
        Ok(Self { signals, thread: BackgroundThread::start("foreload-form", "a thread of the cache", work)? })
    }

    pub(in crate::tier) fn begin(&self) {
        *lock(&self.signals.has_new_epoch) = true;
        self.signals.arrived.notify_all();
    }
}

impl Drop for Converter {
    fn drop(&mut self) {
        self.signals.over.store(true, Relaxed);
        self.begin();
        self.thread.end(END_LIMIT);
    }
}

impl ConverterSignals {
    fn run(&self, cache: &Cache) {
        let mut maker = CopyMaker::default();
        let is_over = || self.over.load(Relaxed);
        let pace = RefCell::new(QuotaPace::new());
        let rest = || {
            let mut pace = pace.borrow_mut();
            let rest = pace.rest();
            let until = Instant::now() + rest;
            while (cache.own_reads_wait.load(Relaxed) || Instant::now() < until) && !is_over() {
                std::thread::sleep(REST);
            }
            if !rest.is_zero() {
                pace.resume();
            }
        };
        while !is_over() {
            match catch_unwind(AssertUnwindSafe(|| cache.convert(&mut maker, &is_over, &rest))) {
                Ok(ConversionResult::Some) => {}
                Ok(ConversionResult::Nothing) => self.wait(Some(PAUSE)),
                Ok(ConversionResult::NotNow) => self.wait(None),
                Err(_) => return cache.note_dead_converter(),
            }
        }
    }

    fn wait(&self, most: Option<Duration>) {
        let mut has_new_epoch = lock(&self.has_new_epoch);
        let over = || self.over.load(Relaxed);
        match most {
            Some(most) if !*has_new_epoch && !over() => {
                (has_new_epoch, _) =
                    self.arrived.wait_timeout(has_new_epoch, most).unwrap_or_else(PoisonError::into_inner);
            }
            Some(_) => {}
            None => {
                while !*has_new_epoch && !over() {
                    has_new_epoch = self.arrived.wait(has_new_epoch).unwrap_or_else(PoisonError::into_inner);
                }
            }
        }
        *has_new_epoch = false;
    }
}

fn lower_priority() {
    // On Linux, each thread has its own priority, and a thread id can be used as a process id.
    let _ = rustix::process::setpriority_process(Some(rustix::thread::gettid()), NICE);
}
