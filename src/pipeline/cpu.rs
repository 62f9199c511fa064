//! The CPU's decoder with the view that a sample's epoch draws.

use super::watch::Watch;
use super::{Run, Shared};
use crate::augment::View;
use crate::decode::{Decoder, Planes};
use crate::error::{Error, Result};
use crate::schedule::Draw;
use crate::trace::Stage;

impl Shared {
    /// What `run` makes of an image of so many columns and rows.
    pub(super) fn draw_view(&self, run: &Run, draw: Draw, (width, height): (u32, u32)) -> View {
        let mut stream = run.augment.stream_of(draw.sample, draw.occurrence);
        self.config.policy.draw(&mut stream, width, height, &self.config.output)
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

    /// Decodes what the view of a draw's sample needs into `planes`.
    pub(super) fn decode(
        &mut self,
        shared: &Shared,
        run: &Run,
        draw: Draw,
        bytes: &[u8],
        watch: &mut Watch,
    ) -> Result<View> {
        let config = &shared.config;
        let mut view = None;
        let choose = |width, height| {
            let drawn = shared.draw_view(run, draw, (width, height));
            view = Some(drawn);
            drawn.region(&config.output)
        };
        let decoded = self.decoder.decode(bytes, choose, &mut self.planes);
        watch.lap_as(&run.clock.decode, Stage::Decode, bytes.len());
        let decoded = decoded?;
        run.clock.count(decoded.backend);
        if let Some(damage) = &decoded.concealed {
            run.conceal(shared, draw, damage);
        }
        view.ok_or_else(|| Error::Internal("a decoder did not ask for its region".into()))
    }
}
