//! The CPU's decoder with the views that a sample's epoch draws.

use super::watch::Watch;
use super::{Run, Shared};
use crate::augment::{DrawnViews, RecipeKeys};
use crate::decode::{Decoded, Decoder, Planes, Region};
use crate::error::{DecodeError, Error, Result};
use crate::schedule::Draw;
use crate::trace::Stage;

impl Shared {
    /// What `run` makes of an image of so many columns and rows.
    pub(super) fn draw_views(&self, run: &Run, draw: Draw, size: (u32, u32)) -> Result<DrawnViews> {
        self.config.recipe.draw(&run.keys, draw.sample, draw.occurrence, size)
    }
}

/// Decodes one sample after another; owns its scratch memory. One per thread.
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

    /// Decodes what the views of a draw's sample need, all of them together, into `planes`.
    pub(super) fn decode(
        &mut self,
        shared: &Shared,
        run: &Run,
        draw: Draw,
        bytes: &[u8],
        watch: &mut Watch,
    ) -> Result<DrawnViews> {
        let (drawn, decoded) = self.draw_and_decode(shared, &run.keys, draw, bytes);
        watch.lap_as(&run.clock.decode, Stage::Decode, bytes.len());
        let (decoded, drawn) = (decoded?, drawn?);
        run.clock.count(decoded.backend);
        if let Some(damage) = &decoded.concealed {
            run.conceal(shared, draw, damage);
        }
        Ok(drawn)
    }

    /// The views that `keys` give to a draw's sample, and how decoding went.
    pub(super) fn draw_and_decode(
        &mut self,
        shared: &Shared,
        keys: &RecipeKeys,
        draw: Draw,
        bytes: &[u8],
    ) -> (Result<DrawnViews>, Result<Decoded, DecodeError>) {
        let mut drawn = Err(Error::Internal("a decoder did not ask for its region".into()));
        let choose = |width, height| {
            drawn = shared.config.recipe.draw(keys, draw.sample, draw.occurrence, (width, height));
            // An image that a transform cannot take is decoded no further than it must be.
            drawn.as_ref().map_or(Region { x: 0, y: 0, width: 1, height: 1 }, DrawnViews::region)
        };
        let decoded = self.decoder.decode(bytes, choose, &mut self.planes);
        (drawn, decoded)
    }
}
