//! HDF5 and NetCDF-4 files as shards of arrays. Each dataset (in NetCDF, each variable) is an array, and its path is
//! the name of a field.
//!
//! Finding the chunks of a dataset takes a read for each node of their index. So if the user chose fields, only these
//! are looked up, by the paths that the user wrote: `x` and `/x` are two names of one dataset. Without a choice, all
//! datasets of the file are listed.

#[cfg(test)]
mod tests;

use super::super::arrays::filters::{BlockPacking, ChunkFilter, ChunkSum, check_filters};
use super::super::arrays::{
    self, ArrayFacts, ArrayStorage, CF_ATTRIBUTES, CfAttributes, CfNumber, ChunkCell, ShardArray,
};
use super::super::gather::{MAX_CELLS, float, little_endian};
use super::super::hdf5::{
    Hdf5Array, Hdf5Attribute, Hdf5Chunk, Hdf5Element, Hdf5Fault, Hdf5File, Hdf5Filter, Hdf5Kind, Hdf5Storage,
    Hdf5Values,
};
use super::super::samples::ShardContents;
use super::super::table::{TableCells, TableColumn};
use super::super::{FieldKind, SampleAxis};
use super::{ShardLayout, ShardParser, ShardReadOptions, is_internal_name};
use crate::source::{DatasetSource, Malformed, ReadAt, Window};
use pixels::arrays::{MemoryOrder, Number, StoredType};

const ENDINGS: [&[u8]; 5] = [b".h5", b".hdf5", b".he5", b".nc", b".nc4"];
/// The attribute that marks a dimension of NetCDF that is no variable, by how its text begins.
const NAME: &str = "NAME";
const DIMENSION: &str = "This is a netCDF dimension but not a netCDF variable";
/// The number of chunks of which many may be absent. The index has a row for each chunk, also for absent ones.
const FEW_CHUNKS: u64 = 1 << 20;
/// The largest size in bytes of all texts of a dataset.
const LARGEST_TEXTS: u64 = 64 << 20;

pub(super) struct Hdf5Files;

impl ShardLayout for Hdf5Files {
    fn is_shard(&self, name: &[u8]) -> bool {
        ENDINGS.iter().any(|ending| name.ends_with(ending)) && !is_internal_name(name)
    }

    fn is_array(&self) -> bool {
        true
    }

    fn reads_chosen_arrays(&self) -> bool {
        true
    }

    fn empty_message(&self) -> String {
        "the datasets of the files have no rows; to read each file as one sample, set sample_axis=\"file\""
            .to_owned()
    }

    fn parser(
        &self,
        _: &dyn DatasetSource,
        reading: &ShardReadOptions,
    ) -> base::error::Result<Box<dyn ShardParser>> {
        Ok(Box::new(Hdf5Parser(reading.clone())))
    }
}

struct Hdf5Parser(ShardReadOptions);

/// A dataset of a file, as the layout reads it.
enum FoundDataset {
    Array(ShardArray),
    Texts(TableCells),
    /// A dimension of NetCDF, which has no values.
    Dimension,
}

impl ShardParser for Hdf5Parser {
    fn contents(&self, _: &[u8], bytes: &dyn ReadAt) -> Result<ShardContents, Malformed> {
        let open = Hdf5File::open(bytes);
        let file = open.map_err(|fault| other_format(bytes).unwrap_or_else(|| malformed(fault)))?;
        let names = match &self.0.arrays {
            Some(chosen) => {
                let label = self.0.label.iter().filter(|label| !chosen.contains(label));
                chosen.iter().chain(label).cloned().collect()
            }
            None => file.list().map_err(malformed)?,
        };
        let (mut found, mut columns) = (Vec::new(), Vec::new());
        for name in names {
            // The error of a missing dataset would need a list of all datasets.
            if self.0.optional.contains(&name) && matches!(file.find(&name), Ok(None)) {
                continue;
            }
            let cells = match self.dataset(&file, &name) {
                Ok(FoundDataset::Dimension) if self.0.arrays.is_none() => continue,
                Ok(FoundDataset::Dimension) => {
                    TableCells::Refused("it is a dimension without values".to_owned())
                }
                Ok(FoundDataset::Array(array)) => {
                    arrays::check(&array, |_| bytes.size())?;
                    columns.extend(arrays::column(&array, file.bytes(), self.0.sample_axis)?);
                    found.push(array);
                    continue;
                }
                Ok(FoundDataset::Texts(cells)) => cells,
                Err(Hdf5Fault::Refused(why)) => TableCells::Refused(format!("it {why}")),
                Err(Hdf5Fault::Missing(why)) => {
                    let is_label = self.0.label.as_ref() == Some(&name);
                    let setting = if is_label { "label=" } else { "fields=, or set its optional=True" };
                    return Err(Malformed::refusal(format!("{why}: change the name in {setting}")));
                }
                Err(fault) => return Err(malformed(fault)),
            };
            let kind = if let TableCells::Texts(_) = cells { FieldKind::Text } else { FieldKind::Array };
            columns.push(TableColumn { name, kind, classes: Vec::new(), cells });
        }
        arrays::contents(found, columns, &self.0)
    }
}

fn malformed(fault: Hdf5Fault) -> Malformed {
    match fault {
        Hdf5Fault::Missing(message) | Hdf5Fault::Refused(message) => Malformed::refusal(message),
        Hdf5Fault::Damaged(malformed) => malformed,
    }
}

/// Names the format of a file that has the ending of HDF5's, but is in one of two older formats.
fn other_format(bytes: &dyn ReadAt) -> Option<Malformed> {
    let mut start = [0; 4];
    let got = bytes.fill_at(&mut start, 0).ok()?;
    let message = match &start[..got] {
        b"CDF\x01" | b"CDF\x02" | b"CDF\x05" => {
            "this is NetCDF's classic format: convert it with `nccopy -k nc4 OLD NEW`"
        }
        b"\x0e\x03\x13\x01" => "this is HDF4: convert it to HDF5 with `h4toh5convert OLD NEW`",
        _ => return None,
    };
    Some(Malformed::refusal(message))
}

impl Hdf5Parser {
    /// Reads what a file says of a dataset. Reasons of refusals follow the dataset's name.
    fn dataset(&self, file: &Hdf5File<'_>, name: &str) -> Result<FoundDataset, Hdf5Fault> {
        let refused = |why: String| Err(Hdf5Fault::Refused(why));
        let array = file.array(name)?;
        let Hdf5Element { kind, size, big_endian } = array.element;
        let filters = match array.filters.iter().map(chunk_filter).collect::<Result<Vec<_>, _>>() {
            Ok(filters) => filters,
            Err(why) => return refused(why),
        };
        if let Hdf5Storage::Chunks { edges, .. } = &array.storage
            && let Err(why) =
                check_filters(&filters, edges.iter().fold(size.into(), |a: u64, b| a.saturating_mul(*b)))
        {
            return refused(why);
        }
        let number = match (kind, size as u8) {
            (Hdf5Kind::Text, _) => {
                return match texts(&array, &filters, self.0.sample_axis, file.bytes())? {
                    Ok(cells) => Ok(FoundDataset::Texts(cells)),
                    Err(why) => refused(why),
                };
            }
            (Hdf5Kind::Bool, _) => Number::Bool,
            (Hdf5Kind::Signed, size) => Number::Signed(size),
            (Hdf5Kind::Unsigned, size) => Number::Unsigned(size),
            (Hdf5Kind::Float, size) => Number::Float(size),
            (Hdf5Kind::BFloat, _) => Number::Brain,
        };
        let stored = StoredType { number, swapped: size > 1 && big_endian != cfg!(target_endian = "big") };
        let wanted: Vec<&str> = CF_ATTRIBUTES.into_iter().chain([NAME]).collect();
        let mut found = file.attributes(name, &wanted)?;
        if let Some(Hdf5Values::Texts(texts)) = found.pop().flatten().map(|name| name.values)
            && texts.first().is_some_and(|text| text.starts_with(DIMENSION))
        {
            return Ok(FoundDataset::Dimension);
        }
        let cf = match cf_attributes(found).and_then(|attributes| arrays::cf(stored, attributes)) {
            Ok(cf) => cf,
            Err(why) => return refused(why),
        };
        let Hdf5Array { shape, fill, storage, .. } = array;
        let storage = match array_storage(&shape, storage) {
            Ok(storage) => storage,
            Err(why) => return refused(why),
        };
        // Equal facts of many files are stored once, so they have nothing that this file does not need.
        let (has_chunks, is_partial) = match &storage {
            ArrayStorage::Grid { cells, .. } => (true, cells.contains(&ChunkCell::absent())),
            storage => (false, *storage == ArrayStorage::Fill),
        };
        let (name, order) = (name.to_owned(), MemoryOrder::RowMajor);
        let filters = if has_chunks { filters } else { Vec::new() };
        let fill = if is_partial && fill.iter().any(|&byte| byte != 0) { fill } else { Vec::new() };
        let facts = ArrayFacts { name, stored, order, filters, fill, cf };
        Ok(FoundDataset::Array(ShardArray { facts, shape, storage }))
    }
}

/// The filter by its registered number.
///
/// # Errors
/// The name of a filter that is not read, in words that follow the dataset's name.
fn chunk_filter(filter: &Hdf5Filter) -> Result<ChunkFilter, String> {
    let Hdf5Filter { id, name, values } = filter;
    let value = |at: usize| values.get(at).copied().unwrap_or_default();
    let packing = match value(4) {
        0 => Some(BlockPacking::Plain),
        2 => Some(BlockPacking::Lz4),
        3 => Some(BlockPacking::Zstd),
        _ => None,
    };
    Ok(match (id, packing) {
        (1, _) => ChunkFilter::Zlib,
        (2, _) => ChunkFilter::Shuffle { size: value(0) },
        (3, _) => ChunkFilter::Checksum { sum: ChunkSum::Fletcher32 },
        (32000, _) => ChunkFilter::Lzf,
        (32001, _) => ChunkFilter::Blosc,
        (32004, _) => ChunkFilter::Lz4Blocks,
        (32008, Some(packing)) => ChunkFilter::Bitshuffle { size: value(2), block: value(3), packing },
        (32015, _) => ChunkFilter::Zstd,
        _ => {
            let name = if name.is_empty() { "an unnamed filter" } else { name };
            return Err(format!(
                "is compressed with {name} (HDF5 filter {id}), which is not read: rewrite it with gzip, lzf, lz4, \
                 zstd, blosc or bitshuffle"
            ));
        }
    })
}

/// Where an array of this shape is stored.
///
/// # Errors
/// Why the index cannot hold it, in words that follow the dataset's name.
fn array_storage(shape: &[u64], storage: Hdf5Storage) -> Result<ArrayStorage, String> {
    let cell = |(offset, length): (u64, u32)| ChunkCell { file: 0, offset, length, mask: 0, version: 0 };
    Ok(match storage {
        Hdf5Storage::Run(start) => ArrayStorage::Run { file: 0, start },
        Hdf5Storage::Rows(rows) => ArrayStorage::Rows { cells: rows.into_iter().map(cell).collect() },
        Hdf5Storage::Chunks { edges, places } if !places.is_empty() => {
            let (has, cells) = (places.len() as u64, shape.iter().zip(&edges));
            let count =
                cells.fold(1, |all: u64, (length, edge)| all.saturating_mul(length.div_ceil((*edge).max(1))));
            if count > MAX_CELLS || count > FEW_CHUNKS && count / 64 > has {
                return Err(format!(
                    "has {count} chunks, of which {has} are stored, which are too many: write larger chunks"
                ));
            }
            let mut cells = vec![ChunkCell::absent(); count as usize];
            for Hdf5Chunk { number, offset, length, mask } in places {
                if let Some(place) = cells.get_mut(number as usize) {
                    *place = ChunkCell { mask, ..cell((offset, length)) };
                }
            }
            ArrayStorage::Grid { chunk: edges, cells }
        }
        Hdf5Storage::Absent | Hdf5Storage::Chunks { .. } => ArrayStorage::Fill,
    })
}

/// The texts of a dataset with one text for each sample, or why it is not read, in words that follow its name.
fn texts(
    array: &Hdf5Array,
    filters: &[ChunkFilter],
    axis: SampleAxis,
    bytes: &dyn ReadAt,
) -> Result<Result<TableCells, String>, Malformed> {
    let count = match (axis, &array.shape[..]) {
        (SampleAxis::Axis0, &[count]) => count,
        (SampleAxis::File, []) => 1,
        _ => return Ok(Err(format!("holds texts in the shape {:?}, not one for each sample", array.shape))),
    };
    let too_long = || format!("holds more than {} MiB of texts, which is not read", LARGEST_TEXTS >> 20);
    let texts: Vec<Vec<u8>> = match &array.storage {
        Hdf5Storage::Rows(rows) => {
            if rows.iter().map(|&(_, length)| u64::from(length)).sum::<u64>() > LARGEST_TEXTS {
                return Ok(Err(too_long()));
            }
            let mut file = Window::new(bytes);
            rows.iter().map(|&(offset, length)| file.read(offset, length.into())).collect::<Result<_, _>>()?
        }
        storage => {
            let storage = match array_storage(&array.shape, storage.clone()) {
                Ok(storage) => storage,
                Err(why) => return Ok(Err(why)),
            };
            let size = (count, array.element.size.into());
            let Some(all) = arrays::elements(&storage, (filters, &array.fill), size, bytes)? else {
                return Ok(Err(too_long()));
            };
            all.chunks(array.element.size as usize).map(<[u8]>::to_vec).collect()
        }
    };
    let text = |mut text: Vec<u8>| {
        // Shorter texts end in zeros.
        text.truncate(text.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1));
        String::from_utf8(text).ok().map(|text| Some(text.into_boxed_str()))
    };
    let texts: Option<Vec<_>> = texts.into_iter().map(text).collect();
    Ok(texts
        .map(TableCells::Texts)
        .ok_or_else(|| "holds texts that are not UTF-8, which is not read".to_owned()))
}

/// The attributes [`CF_ATTRIBUTES`] of a dataset, in this order.
///
/// # Errors
/// What an attribute is, if it must be a number, in words that follow the dataset's name.
fn cf_attributes(found: Vec<Option<Hdf5Attribute>>) -> Result<CfAttributes, String> {
    let mut attributes = CfAttributes::default();
    for (name, found) in CF_ATTRIBUTES.into_iter().zip(found) {
        let place = match name {
            "scale_factor" => &mut attributes.scale,
            "add_offset" => &mut attributes.offset,
            "_FillValue" => &mut attributes.fill,
            _ => &mut attributes.missing,
        };
        match found.map(|found| found.values) {
            None => {}
            Some(Hdf5Values::Texts(texts)) if name == "_Unsigned" => {
                attributes.unsigned = texts.into_iter().next()
            }
            Some(Hdf5Values::Numbers(element, bytes)) if name != "_Unsigned" => {
                *place = bytes
                    .chunks_exact((element.size as usize).max(1))
                    .map(|one| number(element, one))
                    .collect();
            }
            // Neither a text nor a reference equals an element.
            Some(_) if !["scale_factor", "add_offset"].contains(&name) => {}
            Some(_) => return Err(format!("has the attribute {name}, which is not a number")),
        }
    }
    Ok(attributes)
}

/// A number of an attribute.
fn number(element: Hdf5Element, bytes: &[u8]) -> CfNumber {
    let mut bytes = bytes.to_vec();
    if element.big_endian {
        bytes.reverse();
    }
    let bits = little_endian(&bytes);
    let unused = 64 - 8 * u32::from(element.size.clamp(1, 8) as u8);
    match (element.kind, bytes.len()) {
        (Hdf5Kind::Float, 4) => CfNumber::Single(f32::from_bits(bits as u32)),
        (Hdf5Kind::Float, _) => CfNumber::Double(float(&bytes)),
        (Hdf5Kind::BFloat, _) => CfNumber::Single(f32::from_bits((bits as u32) << 16)),
        (Hdf5Kind::Signed, _) => CfNumber::Integer(((bits << unused).cast_signed() >> unused).into()),
        _ => CfNumber::Integer(bits.into()),
    }
}
