//! The report that `foreload bench --json` prints, built from the counters.

use super::epochs::{BenchRun, EpochWork};
use super::place::BenchPlace;
use super::stall::Stall;
use crate::usage::ProcessUsage;
use base::names::{NamedValue, as_map};
use base::notices::Notice;
use base::tier_name::TierName;
use base::trace::{Histogram, TraceNumber};
use engine::config::{Device, LoaderConfig};
use engine::pipeline::{EpochStats, GpuStats, Pipeline, StageTimes};
use pixels::decode::DecodeCounts;
use serde::{Serialize, Serializer};
use std::collections::BTreeMap;
use std::time::Instant;
use store::peers::{PeerStats, ServerStats};
use store::tier::{Cache, CacheStats};

/// The report that `--json` prints. Later versions may add fields, but do not change the meaning of existing fields.
#[derive(Debug, Serialize)]
pub(super) struct BenchReport {
    pub(super) version: &'static str,
    pub(super) rank: u32,
    pub(super) world_size: u32,
    pub(super) device: String,
    pub(super) device_reason: String,
    pub(super) decode: &'static str,
    pub(super) dtype: &'static str,
    pub(super) memory_format: &'static str,
    pub(super) image_size: u32,
    pub(super) simd: &'static str,
    pub(super) io: String,
    pub(super) threads: usize,
    /// How many processors the loader may keep busy on average; absent without `--cpu`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) cores: Option<f64>,
    pub(super) batch_size: u32,
    pub(super) samples: u64,
    pub(super) labeled: bool,
    pub(super) index_seconds: f64,
    pub(super) first_batch_seconds: f64,
    pub(super) epochs: Vec<EpochReport>,
    pub(super) stages: StageReports,
    /// How long the consumer waited for a batch, in all epochs.
    pub(super) stall_per_step: Percentiles,
    /// The time from requesting a sample to getting it, in all epochs.
    pub(super) latency: Latency,
    pub(super) decoded_by: DecoderReport,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) gpu: Option<GpuReport>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) peers: Option<PeersReport>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) stall: Option<Stall>,
    pub(super) peak_rss_bytes: u64,
    pub(super) notices: Vec<Notice>,
}

impl BenchReport {
    pub(super) fn new(
        pipeline: &Pipeline,
        place: &BenchPlace,
        pass: BenchRun,
        start: Instant,
        index_seconds: f64,
    ) -> Self {
        let (config, index) = (pipeline.config(), pipeline.index());
        let seconds: f64 = pass.epochs.iter().map(|epoch| epoch.seconds).sum();
        let waited: f64 = pass.epochs.iter().map(|epoch| epoch.wait_seconds).sum();
        let total = &pass.total;
        Self {
            version: base::version::get(),
            rank: place.rank,
            world_size: place.world_size,
            device: if config.device == Device::Cpu { "cpu" } else { "cuda" }.into(),
            device_reason: config.device_reason.clone(),
            decode: config.output().fidelity.name(),
            dtype: config.output().dtype.name(),
            memory_format: config.output().format.name(),
            image_size: config.output().height,
            simd: base::simd::Level::detect().name(),
            io: pipeline.io(),
            threads: config.threads,
            cores: pipeline.cores(),
            batch_size: config.batch_size,
            samples: index.len(),
            labeled: index.is_labeled(),
            index_seconds,
            first_batch_seconds: pass.first_batch.map_or(0.0, |first| (first - start).as_secs_f64()),
            stages: stages(&total.stages, seconds, waited, config.threads),
            gpu: gpu(config, total),
            decoded_by: DecoderReport {
                images: total.decoded,
                rows_known: total.rows_known,
                concealed: total.concealed,
            },
            stall_per_step: Percentiles::of(&total.stalls),
            latency: Latency::of(total),
            epochs: pass.epochs,
            notices: pass.notices,
            stall: None,
            peers: pipeline.cache().filter(|_| place.peers.on).map(|cache| PeersReport::new(cache)),
            peak_rss_bytes: ProcessUsage::now().peak_rss_bytes,
        }
    }
}

#[derive(Debug, Serialize)]
pub(super) struct PeersReport {
    #[serde(serialize_with = "by_node")]
    pub(super) nodes: Vec<(String, PeerStats)>,
    #[serde(serialize_with = "of_server")]
    pub(super) served: Option<ServerStats>,
}

impl PeersReport {
    fn new(cache: &Cache) -> Self {
        Self { nodes: cache.peers(), served: cache.served() }
    }
}

fn by_node<S: Serializer>(nodes: &[(String, PeerStats)], to: S) -> Result<S::Ok, S::Error> {
    let values = |peer: &PeerStats| peer.by_name().into_iter().collect::<BTreeMap<_, _>>();
    to.collect_map(nodes.iter().map(|(node, peer)| (node, values(peer))))
}

fn of_server<S: Serializer>(served: &Option<ServerStats>, to: S) -> Result<S::Ok, S::Error> {
    served.map(|served| served.by_name().collect::<BTreeMap<_, _>>()).serialize(to)
}

#[derive(Debug, Serialize)]
pub(super) struct EpochReport {
    pub(super) epoch: u64,
    /// What the samples are in the text: images or samples.
    #[serde(skip)]
    pub(super) unit: &'static str,
    pub(super) images: u64,
    pub(super) seconds: f64,
    pub(super) images_per_s: f64,
    pub(super) cpu_seconds: f64,
    pub(super) wait_seconds: f64,
    pub(super) source_bytes: u64,
    /// The bytes that were not read, because they belong to parts of samples that no batch needs.
    pub(super) source_bytes_skipped: u64,
    pub(super) source_reads: u64,
    pub(super) source_opens: u64,
    pub(super) source_requests: u64,
    pub(super) source_retries: u64,
    /// The number of hedged requests: second requests that were sent while a slow first request was still open.
    pub(super) source_hedges: u64,
    pub(super) blocks_unpacked: u64,
    /// The bytes of all decompressed blocks, after decompression.
    pub(super) blocks_unpacked_bytes: u64,
    pub(super) cache_hits: u64,
    pub(super) cache_bytes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) cache: Option<CacheStats>,
    pub(super) errors: u64,
    pub(super) steps: u64,
    pub(super) stall_per_step: Percentiles,
    pub(super) latency: Latency,
    pub(super) sha256: Option<String>,
    #[serde(skip)]
    pub(super) work: EpochWork,
}

/// A distribution of durations, in seconds.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub(super) struct Percentiles {
    pub(super) count: u64,
    pub(super) p50: f64,
    pub(super) p90: f64,
    pub(super) p99: f64,
    pub(super) max: f64,
}

impl Percentiles {
    pub(super) fn of(times: &Histogram) -> Self {
        Self {
            count: times.count(),
            p50: times.quantile(0.5),
            p90: times.quantile(0.9),
            p99: times.quantile(0.99),
            max: times.max(),
        }
    }
}

/// The latency, by the name of the tier that the bytes came from.
#[derive(Debug, Clone, Default, Serialize)]
pub(super) struct Latency {
    #[serde(flatten, serialize_with = "as_map")]
    pub(super) tiers: Vec<(TierName, Percentiles)>,
}

impl Latency {
    pub(super) fn of(stats: &EpochStats) -> Self {
        let of = |(tier, times): &(TierName, Histogram)| (*tier, Percentiles::of(times));
        Self { tiers: stats.latencies.iter().map(of).collect() }
    }
}

/// How each stage spent its time, as shares of the wall time of all epochs, per thread of the stage.
#[derive(Debug, Serialize)]
pub(super) struct StageReports {
    pub(super) limit: &'static str,
    pub(super) read: StageReport,
    pub(super) decode: StageReport,
    pub(super) augment: StageReport,
    pub(super) consumer: StageReport,
}

#[derive(Debug, Serialize)]
pub(super) struct StageReport {
    pub(super) threads: usize,
    pub(super) busy: f64,
    /// The share of the time spent waiting for input (for `read`: for storage).
    pub(super) waiting: f64,
    /// The share of the time spent waiting for space in the next stage.
    pub(super) blocked: f64,
}

#[derive(Debug, Serialize)]
pub(super) struct DecoderReport {
    #[serde(flatten, serialize_with = "by_name")]
    pub(super) images: DecodeCounts,
    /// The number of images for which the region decoder knew the row positions from an earlier decoding.
    pub(super) rows_known: u64,
    /// The number of damaged images that the region decoder decoded.
    pub(super) concealed: u64,
}

fn by_name<S: Serializer>(images: &DecodeCounts, to: S) -> Result<S::Ok, S::Error> {
    to.collect_map(images.iter().map(|(backend, count)| (backend.name(), count)))
}

/// The GPU's work in all epochs. Seconds are summed over batches that are in flight at the same time.
#[derive(Debug, Serialize)]
pub(super) struct GpuReport {
    pub(super) ordinal: u32,
    pub(super) decoder: &'static str,
    pub(super) cpu_decode: &'static str,
    /// `stats` and `decoded_cpu` by name, for `--json`.
    #[serde(flatten, serialize_with = "as_map")]
    numbers: [(&'static str, TraceNumber); 12],
    #[serde(skip)]
    pub(super) stats: GpuStats,
    #[serde(skip)]
    pub(super) decoded_cpu: u64,
}

fn gpu(config: &LoaderConfig, total: &EpochStats) -> Option<GpuReport> {
    let Device::Cuda { ordinal } = config.device else { return None };
    Some(GpuReport {
        ordinal,
        decoder: config.decoder.name(),
        cpu_decode: config.cpu_decode.name(),
        numbers: total.gpu_by_name(),
        stats: total.gpu,
        decoded_cpu: total.decoded_cpu(),
    })
}

fn stages(times: &StageTimes, seconds: f64, waited: f64, threads: usize) -> StageReports {
    let of_one = |time: f64| time / seconds.max(f64::MIN_POSITIVE);
    let of_workers = |time: f64| of_one(time) / threads as f64;
    let (decode, augment) = (of_workers(times.decode_busy), of_workers(times.augment_busy));
    let waiting = of_workers(times.workers_waiting);
    let consumer_waits = of_one(waited);
    let consumer_busy = (1.0 - consumer_waits).max(0.0);
    let storage = of_one(times.read_busy) + of_one(times.read_waiting);
    // The limiting stage has the least idle time. Waiting for storage counts as work of `read`. The same workers decode
    // and augment, so these two shares are added.
    let limit = if consumer_busy > storage.max(decode + augment) {
        "consumer"
    } else if storage > decode + augment {
        "read"
    } else if decode >= augment {
        "decode"
    } else {
        "augment"
    };
    StageReports {
        limit,
        read: StageReport {
            threads: 1,
            busy: of_one(times.read_busy),
            waiting: of_one(times.read_waiting),
            blocked: of_one(times.read_blocked),
        },
        decode: StageReport { threads, busy: decode, waiting, blocked: 0.0 },
        augment: StageReport { threads, busy: augment, waiting, blocked: 0.0 },
        consumer: StageReport { threads: 1, busy: consumer_busy, waiting: consumer_waits, blocked: 0.0 },
    }
}
