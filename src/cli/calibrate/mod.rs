//! The command `foreload calibrate`, which measures the speed of the dataset's storage, of the cache's drive and of the
//! decoders on this machine.

mod decode;
mod scratch;
mod text;

use super::settings::{Settings, TakesSettings};
use super::{emulate, output};
use base::error::{Error, Result};
use base::slot::SlotPool;
use data::dataset::{Contents, DatasetIndex};
use engine::config::{LoaderConfig, LoaderOptions};
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use store::io::storage::{Storage, StorageKind};
use store::io::{Direct, ParallelFsRates};
use store::tier::measure::{self, MeasuredTier};
use store::tier::{Machine, TierRates};

/// The arguments of `foreload calibrate`.
#[derive(Debug, clap::Args)]
pub(super) struct CalibrateArgs {
    /// The dataset, as for `foreload bench`: its storage and the decoding of its samples are measured
    #[arg(value_name = "DATASET")]
    directory: Option<PathBuf>,
    /// Cache directory: its drive is measured with a temporary file of up to 256 MB
    #[arg(long, value_name = "DIR")]
    cache: Option<PathBuf>,
    /// Approximate seconds for each of the three measurements
    #[arg(long, default_value_t = 2.0, value_parser = seconds)]
    seconds: f64,
    /// Make the dataset's storage as slow as a parallel file system, as `foreload bench` does
    #[arg(long, value_name = "SPEC", value_parser = emulate::rates)]
    emulate_pfs: Option<ParallelFsRates>,
    /// Print all measurements as one JSON object
    #[arg(long)]
    json: bool,
    /// Write the rates to this file, for `foreload plan`; needs DATASET and --cache
    #[arg(long, value_name = "FILE", requires_all = ["directory", "cache"])]
    out: Option<PathBuf>,
    #[command(flatten)]
    settings: Settings<CalibrateArgs>,
}

impl TakesSettings for CalibrateArgs {
    const NAMES: Option<&'static [&'static str]> =
        Some(&["fields", "split", "image_size", "threads", "queue_depth", "index_dir", "bad_shards"]);
}

#[derive(Debug, Default, Serialize)]
struct CalibrateReport {
    source: Option<SourceReport>,
    nvme: Option<NvmeReport>,
    decode: Option<decode::DecodeReport>,
    machine: Option<Machine>,
}

#[derive(Debug, Serialize)]
struct SourceReport {
    path: PathBuf,
    file_system: String,
    #[serde(flatten)]
    measured: MeasuredTier,
}

#[derive(Debug, Serialize)]
struct NvmeReport {
    path: PathBuf,
    file_system: String,
    /// Whether reads bypass the page cache. If not, some reads may be served from memory.
    direct: bool,
    written_bytes: u64,
    write_seconds: f64,
    #[serde(flatten)]
    measured: MeasuredTier,
}

/// The assumed size of a sample in bytes if there is no dataset: ImageNet's mean.
const USUAL_SAMPLE: u64 = 110_000;

/// Runs the measurements and prints them.
///
/// # Errors
/// [`Error::Config`] if there is nothing to measure; otherwise the errors of reading, writing or decoding.
pub(super) fn run(args: &CalibrateArgs) -> Result<()> {
    let report = measure(args)?;
    if let (Some(path), Some(machine)) = (&args.out, &report.machine) {
        let json =
            serde_json::to_string_pretty(machine).map_err(|error| Error::Internal(error.to_string()))?;
        std::fs::write(path, json + "\n").map_err(|error| Error::io("write", path, error))?;
    }
    output::print_report(&report, args.json, text::table)
}

#[derive(Debug, Serialize)]
pub(super) struct KnownRates {
    pub(super) source: TierRates,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) nvme: Option<TierRates>,
    pub(super) decode_bandwidth: f64,
}

impl From<Machine> for KnownRates {
    fn from(Machine { source, nvme, decode_bandwidth }: Machine) -> Self {
        Self { source, nvme: Some(nvme), decode_bandwidth }
    }
}

/// Measures the rates of this machine with the dataset in `directory` and a cache in `cache`, in a few seconds.
///
/// # Errors
/// The errors of [`run`].
pub(super) fn rates(directory: &Path, cache: Option<&Path>, options: LoaderOptions) -> Result<KnownRates> {
    let args = CalibrateArgs {
        directory: Some(directory.to_owned()),
        cache: cache.map(Path::to_owned),
        seconds: 2.0,
        emulate_pfs: None,
        json: false,
        out: None,
        settings: options.into(),
    };
    known(&measure(&args)?).ok_or_else(|| Error::Internal("calibration measured only a part".into()))
}

fn measure(args: &CalibrateArgs) -> Result<CalibrateReport> {
    if args.directory.is_none() && args.cache.is_none() {
        return Err(Error::config("calibrate", "has nothing to measure: pass DATASET, --cache, or both"));
    }
    let options = &*args.settings;
    let checked = options.validate()?;
    let limit = Duration::from_secs_f64(args.seconds);
    let mut report = CalibrateReport::default();
    let mut sample = USUAL_SAMPLE;
    let mut depth = options.queue_depth.unwrap_or(32) as usize;
    if let Some(directory) = &args.directory {
        let index = DatasetIndex::open(directory, &checked.index_options(Contents::Images))?;
        let index = Arc::new(index);
        let config = checked.check(&index)?;
        sample = index.mean_bytes();
        depth = config.queue_depth;
        report.source = Some(source(&index, &config, args.emulate_pfs, limit)?);
        report.decode = Some(decode::measure(&index, options, limit)?);
    }
    if let Some(cache) = &args.cache {
        report.nvme = Some(scratch::measure(cache, sample, depth, limit)?);
    }
    report.machine = known(&report).and_then(|KnownRates { source, nvme, decode_bandwidth }| {
        Some(Machine { source, nvme: nvme?, decode_bandwidth })
    });
    Ok(report)
}

fn known(report: &CalibrateReport) -> Option<KnownRates> {
    let rates = |nvme: &NvmeReport| TierRates {
        write_bandwidth: nvme.written_bytes as f64 / nvme.write_seconds,
        ..nvme.measured.rates
    };
    Some(KnownRates {
        source: report.source.as_ref()?.measured.rates,
        nvme: report.nvme.as_ref().map(rates),
        decode_bandwidth: report.decode.as_ref()?.bandwidth(),
    })
}

fn source(
    index: &Arc<DatasetIndex>,
    config: &LoaderConfig,
    emulated: Option<ParallelFsRates>,
    limit: Duration,
) -> Result<SourceReport> {
    let (direct, file_system) = match index.local_parts().next() {
        None => (Direct::Off, "http".to_owned()),
        Some((root, sample)) => {
            let storage = Storage::near(&index.path(index.extent(sample).file), root)?;
            (if goes_direct(&storage) { Direct::On } else { Direct::Off }, storage.file_system)
        }
    };
    let config = LoaderConfig { direct, ..config.clone() };
    let open_reader = emulate::open_reader(emulated);
    let open = |slots: &SlotPool, depth: usize| {
        let config = LoaderConfig { queue_depth: depth, ..config.clone() };
        open_reader(index, slots, &config)
    };
    let measured = measure::source(index, &open, config.queue_depth, limit)?;
    Ok(SourceReport { path: index.root().to_owned(), file_system, measured })
}

/// Whether the reads bypass the page cache, so that the measurement is of the drive and not of memory.
fn goes_direct(storage: &Storage) -> bool {
    storage.kind == StorageKind::Local && storage.direct_works == Some(true)
}

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.05..=60.0).contains(&seconds) => Ok(seconds),
        _ => Err(format!("{text:?} is not a number of seconds from 0.05 to 60")),
    }
}

fn absolute(path: &Path) -> Result<PathBuf> {
    std::path::absolute(path).map_err(|error| Error::io("resolve", path, error))
}
