//! Where batches end: what was asked, and what this machine has.

use super::Choice;
use crate::decode::nvjpeg;
use crate::error::{Error, Result};
use crate::gpu::{self, DeviceInfo};
use std::path::PathBuf;

/// Where batches end.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Device {
    /// Host memory; decoded by the CPU.
    #[default]
    Cpu,
    /// Memory of a GPU.
    Cuda {
        /// Its number among the devices the driver shows this process.
        ordinal: u32,
    },
}

impl std::fmt::Display for Device {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Cpu => f.write_str("cpu"),
            Self::Cuda { ordinal } => write!(f, "cuda:{ordinal}"),
        }
    }
}

/// What the CPU decodes when batches end on a GPU.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum CpuDecode {
    /// What the GPU's decoders do not know: CMYK, 12 bits, PNG, ...; and that of which they would have the host decode
    /// the Huffman codes, which costs it more: progressive images, and batches that are too small where there is no
    /// engine.
    #[default]
    Fallback,
    /// That, and as much more as makes the whole fastest.
    Auto,
    /// Nothing: what the GPU's decoders do not know is an error of its sample.
    Never,
}

/// Which decoders may serve on the way to a GPU: for tests and measurements, by the variable `FORELOAD_GPU_BACKEND`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum AllowedBackends {
    /// Each image the first that knows its kind.
    #[default]
    All,
    /// The GPU's decoding engine; the CPU for the rest.
    Hardware,
    /// CUDA kernels in large batches; the CPU for the rest.
    CudaBatched,
    /// CUDA kernels, image by image; the CPU for the rest.
    Cuda,
    /// The CPU for all.
    Cpu,
}

impl AllowedBackends {
    /// What the environment asks for.
    ///
    /// # Errors
    /// [`Error::Config`] for a name there is not.
    pub fn from_environment() -> Result<Self> {
        match std::env::var("FORELOAD_GPU_BACKEND") {
            Ok(name) if !name.is_empty() => Self::parse("FORELOAD_GPU_BACKEND", &name),
            _ => Ok(Self::All),
        }
    }
}

impl Choice for AllowedBackends {
    const NAMES: &'static [(&'static str, Self)] = &[
        ("all", Self::All),
        ("hardware", Self::Hardware),
        ("cuda_batched", Self::CudaBatched),
        ("cuda", Self::Cuda),
        ("cpu", Self::Cpu),
    ];
}

impl Choice for CpuDecode {
    const NAMES: &'static [(&'static str, Self)] =
        &[("fallback", Self::Fallback), ("auto", Self::Auto), ("never", Self::Never)];
}

/// `device=` as text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Asked {
    Auto,
    Cpu,
    /// With the number, if one was given.
    Cuda(Option<u32>),
}

fn parse(text: &str) -> Result<Asked> {
    let bad = || Error::config("device", format!("is {text:?}, must be auto, cpu, cuda or cuda:N"));
    match text {
        "auto" => Ok(Asked::Auto),
        "cpu" => Ok(Asked::Cpu),
        "cuda" => Ok(Asked::Cuda(None)),
        _ => {
            let number = text.strip_prefix("cuda:").ok_or_else(bad)?;
            Ok(Asked::Cuda(Some(number.parse().map_err(|_| bad())?)))
        }
    }
}

/// Whether `text` is a way to name a device, there or not.
pub(super) fn is_device(text: &str) -> bool {
    parse(text).is_ok()
}

/// Whether `text` can be had.
///
/// # Errors
/// As [`choose`].
pub(super) fn validate(text: &str) -> Result<()> {
    match parse(text)? {
        Asked::Auto | Asked::Cpu => Ok(()),
        Asked::Cuda(_) => choose(text).map(|_| ()),
    }
}

/// Makes NVIDIA's libraries be looked for in these directories of Python packages too (`sys.path`).
pub(crate) fn look_for_libraries_in(packages: Vec<PathBuf>) {
    nvjpeg::Library::look_in(packages);
}

/// A device, and why it is that one.
#[derive(Debug, Clone)]
pub(crate) struct Chosen {
    /// Where batches end.
    pub device: Device,
    /// In words.
    pub why: String,
    /// Bytes of a GPU's memory.
    pub memory: u64,
    /// A GPU is there, or a driver that does not start; none was asked for by name, and it does not serve.
    pub overlooked: bool,
}

/// The device that `text` means here.
///
/// # Errors
/// [`Error::Config`] for text that means nothing; [`Error::Unavailable`] for a GPU that is asked for and cannot serve.
pub(crate) fn choose(text: &str) -> Result<Chosen> {
    choose_of(text, gpu::probe)
}

/// As [`choose`], among what `probe` finds, which is asked only when it matters.
///
/// # Errors
/// As [`choose`].
pub(crate) fn choose_of(text: &str, probe: impl FnOnce() -> gpu::Probe) -> Result<Chosen> {
    let cpu = |why: String, overlooked| Chosen { device: Device::Cpu, why, memory: 0, overlooked };
    let asked = parse(text)?;
    if asked == Asked::Cpu {
        return Ok(cpu("as asked".into(), false));
    }
    let wish = match asked {
        Asked::Cuda(Some(ordinal)) => Ok(Wish::Exactly(ordinal)),
        _ => launchers_wish(),
    };
    let probe = probe();
    match (wish.and_then(|wish| gpu_that_serves(&probe, wish)), asked) {
        (Ok(gpu), _) => {
            let device = Device::Cuda { ordinal: gpu.ordinal };
            Ok(Chosen { device, why: gpu.name, memory: gpu.memory, overlooked: false })
        }
        (Err(why), Asked::Auto) => Ok(cpu(why, !probe.absent)),
        (Err(why), _) => Err(unavailable(text, &why)),
    }
}

/// That the GPU asked for as `device` cannot serve.
pub(crate) fn unavailable(device: &str, why: &str) -> Error {
    Error::Unavailable(format!("device: {device}: {why}; device=\"cpu\" decodes without a GPU"))
}

/// Which GPU is meant.
#[derive(Debug, Clone, Copy)]
enum Wish {
    /// The first that serves.
    Any,
    /// This one.
    Exactly(u32),
    /// The one of a process with this local rank, which stands in that variable.
    LocalRank(&'static str, u32),
}

/// Where launchers say which of its node's ranks a process is: torchrun; Open MPI; MPICH and Intel MPI; MVAPICH2.
pub(super) const LOCAL_RANKS: [&str; 4] =
    ["LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "MV2_COMM_WORLD_LOCAL_RANK"];

/// The GPU a launcher means for this process.
fn launchers_wish() -> Result<Wish, String> {
    // Outside of a step, in a batch script, Slurm's says nothing.
    let slurm = std::env::var_os("SLURM_STEP_NUM_TASKS").map(|_| "SLURM_LOCALID");
    for variable in LOCAL_RANKS.into_iter().chain(slurm) {
        if let Ok(text) = std::env::var(variable) {
            let rank = text.trim().parse().map_err(|_| format!("{variable} is {text:?}, not a number"))?;
            return Ok(Wish::LocalRank(variable, rank));
        }
    }
    Ok(Wish::Any)
}

/// The GPU that is wished for, or why it cannot be had.
fn gpu_that_serves(probe: &gpu::Probe, wish: Wish) -> Result<DeviceInfo, String> {
    let problem = || probe.problem.clone().unwrap_or_else(|| "the NVIDIA driver finds no device".into());
    let count = probe.devices.len() as u32;
    let found = match wish {
        _ if probe.usable().next().is_none() => return Err(problem()),
        Wish::Any => probe.usable().next(),
        Wish::Exactly(ordinal) | Wish::LocalRank(_, ordinal) if ordinal < count => {
            probe.devices.get(ordinal as usize)
        }
        // Launchers that show each process a GPU of its own leave its local rank as it is.
        Wish::LocalRank(..) if count == 1 => probe.devices.first(),
        Wish::Exactly(ordinal) => {
            return Err(format!("there is no GPU cuda:{ordinal}, the driver shows {count}"));
        }
        Wish::LocalRank(variable, rank) => {
            return Err(format!("{variable} is {rank}, and the driver shows {count} GPUs"));
        }
    };
    let info = found.ok_or_else(problem)?;
    if let Some(problem) = &info.problem {
        return Err(format!("cuda:{} ({}) cannot be used: {problem}", info.ordinal, info.name));
    }
    nvjpeg::Library::load().map_err(|error| error.to_string())?;
    Ok(info.clone())
}

/// Batches under way on a GPU at a time, each in a stage of its own: copied, decoded, augmented.
pub const LANES: usize = 3;

const MIB: usize = 1 << 20;

/// Most bytes that the images a lane decodes have at a time, however much memory there is.
const LARGEST_ARENA: usize = 512 * MIB;

/// How the memory of a GPU is shared out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DevicePools {
    /// Bytes of everything together.
    pub cap: usize,
    /// Most bytes that the images a lane decodes have at a time.
    pub arena: usize,
    /// Bytes that are not for images being decoded in any case.
    beside: usize,
    /// Batches being filled or waiting for the consumer.
    pub prefetch: usize,
    /// Batch buffers in all.
    pub batches: usize,
}

impl DevicePools {
    /// Shares `asked` bytes, or a quarter of the device's `memory`, between images being decoded, batches of
    /// `batch_bytes`, and `lane_bytes` that each lane needs for itself.
    ///
    /// # Errors
    /// [`Error::Config`] when that is too little.
    pub(super) fn new(
        asked: Option<u64>,
        memory: u64,
        lane_bytes: usize,
        batch_bytes: usize,
    ) -> Result<Self> {
        let cap = usize::try_from(asked.unwrap_or(memory / 4)).unwrap_or(usize::MAX);
        // One batch with the consumer, two in the making. Allocations are rounded up.
        let batch_bytes = batch_bytes.saturating_add(MIB / 256);
        let batches = batch_bytes.saturating_mul(3);
        let lane_bytes = lane_bytes.saturating_add(MIB / 4);
        let least = batches.saturating_add(LANES.saturating_mul(lane_bytes.saturating_add(16 * MIB)));
        if cap < least {
            let message = format!(
                "is {cap} bytes, must be at least {least}: three batches of {batch_bytes}, and room to decode; raise \
                 it, or lower batch_size"
            );
            return Err(Error::config("device_memory", message));
        }
        let beside = batches + LANES * lane_bytes;
        let arena = ((cap - beside) / LANES / 2).clamp(16 * MIB, LARGEST_ARENA);
        let batches = (cap - LANES * (arena + lane_bytes)) / batch_bytes;
        // Each lane has one, one waits, one comes.
        Ok(Self { cap, arena, beside, prefetch: (LANES + 2).min(batches - 1), batches })
    }

    /// Bytes of `device_memory` that would give a lane's images `needed` bytes; `None` where none would.
    pub fn cap_for(&self, needed: u64) -> Option<u64> {
        (needed <= LARGEST_ARENA as u64).then_some(self.beside as u64 + LANES as u64 * (2 * needed + 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_memory_is_shared_out_within_its_cap() {
        for (cap, batch) in
            [(100 << 20, 1 << 20), (1 << 30, 154 << 20), (35 << 30, 154 << 20), (200 << 20, 40 << 20)]
        {
            let pools = DevicePools::new(Some(cap), 0, 1 << 20, batch).unwrap();
            assert!(pools.batches >= 3 && pools.prefetch >= 2 && pools.prefetch < pools.batches, "{pools:?}");
            let lanes = LANES * (pools.arena + (1 << 20));
            assert!(lanes + pools.batches * batch <= cap as usize, "{pools:?}");
        }
        let little = DevicePools::new(Some(60 << 20), 0, 18 << 10, 1 << 20).unwrap();
        for needed in [17 << 20, 100_000_001, LARGEST_ARENA as u64] {
            let cap = little.cap_for(needed).unwrap();
            let enough = DevicePools::new(Some(cap), 0, 18 << 10, 1 << 20).unwrap();
            assert!((needed..needed + 64).contains(&(enough.arena as u64)), "{needed}: {enough:?}");
        }
        assert_eq!(little.cap_for(LARGEST_ARENA as u64 + 1), None);
        let error = DevicePools::new(Some(100 << 20), 0, 18 << 10, 100 << 20).unwrap_err().to_string();
        assert!(error.contains("device_memory: is 104857600 bytes, must be at least"), "{error}");
        assert_eq!(DevicePools::new(None, 80 << 30, 18 << 10, 1 << 20).unwrap().cap, 20 << 30);
    }

    #[test]
    fn devices_have_the_names_torch_gives_them() {
        assert_eq!(parse("auto").unwrap(), Asked::Auto);
        assert_eq!(parse("cuda").unwrap(), Asked::Cuda(None));
        assert_eq!(parse("cuda:3").unwrap(), Asked::Cuda(Some(3)));
        for wrong in ["", "gpu", "cuda:", "cuda:-1", "cuda:x", "CPU"] {
            assert!(parse(wrong).unwrap_err().to_string().contains("device: is"), "{wrong}");
        }
        assert_eq!(Device::Cuda { ordinal: 3 }.to_string(), "cuda:3");
        assert_eq!(choose("cpu").unwrap().device, Device::Cpu);
    }

    #[test]
    fn a_gpu_that_does_not_serve_is_not_passed_over_in_silence() {
        let problem = "is too old".to_owned();
        let info = DeviceInfo {
            ordinal: 0,
            name: "NVIDIA T4".to_owned(),
            capability: gpu::Capability { major: 7, minor: 5 },
            memory: 16 << 30,
            multiprocessors: 40,
            problem: Some(problem.clone()),
        };
        let none = || {
            let problem = Some("no driver".to_owned());
            gpu::Probe { driver: None, devices: Vec::new(), problem, absent: true }
        };
        let broken = || gpu::Probe { absent: false, ..none() };
        assert!(choose_of("auto", broken).unwrap().overlooked, "a driver that does not start");
        let old = || gpu::Probe { devices: vec![info.clone()], problem: Some(problem.clone()), ..broken() };
        let chosen = choose_of("auto", old).unwrap();
        assert!(
            chosen.overlooked && chosen.device == Device::Cpu && chosen.why.contains("too old"),
            "{chosen:?}"
        );
        assert!(!choose_of("auto", none).unwrap().overlooked, "nobody misses what is not there");
        assert!(!choose_of("cpu", old).unwrap().overlooked, "as asked");
        assert!(choose_of("cuda", old).is_err());
    }
}
