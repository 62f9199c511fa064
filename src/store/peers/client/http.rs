//! The HTTP/1.1 client: reads samples from peers and pushes samples to them, on its own thread.

use super::answers::{AnswerQueue, OpenRead};
use super::breaker::BreakerLimits;
use super::link::{PeerLink, PeerPush};
use super::stats::{PeerCounts, PeerStats};
use super::transfer::{Miss, PeerAnswer, PeerRead};
use crate::io::Waker;
use crate::peers::bound::ByteBudget;
use crate::peers::wire::SharedDataset;
use base::counting::count;
use base::error::{Error, Result};
use base::notices::Notices;
use bytes::Bytes;
use data::dataset::FileVersion;
use data::http::{CertificatePin, DeadlineLimits, RuntimeThread, Token};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};

/// The minimum number of bytes that a push reserves in the budget of pushes, because a push needs more memory than its
/// bytes.
const MIN_PUSH: usize = 4096;

const DIED: &str = "the thread that reads from other nodes panicked: from now on, their samples are read from the \
                    source. This is a bug in Foreload: please report it";

/// The address and certificate of another node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer {
    /// The address that its server listens on.
    pub address: SocketAddr,
    /// The digest of its certificate; `None` for unencrypted connections.
    pub pin: Option<CertificatePin>,
}

/// The settings of an [`HttpTransfer`].
#[derive(Debug, Clone)]
pub struct HttpOptions {
    /// The dataset whose samples are read.
    pub dataset: SharedDataset,
    /// The secret token that every request carries.
    pub token: Token,
    /// The maximum number of connections per peer for reads. Pushes have one more connection per peer.
    pub connections: usize,
    /// The maximum number of reads in flight to all peers together. Each read uses a slot of the caller.
    pub depth: usize,
    /// The maximum number of bytes that wait to be pushed to all peers together. Further pushes are dropped.
    pub push_bytes: usize,
    /// The limits of the deadlines of reads.
    pub deadline: DeadlineLimits,
    /// The conditions under which requests to a failing peer stop.
    pub breaker: BreakerLimits,
    /// Receives the warnings about failing peers.
    pub notices: Notices,
}

impl HttpOptions {
    /// Makes options for reading samples of `dataset` from peers that require `token`. The defaults are 4 connections
    /// per peer, 256 reads in flight, and 64 MiB that wait to be pushed.
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

enum PeerWork {
    Reads(Vec<OpenRead>),
    Push(usize, PeerPush),
}

/// Pushes samples to peers, from any thread, and returns the counters of all requests to peers. Clones share one
/// [`HttpTransfer`]. After the transfer is dropped, pushes are dropped, too.
#[derive(Clone)]
pub struct PeerPusher {
    links: Arc<[Arc<PeerLink>]>,
    work: UnboundedSender<PeerWork>,
    pushes: ByteBudget,
}

impl PeerPusher {
    /// Offers the bytes of `sample` to `peer`. `version` is the version of the source file, and `crc` the CRC-32C of
    /// the bytes. Does not wait for the outcome, which the peer's counters show. Returns `false` if the push is dropped
    /// at once, because too many bytes wait, the peer's breaker is open, or the peer is full.
    ///
    /// # Panics
    /// Panics if there is no such peer.
    pub fn push(&self, peer: usize, sample: u64, version: FileVersion, crc: u32, bytes: Bytes) -> bool {
        let link = &self.links[peer];
        count(&link.counters.pushes, 1);
        if link.full.load(Relaxed) {
            count(&link.counters.pushes_full, 1);
            return false;
        }
        let reserved =
            self.pushes.reserve(bytes.len().max(MIN_PUSH)).filter(|_| link.admit_push(Instant::now()));
        let queued = reserved.is_some_and(|reserved| {
            let push = PeerPush { sample, version, crc, bytes, _reserved: reserved };
            self.work.send(PeerWork::Push(peer, push)).is_ok()
        });
        if !queued {
            count(&link.counters.pushes_dropped, 1);
        }
        queued
    }

    /// Forgets which peers have reported that they are full, so that samples are pushed to them again.
    pub fn offer_again(&self) {
        self.links.iter().for_each(|link| link.full.store(false, Relaxed));
    }

    /// Returns the statistics of each peer, in the order of the peers' indices.
    pub fn stats(&self) -> Vec<PeerStats> {
        self.links.iter().map(|link| link.stats()).collect()
    }

    /// Returns the sum of all peers' counters.
    pub fn counts(&self) -> PeerCounts {
        let mut all = PeerCounts::default();
        self.links.iter().for_each(|link| all += link.counters.read());
        all
    }
}

/// Reads samples from peers over HTTP/1.1, with many reads in flight. One thread of the caller uses it. Only
/// [`HttpTransfer::wait_until`] blocks. Every read is answered by its deadline, which is computed from measured times.
///
/// Dropping the transfer closes all connections and abandons reads in flight, whose slots return to their pools. A
/// forked child has a copy of the transfer without its thread. The child must not use this copy; dropping the copy does
/// nothing.
pub struct HttpTransfer {
    pusher: Option<PeerPusher>,
    answers: Arc<AnswerQueue>,
    posted: Vec<OpenRead>,
    depth: usize,
    in_flight: usize,
    description: String,
    thread: RuntimeThread,
}

impl HttpTransfer {
    /// Makes a transfer from `peers`. It connects to a peer at the first request. While the caller waits elsewhere (see
    /// [`HttpTransfer::listen`]), answers call `on_ready`.
    ///
    /// # Errors
    /// [`Error::Config`] for `peers` if the number of connections or the depth is 0; [`Error::Unavailable`] if the
    /// system refuses a thread.
    pub fn new(peers: &[Peer], options: &HttpOptions, on_ready: Waker) -> Result<Self> {
        if options.connections == 0 || options.depth == 0 {
            return Err(Error::config(
                "peers",
                "the number of connections and the number of reads in flight must be at least 1",
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
            pusher: Some(PeerPusher { links, work, pushes: ByteBudget::new(options.push_bytes) }),
            answers,
            posted: Vec::new(),
            depth: options.depth,
            in_flight: 0,
            description: format!("HTTP/1.1, {} connections a peer{encrypted}", options.connections),
            thread,
        })
    }

    /// Returns a handle that pushes samples to the same peers.
    pub fn pusher(&self) -> &PeerPusher {
        self.pusher.as_ref().expect("only dropping takes it out")
    }
}

impl Drop for HttpTransfer {
    fn drop(&mut self) {
        if !self.thread.is_own_process() {
            // In a forked child, dropping the pusher and the reads could wait for ever for a lock that a thread of the
            // parent held at the fork.
            std::mem::forget(self.pusher.take());
            std::mem::forget(std::mem::take(&mut self.posted));
        }
    }
}

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

impl HttpTransfer {
    /// Returns how many more reads may be posted before some are answered.
    pub fn room(&self) -> usize {
        self.depth - self.in_flight
    }

    /// Returns the number of reads that were posted and not yet answered.
    pub fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Queues a read. The read is sent at the next call of `flush` or of a method that returns answers.
    ///
    /// # Panics
    /// Panics if `room` is 0, and if there is no such peer.
    pub fn post(&mut self, read: PeerRead) {
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

    /// Sends the reads that were posted.
    pub fn flush(&mut self) {
        if !self.posted.is_empty() {
            // If the thread has ended, `send` fails and drops the reads, which answers them as unreachable.
            let posted = std::mem::take(&mut self.posted);
            let _ = self.pusher().work.send(PeerWork::Reads(posted));
        }
    }

    /// Appends the available answers to `out`.
    pub fn try_answers(&mut self, out: &mut Vec<PeerAnswer>) {
        self.flush();
        self.in_flight -= self.answers.take(out);
    }

    /// Requests that the next answer calls the waker with which the transport was made. Returns `false` if answers are
    /// already available, or if none will arrive.
    pub fn listen(&mut self) -> bool {
        self.flush();
        self.in_flight > 0 && self.answers.listen()
    }

    /// Waits until an answer arrives, `limit` is reached or the [waker](Self::waker) is called, and appends the
    /// answers to `out`. Without a limit, does not wait if nothing is in flight. Returns whether the waker was called.
    ///
    /// # Errors
    /// None: a read that fails is answered with a [`Miss`].
    pub fn wait_until(&mut self, limit: Option<Instant>, out: &mut Vec<PeerAnswer>) -> Result<bool> {
        if self.in_flight == 0 && limit.is_none() {
            return Ok(false);
        }
        self.flush();
        let (woken, answered) = self.answers.wait_until(limit, out);
        self.in_flight -= answered;
        Ok(woken)
    }

    /// Returns a waker: calling it from any thread makes the current or next `wait_until` return soon.
    pub fn waker(&self) -> Waker {
        let answers = self.answers.clone();
        Waker(Arc::new(move || answers.wake()))
    }

    /// Returns the statistics of each peer, in the order of the peers' indices.
    pub fn stats(&self) -> Vec<PeerStats> {
        self.pusher().stats()
    }

    /// Describes the transport, for example "HTTP/1.1, 4 connections a peer".
    pub fn describe(&self) -> String {
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
        // There is no such peer: the thread panics.
        let reserved = ByteBudget::new(1).reserve(1).unwrap();
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
