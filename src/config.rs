//! Settings in two steps: [`LoaderOptions`] is what was asked, [`LoaderConfig`] is what it means, checked once.

mod choice;
mod device;
mod pfs;
mod pools;
mod recipe;
mod selection;
mod share;
mod units;

pub use choice::Choice;
pub use device::{
    Chosen, CpuDecode, Device, DevicePools, LANES, Rungs, choose as choose_device,
    choose_of as choose_device_of, look_for_libraries_in, unavailable as unavailable_device,
};
pub use pfs::parse_pfs;
pub use recipe::check_said_once;
pub use selection::Weights;
pub use units::{parse_bytes, parse_duration};

use crate::augment::{CROP_RATIO, CROP_SCALE, DType, Fidelity, MemoryFormat, Output, Recipe, Transforms};
use crate::batch::Pools;
use crate::dataset::{DatasetIndex, Select};
use crate::decode::Damaged;
use crate::error::{Error, Result};
use crate::io::{Direct, IoChoice};
use crate::schedule::{LastBatch, Selection};
use crate::tier::{CacheOptions, FillChoice, Verify};
use std::path::PathBuf;
use std::sync::Arc;

/// What happens when a sample cannot be read or decoded.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum OnError {
    /// The batch that would hold it is not delivered; its first failure is raised instead.
    #[default]
    Raise,
    /// Another sample takes its place, chosen by (dataset, seed, epoch, position) alone, so that batches stay full and
    /// every rank and every run agrees; `sample_ids` names the substitute.
    Skip,
    /// The image is all zeros and its mask bit is false.
    Zero,
}

/// What the user asked for. `None` means "choose for me".
#[derive(Debug, Clone)]
pub struct LoaderOptions {
    /// Samples per batch and rank.
    pub batch_size: u32,
    /// Height and width of the output images in pixels.
    pub image_size: (u32, u32),
    /// Seed of order and augmentation.
    pub seed: u64,
    /// Without `transforms`: random crops and flips (true) or Resize + CenterCrop (false). In any case the default of
    /// `shuffle` and `last_batch`.
    pub train: bool,
    /// What is done to images; `None`: what `train`, `image_size`, `scale`, `ratio`, `flip`, `resize`, `dtype`, `mean` and
    /// `std` mean, which it takes the place of.
    pub transforms: Option<Transforms>,
    /// Shuffled order; `None`: as `train`.
    pub shuffle: Option<bool>,
    /// The samples left over at the end; `None`: drop in training, partial in evaluation.
    pub last_batch: Option<LastBatch>,
    /// The samples to draw from; by default all.
    pub select: Select,
    /// How often each is drawn beside the others; `None`: all alike.
    pub weights: Option<Weights>,
    /// Share of each dataset where several are mixed; `None`: by their samples.
    pub ratios: Option<Vec<f64>>,
    /// Samples an epoch draws; `None`: as many as there are to draw from.
    pub epoch_size: Option<u64>,
    /// Images (true), or the files' bytes for a decoder of the consumer's (false): then the settings of images mean
    /// nothing.
    pub decoded: bool,
    /// Batches the consumer keeps at once, at least 1: `memory` must have room for them.
    pub keep: u32,
    /// `auto` (a GPU where one serves), `cpu`, `cuda` (the GPU of this process' local rank) or `cuda:N`.
    pub device: String,
    /// What the CPU decodes when batches end on a GPU.
    pub cpu_decode: CpuDecode,
    /// Cap of the memory on the GPU, bytes; `None`: a quarter of what it has.
    pub device_memory: Option<u64>,
    /// Element type of the images.
    pub dtype: DType,
    /// Order of dimensions of the images.
    pub memory_format: MemoryFormat,
    /// Per channel, of values scaled to 0..1.
    pub mean: [f32; 3],
    /// Per channel, of values scaled to 0..1.
    pub std: [f32; 3],
    /// Bounds of the random crop's share of the area.
    pub scale: (f64, f64),
    /// Bounds of the random crop's width / height.
    pub ratio: (f64, f64),
    /// Probability of a horizontal flip.
    pub flip: f64,
    /// Evaluation: length the shorter side is resized to; `None`: 8/7 of the larger image size (256 for 224).
    pub resize: Option<u32>,
    /// Fast or exact arithmetic.
    pub decode: Fidelity,
    /// Decoding threads; `None`: the processors this process may use, shared with the other ranks of the machine.
    pub threads: Option<u32>,
    /// Cap of all pools together, bytes; `None`: what the settings need, and more batches while the consumer keeps
    /// them, up to a quarter of the machine's memory for all its ranks together.
    pub memory: Option<u64>,
    /// How to read.
    pub io: IoChoice,
    /// Whether to bypass the page cache.
    pub direct: Direct,
    /// Reads in flight; `None`: 32.
    pub queue_depth: Option<u32>,
    /// Directory on local NVMe where the samples are kept that the schedule says are worth it; `None`: nowhere.
    pub cache_dir: Option<PathBuf>,
    /// Bytes it may take; needed with `cache_dir`.
    pub cache_size: Option<u64>,
    /// How it is filled.
    pub cache_fill: FillChoice,
    /// How copies of earlier runs are known to be the dataset's: by their files' stamps or by its bytes.
    pub verify: Verify,
    /// The dataset never changes: copies are used without a look at it.
    pub immutable: bool,
    /// Bytes per second that staging ahead may take of the source; `None`: what reads in demand leave.
    pub stage_bandwidth: Option<u64>,
    /// Ranks of this machine, numbered one after another: they share `cache_dir`, processors and memory. `None`: all share
    /// `cache_dir`, and this process is alone here.
    pub local_world_size: Option<u32>,
    /// What happens to JPEGs with damage inside their entropy-coded data.
    pub damaged: Damaged,
    /// What happens when a sample fails.
    pub on_error: OnError,
    /// Failures an epoch survives with `skip` and `zero`.
    pub max_errors: u64,
    /// Images of more pixels are refused.
    pub max_pixels: u64,
}

impl Default for LoaderOptions {
    fn default() -> Self {
        Self {
            batch_size: 64,
            image_size: (224, 224),
            seed: 0,
            train: true,
            transforms: None,
            shuffle: None,
            last_batch: None,
            select: Select::default(),
            weights: None,
            ratios: None,
            epoch_size: None,
            decoded: true,
            keep: 1,
            device: "auto".into(),
            cpu_decode: CpuDecode::Fallback,
            device_memory: None,
            dtype: DType::F32,
            memory_format: MemoryFormat::Nchw,
            // ImageNet's statistics, the ones torchvision's reference recipes use.
            mean: [0.485, 0.456, 0.406],
            std: [0.229, 0.224, 0.225],
            scale: CROP_SCALE,
            ratio: CROP_RATIO,
            flip: 0.5,
            resize: None,
            decode: Fidelity::Fast,
            threads: None,
            memory: None,
            io: IoChoice::Auto,
            direct: Direct::Auto,
            queue_depth: None,
            cache_dir: None,
            cache_size: None,
            cache_fill: FillChoice::Auto,
            verify: Verify::Stamp,
            immutable: false,
            stage_bandwidth: None,
            local_world_size: None,
            // Whoever comes from torchvision has trained on such files: its decoders conceal them, at most with a warning.
            damaged: Damaged::Conceal,
            on_error: OnError::Raise,
            max_errors: 100,
            // PIL's own threshold for a decompression bomb is 89 478 485; ours is the next power of two.
            max_pixels: 1 << 27,
        }
    }
}

/// What the options mean for one dataset on this machine.
#[derive(Debug, Clone)]
pub struct LoaderConfig {
    /// Samples per batch and rank.
    pub batch_size: u32,
    /// Seed of order and augmentation.
    pub seed: u64,
    /// Shuffled or sequential.
    pub shuffle: bool,
    /// The samples left over at the end.
    pub last_batch: LastBatch,
    /// What an epoch draws from.
    pub selection: Arc<Selection>,
    /// Images, or the files' bytes.
    pub decoded: bool,
    /// Where batches end.
    pub device: Device,
    /// Why there, in words.
    pub device_reason: String,
    /// What the CPU decodes when that is a GPU.
    pub cpu_decode: CpuDecode,
    /// Which decoders may serve then.
    pub rungs: Rungs,
    /// The GPU's memory, when that is a GPU.
    pub device_pools: Option<DevicePools>,
    /// What is done to images.
    pub recipe: Recipe,
    /// Decoding threads.
    pub threads: usize,
    /// How to read.
    pub io: IoChoice,
    /// Whether to bypass the page cache.
    pub direct: Direct,
    /// Reads in flight.
    pub queue_depth: usize,
    /// The tier on NVMe.
    pub cache: Option<CacheOptions>,
    /// What happens to JPEGs with damage inside their entropy-coded data.
    pub damaged: Damaged,
    /// What happens when a sample fails.
    pub on_error: OnError,
    /// Failures an epoch survives.
    pub max_errors: u64,
    /// Images of more pixels are refused.
    pub max_pixels: u64,
    /// The pools' sizes.
    pub pools: Pools,
}

impl LoaderConfig {
    /// What is written for each image.
    pub fn output(&self) -> &Output {
        self.recipe.views()[0].fixed_output()
    }
}

impl LoaderOptions {
    /// Checks what can be checked without the dataset: call it before an index is built for nothing.
    ///
    /// # Errors
    /// [`Error::Config`] naming the setting; [`Error::Unavailable`] for a GPU that is asked for and cannot serve.
    pub fn validate(&self) -> Result<()> {
        if !self.decoded && self.device.starts_with("cuda") {
            let message =
                format!("is {}, must be cpu with decoded=False: files stay in host memory", self.device);
            return Err(Error::config("device", message));
        }
        device::validate(&self.device)?;
        at_least("batch_size", u64::from(self.batch_size), 1)?;
        at_least("keep", u64::from(self.keep), 1)?;
        for (setting, value) in [("threads", self.threads), ("queue_depth", self.queue_depth)] {
            at_least(setting, u64::from(value.unwrap_or(1)), 1)?;
        }
        at_least("max_pixels", self.max_pixels, 1)?;
        at_least("stage_bandwidth", self.stage_bandwidth.unwrap_or(1), 1)?;
        at_least("local_world_size", u64::from(self.local_world_size.unwrap_or(1)), 1)?;
        self.cache(1)?;
        self.recipe()?;
        Ok(())
    }

    /// Checks everything that can be wrong and decides what was left open.
    ///
    /// # Errors
    /// As [`LoaderOptions::validate`]; [`Error::Config`] for a `memory` too small for this dataset;
    /// [`Error::Unavailable`] for a GPU that is asked for and cannot serve.
    pub fn check(&self, index: &DatasetIndex) -> Result<LoaderConfig> {
        self.validate()?;
        let recipe = self.recipe()?;
        self.question_scale(&recipe, index);
        let ranks = self.local_world_size.unwrap_or(1);
        // Bytes that are only passed on need no more than one.
        let processors = || if self.decoded { share::processors(ranks) } else { 1 };
        let threads = self.threads.map_or_else(processors, |threads| threads as usize);
        let queue_depth = self.queue_depth.unwrap_or(32) as usize;
        let image_bytes = if self.decoded { recipe.views()[0].fixed_output().bytes() } else { 0 };
        let batch_bytes = crate::batch::buffer_bytes(self.batch_size as usize, image_bytes);
        let chosen = self.choose_device(&recipe, index)?;
        if chosen.overlooked {
            index.notices().say("device", || {
                let why = &chosen.why;
                format!("there is a GPU, but the CPU makes the batches: {why}; device=\"cpu\" says that this is meant")
            });
        }
        let device_pools = match chosen.device {
            Device::Cpu => None,
            Device::Cuda { .. } => {
                let batch = self.batch_size as usize;
                Some(DevicePools::new(self.device_memory, chosen.memory, batch, batch_bytes)?)
            }
        };
        let host = pools::Host { options: self, index, threads, queue_depth };
        let pools = match &device_pools {
            None => host.with_batches(batch_bytes)?,
            Some(device) => host.beside(device)?,
        };
        Ok(LoaderConfig {
            batch_size: self.batch_size,
            seed: self.seed,
            shuffle: self.shuffle.unwrap_or(self.train),
            last_batch: self.last_batch.unwrap_or(if self.train {
                LastBatch::Drop
            } else {
                LastBatch::Partial
            }),
            selection: Arc::new(selection::select(self, index)?),
            decoded: self.decoded,
            device: chosen.device,
            device_reason: chosen.why,
            cpu_decode: self.cpu_decode,
            rungs: Rungs::from_environment()?,
            device_pools,
            recipe,
            threads,
            io: self.io,
            direct: self.direct,
            queue_depth,
            cache: self.cache(queue_depth)?,
            damaged: self.damaged,
            on_error: self.on_error,
            max_errors: self.max_errors,
            max_pixels: self.max_pixels,
            pools,
        })
    }

    /// The tier on NVMe, if there is to be one.
    fn cache(&self, queue_depth: usize) -> Result<Option<CacheOptions>> {
        let verify = match (self.immutable, self.verify) {
            (false, verify) => verify,
            (true, Verify::Checksum) => {
                let message =
                    "is true, and verify is checksum: what never changes need not be compared; choose one";
                return Err(Error::config("immutable", message));
            }
            (true, _) => Verify::Never,
        };
        match (&self.cache_dir, self.cache_size) {
            (None, None) => Ok(None),
            (None, Some(_)) => {
                Err(Error::config("cache_dir", "is not given, but cache_size is: where shall the cache be?"))
            }
            (Some(directory), None) => {
                let message = format!("is not given: how many bytes may {} take?", directory.display());
                Err(Error::config("cache_size", message))
            }
            (Some(directory), Some(size)) => Ok(Some(CacheOptions {
                // The working directory may change before the cache is opened.
                directory: std::path::absolute(directory)
                    .map_err(|error| Error::io("resolve", directory, error))?,
                size,
                fill: self.cache_fill,
                verify,
                stage_bandwidth: self.stage_bandwidth,
                local_world_size: self.local_world_size,
                io: self.io,
                direct: self.direct,
                queue_depth,
            })),
        }
    }
}

fn at_least(setting: &'static str, value: u64, least: u64) -> Result<u64> {
    if value < least {
        return Err(Error::config(setting, format!("is {value}, must be at least {least}")));
    }
    Ok(value)
}
