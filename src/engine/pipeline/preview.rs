//! Previews single samples outside of any epoch: the views that are drawn of them, and the pictures that a network
//! sees.

use super::{
    Pipeline, boxes::boxes_of_image, cpu::CpuDecoder, cpu::SampleImage, cpu::ViewsFrom, members::image_bytes,
};
use base::error::{Error, Result};
use base::simd::Level;
use data::schedule::{Draw, Order, RepeatSpread};
use pixels::augment::{
    CanvasPainter, DrawnMix, DrawnView, DrawnViews, Fidelity, ImageToDraw, MemoryFormat, Output, Recipe,
    RecipeView, Renderer, Transform, Transforms, WholeResize, mix_images, partner,
};
use pixels::decode::{Decoder, Planes, Region, image_size};

/// A picture as 8-bit levels of R, G and B.
pub struct PreviewImage {
    /// The number of columns.
    pub width: u32,
    /// The number of rows.
    pub height: u32,
    /// R, G and B of each pixel, row by row.
    pub levels: Vec<u8>,
}

/// The images of one draw as a network sees them.
pub struct Preview {
    /// Each view with its picture, converted back from normalised values to levels.
    pub views: Vec<(DrawnView, PreviewImage)>,
    /// The effect of `mix` on the draw; `None` without `mix`.
    pub mixed: Option<PreviewMix>,
}

/// The effect of `mix` on a draw.
pub enum PreviewMix {
    /// The draw stays unchanged, because the epoch has no partner for it.
    Alone,
    /// The draw is mixed with another draw.
    With {
        /// The draw with which the previewed draw is mixed.
        partner: Draw,
        /// The random mix of both draws.
        drawn: DrawnMix,
    },
}

struct FinishedView {
    drawn: DrawnView,
    output: Output,
    bytes: Vec<u8>,
}

impl Pipeline {
    /// Draws the views of `epoch` for an image of a draw's sample. The sample is read and parsed to get the size of the
    /// image. The image is in the field `field`, or in the first image field.
    ///
    /// # Errors
    /// [`Error::Sample`] if the sample cannot be read or decoded; [`Error::Config`] if there is no such sample or image
    /// field.
    pub fn views(&self, draw: Draw, epoch: u64, field: Option<&str>) -> Result<DrawnViews> {
        self.with_sample_image(draw, field, |of| {
            self.draw_and_decode_views(epoch, of).map(|(drawn, _)| drawn)
        })
    }

    /// Makes the images of a draw as a network sees them, in an epoch with `world_size` ranks. The CPU makes them, as
    /// with `device="cpu"`.
    ///
    /// # Errors
    /// The errors of [`Pipeline::views`], also for the sample of the mixing partner.
    pub fn preview(&self, draw: Draw, epoch: u64, world_size: u32, field: Option<&str>) -> Result<Preview> {
        let mut views = self.unmixed_views(draw, epoch, field)?;
        let mixed = match &self.contexts.in_epoch(epoch).config.mix {
            None => None,
            Some(_) => Some(match self.partner(draw, epoch, world_size)? {
                None => PreviewMix::Alone,
                Some((partner, drawn)) => {
                    for (own, other) in views.iter_mut().zip(&mut self.unmixed_views(partner, epoch, field)?)
                    {
                        mix_images(&drawn, &own.output, &mut [&mut own.bytes, &mut other.bytes]);
                    }
                    PreviewMix::With { partner, drawn }
                }
            }),
        };
        let picture = |FinishedView { drawn, output, bytes }: FinishedView| {
            let levels = output.levels_of(&bytes);
            (drawn, PreviewImage { width: output.width, height: output.height, levels })
        };
        Ok(Preview { views: views.into_iter().map(picture).collect(), mixed })
    }

    /// Returns the first `count` draws of an epoch with `world_size` ranks, in the order of the global batches; all
    /// draws if there are fewer.
    pub fn first_draws(&self, epoch: u64, world_size: u32, count: u64) -> Result<Vec<Draw>> {
        let (order, spread) = self.epoch_places(epoch, world_size)?;
        Ok((0..count.min(order.len())).map(|place| order.draw(spread.position(place))).collect())
    }

    fn epoch_places(&self, epoch: u64, world_size: u32) -> Result<(Order, RepeatSpread)> {
        let order = self.order(epoch, world_size)?;
        let spread = RepeatSpread::new(&order, self.global_batch(world_size));
        Ok((order, spread))
    }

    /// Returns the draw that `draw` is mixed with in an epoch, and the random mix of both. `None` if the epoch does not
    /// contain the draw, or has no partner for it.
    fn partner(&self, draw: Draw, epoch: u64, world_size: u32) -> Result<Option<(Draw, DrawnMix)>> {
        let (order, spread) = self.epoch_places(epoch, world_size)?;
        let found = || {
            let position = order.positions(draw.sample).find(|&position| order.draw(position) == draw)?;
            let place = spread.place(position);
            let other = Some(partner(place, order.len())).filter(|&other| other != place)?;
            Some((order.draw(spread.position(other)), self.mix(place, epoch, world_size)?))
        };
        Ok(found())
    }

    fn unmixed_views(&self, draw: Draw, epoch: u64, field: Option<&str>) -> Result<Vec<FinishedView>> {
        self.with_sample_image(draw, field, |of| {
            let image = of.image;
            let (drawn, planes) = self.draw_and_decode_views(epoch, of)?;
            let recipe = self.contexts.in_epoch(epoch).config.images.recipe(image);
            let mut renderer = Renderer::new(recipe, Level::detect());
            let render = |(number, (drawn, view)): (usize, (&DrawnView, &RecipeView))| {
                let output = view.output(drawn);
                let mut bytes = vec![0; output.bytes()];
                renderer.render(number, &planes, drawn, &mut bytes);
                FinishedView { drawn: drawn.clone(), output, bytes }
            };
            Ok(drawn.views().iter().zip(recipe.views()).enumerate().map(render).collect())
        })
    }

    /// Decodes the whole image of a draw's sample, turned as the views are, with no side longer than `longest` pixels.
    ///
    /// # Errors
    /// The errors of [`Pipeline::views`].
    pub fn whole_image(&self, draw: Draw, field: Option<&str>, longest: u32) -> Result<PreviewImage> {
        self.with_sample_image(draw, field, |of| self.decode_whole(of.bytes, longest))
    }

    fn with_sample_image<T>(
        &self,
        draw: Draw,
        field: Option<&str>,
        use_image: impl FnOnce(SampleImage<'_>) -> Result<T>,
    ) -> Result<T> {
        let context = &self.contexts.first;
        let (index, config) = (&context.index, &context.config);
        if draw.sample >= index.len() {
            let message = format!("is {}, but the dataset has {} samples", draw.sample, index.len());
            return Err(Error::config("sample_id", message));
        }
        let image = match field {
            Some(name) => config.images.named(name).ok_or_else(|| {
                let names: Vec<_> =
                    config.images.list().iter().map(|image| format!("{:?}", image.name)).collect();
                Error::config(
                    "field",
                    format!("is {name:?}, must be one of the image fields {}", names.join(", ")),
                )
            })?,
            None => config.images.first().ok_or_else(|| {
                let message = "contains no image field, so there is nothing to preview";
                Error::config("fields", message)
            })?,
        };
        let seen = context.source.read_blocking(draw.sample).and_then(|(record, _)| {
            let bytes = image_bytes(context, image, draw.sample, &record)?;
            let boxes = boxes_of_image(context, None, image, draw.sample, &record)?;
            let of = SampleImage { image, draw, bytes: &bytes, parts: None, views: ViewsFrom::Boxes(&boxes) };
            use_image(of).map_err(|error| context.of_image(image, error))
        });
        seen.map_err(|source| context.sample_error(draw.sample, source))
    }

    fn draw_and_decode_views(&self, epoch: u64, of: SampleImage<'_>) -> Result<(DrawnViews, Planes)> {
        let context = self.contexts.in_epoch(epoch);
        let context = match &context.config.bucket {
            Some(bucket) => {
                let (width, height) = context.turn_of(of.bytes).shown(image_size(of.bytes)?);
                let nearest = bucket.sizes.nearest(width, height);
                context.buckets.get(usize::from(nearest)).unwrap_or(context)
            }
            None => context,
        };
        let keys = context.config.images.keys(context.config.seed, epoch);
        let mut cpu = CpuDecoder::new(context);
        let (drawn, decoded) = cpu.draw_and_decode(context, &keys, of);
        decoded?;
        Ok((drawn?, cpu.planes))
    }

    fn decode_whole(&self, bytes: &[u8], longest: u32) -> Result<PreviewImage> {
        let config = self.config();
        let mut planes = Planes::default();
        let whole = |width, height| Region { x: 0, y: 0, width, height };
        Decoder::new(config.max_pixels).with_damaged(config.damaged).decode(bytes, whole, &mut planes)?;
        let resize = WholeResize { size: None, max_size: Some(longest), interpolation: Default::default() };
        let list = Transforms::single(vec![Transform::Resize(resize)]);
        let recipe = Recipe::new(&list, MemoryFormat::Nhwc, Fidelity::Fast)?;
        let stored = (planes.image_width, planes.image_height);
        let of = ImageToDraw { stored, turn: self.contexts.first.turn_of(bytes), boxes: &[] };
        let drawn = recipe.draw_image(&recipe.keys(0, 0), 0, 0, &of)?;
        CanvasPainter::new(Level::detect()).paint(&mut planes, &drawn);
        let (drawn, view) = (&drawn.views()[0], &recipe.views()[0]);
        let output = view.output(drawn);
        let mut levels = vec![0; output.bytes()];
        Renderer::new(&recipe, Level::detect()).render(0, &planes, drawn, &mut levels);
        Ok(PreviewImage { width: output.width, height: output.height, levels })
    }
}
