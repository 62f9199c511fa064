//! Makes arrays: converts the elements of a sample's record, or of an `.npy` file, into the row of a batch.

use super::{members::RecordView, run::EpochRun, windows::DrawnWindow, windows::draw_window};
use crate::batch::{Array, Ticket, Value};
use crate::config::{ArrayPlace, ArrayPlan, FieldContent};
use base::error::DecodeError;
use data::dataset::arrays::filters::{ChunkScratch, unpack_chunk};
use data::dataset::arrays::{CfFacts, Slab};
use data::schedule::Draw;
use pixels::arrays::{
    BoxCorner, GatheredBox, MemoryOrder, NumberConversion, StoredType, copied_bytes, fill, gather,
};
use pixels::decode::NpyHeader;
use std::ops::Range;
use store::io::Filled;

/// The most bytes of an array whose shape is known only when it is read.
const MAX_BYTES: u64 = 4 << 30;

/// The fewest bytes that a GPU copies from a slot by themselves. Queueing a copy costs a few microseconds, in which the
/// CPU could copy about as many bytes.
const FEWEST_RAW: usize = 64 << 10;

/// Bytes in a slot that are elements of a batch as they are.
pub(crate) struct RawBytes {
    pub column: usize,
    /// Where they begin in the sample's row of the column.
    pub at: usize,
    slot: Filled,
    range: Range<u32>,
}

impl AsRef<[u8]> for RawBytes {
    fn as_ref(&self) -> &[u8] {
        self.slot.piece(self.range.clone()).unwrap_or_default()
    }
}

/// The array of a sample, and its bytes.
pub(crate) enum ArraySource<'a> {
    /// A part of a dataset's array.
    Slab(Slab<'a>, RecordView<'a>),
    /// A file with its header, and the bytes of its elements.
    Npy(NpyHeader, &'a [u8]),
}

/// The memory that a worker needs to make arrays.
#[derive(Default)]
pub(crate) struct ArrayScratch {
    chunk: ChunkScratch,
    /// The latest conversion of each field of arrays. It serves the next sample if that is stored alike.
    latest: Vec<Option<LatestConversion>>,
    /// For a batch on a GPU: the bytes of the latest sample that were not copied, because the GPU copies them from
    /// their slot. `None` if everything is copied to the row.
    pub raw: Option<Vec<RawBytes>>,
}

struct LatestConversion {
    stored: StoredType,
    cf: Option<CfFacts>,
    shape: Vec<u64>,
    axis: usize,
    /// Whether means or standard deviations differ along `axis`.
    has_channels: bool,
    conversion: NumberConversion,
}

impl ArrayScratch {
    /// Plans the conversion of an array, for the field with the index `number` among those of arrays.
    fn prepare(
        &mut self,
        number: usize,
        plan: &ArrayPlan,
        source: &ArraySource<'_>,
    ) -> Result<(&LatestConversion, &mut ChunkScratch, Option<&mut Vec<RawBytes>>), DecodeError> {
        let (stored, cf, shape) = source.facts();
        let Self { chunk, latest, raw } = self;
        if latest.len() <= number {
            latest.resize_with(number + 1, || None);
        }
        let known = latest[number].take();
        let known = match known.filter(|of| of.stored == stored && of.cf.as_ref() == cf && of.shape == shape)
        {
            Some(known) => known,
            None => {
                let conversion = plan.conversion(stored, cf, shape).map_err(DecodeError::Damaged)?;
                let axis = plan.axis(shape.len()).map_err(DecodeError::Damaged)?;
                let (cf, shape, has_channels) = (cf.cloned(), shape.to_vec(), plan.has_channels());
                LatestConversion { stored, cf, shape, axis, has_channels, conversion }
            }
        };
        Ok((latest[number].insert(known), chunk, raw.as_mut()))
    }
}

/// Writes the array of a draw to the place of the field with the index `field` in the batch.
///
/// # Errors
/// [`DecodeError`] for an array that does not fit the field, and for damaged bytes.
pub(crate) fn fill_array(
    run: &EpochRun,
    (draw, field): (Draw, usize),
    source: &ArraySource<'_>,
    scratch: &mut ArrayScratch,
    ticket: &mut Ticket,
) -> Result<(), DecodeError> {
    let fields = &run.context.config.fields;
    let FieldContent::Arrays { plan: number, at } = fields.list[field].content else { return Ok(()) };
    let plan = &fields.arrays[number];
    let (stored, cf, shape) = source.facts();
    let part = draw_window(run, field, draw, shape)?;
    if let Some(wanted) = plan.shape()
        && wanted != part.shape
    {
        return Err(DecodeError::Damaged(format!("has shape {:?}, must have {wanted:?}", part.shape)));
    }
    let pad = run.context.config.windows.of(field).and_then(|window| window.pad).filter(|_| part.is_padded());
    let pad = pad.map(|pad| plan.padding(pad, stored, cf)).transpose().map_err(DecodeError::Damaged)?;
    let (known, chunk, raw) = scratch.prepare(number, plan, source)?;
    let mut make = |row: &mut [u8], raw| {
        pad.as_ref().map_or(Ok(()), |pad| known.pad(pad, &part, row))?;
        source.gather(&part, known, (chunk, raw), row)
    };
    match at {
        ArrayPlace::Column(column) => make(ticket.column(column), raw.map(|raw| (column, raw))),
        ArrayPlace::Values(value) => {
            let to = plan.number(stored, cf);
            // A length of 0 counts as 1, so that no length exceeds the limit.
            let most = part.shape.iter().try_fold(to.size() as u64, |most, n| most.checked_mul((*n).max(1)));
            if most.is_none_or(|most| most > MAX_BYTES) {
                let message = format!("has shape {:?}, which is more than 4 GiB", part.shape);
                return Err(DecodeError::Damaged(message));
            }
            let mut row = vec![0; part.shape.iter().product::<u64>() as usize * to.size()];
            make(&mut row, None)?;
            let shape = part.shape.iter().map(|length| length.cast_signed()).collect();
            ticket.put(value, Some(Value::Array(Array { element: to.into(), shape, bytes: row })));
            Ok(())
        }
    }
}

impl LatestConversion {
    /// Fills a row with the element `pad`.
    fn pad(&self, pad: &[u8], part: &DrawnWindow, row: &mut [u8]) -> Result<(), DecodeError> {
        let zeros = vec![0; part.shape.len()];
        let along = |lengths: &[u64]| lengths.get(self.axis).copied().unwrap_or(0);
        // Beyond the array there are no means, so only a window of all other lengths can be padded.
        if self.has_channels && along(&part.shape) != along(&part.region.length) {
            let axis = self.axis;
            let message =
                format!("is padded along axis {axis}, in which mean or std have a number for each index");
            return Err(DecodeError::Damaged(message));
        }
        let of = GatheredBox {
            lengths: &part.shape,
            chunk: BoxCorner { at: &zeros, strides: &zeros },
            row: BoxCorner { at: &zeros, strides: &MemoryOrder::RowMajor.strides(&part.shape) },
            channel: along(&part.region.start),
        };
        fill(pad, row, &of, &self.conversion)
    }
}

impl ArrayPlace {
    /// Fills the place of a sample without an array.
    pub(crate) fn clear(self, ticket: &mut Ticket) {
        match self {
            Self::Column(column) => ticket.column(column).fill(0),
            Self::Values(value) => ticket.put(value, None),
        }
    }
}

impl<'a> ArraySource<'a> {
    /// The array in an `.npy` file.
    ///
    /// # Errors
    /// Those of [`NpyHeader::of_file`].
    pub(crate) fn npy(file: &'a [u8]) -> Result<Self, DecodeError> {
        NpyHeader::of_file(file).map(|(header, data)| Self::Npy(header, data))
    }

    fn facts(&self) -> (StoredType, Option<&CfFacts>, &[u64]) {
        match self {
            Self::Slab(slab, _) => (slab.facts().stored, slab.facts().cf.as_ref(), slab.shape()),
            Self::Npy(header, _) => (header.stored, None, &header.shape),
        }
    }

    /// Converts the elements of a region of the array, and writes them to `row`. With `raw`, which also has the column
    /// of the row, a large part whose bytes the slot holds unchanged is not written, but added to `raw`.
    fn gather(
        &self,
        DrawnWindow { region, at: place, shape }: &DrawnWindow,
        LatestConversion { conversion, axis, .. }: &LatestConversion,
        (scratch, mut raw): (&mut ChunkScratch, Option<(usize, &mut Vec<RawBytes>)>),
        row: &mut [u8],
    ) -> Result<(), DecodeError> {
        let row_strides = MemoryOrder::RowMajor.strides(shape);
        let zeros = vec![0; region.length.len()];
        let channel = |start: &[u64]| start.get(*axis).copied().unwrap_or(0);
        let (slab, record) = match self {
            Self::Slab(slab, record) => (slab, record),
            Self::Npy(header, data) => {
                let strides = header.order.strides(&header.shape);
                let of = GatheredBox {
                    lengths: &region.length,
                    chunk: BoxCorner { at: &region.start, strides: &strides },
                    row: BoxCorner { at: place, strides: &row_strides },
                    channel: channel(&region.start),
                };
                return gather(data, row, &of, conversion);
            }
        };
        let (facts, strides) = (slab.facts(), slab.strides());
        let zero = vec![0; facts.stored.number.size()];
        let absent = if facts.fill.is_empty() { &zero } else { &facts.fill };
        let cut = || DecodeError::Damaged("has elements whose bytes were not read".to_owned());
        for part in slab.cells(region) {
            let overlap = &part.overlap;
            let starts = overlap.start.iter().zip(&region.start).zip(place);
            let at: Vec<u64> = starts.map(|((at, start), place)| at - start + place).collect();
            let of = GatheredBox {
                lengths: &overlap.length,
                chunk: BoxCorner { at: &zeros, strides: &strides },
                row: BoxCorner { at: &at, strides: &row_strides },
                channel: channel(&overlap.start),
            };
            let Some(range) = part.record else {
                fill(absent, row, &of, conversion)?;
                continue;
            };
            let stored = record.piece(range.clone()).ok_or_else(cut)?;
            let bytes = match part.packed {
                None => stored,
                Some(packed) => {
                    let size = usize::try_from(packed.bytes).unwrap_or(usize::MAX);
                    unpack_chunk(&facts.filters, packed.mask, stored, size, scratch)
                        .map_err(|why| DecodeError::Damaged(format!("has a damaged chunk: {why}")))?
                }
            };
            let first = usize::try_from(part.first).ok().and_then(|first| bytes.get(first..));
            let first = first.ok_or_else(cut)?;
            if let (Some((column, raw)), RecordView::Slot(slot), None) = (&mut raw, *record, part.packed)
                && let Some([from, at, bytes]) = copied_bytes([first.len(), row.len()], &of, conversion)
                && bytes >= FEWEST_RAW
            {
                let start = range.start + (stored.len() - first.len() + from) as u32;
                let range = start..start + bytes as u32;
                raw.push(RawBytes { column: *column, at, slot: slot.clone(), range });
                continue;
            }
            gather(first, row, &of, conversion)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{FieldOptions, LoaderConfig, LoaderKind, LoaderOptions};
    use base::names::NamedValue;
    use base::rng::{RandomKey, Use};
    use data::dataset::{Contents, DatasetIndex, FieldKind, SampleAxis};
    use pixels::arrays::Number;
    use std::fs;
    use std::path::Path;
    use store::io::read_blocking;

    fn npy(descr: &str, shape: &[u64], is_column_major: bool, data: &[u8]) -> Vec<u8> {
        let lengths: String = shape.iter().map(|length| format!("{length},")).collect();
        let order = if is_column_major { "True" } else { "False" };
        let header = format!("{{'descr': '{descr}', 'fortran_order': {order}, 'shape': ({lengths}), }}");
        let header = format!("{header:<117}\n");
        [&b"\x93NUMPY\x01\x00\x76\x00"[..], header.as_bytes(), data].concat()
    }

    fn loaded(
        root: &Path,
        field: FieldOptions,
        axis: SampleAxis,
    ) -> base::error::Result<(DatasetIndex, LoaderConfig)> {
        let asked = LoaderOptions {
            kind: LoaderKind::Fields,
            index_dir: Some(root.join("index")),
            rebuild_index: true,
            device: "cpu".into(),
            batch_size: 2,
            sample_axis: axis,
            fields: Some(vec![FieldOptions { kind: Some(FieldKind::Array), ..field }]),
            ..LoaderOptions::default()
        };
        let checked = asked.validate()?;
        let index = DatasetIndex::open(&root.join("data"), &checked.index_options(Contents::Images))?;
        let config = checked.check(&index)?;
        Ok((index, config))
    }

    /// The row of an array, which is `plan`'s first.
    fn row(source: &ArraySource<'_>, config: &LoaderConfig) -> Result<Vec<u8>, DecodeError> {
        let (stored, cf, shape) = source.facts();
        let plan = &config.fields.arrays[0];
        let size = plan.number(stored, cf).size() as u64 * shape.iter().product::<u64>();
        let mut row = vec![0xaa; size as usize];
        let mut scratch = ArrayScratch::default();
        let (known, chunk, _) = scratch.prepare(0, plan, source)?;
        source.gather(&DrawnWindow::whole(shape), known, (chunk, None), &mut row).map(|()| row)
    }

    /// An element in float64.
    fn value(number: Number, bytes: &[u8]) -> f64 {
        macro_rules! read {
            ($type:ty) => {
                <$type>::from_le_bytes(bytes.try_into().unwrap()) as f64
            };
        }
        match number {
            Number::Signed(1) => read!(i8),
            Number::Signed(2) => read!(i16),
            Number::Signed(4) => read!(i32),
            Number::Unsigned(2) => read!(u16),
            Number::Float(4) => read!(f32),
            Number::Float(8) => read!(f64),
            _ => read!(u8),
        }
    }

    /// Files and members of every type, byte order and order of elements, and the rows of files: every element is the
    /// one that its index says, as it is stored or computed from.
    #[test]
    fn every_element_is_in_its_place() {
        let temporary = tempfile::tempdir().unwrap();
        let root = temporary.path();
        fs::create_dir(root.join("data")).unwrap();
        let names = ["bool", "int8", "int16", "int32", "uint16", "uint8", "float32", "float64"];
        let codes = ["b1", "i1", "i2", "i4", "u2", "u1", "f4", "f8"];
        for seed in 0..120 {
            let mut random = RandomKey::new(b"rows", seed, 0, Use::Order).stream(0);
            let rank = 1 + random.below(4);
            let shape: Vec<u64> = (0..rank).map(|_| 1 + random.below(6)).collect();
            let kind = random.below(names.len() as u64) as usize;
            let number = Number::find(names[kind]).unwrap();
            let (big, is_file) = (random.below(2) == 1, random.below(2) == 1);
            let is_column_major = is_file && random.below(2) == 1;
            let count: u64 = shape.iter().product();
            let size = number.size();
            // Small whole numbers, which every type holds exactly.
            let numbers: Vec<u64> = (0..count).map(|_| random.below(2)).collect();
            let element = |value: u64| -> Vec<u8> {
                match number {
                    Number::Float(4) => (value as f32).to_le_bytes().to_vec(),
                    Number::Float(_) => (value as f64).to_le_bytes().to_vec(),
                    _ => value.to_le_bytes()[..size].to_vec(),
                }
            };
            let strides = if is_column_major { MemoryOrder::ColumnMajor } else { MemoryOrder::RowMajor }
                .strides(&shape);
            // The elements in row-major order, found by their indices.
            let indices = (0..count).map(|at| {
                let mut rest = at;
                let along = |(length, stride): (&u64, &u64)| {
                    let index = rest % length;
                    rest /= length;
                    index * stride
                };
                shape.iter().zip(&strides).rev().map(along).sum::<u64>() as usize
            });
            let in_order: Vec<u8> = indices.flat_map(|at| element(numbers[at])).collect();
            let mut stored: Vec<u8> = numbers.iter().flat_map(|&value| element(value)).collect();
            if big {
                stored.chunks_mut(size).for_each(<[u8]>::reverse);
            }
            let descr = format!("{}{}", if big { '>' } else { '<' }, codes[kind]);
            let file = npy(&descr, &shape, is_column_major, &stored);
            fs::write(root.join("data/x.npy"), &file).unwrap();
            let computes = number != Number::Bool && random.below(2) == 1;
            let mut field = FieldOptions::named(if is_file { "npy" } else { "x.npy" });
            if computes {
                field.array.dtype = Some(Number::Float(8));
                (field.array.scale, field.array.offset) = (Some(1.5), Some(-0.25));
                (field.array.mean, field.array.std) = (vec![0.5], vec![0.75]);
                field.array.missing = vec![1.0];
            }
            let axis = if is_file { SampleAxis::File } else { SampleAxis::Axis0 };
            let shown = format!("seed {seed}: {descr} {shape:?} {is_file} {is_column_major} {computes}");
            let (index, config) = loaded(root, field, axis).unwrap_or_else(|why| panic!("{shown}: {why}"));
            assert_eq!(config.layout.columns.len(), 1, "{shown}");
            let mut rows = Vec::new();
            for sample in 0..index.len() {
                let record = read_blocking(&index, index.extent(sample)).unwrap();
                let slab = index.array(sample, 0).unwrap();
                let source = ArraySource::Slab(slab, RecordView::Whole(&record));
                rows.extend(row(&source, &config).unwrap());
            }
            let whole = row(&ArraySource::npy(&file).unwrap(), &config).unwrap();
            assert_eq!(rows, whole, "{shown}");
            if !computes {
                assert_eq!(rows, in_order, "{shown}");
                continue;
            }
            let expected = in_order.chunks(size).map(|element| match value(number, element) {
                1.0 => f64::NAN,
                value => (value * 1.5 - 0.25 - 0.5) / 0.75,
            });
            let found = rows.as_chunks::<8>().0.iter().map(|bytes| f64::from_le_bytes(*bytes));
            for (found, expected) in found.zip(expected) {
                assert!(
                    found == expected || found.is_nan() && expected.is_nan(),
                    "{shown}: {found} {expected}"
                );
            }
        }
    }

    #[test]
    fn arrays_that_do_not_fit_are_errors() {
        let temporary = tempfile::tempdir().unwrap();
        let root = temporary.path();
        fs::create_dir(root.join("data")).unwrap();
        fs::write(root.join("data/x.npy"), npy("<i2", &[2, 3], false, &[1; 12])).unwrap();
        let field = |dtype: &str| {
            let mut field = FieldOptions::named("x.npy");
            field.array.dtype = Some(Number::find(dtype).unwrap());
            field
        };
        let refused = |field| loaded(root, field, SampleAxis::Axis0).err().map(|why| why.to_string());
        let message = refused(FieldOptions { name: "a".to_owned(), ..field("bool") }).unwrap_or_default();
        assert!(message.contains("has \"a\" (of \"x.npy\"), which is stored as int16, which"), "{message}");
        let (index, config) = loaded(root, field("int8"), SampleAxis::Axis0).unwrap();
        let slab = || index.array(1, 0).unwrap();
        // 257 does not fit.
        let error = |record| row(&ArraySource::Slab(slab(), record), &config).unwrap_err().to_string();
        assert!(error(RecordView::Whole(&[1; 6])).contains("has the number 257, which int8 cannot hold"));
        assert!(error(RecordView::Whole(&[1; 5])).contains("whose bytes were not read"));
        assert!(ArraySource::npy(b"PK").is_err());
    }
}
