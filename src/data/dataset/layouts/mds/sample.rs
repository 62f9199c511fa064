//! The samples of an MDS shard: the locations of their values, and their small values.

use super::encoding::MdsEncoding;
use super::list::{MdsFile, MdsShard};
use crate::dataset::gather::{float, little_endian};
use crate::dataset::table::{CellExtent, ShardTable, TableCells, TableColumn};
use crate::dataset::value_kinds::ValueKinds;
use crate::source::{Malformed, ReadAt, Window};

const OFFSETS_AT_ONCE: u64 = 1024;
/// The maximum size in bytes of a number that is stored as text.
const LONGEST_NUMBER: u32 = 400;

/// Parses an MDS shard into a table. `columns` gives the name, the encoding and the value size in bytes of each column,
/// as in `index.json`.
///
/// # Errors
/// [`Malformed`] if the shard does not match `columns` or `samples`.
pub fn mds_table<S: ReadAt + ?Sized>(
    source: &S,
    columns: &[(&str, &str, Option<u64>)],
    samples: u64,
) -> Result<ShardTable, Malformed> {
    let shard = MdsShard {
        column_names: columns.iter().map(|(name, ..)| (*name).to_owned()).collect(),
        column_encodings: columns.iter().map(|(_, encoding, _)| (*encoding).to_owned()).collect(),
        column_sizes: columns.iter().map(|(.., size)| *size).collect(),
        raw_data: MdsFile { basename: "shard".to_owned(), bytes: source.size(), ..MdsFile::default() },
        samples,
        ..MdsShard::default()
    };
    shard.check().map_err(|message| Malformed { offset: 0, message })?;
    table(source, &shard)
}

pub(super) fn table<S: ReadAt + ?Sized>(source: &S, shard: &MdsShard) -> Result<ShardTable, Malformed> {
    let fail = |offset: u64, message: String| Err(Malformed { offset, message });
    let (size, samples) = (source.size(), shard.samples);
    if size != shard.raw_data.bytes {
        return fail(0, format!("has {size} bytes, but index.json says {}", shard.raw_data.bytes));
    }
    let mut bytes = Window::new(source);
    let found = u64::from(u32_at(&mut bytes, 0)?);
    if found != samples {
        return fail(0, format!("has {found} samples, but index.json says {samples}"));
    }
    let data = 4 + 4 * (samples + 1);
    // A sample has at least one byte for each column. So the size of the shard limits the number of values, and with it
    // the memory that a damaged index can demand.
    let least =
        samples.checked_mul(shard.column_names.len() as u64).and_then(|least| least.checked_add(data));
    if least.is_none_or(|least| least > size) {
        return fail(0, format!("has {size} bytes, which are too few for {samples} samples"));
    }
    let mut columns = shard.columns()?;
    let mut offsets = Offsets { bytes: Window::new(source), next: 0, left: samples + 1, read: Vec::new() };
    let mut start = offsets.next()?;
    if start < data {
        return fail(4, format!("has its first sample at byte {start}, inside its table of offsets"));
    }
    for number in 0..samples {
        let end = offsets.next()?;
        if end < start || end > size {
            let message =
                format!("sample {number} ends at byte {end}, before its start or after the end of the shard");
            return fail(start, message);
        }
        sample(&mut bytes, &mut columns, number, start..end)?;
        start = end;
    }
    if start != size {
        return fail(start, format!("has {} bytes after its last sample", size - start));
    }
    let columns = columns.into_iter().map(MdsColumn::finish).collect();
    Ok(ShardTable { samples, columns, ..ShardTable::default() })
}

struct Offsets<'a, S: ReadAt + ?Sized> {
    bytes: Window<'a, S>,
    next: u64,
    left: u64,
    /// The offsets that were read but not returned, in reverse order.
    read: Vec<u64>,
}

impl<S: ReadAt + ?Sized> Offsets<'_, S> {
    fn next(&mut self) -> Result<u64, Malformed> {
        if self.read.is_empty() {
            let count = self.left.min(OFFSETS_AT_ONCE);
            let bytes = self.bytes.read(4 + 4 * self.next, 4 * count)?;
            let offsets = bytes.as_chunks().0.iter().rev();
            self.read = offsets.map(|four| u64::from(u32::from_le_bytes(*four))).collect();
            (self.next, self.left) = (self.next + count, self.left - count);
        }
        let place = 4 + 4 * self.next;
        self.read.pop().ok_or_else(|| self.bytes.truncated(place, 4))
    }
}

fn u32_at<S: ReadAt + ?Sized>(bytes: &mut Window<'_, S>, at: u64) -> Result<u32, Malformed> {
    let four = bytes.read(at, 4)?;
    Ok(four.first_chunk().map_or(0, |four| u32::from_le_bytes(*four)))
}

struct MdsColumn {
    name: String,
    encoding: MdsEncoding,
    size: Option<u64>,
    cells: TableCells,
    kinds: ValueKinds,
}

impl MdsShard {
    fn columns(&self) -> Result<Vec<MdsColumn>, Malformed> {
        let names = self.column_names.iter().zip(&self.column_encodings).zip(&self.column_sizes);
        let column = |((name, encoding), size): ((&String, &String), &Option<u64>)| {
            let size = size.filter(|&size| size > 0);
            let known = MdsEncoding::of(encoding);
            if known.size().is_some_and(|own| size != Some(own)) {
                let message = format!(
                    "index.json says that the column {name:?} has values of another size than its encoding {encoding:?}"
                );
                return Err(Malformed { offset: 0, message });
            }
            let cells = match &known {
                MdsEncoding::Bytes(_) => TableCells::Extents(Vec::new()),
                MdsEncoding::Signed(_) | MdsEncoding::Unsigned(_) | MdsEncoding::WholeText => {
                    TableCells::Integers(Vec::new())
                }
                MdsEncoding::Float(_) | MdsEncoding::FloatText => TableCells::Floats(Vec::new()),
                MdsEncoding::Refused(why) => TableCells::Refused(why.clone()),
            };
            Ok(MdsColumn { name: name.clone(), encoding: known, size, cells, kinds: ValueKinds::default() })
        };
        names.map(column).collect()
    }
}

fn sample<S: ReadAt + ?Sized>(
    bytes: &mut Window<'_, S>,
    columns: &mut [MdsColumn],
    number: u64,
    place: std::ops::Range<u64>,
) -> Result<(), Malformed> {
    let wrong = |what: &str| Malformed { offset: place.start, message: format!("sample {number} {what}") };
    let differing = columns.iter().filter(|column| column.size.is_none()).count() as u64;
    let head = 4 * differing;
    if head > place.end - place.start {
        return Err(wrong("is too short for the sizes of its values"));
    }
    let sizes = bytes.read(place.start, head)?;
    let mut sizes = sizes.as_chunks().0.iter().map(|four| u64::from(u32::from_le_bytes(*four)));
    let mut at = place.start + head;
    for column in columns {
        let size = column.size.or_else(|| sizes.next()).unwrap_or(0);
        if size > place.end - at {
            return Err(wrong(&format!("ends within its value of {:?}", column.name)));
        }
        column.take(bytes, number, CellExtent { offset: at, length: size as u32 })?;
        at += size;
    }
    if at == place.end { Ok(()) } else { Err(wrong("is longer than its values")) }
}

impl MdsColumn {
    fn take<S: ReadAt + ?Sized>(
        &mut self,
        bytes: &mut Window<'_, S>,
        sample: u64,
        value: CellExtent,
    ) -> Result<(), Malformed> {
        let mut read = || bytes.read(value.offset, u64::from(value.length));
        let number = match &self.encoding {
            MdsEncoding::Signed(_) | MdsEncoding::Unsigned(_) | MdsEncoding::Float(_) => read()?,
            MdsEncoding::WholeText | MdsEncoding::FloatText if value.length <= LONGEST_NUMBER => read()?,
            _ => Vec::new(),
        };
        let text = || std::str::from_utf8(&number).ok().map(str::trim);
        let mut refused = None;
        match (&mut self.cells, &self.encoding) {
            (TableCells::Extents(cells), encoding) => {
                if *encoding == MdsEncoding::Bytes(None) {
                    self.kinds.look(bytes, value)?;
                }
                cells.push(Some(value));
            }
            (TableCells::Integers(cells), encoding) => {
                let whole = match encoding {
                    MdsEncoding::Signed(_) => Some(signed(&number)),
                    MdsEncoding::Unsigned(_) => i64::try_from(little_endian(&number)).ok(),
                    _ => text().and_then(|text| text.parse().ok()),
                };
                refused = whole.is_none().then_some("an integer in the range of int64");
                cells.push(whole);
            }
            (TableCells::Floats(cells), encoding) => {
                let float = match encoding {
                    MdsEncoding::Float(_) => Some(float(&number)),
                    _ => text().and_then(|text| text.parse().ok()),
                };
                refused = float.is_none().then_some("a number");
                cells.push(float);
            }
            _ => {}
        }
        if let Some(what) = refused {
            self.cells = TableCells::Refused(format!("has a value in sample {sample} that is not {what}"));
        }
        Ok(())
    }

    fn finish(self) -> TableColumn {
        let kind = match (&self.cells, &self.encoding) {
            (_, MdsEncoding::Bytes(Some(kind))) => *kind,
            (TableCells::Extents(_), _) => self.kinds.kind_of_bytes(),
            (cells, _) => cells.kind(),
        };
        TableColumn { name: self.name, kind, classes: Vec::new(), cells: self.cells }
    }
}

fn signed(bytes: &[u8]) -> i64 {
    let unused = 64 - 8 * bytes.len().clamp(1, 8) as u32;
    (little_endian(bytes) << unused).cast_signed() >> unused
}
