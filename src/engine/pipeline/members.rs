//! Finds the bytes of a sample's members, in the record that was read or elsewhere in the shard. Also keeps the size
//! and the views of a sample's images.

use super::{context::SampleContext, notify, run::EpochRun};
use crate::batch::Encoded;
use crate::config::Field;
use base::error::{DecodeError, Error, Result};
use data::dataset::MemberBytes;
use pixels::augment::{DrawnView, DrawnViews};
use std::borrow::Cow;
use std::ops::Range;
use store::io::{Filled, read_blocking};

/// The size and the drawn views of an image of a sample. Fields that follow the image need them.
pub(crate) struct ImageGeometry {
    pub size: (u32, u32),
    pub drawn: Option<DrawnViews>,
}

impl ImageGeometry {
    /// Returns the views, one for each tensor of images.
    pub(crate) fn views(&self) -> &[DrawnView] {
        self.drawn.as_ref().map_or(&[], DrawnViews::views)
    }
}

/// The bytes that were read for a sample.
#[derive(Clone, Copy)]
pub(crate) enum RecordView<'a> {
    /// All bytes in one place.
    Whole(&'a [u8]),
    /// Bytes in a slot. Those of arrays may be in several places of it.
    Slot(&'a Filled),
}

impl<'a> RecordView<'a> {
    /// Returns the bytes in this range of a record of arrays; `None` if they were not read.
    pub(crate) fn piece(self, range: Range<u32>) -> Option<&'a [u8]> {
        match self {
            Self::Whole(bytes) => bytes.get(range.start as usize..range.end as usize),
            Self::Slot(slot) => slot.piece(range),
        }
    }

    /// Returns all bytes of a sample that has no arrays.
    pub(crate) fn whole(self) -> &'a [u8] {
        match self {
            Self::Whole(bytes) => bytes,
            // No member is looked for in the bytes of arrays, which may be in several places.
            Self::Slot(slot) => slot.piece(0..slot.arrived() as u32).unwrap_or_default(),
        }
    }
}

impl<'a> From<&'a Encoded> for RecordView<'a> {
    fn from(bytes: &'a Encoded) -> Self {
        match bytes {
            Encoded::Slot(slot) => Self::Slot(slot),
            Encoded::Owned(bytes) => Self::Whole(bytes),
        }
    }
}

/// Returns the bytes of a field of `sample`, whose `record` was read; `None` if the member is missing and optional. A
/// member that is stored elsewhere in the shard is read by this call.
///
/// # Errors
/// [`DecodeError::Field`] for a member that is missing and not optional, or that exists twice; the errors of reading
/// the member.
pub(crate) fn field_bytes<'a>(
    run: &'a EpochRun,
    field: &Field,
    sample: u64,
    record: &'a [u8],
) -> Result<Option<Cow<'a, [u8]>>> {
    let bytes = member_bytes(&run.context, field, sample, record)?;
    if let Some(Cow::Owned(bytes)) = &bytes {
        run.counters.add_reads(run.context.source.one_read(sample, bytes.len() as u64));
        notify::members_stored_apart(&run.context, sample, &field.source);
    }
    Ok(bytes)
}

/// Returns the bytes of a field like [`field_bytes`], but does not count a read. Bytes that this call reads are owned.
pub(crate) fn member_bytes<'a>(
    context: &'a SampleContext,
    field: &Field,
    sample: u64,
    record: &'a [u8],
) -> Result<Option<Cow<'a, [u8]>>> {
    let Some(member) = field.member else { return Ok(None) };
    if let Some(bytes) = context.index.stored_member(sample, member) {
        return Ok(Some(Cow::Borrowed(bytes)));
    }
    let wrong = |message: &str| of_field(field, DecodeError::Damaged(message.into()));
    match context.index.member_in(sample, member, record) {
        MemberBytes::WholeExtent => Ok(Some(Cow::Borrowed(record))),
        MemberBytes::InExtent(range) => {
            let bytes = record.get(range);
            let cut = || Error::Internal("the bytes of a sample do not contain one of its members".into());
            bytes.map(|bytes| Some(Cow::Borrowed(bytes))).ok_or_else(cut)
        }
        MemberBytes::Separate(extent) => {
            read_blocking(&*context.index, extent).map(|bytes| Some(Cow::Owned(bytes)))
        }
        MemberBytes::Absent if field.optional.is_some() => Ok(None),
        MemberBytes::Absent => Err(wrong(
            "the sample has no such member: if it may be missing, use a field of foreload.fields with optional=True",
        )),
        MemberBytes::Ambiguous => Err(wrong("the sample has two members with this name: keep one")),
    }
}

/// Returns the bytes of image number `image` of `sample`, whose `record` was read. With `decoded=False` these are the
/// whole record.
///
/// # Errors
/// The errors of [`field_bytes`]; [`DecodeError::Damaged`] for a sample without an image.
pub(crate) fn image_bytes<'a>(
    context: &'a SampleContext,
    image: usize,
    sample: u64,
    record: &'a [u8],
) -> Result<Cow<'a, [u8]>> {
    if !context.config.decoded {
        return Ok(Cow::Borrowed(record));
    }
    let field = &context.config.fields.list[context.config.images.list()[image].field];
    let none = || context.of_image(image, DecodeError::Damaged("the sample has no such image".into()).into());
    member_bytes(context, field, sample, record)?.ok_or_else(none)
}

pub(crate) fn member_range(
    context: &SampleContext,
    field: &Field,
    sample: u64,
    record: &[u8],
) -> Option<Range<usize>> {
    match context.index.member_in(sample, field.member?, record) {
        MemberBytes::WholeExtent => Some(0..record.len()),
        MemberBytes::InExtent(range) => Some(range),
        _ => None,
    }
}

pub(crate) fn of_field(field: &Field, error: DecodeError) -> Error {
    let name = match field.name == field.source {
        true => field.name.clone(),
        false => format!("{} (of {})", field.name, field.source),
    };
    DecodeError::Field { name, source: Box::new(error) }.into()
}
