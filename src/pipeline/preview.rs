//! Single samples, looked at beside any epoch: what is drawn of them, and the pictures that a network sees.

use super::Pipeline;
use super::cpu::{CpuDecoder, SampleImage, ViewsFrom};
use crate::augment::{
    DrawnView, DrawnViews, Fidelity, MemoryFormat, Recipe, RecipeView, Renderer, Transform, Transforms,
};
use crate::decode::{Decoder, Planes, Region};
use crate::error::{Error, Result};
use crate::schedule::Draw;
use crate::simd::Level;

/// Grey levels of a picture.
pub(crate) struct PreviewImage {
    /// The number of columns.
    pub(crate) width: u32,
    /// The number of rows.
    pub(crate) height: u32,
    /// R, G and B of each pixel, row by row.
    pub(crate) levels: Vec<u8>,
}

impl Pipeline {
    /// The views that `epoch` draws of an image of a draw's sample, which is read and parsed to know its size. The
    /// image is that of `field`, or of the first image field.
    ///
    /// # Errors
    /// [`Error::Sample`] when the sample cannot be read or decoded; [`Error::Config`] when there is no such sample or
    /// image field.
    pub fn views(&self, draw: Draw, epoch: u64, field: Option<&str>) -> Result<DrawnViews> {
        self.look(draw, field, |of| self.draw_of(epoch, of).map(|(drawn, _)| drawn))
    }

    /// These views with their pictures, as the CPU makes them, turned back from normalised values into grey levels.
    ///
    /// # Errors
    /// The errors of [`Pipeline::views`].
    pub(crate) fn preview(
        &self,
        draw: Draw,
        epoch: u64,
        field: Option<&str>,
    ) -> Result<Vec<(DrawnView, PreviewImage)>> {
        self.look(draw, field, |of| {
            let image = of.image;
            let (drawn, planes) = self.draw_of(epoch, of)?;
            let recipe = self.shared_in(epoch).config.images.recipe(image);
            let mut renderer = Renderer::new(recipe, Level::detect());
            let render = |(number, (drawn, view)): (usize, (&DrawnView, &RecipeView))| {
                let output = view.output(drawn);
                let mut bytes = vec![0; output.bytes()];
                renderer.render(number, &planes, drawn, &mut bytes);
                let levels = output.levels_of(&bytes);
                (drawn.clone(), PreviewImage { width: output.width, height: output.height, levels })
            };
            Ok(drawn.views().iter().zip(recipe.views()).enumerate().map(render).collect())
        })
    }

    /// The whole image of a draw's sample, no side of which is longer than `longest` pixels.
    ///
    /// # Errors
    /// The errors of [`Pipeline::views`].
    pub(crate) fn whole_image(&self, draw: Draw, field: Option<&str>, longest: u32) -> Result<PreviewImage> {
        self.look(draw, field, |of| self.original(of.bytes, longest))
    }

    /// Reads a sample and gives `see` its image.
    fn look<T>(
        &self,
        draw: Draw,
        field: Option<&str>,
        see: impl FnOnce(SampleImage<'_>) -> Result<T>,
    ) -> Result<T> {
        let (index, config) = (&self.shared.index, &self.shared.config);
        if draw.sample >= index.len() {
            let message = format!("is {}, the dataset has {}", draw.sample, index.len());
            return Err(Error::config("sample_id", message));
        }
        let image = match field {
            Some(name) => config.images.named(name).ok_or_else(|| {
                let names: Vec<_> =
                    config.images.list().iter().map(|image| format!("{:?}", image.name)).collect();
                Error::config(
                    "field",
                    format!("is {name:?}, the images of a sample are {}", names.join(", ")),
                )
            })?,
            None => config.images.first().ok_or_else(|| {
                let message = "names no image, so that there is nothing to see";
                Error::config("fields", message)
            })?,
        };
        let seen = self.shared.read_blocking(draw.sample).and_then(|(record, _)| {
            let bytes = self.shared.image_bytes(image, draw.sample, &record)?;
            let boxes = self.shared.boxes_of_image(None, image, draw.sample, &record)?;
            let of = SampleImage { image, draw, bytes: &bytes, views: ViewsFrom::Boxes(&boxes) };
            see(of).map_err(|error| self.shared.of_image(image, error))
        });
        seen.map_err(|source| self.shared.sample_error(draw.sample, source))
    }

    /// Draws the views of an image and decodes what they need.
    fn draw_of(&self, epoch: u64, of: SampleImage<'_>) -> Result<(DrawnViews, Planes)> {
        let shared = self.shared_in(epoch);
        let keys = shared.config.images.keys(shared.config.seed, epoch);
        let mut cpu = CpuDecoder::new(shared);
        let (drawn, decoded) = cpu.draw_and_decode(shared, &keys, of);
        decoded?;
        Ok((drawn?, cpu.planes))
    }

    /// The whole image of a file.
    fn original(&self, bytes: &[u8], longest: u32) -> Result<PreviewImage> {
        let config = &self.shared.config;
        let mut planes = Planes::default();
        let whole = |width, height| Region { x: 0, y: 0, width, height };
        Decoder::new(config.max_pixels).with_damaged(config.damaged).decode(bytes, whole, &mut planes)?;
        let resize =
            Transform::Resize { size: None, max_size: Some(longest), interpolation: Default::default() };
        let list = Transforms::single(vec![resize]);
        let recipe = Recipe::new(&list, MemoryFormat::Nhwc, Fidelity::Fast)?;
        let drawn = recipe.draw(&recipe.keys(0, 0), 0, 0, (planes.image_width, planes.image_height))?;
        let (drawn, view) = (&drawn.views()[0], &recipe.views()[0]);
        let output = view.output(drawn);
        let mut levels = vec![0; output.bytes()];
        Renderer::new(&recipe, Level::detect()).render(0, &planes, drawn, &mut levels);
        Ok(PreviewImage { width: output.width, height: output.height, levels })
    }
}
