//! The CPU's decoder together with the views that an epoch draws of a sample.

use super::stopwatch::Stopwatch;
use super::{EpochRun, PipelineShared};
use crate::augment::{DrawnViews, RecipeKeys};
use crate::decode::{Decoded, Decoder, Planes, Region};
use crate::error::{DecodeError, Error, Result};
use crate::schedule::Draw;
use crate::trace::Stage;

impl PipelineShared {
    /// The views that an epoch with these `keys` draws of the image with this number; `size` is its width and height.
    pub(super) fn draw_views(
        &self,
        keys: &[RecipeKeys],
        image: usize,
        draw: Draw,
        size: (u32, u32),
    ) -> Result<DrawnViews> {
        let images = &self.config.images;
        images.recipe(image).draw(&keys[images.list()[image].leader], draw.sample, draw.occurrence, size)
    }
}

/// Decodes one image after another, in scratch memory of its own. Each thread has one.
pub(super) struct CpuDecoder {
    decoder: Decoder,
    pub(super) planes: Planes,
}

impl CpuDecoder {
    pub(super) fn new(shared: &PipelineShared) -> Self {
        let config = &shared.config;
        let decoder = Decoder::new(config.max_pixels).with_damaged(config.damaged);
        Self { decoder, planes: Planes::default() }
    }

    /// Decodes the image with this number of a draw's sample into `planes`, as far as all its views together need.
    pub(super) fn decode(
        &mut self,
        shared: &PipelineShared,
        run: &EpochRun,
        image: usize,
        draw: Draw,
        bytes: &[u8],
        stopwatch: &mut Stopwatch,
    ) -> Result<DrawnViews> {
        let (drawn, decoded) = self.draw_and_decode(shared, &run.keys, image, draw, bytes);
        stopwatch.lap_as(&run.counters.decode, Stage::Decode, bytes.len());
        let (decoded, drawn) = (decoded?, drawn?);
        run.counters.count(decoded.backend);
        if let Some(damage) = &decoded.concealed {
            run.conceal(shared, image, draw, damage);
        }
        if decoded.narrowed {
            shared.notify_narrowed(image, draw.sample);
        }
        Ok(drawn)
    }

    /// Draws the views of the image with this number of a draw's sample, and decodes what they need.
    pub(super) fn draw_and_decode(
        &mut self,
        shared: &PipelineShared,
        keys: &[RecipeKeys],
        image: usize,
        draw: Draw,
        bytes: &[u8],
    ) -> (Result<DrawnViews>, Result<Decoded, DecodeError>) {
        let mut drawn = Err(Error::Internal("a decoder did not ask for its region".into()));
        let choose = |width, height| {
            drawn = shared.draw_views(keys, image, draw, (width, height));
            // An image that a transform cannot take is decoded as little as possible.
            drawn.as_ref().map_or(Region { x: 0, y: 0, width: 1, height: 1 }, DrawnViews::region)
        };
        let decoded = self.decoder.decode(bytes, choose, &mut self.planes);
        (drawn, decoded)
    }
}
