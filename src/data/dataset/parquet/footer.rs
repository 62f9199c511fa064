//! The footer of a Parquet file: the schema, and the locations of the pages of each column.
//!
//! The field numbers are those of `parquet.thrift` in Apache's `parquet-format`.

use super::super::gather::{TableFile, damaged};
use super::super::hugging_face;
use super::super::unpack::BlockCodec;
use super::thrift::{BINARY, FALSE, I32, I64, LIST, STRUCT, TRUE, Thrift};
use crate::source::Malformed;

const MAGIC: &[u8] = b"PAR1";
const LARGEST: u64 = 256 << 20;
const MAX_ELEMENTS: usize = 1 << 16;

pub(super) struct ParquetFooter {
    /// The schema in preorder, with the root first.
    pub(super) schema: Vec<SchemaElement>,
    pub(super) groups: Vec<RowGroup>,
    /// The JSON document that Hugging Face's `datasets` writes.
    pub(super) hugging_face: Option<Vec<u8>>,
    /// The offset of the footer. All pages end before this offset.
    pub(super) at: u64,
}

#[derive(Debug, Default)]
pub(super) struct SchemaElement {
    pub(super) name: String,
    pub(super) physical: Option<u64>,
    pub(super) length: u64,
    pub(super) repetition: Option<u64>,
    pub(super) children: u64,
    pub(super) converted: Option<u64>,
    pub(super) logical: Option<LogicalType>,
}

/// The logical type of an element: the number of the variant in `parquet.thrift`, and for integers whether they are
/// signed.
#[derive(Debug, Clone, Copy)]
pub(super) struct LogicalType {
    pub(super) variant: i16,
    pub(super) signed: bool,
}

pub(super) struct RowGroup {
    pub(super) rows: u64,
    pub(super) chunks: Vec<ColumnChunk>,
}

#[derive(Debug)]
pub(super) struct ColumnChunk {
    /// The codec of the pages. The error is the name of an unsupported codec.
    pub(super) codec: Result<Option<BlockCodec>, String>,
    pub(super) physical: u64,
    pub(super) values: u64,
    pub(super) nulls: Option<u64>,
    /// The number of definition levels, if the statistics have a histogram of them.
    pub(super) levels: Option<usize>,
    /// The offset of the first page, and the end of the last page.
    pub(super) start: u64,
    pub(super) end: u64,
}

pub(super) fn read(file: &mut TableFile<'_>) -> Result<ParquetFooter, Malformed> {
    let size = file.size();
    let wrong = |offset, message: &str| Err(Malformed { offset, message: message.to_owned() });
    if size < 12 || file.read(0, 4)? != MAGIC {
        return wrong(0, "not a Parquet file: it does not begin with \"PAR1\"");
    }
    let tail = file.read(size - 8, 8)?;
    if &tail[4..] == b"PARE" {
        return wrong(size - 4, "an encrypted Parquet file: decrypt it");
    }
    if &tail[4..] != MAGIC {
        return wrong(size - 4, "a Parquet file that does not end with \"PAR1\": it is truncated or damaged");
    }
    let length = u64::from(u32::from_le_bytes([tail[0], tail[1], tail[2], tail[3]]));
    if length > size - 12 || length > LARGEST {
        let what = "the stated length of the Parquet footer exceeds the file or the limit";
        return Err(damaged(size - 8, what));
    }
    let at = size - 8 - length;
    let bytes = file.read(at, length)?;
    parse(&mut Thrift::new(&bytes, at), at)
}

fn parse(thrift: &mut Thrift<'_>, at: u64) -> Result<ParquetFooter, Malformed> {
    let mut footer = ParquetFooter { schema: Vec::new(), groups: Vec::new(), hugging_face: None, at };
    let (mut rows, mut last) = (None, 0);
    while let Some(field) = thrift.field(&mut last)? {
        match (field.id, field.kind) {
            (2, LIST) => {
                let count = thrift.structs()?;
                if count > MAX_ELEMENTS {
                    return Err(thrift.wrong("its schema has too many columns"));
                }
                footer.schema = (0..count).map(|_| element(thrift)).collect::<Result<_, _>>()?;
            }
            (3, I64) => rows = Some(thrift.count()?),
            (4, LIST) => {
                let count = thrift.structs()?;
                for _ in 0..count {
                    footer.groups.push(row_group(thrift, at)?);
                }
            }
            (5, LIST) => {
                for _ in 0..thrift.structs()? {
                    let (key, value) = key_value(thrift)?;
                    if key == hugging_face::KEY {
                        footer.hugging_face = value.map(<[u8]>::to_vec);
                    }
                }
            }
            (8, STRUCT) => {
                return Err(thrift.wrong("its columns are encrypted, which is not supported; if not"));
            }
            (_, kind) => thrift.skip(kind)?,
        }
    }
    let sum = footer.groups.iter().try_fold(0_u64, |sum, group| sum.checked_add(group.rows));
    if rows.is_none() || rows != sum {
        return Err(thrift.wrong("its footer states another number of rows than its row groups"));
    }
    Ok(footer)
}

fn element(thrift: &mut Thrift<'_>) -> Result<SchemaElement, Malformed> {
    let (mut element, mut named, mut last) = (SchemaElement::default(), false, 0);
    while let Some(field) = thrift.field(&mut last)? {
        match (field.id, field.kind) {
            (1, I32) => element.physical = Some(thrift.count()?),
            (2, I32) => element.length = thrift.count()?,
            (3, I32) => element.repetition = Some(thrift.count()?),
            (4, BINARY) => (element.name, named) = (thrift.text()?, true),
            (5, I32) => element.children = thrift.count()?,
            (6, I32) => element.converted = Some(thrift.count()?),
            (10, STRUCT) => element.logical = logical(thrift)?,
            (_, kind) => thrift.skip(kind)?,
        }
    }
    if named { Ok(element) } else { Err(thrift.wrong("its schema has a column without a name")) }
}

fn logical(thrift: &mut Thrift<'_>) -> Result<Option<LogicalType>, Malformed> {
    let (mut found, mut last) = (None, 0);
    while let Some(field) = thrift.field(&mut last)? {
        let mut logical = LogicalType { variant: field.id, signed: true };
        if field.kind == STRUCT {
            let mut last = 0;
            while let Some(inner) = thrift.field(&mut last)? {
                match (inner.id, inner.kind) {
                    (2, TRUE | FALSE) => logical.signed = inner.kind == TRUE,
                    (_, kind) => thrift.skip(kind)?,
                }
            }
        } else {
            thrift.skip(field.kind)?;
        }
        found = Some(logical);
    }
    Ok(found)
}

fn key_value<'a>(thrift: &mut Thrift<'a>) -> Result<(&'a [u8], Option<&'a [u8]>), Malformed> {
    let (mut key, mut value, mut last) = (&[][..], None, 0);
    while let Some(field) = thrift.field(&mut last)? {
        match (field.id, field.kind) {
            (1, BINARY) => key = thrift.binary()?,
            (2, BINARY) => value = Some(thrift.binary()?),
            (_, kind) => thrift.skip(kind)?,
        }
    }
    Ok((key, value))
}

fn row_group(thrift: &mut Thrift<'_>, footer: u64) -> Result<RowGroup, Malformed> {
    let (mut chunks, mut rows, mut last) = (Vec::new(), None, 0);
    while let Some(field) = thrift.field(&mut last)? {
        match (field.id, field.kind) {
            (1, LIST) => {
                for _ in 0..thrift.structs()? {
                    chunks.push(column_chunk(thrift, footer)?);
                }
            }
            (3, I64) => rows = Some(thrift.count()?),
            (_, kind) => thrift.skip(kind)?,
        }
    }
    let rows = rows.ok_or_else(|| thrift.wrong("a row group does not state its number of rows"))?;
    Ok(RowGroup { rows, chunks })
}

fn column_chunk(thrift: &mut Thrift<'_>, footer: u64) -> Result<ColumnChunk, Malformed> {
    let (mut chunk, mut last) = (None, 0);
    while let Some(field) = thrift.field(&mut last)? {
        match (field.id, field.kind) {
            (1, BINARY) => {
                if !thrift.binary()?.is_empty() {
                    return Err(thrift.wrong("its columns are in other files, which is unsupported; if not"));
                }
            }
            (3, STRUCT) => chunk = Some(chunk_metadata(thrift, footer)?),
            (8 | 9, _) => {
                return Err(thrift.wrong("its columns are encrypted, which is not supported; if not"));
            }
            (_, kind) => thrift.skip(kind)?,
        }
    }
    chunk.ok_or_else(|| thrift.wrong("a column has no metadata"))
}

fn chunk_metadata(thrift: &mut Thrift<'_>, footer: u64) -> Result<ColumnChunk, Malformed> {
    let (mut physical, mut codec, mut values, mut packed, mut data) = (None, None, None, None, None);
    let (mut dictionary, mut nulls, mut levels, mut last) = (None, None, None, 0);
    while let Some(field) = thrift.field(&mut last)? {
        match (field.id, field.kind) {
            (1, I32) => physical = Some(thrift.count()?),
            (4, I32) => codec = Some(thrift.count()?),
            (5, I64) => values = Some(thrift.count()?),
            (7, I64) => packed = Some(thrift.count()?),
            (9, I64) => data = Some(thrift.count()?),
            (11, I64) => dictionary = Some(thrift.count()?),
            (12, STRUCT) => nulls = null_count(thrift)?,
            (16, STRUCT) => levels = definition_levels(thrift)?,
            (_, kind) => thrift.skip(kind)?,
        }
    }
    let (Some(physical), Some(codec), Some(values), Some(packed), Some(data)) =
        (physical, codec, values, packed, data)
    else {
        return Err(thrift.wrong("the metadata of a column lacks its place, codec or type"));
    };
    let codec = match codec {
        0 => Ok(None),
        1 => Ok(Some(BlockCodec::Snappy)),
        2 => Ok(Some(BlockCodec::Gzip)),
        6 => Ok(Some(BlockCodec::Zstd)),
        7 => Ok(Some(BlockCodec::Lz4Block)),
        3 => Err("LZO".to_owned()),
        4 => Err("brotli".to_owned()),
        5 => Err("Hadoop's LZ4".to_owned()),
        other => Err(format!("codec {other}")),
    };
    // Some writers store offset 0 for the dictionary if a chunk has no dictionary.
    let start = dictionary.filter(|&at| at > 0).map_or(data, |at| at.min(data));
    // A chunk without values has no pages, so its offsets have no meaning.
    let end = if values == 0 {
        Some(start)
    } else {
        start.checked_add(packed).filter(|&end| start >= 4 && end <= footer)
    };
    let end = end.ok_or_else(|| thrift.wrong("a column states an invalid place"))?;
    Ok(ColumnChunk { codec, physical, values, nulls, levels, start, end })
}

fn null_count(thrift: &mut Thrift<'_>) -> Result<Option<u64>, Malformed> {
    let (mut nulls, mut last) = (None, 0);
    while let Some(field) = thrift.field(&mut last)? {
        match (field.id, field.kind) {
            // Some writers store a negative number, which has no meaning.
            (3, I64) => nulls = u64::try_from(thrift.number()?).ok(),
            (_, kind) => thrift.skip(kind)?,
        }
    }
    Ok(nulls)
}

/// Reads the length of the histogram of definition levels in a column's `SizeStatistics`.
fn definition_levels(thrift: &mut Thrift<'_>) -> Result<Option<usize>, Malformed> {
    let (mut levels, mut last) = (None, 0);
    while let Some(field) = thrift.field(&mut last)? {
        match (field.id, field.kind) {
            (3, LIST) => levels = Some(thrift.numbers()?).filter(|&count| count > 0),
            (_, kind) => thrift.skip(kind)?,
        }
    }
    Ok(levels)
}
