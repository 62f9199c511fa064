//! The tier that stands for the caches of the job's other nodes. Each sample has an owner node, which keeps
//! the sample for all nodes.
//!
//! The owner node follows from the nodes' names and capacities alone, so no messages about samples are needed. A rank
//! that reads a sample from the source pushes the sample to its owner node, and does not wait for the push. Later
//! epochs read the sample from its owner node. A sample that the owner node does not have, or does not send in time, is
//! read from the source, and counted.
//!
//! ```text
//! this node owns it     ─► its own tiers keep it
//! another node owns it  ─► read from that node; if that fails, read from the source, and pushed to that node
//!                          if it has no copy
//! no node owns it       ─► read from the source: no node has space for it
//! ```
//!
//! In the first epoch, no request goes to an owner node that began without samples.
//!
//! A run checks once whether a copy is of the current version of its file. The versions of shards are known when the
//! index is opened. The version of another file is queried by the rank that uses its sample first. The request carries
//! that version, and the owner node compares it with the copy's version. In later epochs no rank queries files, except
//! local files of arrays: the owner node serves the copies that were confirmed in this run. For any other copy, the
//! owner node asks the requester for the version.
//!
//! The ranks of a node share the node's server. The first rank runs the server, and has all of the node's memory for
//! copies (`Ram`). A node whose directory has space for the whole dataset also keeps copies of the samples that it gets
//! from other nodes.

mod agreement;
mod meeting;
mod reader;
mod served_tiers;
mod sockets;

pub(super) use meeting::PeerNetwork;
pub use meeting::{PeersOptions, RankMeeting, RankPlace, RanksMet, SharedJob, gather, names as node_names};
pub(super) use served_tiers::ServedTiers;

use super::copies::{CacheTier, CopyFault, Location, Offer, TierParts, TierReader};
use super::counters::CopyStats;
use super::store::Verify;
use crate::peers::{Bytes, HttpOptions, HttpTransfer, Peer, PeerCounts, PeerPusher, PeerStats};
use base::crc::checksum;
use base::error::Result;
use base::locks::lock;
use base::slot::SlotPool;
use base::tier_name::TierName;
use data::dataset::{DatasetIndex, Extent, FileId, FileVersion};
use data::schedule::Schedule;
use reader::PeersReader;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

/// The number of stale copies of peers above which a warning says that nodes may see different files.
const MANY_STALE: u64 = 64;

/// The maximum number of connections to a node for reads. In a large job, fewer are used, because each node has fewer
/// reads in flight.
const MAX_CONNECTIONS: usize = 4;

/// Returns the number of connections for reads to each of `nodes` nodes, with `depth` reads in flight in total. Pushes
/// use one more connection.
fn read_connections(depth: usize, nodes: usize) -> usize {
    (depth / nodes).clamp(1, MAX_CONNECTIONS)
}

pub(super) struct OtherNodes(Arc<PeersShared>);

struct PeersShared {
    index: Arc<DatasetIndex>,
    network: Arc<PeerNetwork>,
    verify: Verify,
    depth: usize,
    /// Whether, in this epoch, the version of a file with a single sample is queried before a copy of the file is used.
    queries_versions: AtomicBool,
    /// Whether to send requests to owner nodes that had no samples when the job began.
    asks_empty_owners: AtomicBool,
    state: Mutex<PeersState>,
}

#[derive(Default)]
struct PeersState {
    /// The number of epochs that have begun, and whether the first of these epochs began at step 0.
    epochs: u32,
    first_epoch_was_whole: bool,
    pusher: Option<PeerPusher>,
    former: Arc<[PeerStats]>,
}

impl OtherNodes {
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
            queries_versions: AtomicBool::new(verify != Verify::Never),
            asks_empty_owners: AtomicBool::default(),
            state: Mutex::default(),
        }))
    }
}

impl PeersShared {
    /// Returns the node whose server keeps a sample for this process; `None` if this process's own tiers keep it, or no
    /// node does.
    fn owner(&self, sample: u64) -> Option<usize> {
        self.network
            .owners
            .owner(sample)
            .filter(|&owner| owner != self.network.own || self.reads_own_server())
    }

    /// Returns whether this process reads from its own node's server, because some of the node's capacity is in another
    /// process's memory.
    fn reads_own_server(&self) -> bool {
        !self.network.is_first && self.network.nodes[self.network.own].has_memory
    }

    fn stats(&self) -> Vec<PeerStats> {
        let (pusher, former) = self.statistics_sources();
        sum(&former, pusher.map(|pusher| pusher.stats()).unwrap_or_default())
    }

    fn counts(&self) -> PeerCounts {
        let (pusher, former) = self.statistics_sources();
        let mut all = pusher.map(|pusher| pusher.counts()).unwrap_or_default();
        former.iter().for_each(|peer| all += peer.counts);
        all
    }

    /// Returns the objects that hold the statistics. The caller reads them after the lock is released, because reading
    /// them takes too long under the lock with a thousand nodes.
    fn statistics_sources(&self) -> (Option<PeerPusher>, Arc<[PeerStats]>) {
        let state = lock(&self.state);
        (state.pusher.clone(), state.former.clone())
    }

    fn open(&self, on_ready: crate::io::Waker) -> Result<HttpTransfer> {
        let peers: Vec<Peer> = self.network.nodes.iter().map(|node| node.peer).collect();
        let options = HttpOptions {
            depth: self.depth,
            notices: self.index.notices().clone(),
            connections: read_connections(self.depth, peers.len()),
            ..HttpOptions::new(self.network.dataset, self.network.token.clone())
        };
        let transfer = HttpTransfer::new(&peers, &options, on_ready)?;
        let mut state = lock(&self.state);
        if let Some(former) = state.pusher.replace(transfer.pusher().clone()) {
            state.former = sum(&state.former, former.stats()).into();
        }
        Ok(transfer)
    }
}

/// Adds the counters of former transfers to the counters of the current transfer. All other values are the current
/// transfer's.
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
        let owner = shared.owner(sample)?;
        if !shared.asks_empty_owners.load(Relaxed) && !shared.network.nodes[owner].had_samples {
            return None;
        }
        let Extent { file, length, .. } = shared.index.extent(sample);
        let extent = Extent { file: FileId(owner as u32), offset: sample, length };
        // A shard's version is known, so each request carries it, and the owner node compares it.
        let known = shared.verify == Verify::Stamp && shared.index.known_version(file).is_some();
        let checked = !known && !shared.queries_versions.load(Relaxed);
        Some(Location { extent, crc: None, version: None, checked })
    }

    fn is_open(&self) -> bool {
        true
    }

    fn can_take(&self) -> bool {
        true
    }

    fn offer(&self, _group: u64, sample: u64, version: FileVersion, bytes: &[u8]) -> Offer {
        let Some(owner) = self.0.owner(sample) else { return Offer::Full };
        let pusher = lock(&self.0.state).pusher.clone();
        let push = |pusher: PeerPusher| {
            pusher.push(owner, sample, version, checksum(bytes), Bytes::copy_from_slice(bytes))
        };
        if pusher.is_some_and(push) { Offer::Taken } else { Offer::Busy }
    }

    /// Does nothing: the owner node receives the version with the request.
    fn confirm(&self, _sample: u64, _location: &Location) {}

    fn drop_stale(&self, _sample: u64, _location: &Location) {}

    fn damaged(&self, _sample: u64, _location: Location, _why: CopyFault) {}

    /// Returns the counters of pushes. The quota is the capacity of the other nodes.
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

impl OtherNodes {
    /// Returns whether another node owns the sample, so that no tier of this node must keep it.
    pub(super) fn is_responsible_for(&self, sample: u64) -> bool {
        self.0.network.owners.owner(sample) != Some(self.0.network.own) || self.0.reads_own_server()
    }

    /// Returns whether another node owns the sample. Only nodes with space for a sample own it.
    pub(super) fn wants(&self, sample: u64) -> bool {
        self.0.owner(sample).is_some()
    }

    pub(super) fn begin(&self, schedule: &Schedule, first_step: u64) {
        let shared = &self.0;
        let mut state = lock(&shared.state);
        state.epochs += 1;
        if state.epochs == 1 {
            state.first_epoch_was_whole = first_step == 0;
        }
        // After the first whole epoch, each sample's version has been queried in this run, by one rank or another.
        let epochs_with_queries = if state.first_epoch_was_whole { 1 } else { 2 };
        let queries_versions = state.epochs <= epochs_with_queries
            || shared.network.files_differ
            || shared.verify.compares_in_each_epoch(&shared.index);
        shared.queries_versions.store(shared.verify != Verify::Never && queries_versions, Relaxed);
        // In the first epoch, an owner node that began without samples cannot have a sample before its first use. So
        // such nodes are asked only in later epochs, if the epoch begins at a later step, or if samples come again
        // within an epoch.
        let comes_again = schedule.order().repeats() > 1 || schedule.order().selection().repeats();
        shared.asks_empty_owners.store(state.epochs > 1 || first_step > 0 || comes_again, Relaxed);
        if let Some(pusher) = &state.pusher {
            pusher.offer_again();
        }
        drop(state);
        self.warn_of_stale_copies();
    }

    pub(super) fn peers(&self) -> Vec<(String, PeerStats)> {
        let nodes = &self.0.network.nodes;
        nodes.iter().map(|node| node.name.clone()).zip(self.0.stats()).collect()
    }

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
