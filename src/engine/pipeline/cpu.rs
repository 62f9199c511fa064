//! The CPU's decoder together with the views that an epoch draws of a sample.

use super::stopwatch::Stopwatch;
use super::{EpochRun, PipelineShared};
use base::error::{DecodeError, Error, Result};
use base::parts::ByteParts;
use base::simd::Level;
use base::trace::Stage;
use data::schedule::Draw;
use pixels::augment::{CanvasPainter, DrawnViews, RecipeKeys};
use pixels::decode::{Backend, Decoded, Decoder, Planes, Region};

/// The least region that can be decoded, where nothing is needed of an image.
const NEXT_TO_NOTHING: Region = Region { x: 0, y: 0, width: 1, height: 1 };

/// An image of a draw's sample.
pub(super) struct SampleImage<'a> {
    /// The number of the image.
    pub image: usize,
    pub draw: Draw,
    /// The bytes of its file.
    pub bytes: &'a [u8],
    /// What decides its views.
    pub views: ViewsFrom<'a>,
}

/// What decides the views of an image.
pub(super) enum ViewsFrom<'a> {
    /// They are drawn when its size is known, beside these boxes of the sample.
    Boxes(&'a [[f32; 4]]),
    /// They were drawn when its header was read.
    Header(DrawnViews),
}

impl PipelineShared {
    /// The views that an epoch with these `keys` draws of the image with this number; `size` is its width and height,
    /// and `boxes` are those of [`PipelineShared::boxes_of_image`].
    pub(super) fn draw_views(
        &self,
        keys: &[RecipeKeys],
        image: usize,
        Draw { sample, occurrence }: Draw,
        size: (u32, u32),
        boxes: &[[f32; 4]],
    ) -> Result<DrawnViews> {
        let images = &self.config.images;
        let keys = &keys[images.list()[image].leader];
        images.recipe(image).draw_beside(keys, sample, occurrence, size, boxes)
    }
}

/// The views that another recipe of the run shows of the same image.
pub(super) struct ViewsBeside<'a> {
    pub shared: &'a PipelineShared,
    pub keys: &'a [RecipeKeys],
    /// The number of the image among those of that recipe.
    pub image: usize,
    pub boxes: Vec<[f32; 4]>,
}

impl ViewsBeside<'_> {
    /// The region that the views need of an image of this size; `None` where they cannot be made of its planes.
    fn region(&self, draw: Draw, size: (u32, u32)) -> Option<Region> {
        let drawn = self.shared.draw_views(self.keys, self.image, draw, size, &self.boxes).ok()?;
        drawn.canvas().is_none().then(|| drawn.region())
    }
}

/// An image in the planes, of which other recipes may show their views, too.
struct HeldImage {
    sample: u64,
    size: (u32, u32),
    decoded: Decoded,
}

/// Decodes one image after another, in scratch memory of its own. Each thread has one, and one for each image of a
/// sample where several recipes make batches.
pub(super) struct CpuDecoder {
    decoder: Decoder,
    painter: CanvasPainter,
    held: Option<HeldImage>,
    /// The planes of which the views are that were drawn last: the image's, or those of a canvas on which it lies.
    pub(super) planes: Planes,
    /// Who decoded the latest image.
    pub(super) decoded_by: Option<Backend>,
}

impl CpuDecoder {
    pub(super) fn new(shared: &PipelineShared) -> Self {
        let config = &shared.config;
        let decoder = Decoder::new(config.max_pixels).with_damaged(config.damaged);
        let painter = CanvasPainter::new(Level::detect());
        Self { decoder, painter, held: None, planes: Planes::default(), decoded_by: None }
    }

    /// Forgets the image in the planes, because other bytes come next.
    pub(super) fn forget(&mut self) {
        self.held = None;
    }

    /// Decodes an image into `planes`, as far as all its views together need.
    pub(super) fn decode(
        &mut self,
        shared: &PipelineShared,
        run: &EpochRun,
        of: SampleImage<'_>,
        stopwatch: &mut Stopwatch,
    ) -> Result<DrawnViews> {
        self.decode_read(shared, run, of, None, stopwatch)
    }

    /// Decodes like [`CpuDecoder::decode_read`] as far as the views of the recipes `beside` need, too. An image that
    /// was decoded for another recipe, and not forgotten since, is not decoded again.
    pub(super) fn decode_beside(
        &mut self,
        shared: &PipelineShared,
        run: &EpochRun,
        of: SampleImage<'_>,
        parts: Option<ByteParts>,
        beside: &[ViewsBeside<'_>],
        stopwatch: &mut Stopwatch,
    ) -> Result<DrawnViews> {
        if parts.is_none() {
            shared.notify_turned(of.image, of.draw.sample, of.bytes);
        }
        if let Some(drawn) = self.drawn_of_held(shared, run, &of)? {
            return Ok(drawn);
        }
        self.held = None;
        if !beside.is_empty() && self.decode_union(shared, run, &of, parts, beside) {
            let length = parts.map_or(of.bytes.len(), |parts| parts.bytes() as usize);
            stopwatch.lap_as(&run.counters.decode, Stage::Decode, length);
            if let Some(drawn) = self.drawn_of_held(shared, run, &of)? {
                return Ok(drawn);
            }
        }
        self.held = None;
        self.decode_read(shared, run, of, parts, stopwatch)
    }

    /// Decodes an image as far as all recipes need that can share it. Returns whether it is there for all of them, as
    /// it would be for each alone: damage that only one of them needs to know of is not concealed for the others.
    fn decode_union(
        &mut self,
        shared: &PipelineShared,
        run: &EpochRun,
        of: &SampleImage<'_>,
        parts: Option<ByteParts>,
        beside: &[ViewsBeside<'_>],
    ) -> bool {
        let SampleImage { image, draw, bytes, views: ViewsFrom::Boxes(boxes) } = *of else { return false };
        let boxes = boxes.to_vec();
        let own = ViewsBeside { shared, keys: &run.keys, image, boxes };
        let mut size = None;
        let choose = |width, height| {
            let Some(own) = own.region(draw, (width, height)) else { return NEXT_TO_NOTHING };
            size = Some((width, height));
            let others = beside.iter().filter_map(|views| views.region(draw, (width, height)));
            others.fold(own, Region::union)
        };
        let decoded = self.decoder.decode_read(bytes, parts, choose, &mut self.planes);
        let (Some(size), Ok(decoded)) = (size, decoded) else { return false };
        let is_whole = decoded.concealed.is_none();
        self.held = is_whole.then_some(HeldImage { sample: draw.sample, size, decoded });
        is_whole
    }

    /// The views of the image that the planes have already; `None` where they have another, or not enough of it.
    fn drawn_of_held(
        &mut self,
        shared: &PipelineShared,
        run: &EpochRun,
        of: &SampleImage<'_>,
    ) -> Result<Option<DrawnViews>> {
        let SampleImage { image, draw, views: ViewsFrom::Boxes(boxes), .. } = *of else { return Ok(None) };
        let Some(held) = self.held.as_ref().filter(|held| held.sample == draw.sample) else {
            return Ok(None);
        };
        let drawn = shared.draw_views(&run.keys, image, draw, held.size, boxes)?;
        let needed = drawn.region();
        if drawn.canvas().is_some() || held.decoded.region.union(needed) != held.decoded.region {
            return Ok(None);
        }
        run.counters.count(held.decoded.backend);
        self.decoded_by = Some(held.decoded.backend);
        if held.decoded.narrowed {
            shared.notify_narrowed(image, draw.sample);
        }
        Ok(Some(drawn))
    }

    /// Decodes like [`CpuDecoder::decode`] an image of whose bytes only these `parts` were read, where there are some.
    pub(super) fn decode_read(
        &mut self,
        shared: &PipelineShared,
        run: &EpochRun,
        of: SampleImage<'_>,
        parts: Option<ByteParts>,
        stopwatch: &mut Stopwatch,
    ) -> Result<DrawnViews> {
        let (image, draw) = (of.image, of.draw);
        let length = parts.map_or(of.bytes.len(), |parts| parts.bytes() as usize);
        let (drawn, decoded) = self.draw_and_decode(shared, &run.keys, of, parts);
        stopwatch.lap_as(&run.counters.decode, Stage::Decode, length);
        let (decoded, drawn) = (decoded?, drawn?);
        run.counters.count(decoded.backend);
        self.decoded_by = Some(decoded.backend);
        if let Some(damage) = &decoded.concealed {
            run.conceal(shared, image, draw, damage);
        }
        if decoded.narrowed {
            shared.notify_narrowed(image, draw.sample);
        }
        Ok(drawn)
    }

    /// Draws the views of an image, and decodes what they need.
    pub(super) fn draw_and_decode(
        &mut self,
        shared: &PipelineShared,
        keys: &[RecipeKeys],
        of: SampleImage<'_>,
        parts: Option<ByteParts>,
    ) -> (Result<DrawnViews>, Result<Decoded, DecodeError>) {
        let SampleImage { image, draw, bytes, views } = of;
        let mut drawn = Err(Error::Internal("a decoder did not ask for its region".into()));
        let choose = |width, height| {
            drawn = match views {
                ViewsFrom::Boxes(boxes) => shared.draw_views(keys, image, draw, (width, height), boxes),
                ViewsFrom::Header(drawn) if drawn.image_size() == (width, height) => Ok(drawn),
                ViewsFrom::Header(_) => {
                    Err(Error::Internal("an image has another size than its header says".into()))
                }
            };
            // An image that a transform cannot take is decoded as little as possible.
            drawn.as_ref().map_or(NEXT_TO_NOTHING, DrawnViews::region)
        };
        let decoded = self.decoder.decode_read(bytes, parts, choose, &mut self.planes);
        if let (Ok(drawn), Ok(_)) = (&drawn, &decoded) {
            self.painter.paint(&mut self.planes, drawn);
        }
        (drawn, decoded)
    }
}
