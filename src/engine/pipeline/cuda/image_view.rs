//! A view of the images of a lane, with the launchers of the kernels that make it.

use super::placed::PlacedSample;
use pixels::augment::DrawnView;
use pixels::augment::cuda::{MixLauncher, ViewLauncher};

/// A view of one image field. The images of this view are made for all samples together.
pub(super) struct ImageView {
    pub(super) image: usize,
    /// The index of the view among the views of its image.
    pub(super) number: usize,
    pub(super) launcher: ViewLauncher,
    /// Launches the mixing of the view's images; `None` if nothing is mixed.
    pub(super) mix: Option<MixLauncher>,
}

impl ImageView {
    /// Returns the drawn view of a sample; `None` if there is no image.
    pub(super) fn drawn<'a>(&self, sample: &'a PlacedSample) -> Option<&'a DrawnView> {
        sample.work.images.get(self.image).drawn().map(|drawn| &drawn.views()[self.number])
    }
}
