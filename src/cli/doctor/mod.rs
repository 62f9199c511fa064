//! The command `foreload doctor`, which shows what this machine offers, what will be chosen, and why. With `--peers` it
//! measures the network between machines instead.

mod mesh;

use super::job::FindsJob;
use super::output;
use base::error::{Error, Result};
use base::names::NamedValue;
use base::simd::Level;
use engine::config;
use pixels::decode::cuda::CUDA_DECODERS;
use pixels::decode::nvjpeg;
use pixels::gpu;
use rustix::param::page_size;
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use store::io::{IoChoice, PathReport, ProbeReport, probe};

/// The arguments of `foreload doctor`.
#[derive(Debug, clap::Args)]
pub(crate) struct DoctorArgs {
    /// Also show how data at this path will be read
    #[arg(value_name = "PATH")]
    path: Option<PathBuf>,
    /// Print the findings as one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    mesh: mesh::MeshArgs,
}

#[derive(Debug, Serialize)]
struct DoctorReport {
    version: &'static str,
    kernel: String,
    architecture: &'static str,
    processors: usize,
    page_bytes: usize,
    memory_bytes: u64,
    simd: ChoiceReport,
    gpu: gpu::Probe,
    nvjpeg: String,
    /// For each decoder on the GPU, by name: what the decoder can do, or why it cannot be used. Empty if no GPU will be
    /// used.
    abilities: Vec<(String, String)>,
    device: ChoiceReport,
    decoders: ChoiceReport,
    #[serde(flatten)]
    probe: ProbeReport,
    path: Option<PathFindings>,
}

#[derive(Debug, Serialize)]
struct ChoiceReport {
    chosen: String,
    because: String,
}

#[derive(Debug, Serialize)]
struct PathFindings {
    path: PathBuf,
    bytes: u64,
    /// Whether all bytes were counted.
    counted: bool,
    #[serde(flatten)]
    reading: PathReport,
}

pub(crate) fn run(args: &DoctorArgs, finder: Option<&dyn FindsJob>) -> Result<()> {
    if let Some(directory) = &args.mesh.peers {
        return mesh::run(&args.mesh, directory.as_ref(), args.json, finder);
    }
    let probe = probe();
    let gpu = gpu::probe();
    let path = args.path.as_deref().map(|path| examine_path(path, &probe)).transpose()?;
    let system = rustix::system::uname();
    let report = DoctorReport {
        version: base::version::get(),
        kernel: format!("{} {}", system.sysname().to_string_lossy(), system.release().to_string_lossy()),
        architecture: std::env::consts::ARCH,
        processors: std::thread::available_parallelism().map_or(1, usize::from),
        page_bytes: page_size(),
        memory_bytes: rustix::system::sysinfo().totalram as u64
            * u64::from(rustix::system::sysinfo().mem_unit),
        simd: simd(),
        device: device(&gpu),
        decoders: decoders(),
        nvjpeg: nvjpeg(),
        abilities: abilities(&gpu),
        gpu,
        probe,
        path,
    };
    if args.json { output::print_json(&report) } else { output::print(&describe(&report)) }
}

fn simd() -> ChoiceReport {
    let chosen = Level::detect();
    let best = Level::available().last().unwrap_or(Level::Portable);
    let because = match best {
        _ if chosen < best => format!("set by FORELOAD_SIMD; this processor has {}", best.name()),
        Level::Avx512 => "this processor has all features that Foreload uses".to_owned(),
        Level::Avx2 => "this processor lacks AVX-512 with BW, CD, DQ, VL, VBMI, VBMI2 and VNNI".to_owned(),
        Level::Portable if cfg!(target_arch = "x86_64") => {
            "this processor lacks AVX2 with FMA, F16C, BMI1, BMI2, LZCNT and POPCNT".to_owned()
        }
        Level::Portable => format!("there are no kernels for {} yet", std::env::consts::ARCH),
    };
    ChoiceReport { chosen: chosen.name().to_owned(), because }
}

fn device(gpu: &gpu::Probe) -> ChoiceReport {
    match config::choose_device_of("auto", config::GpuDecoder::Auto, false, || gpu.clone()) {
        Ok(found) => ChoiceReport { chosen: found.device.to_string(), because: found.why },
        Err(error) => ChoiceReport { chosen: "none".to_owned(), because: error.to_string() },
    }
}

fn decoders() -> ChoiceReport {
    match config::AllowedBackends::from_environment() {
        Ok(config::AllowedBackends::All) => ChoiceReport {
            chosen: "all".to_owned(),
            because:
                "images are decoded by the engine, else by CUDA kernels, else by the CPU, with different rounding; \
                      set FORELOAD_GPU_BACKEND=hardware, cuda_batched, cuda or cpu to use only one"
                    .to_owned(),
        },
        Ok(backends) => ChoiceReport {
            chosen: backends.name().to_owned(),
            because: "set by FORELOAD_GPU_BACKEND; the CPU decodes the rest".to_owned(),
        },
        Err(error) => ChoiceReport { chosen: "none".to_owned(), because: error.to_string() },
    }
}

/// Says how a GPU's work is ordered relative to other GPU code of the process.
const STREAMS: &str = "batches are ordered with the consumer's stream, and with others by Batch.used_by; captures of \
                       CUDA graphs are not disturbed";

fn nvjpeg() -> String {
    match nvjpeg::Library::load() {
        Ok(library) => format!("{} at {}", library.version(), library.path().display()),
        Err(error) => error.to_string(),
    }
}

/// The abilities of Foreload's own GPU decoders and of nvJPEG's decoders, probed in the same way as in a loader; empty
/// if no GPU will be used. Unlike a loader, this function keeps no decoders or kernels.
fn abilities(gpu: &gpu::Probe) -> Vec<(String, String)> {
    let Ok(config::ChosenDevice { device: config::Device::Cuda { ordinal }, .. }) =
        config::choose_device_of("auto", config::GpuDecoder::Auto, false, || gpu.clone())
    else {
        return Vec::new();
    };
    let tried = gpu::GpuDevice::open(ordinal)
        .and_then(|device| nvjpeg::Abilities::probe(&nvjpeg::Library::load()?, &device));
    match tried {
        Ok(abilities) => {
            let engines = abilities.engines().map_or_else(String::new, |(engines, cores)| {
                format!("engines {engines}, cores of each {cores}; ")
            });
            let describe = |backend: nvjpeg::NvJpegBackend| {
                let engines = if backend == nvjpeg::NvJpegBackend::Hardware { &engines[..] } else { "" };
                (backend.name().to_owned(), format!("{engines}{}", abilities.describe(backend)))
            };
            let own = |(name, can): (&str, &str)| (name.to_owned(), can.to_owned());
            CUDA_DECODERS.map(own).into_iter().chain(nvjpeg::NvJpegBackend::ALL.map(describe)).collect()
        }
        Err(error) => vec![("none".to_owned(), error.to_string())],
    }
}

fn gpus(DoctorReport { gpu, nvjpeg, decoders, abilities, .. }: &DoctorReport) -> Vec<String> {
    let driver = gpu.driver.map(|version| format!("  driver       supports CUDA up to {version}"));
    let device = |device: &gpu::DeviceInfo| {
        let memory = output::bytes(device.memory);
        let what = format!("{}, compute capability {}, {memory}", device.name, device.capability);
        let problem =
            device.problem.as_ref().map_or_else(String::new, |why| format!("; cannot be used: {why}"));
        format!("  {:<12} {what}{problem}", format!("cuda:{}", device.ordinal))
    };
    let rest = gpu.driver.map(|_| {
        [
            format!("  nvJPEG       {nvjpeg}"),
            format!("  decoders     {}: {}", decoders.chosen, decoders.because),
            format!("  streams      {STREAMS}"),
        ]
    });
    let abilities = abilities.iter().map(|(name, what)| format!("  {name:<12} {what}"));
    let devices = gpu.devices.iter().map(device);
    driver.into_iter().chain(devices).chain(rest.into_iter().flatten()).chain(abilities).collect()
}

/// The time limit for counting bytes. The count is only needed to say whether the data fit in memory.
const COUNT_LIMIT: Duration = Duration::from_secs(2);

fn examine_path(path: &Path, probe: &ProbeReport) -> Result<PathFindings> {
    if data::source::url(path).is_some() {
        return Err(Error::dataset(data::source::shown(path), "is a URL: pass a path on a file system"));
    }
    // An error of the path itself is reported. The bytes of a subdirectory that cannot be listed are not counted.
    std::fs::metadata(path).map_err(|error| Error::io("look at", path, error))?;
    let began = Instant::now();
    let (mut bytes, mut counted) = (0, true);
    let mut left = vec![path.to_owned()];
    while let Some(next) = left.pop() {
        if began.elapsed() > COUNT_LIMIT {
            counted = false;
            break;
        }
        match std::fs::symlink_metadata(&next) {
            Ok(found) if found.is_dir() || next == path => match std::fs::read_dir(&next) {
                Ok(entries) => left.extend(entries.flatten().map(|entry| entry.path())),
                Err(_) if !found.is_dir() => bytes += std::fs::metadata(&next).map_or(0, |found| found.len()),
                Err(_) => counted = false,
            },
            Ok(found) => bytes += found.len(),
            Err(_) => counted = false,
        }
    }
    Ok(PathFindings { path: path.to_owned(), bytes, counted, reading: probe.choice(path, bytes)? })
}

fn describe(report: &DoctorReport) -> String {
    let probe = &report.probe;
    let limit = |limit: Option<u64>| limit.map_or_else(|| "unlimited".to_owned(), output::bytes);
    let ring = match (&probe.io_uring.mode, &probe.io_uring.problem) {
        (Some(mode), None) => format!("works, with {}", mode.describe()),
        (_, Some(problem)) => format!("is not used: {problem}"),
        (None, None) => "is not permitted".to_owned(),
    };
    let registered = match &probe.io_uring.unregistered {
        None => "can be registered".to_owned(),
        Some(why) => format!("are not registered: {why}"),
    };
    let mut lines = vec![
        format!("foreload {} on {}, {}", report.version, report.kernel, report.architecture),
        format!("  processors   {}", report.processors),
        format!(
            "  memory       {}, {} available to the page cache",
            output::bytes(report.memory_bytes),
            output::bytes(probe.available_memory)
        ),
        format!("  simd         {}: {}", report.simd.chosen, report.simd.because),
        format!("  device       {}: {}", report.device.chosen, report.device.because),
    ];
    lines.extend(gpus(report));
    lines.extend([
        format!("  io_uring     {ring}"),
        format!("  buffers      {registered}; locked memory is limited to {}", limit(probe.memlock_limit)),
        format!("  huge pages   {}", huge_pages(probe.huge_pages.as_deref())),
        format!(
            "  open files   {}",
            probe.open_files_limit.map_or_else(|| "unlimited".to_owned(), |limit| limit.to_string())
        ),
    ]);
    if let Some(at) = &report.path {
        let reading = &at.reading;
        let io = if reading.io == IoChoice::Pread { "threads with pread" } else { "io_uring" };
        let cache = if reading.direct { "bypassing the page cache" } else { "through the page cache" };
        let least = if at.counted { "" } else { "at least " };
        lines.push(format!(
            "{}: {least}{} on {}",
            at.path.display(),
            output::bytes(at.bytes),
            reading.storage.file_system
        ));
        lines.push(format!("  reader       {io}: {}", reading.why_io));
        lines.push(format!("  page cache   {cache}: {}", reading.why_direct));
    }
    lines.join("\n")
}

fn huge_pages(setting: Option<&str>) -> String {
    match setting {
        Some("never") => "never: reads are slower; enable them with \
                          `echo madvise > /sys/kernel/mm/transparent_hugepage/enabled`"
            .to_owned(),
        Some(setting) => format!("{setting}: used for read buffers"),
        None => "this kernel has none".to_owned(),
    }
}
