//! The messages of an Arrow stream or file: its schema, and the locations of the buffers of each batch.
//!
//! The field numbers are those of Arrow's `format/Message.fbs` and `format/File.fbs`.

use super::super::gather::{TableLimits, TableShard, damaged};
use super::super::unpack::BlockCodec;
use super::flat::{FlatTable, longs};
use super::schema::ArrowSchema;
use crate::source::Malformed;

const MAGIC: &[u8] = b"ARROW1";
/// The maximum size in bytes of a message without its body, and of a file's footer.
const LARGEST: u64 = 64 << 20;

pub(super) struct ArrowMessages {
    pub(super) schema: ArrowSchema,
    pub(super) batches: Vec<ArrowBatch>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BatchUse {
    Rows,
    /// Values of a dictionary. They replace the dictionary's earlier values, or with `is_delta` are appended to them.
    Dictionary {
        id: i64,
        is_delta: bool,
    },
}

pub(super) struct ArrowBatch {
    pub(super) what: BatchUse,
    pub(super) rows: u64,
    pub(super) offset: u64,
    /// For each field, the number of rows and the number of missing values.
    pub(super) nodes: Vec<(u64, i64)>,
    pub(super) buffers: Vec<(u64, u64)>,
    /// For each field whose number of buffers varies, the number of its additional buffers.
    pub(super) variadic: Vec<u64>,
    /// The codec of the buffers. The error is the name of an unsupported codec.
    pub(super) codec: Result<Option<BlockCodec>, String>,
}

struct ArrowMessage {
    bytes: Vec<u8>,
    offset: u64,
    body: u64,
    end: u64,
}

pub(super) fn read(shard: &mut TableShard<'_>) -> Result<ArrowMessages, Malformed> {
    let start = shard.file.read(0, shard.file.size().min(8))?;
    if start.starts_with(MAGIC) { read_file(shard) } else { read_stream(shard) }
}

fn read_stream(shard: &mut TableShard<'_>) -> Result<ArrowMessages, Malformed> {
    let size = shard.file.size();
    let Some(first) = ArrowMessage::read(shard, 0, size)? else {
        return Err(damaged(0, "an Arrow stream without a schema"));
    };
    let schema = first.schema()?;
    let (mut batches, mut at) = (Vec::new(), first.end);
    while let Some(message) = ArrowMessage::read(shard, at, size)? {
        batches.push(message.batch(&mut shard.limits)?);
        at = message.end;
    }
    // A length of zero marks the end. Later versions of Arrow write another mark before this length.
    let marks = shard.file.read(at, (size - at).min(9))?;
    if marks.len() > 8 || marks.len() > 4 && marks[..4] != [0xFF; 4] {
        return Err(damaged(at, "more bytes follow the end of an Arrow stream"));
    }
    Ok(ArrowMessages { schema, batches })
}

fn read_file(shard: &mut TableShard<'_>) -> Result<ArrowMessages, Malformed> {
    let size = shard.file.size();
    if size < 18 {
        return Err(damaged(size, "a truncated Arrow file"));
    }
    let tail_at = size - 10;
    let tail = shard.file.read(tail_at, 10)?;
    let (Some(length), Some(MAGIC)) = (tail.first_chunk::<4>(), tail.get(4..)) else {
        return Err(damaged(tail_at, "an Arrow file that does not end with \"ARROW1\""));
    };
    let length = u64::from(u32::from_le_bytes(*length));
    let Some(footer_at) = tail_at.checked_sub(length).filter(|&at| at >= 8 && length <= LARGEST) else {
        return Err(damaged(tail_at, "the stated length of the Arrow footer exceeds the file or the limit"));
    };
    let bytes = shard.file.read(footer_at, length)?;
    let wrong = || damaged(footer_at, "an Arrow footer that cannot be read");
    let footer = FlatTable::root(&bytes).ok_or_else(wrong)?;
    let version = footer.i16(0).ok_or_else(wrong)?;
    let schema = schema(footer.table(1).ok_or_else(wrong)?, version, footer_at)?;
    let mut batches = Vec::new();
    for (field, is_rows) in [(2, false), (3, true)] {
        for at in longs(footer.vector(field, 24).ok_or_else(wrong)?, 24, 0) {
            let at = u64::try_from(at).map_err(|_| wrong())?;
            let message = ArrowMessage::read(shard, at, footer_at)?;
            let batch = message.ok_or_else(|| damaged(at, "a batch is missing"))?.batch(&mut shard.limits)?;
            if (batch.what == BatchUse::Rows) != is_rows {
                return Err(damaged(at, "a batch is of another kind than the footer states"));
            }
            batches.push(batch);
        }
    }
    Ok(ArrowMessages { schema, batches })
}

fn schema(schema: FlatTable<'_>, version: i16, offset: u64) -> Result<ArrowSchema, Malformed> {
    // The stored version numbers are one lower than the names of the versions. Versions before 4 had other buffers.
    if !(3..=4).contains(&version) {
        let message = format!("an Arrow table of version {}: only 4 and 5 are read", i32::from(version) + 1);
        return Err(Malformed { offset, message });
    }
    let read = ArrowSchema::read(schema, version);
    read.map_err(|message| Malformed { offset, message: message.to_owned() })
}

impl ArrowMessage {
    /// Reads the message at an offset. The message and its body must end before `end`. `None` at the end of a stream.
    fn read(shard: &mut TableShard<'_>, offset: u64, end: u64) -> Result<Option<Self>, Malformed> {
        let wrong = |what| damaged(offset.min(end), what);
        if offset >= end {
            return Err(wrong("a truncated Arrow stream, without an end mark"));
        }
        let head = shard.file.read(offset, (end - offset).min(8))?;
        let number = |at: usize| head.get(at..)?.first_chunk().map(|bytes| u32::from_le_bytes(*bytes));
        // Before Arrow 0.15, a message began with its length.
        let (length, begins) = match number(0) {
            Some(u32::MAX) => (number(4), offset + 8),
            length => (length, offset + 4),
        };
        let length = match length {
            None => return Err(wrong("a truncated Arrow message")),
            Some(0) => return Ok(None),
            Some(length) => u64::from(length),
        };
        if length > LARGEST || begins + length > end {
            return Err(wrong("neither an Arrow message nor the end of the stream"));
        }
        shard.limits.take_bytes(length, offset)?;
        let bytes = shard.file.read(begins, length)?;
        let body = begins + length;
        let header = FlatTable::root(&bytes).and_then(|message| message.i64(3));
        let body_length = header.and_then(|length| u64::try_from(length).ok());
        let end = body_length.and_then(|length| body.checked_add(length)).filter(|&ends| ends <= end);
        match end {
            Some(end) => Ok(Some(Self { bytes, offset, body, end })),
            None => Err(wrong("an Arrow message that is malformed or truncated")),
        }
    }

    fn header(&self, kind: u8) -> Option<FlatTable<'_>> {
        let message = FlatTable::root(&self.bytes)?;
        if message.u8(1)? == kind { message.table(2) } else { None }
    }

    fn schema(&self) -> Result<ArrowSchema, Malformed> {
        let version = FlatTable::root(&self.bytes).and_then(|message| message.i16(0));
        let (Some(version), Some(header)) = (version, self.header(1)) else {
            return Err(damaged(self.offset, "neither an Arrow stream nor an Arrow file"));
        };
        schema(header, version, self.offset)
    }

    fn batch(&self, limits: &mut TableLimits) -> Result<ArrowBatch, Malformed> {
        let wrong = || damaged(self.offset, "an Arrow message that is not a batch");
        if let Some(rows) = self.header(3) {
            return self.batch_of(rows, BatchUse::Rows, limits)?.ok_or_else(wrong);
        }
        let header = self.header(2).ok_or_else(wrong)?;
        let (Some(id), Some(delta)) = (header.i64(0), header.u8(2)) else { return Err(wrong()) };
        let what = BatchUse::Dictionary { id, is_delta: delta != 0 };
        self.batch_of(header.table(1).ok_or_else(wrong)?, what, limits)?.ok_or_else(wrong)
    }

    fn batch_of(
        &self,
        table: FlatTable<'_>,
        what: BatchUse,
        limits: &mut TableLimits,
    ) -> Result<Option<ArrowBatch>, Malformed> {
        let (Some(nodes), Some(buffers), Some(variadic)) =
            (table.vector(1, 16), table.vector(2, 16), table.vector(4, 8))
        else {
            return Ok(None);
        };
        limits.take_cells((nodes.len() + buffers.len() + variadic.len()) as u64 / 16, self.offset)?;
        let unsigned = |number: i64| u64::try_from(number).ok();
        let node = |(rows, missing)| Some((unsigned(rows)?, missing));
        let buffer = |(offset, length)| {
            let (offset, length) = (unsigned(offset)?, unsigned(length)?);
            // Buffers begin at multiples of 8. With another offset, values would be shifted.
            if length > 0 && offset % 8 != 0 {
                return None;
            }
            let offset = self.body.checked_add(offset)?;
            offset.checked_add(length).filter(|&end| end <= self.end).map(|_| (offset, length))
        };
        let nodes = longs(nodes, 16, 0).zip(longs(nodes, 16, 8)).map(node).collect();
        let buffers = longs(buffers, 16, 0).zip(longs(buffers, 16, 8)).map(buffer).collect();
        let variadic = longs(variadic, 8, 0).map(unsigned).collect();
        let codec = if table.has(3) { table.table(3).and_then(codec) } else { Some(Ok(None)) };
        let rows = table.i64(0).and_then(unsigned);
        let (Some(rows), Some(nodes), Some(buffers), Some(variadic), Some(codec)) =
            (rows, nodes, buffers, variadic, codec)
        else {
            return Ok(None);
        };
        Ok(Some(ArrowBatch { what, rows, offset: self.offset, nodes, buffers, variadic, codec }))
    }
}

fn codec(compression: FlatTable<'_>) -> Option<Result<Option<BlockCodec>, String>> {
    Some(match (compression.u8(0)?, compression.u8(1)?) {
        (0, 0) => Ok(Some(BlockCodec::Lz4Frame)),
        (1, 0) => Ok(Some(BlockCodec::Zstd)),
        (codec, _) => Err(format!("codec {codec}")),
    })
}
