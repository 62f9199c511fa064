//! The inputs for making samples: the dataset's index, the settings, and the source of bytes.

use super::reading::SampleSource;
use crate::config::LoaderConfig;
use base::error::{Error, Result};
use data::dataset::DatasetIndex;
use data::schedule::Draw;
use pixels::augment::{DrawnViews, ImageToDraw, RecipeKeys};
use pixels::decode::{Orientation, Turn, orientation};
use std::sync::Arc;

/// The inputs for making samples with one set of settings.
pub(crate) struct SampleContext {
    pub index: Arc<DatasetIndex>,
    pub config: LoaderConfig,
    pub source: Arc<SampleSource>,
    /// The contexts of the buckets, whose images have other sizes; empty without buckets.
    pub buckets: Vec<Arc<SampleContext>>,
}

impl SampleContext {
    fn new(source: &Arc<SampleSource>, mut config: LoaderConfig) -> Arc<Self> {
        let buckets = std::mem::take(&mut config.buckets);
        let buckets = buckets.into_iter().map(|config| Self::new(source, config)).collect();
        Arc::new(Self { index: source.index.clone(), config, source: source.clone(), buckets })
    }

    /// Draws the views of the image with the index `image` in an epoch with these `keys`. The boxes of `of`
    /// come from [`boxes_of_image`](super::boxes::boxes_of_image).
    pub(crate) fn draw_views(
        &self,
        keys: &[RecipeKeys],
        image: usize,
        Draw { sample, occurrence }: Draw,
        of: &ImageToDraw<'_>,
    ) -> Result<DrawnViews> {
        let images = &self.config.images;
        let keys = &keys[images.list()[image].primary];
        images.recipe(image).draw_image(keys, sample, occurrence, of)
    }

    /// Returns how an image is turned, from the complete bytes of its file, or of the file's packed or indexed form.
    pub(crate) fn turn_of(&self, bytes: &[u8]) -> Turn {
        match self.config.orientation {
            Orientation::Apply => Turn::of_exif(orientation(bytes)),
            Orientation::Ignore | Orientation::Warn => Turn::UPRIGHT,
        }
    }

    pub(crate) fn sample_error(&self, sample: u64, source: Error) -> Error {
        let extent = self.index.place_in_file(self.index.extent(sample));
        Error::Sample {
            id: sample,
            key: self.index.key_in_tar(sample),
            path: self.index.shown_path(sample).into(),
            offset: extent.offset,
            length: extent.length,
            source: Box::new(source),
        }
    }

    pub(crate) fn of_image(&self, image: usize, error: Error) -> Error {
        match self.config.images.list() {
            [_] => error,
            images => error.of_field(&images[image].name),
        }
    }

    pub(crate) fn name_prefix(&self, image: usize) -> String {
        match self.config.images.list() {
            [_] => String::new(),
            images => format!("{:?}: ", images[image].name),
        }
    }
}

/// The contexts of a pipeline. A new context begins with each epoch that changes the sizes of images.
pub(crate) struct ContextsByEpoch {
    pub first: Arc<SampleContext>,
    /// The contexts of later epochs, each with its first epoch, in the order of these epochs.
    later: Vec<(u64, Arc<SampleContext>)>,
}

impl ContextsByEpoch {
    pub(crate) fn new(source: &Arc<SampleSource>, mut config: LoaderConfig) -> Self {
        let later = std::mem::take(&mut config.later);
        let with = |config| SampleContext::new(source, config);
        let later = later.into_iter().map(|(epoch, config)| (epoch, with(config))).collect();
        Self { first: with(config), later }
    }

    pub(crate) fn in_epoch(&self, epoch: u64) -> &Arc<SampleContext> {
        let begun = self.later.partition_point(|(begins, _)| *begins <= epoch);
        begun.checked_sub(1).map_or(&self.first, |latest| &self.later[latest].1)
    }

    pub(crate) fn most_ahead(&self) -> usize {
        let all = std::iter::once(&self.first).chain(self.later.iter().map(|(_, context)| context));
        all.map(|context| context.config.pools.prefetch).max().unwrap_or(0)
    }
}
