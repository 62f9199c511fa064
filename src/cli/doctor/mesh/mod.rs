//! The flag `--peers` of `foreload doctor`: measures the network between the nodes of a job. It uses the same server
//! and client with which nodes share their caches.
//!
//! All ranks meet and exchange their addresses. Then each node reads small samples from some other nodes, one at a
//! time. Rounds follow, which start at the same time on all nodes: in each round, a node reads large samples from one
//! other node. Finally all ranks exchange their measurements, and rank 0 reports them. Waiting for a node that does not
//! respond is limited by deadlines.

mod measure;
mod rounds;
mod summary;
mod text;

use crate::job::{self, FindsJob, FoundJob, NodeArgs};
use crate::output;
use base::error::{Error, Result};
use engine::config::{parse_bytes, parse_duration};
use measure::{MeasureSettings, NodeMeasure};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use store::peers::{
    CertificatePin, LONGEST_WITHOUT_ANSWER, Peer, ProbeSamples, Server, ServerOptions, TlsIdentity, Token,
    allow_open_files, most_in_flight, probe_dataset,
};
use store::tier::{PeersOptions, RankPlace, RanksMet, gather, node_names};
use summary::{MeshNode, MeshSummary, MeshTerms};

const LARGEST: u64 = 64 << 20;

/// The number of open files, other than connections, to allow for.
const OTHER_FILES: u64 = 256;
/// The number of connections to the node's server, other than those of the measurement, to allow for.
const OTHER_CONNECTIONS: usize = 64;

const NAMED_PROBLEMS: usize = 4;

const REMEDY: &str = "check for a firewall (--listen ADDRESS:PORT sets the port to open), that the nodes can reach one \
                      another at these addresses (--listen ADDRESS sets others), and that all processes still run";

/// The arguments of `foreload doctor` that concern a network.
#[derive(clap::Args, Debug)]
#[command(next_help_heading = "The network between nodes")]
pub(super) struct MeshArgs {
    /// Measure the network between the nodes of a job instead: the command runs on all of them, started by torchrun,
    /// mpirun or srun. Launchers without a rendezvous, such as srun, need a DIRECTORY that all nodes share
    #[arg(long, value_name = "DIRECTORY", require_equals = true, conflicts_with = "path")]
    pub(super) peers: Option<Option<PathBuf>>,
    #[command(flatten)]
    nodes: NodeArgs,
    /// Bytes of a sample, e.g. 110KB, which is ImageNet's mean; at most 64 MiB
    #[arg(long, default_value = "110KB", value_name = "BYTES", value_parser = sample_size)]
    sample_size: u32,
    /// How long to measure in total, e.g. 4s; nodes that cannot be reached take longer
    #[arg(long, default_value = "4s", value_name = "TIME", value_parser = measuring_time)]
    seconds: Duration,
    /// Maximum number of other nodes that each node reads from
    #[arg(long, default_value_t = 16, value_name = "NODES", value_parser = clap::value_parser!(u64).range(1..))]
    rounds: u64,
    /// How long to wait for nodes that do not start or have failed, e.g. 60s
    #[arg(long, default_value = "60s", value_name = "TIME",
          value_parser = |text: &str| parse_duration("patience", text))]
    patience: Duration,
}

fn sample_size(text: &str) -> Result<u32> {
    match parse_bytes("sample-size", text)? {
        bytes @ 1..=LARGEST => Ok(bytes as u32),
        bytes => Err(Error::config("sample-size", format!("is {bytes} bytes, must be 1 to {LARGEST}"))),
    }
}

fn measuring_time(text: &str) -> Result<Duration> {
    match parse_duration("seconds", text)? {
        Duration::ZERO => Err(Error::config("seconds", "is 0, must be more, e.g. 4s")),
        time => Ok(time),
    }
}

/// A rank's first message: the settings, which must be the same on all ranks, and its host.
#[derive(Serialize, Deserialize)]
struct MeshHello {
    terms: MeshTerms,
    host: String,
    /// The id of the machine's current boot, which all containers and network namespaces of a machine share.
    boot: String,
}

/// The address on which a node listens, or the reason why it does not listen. The first rank of the node sends it.
#[derive(Default, Serialize, Deserialize)]
struct MeshEndpoint {
    address: Option<SocketAddr>,
    pin: Option<[u8; 32]>,
    error: Option<String>,
}

/// Measures the network. Rank 0 prints the report.
///
/// # Errors
/// The errors of finding the job and of meeting. On rank 0, [`Error::Unavailable`] with the names of unreachable nodes.
pub(super) fn run(
    args: &MeshArgs,
    directory: Option<&PathBuf>,
    json: bool,
    finder: Option<&dyn FindsJob>,
) -> Result<()> {
    // All nodes wait for a node whose reads time out, so add the longest time that such reads take.
    let unresponsive_wait =
        LONGEST_WITHOUT_ANSWER.saturating_mul(args.rounds.min(u64::from(u32::MAX)) as u32);
    let patience = args.patience.saturating_add(args.seconds).saturating_add(unresponsive_wait);
    let FoundJob { rank, world_size, meeting, .. } = job::find(finder, directory, &args.nodes, patience)?;
    let options = PeersOptions { meeting, tls: args.nodes.tls };
    let ranks = Ranks { place: RankPlace { rank, world_size }, options };
    let Some(summary) = measure_all(args, &ranks)? else { return Ok(()) };
    if json {
        output::print_json(&summary)?
    } else {
        output::print(&text::describe(&summary))?
    }
    match summary.problems.is_empty() {
        true => Ok(()),
        false => {
            let named = summary::first_of(&summary.problems, NAMED_PROBLEMS).join("; ");
            Err(Error::Unavailable(format!("{named}: {REMEDY}")))
        }
    }
}

struct Ranks {
    place: RankPlace,
    options: PeersOptions,
}

impl Ranks {
    /// Sends a document to all ranks, and returns the documents of all ranks, in order of rank.
    fn meet<Document: Serialize + DeserializeOwned>(
        &self,
        purpose: &str,
        own: &Document,
    ) -> Result<(Vec<Document>, RanksMet)> {
        gather(&self.options, purpose, own, self.place)
    }

    fn wait_for_all(&self, purpose: &str) -> Result<()> {
        self.meet(purpose, &()).map(drop)
    }
}

/// Measures from this node. Rank 0 gets the measurements of all nodes, the other ranks get `None`.
fn measure_all(args: &MeshArgs, ranks: &Ranks) -> Result<Option<MeshSummary>> {
    let terms = MeshTerms {
        version: base::version::get().to_owned(),
        sample_bytes: args.sample_size,
        seconds: args.seconds.as_secs_f64(),
        most_rounds: args.rounds,
        tls: args.nodes.tls,
    };
    let own = MeshHello {
        terms,
        host: rustix::system::uname().nodename().to_string_lossy().into_owned(),
        boot: std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default(),
    };
    let (hellos, mut met) = ranks.meet("doctor, which nodes there are", &own)?;
    if let Some(rank) = hellos.iter().position(|hello| hello.terms != own.terms) {
        let message = format!(
            "rank {rank} and rank {} have different settings or versions; start all with the same command",
            ranks.place.rank
        );
        return Err(Error::config("peers", message));
    }
    let one_node = met.nodes.len() == 1;
    if one_node {
        // There is only one node, so count each rank as a node to have something to measure.
        met.nodes = met.nodes.concat().into_iter().map(|rank| vec![rank]).collect();
    }
    let first_of = |ranks: &Vec<u32>| ranks.first().copied().unwrap_or(0);
    let own_node = met.nodes.iter().position(|node| first_of(node) == ranks.place.rank);
    let token = Token::of_job(&met.secret);
    let dataset = probe_dataset(&met.secret);
    let listen = || match one_node && args.nodes.listen.is_none() {
        true => Ok(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))),
        false => ranks.options.meeting.listen(met.nodes.len()),
    };
    let distances = rounds::distances(met.nodes.len(), args.rounds as usize);
    let connections = measure::connections(met.nodes.len());
    let (server, endpoint) = match own_node {
        Some(_) => serve(listen, args, &token, connections, distances.len()),
        None => (None, MeshEndpoint::default()),
    };
    if let Some(server) = &server {
        server.share(dataset, Arc::new(ProbeSamples::new(args.sample_size)));
    }
    let (endpoints, _) = ranks.meet("doctor, where nodes listen", &endpoint)?;
    let names = node_names(met.nodes.iter().map(|node| &hellos[first_of(node) as usize].host[..]));
    let mut nodes = Vec::new();
    let mut peers = Vec::new();
    for (node, name) in met.nodes.iter().zip(names) {
        let (rank, MeshEndpoint { address, pin, error }) =
            (first_of(node), &endpoints[first_of(node) as usize]);
        let Some(address) = *address else {
            let why = error.as_deref().unwrap_or("it is not listening");
            return Err(Error::config("peers", format!("node {name} (rank {rank}): {why}")));
        };
        nodes.push(MeshNode { name, rank, address });
        peers.push(Peer { address, pin: pin.map(CertificatePin) });
    }
    let sample_bytes = args.sample_size;
    let by =
        MeasureSettings { peers: &peers, dataset, token, sample_bytes, seconds: args.seconds, connections };
    let measured = match own_node {
        Some(own_node) => measure::run(&by, own_node, &distances, |purpose| ranks.wait_for_all(purpose))?,
        None => {
            // Only the first rank of a node measures. The other ranks just attend the meetings.
            (0..=distances.len()).try_for_each(|number| ranks.wait_for_all(&measure::purpose(number)))?;
            NodeMeasure::default()
        }
    };
    let (measures, _) = ranks.meet("doctor, what was measured", &measured)?;
    if ranks.place.rank != 0 {
        return Ok(None);
    }
    let measures: Vec<&NodeMeasure> = nodes.iter().map(|node| &measures[node.rank as usize]).collect();
    let place = match hellos.iter().all(|hello| hello.boot == own.boot) {
        _ if one_node => summary::NodePlacement::OneNode,
        true => summary::NodePlacement::OneMachine,
        false => summary::NodePlacement::Apart,
    };
    Ok(Some(MeshSummary::new(own.terms, place, connections, nodes, &measures)))
}

/// Starts the node's server. An error is reported to all ranks.
fn serve(
    listen: impl Fn() -> Result<SocketAddr>,
    args: &MeshArgs,
    token: &Token,
    connections: usize,
    rounds: usize,
) -> (Option<Server>, MeshEndpoint) {
    let start = || {
        let tls = args.nodes.tls.then(TlsIdentity::for_this_job).transpose()?;
        let pin = tls.as_ref().map(|tls| tls.pin().0);
        let usual = ServerOptions::new(listen()?, token.clone());
        // Allow for all reads that one other node has in flight at a time. Connections of earlier rounds stay open, so
        // allow for the connections of all rounds.
        let bytes_under_way = usual.bytes_under_way.max(most_in_flight(args.sample_size, connections));
        let kept = connections * rounds;
        let allowed = allow_open_files(2 * kept as u64 + OTHER_FILES) as usize;
        let connections = (kept + OTHER_CONNECTIONS).min(allowed / 2);
        let server = Server::start(ServerOptions { tls, bytes_under_way, connections, ..usual })?;
        let address = Some(server.address());
        Ok((Some(server), MeshEndpoint { address, pin, error: None }))
    };
    start().unwrap_or_else(|error: Error| {
        let error = match error {
            Error::Config { message, .. } => message,
            other => other.to_string(),
        };
        (None, MeshEndpoint { error: Some(error), ..MeshEndpoint::default() })
    })
}
