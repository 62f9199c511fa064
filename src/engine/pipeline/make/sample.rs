//! Makes a sample's values in a batch from the sample's bytes. With `decoded=False` only a file's
//! first bytes are checked, and the slot that holds the file becomes part of the batch.

use super::shape::write_shape;
use super::{OpenPlace, PlaceFiller, PlaceJob};
use crate::batch::{Array, Encoded, Ticket, Value};
use crate::config::{FieldContent, ImageField, OnError, ViewKind};
use crate::pipeline::{
    arrays::ArrayScratch, arrays::RawBytes, boxes::boxes_of_image, consistent_read::read_consistently,
    context::SampleContext, cpu::CpuDecoder, cpu::SampleImage, cpu::ViewsFrom, fields::check_size,
    fields::fill_fields, members::ImageGeometry, members::field_bytes, mixing::FilledPlace,
    mixing::MixGroups, notify, originals::OriginalFiles, run::EpochRun, stopwatch::Stopwatch,
    substitute::note_failure, substitute::substitute,
};
use base::error::{Error, Result};
use base::simd::Level;
use base::trace::Stage;
use data::dataset::Contents;
use data::dataset::arrays::RECORDS;
use data::schedule::{BatchEntry, Draw};
use pixels::augment::Renderer;
use pixels::decode::{Format, RestoredFile};
use std::borrow::Cow;
use std::sync::Arc;
use store::tier::form_of_record;

pub(crate) struct HostPlace {
    pub ticket: Ticket,
    pub mix_groups: Option<Arc<MixGroups>>,
}

struct PlaceTools<'a> {
    run: &'a EpochRun,
    ticket: &'a mut Ticket,
    stopwatch: &'a mut Stopwatch,
}

pub(crate) struct SampleMaker {
    decoder: CpuDecoder,
    renderers: Vec<Renderer>,
    originals: OriginalFiles,
    arrays: ArrayScratch,
    geometries: Vec<Option<ImageGeometry>>,
}

impl PlaceFiller<HostPlace> for SampleMaker {
    fn fill(&mut self, job: PlaceJob<HostPlace>, stopwatch: &mut Stopwatch) {
        let PlaceJob { run, open: OpenPlace { entry, place, .. }, bytes } = job;
        let BatchEntry { position, draw, valid } = entry;
        let HostPlace { mut ticket, mix_groups } = place;
        let mut to = PlaceTools { run: &run, ticket: &mut ticket, stopwatch };
        let outcome = bytes.and_then(|bytes| self.fill_row(draw, Encoded::Slot(bytes), &mut to));
        let (draw, valid) = match outcome {
            Ok(()) => (draw, valid),
            Err(error) => {
                self.arrays.raw.iter_mut().for_each(Vec::clear);
                let instead = note_failure(&run.context, draw.sample, error, to.ticket);
                self.fill_failed(instead, (position, draw, valid), &mut to)
            }
        };
        let place = FilledPlace { ticket, position, draw, valid };
        match (&mix_groups, &run.context.config.mix) {
            (Some(mix_groups), Some(plan)) => {
                mix_groups.finish(&run, plan, place);
                stopwatch.lap(&run.counters.augment);
            }
            _ => place.finish(&run.context.index),
        }
    }
}

impl SampleMaker {
    pub(crate) fn new(context: &SampleContext) -> Self {
        let recipes = context.config.images.recipes();
        // Mixing reads two images as soon as both are made, so they should still be in the processor's caches.
        let mixed = context.config.mix.is_some();
        let renderer = |recipe| Renderer::new(recipe, Level::detect()).kept_in_caches(mixed);
        Self {
            decoder: CpuDecoder::new(context),
            renderers: recipes.iter().map(renderer).collect(),
            originals: OriginalFiles::default(),
            arrays: ArrayScratch::default(),
            geometries: Vec::new(),
        }
    }

    /// Lets large parts of arrays stay in their slots, if they need no conversion: see [`SampleMaker::raw`].
    pub(crate) fn leaving_raw_bytes(mut self) -> Self {
        self.arrays.raw = Some(Vec::new());
        self
    }

    /// Takes the bytes of the latest sample that were left in their slots and are missing in its row.
    pub(crate) fn raw(&mut self) -> impl Iterator<Item = RawBytes> {
        self.arrays.raw.iter_mut().flat_map(|raw| raw.drain(..))
    }

    /// Fills the place of a failed sample. Returns the draw that the place holds now, and whether the place holds a
    /// valid sample.
    fn fill_failed(
        &mut self,
        instead: OnError,
        (position, draw, valid): (u64, Draw, bool),
        to: &mut PlaceTools<'_>,
    ) -> (Draw, bool) {
        match instead {
            // The place may hold anything, because the batch is not delivered.
            OnError::Raise => (draw, false),
            OnError::Zero => {
                for number in 0..to.run.context.config.layout.images.len() {
                    to.ticket.image(number).fill(0);
                }
                (draw, false)
            }
            OnError::Skip => {
                let run = to.run;
                let fill = |sample, bytes| self.fill_row(Draw::first(sample), Encoded::Owned(bytes), to);
                match substitute(run, position, fill) {
                    Ok((substitute, ())) => (Draw::first(substitute), valid),
                    Err(error) => {
                        to.ticket.fail(draw.sample, error, true);
                        (draw, false)
                    }
                }
            }
        }
    }

    fn fill_row(&mut self, draw: Draw, bytes: Encoded, to: &mut PlaceTools<'_>) -> Result<()> {
        let (run, index) = (to.run, &to.run.context.index);
        if run.context.config.decoded {
            let replace = |_, bytes| Encoded::Owned(bytes);
            let make = |record: &Encoded| self.make(draw, record, to);
            return read_consistently(index, draw.sample, bytes, replace, make).map(|_| ());
        }
        let length = bytes.len();
        let form = form_of_record(index, draw.sample, &bytes);
        let bytes = match self.originals.find(run, form, &bytes)? {
            RestoredFile::InPlace(range) => bytes.narrowed(range),
            RestoredFile::Rebuilt(file) => {
                let bytes = bytes.replaced(file);
                to.stopwatch.lap_as(&run.counters.decode, Stage::Decode, length);
                bytes
            }
        };
        if index.contents() == Contents::Images {
            // Refuse bytes that are not an image at all. The consumer decodes the files, and finds all other damage.
            Format::of(&bytes)?;
        }
        to.ticket.keep(bytes);
        Ok(())
    }

    fn make(&mut self, draw: Draw, record: &Encoded, to: &mut PlaceTools<'_>) -> Result<()> {
        let context = &to.run.context;
        self.geometries.clear();
        self.arrays.raw.iter_mut().for_each(Vec::clear);
        for image in 0..context.config.images.list().len() {
            let made = self.make_image(image, draw, record, to);
            self.geometries.push(made.map_err(|error| context.of_image(image, error))?);
        }
        let Self { geometries, originals, arrays, .. } = self;
        fill_fields(to.run, draw, record.into(), geometries, originals, arrays, to.ticket)
    }

    fn make_image(
        &mut self,
        image: usize,
        draw: Draw,
        record: &Encoded,
        PlaceTools { run, ticket, stopwatch }: &mut PlaceTools<'_>,
    ) -> Result<Option<ImageGeometry>> {
        let (context, config) = (&run.context, &run.context.config);
        let ImageField { field, primary, .. } = config.images.list()[image];
        let field = &config.fields.list[field];
        let FieldContent::Images { at, .. } = field.content else {
            return Err(Error::Internal(format!("{:?} is not an image", field.name)));
        };
        // A record of arrays has no images, and may be in several places.
        let is_record = context.index.has_arrays() && context.index.extent(draw.sample).offset >= RECORDS;
        let (read, parts) = if is_record { (&[][..], None) } else { record.in_parts() };
        let Some(bytes) = field_bytes(run, field, draw.sample, read)? else {
            at.clear(ticket, Ticket::image);
            write_shape(config, image, None, ticket);
            return Ok(None);
        };
        // A member that was read separately was read completely.
        let parts = parts.filter(|_| matches!(bytes, Cow::Borrowed(_)));
        let boxes = boxes_of_image(context, Some(run), image, draw.sample, record)?;
        let of = SampleImage { image, draw, bytes: &bytes, parts, views: ViewsFrom::Boxes(&boxes) };
        if parts.is_none() {
            notify::rotated_image(context, image, draw.sample, &bytes);
        }
        let drawn = self.decoder.decode(run, of, stopwatch)?;
        let (renderer, size) = (&mut self.renderers[primary], drawn.image_size());
        check_size(context, image, size, &self.geometries)?;
        write_shape(config, image, Some(&drawn), ticket);
        if config.images.first() == Some(image) {
            notify::other_bucket(context, draw.sample, size);
        }
        for (number, view) in drawn.views().iter().enumerate() {
            match at.kind {
                ViewKind::Tensors => {
                    renderer.render(number, &self.decoder.planes, view, ticket.image(at.first + number))
                }
                ViewKind::Values | ViewKind::Patches => {
                    let recipe = config.images.recipe(image);
                    let output = recipe.views()[number].output(view);
                    let mut pixels = vec![0; output.bytes()];
                    renderer.render(number, &self.decoder.planes, view, &mut pixels);
                    let number = at.first + number;
                    match recipe.patch() {
                        None => ticket.put(number, Some(Value::Array(Array::of_image(&output, pixels)))),
                        Some(side) => {
                            let [patches, positions] = Array::of_patches(&output, side, &pixels);
                            ticket.put(number, Some(Value::Array(patches)));
                            ticket.put(number + 1, Some(Value::Array(positions)));
                        }
                    }
                }
            }
        }
        stopwatch.lap_as(&run.counters.augment, Stage::Augment, bytes.len());
        Ok(Some(ImageGeometry { size, drawn: Some(drawn) }))
    }
}
