//! A view of the images of a lane, with the launchers of the kernels that make it.

use super::placed::PlacedSample;
use pixels::augment::DrawnView;
use pixels::augment::cuda::{MixLauncher, ViewLauncher};

/// A view of one image field. Its images of all samples are made together.
pub(super) struct ImageView {
    pub(super) image: usize,
    /// The number of the view among those of its image.
    pub(super) number: usize,
    pub(super) launcher: ViewLauncher,
    /// Launches the mixing of its images; `None` where nothing is mixed.
    pub(super) mix: Option<MixLauncher>,
}

impl ImageView {
    /// Returns the drawn view of a sample; `None` if there is no image.
    pub(super) fn drawn<'a>(&self, sample: &'a PlacedSample) -> Option<&'a DrawnView> {
        sample.work.images.get(self.image).drawn().map(|drawn| &drawn.views()[self.number])
    }
}
