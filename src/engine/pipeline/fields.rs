//! Makes the fields of a sample other than its images, from the bytes that were read to the values in the batch.

use super::{
    arrays::ArrayScratch, arrays::ArraySource, arrays::fill_array, boxes::fill_boxes, context::SampleContext,
    members::ImageGeometry, members::RecordView, members::field_bytes, members::of_field,
    originals::OriginalFiles, originals::form_of_member, run::EpochRun,
};
use crate::batch::{Array, Element, Ticket, Value};
use crate::config::{Field, FieldContent, ViewKind, ViewPlaces};
use base::error::{DecodeError, Result};
use base::json;
use data::dataset::{ColumnValues, FieldKind};
use data::schedule::Draw;
use data::source::without_mark;
use pixels::augment::{Filter, render_mask};
use pixels::decode::Mask;

/// Checks that an image has the same size as the primary image whose geometry it follows. Checks nothing if the sample
/// lacks the primary image.
///
/// # Errors
/// [`DecodeError::Damaged`] with both sizes.
pub(crate) fn check_size(
    context: &SampleContext,
    image: usize,
    size: (u32, u32),
    geometries: &[Option<ImageGeometry>],
) -> Result<()> {
    let images = context.config.images.list();
    let primary = images[image].primary;
    match geometries.get(primary) {
        Some(Some(other)) if primary != image && other.size != size => {
            let (name, ((width, height), (w, h))) = (&images[primary].name, (size, other.size));
            let message = format!(
                "is {width}×{height} pixels, but {name:?}, whose geometry it follows, is {w}×{h}: both must have the \
                 same size, or transforms of their own, as in transforms={{{name:?}: [...], {:?}: [...]}}",
                images[image].name
            );
            Err(DecodeError::Damaged(message).into())
        }
        _ => Ok(()),
    }
}

/// Fills all fields of a place except images, from the `record` of the draw's sample. `geometries` holds the size and
/// the views of each image, or `None` for an image that the sample lacks.
///
/// # Errors
/// [`DecodeError::Field`] for bytes that do not fit their field, and the errors of [`field_bytes`].
pub(crate) fn fill_fields(
    run: &EpochRun,
    draw: Draw,
    record: RecordView<'_>,
    geometries: &[Option<ImageGeometry>],
    originals: &mut OriginalFiles,
    arrays: &mut ArrayScratch,
    ticket: &mut Ticket,
) -> Result<()> {
    let (context, sample) = (&*run.context, draw.sample);
    fill_label_columns(context, sample, ticket);
    for (number, field) in context.config.fields.list.iter().enumerate() {
        let found = match field.content {
            FieldContent::Label | FieldContent::MixedLabels { .. } => continue,
            FieldContent::ColumnNumbers { of, .. } | FieldContent::ColumnTexts { of, .. } => {
                let found = context.config.label_columns[of].has(sample);
                if !found && field.optional.is_none() {
                    let message = "the sample has no value in this column: if it may be missing, use a field of \
                                   foreload.fields with optional=True";
                    return Err(of_field(field, DecodeError::Damaged(message.to_owned())));
                }
                found
            }
            FieldContent::Images { image, .. } => geometries[image].is_some(),
            _ => {
                let slab = match field.content {
                    FieldContent::Arrays { .. } => {
                        field.member.and_then(|member| context.index.array(sample, member))
                    }
                    _ => None,
                };
                let is_slab = slab.is_some();
                let bytes = match missing_image(context, field, geometries) {
                    None if is_slab => None,
                    None => field_bytes(run, field, sample, record.whole())?,
                    Some(_) if field.optional.is_some() => None,
                    Some(image) => {
                        let message = format!(
                            "the sample has no {image:?}, whose geometry this field follows: set optional=True for \
                             this field, too"
                        );
                        return Err(of_field(field, DecodeError::Damaged(message)));
                    }
                };
                let bytes = bytes.as_deref();
                let file = match field.member.zip(bytes) {
                    Some((member, bytes)) => {
                        let form = form_of_member(context, sample, member, bytes);
                        originals.restore(run, form, bytes).map(Some)
                    }
                    None => Ok(None),
                };
                let file = file.map_err(|error| of_field(field, error))?;
                let array = match (field.content, slab, file) {
                    (_, Some(slab), _) => Some(Ok(ArraySource::Slab(slab, record))),
                    (FieldContent::Arrays { .. }, None, Some(file)) => Some(ArraySource::npy(file)),
                    _ => None,
                };
                let filled = match array {
                    Some(array) => {
                        array.and_then(|array| fill_array(run, (draw, number), &array, arrays, ticket))
                    }
                    None => fill_field(context, field, file, geometries, ticket),
                };
                filled.map_err(|error| of_field(field, error))?;
                is_slab || bytes.is_some()
            }
        };
        if let Some(column) = field.optional {
            ticket.column(column).fill(u8::from(found));
        }
    }
    Ok(())
}

/// Returns the name of the image that a field follows, if the sample lacks this image. Without the image's views the
/// field cannot be made.
fn missing_image<'a>(
    context: &'a SampleContext,
    field: &Field,
    geometries: &[Option<ImageGeometry>],
) -> Option<&'a str> {
    let image = field.followed_image().filter(|&image| geometries[image].is_none())?;
    Some(&context.config.images.list()[image].name)
}

fn fill_label_columns(context: &SampleContext, sample: u64, ticket: &mut Ticket) {
    for field in &context.config.fields.list {
        match field.content {
            FieldContent::ColumnNumbers { of, column } => {
                let bytes = context.config.label_columns[of].values.bytes(sample);
                ticket.column(column).copy_from_slice(&bytes);
            }
            FieldContent::ColumnTexts { of, value } => {
                let column = &context.config.label_columns[of];
                let text = match &column.values {
                    ColumnValues::Texts(texts) if column.has(sample) => {
                        Some(Value::Text(texts[sample as usize].clone()))
                    }
                    _ => None,
                };
                ticket.put(value, text);
            }
            _ => {}
        }
    }
}

/// Fills all fields of a failed sample except images: with zeros, or with no value if a field has no fixed size.
/// Columns of `labels=` get their values, which are known without reading the sample.
pub(crate) fn blank_fields(context: &SampleContext, sample: u64, ticket: &mut Ticket) {
    for number in 0..context.config.layout.columns.len() {
        ticket.column(number).fill(0);
    }
    for number in 0..context.config.layout.values.len() {
        ticket.put(number, None);
    }
    fill_label_columns(context, sample, ticket);
}

fn fill_field(
    context: &SampleContext,
    field: &Field,
    bytes: Option<&[u8]>,
    geometries: &[Option<ImageGeometry>],
    ticket: &mut Ticket,
) -> Result<(), DecodeError> {
    match field.content {
        FieldContent::Images { .. }
        | FieldContent::Label
        | FieldContent::ColumnNumbers { .. }
        | FieldContent::MixedLabels { .. }
        | FieldContent::ColumnTexts { .. } => {}
        FieldContent::Integers(column) => {
            let number = bytes.map_or(Ok(0), |bytes| number::<i64>(bytes, "a whole number"))?;
            ticket.column(column).copy_from_slice(&number.to_ne_bytes());
        }
        FieldContent::Floats(column) => {
            let number = bytes.map_or(Ok(0.0), float)?;
            ticket.column(column).copy_from_slice(&number.to_ne_bytes());
        }
        // An array that exists is filled by `fill_array`.
        FieldContent::Arrays { at, .. } => at.clear(ticket),
        FieldContent::Values(number, kind) => {
            ticket.put(number, bytes.map(|bytes| value(field, bytes, kind)).transpose()?);
        }
        FieldContent::Boxes { image, at, stored, format, shares } => match (bytes, &geometries[image]) {
            (Some(bytes), Some(image)) => fill_boxes(at, (stored, format, shares), bytes, image, ticket)?,
            _ => at.clear(ticket, Ticket::column),
        },
        FieldContent::Masks { image, at, element, nearest } => match (bytes, &geometries[image]) {
            (Some(bytes), Some(image)) => {
                let mask = decode_mask(context, &field.source, bytes, image, element)?;
                fill_masks(at, (element, nearest), &mask, image, ticket);
            }
            _ => at.clear(ticket, Ticket::column),
        },
    }
    Ok(())
}

fn decode_mask(
    context: &SampleContext,
    source: &str,
    bytes: &[u8],
    image: &ImageGeometry,
    element: Element,
) -> Result<Mask, DecodeError> {
    let mask = Mask::decode(bytes, context.config.max_pixels)?.turned(context.turn_of(bytes));
    if element == Element::U8
        && let Some(value) = mask.values.iter().find(|&&value| value > 255)
    {
        let message = format!(
            "has the value {value}, which does not fit uint8: use foreload.fields.Mask({source:?}, dtype=\"int32\")"
        );
        return Err(DecodeError::Damaged(message));
    }
    let (width, height) = image.size;
    if (mask.width, mask.height) != (width, height) {
        let message = format!(
            "is {}×{} pixels, but its image is {width}×{height}: a mask must be as large as its image",
            mask.width, mask.height
        );
        return Err(DecodeError::Damaged(message));
    }
    Ok(mask)
}

fn fill_masks(
    at: ViewPlaces,
    (element, nearest): (Element, Filter),
    mask: &Mask,
    image: &ImageGeometry,
    ticket: &mut Ticket,
) {
    let (width, _) = image.size;
    for (number, drawn) in at.numbers().zip(image.views()) {
        let render = |to: &mut [u8]| {
            let put = |at: usize, value: u16| match element.size() {
                1 => to[at] = value as u8,
                4 => to[4 * at..][..4].copy_from_slice(&i32::from(value).to_ne_bytes()),
                _ => to[8 * at..][..8].copy_from_slice(&i64::from(value).to_ne_bytes()),
            };
            render_mask(&mask.values, width, drawn, nearest, 0, put);
        };
        match at.kind {
            ViewKind::Tensors => render(ticket.column(number)),
            ViewKind::Values | ViewKind::Patches => {
                let mut bytes = vec![0; (drawn.width * drawn.height) as usize * element.size()];
                render(&mut bytes);
                let shape = vec![i64::from(drawn.height), i64::from(drawn.width)];
                ticket.put(number, Some(Value::Array(Array { element, shape, bytes })));
            }
        }
    }
}

fn number<T: std::str::FromStr>(bytes: &[u8], what: &str) -> Result<T, DecodeError> {
    let text = std::str::from_utf8(without_mark(bytes)).ok().map(str::trim);
    text.and_then(|text| text.parse().ok()).ok_or_else(|| {
        let shown: String = String::from_utf8_lossy(&bytes[..bytes.len().min(40)]).into();
        DecodeError::Damaged(format!("{shown:?} is not {what}"))
    })
}

/// Parses a number that is written as text and fits float32. `inf` and `nan` are such numbers.
fn float(bytes: &[u8]) -> Result<f32, DecodeError> {
    let float: f32 = number(bytes, "a number")?;
    // Parsing turns a number that is too large into infinity. Such a text has digits, but the words for infinity have
    // none.
    if float.is_infinite() && bytes.iter().any(u8::is_ascii_digit) {
        let shown = String::from_utf8_lossy(bytes.trim_ascii());
        return Err(DecodeError::Damaged(format!("{shown:?} is too large for float32")));
    }
    Ok(float)
}

fn value(field: &Field, bytes: &[u8], kind: FieldKind) -> Result<Value, DecodeError> {
    let text = || {
        let text = std::str::from_utf8(bytes).map_err(|error| {
            let at = error.valid_up_to();
            let source = &field.source;
            DecodeError::Damaged(format!(
                "is not UTF-8 from byte {at} on: use foreload.fields.Bytes({source:?})"
            ))
        });
        text.map(str::to_owned)
    };
    match kind {
        FieldKind::Text => Ok(Value::Text(text()?)),
        FieldKind::Json => {
            let scanned = json::utf8(bytes).and_then(|text| json::scan(&text, |_, _| {}));
            scanned.map_err(|error| DecodeError::Damaged(format!("is not JSON: {error}")))?;
            Ok(Value::Bytes(bytes.to_vec()))
        }
        _ => Ok(Value::Bytes(bytes.to_vec())),
    }
}
