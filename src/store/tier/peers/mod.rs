//! The tier that stands for the caches of the job's other nodes. Each sample has an owner node (`home`), which keeps it
//! for all.
//!
//! The owner node follows from the nodes' names and capacities alone, so no messages about samples are needed. A rank
//! that reads a sample from the source pushes it to its owner node, without waiting for that. Later epochs read it
//! there. A sample that is not there, or does not arrive in time, is read from the source, and counted.
//!
//! ```text
//! this node owns it     ─► its own tiers keep it
//! another node owns it  ─► read there; if that fails, read from the source, and pushed there if it has no copy
//! no node owns it       ─► read from the source: no node has room for it
//! ```
//!
//! In its first epoch, an owner node that began without samples is not asked.
//!
//! A run checks once whether a copy is of the current version of its file. For shards that is known when the index is
//! opened. Other files are queried by the rank that uses a sample first. The request has that version, and the owner
//! node compares it. In later epochs no rank queries files: the owner node serves the copies that were confirmed in
//! this run. For other copies it asks the requester for the version.
//!
//! The ranks of a node share its server, which its first rank runs, and which has all of the node's memory for copies
//! (`Ram`). A node whose directory has room for the whole dataset also keeps copies of the samples that it gets from
//! others.

mod agreement;
mod meeting;
mod reader;
mod served_tiers;
mod sockets;

pub(super) use meeting::{OwnTiers, PeerNetwork};
pub use meeting::{PeersOptions, RankMeeting, RanksMet};
pub use meeting::{RankPlace, SharedJob, gather, names as node_names};
pub(super) use served_tiers::ServedTiers;

use super::copies::{CacheTier, CopyFault, Location, NodesTier, Offer, TierParts, TierReader};
use super::counters::CopyStats;
use super::store::Verify;
use crate::peers::{Bytes, HttpOptions, HttpTransfer, Peer, PeerCounts, PeerPusher, PeerStats};
use base::crc::checksum;
use base::error::Result;
use base::slot::SlotPool;
use base::tier_name::TierName;
use data::dataset::{DatasetIndex, Extent, FileId, FileVersion};
use data::schedule::Schedule;
use reader::PeersReader;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The number of stale copies of peers above which a warning says that nodes may see different files.
const MANY_STALE: u64 = 64;

/// The most connections to a node for reads. With many nodes, each has fewer reads in flight.
const MAX_CONNECTIONS: usize = 4;

/// Returns the number of connections for reads to each of `nodes` nodes, with `depth` reads in flight in total. Pushes
/// use one more.
fn read_connections(depth: usize, nodes: usize) -> usize {
    (depth / nodes).clamp(1, MAX_CONNECTIONS)
}

/// The caches of the job's other nodes.
pub(super) struct OtherNodes(Arc<PeersShared>);

/// State shared by the tier and its readers.
struct PeersShared {
    index: Arc<DatasetIndex>,
    network: Arc<PeerNetwork>,
    verify: Verify,
    /// The most reads in flight.
    depth: usize,
    /// Whether the versions of loose files are queried before their copies are used, in this epoch.
    looks: AtomicBool,
    /// Whether to ask owner nodes that had no samples when the job began.
    asks_all: AtomicBool,
    state: Mutex<PeersState>,
}

#[derive(Default)]
struct PeersState {
    /// The number of epochs that have begun. `first_was_whole` says whether the first one began at its first step.
    epochs: u32,
    first_was_whole: bool,
    /// Pushes samples, once there is a reader.
    pusher: Option<PeerPusher>,
    /// The statistics of former readers.
    former: Arc<[PeerStats]>,
}

impl OtherNodes {
    /// Makes the tier of the nodes that have met, with up to `depth` reads in flight.
    pub(super) fn new(
        index: &Arc<DatasetIndex>,
        network: Arc<PeerNetwork>,
        verify: Verify,
        depth: usize,
    ) -> Self {
        Self(Arc::new(PeersShared {
            index: index.clone(),
            network,
            verify,
            depth,
            looks: AtomicBool::new(verify != Verify::Never),
            asks_all: AtomicBool::default(),
            state: Mutex::default(),
        }))
    }
}

impl PeersShared {
    fn state(&self) -> MutexGuard<'_, PeersState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the node whose server keeps a sample for this process; `None` if this process's own tiers keep it, or no
    /// node does.
    fn home(&self, sample: u64) -> Option<usize> {
        self.network.homes.home(sample).filter(|&home| home != self.network.own || self.reads_own_server())
    }

    /// Returns whether this process reads from its own node's server, because some of the room is in another process's
    /// memory.
    fn reads_own_server(&self) -> bool {
        !self.network.is_first && self.network.nodes[self.network.own].has_memory
    }

    /// Returns the statistics of requests to each node.
    fn stats(&self) -> Vec<PeerStats> {
        let (pusher, former) = self.counting();
        sum(&former, pusher.map(|pusher| pusher.stats()).unwrap_or_default())
    }

    /// Returns the counters of requests to all nodes together.
    fn counts(&self) -> PeerCounts {
        let (pusher, former) = self.counting();
        let mut all = pusher.map(|pusher| pusher.counts()).unwrap_or_default();
        former.iter().for_each(|peer| all += peer.counts);
        all
    }

    /// Returns the objects that hold the statistics. The caller reads them after the lock is released: with a thousand
    /// nodes, that takes too long to do under the lock.
    fn counting(&self) -> (Option<PeerPusher>, Arc<[PeerStats]>) {
        let state = self.state();
        (state.pusher.clone(), state.former.clone())
    }

    /// Opens a transfer. Its answers call `on_ready`.
    fn open(&self, on_ready: crate::io::Waker) -> Result<HttpTransfer> {
        let peers: Vec<Peer> = self.network.nodes.iter().map(|node| node.peer).collect();
        let options = HttpOptions {
            depth: self.depth,
            notices: self.index.notices().clone(),
            connections: read_connections(self.depth, peers.len()),
            ..HttpOptions::new(self.network.dataset, self.network.token.clone())
        };
        let transfer = HttpTransfer::new(&peers, &options, on_ready)?;
        let mut state = self.state();
        if let Some(former) = state.pusher.replace(transfer.pusher().clone()) {
            state.former = sum(&state.former, former.stats()).into();
        }
        Ok(transfer)
    }
}

/// Adds the counters of former transfers to those of the current one. All other values are the current ones.
fn sum(former: &[PeerStats], mut now: Vec<PeerStats>) -> Vec<PeerStats> {
    if now.is_empty() {
        return former.to_vec();
    }
    for (now, former) in now.iter_mut().zip(former) {
        let connections = now.counts.connections;
        now.counts += former.counts;
        now.counts.connections = connections;
        now.latency += &former.latency;
    }
    now
}

impl CacheTier for OtherNodes {
    fn name(&self) -> TierName {
        TierName::PEERS
    }

    fn parts(&self) -> TierParts<'_> {
        TierParts { nodes: Some(self), ..TierParts::default() }
    }

    fn locate(&self, sample: u64) -> Option<Location> {
        let shared = &self.0;
        let home = shared.home(sample)?;
        if !shared.asks_all.load(Relaxed) && !shared.network.nodes[home].had_samples {
            return None;
        }
        let Extent { file, length, .. } = shared.index.extent(sample);
        let extent = Extent { file: FileId(home as u32), offset: sample, length };
        // A shard's version is known, so that it is compared with every read.
        let known = shared.verify == Verify::Stamp && shared.index.shard_version(file).is_some();
        let checked = !known && !shared.looks.load(Relaxed);
        Some(Location { extent, crc: None, version: None, checked })
    }

    fn is_open(&self) -> bool {
        true
    }

    fn can_take(&self) -> bool {
        true
    }

    fn offer(&self, _group: u64, sample: u64, version: FileVersion, bytes: &[u8]) -> Offer {
        let Some(home) = self.0.home(sample) else { return Offer::Full };
        let pusher = self.0.state().pusher.clone();
        let push = |pusher: PeerPusher| {
            pusher.push(home, sample, version, checksum(bytes), Bytes::copy_from_slice(bytes))
        };
        if pusher.is_some_and(push) { Offer::Taken } else { Offer::Busy }
    }

    /// Does nothing: the owner node receives the version with the request.
    fn confirm(&self, _sample: u64, _location: &Location) {}

    fn outdate(&self, _sample: u64, _location: &Location) {}

    fn damaged(&self, _sample: u64, _location: Location, _why: CopyFault) {}

    /// Returns the counters of pushes. The room is that of the other nodes.
    fn stats(&self) -> CopyStats {
        let counts = self.0.counts();
        CopyStats {
            admitted_samples: counts.pushes_taken,
            admitted_bytes: counts.pushed_bytes,
            dropped_busy: counts.pushes_dropped,
            dropped_full: counts.pushes_full,
            stale: counts.stale,
            ..CopyStats::default()
        }
    }

    fn reader(&self, _slots: &SlotPool) -> TierReader {
        let shared = self.0.clone();
        TierReader::Listening(Box::new(move |waker| {
            let transfer = shared.open(waker)?;
            Ok(Box::new(PeersReader::new(shared, transfer)))
        }))
    }
}

impl NodesTier for OtherNodes {
    fn claims(&self, sample: u64) -> bool {
        self.0.network.homes.home(sample) != Some(self.0.network.own) || self.0.reads_own_server()
    }

    /// Returns whether any other node has room for it.
    fn wants(&self, sample: u64) -> bool {
        self.0.home(sample).is_some()
    }

    fn begin(&self, schedule: &Schedule, first_step: u64) {
        let shared = &self.0;
        let mut state = shared.state();
        state.epochs += 1;
        if state.epochs == 1 {
            state.first_was_whole = first_step == 0;
        }
        // After the first whole epoch, each sample's version has been queried in this run, by one rank or another.
        let looked = if state.first_was_whole { 1 } else { 2 };
        let looks = state.epochs <= looked || shared.network.files_differ;
        shared.looks.store(shared.verify != Verify::Never && looks, Relaxed);
        // In the first epoch, an owner node that began without samples has no copy of a sample that is used for the
        // first time.
        let comes_again = schedule.order().repeats() > 1 || schedule.order().selection().repeats();
        shared.asks_all.store(state.epochs > 1 || first_step > 0 || comes_again, Relaxed);
        if let Some(pusher) = &state.pusher {
            pusher.offer_again();
        }
        drop(state);
        self.warn_of_stale_copies();
    }

    fn peers(&self) -> Vec<(String, PeerStats)> {
        let nodes = &self.0.network.nodes;
        nodes.iter().map(|node| node.name.clone()).zip(self.0.stats()).collect()
    }
}

impl OtherNodes {
    /// Warns if most copies on other nodes are of other versions than this node sees.
    fn warn_of_stale_copies(&self) {
        let PeerCounts { reads, stale, .. } = self.0.counts();
        if stale > MANY_STALE && 2 * stale > reads {
            self.0.index.notices().warn_once(("peers", "stale"), || {
                format!(
                    "{stale} of {reads} samples on other nodes are of other file versions than this node sees, and \
                     were read from the source. If the files did not change, the nodes see different times or inode \
                     numbers: put the dataset on a shared file system, or remove peers="
                )
            });
        }
    }
}
