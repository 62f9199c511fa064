//! The bounding boxes of a sample. They are cropped and flipped in the same way as the sample's image, and transforms
//! can use them to choose a crop.

use super::{
    context::SampleContext, members::ImageGeometry, members::field_bytes, members::member_bytes,
    members::of_field, run::EpochRun,
};
use crate::batch::{Array, Element, Ticket, Value};
use crate::config::{FieldContent, ViewPlaces};
use base::error::{DecodeError, Result};
use base::names::NamedValue;
use pixels::augment::BoxFormat;
use pixels::decode::NpyArray;

type Boxes = Vec<[f32; 4]>;

/// Returns the boxes by which the transforms of the image with the index `image` choose a crop: left, top, right and
/// bottom in pixels. Empty if the transforms use no boxes, or the sample has none. `record` holds the bytes that were
/// read for the sample, and `run` counts further reads.
///
/// # Errors
/// The errors of reading the field, and [`DecodeError::Field`] for bytes that are no boxes.
pub(crate) fn boxes_of_image(
    context: &SampleContext,
    run: Option<&EpochRun>,
    image: usize,
    sample: u64,
    record: &(impl AsRef<[u8]> + ?Sized),
) -> Result<Boxes> {
    let Some(field) = context.config.images.boxes(image) else { return Ok(Boxes::new()) };
    let field = &context.config.fields.list[field];
    let bytes = match run {
        Some(run) => field_bytes(run, field, sample, record.as_ref())?,
        None => member_bytes(context, field, sample, record.as_ref())?,
    };
    let (FieldContent::Boxes { stored, .. }, Some(bytes)) = (field.content, bytes) else {
        return Ok(Boxes::new());
    };
    read(&bytes, stored, BoxFormat::Xyxy).map_err(|error| of_field(field, error))
}

/// Reads boxes that are `stored` in one format, and converts them to `format`.
fn read(bytes: &[u8], stored: BoxFormat, format: BoxFormat) -> Result<Boxes, DecodeError> {
    let array = NpyArray::decode(bytes)?;
    let numbers = array.floats().filter(|_| array.shape.len() == 2 && array.shape[1] == 4);
    let numbers = numbers.ok_or_else(|| {
        DecodeError::Damaged(format!(
            "is an array of {} with shape {:?}, must have shape [boxes, 4] and numbers that fit float32",
            array.number.name(),
            array.shape
        ))
    })?;
    let mut boxes = numbers.as_chunks::<4>().0.to_vec();
    if stored != format {
        let converted = |of: [f32; 4]| format.of_corners(stored.to_corners(of.map(f64::from)));
        boxes.iter_mut().for_each(|of| *of = converted(*of).map(|number| number as f32));
    }
    Ok(boxes)
}

/// Fills the sample's boxes for each view of the image, cropped and flipped like the view.
pub(crate) fn fill_boxes(
    at: ViewPlaces,
    (stored, format, shares): (BoxFormat, BoxFormat, bool),
    bytes: &[u8],
    image: &ImageGeometry,
    ticket: &mut Ticket,
) -> Result<(), DecodeError> {
    let boxes = read(bytes, stored, format)?;
    for (number, drawn) in at.numbers().zip(image.views()) {
        let mut boxes = boxes.clone();
        let left = drawn.map_boxes(format, &mut boxes);
        let rows = boxes.iter().zip(&left).map(|(of, left)| (of, shares.then_some(*left)));
        let bytes =
            rows.flat_map(|(of, left)| of.iter().copied().chain(left)).flat_map(f32::to_ne_bytes).collect();
        let shape = vec![boxes.len() as i64, 4 + i64::from(shares)];
        ticket.put(number, Some(Value::Array(Array { element: Element::F32, shape, bytes })));
    }
    Ok(())
}
