//! What a batch holds of a sample, made of its bytes by one recipe.

use super::cpu::{CpuDecoder, SampleImage, ViewsBeside, ViewsFrom};
use super::fields::SeenImage;
use super::mixing::FilledPlace;
use super::one_version::of_one_version;
use super::originals::OriginalFiles;
use super::recipes::RecipeRun;
use super::stopwatch::Stopwatch;
use super::work::{PlaceOfRecipe, ThenGoes};
use super::{EpochRun, PipelineShared, substitute};
use crate::batch::{Array, Encoded, Ticket, Value};
use crate::config::{FieldContent, ImageField, OnError, ViewKind};
use base::error::{Error, Result};
use base::simd::Level;
use base::trace::Stage as Traced;
use data::dataset::Contents;
use data::schedule::{BatchEntry, Draw};
use pixels::augment::Renderer;
use pixels::decode::{Format, RestoredFile};
use std::borrow::Cow;
use std::sync::Arc;
use store::tier::form_of_record;

/// What makers of all recipes work with, one after another.
pub(super) struct Tools<'a> {
    pub decoders: &'a mut ImageDecoders,
    /// The recipes that come after this one.
    pub others: &'a [RecipeRun],
    pub stopwatch: &'a mut Stopwatch,
}

/// A decoder for each image of a sample, whose planes stay for the recipes that come next.
#[derive(Default)]
pub(super) struct ImageDecoders(Vec<CpuDecoder>);

/// Makes samples by one recipe.
pub(super) struct SampleMaker {
    shared: Arc<PipelineShared>,
    /// The renderers, one for each image that leads.
    renderers: Vec<Renderer>,
    originals: OriginalFiles,
    /// The views that were drawn of the images of the current sample.
    seen: Vec<Option<SeenImage>>,
}

impl ImageDecoders {
    /// Forgets all images, because another sample comes.
    pub(super) fn forget(&mut self) {
        self.0.iter_mut().for_each(CpuDecoder::forget);
    }

    /// The decoder of the image that is this field.
    fn of(&mut self, shared: &PipelineShared, field: usize) -> &mut CpuDecoder {
        while self.0.len() <= field {
            self.0.push(CpuDecoder::new(shared));
        }
        &mut self.0[field]
    }
}

/// What the `others` want of the image that is this field of a sample. Members that lie apart are read for each recipe
/// by itself, because they must be of one version with the rest.
fn views_beside<'a>(
    others: &'a [RecipeRun],
    field: usize,
    sample: u64,
    record: &Encoded,
) -> Vec<ViewsBeside<'a>> {
    let views = |RecipeRun { shared, run, .. }: &'a RecipeRun| {
        if run.stopped() || shared.index.is_apart(sample) {
            return None;
        }
        let image = shared.config.images.list().iter().position(|image| image.field == field)?;
        let boxes = shared.boxes_of_image(None, image, sample, record).ok()?;
        Some(ViewsBeside { shared, keys: &run.keys, image, boxes })
    };
    others.iter().filter_map(views).collect()
}

impl SampleMaker {
    pub(super) fn new(shared: &Arc<PipelineShared>) -> Self {
        let recipes = shared.config.images.recipes();
        // Whoever mixes images reads them as soon as both are there.
        let mixed = shared.config.mix.is_some();
        let renderer = |recipe| Renderer::new(recipe, Level::detect()).kept_in_caches(mixed);
        Self {
            shared: shared.clone(),
            renderers: recipes.iter().map(renderer).collect(),
            originals: OriginalFiles::default(),
            seen: Vec::new(),
        }
    }

    /// Whether it makes samples as these settings say.
    pub(super) fn is_of(&self, shared: &Arc<PipelineShared>) -> bool {
        Arc::ptr_eq(&self.shared, shared)
    }

    /// Reads a sample that could not be read for another recipe.
    pub(super) fn read_again(&self, sample: u64) -> Result<Encoded> {
        self.shared.read_blocking(sample).map(|(bytes, _)| Encoded::Owned(bytes))
    }

    /// Fills a place from its sample's bytes, and finishes it.
    pub(super) fn work(
        &mut self,
        run: &EpochRun,
        BatchEntry { position, draw, valid }: BatchEntry,
        PlaceOfRecipe { mut ticket, then }: PlaceOfRecipe,
        bytes: Result<Encoded>,
        tools: &mut Tools<'_>,
    ) {
        let sample = draw.sample;
        let outcome = bytes.and_then(|bytes| self.fill(run, draw, bytes, &mut ticket, tools));
        let (draw, valid) = match outcome {
            Ok(()) => (draw, valid),
            Err(error) => {
                let instead = self.shared.note_failure(sample, error, &mut ticket);
                self.make_do(instead, run, (position, draw, valid), &mut ticket, tools)
            }
        };
        let Draw { sample, occurrence } = draw;
        let place = FilledPlace { ticket, position, sample, occurrence, valid };
        match (&then, &self.shared.config.mix) {
            (ThenGoes::ToRing(rings), Some(plan)) => {
                rings.finish(&self.shared, run, plan, place);
                tools.stopwatch.lap(&run.counters.augment);
            }
            _ => place.finish(&self.shared.index),
        }
    }

    /// Fills the place of a sample that failed. Returns the draw that is there now, and whether it counts.
    fn make_do(
        &mut self,
        instead: OnError,
        run: &EpochRun,
        (position, draw, valid): (u64, Draw, bool),
        ticket: &mut Ticket,
        tools: &mut Tools<'_>,
    ) -> (Draw, bool) {
        match instead {
            // The place may hold anything, because the batch is not delivered.
            OnError::Raise => (draw, false),
            OnError::Zero => {
                for number in 0..self.shared.config.layout.images.len() {
                    ticket.image(number).fill(0);
                }
                (draw, false)
            }
            OnError::Skip => match self.substitute(run, position, ticket, tools) {
                Ok(substitute) => (Draw::first(substitute), valid),
                Err(error) => {
                    ticket.fail(draw.sample, error, true);
                    (draw, false)
                }
            },
        }
    }

    /// Fills the sample's place in the batch from its bytes.
    fn fill(
        &mut self,
        run: &EpochRun,
        draw: Draw,
        bytes: Encoded,
        ticket: &mut Ticket,
        tools: &mut Tools<'_>,
    ) -> Result<()> {
        if self.shared.config.decoded {
            let shared = self.shared.clone();
            let index = &shared.index;
            let replace = |_, bytes| Encoded::Owned(bytes);
            let make = |record: &Encoded| self.make(run, draw, record, ticket, tools);
            return of_one_version(index, draw.sample, bytes, replace, make).map(|_| ());
        }
        let length = bytes.len();
        let bytes = match self.originals.find(
            run,
            form_of_record(&self.shared.index, draw.sample, &bytes),
            &bytes,
        )? {
            RestoredFile::Within(range) => bytes.narrowed(range),
            RestoredFile::Apart(file) => {
                let bytes = bytes.replaced(file);
                tools.stopwatch.lap_as(&run.counters.decode, Traced::Decode, length);
                bytes
            }
        };
        if self.shared.index.contents() == Contents::Images {
            // The consumer, which decodes the files, sees all other damage; but what is no image at all is not handed
            // over as one.
            Format::of(&bytes)?;
        }
        ticket.keep(bytes);
        Ok(())
    }

    /// Fills the place with a substitute, and returns its id.
    fn substitute(
        &mut self,
        run: &EpochRun,
        position: u64,
        ticket: &mut Ticket,
        tools: &mut Tools<'_>,
    ) -> Result<u64> {
        let shared = self.shared.clone();
        let fill = |sample, bytes| self.fill(run, Draw::first(sample), Encoded::Owned(bytes), ticket, tools);
        substitute::substitute(&shared, run, position, fill).map(|(sample, ())| sample)
    }

    /// Makes all fields of a sample.
    fn make(
        &mut self,
        run: &EpochRun,
        draw: Draw,
        record: &Encoded,
        ticket: &mut Ticket,
        tools: &mut Tools<'_>,
    ) -> Result<()> {
        let shared = self.shared.clone();
        self.seen.clear();
        for image in 0..shared.config.images.list().len() {
            let made = self.make_image(run, image, draw, record, ticket, tools);
            self.seen.push(made.map_err(|error| shared.of_image(image, error))?);
        }
        shared.fill_fields(run, draw.sample, record, &self.seen, &mut self.originals, ticket)
    }

    /// Makes the image with this number and returns what was drawn of it; `None` where the sample does not have it.
    fn make_image(
        &mut self,
        run: &EpochRun,
        image: usize,
        draw: Draw,
        record: &Encoded,
        ticket: &mut Ticket,
        tools: &mut Tools<'_>,
    ) -> Result<Option<SeenImage>> {
        let shared = &*self.shared;
        let ImageField { field: number, leader, .. } = shared.config.images.list()[image];
        let field = &shared.config.fields.list[number];
        let FieldContent::Images { at, .. } = field.content else {
            return Err(Error::Internal(format!("{:?} is no image", field.name)));
        };
        let (read, parts) = record.in_parts();
        let Some(bytes) = shared.field_bytes(run, field, draw.sample, read)? else {
            at.clear(ticket, Ticket::image);
            return Ok(None);
        };
        // What was read apart was read whole.
        let parts = parts.filter(|_| matches!(bytes, Cow::Borrowed(_)));
        let boxes = shared.boxes_of_image(Some(run), image, draw.sample, record)?;
        let of = SampleImage { image, draw, bytes: &bytes, views: ViewsFrom::Boxes(&boxes) };
        let beside = views_beside(tools.others, number, draw.sample, record);
        let cpu = tools.decoders.of(shared, number);
        let drawn = cpu.decode_beside(shared, run, of, parts, &beside, tools.stopwatch)?;
        let (planes, renderer, size) = (&cpu.planes, &mut self.renderers[leader], drawn.image_size());
        shared.check_size(image, size, &self.seen)?;
        for (number, view) in drawn.views().iter().enumerate() {
            match at.kind {
                ViewKind::Tensors => renderer.render(number, planes, view, ticket.image(at.first + number)),
                ViewKind::Values => {
                    let output = shared.config.images.recipe(image).views()[number].output(view);
                    let mut pixels = vec![0; output.bytes()];
                    renderer.render(number, planes, view, &mut pixels);
                    ticket.put(at.first + number, Some(Value::Array(Array::of_image(&output, pixels))));
                }
            }
        }
        tools.stopwatch.lap_as(&run.counters.augment, Traced::Augment, bytes.len());
        Ok(Some(SeenImage { size, drawn: Some(drawn) }))
    }
}
