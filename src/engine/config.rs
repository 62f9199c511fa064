//! The settings of a loader. [`LoaderOptions`] has the values that the user requested, [`LoaderConfig`] the resolved
//! values for one dataset on one machine.
//!
//! All checks are made here, once, before an epoch begins, and so are all choices that depend on the dataset or the
//! machine. [`LoaderOptions::validate`] checks everything that needs no dataset, so that no index is built in vain.
//! [`CheckedOptions::check`] makes the [`LoaderConfig`].
//!
//! The number of workers, of reads in flight and of batches ahead follows from the settings, the machine and the
//! dataset (`config/pools.rs`). It does not change while a pipeline runs, so the memory of a pipeline is bounded from
//! the start.

mod arrays;
mod buckets;
mod budget;
mod cache;
mod condition;
mod device;
mod field_options;
mod field_value;
mod fields;
mod frames;
mod image_sizes;
mod images;
mod key_choice;
mod labels;
mod mask_type;
mod mixing;
mod order;
mod peers;
mod pfs;
mod pools;
mod recipe;
mod requested;
mod selection;
mod settings;
mod share;
mod sharing;
mod sized;
mod views;
mod windows;

pub use arrays::{ArrayOptions, ArrayPlace, ArrayPlan};
pub use budget::OverBudget;
pub use device::{AllowedBackends, CpuDecode, Device, GpuDecoder, LANES};
pub use device::{
    ChosenDevice, DevicePools, choose_with as choose_device_of, look_for_libraries_in,
    unavailable as unavailable_device,
};
pub use field_options::FieldOptions;
pub use field_value::FieldValue;
pub use fields::{Field, FieldContent, Fields, LABEL};
pub use frames::Bucket;
pub use images::{ImageField, Images};
pub use labels::Labels;
pub use labels::numbers as label_numbers;
pub use mixing::MixPlan;
pub use peers::Peers;
pub use pfs::parse_pfs;
pub use recipe::check_given_once;
pub use selection::Weights;
pub use settings::{
    CacheChoice, LoaderKind, LoaderOptions, RESOURCES_MAY_BE, SettingsClass, SettingsObject, choices, manual,
    parameters, signature, stub, stub_of_objects,
};
pub use settings::{GivenSettings, Setting, UserValue, docstring, python_name, unknown_setting};
pub use share::CpuShare;
pub use share::has_unwatched_quota;
pub use sharing::SharingPolicy;
pub use views::{ViewKind, ViewPlaces};
pub use windows::{ArrayWindow, FieldWindow, FieldWindows, WindowPlace};

use crate::batch::{BatchLayout, Pools};
use base::error::{Error, Result};
use base::names::named;
pub use base::units::{parse_bytes, parse_duration};
use condition::Condition;
use data::dataset::{Contents, DatasetIndex, IndexOptions, NeighbourBlocks, SampleAxis, SampleColumn};
use data::schedule::{Assignment, BucketTable, CostTable, LastBatch, Selection, Shuffling};
pub use image_sizes::HeaderReading;
use labels::ReadLabels;
use pixels::augment::Output;
use pixels::decode::{Damaged, Orientation};
use requested::RequestedFields;
use sized::SizeIndependent;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use store::io::{Direct, IoChoice};
use store::tier::{CacheOptions, NoForms, Verify};

/// Policy for samples that cannot be read or decoded.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum OnError {
    /// The batch that would hold the sample is not delivered; its first failure is raised instead.
    #[default]
    Raise,
    /// Another sample replaces it. The choice depends only on dataset, seed, epoch and position, so every rank and
    /// every run chooses the same substitute. Batches stay full, and `sample_ids` has the id of the substitute.
    Skip,
    /// The image is all zeros and its mask bit is false.
    Zero,
}

named!(OnError: "raise" => Raise, "skip" => Skip, "zero" => Zero);

/// The settings of a loader as resolved for one dataset on this machine.
#[derive(Debug, Clone)]
pub struct LoaderConfig {
    /// Number of samples per batch and rank; with bins, the largest number.
    pub batch_size: u32,
    /// Seed of order and augmentation.
    pub seed: u64,
    /// Kind of shuffling of an epoch.
    pub shuffling: Shuffling,
    /// The blocks of neighbouring samples (`NeighbourBlocks`) that are read together; `None` if samples are read one by
    /// one.
    pub neighbour_blocks: Option<Arc<NeighbourBlocks>>,
    /// Number of ranks that `shuffle="blocks"` divides the blocks among; `None` for the current number of ranks.
    pub shuffle_ranks: Option<u32>,
    /// Policy for the samples that do not fill the last batch.
    pub last_batch: LastBatch,
    /// Number of consecutive draws of each sample.
    pub repeats: u32,
    /// Rule by which ranks take samples of a global batch.
    pub assignment: Assignment,
    /// The samples that an epoch draws from, with their weights.
    pub selection: Arc<Selection>,
    /// Whether batches hold decoded images; otherwise they hold the bytes of the files.
    pub decoded: bool,
    /// The device on which batches end.
    pub device: Device,
    /// Reason for the choice of the device, in words.
    pub device_reason: String,
    /// Decoder of images when the device is a GPU.
    pub decoder: GpuDecoder,
    /// Images that the CPU decodes when the device is a GPU.
    pub cpu_decode: CpuDecode,
    /// Decoders that may be used when the device is a GPU.
    pub backends: AllowedBackends,
    /// Pools of the GPU's memory; `None` on the CPU.
    pub device_pools: Option<DevicePools>,
    /// The image fields, and the transforms of each.
    pub images: Images,
    /// The fields of a batch.
    pub fields: Fields,
    /// The windows of those fields that are arrays.
    pub windows: FieldWindows,
    /// The layout of the fields in a batch.
    pub layout: BatchLayout,
    /// The mixing of images within a batch (`mix=`), if any.
    pub mix: Option<MixPlan>,
    /// The columns of `labels`, and those columns of the dataset's tables that are fields.
    pub label_columns: Arc<Vec<SampleColumn>>,
    /// Number of decoding threads.
    pub threads: usize,
    /// Maximum share of the node's processors that the threads use; `None` for no limit.
    pub cpu: Option<CpuShare>,
    /// The interface that reads files.
    pub io: IoChoice,
    /// Whether reads bypass the page cache.
    pub direct: Direct,
    /// Maximum number of reads in flight.
    pub queue_depth: usize,
    /// The tiers (RAM, disk) that keep copies of samples; `None` without a cache.
    pub cache: Option<CacheOptions>,
    /// Policy for JPEGs with damage inside their coded data.
    pub damaged: Damaged,
    /// Policy for images whose metadata says that they are stored rotated.
    pub orientation: Orientation,
    /// Policy for samples that fail.
    pub on_error: OnError,
    /// Maximum number of failures in an epoch; `None` for no limit.
    pub max_errors: Option<u64>,
    /// Number of pixels above which an image is refused.
    pub max_pixels: u64,
    /// Sizes of the memory pools.
    pub pools: Pools,
    /// Maximum size in bytes of the cache of JPEG row starts. Decoding a JPEG finds the positions where its rows of
    /// blocks start, and later epochs use them to skip parts of the file.
    pub row_bytes: usize,
    /// Configurations for later epochs with other image sizes, each with its first epoch, in order.
    pub later: Vec<(u64, LoaderConfig)>,
    /// The buckets; `None` without `buckets`.
    pub bucket: Option<Bucket>,
    /// The configurations of all buckets, by their numbers; empty without buckets. The rest of this configuration is
    /// that of the largest bucket.
    pub buckets: Vec<LoaderConfig>,
    /// The bucket of each draw of an epoch; `None` without buckets.
    pub bucket_table: Option<Arc<BucketTable>>,
    /// The cost of each draw of an epoch, and the budget of a batch; `None` without `batch_tokens`.
    pub cost_table: Option<Arc<CostTable>>,
    /// Number of bins that all ranks take in a step of the training; `None` for the number of ranks.
    pub step_bins: Option<u32>,
}

impl LoaderConfig {
    /// Returns the output for the images of the first image field; with several views, the output of the first view.
    pub fn output(&self) -> &Output {
        self.images.first_recipe().views()[0].fixed_output()
    }
}

/// Options that passed all checks that need no dataset, made by [`LoaderOptions::validate`].
#[derive(Debug)]
pub struct CheckedOptions<'a> {
    options: &'a LoaderOptions,
    labels: Option<ReadLabels<'a>>,
    fields: Option<RequestedFields<'a>>,
    images: Images,
    condition: Option<Condition>,
}

impl LoaderOptions {
    /// Checks all settings that can be checked without the dataset, so that no index is built in vain, and reads the
    /// table of `labels`.
    ///
    /// # Errors
    /// [`Error::Config`] that names the setting; [`Error::Unavailable`] if the requested GPU cannot be used.
    pub fn validate(&self) -> Result<CheckedOptions<'_>> {
        Setting::all().try_for_each(|setting| setting.check(self))?;
        self.check_shared()?;
        if !self.decoded && self.device.starts_with("cuda") {
            let message = format!(
                "is {}, but decoded=False keeps files in host memory: use device=\"cpu\"",
                self.device
            );
            return Err(Error::config("device", message));
        }
        self.check_buckets()?;
        self.check_budget()?;
        device::validate(&self.device, self.gpu_decoder())?;
        self.check_blocks()?;
        self.cache(1)?;
        if self.labels.is_some() && !self.decoded {
            let message = "cannot be used with decoded=False, which gives whole files: remove one of the two";
            return Err(Error::config("labels", message));
        }
        let labels = self.labels.as_ref().map(Labels::read).transpose()?;
        let columns = labels.as_ref().map(ReadLabels::names).unwrap_or_default();
        let fields = self.fields.as_deref().map(|asked| RequestedFields::new(asked, &columns));
        fields.as_ref().map_or(Ok(()), labels::check_names)?;
        let images = match self.in_buckets()?.first() {
            Some(bucket) => bucket.images(fields.as_ref())?,
            None => self.images(fields.as_ref())?,
        };
        self.check_mix(fields.as_ref(), &images)?;
        let condition = self.condition.as_deref().map(Condition::read).transpose()?;
        Ok(CheckedOptions { options: self, labels, fields, images, condition })
    }

    /// Runs [`LoaderOptions::validate`], then [`CheckedOptions::check`].
    ///
    /// # Errors
    /// The errors of both.
    pub fn check(&self, index: &DatasetIndex) -> Result<LoaderConfig> {
        self.validate()?.check(index)
    }

    fn fields(
        &self,
        asked: Option<&RequestedFields<'_>>,
        index: &DatasetIndex,
        images: &Images,
        label_columns: &[SampleColumn],
    ) -> Result<(Fields, BatchLayout)> {
        match asked {
            _ if !self.decoded && index.has_arrays() => {
                let message = "is False, which gives whole files, but the samples are parts of arrays: use \
                               foreload.Loader";
                Err(Error::config("decoded", message))
            }
            Some(_) if !self.decoded => {
                let message =
                    "cannot be used with decoded=False, which gives whole files: remove one of the two";
                Err(Error::config("fields", message))
            }
            None if !self.decoded => {
                Ok((Fields::usual(images, &[], index.is_labeled())?.0, BatchLayout::default()))
            }
            None => {
                if let Some(columns) = index.ambiguous().filter(|_| index.has_tables()) {
                    let message =
                        format!("samples have several images ({columns}): choose with fields=[...]");
                    return Err(Error::config("fields", message));
                }
                if let Some(sample) = index.ambiguous() {
                    let message = format!(
                        "samples have several images (for example sample {sample:?}): choose with fields=[\"jpg\", \
                         ...]"
                    );
                    return Err(Error::config("fields", message));
                }
                Fields::usual(images, label_columns, index.is_labeled())
            }
            Some(asked) => Fields::check(asked, index, images, label_columns),
        }
    }

    /// Returns why cached copies must stay in the storage format of the dataset; `None` if they may be converted.
    fn no_forms(&self, fields: &Fields, device: Device, decoder: GpuDecoder) -> Option<NoForms> {
        let no = |why, is_impossible| Some(NoForms { why, is_impossible });
        if self.decoded && !fields.is_image_alone() {
            no("a cached copy holds several files of a sample", true)
        } else if self.verify == Verify::Checksum {
            no("verify=\"checksum\" compares copies with the dataset's files", true)
        } else if !self.decoded {
            no("batches contain the files themselves", false)
        } else if device != Device::Cpu && decoder.decodes_jpegs() {
            // With decoder="nvjpeg" only the CPU can decode packed copies, and `cpu_decode="never"` forbids it.
            let is_impossible = (decoder, self.cpu_decode) == (GpuDecoder::NvJpeg, CpuDecode::Never);
            no("nvJPEG decodes the JPEGs, and it cannot read other storage formats", is_impossible)
        } else if has_unwatched_quota() {
            no("a CPU quota (cgroup) may leave no time for it, and the system does not report when", false)
        } else {
            None
        }
    }
}

impl LoaderOptions {
    /// Returns the samples of the dataset for which the condition `where` is true; `None` without a condition. Columns
    /// of `labels` are not considered.
    ///
    /// # Errors
    /// [`Error::Config`] for a condition that cannot be read or tested; the errors of [`HeaderReading::sizes`].
    pub fn chosen_by_condition(
        &self,
        index: &DatasetIndex,
        reading: &HeaderReading,
    ) -> Result<Option<Vec<u32>>> {
        let condition = self.condition.as_deref().map(Condition::read).transpose()?;
        condition.map(|condition| condition.choose(index, None, &[], Some(reading))).transpose()
    }

    /// Returns how the headers of the first image of each sample are read; `None` if samples have no image.
    fn header_reading(
        &self,
        asked: Option<&RequestedFields<'_>>,
        images: &Images,
        index: &DatasetIndex,
        cancel: &Arc<AtomicBool>,
    ) -> Option<HeaderReading> {
        let first = images.first()?;
        let source = asked.and_then(|asked| asked.iter().nth(images.list()[first].field));
        let of_members =
            |(_, field): (_, &FieldOptions)| index.members().iter().position(|name| *name == field.source);
        Some(HeaderReading {
            member: if self.decoded { source.and_then(of_members) } else { None },
            is_applied: self.orientation == Orientation::Apply,
            queue_depth: self.depth_for(index) as usize,
            rebuild: self.rebuild_index,
            progress: self.progress,
            cancel: cancel.clone(),
        })
    }
}

impl LoaderConfig {
    /// Returns the maximum number of bytes that are read for a sample of `length` bytes.
    pub fn most_bytes(&self, length: u32) -> u32 {
        pools::most_read(length, self.cache.is_some())
    }
}

impl CheckedOptions<'_> {
    /// Returns the options to find or build the index of a dataset for this loader.
    pub fn index_options(&self, contents: Contents) -> IndexOptions {
        let Self { options, fields, condition, .. } = self;
        IndexOptions {
            directory: options.index_dir.clone(),
            rebuild: options.rebuild_index,
            changed: options.changed,
            bad_shards: options.bad_shards,
            // Whether the list of `files` needs a bad shard is known only after the list was read.
            bad_shards_later: options.files.is_some(),
            split: options.split.clone(),
            sample_axis: options.sample_axis,
            label: options.label.clone(),
            images: options.images.as_ref().map(|path| path.to_string_lossy().into_owned()),
            progress: options.progress,
            contents,
            optional: fields.as_ref().map(RequestedFields::optional).unwrap_or_default(),
            parallel: fields.as_ref().map(RequestedFields::parallel).unwrap_or_default(),
            of_files: fields.as_ref().map(RequestedFields::of_files).unwrap_or_default(),
            members: fields.as_ref().and_then(RequestedFields::members),
            columns: condition.as_ref().map(Condition::columns).unwrap_or_default(),
            every_stem: fields.as_ref().is_some_and(RequestedFields::take_every_stem),
            label_column: fields.as_ref().is_some_and(RequestedFields::want_labels),
            class_names: options.class_names.clone(),
            without_labels: !fields.as_ref().map_or(self.labels.is_none(), RequestedFields::want_labels),
            ..IndexOptions::default()
        }
    }

    /// Checks the options against this dataset, and chooses all values that the user did not set.
    ///
    /// # Errors
    /// [`Error::Config`] for a `memory` too small for this dataset, and for fields, labels and weights that do not fit
    /// the dataset; [`Error::Unavailable`] if the requested GPU cannot be used.
    pub fn check(self, index: &DatasetIndex) -> Result<LoaderConfig> {
        self.check_until(index, &Arc::default())
    }

    /// Whether the headers of images may have to be read, which can take long.
    pub fn reads_headers(&self) -> bool {
        self.options.buckets.is_set() || self.options.costs_patches() || self.condition.is_some()
    }

    /// Like [`CheckedOptions::check`], but another thread can set `cancel` to end the reading of image headers, which
    /// `buckets`, `where` and `cost="patches"` need.
    ///
    /// # Errors
    /// The errors of `check`; [`Error::Dataset`] after cancellation.
    pub fn check_until(self, index: &DatasetIndex, cancel: &Arc<AtomicBool>) -> Result<LoaderConfig> {
        let Self { options, labels, fields: asked, images, condition } = self;
        if options.sample_axis == SampleAxis::File && !index.has_arrays() {
            let message = "is \"file\", which is for arrays, but this dataset has none: remove the setting";
            return Err(Error::config("sample_axis", message));
        }
        options.warn_about_scale(&images, index);
        options.warn_about_evaluation(index);
        let names = labels.as_ref().map(ReadLabels::names).unwrap_or_default();
        let given = options.fields.as_deref().unwrap_or_default();
        let mut label_columns = labels.map_or(Ok(Vec::new()), |labels| labels.columns(index, given))?;
        let of_labels = label_columns.len();
        label_columns.extend(requested::columns_of_tables(given, &names, index)?);
        // The schema of a table gives the kinds of its columns, and so decides which fields are images.
        let by_schema = requested::with_kinds(given, index);
        let (asked, images) = match asked {
            Some(_) if index.has_tables() => {
                let asked = RequestedFields::new(&by_schema, &names);
                let images = match options.in_buckets()?.first() {
                    Some(bucket) => bucket.images(Some(&asked))?,
                    None => options.images(Some(&asked))?,
                };
                options.check_mix(Some(&asked), &images)?;
                (Some(asked), images)
            }
            asked => (asked, images),
        };
        if options.kind == LoaderKind::Fields && options.transforms.is_some() && images.list().is_empty() {
            let message = "is for images, but none of the fields is an image: remove the setting";
            return Err(Error::config("transforms", message));
        }
        let reading = options.header_reading(asked.as_ref(), &images, index, cancel);
        let filter = |chosen| {
            let Some(condition) = &condition else { return Ok(chosen) };
            condition.choose(index, chosen, &label_columns[..of_labels], reading.as_ref()).map(Some)
        };
        let selection = Arc::new(selection::select(options, index, filter)?);
        let of_images = (images.first_recipe(), reading.as_ref());
        let cost_table = options.cost_table(&selection, &label_columns, of_images, index)?;
        let in_bins =
            cost_table.as_ref().map(|table| LoaderOptions { batch_size: table.most(), ..options.clone() });
        let options = in_bins.as_ref().unwrap_or(options);
        let same = SizeIndependent {
            neighbour_blocks: options.neighbour_blocks(&selection, index),
            selection,
            label_columns: Arc::new(label_columns),
            cost_table,
        };
        let in_buckets = options.in_buckets()?;
        let of_bucket = |bucket: &LoaderOptions| {
            let images = bucket.images(asked.as_ref())?;
            bucket.sized(asked.as_ref(), index, images, &same)
        };
        let in_buckets = in_buckets.iter().map(of_bucket).collect::<Result<_>>()?;
        if let Some(mut config) = LoaderConfig::of_buckets(in_buckets) {
            config.find_buckets(index, reading.as_ref())?;
            return Ok(config);
        }
        let mut config = options.sized(asked.as_ref(), index, images, &same)?;
        for (epoch, image_size) in options.image_size_from.iter().flatten() {
            let later = LoaderOptions { image_size: *image_size, ..options.clone() };
            let images = later.images(asked.as_ref())?;
            config.later.push((*epoch, later.sized(asked.as_ref(), index, images, &same)?));
        }
        Ok(config)
    }
}
