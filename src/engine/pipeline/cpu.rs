//! Decodes images on the CPU, and only the parts that the drawn views of an image need.

use super::{context::SampleContext, notify, run::EpochRun, stopwatch::Stopwatch};
use base::error::{DecodeError, Error, Result};
use base::parts::WantedBytes;
use base::simd::Level;
use base::trace::Stage;
use data::schedule::Draw;
use pixels::augment::{CanvasPainter, DrawnViews, ImageToDraw, RecipeKeys};
use pixels::decode::{Backend, Decoded, Decoder, Planes, Region, Turn};
use std::sync::atomic::Ordering;

/// The smallest region that can be decoded, for an image whose pixels are not needed.
const SMALLEST_REGION: Region = Region { x: 0, y: 0, width: 1, height: 1 };

pub(crate) struct SampleImage<'a> {
    pub image: usize,
    pub draw: Draw,
    pub bytes: &'a [u8],
    /// The byte ranges of the file that were read; `None` if the whole file was read. All other bytes are undefined.
    /// With `orientation="apply"`, only images that are stored upright are read in parts.
    pub parts: Option<WantedBytes>,
    pub views: ViewsFrom<'a>,
}

impl SampleImage<'_> {
    pub(crate) fn arrived(&self) -> usize {
        self.parts.map_or(self.bytes.len(), |parts| parts.bytes() as usize)
    }
}

pub(crate) enum ViewsFrom<'a> {
    /// The views are not drawn yet. They are drawn when the image's size is known, with these boxes of the sample.
    Boxes(&'a [[f32; 4]]),
    /// The views were drawn when the image's header was read.
    Header(DrawnViews),
}

pub(crate) struct CpuDecoder {
    pub decoder: Decoder,
    painter: CanvasPainter,
    /// The pixel values from which views are made: the decoded image, turned if the views need that, or the canvas onto
    /// which the image was painted.
    pub planes: Planes,
    pub decoded_by: Option<Backend>,
    /// Whether planes are transposed as the views need them, because the kernels of a GPU do not transpose.
    for_kernels: bool,
}

impl CpuDecoder {
    pub(crate) fn new(context: &SampleContext) -> Self {
        let config = &context.config;
        let decoder = Decoder::new(config.max_pixels).with_damaged(config.damaged);
        let painter = CanvasPainter::new(Level::detect());
        Self { decoder, painter, planes: Planes::default(), decoded_by: None, for_kernels: false }
    }

    pub(crate) fn for_kernels(self) -> Self {
        Self { for_kernels: true, ..self }
    }

    pub(crate) fn decode(
        &mut self,
        run: &EpochRun,
        of: SampleImage<'_>,
        stopwatch: &mut Stopwatch,
    ) -> Result<DrawnViews> {
        let (context, image, draw, length) = (&run.context, of.image, of.draw, of.arrived());
        let (drawn, decoded) = self.draw_and_decode(context, &run.keys, of);
        stopwatch.lap_as(&run.counters.decode, Stage::Decode, length);
        let (decoded, drawn) = (decoded?, drawn?);
        run.counters.count(&decoded);
        self.decoded_by = Some(decoded.backend);
        if let Some(damage) = &decoded.concealed {
            run.counters.concealed.fetch_add(1, Ordering::Relaxed);
            run.concealed.note(context, image, draw, damage);
        }
        if decoded.reduced_to_8_bits {
            notify::narrowed(context, image, draw.sample);
        }
        Ok(drawn)
    }

    /// Draws the views of an image, and decodes into `planes` the parts of the image that the views need. To skip rows
    /// of a JPEG, uses the cached row starts of the image, and adds new ones.
    pub(crate) fn draw_and_decode(
        &mut self,
        context: &SampleContext,
        keys: &[RecipeKeys],
        SampleImage { image, draw, bytes, parts, views }: SampleImage<'_>,
    ) -> (Result<DrawnViews>, Result<Decoded, DecodeError>) {
        let mut drawn = Err(Error::Internal("a decoder did not ask for its region".into()));
        let turn_of = || if parts.is_none() { context.turn_of(bytes) } else { Turn::UPRIGHT };
        let choose = |width, height| {
            drawn = match views {
                ViewsFrom::Boxes(boxes) => {
                    let of = ImageToDraw { stored: (width, height), turn: turn_of(), boxes };
                    context.draw_views(keys, image, draw, &of)
                }
                ViewsFrom::Header(drawn) if drawn.stored_size() == (width, height) => Ok(drawn),
                ViewsFrom::Header(_) => {
                    Err(Error::Internal("the size of an image differs from the size in its header".into()))
                }
            };
            // If a transform does not accept the image, decode only one pixel.
            drawn.as_ref().map_or(SMALLEST_REGION, DrawnViews::region)
        };
        let memory = &context.source.rows;
        let of = (draw.sample, image);
        let decoded = match parts.is_none().then(|| memory.take(of)) {
            Some(mut rows) if rows.is_some() || memory.has_room() => {
                let decoded = self.decoder.decode_with_row_starts(bytes, &mut rows, choose, &mut self.planes);
                if let Some(rows) = rows {
                    memory.keep(of, rows);
                }
                decoded
            }
            _ => self.decoder.decode_parts(bytes, parts, choose, &mut self.planes),
        };
        if let (Ok(drawn), Ok(_)) = (&drawn, &decoded) {
            self.painter.paint(&mut self.planes, drawn);
            if self.for_kernels {
                self.painter.transpose(&mut self.planes, drawn);
            }
        }
        (drawn, decoded)
    }
}
