//! The device on which batches end, as chosen from `device=` and this machine's GPUs. Also the division of a GPU's
//! memory into pools.

use base::error::{Error, Result};
use base::names::{NamedValue, named};
use pixels::decode::nvjpeg;
use pixels::gpu::{self, DeviceInfo};
use std::path::PathBuf;

/// Device on which batches end.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Device {
    /// Batches are in host memory, and the CPU decodes.
    #[default]
    Cpu,
    /// Batches are in the memory of a GPU.
    Cuda {
        /// Index of the GPU among the devices that the driver shows to this process.
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

/// Which images the CPU decodes if batches end on a GPU.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum CpuDecode {
    /// The CPU decodes images that the GPU's decoders do not support (CMYK, 12 bits, PNG, ...). It also decodes images
    /// whose Huffman codes those decoders would decode on the host at a higher cost: progressive images, and the images
    /// of small batches if the GPU has no decoding engine.
    #[default]
    Fallback,
    /// The CPU decodes the images of `fallback`, and as many other images as give the highest total speed.
    Auto,
    /// The CPU decodes nothing: an image that the GPU's decoders do not support is an error of its sample.
    Never,
}

named!(CpuDecode: "fallback" => Fallback, "auto" => Auto, "never" => Never);

/// Decoder of images on a GPU.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum GpuDecoder {
    /// Foreload's own kernels decode packed and indexed images; nvJPEG decodes JPEGs.
    #[default]
    Auto,
    /// Foreload's own kernels decode packed and indexed images; the CPU decodes all others. nvJPEG is not used, so that
    /// batches equal the CPU's bit for bit.
    Own,
    /// nvJPEG decodes JPEGs, including the JPEG in an indexed image; the CPU decodes packed images.
    NvJpeg,
}

named!(GpuDecoder: "auto" => Auto, "own" => Own, "nvjpeg" => NvJpeg);

impl GpuDecoder {
    /// Whether Foreload's own kernels decode packed and indexed images if only the `allowed` decoders may be used.
    pub fn decodes_packed(self, allowed: AllowedBackends) -> bool {
        self != Self::NvJpeg && allowed != AllowedBackends::Cpu
    }

    /// Whether nvJPEG decodes JPEGs.
    pub fn decodes_jpegs(self) -> bool {
        self != Self::Own
    }
}

/// Decoders that may be used if batches end on a GPU. Tests and measurements choose them with the variable
/// `FORELOAD_GPU_BACKEND`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum AllowedBackends {
    /// Each image is decoded by the first decoder that supports it.
    #[default]
    All,
    /// The GPU's decoding engine decodes, and the CPU decodes the images that the engine does not support.
    Hardware,
    /// CUDA kernels decode in large batches, and the CPU decodes the images that the kernels do not support.
    CudaBatched,
    /// CUDA kernels decode image by image, and the CPU decodes the images that the kernels do not support.
    Cuda,
    /// The CPU decodes everything.
    Cpu,
}

named!(AllowedBackends:
    "all" => All,
    "hardware" => Hardware,
    "cuda_batched" => CudaBatched,
    "cuda" => Cuda,
    "cpu" => Cpu,
);

impl AllowedBackends {
    /// Returns the decoders that the environment allows.
    ///
    /// # Errors
    /// [`Error::Config`] for a name that does not exist.
    pub fn from_environment() -> Result<Self> {
        match std::env::var("FORELOAD_GPU_BACKEND") {
            Ok(name) if !name.is_empty() => Self::parse("FORELOAD_GPU_BACKEND", &name),
            _ => Ok(Self::All),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DeviceRequest {
    Auto,
    Cpu,
    Cuda(Option<u32>),
}

fn parse(text: &str) -> Result<DeviceRequest> {
    let bad = || Error::config("device", format!("is {text:?}, must be auto, cpu, cuda or cuda:N"));
    match text {
        "auto" => Ok(DeviceRequest::Auto),
        "cpu" => Ok(DeviceRequest::Cpu),
        "cuda" => Ok(DeviceRequest::Cuda(None)),
        _ => {
            let number = text.strip_prefix("cuda:").ok_or_else(bad)?;
            Ok(DeviceRequest::Cuda(Some(number.parse().map_err(|_| bad())?)))
        }
    }
}

pub(super) fn is_device(text: &str) -> bool {
    parse(text).is_ok()
}

/// Checks that the device named by `text` can be used.
///
/// # Errors
/// The errors of [`choose`].
pub(super) fn validate(text: &str, decoder: GpuDecoder) -> Result<()> {
    // Assume that the dataset is packed. This can be checked only when the dataset is known.
    let is_packed = true;
    match parse(text)? {
        DeviceRequest::Auto | DeviceRequest::Cpu => Ok(()),
        DeviceRequest::Cuda(_) => choose(text, decoder, is_packed).map(|_| ()),
    }
}

/// Adds directories of Python packages (`sys.path`) to the directories in which NVIDIA's libraries are searched.
pub fn look_for_libraries_in(packages: Vec<PathBuf>) {
    nvjpeg::Library::look_in(packages);
}

/// A chosen device, with the reason for the choice.
#[derive(Debug, Clone)]
pub struct ChosenDevice {
    /// Device on which batches end.
    pub device: Device,
    /// Reason for the choice, in words.
    pub why: String,
    /// Bytes of the GPU's memory; 0 for the CPU.
    pub memory: u64,
    /// Decoder of images on the GPU. It differs from the request if nvJPEG cannot be loaded and is not needed.
    pub decoder: GpuDecoder,
    /// Whether `device="auto"` chose the CPU although this machine has a GPU or a GPU driver.
    pub is_gpu_unused: bool,
}

impl ChosenDevice {
    /// Divides a GPU's memory by [`DevicePools::of_batches`], whose errors it has; `None` on the CPU. With
    /// `device="auto"` (`is_auto`) and without `asked` bytes, this becomes the CPU if the GPU's share is too small.
    pub(super) fn pools_of_batches(
        &mut self,
        is_auto: bool,
        asked: Option<u64>,
        batch_bytes: usize,
    ) -> Result<Option<DevicePools>> {
        if self.device == Device::Cpu {
            return Ok(None);
        }
        match DevicePools::of_batches(asked, self.memory, batch_bytes) {
            Err(_) if is_auto && asked.is_none() => {
                let why = format!(
                    "three batches of {batch_bytes} bytes do not fit into a quarter of the memory of {}, which has {} \
                     bytes: lower batch_size, or set device_memory",
                    self.why, self.memory
                );
                *self = Self { device: Device::Cpu, why, memory: 0, is_gpu_unused: true, ..self.clone() };
                Ok(None)
            }
            pools => pools.map(Some),
        }
    }
}

/// Chooses the device for `text` on this machine. `is_packed` says whether the dataset is packed.
///
/// # Errors
/// [`Error::Config`] for a text that is not a device; [`Error::Unavailable`] if the requested GPU cannot be used.
pub(crate) fn choose(text: &str, decoder: GpuDecoder, is_packed: bool) -> Result<ChosenDevice> {
    choose_with(text, decoder, is_packed, gpu::probe)
}

/// Chooses the device like [`choose`], but among the devices that `probe` finds. `probe` is called only if the choice
/// depends on the devices.
///
/// # Errors
/// The errors of [`choose`].
pub fn choose_with(
    text: &str,
    decoder: GpuDecoder,
    is_packed: bool,
    probe: impl FnOnce() -> gpu::Probe,
) -> Result<ChosenDevice> {
    let cpu = |why: String, is_gpu_unused| ChosenDevice {
        device: Device::Cpu,
        why,
        memory: 0,
        decoder,
        is_gpu_unused,
    };
    let asked = parse(text)?;
    if asked == DeviceRequest::Cpu {
        return Ok(cpu("as asked".into(), false));
    }
    let request = match asked {
        DeviceRequest::Cuda(Some(ordinal)) => Ok(GpuRequest::Exactly(ordinal)),
        _ => launcher_request(),
    };
    let probe = probe();
    let found = request.and_then(|request| select_gpu(&probe, request, decoder, is_packed));
    match (found, asked) {
        (Ok((gpu, decoder)), _) => {
            let device = Device::Cuda { ordinal: gpu.ordinal };
            Ok(ChosenDevice { device, why: gpu.name, memory: gpu.memory, decoder, is_gpu_unused: false })
        }
        (Err(why), DeviceRequest::Auto) => Ok(cpu(why, !probe.absent)),
        (Err(why), _) => Err(unavailable(text, &why)),
    }
}

/// Returns the error that the GPU requested as `device` cannot be used.
pub fn unavailable(device: &str, why: &str) -> Error {
    Error::Unavailable(format!("device: {device}: {why}; device=\"cpu\" decodes without a GPU"))
}

#[derive(Debug, Clone, Copy)]
enum GpuRequest {
    Any,
    Exactly(u32),
    /// The GPU whose index is the local rank of this process. The text is the environment variable that gives the rank.
    LocalRank(&'static str, u32),
}

/// Environment variables with the local rank of a process, as set by torchrun, Open MPI, MPICH and Intel MPI, and
/// MVAPICH2.
pub(super) const LOCAL_RANKS: [&str; 4] =
    ["LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "MV2_COMM_WORLD_LOCAL_RANK"];

fn launcher_request() -> Result<GpuRequest, String> {
    // Outside of a job step, for example in a batch script, Slurm's variable has no meaning.
    let slurm = std::env::var_os("SLURM_STEP_NUM_TASKS").map(|_| "SLURM_LOCALID");
    for variable in LOCAL_RANKS.into_iter().chain(slurm) {
        if let Ok(text) = std::env::var(variable) {
            let rank = text.trim().parse().map_err(|_| format!("{variable} is {text:?}, not a number"))?;
            return Ok(GpuRequest::LocalRank(variable, rank));
        }
    }
    Ok(GpuRequest::Any)
}

fn select_gpu(
    probe: &gpu::Probe,
    request: GpuRequest,
    decoder: GpuDecoder,
    is_packed: bool,
) -> Result<(DeviceInfo, GpuDecoder), String> {
    let problem = || probe.problem.clone().unwrap_or_else(|| "the NVIDIA driver finds no device".into());
    let count = probe.devices.len() as u32;
    let found = match request {
        _ if probe.usable().next().is_none() => return Err(problem()),
        GpuRequest::Any => probe.usable().next(),
        GpuRequest::Exactly(ordinal) | GpuRequest::LocalRank(_, ordinal) if ordinal < count => {
            probe.devices.get(ordinal as usize)
        }
        // Some launchers show each process a single GPU, whatever its local rank is.
        GpuRequest::LocalRank(..) if count == 1 => probe.devices.first(),
        GpuRequest::Exactly(ordinal) => {
            return Err(format!("there is no GPU cuda:{ordinal}: the driver reports {count} in total"));
        }
        GpuRequest::LocalRank(variable, rank) => {
            return Err(format!("{variable} is {rank}, but the driver reports {count} GPUs"));
        }
    };
    let info = found.ok_or_else(problem)?;
    if let Some(problem) = &info.problem {
        return Err(format!("cuda:{} ({}) cannot be used: {problem}", info.ordinal, info.name));
    }
    let decoder = match nvjpeg_for(decoder) {
        // A packed dataset does not need nvJPEG.
        Err(_) if decoder == GpuDecoder::Auto && is_packed => GpuDecoder::Own,
        Err(error) => {
            return Err(format!(
                "{error}; decoder=\"own\" works without it, and the CPU then decodes images that are neither packed \
                 nor indexed"
            ));
        }
        Ok(()) => decoder,
    };
    Ok((info.clone(), decoder))
}

fn nvjpeg_for(decoder: GpuDecoder) -> Result<()> {
    if decoder.decodes_jpegs() { nvjpeg::Library::load().map(|_| ()) } else { Ok(()) }
}

/// Number of lanes. A lane is a thread that makes one batch at a time on the GPU: while one lane copies its batch, the
/// others decode and augment theirs.
pub const LANES: usize = 3;

const MIB: usize = 1 << 20;

/// Maximum size of a lane's arena in bytes, even if the GPU has much more memory.
const LARGEST_LANE_ARENA: usize = 512 * MIB;

/// Division of a GPU's memory into pools.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DevicePools {
    /// Bytes of all pools together.
    pub cap: usize,
    /// Bytes of a lane's arena, which holds the decoded planes of the images that the lane works on.
    pub arena: usize,
    /// Bytes outside the arenas: three batches, and the other buffers of each lane.
    bytes_outside_arenas: usize,
    /// Maximum number of batches in the pipeline: being filled, or waiting for the consumer.
    pub prefetch: usize,
    /// Number of batch buffers in all.
    pub batches: usize,
}

impl DevicePools {
    /// Divides `asked` bytes, or a quarter of the device's `memory` if `asked` is `None`. Three batches of
    /// `batch_bytes` and `lane_bytes` of other buffers per lane are set aside first. About half of the remainder goes
    /// to the lanes' arenas, and the other half to more batches.
    ///
    /// # Errors
    /// [`Error::Config`] if there is too little memory.
    pub(super) fn new(
        asked: Option<u64>,
        memory: u64,
        lane_bytes: usize,
        batch_bytes: usize,
    ) -> Result<Self> {
        let cap = usize::try_from(asked.unwrap_or(memory / 4)).unwrap_or(usize::MAX);
        // The consumer has one batch, and two are being filled. Allocations are rounded up, so add a margin.
        let batch_bytes = batch_bytes.saturating_add(MIB / 256);
        let batches = batch_bytes.saturating_mul(3);
        let lane_bytes = lane_bytes.saturating_add(MIB / 4);
        let least = batches.saturating_add(LANES.saturating_mul(lane_bytes.saturating_add(16 * MIB)));
        if cap < least {
            let message = format!(
                "is {cap} bytes, must be at least {least} for three batches of {batch_bytes} and for decoding: raise \
                 it, or lower image_size or batch_size"
            );
            return Err(Error::config("device_memory", message));
        }
        let bytes_outside_arenas = batches + LANES * lane_bytes;
        let arena = ((cap - bytes_outside_arenas) / LANES / 2).clamp(16 * MIB, LARGEST_LANE_ARENA);
        let batches = (cap - LANES * (arena + lane_bytes)) / batch_bytes;
        // Each lane works on a batch, one batch waits for the consumer, and one batch is collecting its images.
        Ok(Self { cap, arena, bytes_outside_arenas, prefetch: (LANES + 2).min(batches - 1), batches })
    }

    /// Divides `asked` bytes, or a quarter of the device's `memory` if `asked` is `None`, into batches of `batch_bytes`
    /// alone, for batches without images.
    ///
    /// # Errors
    /// [`Error::Config`] if there is too little memory.
    pub(super) fn of_batches(asked: Option<u64>, memory: u64, batch_bytes: usize) -> Result<Self> {
        let cap = usize::try_from(asked.unwrap_or(memory / 4)).unwrap_or(usize::MAX);
        // Allocations are rounded up, so add a margin.
        let batch_bytes = batch_bytes.saturating_add(MIB / 256);
        let batches = cap / batch_bytes;
        if batches < 3 {
            let message = format!(
                "is {cap} bytes, must be at least {} for three batches of {batch_bytes}: raise it, lower batch_size, \
                 or use device=\"cpu\"",
                batch_bytes.saturating_mul(3)
            );
            return Err(Error::config("device_memory", message));
        }
        Ok(Self { cap, arena: 0, bytes_outside_arenas: cap, prefetch: batches - 1, batches })
    }

    /// Returns the total `device_memory`, in bytes, with which a lane's arena has `needed` bytes; `None` if the arena
    /// cannot be that large.
    pub fn cap_for(&self, needed: u64) -> Option<u64> {
        (needed <= LARGEST_LANE_ARENA as u64)
            .then_some(self.bytes_outside_arenas as u64 + LANES as u64 * (2 * needed + 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_without_images_take_all_device_memory() {
        let pools = DevicePools::of_batches(Some(100 << 20), 0, 10 << 20).unwrap();
        assert_eq!((pools.batches, pools.prefetch), (9, 8));
        let error = DevicePools::of_batches(None, 120 << 20, 10 << 20).unwrap_err().to_string();
        assert!(error.contains("device_memory: is 31457280 bytes, must be at least 31469568"), "{error}");
    }

    #[test]
    fn auto_makes_batches_on_the_cpu_that_do_not_fit_the_gpu() {
        let gpu = || ChosenDevice {
            device: Device::Cuda { ordinal: 0 },
            why: "NVIDIA H200".to_owned(),
            memory: 120 << 20,
            decoder: GpuDecoder::Own,
            is_gpu_unused: false,
        };
        let (mut fits, mut large) = (gpu(), gpu());
        assert!(fits.pools_of_batches(true, None, 9 << 20).unwrap().is_some() && !fits.is_gpu_unused);
        assert_eq!(large.pools_of_batches(true, None, 10 << 20).unwrap(), None);
        assert!(large.device == Device::Cpu && large.is_gpu_unused && large.why.contains("three batches"));
        assert!(gpu().pools_of_batches(false, None, 10 << 20).is_err(), "device=\"cuda\"");
        assert!(gpu().pools_of_batches(true, Some(1 << 20), 10 << 20).is_err(), "device_memory is too small");
    }

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
        for needed in [17 << 20, 100_000_001, LARGEST_LANE_ARENA as u64] {
            let cap = little.cap_for(needed).unwrap();
            let enough = DevicePools::new(Some(cap), 0, 18 << 10, 1 << 20).unwrap();
            assert!((needed..needed + 64).contains(&(enough.arena as u64)), "{needed}: {enough:?}");
        }
        assert_eq!(little.cap_for(LARGEST_LANE_ARENA as u64 + 1), None);
        let error = DevicePools::new(Some(100 << 20), 0, 18 << 10, 100 << 20).unwrap_err().to_string();
        assert!(error.contains("device_memory: is 104857600 bytes, must be at least"), "{error}");
        assert_eq!(DevicePools::new(None, 80 << 30, 18 << 10, 1 << 20).unwrap().cap, 20 << 30);
    }

    #[test]
    fn devices_have_the_names_torch_gives_them() {
        assert_eq!(parse("auto").unwrap(), DeviceRequest::Auto);
        assert_eq!(parse("cuda").unwrap(), DeviceRequest::Cuda(None));
        assert_eq!(parse("cuda:3").unwrap(), DeviceRequest::Cuda(Some(3)));
        for wrong in ["", "gpu", "cuda:", "cuda:-1", "cuda:x", "CPU"] {
            assert!(parse(wrong).unwrap_err().to_string().contains("device: is"), "{wrong}");
        }
        assert_eq!(Device::Cuda { ordinal: 3 }.to_string(), "cuda:3");
        assert_eq!(choose("cpu", GpuDecoder::Auto, false).unwrap().device, Device::Cpu);
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
        assert!(
            choose_with("auto", GpuDecoder::Auto, false, broken).unwrap().is_gpu_unused,
            "a driver that does not start"
        );
        let old = || gpu::Probe { devices: vec![info.clone()], problem: Some(problem.clone()), ..broken() };
        let chosen = choose_with("auto", GpuDecoder::Auto, false, old).unwrap();
        assert!(
            chosen.is_gpu_unused && chosen.device == Device::Cpu && chosen.why.contains("too old"),
            "{chosen:?}"
        );
        assert!(
            !choose_with("auto", GpuDecoder::Auto, false, none).unwrap().is_gpu_unused,
            "without a GPU there is none to miss"
        );
        assert!(!choose_with("cpu", GpuDecoder::Auto, false, old).unwrap().is_gpu_unused, "as asked");
        assert!(choose_with("cuda", GpuDecoder::Auto, false, old).is_err());
    }
}
