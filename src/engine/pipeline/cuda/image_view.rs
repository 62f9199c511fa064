//! A view of an image field, with the launchers of the kernels that make it.

use super::placed::PlacedSample;
use pixels::augment::DrawnView;
use pixels::augment::cuda::{MixLauncher, ViewLauncher};

/// A view of one image field. One launch makes this view for all samples of a chunk.
pub(super) struct ImageView {
    pub(super) image: usize,
    pub(super) number: usize,
    pub(super) launcher: ViewLauncher,
    /// Launches the mixing of the view's images (MixUp, CutMix); `None` if nothing is mixed.
    pub(super) mix: Option<MixLauncher>,
}

impl ImageView {
    pub(super) fn drawn<'a>(&self, sample: &'a PlacedSample) -> Option<&'a DrawnView> {
        sample.work.images[self.image].drawn().map(|drawn| &drawn.views()[self.number])
    }
}
