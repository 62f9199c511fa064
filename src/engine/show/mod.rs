//! A contact sheet: the network's input for some samples, next to the whole images, with the random draws as text.
//! Images are shown mixed if `mix` is set.

mod canvas;
mod words;

use crate::pipeline::{Pipeline, PreviewImage};
use base::error::{Error, Result};
use canvas::Canvas;
use data::schedule::Draw;

/// Options of a contact sheet.
#[derive(Debug, Clone)]
pub struct SheetRequest {
    /// The ids of the samples; if empty, the first samples that the epoch draws.
    pub samples: Vec<u64>,
    /// Number of samples, if they are not listed.
    pub rows: u64,
    pub epoch: u64,
    /// Number of epochs. Each epoch draws new views of a sample.
    pub epochs: u64,
    /// Number of ranks that share an epoch. With `repeats`, the order of the samples depends on this number.
    pub world_size: u32,
    /// The image field; `None` for the first image field.
    pub field: Option<String>,
}

impl Default for SheetRequest {
    fn default() -> Self {
        Self { samples: Vec::new(), rows: 8, epoch: 0, epochs: 1, world_size: 1, field: None }
    }
}

/// Longest side of a picture, in pixels. Of a larger picture, only every second, third ... pixel is shown.
const LONGEST: u32 = 256;
const MAX_PICTURES: u64 = 2000;

/// Draws the sheet as a PNG: a row for each sample, first the whole image, then its views.
///
/// # Errors
/// [`Error::Config`] for an invalid request, or a sample that does not exist; [`Error::Sample`] for a sample that
/// cannot be read or decoded.
pub fn sheet(pipeline: &Pipeline, request: &SheetRequest) -> Result<Vec<u8>> {
    for (setting, number) in [("rows", request.rows), ("epochs", request.epochs)] {
        if number == 0 {
            return Err(Error::config(setting, "is 0, must be at least 1"));
        }
    }
    let draws = draws(pipeline, request)?;
    let views = pipeline.config().images.views().count() as u64;
    let pictures =
        (draws.len() as u64).saturating_mul(views.saturating_mul(request.epochs).saturating_add(1));
    if pictures > MAX_PICTURES {
        let setting = if request.samples.is_empty() { "rows" } else { "samples" };
        let message = format!(
            "asks for {} samples with {views} views in each of {} epochs, which makes {pictures} pictures, but a sheet \
             has at most {MAX_PICTURES}",
            draws.len(),
            request.epochs
        );
        return Err(Error::config(setting, message));
    }
    let mut canvas = Canvas::default();
    for draw in draws {
        let field = request.field.as_deref();
        let whole = pipeline.whole_image(draw, field, LONGEST)?;
        let mut row = vec![(whole, words::of_sample(pipeline.index(), draw))];
        for epoch in (request.epoch..).take(request.epochs as usize) {
            let preview = pipeline.preview(draw, epoch, request.world_size, field)?;
            let mixed = preview
                .mixed
                .map(|mixed| words::of_mix(&mixed, |draw| words::of_sample(pipeline.index(), draw)));
            for (number, (drawn, picture)) in preview.views.into_iter().enumerate() {
                let mut lines = words::of_view(epoch, number, &drawn)?;
                lines.extend(mixed.iter().flatten().cloned());
                row.push((thinned(picture), lines));
            }
        }
        canvas.add_row(row);
    }
    canvas.png()
}

fn draws(pipeline: &Pipeline, request: &SheetRequest) -> Result<Vec<Draw>> {
    if !request.samples.is_empty() {
        return Ok(request.samples.iter().map(|&sample| Draw { sample, occurrence: 0 }).collect());
    }
    pipeline.first_draws(request.epoch, request.world_size, request.rows)
}

/// Returns every n-th pixel of the picture, so that no side is too long.
fn thinned(picture: PreviewImage) -> PreviewImage {
    let step = picture.width.max(picture.height).div_ceil(LONGEST);
    if step <= 1 {
        return picture;
    }
    let (width, height) = (picture.width.div_ceil(step), picture.height.div_ceil(step));
    let pixel = |x: u32, y: u32| {
        let at = 3 * ((y * step) as usize * picture.width as usize + (x * step) as usize);
        &picture.levels[at..at + 3]
    };
    let levels = (0..height).flat_map(|y| (0..width).flat_map(move |x| pixel(x, y)).copied()).collect();
    PreviewImage { width, height, levels }
}
