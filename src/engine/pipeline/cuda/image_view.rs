//! A view of the images of a lane, and what launches the kernels that make it.

use super::placed::PlacedSample;
use pixels::augment::DrawnView;
use pixels::augment::cuda::{MixLauncher, ViewLauncher};

/// A view of one image of each sample, whose images are made together.
pub(super) struct ImageView {
    pub(super) image: usize,
    /// The number of the view among those of its image.
    pub(super) number: usize,
    pub(super) launcher: ViewLauncher,
    /// What mixes its images, if anything does.
    pub(super) mix: Option<MixLauncher>,
}

impl ImageView {
    /// What the view shows of a sample; `None` where there is no image.
    pub(super) fn drawn<'a>(&self, sample: &'a PlacedSample) -> Option<&'a DrawnView> {
        sample.work.images.get(self.image).drawn().map(|drawn| &drawn.views()[self.number])
    }
}
