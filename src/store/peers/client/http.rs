//! The engine over HTTP/1.1: reads from peers, and pushes to them, on a thread of its own.

use super::answers::{AnswerQueue, OpenRead};
use super::breaker::BreakerLimits;
use super::link::{PeerLink, PeerPush};
use super::stats::{PeerCounts, PeerStats};
use super::transfer::{Miss, PeerAnswer, PeerRead, PeerTransfer};
use crate::io::Waker;
use crate::peers::bound::BytesUnderWay;
use crate::peers::counters::count;
use crate::peers::wire::SharedDataset;
use base::error::{Error, Result};
use base::notices::Notices;
use bytes::Bytes;
use data::dataset::FileVersion;
use data::http::{CertificatePin, Token};
use data::http::{DeadlineLimits, RuntimeThread};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};

/// The bytes that a push counts for at least.
const LEAST_PUSH: usize = 4096;

/// What the user is told when the thread has died.
const DIED: &str = "the thread that reads from other nodes has died: from now on what they keep comes from the source; \
                    this is a defect in Foreload, please report it";

/// Another node, as it has announced itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer {
    /// Where its server listens.
    pub address: SocketAddr,
    /// The pin of its certificate. With it the connection is encrypted.
    pub pin: Option<CertificatePin>,
}

/// How to read from peers.
#[derive(Debug, Clone)]
pub struct HttpOptions {
    /// The dataset whose samples are asked for.
    pub dataset: SharedDataset,
    /// What each request carries.
    pub token: Token,
    /// The most connections to a peer for reads. Pushes have one more.
    pub connections: usize,
    /// The most reads in flight, of all peers together. Each has a slot of the caller's.
    pub depth: usize,
    /// The most bytes of samples that wait to be pushed, to all peers together. What would be more is dropped.
    pub push_bytes: usize,
    /// What deadlines may be.
    pub deadline: DeadlineLimits,
    /// When to leave a peer alone.
    pub breaker: BreakerLimits,
    /// Where the user is told of peers that are left alone.
    pub notices: Notices,
}

impl HttpOptions {
    /// To read samples of `dataset` from peers that want `token`: 4 connections a peer, 256 reads in flight, 64 MiB to
    /// push.
    pub fn new(dataset: SharedDataset, token: Token) -> Self {
        Self {
            dataset,
            token,
            connections: 4,
            depth: 256,
            push_bytes: 64 << 20,
            deadline: DeadlineLimits::default(),
            breaker: BreakerLimits::default(),
            notices: Notices::default(),
        }
    }
}

/// What is handed to the thread.
enum PeerWork {
    Reads(Vec<OpenRead>),
    Push(usize, PeerPush),
}

/// Offers samples to peers, from any thread, and knows what became of all that was asked of them. Clones share the
/// [`HttpTransfer`] that it is of. When that is gone, what is pushed is dropped.
#[derive(Clone)]
pub struct PeerPusher {
    links: Arc<[Arc<PeerLink>]>,
    work: UnboundedSender<PeerWork>,
    pushes: BytesUnderWay,
}

impl PeerPusher {
    /// Offers `peer` the bytes of `sample` in `version`, whose CRC-32C is `crc`. Nobody waits for what becomes of it:
    /// the peer's counters say that. Returns `false` when it is dropped at once, because too much waits, the peer is
    /// left alone, or it has said that it is full.
    ///
    /// # Panics
    /// Panics when there is no such peer.
    pub fn push(&self, peer: usize, sample: u64, version: FileVersion, crc: u32, bytes: Bytes) -> bool {
        let link = &self.links[peer];
        count(&link.counters.pushes, 1);
        if link.is_full() {
            count(&link.counters.pushes_full, 1);
            return false;
        }
        // A push takes more than its bytes.
        let reserved =
            self.pushes.reserve(bytes.len().max(LEAST_PUSH)).filter(|_| link.admit_push(Instant::now()));
        let queued = reserved.is_some_and(|reserved| {
            let push = PeerPush { sample, version, crc, bytes, _reserved: reserved };
            self.work.send(PeerWork::Push(peer, push)).is_ok()
        });
        if !queued {
            count(&link.counters.pushes_dropped, 1);
        }
        queued
    }

    /// Offers samples again to peers that have said that they are full.
    pub fn offer_again(&self) {
        self.links.iter().for_each(|link| link.offer_again());
    }

    /// What each peer did so far, by number.
    pub fn stats(&self) -> Vec<PeerStats> {
        self.links.iter().map(|link| link.stats()).collect()
    }

    /// What all peers did so far.
    pub fn counts(&self) -> PeerCounts {
        let mut all = PeerCounts::default();
        self.links.iter().for_each(|link| all += link.counters.read());
        all
    }
}

/// Reads from peers over HTTP/1.1.
///
/// Dropping it closes all connections; reads in flight are given up, and their slots go back to their pools. A process
/// forked from this one has none of its threads, and must not use its copy; to drop that does nothing.
pub struct HttpTransfer {
    /// Always there, until this is dropped.
    pusher: Option<PeerPusher>,
    answers: Arc<AnswerQueue>,
    /// Reads that were posted and not yet handed over.
    posted: Vec<OpenRead>,
    depth: usize,
    in_flight: usize,
    description: String,
    thread: RuntimeThread,
}

impl HttpTransfer {
    /// Reads from `peers`, to which it connects when something is asked of them. It calls `on_ready` when answers have
    /// come to a side that [listens](PeerTransfer::listen).
    ///
    /// # Errors
    /// [`Error::Config`] for `peers` when there are no connections or no depth; [`Error::Unavailable`] when the system
    /// refuses a thread.
    pub fn new(peers: &[Peer], options: &HttpOptions, on_ready: Waker) -> Result<Self> {
        if options.connections == 0 || options.depth == 0 {
            return Err(Error::config(
                "peers",
                "allows no connection or no read at a time; each must be at least 1",
            ));
        }
        let links: Arc<[_]> = peers.iter().map(|peer| Arc::new(PeerLink::new(peer, options))).collect();
        let answers = AnswerQueue::new(on_ready);
        let (work, queue) = mpsc::unbounded_channel();
        let notices = options.notices.clone();
        let died = move || notices.warn_once(("peers", "thread"), || DIED.to_owned());
        let thread = RuntimeThread::start("foreload-fetch", || Ok(run(links.clone(), queue)), died)?;
        let encrypted = if peers.iter().any(|peer| peer.pin.is_some()) { ", TLS 1.3" } else { "" };
        Ok(Self {
            pusher: Some(PeerPusher { links, work, pushes: BytesUnderWay::new(options.push_bytes) }),
            answers,
            posted: Vec::new(),
            depth: options.depth,
            in_flight: 0,
            description: format!("HTTP/1.1, {} connections a peer{encrypted}", options.connections),
            thread,
        })
    }

    /// Who offers samples to the same peers.
    pub fn pusher(&self) -> &PeerPusher {
        self.pusher.as_ref().expect("only dropping takes it out")
    }
}

impl Drop for HttpTransfer {
    fn drop(&mut self) {
        if !self.thread.is_here() {
            // Either would take locks, which some thread of the parent may have held when it forked.
            std::mem::forget(self.pusher.take());
            std::mem::forget(std::mem::take(&mut self.posted));
        }
    }
}

/// Does what the thread is handed, until nobody hands it anything.
async fn run(links: Arc<[Arc<PeerLink>]>, mut queue: UnboundedReceiver<PeerWork>) {
    while let Some(work) = queue.recv().await {
        match work {
            PeerWork::Reads(reads) => {
                for read in reads {
                    tokio::spawn(links[read.peer()].clone().read(read));
                }
            }
            PeerWork::Push(peer, push) => {
                tokio::spawn(links[peer].clone().push(push));
            }
        }
    }
}

impl PeerTransfer for HttpTransfer {
    fn room(&self) -> usize {
        self.depth - self.in_flight
    }

    fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// # Panics
    /// Panics without room, and when there is no such peer.
    fn post(&mut self, read: PeerRead) {
        assert!(self.room() > 0, "a read without room");
        let link = self.pusher().links[read.peer].clone();
        self.in_flight += 1;
        count(&link.counters.reads, 1);
        match link.admit_read(read.length.into(), Instant::now()) {
            Some(times) => {
                let counters = link.counters.clone();
                self.posted.push(OpenRead::new(read, self.answers.clone(), counters, times));
            }
            None => {
                link.counters.missed(Miss::Breaker);
                let PeerRead { token, peer, slot, .. } = read;
                self.answers.add(PeerAnswer { token, peer, result: Err(Miss::Breaker), slot: Some(slot) });
            }
        }
    }

    fn flush(&mut self) {
        if !self.posted.is_empty() {
            // Where the thread has died, the reads come back unsent, and answer that themselves.
            let posted = std::mem::take(&mut self.posted);
            let _ = self.pusher().work.send(PeerWork::Reads(posted));
        }
    }

    fn try_answers(&mut self, out: &mut Vec<PeerAnswer>) -> Result<()> {
        self.flush();
        self.in_flight -= self.answers.take(out);
        Ok(())
    }

    fn listen(&mut self) -> bool {
        self.flush();
        self.in_flight > 0 && self.answers.listen()
    }

    fn wait_until(&mut self, limit: Option<Instant>, out: &mut Vec<PeerAnswer>) -> Result<bool> {
        if self.in_flight == 0 && limit.is_none() {
            return Ok(false);
        }
        self.flush();
        let (woken, answered) = self.answers.wait_until(limit, out);
        self.in_flight -= answered;
        Ok(woken)
    }

    fn waker(&self) -> Waker {
        let answers = self.answers.clone();
        Waker(Arc::new(move || answers.wake()))
    }

    fn stats(&self) -> Vec<PeerStats> {
        self.pusher().stats()
    }

    fn describe(&self) -> String {
        self.description.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::slot::SlotPool;
    use data::dataset::Fingerprint;
    use std::net::TcpListener;
    use std::time::Duration;

    #[test]
    fn a_thread_that_died_costs_its_reads_and_later_ones_and_is_told_of() {
        // A peer that accepts connections and says nothing.
        let silent = TcpListener::bind("127.0.0.1:0").unwrap();
        let peer = Peer { address: silent.local_addr().unwrap(), pin: None };
        let dataset = SharedDataset { fingerprint: Fingerprint([3; 32]), generation: 1 };
        let long = Duration::from_secs(3600);
        let options = HttpOptions {
            deadline: DeadlineLimits { first: long, ceiling: long, ..DeadlineLimits::default() },
            ..HttpOptions::new(dataset, Token::random().unwrap())
        };
        let mut transfer = HttpTransfer::new(&[peer], &options, Waker(Arc::new(|| {}))).unwrap();
        let slots = SlotPool::new(2 << 20).unwrap();
        let post = |transfer: &mut HttpTransfer| {
            let slot = slots.try_take(1000).unwrap();
            transfer.post(PeerRead {
                token: 7,
                peer: 0,
                sample: 7,
                length: 1000,
                most: 1000,
                version: None,
                slot,
            });
        };
        post(&mut transfer);
        transfer.flush();
        // There is no such peer, which the thread does not survive.
        let reserved = BytesUnderWay::new(1).reserve(1).unwrap();
        let push =
            PeerPush { sample: 7, version: FileVersion(1), crc: 0, bytes: Bytes::new(), _reserved: reserved };
        transfer.pusher().work.send(PeerWork::Push(99, push)).unwrap_or_else(|_| panic!("it lives"));
        let mut answers = Vec::new();
        while transfer.in_flight() > 0 {
            transfer.wait_until(None, &mut answers).unwrap();
        }
        (0..3).for_each(|_| post(&mut transfer));
        while transfer.in_flight() > 0 {
            transfer.wait_until(None, &mut answers).unwrap();
        }
        let missed = |answer: &PeerAnswer| answer.result.as_ref().err() == Some(&Miss::Unreachable);
        assert!(answers.len() == 4 && answers.iter().all(missed));
        assert!(answers.iter().all(|answer| answer.slot.is_some()));
        let counts = transfer.stats()[0].counts;
        assert_eq!((counts.reads, counts.unreachable), (4, 4));
        assert!(!transfer.pusher().push(0, 7, FileVersion(1), 0, Bytes::new()));
        assert_eq!(options.notices.take(), [DIED]);
    }
}
