//! The queue of answers from the client's thread to the caller's thread.

use super::stats::PeerCounters;
use super::transfer::{Miss, PeerAnswer, PeerCopy, PeerRead};
use crate::io::Waker;
use base::counting::count;
use base::locks::lock;
use base::slot::Slot;
use data::dataset::FileVersion;
use data::http::PostedRead;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

pub(super) struct AnswerQueue {
    state: Mutex<AnswerState>,
    answered: Condvar,
    on_ready: Waker,
}

#[derive(Default)]
struct AnswerState {
    answers: Vec<PeerAnswer>,
    asleep: bool,
    /// Whether the caller waits in another reader, so that the first answer must call `on_ready`.
    listening: bool,
    woken: bool,
}

impl AnswerQueue {
    pub(super) fn new(on_ready: Waker) -> Arc<Self> {
        Arc::new(Self { state: Mutex::default(), answered: Condvar::new(), on_ready })
    }

    pub(super) fn add(&self, answer: PeerAnswer) {
        let mut state = lock(&self.state);
        state.answers.push(answer);
        let (asleep, listening) = (std::mem::take(&mut state.asleep), std::mem::take(&mut state.listening));
        drop(state);
        if asleep {
            self.answered.notify_one();
        }
        if listening {
            (self.on_ready.0)();
        }
    }

    pub(super) fn take(&self, out: &mut Vec<PeerAnswer>) -> usize {
        Self::take_from(&mut lock(&self.state), out)
    }

    fn take_from(state: &mut AnswerState, out: &mut Vec<PeerAnswer>) -> usize {
        state.listening = false;
        state.woken = false;
        let taken = state.answers.len();
        out.append(&mut state.answers);
        taken
    }

    /// Like [`super::HttpTransfer::listen`]. The caller has checked that reads are in flight.
    pub(super) fn listen(&self) -> bool {
        let mut state = lock(&self.state);
        state.listening = state.answers.is_empty() && !state.woken;
        state.listening
    }

    /// Waits until an answer arrives, the waker is called, or `limit` is reached. Returns whether the waker was called,
    /// and the number of answers.
    pub(super) fn wait_until(&self, limit: Option<Instant>, out: &mut Vec<PeerAnswer>) -> (bool, usize) {
        let mut state = lock(&self.state);
        while state.answers.is_empty() && !state.woken {
            state.asleep = true;
            state = match limit.map(|limit| limit.saturating_duration_since(Instant::now())) {
                None => self.answered.wait(state).unwrap_or_else(PoisonError::into_inner),
                Some(Duration::ZERO) => break,
                Some(left) => {
                    self.answered.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
        state.asleep = false;
        let woken = state.woken;
        (woken, Self::take_from(&mut state, out))
    }

    pub(super) fn wake(&self) {
        let mut state = lock(&self.state);
        state.woken = true;
        if state.asleep {
            self.answered.notify_one();
        }
    }
}

/// A posted read. It is answered and counted exactly once: dropping it without an answer answers it as unreachable, for
/// example when the client's thread has ended.
pub(super) struct OpenRead {
    read: Option<PeerRead>,
    answers: Arc<AnswerQueue>,
    counters: Arc<PeerCounters>,
    pub times: PostedRead,
}

impl OpenRead {
    pub(super) fn new(
        read: PeerRead,
        answers: Arc<AnswerQueue>,
        counters: Arc<PeerCounters>,
        times: PostedRead,
    ) -> Self {
        Self { read: Some(read), answers, counters, times }
    }

    pub(super) fn sample(&self) -> u64 {
        self.read.as_ref().map_or(0, |read| read.sample)
    }

    pub(super) fn version(&self) -> Option<FileVersion> {
        self.read.as_ref().and_then(|read| read.version)
    }

    pub(super) fn peer(&self) -> usize {
        self.read.as_ref().map_or(0, |read| read.peer)
    }

    pub(super) fn length(&self) -> usize {
        self.read.as_ref().map_or(0, |read| read.length as usize)
    }

    /// Returns the memory for the response: the first bytes of the slot, up to the maximum size of a copy of the
    /// sample.
    pub(super) fn buffer(&mut self) -> &mut [u8] {
        match &mut self.read {
            Some(read) => &mut read.slot.bytes_mut()[..read.most as usize],
            None => &mut [],
        }
    }

    /// Answers the read. If the sample arrived, `result` is a function that makes the copy from the slot.
    pub(super) fn finish(mut self, result: Result<impl FnOnce(Slot) -> PeerCopy, Miss>) {
        match result {
            Ok(arrived) => {
                if let Some(PeerRead { token, peer, slot, .. }) = self.read.take() {
                    let copy = arrived(slot);
                    count(&self.counters.hits, 1);
                    count(&self.counters.bytes, copy.bytes.len() as u64);
                    let result = Ok(copy);
                    self.answers.add(PeerAnswer { token, peer, result, slot: None });
                }
            }
            Err(miss) => self.missed(miss),
        }
    }

    fn missed(&mut self, miss: Miss) {
        if let Some(PeerRead { token, peer, slot, .. }) = self.read.take() {
            self.counters.missed(miss);
            self.answers.add(PeerAnswer { token, peer, result: Err(miss), slot: Some(slot) });
        }
    }
}

impl Drop for OpenRead {
    fn drop(&mut self) {
        self.missed(Miss::Unreachable);
    }
}
