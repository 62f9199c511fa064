//! Makes batches in host memory with several recipes from one read. Each sample is read once and decoded once, as far
//! as the views of all recipes need. Then each recipe makes a place of its own batch from it. The secondary recipes
//! have runs that are linked to the primary recipe's run. Only producers, which make batches for other processes, use
//! this module.
//!
//! Each recipe must get what it would get alone. So an image with damage or on a canvas is decoded for each recipe
//! separately.

use super::host;
use super::sample::{DecodeImage, HostPlace, SampleMaker};
use super::{BatchOpener, OpenPlace, PlaceFiller, PlaceJob};
use crate::batch::Encoded;
use crate::pipeline::{
    boxes::boxes_of_image, cpu::CpuDecoder, cpu::SMALLEST_REGION, cpu::SampleImage, cpu::ViewsFrom, notify,
    run::EpochRun, stopwatch::Stopwatch,
};
use base::error::Result;
use base::trace::Stage;
use pixels::augment::DrawnViews;
use pixels::decode::{Decoded, Planes, Region};
use std::sync::Arc;

/// The places of a sample in the batches of all recipes.
pub(crate) struct MultiRecipePlaces {
    own: HostPlace,
    /// The places in the batches of the linked runs; `None` where a run was stopped.
    linked: Vec<Option<HostPlace>>,
}

/// Opens a batch of each recipe at a time.
#[derive(Default)]
pub(crate) struct MultiRecipeOpener {
    /// The places of the next step's batches that already have buffers, in the order of the recipes.
    begun: Vec<Option<Vec<HostPlace>>>,
}

impl BatchOpener for MultiRecipeOpener {
    type Place = MultiRecipePlaces;

    fn begin(&mut self, run: &Arc<EpochRun>, step: u64, len: u32) -> Result<Option<Vec<MultiRecipePlaces>>> {
        for of in std::iter::once(run).chain(&run.linked).skip(self.begun.len()) {
            match of.stopped() {
                true => self.begun.push(None),
                false => match host::begin(of, step, len)? {
                    None => return Ok(None),
                    places => self.begun.push(places),
                },
            }
        }
        let mut batches =
            std::mem::take(&mut self.begun).into_iter().map(|places| places.map(Vec::into_iter));
        let own = batches.next().flatten().into_iter().flatten();
        let mut linked: Vec<_> = batches.collect();
        let mut next = || linked.iter_mut().map(|places| places.as_mut()?.next()).collect();
        Ok(Some(own.map(|own| MultiRecipePlaces { own, linked: next() }).collect()))
    }

    fn end_run(&mut self) {
        self.begun.clear();
    }
}

/// Fills the places of each sample with one recipe after another.
#[derive(Default)]
pub(crate) struct MultiRecipeFiller {
    /// One for each recipe.
    makers: Vec<SampleMaker>,
    /// One for each field number, used only for images.
    images: Vec<SharedImage>,
}

impl PlaceFiller<MultiRecipePlaces> for MultiRecipeFiller {
    fn fill(&mut self, job: PlaceJob<MultiRecipePlaces>, stopwatch: &mut Stopwatch) {
        let PlaceJob { run, open: OpenPlace { entry, place: MultiRecipePlaces { own, linked }, .. }, bytes } =
            job;
        self.images.iter_mut().for_each(|image| image.tried = None);
        // A read error goes to one recipe only; for the others the sample is read again.
        let copy = bytes.as_ref().ok().filter(|_| !run.linked.is_empty()).cloned();
        let anew =
            || run.context.source.read_blocking(entry.draw.sample).map(|(bytes, _)| Encoded::Owned(bytes));
        let again = || copy.as_ref().map_or_else(anew, |bytes| Ok(Encoded::Slot(bytes.clone())));
        let mut bytes = Some(bytes.map(Encoded::Slot));
        let mut decoder = SharedDecoder { images: &mut self.images, lead: &run };
        let runs = std::iter::once(&run).chain(&run.linked);
        for (number, (of, place)) in runs.zip(std::iter::once(Some(own)).chain(linked)).enumerate() {
            if !self.makers.get(number).is_some_and(|maker| maker.is_of(&of.context)) {
                self.makers.truncate(number);
                self.makers.push(SampleMaker::new(&of.context));
            }
            let bytes = bytes.take();
            // Dropping the place of a stopped run unfinished drops its batch, too.
            if let (Some(place), false) = (place, of.stopped()) {
                let bytes = bytes.unwrap_or_else(again);
                self.makers[number].work(of, entry, place, bytes, &mut decoder, stopwatch);
            }
        }
    }
}

/// An image that is decoded once for all recipes.
struct SharedImage {
    cpu: CpuDecoder,
    /// The sample whose image was last decoded, or tried, for all recipes.
    tried: Option<u64>,
    /// The decoded region in the decoder's planes, and the image's size. `None` if these planes are not what each
    /// recipe would get alone.
    shared: Option<(Decoded, (u32, u32))>,
}

impl SharedImage {
    /// Decodes an image as far as all recipes need. If damage is found, nothing is shared, because a recipe that shows
    /// less of the image may not meet the damage alone. A recipe that paints the image on a canvas takes no part.
    fn decode_for_all(&mut self, lead: &EpochRun, run: &EpochRun, of: &SampleImage<'_>, record: &Encoded) {
        let (sample, ViewsFrom::Boxes(own)) = (of.draw.sample, &of.views) else { return };
        (self.tried, self.shared) = (Some(sample), None);
        let field = |run: &EpochRun, image: usize| run.context.config.images.list()[image].field;
        let region = |run: &EpochRun, image: usize, boxes: &[[f32; 4]], size| {
            let drawn = run.context.draw_views(&run.keys, image, of.draw, size, boxes).ok()?;
            drawn.canvas().is_none().then(|| drawn.region())
        };
        let others = lead.active_runs().filter(|of| !std::ptr::eq(*of, run)).filter_map(|other| {
            let mut images = 0..other.context.config.images.list().len();
            let image = images.find(|image| field(other, *image) == field(run, of.image))?;
            Some((other, image, boxes_of_image(&other.context, None, image, sample, record).ok()?))
        });
        let others: Vec<_> = others.collect();
        // Members that are stored apart are read for each recipe, because they must be of one version with the rest.
        if others.is_empty() || run.context.index.is_apart(sample) {
            return;
        }
        let mut found = None;
        let choose = |width, height| {
            let size = (width, height);
            let Some(own) = region(run, of.image, own, size) else { return SMALLEST_REGION };
            found = Some(size);
            let regions = others.iter().filter_map(|(run, image, boxes)| region(run, *image, boxes, size));
            regions.fold(own, Region::union)
        };
        let cpu = &mut self.cpu;
        let decoded = cpu.decode_region(&run.context, (sample, of.image), (of.bytes, of.parts), choose);
        let decoded = decoded.ok().filter(|decoded| decoded.concealed.is_none());
        self.shared = decoded.zip(found);
    }

    /// Draws the views of the image in the shared planes; `None` if the planes do not hold enough of it.
    fn drawn(&self, run: &EpochRun, of: &SampleImage<'_>) -> Result<Option<DrawnViews>> {
        let (ViewsFrom::Boxes(boxes), Some((decoded, size))) = (&of.views, &self.shared) else {
            return Ok(None);
        };
        let drawn = run.context.draw_views(&run.keys, of.image, of.draw, *size, boxes)?;
        if drawn.canvas().is_some() || decoded.region.union(drawn.region()) != decoded.region {
            return Ok(None);
        }
        run.counters.count(decoded);
        if decoded.reduced_to_8_bits {
            notify::narrowed(&run.context, of.image, of.draw.sample);
        }
        Ok(Some(drawn))
    }
}

/// Decodes the images of a sample for all recipes of a run.
struct SharedDecoder<'a> {
    images: &'a mut Vec<SharedImage>,
    lead: &'a EpochRun,
}

impl DecodeImage for SharedDecoder<'_> {
    fn decode_image(
        &mut self,
        run: &EpochRun,
        of: SampleImage<'_>,
        record: &Encoded,
        stopwatch: &mut Stopwatch,
    ) -> Result<(DrawnViews, &Planes)> {
        let field = run.context.config.images.list()[of.image].field;
        while self.images.len() <= field {
            self.images.push(SharedImage { cpu: CpuDecoder::new(&run.context), tried: None, shared: None });
        }
        let image = &mut self.images[field];
        if image.tried != Some(of.draw.sample) {
            image.decode_for_all(self.lead, run, &of, record);
            if image.shared.is_some() {
                stopwatch.lap_as(&run.counters.decode, Stage::Decode, of.arrived());
            }
        }
        if let Some(drawn) = image.drawn(run, &of)? {
            return Ok((drawn, &image.cpu.planes));
        }
        image.shared = None;
        let drawn = image.cpu.decode(run, of, stopwatch)?;
        Ok((drawn, &image.cpu.planes))
    }
}
