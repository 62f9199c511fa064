//! Settings in two steps: [`LoaderOptions`] is what was asked, [`LoaderConfig`] is what it means, checked once.

use crate::augment::{DType, Fidelity, MemoryFormat, Output, Policy};
use crate::batch::Pools;
use crate::dataset::DatasetIndex;
use crate::error::{Error, Result};
use crate::io::{Direct, IoChoice};
use crate::schedule::LastBatch;

/// Largest arena that files are read into, bytes.
const LARGEST_ARENA: usize = 256 << 20;

/// Largest side of an output image, pixels: a batch of them is already hundreds of megabytes.
const LARGEST_SIDE: u32 = 16_384;

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

/// A setting with a few named values: one list of names for Python and the command line.
pub trait Choice: Copy + PartialEq + 'static {
    /// Every value by the name users write.
    const NAMES: &'static [(&'static str, Self)];

    /// The value called `name`.
    ///
    /// # Errors
    /// [`Error::Config`] that lists the names there are.
    fn parse(setting: &'static str, name: &str) -> Result<Self> {
        Self::NAMES.iter().find(|(known, _)| *known == name).map(|(_, value)| *value).ok_or_else(|| {
            let known: Vec<_> = Self::NAMES.iter().map(|(name, _)| *name).collect();
            Error::config(setting, format!("is {name:?}, must be one of {}", known.join(", ")))
        })
    }

    /// The name of this value.
    fn name(self) -> &'static str {
        Self::NAMES.iter().find(|(_, value)| *value == self).map_or("?", |(name, _)| name)
    }
}

impl Choice for OnError {
    const NAMES: &'static [(&'static str, Self)] =
        &[("raise", Self::Raise), ("skip", Self::Skip), ("zero", Self::Zero)];
}

impl Choice for LastBatch {
    const NAMES: &'static [(&'static str, Self)] =
        &[("drop", Self::Drop), ("pad", Self::Pad), ("partial", Self::Partial)];
}

impl Choice for DType {
    const NAMES: &'static [(&'static str, Self)] =
        &[("float32", Self::F32), ("float16", Self::F16), ("bfloat16", Self::Bf16), ("uint8", Self::U8)];
}

impl Choice for MemoryFormat {
    const NAMES: &'static [(&'static str, Self)] = &[("nchw", Self::Nchw), ("nhwc", Self::Nhwc)];
}

impl Choice for Fidelity {
    const NAMES: &'static [(&'static str, Self)] = &[("fast", Self::Fast), ("exact", Self::Exact)];
}

impl Choice for IoChoice {
    const NAMES: &'static [(&'static str, Self)] =
        &[("auto", Self::Auto), ("io_uring", Self::Uring), ("pread", Self::Pread)];
}

impl Choice for Direct {
    const NAMES: &'static [(&'static str, Self)] =
        &[("auto", Self::Auto), ("on", Self::On), ("off", Self::Off)];
}

/// Bytes of `text`: a number with an optional unit, `300MB`, `1.5GiB`, `4096`. Units ending in `iB` are powers of 1024.
///
/// # Errors
/// [`Error::Config`] naming `setting`.
pub fn parse_bytes(setting: &'static str, text: &str) -> Result<u64> {
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let factor = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 1.0,
        "kb" | "k" => 1e3,
        "mb" | "m" => 1e6,
        "gb" | "g" => 1e9,
        "tb" | "t" => 1e12,
        "kib" => 1024.0,
        "mib" => 1024.0 * 1024.0,
        "gib" => 1024.0 * 1024.0 * 1024.0,
        "tib" => 1024.0 * 1024.0 * 1024.0 * 1024.0,
        _ => f64::NAN,
    };
    match number.parse::<f64>().map(|n| n * factor) {
        Ok(bytes) if bytes.is_finite() => Ok(bytes as u64),
        _ => Err(Error::config(setting, format!("is {text:?}, must be a size such as 300MB or 1.5GiB"))),
    }
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
    /// Random crops and flips (true) or Resize + CenterCrop (false).
    pub train: bool,
    /// Shuffled order; `None`: as `train`.
    pub shuffle: Option<bool>,
    /// The samples left over at the end; `None`: drop in training, partial in evaluation.
    pub last_batch: Option<LastBatch>,
    /// Images (true), or the files' bytes for a decoder of the consumer's (false): then the settings of images mean
    /// nothing.
    pub decoded: bool,
    /// Batches the consumer keeps at once, at least 1: `memory` must have room for them.
    pub keep: u32,
    /// `auto`, `cpu` or `cuda`.
    pub device: String,
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
    /// Decoding threads; `None`: the processors this process may use.
    pub threads: Option<u32>,
    /// Cap of all pools together, bytes; `None`: what the settings need, and more batches while the consumer keeps
    /// them, up to a quarter of the machine's memory.
    pub memory: Option<u64>,
    /// How to read.
    pub io: IoChoice,
    /// Whether to bypass the page cache.
    pub direct: Direct,
    /// Reads in flight; `None`: 32.
    pub queue_depth: Option<u32>,
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
            shuffle: None,
            last_batch: None,
            decoded: true,
            keep: 1,
            device: "auto".into(),
            dtype: DType::F32,
            memory_format: MemoryFormat::Nchw,
            // ImageNet's statistics, the ones torchvision's reference recipes use.
            mean: [0.485, 0.456, 0.406],
            std: [0.229, 0.224, 0.225],
            scale: (0.08, 1.0),
            ratio: (3.0 / 4.0, 4.0 / 3.0),
            flip: 0.5,
            resize: None,
            decode: Fidelity::Fast,
            threads: None,
            memory: None,
            io: IoChoice::Auto,
            direct: Direct::Auto,
            queue_depth: None,
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
    /// Images, or the files' bytes.
    pub decoded: bool,
    /// Size, type and arithmetic of the images.
    pub output: Output,
    /// Crop and flip.
    pub policy: Policy,
    /// Decoding threads.
    pub threads: usize,
    /// How to read.
    pub io: IoChoice,
    /// Whether to bypass the page cache.
    pub direct: Direct,
    /// Reads in flight.
    pub queue_depth: usize,
    /// What happens when a sample fails.
    pub on_error: OnError,
    /// Failures an epoch survives.
    pub max_errors: u64,
    /// Images of more pixels are refused.
    pub max_pixels: u64,
    /// The pools' sizes.
    pub pools: Pools,
}

impl LoaderOptions {
    /// Checks what can be checked without the dataset: call it before an index is built for nothing.
    ///
    /// # Errors
    /// [`Error::Config`] naming the setting; [`Error::Unavailable`] for a device this build does not have.
    pub fn validate(&self) -> Result<()> {
        match self.device.as_str() {
            "auto" | "cpu" => {}
            "cuda" => {
                return Err(Error::Unavailable(
                    "device: cuda: this build of Foreload decodes on the CPU only; use device=\"cpu\" and move the \
                     batch yourself"
                        .into(),
                ));
            }
            other => return Err(Error::config("device", format!("is {other:?}, must be auto, cpu or cuda"))),
        }
        at_least("batch_size", u64::from(self.batch_size), 1)?;
        at_least("keep", u64::from(self.keep), 1)?;
        for side in [self.image_size.0, self.image_size.1] {
            at_least("image_size", u64::from(side), 1)?;
            if side > LARGEST_SIDE {
                return Err(Error::config(
                    "image_size",
                    format!("is {side}, must be at most {LARGEST_SIDE}"),
                ));
            }
        }
        if self.dtype != DType::U8 {
            if !self.mean.iter().all(|mean| mean.is_finite()) {
                return Err(Error::config("mean", format!("is {:?}, must be finite numbers", self.mean)));
            }
            if !self.std.iter().all(|std| std.is_finite() && *std > 0.0) {
                return Err(Error::config("std", format!("is {:?}, must be numbers above 0", self.std)));
            }
        }
        for (setting, value) in
            [("threads", self.threads), ("queue_depth", self.queue_depth), ("resize", self.resize)]
        {
            at_least(setting, u64::from(value.unwrap_or(1)), 1)?;
        }
        at_least("max_pixels", self.max_pixels, 1)?;
        if self.train {
            bounds("scale", self.scale, 1.0)?;
            bounds("ratio", self.ratio, 1e6)?;
            if !(0.0..=1.0).contains(&self.flip) {
                return Err(Error::config("flip", format!("is {}, must be a probability", self.flip)));
            }
        }
        Ok(())
    }

    /// Checks everything that can be wrong and decides what was left open.
    ///
    /// # Errors
    /// As [`LoaderOptions::validate`]; [`Error::Config`] for a `memory` too small for this dataset.
    pub fn check(&self, index: &DatasetIndex) -> Result<LoaderConfig> {
        self.validate()?;
        let (height, width) = self.image_size;
        let output = Output {
            height,
            width,
            dtype: self.dtype,
            format: self.memory_format,
            mean: self.mean,
            std: self.std,
            fidelity: self.decode,
        };
        let policy = if self.train {
            Policy::Train { scale: self.scale, ratio: self.ratio, flip: self.flip }
        } else {
            Policy::Eval { resize: self.resize.unwrap_or((height.max(width) * 8 / 7).max(1)) }
        };
        // Bytes that are only passed on need no more than one.
        let processors =
            || if self.decoded { std::thread::available_parallelism().map_or(1, usize::from) } else { 1 };
        let threads = self.threads.map_or_else(processors, |threads| threads as usize);
        let queue_depth = self.queue_depth.unwrap_or(32) as usize;
        let image_bytes = if self.decoded { output.bytes() } else { 0 };
        let batch_bytes = crate::batch::buffer_bytes(self.batch_size as usize, image_bytes);
        Ok(LoaderConfig {
            batch_size: self.batch_size,
            seed: self.seed,
            shuffle: self.shuffle.unwrap_or(self.train),
            last_batch: self.last_batch.unwrap_or(if self.train {
                LastBatch::Drop
            } else {
                LastBatch::Partial
            }),
            decoded: self.decoded,
            policy,
            threads,
            io: self.io,
            direct: self.direct,
            queue_depth,
            on_error: self.on_error,
            max_errors: self.max_errors,
            max_pixels: self.max_pixels,
            pools: self.pools(index, threads, queue_depth, batch_bytes)?,
            output,
        })
    }

    /// Slots for the reads in flight and those waiting to be decoded, then batches.
    fn pools(
        &self,
        index: &DatasetIndex,
        threads: usize,
        queue_depth: usize,
        batch_bytes: usize,
    ) -> Result<Pools> {
        const MIB: usize = 1 << 20;
        let arena = |bytes: usize| bytes.checked_next_multiple_of(2 * MIB).unwrap_or(usize::MAX);
        let keep = self.keep as usize;
        let held = self.slots_of_a_batch(index);
        // Two of the largest samples must fit, so that one can be read while another is decoded; but one monstrous file
        // shall not size the arena: what does not fit fails like any other bad sample.
        let two_largest = arena(2 * slot_bytes(index.largest() as usize)).min(LARGEST_ARENA);
        let smallest_slots = arena(two_largest.saturating_add(held.saturating_mul(keep + 1)));
        // Enough batches to ride out a hiccup, not so many that large batches fill the memory.
        let usual_prefetch = (96 * MIB / (batch_bytes.saturating_add(held)).max(1)).clamp(2, 8);
        // The reads in flight, as many again that have arrived, and a few for each worker; half as much again because
        // sizes vary.
        let samples = 2 * queue_depth + 8 * threads;
        let usual_slots = (samples * mean_bytes(index) / 2 * 3).clamp(16 * MIB, LARGEST_ARENA);
        let usual_slots = arena(usual_slots.saturating_add(held.saturating_mul(usual_prefetch + keep)));
        match self.memory {
            None => {
                let machine = usize::try_from(crate::io::storage::memory_limit()).unwrap_or(usize::MAX);
                let needed = usual_prefetch + keep + 1;
                let bytes = batch_bytes.saturating_add(held);
                if bytes.saturating_mul(needed) > machine {
                    let message = format!(
                        "makes batches of {bytes} bytes, of which {needed} must fit in {machine} bytes of memory"
                    );
                    return Err(Error::config("batch_size", message));
                }
                let slot_bytes = usual_slots.min(machine / 4 / (2 * MIB) * (2 * MIB)).max(smallest_slots);
                let most = ((machine / 4).saturating_sub(slot_bytes) / batch_bytes.max(1)).max(needed);
                Ok(Pools { slot_bytes, prefetch: usual_prefetch, batches: most })
            }
            Some(memory) => {
                let memory = usize::try_from(memory).unwrap_or(usize::MAX);
                // Those with the consumer, two in the making.
                let fewest = keep + 2;
                let batches_bytes = batch_bytes.saturating_mul(fewest);
                let least = smallest_slots.saturating_add(batches_bytes);
                if memory < least {
                    return Err(Error::config(
                        "memory",
                        format!(
                            "is {memory} bytes, must be at least {least}: {smallest_slots} for what is read and \
                             {fewest} batches of {batch_bytes}"
                        ),
                    ));
                }
                let slot_bytes = usual_slots.min(memory - batches_bytes) / (2 * MIB) * (2 * MIB);
                let slot_bytes = slot_bytes.max(smallest_slots);
                let batches = (memory - slot_bytes) / batch_bytes.max(1);
                Ok(Pools { slot_bytes, prefetch: usual_prefetch.min(batches - 1), batches })
            }
        }
    }

    /// Bytes of slots that stay taken while a batch of encoded files exists; images leave their slots at once.
    fn slots_of_a_batch(&self, index: &DatasetIndex) -> usize {
        if self.decoded {
            return 0;
        }
        let (n, largest) = (self.batch_size as usize, slot_bytes(index.largest() as usize));
        // A quarter more than the mean, and two of the largest: a batch of few is not an average one.
        let usual = n.saturating_mul(slot_bytes(mean_bytes(index)) / 4 * 5).saturating_add(2 * largest);
        usual.min(n.saturating_mul(largest))
    }
}

fn mean_bytes(index: &DatasetIndex) -> usize {
    (index.total_bytes() / index.len().max(1)) as usize
}

/// What a slot for a file of `length` bytes takes of the arena, at most.
fn slot_bytes(length: usize) -> usize {
    length + 3 * 4096
}

fn at_least(setting: &'static str, value: u64, least: u64) -> Result<u64> {
    if value < least {
        return Err(Error::config(setting, format!("is {value}, must be at least {least}")));
    }
    Ok(value)
}

fn bounds(setting: &'static str, (low, high): (f64, f64), most: f64) -> Result<()> {
    if low > 0.0 && low <= high && high <= most {
        return Ok(());
    }
    Err(Error::config(setting, format!("is ({low}, {high}), must be 0 < low <= high <= {most}")))
}
