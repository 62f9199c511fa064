//! Settings in two steps: [`LoaderOptions`] is what was asked for, and [`LoaderConfig`] is what it means, checked once.

mod choice;
mod device;
mod fields;
mod images;
mod labels;
mod pfs;
mod pools;
mod recipe;
mod selection;
mod settings;
mod share;
mod units;

pub(crate) use choice::Choice;
pub use device::{AllowedBackends, CpuDecode, Device, LANES};
pub(crate) use device::{
    ChosenDevice, DevicePools, choose_of as choose_device_of, look_for_libraries_in,
    unavailable as unavailable_device,
};
pub use fields::FieldOptions;
pub(crate) use fields::{Field, FieldContent, Fields, LABEL};
pub(crate) use images::{ImageField, Images};
pub use labels::Labels;
pub(crate) use labels::numbers as label_numbers;
pub use pfs::parse_pfs;
pub(crate) use recipe::check_given_once;
pub use selection::Weights;
pub(crate) use settings::{Given, Setting, docstring, python_name, unknown_setting};
pub use settings::{
    LoaderKind, LoaderOptions, SETTINGS, SettingsClass, SettingsObject, manual, parameters, signature, stub,
};
pub(crate) use units::{parse_bytes, parse_duration};

use fields::is_sized;

use crate::augment::Output;
use crate::augment::cuda::LaneMemory;
use crate::batch::{BatchLayout, Pools};
use crate::dataset::{Contents, DatasetIndex, IndexOptions, SampleColumn};
use crate::decode::Damaged;
use crate::error::{Error, Result};
use crate::io::{Direct, IoChoice};
use crate::schedule::{LastBatch, Selection};
use crate::tier::{CacheOptions, Verify};
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

/// What the options mean for one dataset on this machine.
#[derive(Debug, Clone)]
pub struct LoaderConfig {
    /// The number of samples per batch and rank.
    pub batch_size: u32,
    /// The seed of order and augmentation.
    pub seed: u64,
    /// Whether the samples are shuffled.
    pub shuffle: bool,
    /// What happens to the samples that do not fill the last batch.
    pub last_batch: LastBatch,
    /// What an epoch draws from.
    pub selection: Arc<Selection>,
    /// Whether batches hold decoded images, or else the files' bytes.
    pub decoded: bool,
    /// The device on which batches end.
    pub device: Device,
    /// Why it is that device, in words.
    pub device_reason: String,
    /// What the CPU decodes when that is a GPU.
    pub cpu_decode: CpuDecode,
    /// Which decoders may be used then.
    pub backends: AllowedBackends,
    /// The pools of the GPU's memory; `None` on the CPU.
    pub device_pools: Option<DevicePools>,
    /// The images among the fields, and what is done to each.
    pub images: Images,
    /// The fields of a batch.
    pub fields: Fields,
    /// The places of the fields in a batch.
    pub layout: BatchLayout,
    /// The columns of `labels`.
    pub given: Arc<Vec<SampleColumn>>,
    /// The number of decoding threads.
    pub threads: usize,
    /// The way in which files are read.
    pub io: IoChoice,
    /// Whether reads bypass the page cache.
    pub direct: Direct,
    /// The largest number of reads in flight.
    pub queue_depth: usize,
    /// The tier on NVMe; `None` without a cache.
    pub cache: Option<CacheOptions>,
    /// What happens to JPEGs with damage inside their coded data.
    pub damaged: Damaged,
    /// What happens when a sample fails.
    pub on_error: OnError,
    /// The number of failures that an epoch survives.
    pub max_errors: u64,
    /// The number of pixels above which an image is refused.
    pub max_pixels: u64,
    /// The sizes of the pools.
    pub pools: Pools,
}

impl LoaderConfig {
    /// The output for the images of the first image field; of several views, that of the first.
    pub fn output(&self) -> &Output {
        self.images.first_recipe().views()[0].fixed_output()
    }
}

impl LoaderOptions {
    /// Checks what can be checked without the dataset, so that no index is built in vain.
    ///
    /// # Errors
    /// [`Error::Config`] that names the setting; [`Error::Unavailable`] for a GPU that is asked for and cannot be used.
    pub fn validate(&self) -> Result<()> {
        SETTINGS.iter().try_for_each(|setting| setting.check(self))?;
        if !self.decoded && self.device.starts_with("cuda") {
            let message =
                format!("is {}, must be cpu with decoded=False: files stay in host memory", self.device);
            return Err(Error::config("device", message));
        }
        device::validate(&self.device)?;
        self.cache(1)?;
        let given = self.given_names()?;
        labels::check_names(self.fields.as_deref().unwrap_or_default(), &given)?;
        self.images(&given)?;
        self.members(&given)?;
        if self.labels.is_some() && !self.decoded {
            let message = "cannot be given with decoded=False, which gives files: leave one of them out";
            return Err(Error::config("labels", message));
        }
        Ok(())
    }

    /// The names of the columns of `labels`, where fields can name them.
    ///
    /// # Errors
    /// The errors of reading them.
    fn given_names(&self) -> Result<Vec<String>> {
        let labels = self.labels.as_ref().filter(|_| self.fields.is_some());
        labels.map_or(Ok(Vec::new()), Labels::names)
    }

    /// The members that are read of each sample, where `labels` gives the columns `given`; `None` where only its image
    /// is read.
    ///
    /// # Errors
    /// [`Error::Config`] for fields that cannot work.
    fn members(&self, given: &[String]) -> Result<Option<Vec<String>>> {
        let Some(fields) = &self.fields else { return Ok(None) };
        Fields::members(fields, given).map_err(|is| Error::config("fields", is))
    }

    /// Whether samples in shards need no plain image, such as `jpg`, where `labels` gives the columns `given`: other
    /// members are read of them, `left.jpg` among those, and no plain image that must be there.
    fn takes_every_stem(&self, given: &[String]) -> bool {
        let members = self.members(given).unwrap_or_default().unwrap_or_default();
        let needed = |field: &&FieldOptions| !field.optional && members.contains(&field.name);
        !members.is_empty() && !self.fields.iter().flatten().filter(needed).any(FieldOptions::is_plain_image)
    }

    /// Whether batches have the dataset's own labels, where `labels` gives the columns `given`.
    fn wants_labels(&self, given: &[String]) -> bool {
        match &self.fields {
            None => self.labels.is_none(),
            Some(fields) => fields.iter().any(|field| field.name == LABEL && !given.contains(&field.name)),
        }
    }

    /// How to find or build the index of a dataset for this loader. [`LoaderOptions::validate`] reports what is wrong
    /// with its fields.
    pub fn index_options(&self, contents: Contents) -> IndexOptions {
        let given = self.given_names().unwrap_or_default();
        IndexOptions {
            directory: self.index_dir.clone(),
            rebuild: self.rebuild_index,
            changed: self.changed,
            progress: self.progress,
            contents,
            optional: self
                .fields
                .iter()
                .flatten()
                .filter(|field| field.optional)
                .map(|field| field.name.clone())
                .collect(),
            members: self.members(&given).unwrap_or_default(),
            every_stem: self.takes_every_stem(&given),
            without_labels: !self.wants_labels(&given),
            ..IndexOptions::default()
        }
    }

    /// Checks everything that can be wrong and decides what was left open.
    ///
    /// # Errors
    /// The errors of [`LoaderOptions::validate`]; [`Error::Config`] for a `memory` too small for this dataset;
    /// [`Error::Unavailable`] for a GPU that is asked for and cannot serve.
    pub fn check(&self, index: &DatasetIndex) -> Result<LoaderConfig> {
        self.validate()?;
        let images = self.images(&self.given_names()?)?;
        self.warn_about_scale(&images, index);
        let ranks = self.local_world_size.unwrap_or(1);
        // Bytes that are only passed on need no more than one thread.
        let processors = || if self.decoded { share::processors(ranks) } else { 1 };
        let threads = self.threads.map_or_else(processors, |threads| threads as usize);
        let queue_depth = self.queue_depth.unwrap_or(32) as usize;
        let asked = self.fields.as_deref().unwrap_or_default();
        let given = self.labels.as_ref().map_or(Ok(Vec::new()), |labels| labels.columns(index, asked))?;
        let (fields, layout) = self.fields(index, &images, &given)?;
        let batch_bytes = layout.bytes(self.batch_size as usize);
        let chosen = self.choose_device(&images, index)?;
        if chosen.overlooked {
            index.notices().warn_once("device", || {
                let why = &chosen.why;
                format!("there is a GPU, but the CPU makes the batches: {why}; device=\"cpu\" says that this is meant")
            });
        }
        let device_pools = match chosen.device {
            Device::Cpu => None,
            Device::Cuda { .. } => {
                let own = LaneMemory::new(images.views(), self.batch_size as usize);
                Some(DevicePools::new(self.device_memory, chosen.memory, own.bytes(), batch_bytes)?)
            }
        };
        let sized = self.decoded && (0..images.list().len()).any(|image| is_sized(images.recipe(image)));
        let host = pools::PoolSizing { options: self, index, threads, queue_depth, sized };
        host.warn_about_sizes();
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
            backends: AllowedBackends::from_environment()?,
            device_pools,
            images,
            fields,
            layout,
            given: Arc::new(given),
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

    /// The fields of the batches, and where they lie in a batch.
    fn fields(
        &self,
        index: &DatasetIndex,
        images: &Images,
        given: &[SampleColumn],
    ) -> Result<(Fields, BatchLayout)> {
        match &self.fields {
            Some(_) if !self.decoded => {
                let message = "cannot be named with decoded=False, which gives files: leave one of them out";
                Err(Error::config("fields", message))
            }
            None if !self.decoded => Ok((Fields::usual(images, &[])?.0, BatchLayout::default())),
            None => {
                if let Some(sample) = index.ambiguous() {
                    let message = format!(
                        "must say which image is meant, for samples have several ({sample:?} for one): \
                         fields=[\"jpg\", ...]"
                    );
                    return Err(Error::config("fields", message));
                }
                Fields::usual(images, given)
            }
            Some(asked) => Fields::check(asked, index, images, given),
        }
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
                Err(Error::config("cache_dir", "is not given, but its size is: where shall the cache be?"))
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
