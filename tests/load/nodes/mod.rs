//! Several nodes that share their caches. Each is a pipeline of its own, over real sockets. Tests which bytes are read
//! where, that bytes are right whatever happens, and that batches equal those of a single node.

mod faults;
mod forms;
mod logged;
mod sharing;

use crate::common::{ids, pipeline, random_bytes, tar_of, wait_for};
use foreload::testing::config::LoaderOptions;
use foreload::testing::dataset::{DatasetIndex, IndexOptions};
use foreload::testing::peers::{PeerCounts, PeerStats};
use foreload::testing::pipeline::Pipeline;
use foreload::testing::rng::{RandomKey, Use};
use foreload::testing::schedule::Assignment;
use foreload::testing::tier::CacheStats;
use foreload::{CacheChoice, Peers, RankMeeting, RanksMet, Result, TierName};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex};
use tempfile::TempDir;

const PEERS: TierName = TierName::PEERS;
const NVME: TierName = TierName::NVME;

/// The most bytes of a sample.
const LARGEST: u64 = 8000;

/// A dataset of loose files whose lengths differ, or of one shard, and a directory for each node's cache.
struct World {
    directory: TempDir,
    samples: usize,
}

/// The bytes of a sample, derived from its number and the version of its file. They begin like a JPEG, which is the
/// only check of files that are delivered encoded.
fn bytes(sample: usize, version: u64) -> Vec<u8> {
    let key = RandomKey::new(b"samples of nodes", version, 0, Use::Augment);
    let mut random = key.stream(sample as u64);
    let words = 500 + random.below(500) as usize;
    [&[0xFF, 0xD8, 0xFF], &random_bytes(&mut random, 8 * words)[..]].concat()
}

impl World {
    fn new(samples: usize) -> Self {
        let world = Self { directory: tempfile::tempdir().unwrap(), samples };
        std::fs::create_dir_all(world.data().join("a")).unwrap();
        (0..samples).for_each(|sample| world.write(sample, 0));
        world
    }

    fn sharded(samples: usize) -> Self {
        let world = Self { directory: tempfile::tempdir().unwrap(), samples };
        std::fs::create_dir(world.data()).unwrap();
        let members = (0..samples).map(|sample| (format!("{sample:05}.jpg"), bytes(sample, 0)));
        std::fs::write(world.data().join("0.tar"), tar_of(members)).unwrap();
        world
    }

    fn data(&self) -> PathBuf {
        self.directory.path().join("data")
    }

    fn path(&self, sample: usize) -> PathBuf {
        self.data().join(format!("a/{sample:05}.jpg"))
    }

    /// Writes a sample's file again.
    fn write(&self, sample: usize, version: u64) {
        std::fs::write(self.path(sample), bytes(sample, version)).unwrap();
    }

    fn total(&self) -> u64 {
        (0..self.samples).map(|sample| bytes(sample, 0).len() as u64).sum()
    }

    fn cache_of(&self, node: &str) -> PathBuf {
        self.directory.path().join(format!("cache-{node}"))
    }

    fn index(&self) -> Arc<DatasetIndex> {
        let options = IndexOptions {
            directory: Some(self.directory.path().join("index")),
            progress: false,
            ..IndexOptions::default()
        };
        Arc::new(DatasetIndex::open(&self.data(), &options).unwrap())
    }

    /// The options of a rank on `node`, whose cache directory has this share of the dataset's size.
    fn options(&self, node: &str, share: f64, meeting: Arc<dyn RankMeeting>) -> LoaderOptions {
        LoaderOptions {
            batch_size: 8,
            decoded: false,
            cache: CacheChoice::in_directory(self.cache_of(node), (share * self.total() as f64) as u64),
            peers: Peers { on: true, meeting: Some(meeting), ..Peers::default() },
            ..LoaderOptions::default()
        }
    }

    fn pipeline(&self, options: &LoaderOptions) -> Pipeline {
        pipeline(self.index(), options)
    }

    /// One pipeline per node, each with one rank and with this share of the dataset's size.
    fn nodes(&self, names: &[&str], share: f64) -> Vec<Pipeline> {
        let table = Table::new((0..names.len() as u32).map(|rank| vec![rank]).collect());
        names.iter().map(|name| self.pipeline(&self.options(name, share, table.clone()))).collect()
    }
}

/// The meeting of the ranks of one process.
struct Table {
    nodes: Vec<Vec<u32>>,
    state: Mutex<TableState>,
    changed: Condvar,
}

#[derive(Default)]
struct TableState {
    meetings: u8,
    payloads: BTreeMap<u32, Vec<u8>>,
    finished: Option<Vec<Vec<u8>>>,
    leaving: usize,
}

impl Table {
    fn new(nodes: Vec<Vec<u32>>) -> Arc<Self> {
        Arc::new(Self { nodes, state: Mutex::default(), changed: Condvar::new() })
    }
}

impl RankMeeting for Table {
    fn meet(&self, _purpose: &str, payload: &[u8], rank: u32, world_size: u32) -> Result<RanksMet> {
        let mut state = self.state.lock().unwrap();
        // The ranks of the previous meeting have to leave first.
        state = self.changed.wait_while(state, |state| state.finished.is_some()).unwrap();
        state.payloads.insert(rank, payload.to_vec());
        if state.payloads.len() == world_size as usize {
            let payloads = std::mem::take(&mut state.payloads).into_values().collect();
            (state.finished, state.leaving) = (Some(payloads), world_size as usize);
            state.meetings += 1;
            self.changed.notify_all();
        }
        state = self.changed.wait_while(state, |state| state.finished.is_none()).unwrap();
        let payloads = state.finished.clone().expect("waited for");
        state.leaving -= 1;
        if state.leaving == 0 {
            state.finished = None;
            self.changed.notify_all();
        }
        Ok(RanksMet { payloads, nodes: self.nodes.clone(), secret: [state.meetings; 32] })
    }

    fn listen(&self, _nodes: usize) -> Result<SocketAddr> {
        Ok(SocketAddr::from(([127, 0, 0, 1], 0)))
    }
}

/// The result of one rank's epoch: the samples of each step, and the tiers' statistics.
struct Ran {
    steps: Vec<Vec<usize>>,
    stats: CacheStats,
    /// The number of samples that did not come from other nodes in time, which happens on a busy machine.
    late: u64,
}

/// The number of samples that other nodes did not give in time since the pipeline began.
fn late(pipeline: &Pipeline) -> u64 {
    let peers = pipeline.cache().map(|cache| cache.peers()).unwrap_or_default();
    let of = |counts: &PeerCounts| counts.timeouts + counts.breaker + counts.busy + counts.pushes_dropped;
    peers.iter().map(|(_, peer)| of(&peer.counts)).sum()
}

/// The expected bytes of a sample.
type Expected<'a> = &'a (dyn Fn(usize) -> Vec<u8> + Sync);

/// Runs an epoch of one rank from a step on, and compares every byte.
fn run(
    pipeline: &Pipeline,
    epoch: u64,
    (rank, world): (u32, u32),
    first_step: u64,
    expected: Expected<'_>,
) -> Ran {
    let (before, late_before) =
        (pipeline.cache().map(|cache| cache.stats()).unwrap_or_default(), late(pipeline));
    let mut running = pipeline.epoch(epoch, rank, world, first_step).unwrap();
    let mut steps = Vec::new();
    while let Some(batch) = running.next_batch().unwrap() {
        let ids: Vec<usize> = ids(&batch).into_iter().map(|id| id as usize).collect();
        for (file, &sample) in batch.encoded().iter().zip(&ids) {
            assert!(file.bytes() == expected(sample), "sample {sample} in epoch {epoch}");
        }
        steps.push(ids);
    }
    drop(running);
    let cache = pipeline.cache().expect("a cache");
    cache.flush();
    Ran { steps, stats: cache.stats().since(&before), late: late(pipeline) - late_before }
}

/// Runs an epoch on all nodes in parallel, one rank each, with unchanged files.
fn run_all(nodes: &[Pipeline], epoch: u64) -> Vec<Ran> {
    run_with(nodes, epoch, &|sample| bytes(sample, 0))
}

/// Runs an epoch on all nodes in parallel, one rank each.
fn run_with(nodes: &[Pipeline], epoch: u64, expected: Expected<'_>) -> Vec<Ran> {
    run_from(nodes, epoch, 0, expected)
}

/// Runs an epoch on all nodes in parallel from a step on.
fn run_from(nodes: &[Pipeline], epoch: u64, first_step: u64, expected: Expected<'_>) -> Vec<Ran> {
    let world = nodes.len() as u32;
    let ran = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..world)
            .zip(nodes)
            .map(|(rank, node)| scope.spawn(move || run(node, epoch, (rank, world), first_step, expected)))
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
    });
    // Wait until the last pushes have arrived and are published.
    wait_for_pushes(nodes);
    nodes.iter().filter_map(Pipeline::cache).for_each(|cache| cache.flush());
    ran
}

/// Waits until every push has got a response, or has failed.
fn wait_for_pushes(nodes: &[Pipeline]) {
    let all_answered = |(_, peer): &(String, PeerStats)| {
        let PeerCounts { pushes, pushes_taken, pushes_refused, pushes_full, pushes_dropped, .. } =
            peer.counts;
        pushes == pushes_taken + pushes_refused + pushes_full + pushes_dropped
    };
    let caches = || nodes.iter().filter_map(Pipeline::cache);
    let peers = || caches().flat_map(|cache| cache.peers()).collect::<Vec<_>>();
    wait_for("every push has an answer", peers, |peers| peers.iter().all(all_answered));
}

/// The statistics of the nodes' caches since they were opened, for messages.
fn told(nodes: &[Pipeline]) -> String {
    let of_node = |node: &Pipeline| {
        let cache = node.cache().expect("a cache");
        format!("{:?}\n{:?}\n{:?}\n", cache.stats(), cache.peers(), cache.served())
    };
    nodes.iter().map(of_node).collect()
}

/// The bytes that were read from the source, without those of late samples.
fn source_bytes(ran: &[Ran]) -> u64 {
    let late: u64 = ran.iter().map(|ran| ran.late).sum();
    let read: u64 = ran.iter().map(|ran| ran.stats.source.source_bytes).sum();
    read.saturating_sub(late * LARGEST)
}

fn hits(ran: &[Ran], tier: TierName) -> u64 {
    ran.iter().map(|ran| ran.stats.tier(tier).hits).sum()
}
