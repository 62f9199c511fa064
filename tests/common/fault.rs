//! A reader that fails on purpose: with errors, delays, reordering and cancellation, drawn from a seed.
//!
//! The reader wraps any [`Reader`], so that tests expose the code above it to every fault. It does not shorten reads:
//! `ShortReads` does that inside the readers, so that tests also run the readers' own code that requests the missing
//! bytes.

use foreload::testing::dataset::Extent;
use foreload::testing::io::{Completion, Filled, ReadRequest, ReadStats, Reader, Waker};
use foreload::testing::rng::{RandomKey, RandomStream, Use};
use foreload::{Error, Result};
use std::collections::HashMap;

/// How often each fault happens, in percent of requests.
#[derive(Debug, Clone, Copy)]
pub struct FaultOptions {
    /// The seed of every choice; print it when a test fails.
    pub seed: u64,
    /// Percentage of requests that end with EIO. The wrapped reader's answer is discarded.
    pub errors: u64,
    /// Percentage of requests that end as cancelled (ECANCELED) without reaching the wrapped reader.
    pub cancelled: u64,
    /// Percentage of answers that are delayed by 1 to `longest` calls of `wait`, so that later answers overtake them.
    pub delayed: u64,
    /// The longest delay of an answer, as a number of calls of `wait`.
    pub longest: u64,
}

impl FaultOptions {
    /// Returns options for much delay and reordering, and no errors.
    pub fn reordering(seed: u64) -> Self {
        Self { seed, errors: 0, cancelled: 0, delayed: 50, longest: 8 }
    }

    /// Returns options for all faults at once.
    pub fn everything(seed: u64) -> Self {
        Self { seed, errors: 5, cancelled: 5, delayed: 50, longest: 8 }
    }
}

/// A reader that adds faults to the answers of another reader.
pub struct FaultReader {
    inner: Box<dyn Reader>,
    options: FaultOptions,
    random: RandomStream,
    /// Extents of requests, by token, whose answer will be replaced by an error.
    to_fail: HashMap<u64, Extent>,
    /// Delayed answers, each with the number of the `wait` call that returns it.
    delayed_answers: Vec<(u64, Completion)>,
    waits: u64,
}

impl FaultReader {
    /// Wraps `inner` and injects faults.
    pub fn new(inner: Box<dyn Reader>, options: FaultOptions) -> Self {
        let random = RandomKey::new(b"faults", options.seed, 0, Use::Order).stream(0);
        Self { inner, options, random, to_fail: HashMap::new(), delayed_answers: Vec::new(), waits: 0 }
    }

    fn chance(&mut self, percent: u64) -> bool {
        self.random.below(100) < percent
    }

    fn hold(&mut self, completion: Completion) {
        let delay = match self.chance(self.options.delayed) {
            true => self.random.below(self.options.longest + 1),
            false => 0,
        };
        self.delayed_answers.push((self.waits + delay, completion));
    }

    fn release(&mut self, out: &mut Vec<Completion>) {
        let mut due: Vec<_> = self.delayed_answers.extract_if(.., |(due, _)| *due <= self.waits).collect();
        while !due.is_empty() {
            let place = self.random.below(due.len() as u64) as usize;
            out.push(due.swap_remove(place).1);
        }
    }
}

/// Returns the error of an injected fault. The error has the number of the file instead of the path, which only the
/// wrapped reader knows.
fn fault(extent: Extent, error: i32) -> Error {
    let what = format!("(injected) read {} bytes at {} of", extent.length, extent.offset);
    Error::io(what, format!("file {}", extent.file.0), std::io::Error::from_raw_os_error(error))
}

fn into_failure(answer: Completion, extent: Extent) -> Completion {
    let slot = answer.result.map_or(answer.slot, Filled::into_slot);
    Completion::failed(answer.token, fault(extent, libc::EIO), slot)
}

impl Reader for FaultReader {
    fn room(&self) -> usize {
        self.inner.room().saturating_sub(self.delayed_answers.len())
    }

    fn in_flight(&self) -> usize {
        self.inner.in_flight() + self.delayed_answers.len()
    }

    fn submit(&mut self, request: ReadRequest) {
        if self.chance(self.options.cancelled) {
            let error = fault(request.extent, libc::ECANCELED);
            return self.hold(Completion::failed(request.token, error, request.slot));
        }
        if self.chance(self.options.errors) {
            self.to_fail.insert(request.token, request.extent);
        }
        self.inner.submit(request);
    }

    fn wait(&mut self, out: &mut Vec<Completion>) -> Result<()> {
        let before = out.len();
        while self.in_flight() > 0 && out.len() == before {
            self.waits += 1;
            let mut arrived = Vec::new();
            let earliest = self.delayed_answers.iter().map(|(due, _)| *due).min();
            if self.inner.in_flight() > 0 && earliest.is_none_or(|due| due > self.waits) {
                self.inner.wait(&mut arrived)?;
                if arrived.is_empty() {
                    break;
                }
            } else if let Some(due) = earliest {
                // No answer can arrive before the next delayed answer. So skip to the call of `wait` in which that
                // answer is due.
                self.waits = self.waits.max(due);
            }
            for completion in arrived {
                let to_fail = self.to_fail.remove(&completion.token);
                self.hold(match to_fail {
                    Some(extent) => into_failure(completion, extent),
                    None => completion,
                });
            }
            self.release(out);
        }
        Ok(())
    }

    fn waker(&self) -> Waker {
        self.inner.waker()
    }

    fn stats(&self) -> ReadStats {
        self.inner.stats()
    }

    fn describe(&self) -> String {
        format!("{}, with faults of seed {}", self.inner.describe(), self.options.seed)
    }
}
