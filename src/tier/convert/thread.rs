//! The thread that brings copies to another form. It has a low priority, so that it takes what training leaves, and
//! rests while batches wait for reads from this node's own tiers.

use super::{ConversionResult, CopyMaker};
use crate::tier::cache::Cache;
use crossbeam_channel::{Receiver, RecvTimeoutError, bounded};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// The priority of the thread, by which it has a tenth of the time that another thread has on the same processor.
const NICE: i32 = 10;

/// How long it waits before it looks for copies again, where there were none.
const PAUSE: Duration = Duration::from_millis(500);

/// How long it rests where batches wait for reads.
const REST: Duration = Duration::from_millis(20);

/// How long dropping waits for the thread, which looks after each sample whether it is to end.
const FAREWELL: Duration = Duration::from_secs(1);

/// The handle of the thread.
pub(in crate::tier) struct Converter {
    mailbox: Arc<ConverterMailbox>,
    /// Disconnected when the thread has ended.
    alive: Receiver<()>,
    thread: Option<JoinHandle<()>>,
}

/// What the cache tells the thread.
#[derive(Default)]
struct ConverterMailbox {
    over: AtomicBool,
    /// Whether there may be room where there was none: another epoch has begun.
    news: Mutex<bool>,
    arrived: Condvar,
}

impl Converter {
    /// Starts the thread.
    pub(in crate::tier) fn start(cache: Arc<Cache>) -> std::io::Result<Self> {
        let mailbox = Arc::new(ConverterMailbox::default());
        let (living, alive) = bounded::<()>(0);
        let work = {
            let mailbox = mailbox.clone();
            move || {
                let _living = living;
                lower_priority();
                mailbox.run(&cache);
            }
        };
        let thread = std::thread::Builder::new().name("foreload-form".into()).spawn(work)?;
        Ok(Self { mailbox, alive, thread: Some(thread) })
    }

    /// Notes that another epoch has begun.
    pub(in crate::tier) fn begin(&self) {
        *self.mailbox.news.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.mailbox.arrived.notify_all();
    }
}

impl Drop for Converter {
    fn drop(&mut self) {
        self.mailbox.over.store(true, Relaxed);
        self.begin();
        if self.alive.recv_timeout(FAREWELL) == Err(RecvTimeoutError::Disconnected)
            && let Some(thread) = self.thread.take()
        {
            let _ = thread.join();
        }
    }
}

impl ConverterMailbox {
    fn run(&self, cache: &Cache) {
        let mut maker = CopyMaker::default();
        let is_over = || self.over.load(Relaxed);
        let rest = || {
            while cache.own_reads_wait() && !is_over() {
                std::thread::sleep(REST);
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

    /// Waits for another epoch, or so long.
    fn wait(&self, most: Option<Duration>) {
        let mut news = self.news.lock().unwrap_or_else(PoisonError::into_inner);
        let over = || self.over.load(Relaxed);
        match most {
            Some(most) if !*news && !over() => {
                (news, _) = self.arrived.wait_timeout(news, most).unwrap_or_else(PoisonError::into_inner);
            }
            Some(_) => {}
            None => {
                while !*news && !over() {
                    news = self.arrived.wait(news).unwrap_or_else(PoisonError::into_inner);
                }
            }
        }
        *news = false;
    }
}

/// Lowers the priority of this thread. Where the system refuses, it has that of the others.
fn lower_priority() {
    // On Linux a thread has a priority of its own, and is named by its own number.
    let _ = rustix::process::setpriority_process(Some(rustix::thread::gettid()), NICE);
}
