//! Images of different shapes: with `buckets`, each batch has the size of one bucket. Each bucket has a configuration
//! of its own, whose recipes have the bucket's size in place of `size="bucket"`, and whose batches have its layout.
//!
//! The configurations differ in images and layout alone. So pixels and random numbers are those of a loader with the
//! same transforms and a fixed size. (→ tests/load/buckets.rs)

use super::{ImageField, Images, LoaderConfig, LoaderKind, LoaderOptions, ViewKind};
use crate::batch::{BatchLayout, Element};
use base::error::{Error, Result};
use data::schedule::{BucketSizes, LastBatch, Shuffling};
use pixels::augment::ImageSize;
use std::sync::Arc;

/// The bucket of a configuration.
#[derive(Debug, Clone)]
pub struct Bucket {
    /// The sizes of all buckets.
    pub sizes: Arc<BucketSizes>,
    /// The size of this bucket.
    pub size: ImageSize,
    /// The number of the columns of the layout that have the original size of the first image, then the place of its
    /// crop: int64 `[n, 2]` each. `None` if batches have no images.
    pub columns: Option<[usize; 2]>,
}

impl LoaderOptions {
    /// Refuses settings that are not supported with `buckets`.
    ///
    /// # Errors
    /// [`Error::Config`] that names the setting.
    pub(super) fn check_buckets(&self) -> Result<()> {
        if !self.buckets.is_set() {
            return Ok(());
        }
        let usual = LoaderOptions::default();
        let by_place = "is \"blocks\", which cannot be used with buckets: use shuffle=True";
        let once = "cannot be used with buckets, which draw each sample once: remove one of the two";
        let by_size = "cannot be used with buckets, which give each batch a size: remove one of the two";
        let mixes_rest = self.mix.is_some() && self.last_batch_or_default() == LastBatch::Partial;
        let refused = [
            ("shuffle", self.shuffling() == Shuffling::Blocks, by_place),
            ("repeats", self.repeats > 1, once),
            ("weights", self.weights.is_some(), once),
            ("ratios", self.ratios.is_some(), once),
            ("epoch_size", self.epoch_size.is_some(), once),
            ("image_size", self.image_size != usual.image_size, by_size),
            ("image_size_from", self.image_size_from.is_some(), by_size),
            ("scale", self.scale != usual.scale, by_size),
            ("ratio", self.ratio != usual.ratio, by_size),
            ("resize", self.resize.is_some(), by_size),
            (
                "last_batch",
                mixes_rest,
                "is \"partial\", which cannot be used with mix and buckets together: use \"drop\" or \"pad\"",
            ),
        ];
        if self.device.starts_with("cuda") {
            let message = format!(
                "is {}, but batches of buckets are not supported on a GPU yet: use device=\"cpu\"",
                self.device
            );
            return Err(Error::config("device", message));
        }
        let refused = refused.into_iter().find(|(_, is_given, _)| *is_given);
        refused.map_or(Ok(()), |(setting, _, why)| Err(Error::config(setting, why)))
    }

    /// Returns these options for each bucket, with its size in the transforms; empty without buckets.
    ///
    /// # Errors
    /// [`Error::Config`] if no transform uses the size.
    pub(super) fn in_buckets(&self) -> Result<Vec<LoaderOptions>> {
        let Some(sizes) = self.buckets.list()? else { return Ok(Vec::new()) };
        let missing = || {
            let message = "has no size=\"bucket\", but buckets give each batch a size: use size=\"bucket\" in \
                           ResizeToCover, RandomCrop, CenterCrop, RandomResizedCrop or Resize";
            Error::config("transforms", message)
        };
        let of = |size: &ImageSize| {
            let transforms = match &self.transforms {
                None if self.kind == LoaderKind::Fields && self.decoded => return Err(missing()),
                None => None,
                Some(transforms) => Some(transforms.in_bucket(*size).ok_or_else(missing)?),
            };
            Ok(LoaderOptions { image_size: (size.height, size.width), transforms, ..self.clone() })
        };
        sizes.list().iter().map(of).collect()
    }

    /// Checks that batches of `images` have one size, and adds the columns of shapes to their `layout`.
    ///
    /// # Errors
    /// [`Error::Config`] for images of their own sizes.
    pub(super) fn bucket(&self, images: &Images, layout: &mut BatchLayout) -> Result<Option<Bucket>> {
        let Some(sizes) = self.buckets.list()?.map(Arc::new) else { return Ok(None) };
        let size = ImageSize { height: self.image_size.0, width: self.image_size.1 };
        if !self.decoded || images.list().is_empty() {
            return Ok(Some(Bucket { sizes, size, columns: None }));
        }
        let has_own_size =
            |(image, _): &(usize, &ImageField)| ViewKind::of(images.recipe(*image)) != ViewKind::Tensors;
        if let Some((_, ImageField { name, .. })) = images.list().iter().enumerate().find(has_own_size) {
            let message = format!(
                "makes images {name:?} of varying size, but buckets give each batch a size: add RandomCrop(\"bucket\") \
                 or CenterCrop(\"bucket\") to the end of its geometry"
            );
            return Err(Error::config("transforms", message));
        }
        let columns = [0; 2].map(|_| layout.add_column(Element::I64, vec![2]));
        Ok(Some(Bucket { sizes, size, columns: Some(columns) }))
    }
}

impl LoaderConfig {
    /// Returns the configuration of the largest bucket, with the configurations of all buckets in `buckets`.
    pub(super) fn of_buckets(buckets: Vec<Self>) -> Option<Self> {
        let bytes = |config: &&Self| config.layout.bytes(config.batch_size as usize);
        let largest = buckets.iter().max_by_key(bytes)?.clone();
        Some(Self { buckets, ..largest })
    }
}
