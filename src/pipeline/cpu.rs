//! The CPU's decoder with the views that a sample's epoch draws.

use super::watch::Watch;
use super::{Run, Shared};
use crate::augment::{DrawnViews, RecipeKeys};
use crate::decode::{Decoded, Decoder, Planes, Region};
use crate::error::{DecodeError, Error, Result};
use crate::schedule::Draw;
use crate::trace::Stage;

impl Shared {
    /// What an epoch with these `keys` makes of the image of this number, which has so many columns and rows.
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

/// Decodes one image after another; owns its scratch memory. One per thread.
pub(super) struct CpuDecoder {
    decoder: Decoder,
    pub(super) planes: Planes,
}

impl CpuDecoder {
    pub(super) fn new(shared: &Shared) -> Self {
        let config = &shared.config;
        let decoder = Decoder::new(config.max_pixels).with_damaged(config.damaged);
        Self { decoder, planes: Planes::default() }
    }

    /// Decodes what the views of an image need, all of them together, into `planes`: that of this number of a draw's
    /// sample.
    pub(super) fn decode(
        &mut self,
        shared: &Shared,
        run: &Run,
        image: usize,
        draw: Draw,
        bytes: &[u8],
        watch: &mut Watch,
    ) -> Result<DrawnViews> {
        let (drawn, decoded) = self.draw_and_decode(shared, &run.keys, image, draw, bytes);
        watch.lap_as(&run.clock.decode, Stage::Decode, bytes.len());
        let (decoded, drawn) = (decoded?, drawn?);
        run.clock.count(decoded.backend);
        if let Some(damage) = &decoded.concealed {
            run.conceal(shared, image, draw, damage);
        }
        Ok(drawn)
    }

    /// The views that `keys` give to the image of this number of a draw's sample, and how decoding went.
    pub(super) fn draw_and_decode(
        &mut self,
        shared: &Shared,
        keys: &[RecipeKeys],
        image: usize,
        draw: Draw,
        bytes: &[u8],
    ) -> (Result<DrawnViews>, Result<Decoded, DecodeError>) {
        let mut drawn = Err(Error::Internal("a decoder did not ask for its region".into()));
        let choose = |width, height| {
            drawn = shared.draw_views(keys, image, draw, (width, height));
            // An image that a transform cannot take is decoded no further than it must be.
            drawn.as_ref().map_or(Region { x: 0, y: 0, width: 1, height: 1 }, DrawnViews::region)
        };
        let decoded = self.decoder.decode(bytes, choose, &mut self.planes);
        (drawn, decoded)
    }
}
