//! The meeting of a job's nodes before the first epoch. All ranks exchange messages through the cluster's engine
//! (torch.distributed, Ray, MPI or JAX).
//!
//! There are three exchanges: how much each node can keep, the address of its server, and that its server is ready.
//! Each rank then computes the owner node of every sample alone. All ranks derive the token of requests and the
//! identifier of the dataset from random bytes that only this meeting has, so a restarted job never uses the servers of
//! its former run.

use super::super::cache::{CacheOptions, NoForms, TierOptions};
use super::super::convert::{FormChoice, FormatDecision, FormatFacts, PACKED, most_bytes};
use super::super::copies::CacheTier;
use super::super::placement::{NodeShare, Placement};
use super::agreement;
use super::sockets::{ReservedSockets, SocketBudget, SocketReservation};
use crate::peers::{CertificatePin, Peer, Server, ServerOptions, SharedDataset, TlsIdentity, Token};
use base::error::{Error, Result};
use base::names::NamedValue;
use data::dataset::DatasetIndex;
use data::dataset::arrays::MAX_RECORD;
use data::schedule::Selection;
use pixels::decode::ConvertedFormat;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::fmt;
use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// The exchange of messages between the ranks of a job, through the cluster's engine (torch.distributed, Ray, MPI or
/// JAX).
pub trait RankMeeting: Send + Sync {
    /// Sends `payload` to all ranks, and waits for the payloads of all ranks. All ranks must make their calls in the
    /// same order. `purpose` names the exchange.
    ///
    /// # Errors
    /// Fails if ranks are missing, or if ranks call with different purposes.
    fn meet(&self, purpose: &str, payload: &[u8], rank: u32, world_size: u32) -> Result<RanksMet>;

    /// Returns the address on which this process's server listens for the other nodes. `nodes` is the number of nodes.
    ///
    /// # Errors
    /// [`Error::Config`] for `peers` if the address is unknown, or other nodes cannot reach it.
    fn listen(&self, nodes: usize) -> Result<SocketAddr>;
}

/// The result of an exchange, which is the same on all ranks.
#[derive(Debug, Clone)]
pub struct RanksMet {
    /// The payload of each rank, by rank.
    pub payloads: Vec<Vec<u8>>,
    /// The ranks of each node, ascending.
    pub nodes: Vec<Vec<u32>>,
    /// Random bytes that only the ranks of this job know.
    pub secret: [u8; 32],
}

/// How a node shares its cache with the other nodes (`peers=`).
#[derive(Clone)]
pub struct PeersOptions {
    /// How the ranks exchange messages before the first epoch.
    pub meeting: Arc<dyn RankMeeting>,
    /// Whether traffic between nodes is encrypted.
    pub tls: bool,
}

impl fmt::Debug for PeersOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PeersOptions").field("tls", &self.tls).finish_non_exhaustive()
    }
}

/// The place of a process in the job.
#[derive(Debug, Clone, Copy)]
pub struct RankPlace {
    /// The process's rank.
    pub rank: u32,
    /// The number of ranks.
    pub world_size: u32,
}

/// The job, as all ranks configure it.
pub struct SharedJob<'a> {
    /// The place of this process.
    pub place: RankPlace,
    /// The samples that epochs draw from.
    pub selection: &'a Selection,
    /// The settings, by name, that must be equal on all ranks, so that they take different parts of the same batches.
    pub settings: Vec<(String, String)>,
}

/// A rank's message about its node's cache.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct CacheMessage {
    /// The settings that must be equal on all ranks, by name. The dataset is the first.
    pub settings: Vec<(String, String)>,
    /// The configured tiers, which must be equal on all ranks of a node.
    pub tiers: Vec<String>,
    host: String,
    /// The identities of the directories, to find nodes that share one.
    pub directories: Vec<String>,
    capacity: u64,
    /// The part of `capacity` that is in the memory of the node's first rank.
    memory: u64,
    held: u64,
    /// The versions of some of the dataset's files, to find nodes that see different files.
    files: Vec<Option<u64>>,
    #[serde(default)]
    no_forms: bool,
}

/// A message from the first rank of a node about the node's server: its address, or the reason why it does not listen.
#[derive(Debug, Default, Serialize, Deserialize)]
struct EndpointMessage {
    address: Option<SocketAddr>,
    pin: Option<[u8; 32]>,
    error: Option<String>,
}

#[derive(Debug, Clone)]
pub(in crate::tier) struct PeerNode {
    pub name: String,
    pub peer: Peer,
    pub had_samples: bool,
    /// Whether some of the node's capacity is in the memory of its first rank.
    pub has_memory: bool,
}

/// The peer network: the nodes of a job, and the owner nodes of all samples.
pub(in crate::tier) struct PeerNetwork {
    pub nodes: Vec<PeerNode>,
    pub own: usize,
    /// Whether this process is the first of its node, which runs the server.
    pub is_first: bool,
    pub owners: Arc<Placement>,
    pub form: FormatDecision,
    /// Whether nodes see different versions of files, as if each had its own copy of the dataset.
    pub files_differ: bool,
    pub dataset: SharedDataset,
    pub token: Token,
    pub node_of_rank: Vec<u32>,
    /// The server for the other nodes, in the first process of this node.
    pub server: Option<Server>,
    /// Whether training waits for reads from this node's own drives or memory.
    pub own_reads_wait: Arc<AtomicBool>,
    _sockets: SocketReservation,
}

impl PeerNetwork {
    /// Exchanges messages with all ranks, and computes the peer network. `directories` are the opened tiers on drives.
    /// Returns `None` if all ranks are on one node.
    ///
    /// # Errors
    /// The errors of [`RankMeeting`]; [`Error::Config`] for ranks with different datasets or settings, for nodes that
    /// share a directory, and on all ranks if a node cannot listen.
    pub(in crate::tier) fn meet(
        options: &PeersOptions,
        index: &DatasetIndex,
        cache: &CacheOptions,
        directories: &[&dyn CacheTier],
        job: &SharedJob<'_>,
    ) -> Result<Option<Self>> {
        let (fingerprint, place) = (index.fingerprint(), job.place);
        let room = |tier: &&dyn CacheTier| match tier.can_take() {
            true => usable(tier.parts().capacity()),
            false => tier.stats().held_bytes,
        };
        // The end of each block of memory is too short for another sample, so about 1/32 of the memory is not counted.
        let memory: u64 = cache.memory().map(|(_, size)| size).sum();
        let memory = memory - memory / 32;
        let mut settings = job.settings.clone();
        settings.push(("tls of peers".into(), options.tls.to_string()));
        // The storage format that the user wants for copies in the slowest tier.
        let choice = cache.tiers.last().map_or(FormChoice::AsIs, TierOptions::form);
        let no_forms = cache.no_forms;
        settings.push(("form of copies".into(), choice.name().to_owned()));
        let own = CacheMessage {
            settings,
            tiers: cache.tiers.iter().map(TierOptions::to_string).collect(),
            host: rustix::system::uname().nodename().to_string_lossy().into_owned(),
            directories: cache.tiers.iter().filter_map(TierOptions::directory).filter_map(identity).collect(),
            capacity: directories.iter().map(room).sum::<u64>() + memory,
            memory,
            held: directories.iter().map(|tier| tier.stats().held_samples).sum(),
            files: some_files(index),
            no_forms: no_forms.is_some(),
        };
        let (messages, met) = gather::<CacheMessage>(options, "cache capacities", &own, place)?;
        if met.nodes.len() < 2 {
            return Ok(None);
        }
        agreement::check(place.rank, &met.nodes, &messages)?;
        let files_differ = messages.windows(2).any(|pair| pair[0].files != pair[1].files);
        if files_differ {
            warn_of_different_files(index);
        }
        let mut node_of_rank = vec![0; place.world_size as usize];
        for (node, ranks) in (0..).zip(&met.nodes) {
            ranks.iter().for_each(|&rank| node_of_rank[rank as usize] = node);
        }
        let own_node = node_of_rank[place.rank as usize] as usize;
        let is_first = met.nodes[own_node].first() == Some(&place.rank);
        let token = Token::of_job(&met.secret);
        let dataset = SharedDataset::of_job(fingerprint, &met.secret);
        let own_reads_wait = Arc::<AtomicBool>::default();
        let sockets = SocketBudget::new(&met.nodes, is_first, cache.queue_depth);
        let ReservedSockets { reservation, connections, warning } = sockets.reserve();
        if let Some(warning) = warning {
            index.notices().warn_once(("peers", "sockets"), || warning);
        }
        let (server, endpoint) = match is_first {
            true => start(options, &met, &token, &own_reads_wait, connections, index),
            false => (None, EndpointMessage::default()),
        };
        let (endpoints, _) = gather::<EndpointMessage>(options, "server addresses", &endpoint, place)?;
        let names = names(met.nodes.iter().map(|ranks| &messages[ranks[0] as usize].host[..]));
        let mut nodes = Vec::new();
        for (ranks, name) in met.nodes.iter().zip(names) {
            let (sent, endpoint) = (&messages[ranks[0] as usize], &endpoints[ranks[0] as usize]);
            let Some(address) = endpoint.address else {
                let why = endpoint.error.as_deref().unwrap_or("it does not listen");
                return Err(Error::config("peers", format!("node {name} (rank {}): {why}", ranks[0])));
            };
            nodes.push(PeerNode {
                name,
                peer: Peer { address, pin: endpoint.pin.map(CertificatePin) },
                had_samples: sent.held > 0,
                has_memory: sent.memory > 0,
            });
        }
        let capacity = |ranks: &Vec<u32>| messages[ranks[0] as usize].capacity;
        let shares: Vec<NodeShare> = std::iter::zip(&nodes, &met.nodes)
            .map(|(node, ranks)| NodeShare { name: node.name.clone(), capacity: capacity(ranks) })
            .collect();
        let bytes_of = |sample, form: Option<ConvertedFormat>| match job.selection.contains(sample) {
            true if form.is_some() => u64::from(most_bytes(index.extent(sample).length)),
            true => u64::from(index.extent(sample).length),
            false => 0,
        };
        // All nodes make the same decision, from the same messages.
        let why = "another node cannot convert copies, or does not benefit";
        let cannot = NoForms { why, is_impossible: true };
        let no_forms = no_forms.or_else(|| messages.iter().any(|sent| sent.no_forms).then_some(cannot));
        let most: u64 = (0..index.len()).map(|sample| bytes_of(sample, Some(ConvertedFormat::Packed))).sum();
        let form = FormatFacts {
            choice,
            no_forms,
            // Owner nodes are assigned by the maximum size of each sample's copy, so the total is computed from these
            // maxima.
            used: (most as f64 / PACKED) as u64,
            room: shares.iter().map(|share| share.capacity).sum(),
            stays: true,
        };
        let form = match form.decide() {
            FormatDecision { form: Some(ConvertedFormat::Indexed), .. } if choice == FormChoice::Auto => {
                FormatDecision::as_is("packed copies do not fit into the caches of the nodes")
            }
            decision => FormatDecision { may_evict: false, ..decision },
        };
        let bytes = |sample| bytes_of(sample, form.form);
        let owners = Arc::new(Placement::new(&shares, &fingerprint, index.len(), bytes)?);
        Ok(Some(Self {
            nodes,
            own: own_node,
            is_first,
            owners,
            form,
            files_differ,
            dataset,
            token,
            node_of_rank,
            server,
            own_reads_wait,
            _sockets: reservation,
        }))
    }

    /// Waits until all nodes serve their caches, so that no request is refused because a node is not ready.
    ///
    /// # Errors
    /// The errors of [`RankMeeting::meet`]; [`Error::Config`] if ranks have computed different owner nodes.
    pub(in crate::tier) fn wait_for_all(&self, options: &PeersOptions, place: RankPlace) -> Result<()> {
        let (computed, _) = gather::<u64>(options, "servers ready", &self.owners.digest(), place)?;
        match computed.iter().position(|owners| *owners != self.owners.digest()) {
            None => Ok(()),
            Some(rank) => {
                let message = format!(
                    "rank {rank} and rank {} assign samples to different nodes: give all ranks the same version of \
                     Foreload, and the same indices=, classes=, files= and weights=",
                    place.rank
                );
                Err(Error::config("peers", message))
            }
        }
    }
}

/// Returns how many of `capacity` bytes samples can use. The tables of segments and the unused ends of segments take
/// the rest.
fn usable(capacity: u64) -> u64 {
    capacity - capacity / 128
}

/// Starts the node's server, and makes the message about it for all nodes. If the server cannot start, the message has
/// the reason.
fn start(
    options: &PeersOptions,
    met: &RanksMet,
    token: &Token,
    own_reads_wait: &Arc<AtomicBool>,
    connections: usize,
    index: &DatasetIndex,
) -> (Option<Server>, EndpointMessage) {
    let started = || {
        let listen = options.meeting.listen(met.nodes.len())?;
        let tls = options.tls.then(TlsIdentity::for_this_job).transpose()?;
        let pin = tls.as_ref().map(|tls| tls.pin().0);
        let own_reads_wait = own_reads_wait.clone();
        let usual = ServerOptions::new(listen, token.clone());
        // A few of the largest samples must fit at a time.
        let most = if index.has_arrays() { MAX_RECORD } else { u64::MAX };
        let least = 8 * most.min(index.largest().into()) as usize;
        let (buffers, bytes_under_way) = (usual.buffers.max(least), usual.bytes_under_way.max(least));
        let notices = index.notices().clone();
        let options =
            ServerOptions { tls, own_reads_wait, buffers, bytes_under_way, connections, notices, ..usual };
        let server = Server::start(options)?;
        let address = Some(server.address());
        Ok((Some(server), EndpointMessage { address, pin, error: None }))
    };
    started().unwrap_or_else(|error: Error| {
        let error = match error {
            Error::Config { message, .. } => message,
            other => other.to_string(),
        };
        (None, EndpointMessage { error: Some(error), ..EndpointMessage::default() })
    })
}

/// Sends the document `own` to all ranks. Returns the documents of all ranks, and the result of the exchange. `purpose`
/// names the exchange.
///
/// # Errors
/// The errors of [`RankMeeting::meet`]; [`Error::Config`] if a rank sent something else than such a document.
pub fn gather<Document: Serialize + DeserializeOwned>(
    options: &PeersOptions,
    purpose: &str,
    own: &Document,
    place: RankPlace,
) -> Result<(Vec<Document>, RanksMet)> {
    let written = serde_json::to_vec(own).map_err(|error| Error::Internal(error.to_string()))?;
    let met = options.meeting.meet(purpose, &written, place.rank, place.world_size)?;
    let odd = |rank: usize, what: &str| {
        let message = format!(
            "rank {rank} sent {what} in the exchange for {purpose:?}: give all ranks the same version of Foreload"
        );
        Error::config("peers", message)
    };
    if met.payloads.len() != place.world_size as usize {
        return Err(odd(met.payloads.len(), "no message"));
    }
    let mut all: Vec<u32> = met.nodes.iter().flatten().copied().collect();
    all.sort_unstable();
    if !all.into_iter().eq(0..place.world_size) {
        return Err(Error::Internal("the nodes of a meeting do not have all of its ranks".into()));
    }
    let read = |(rank, payload): (usize, &Vec<u8>)| {
        serde_json::from_slice(payload).map_err(|_| odd(rank, "an invalid message"))
    };
    let documents = met.payloads.iter().enumerate().map(read).collect::<Result<_>>()?;
    Ok((documents, met))
}

/// Returns the names of nodes, which stay the same after a restart: the names of their hosts, with a number if several
/// nodes are on one host.
pub fn names<'a>(hosts: impl Iterator<Item = &'a str>) -> Vec<String> {
    let mut seen: HashMap<&str, u32> = HashMap::new();
    let name = |host| {
        let count = seen.entry(host).or_default();
        *count += 1;
        if *count == 1 { host.to_owned() } else { format!("{host} ({count})") }
    };
    hosts.map(name).collect()
}

/// The number of files whose versions the nodes compare.
const COMPARED: u64 = 32;

fn some_files(index: &DatasetIndex) -> Vec<Option<u64>> {
    let samples =
        (0..COMPARED.min(index.len())).map(|number| number * index.len() / COMPARED.min(index.len()));
    let version = |sample| index.current_version(index.extent(sample)).ok().map(|version| version.0);
    samples.map(version).collect()
}

fn warn_of_different_files(index: &DatasetIndex) {
    index.notices().warn_once(("peers", "files"), || {
        "the nodes see different times or inode numbers of the dataset's files, as if each node had its own copy: they \
         can hardly use each other's caches. Put the dataset on a shared file system, or remove peers="
            .to_owned()
    });
}

/// Returns the identity of a directory, which is unique across all nodes; `None` if it was removed.
fn identity(directory: &Path) -> Option<String> {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let found = std::fs::metadata(directory).ok()?;
    Some(format!("{} {} {}", boot.trim(), found.dev(), found.ino()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_of_one_host_have_names_of_their_own() {
        assert_eq!(names(["a", "b", "a", "a"].into_iter()), ["a", "b", "a (2)", "a (3)"]);
    }
}
