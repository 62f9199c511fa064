//! Bytes and strings that are stored as views. A view has 16 bytes and begins with the length of the value. A value of
//! up to 12 bytes is stored in the view itself. For a longer value, the view has its first four bytes, the index of a
//! buffer, and the offset in that buffer.

use super::super::gather::{ByteValue, ColumnFault, little_endian};
use super::super::table::CellExtent;
use super::super::unpack::LARGEST_BLOCK;
use super::columns::{BatchReader, BufferBytes};
use super::schema::BufferPlace;

/// The size of a view, and the largest size of a value that is stored in its view, in bytes.
const VIEW_BYTES: usize = 16;
const MAX_INLINE_BYTES: u64 = 12;

struct ViewBuffer {
    length: u64,
    /// The offset of the buffer's first byte in the shard, or its address in a compressed block. `None` for strings in
    /// a compressed block, because strings are copied.
    stored_at: Option<u64>,
    unpacked: Option<Vec<u8>>,
}

pub(super) fn append(
    reader: &mut BatchReader<'_, '_>,
    place: BufferPlace,
    is_text: bool,
    present: Option<&[bool]>,
    cells: &mut Vec<Option<ByteValue>>,
) -> Result<(), ColumnFault> {
    let rows = reader.batch.rows as usize;
    if present.is_some_and(|present| !present.contains(&true)) {
        cells.extend((0..rows).map(|_| None));
        return Ok(());
    }
    let further = reader.batch.variadic.get(place.variadic);
    let further = further.filter(|&&count| count <= reader.batch.buffers.len() as u64);
    let Some(&further) = further else {
        return Err(reader.damaged("a batch has fewer buffers than it states"));
    };
    let mut unpacked = 0;
    let buffers = (1..further as usize + 2).map(|number| open(reader, place, number, is_text, &mut unpacked));
    let buffers = buffers.collect::<Result<Vec<_>, _>>()?;
    let views = match buffers.first() {
        Some(ViewBuffer { unpacked: Some(bytes), .. }) => bytes.get(..VIEW_BYTES * rows).map(<[u8]>::to_vec),
        Some(&ViewBuffer { stored_at: Some(offset), length, .. }) if length >= (VIEW_BYTES * rows) as u64 => {
            Some(reader.shard.file.read(offset, (VIEW_BYTES * rows) as u64)?)
        }
        _ => None,
    };
    let Some(views) = views else {
        return Err(reader.damaged("a buffer has fewer bytes than its column needs"));
    };
    for (row, view) in views.chunks_exact(VIEW_BYTES).enumerate() {
        if present.is_some_and(|present| !present[row]) {
            cells.push(None);
            continue;
        }
        let length = little_endian(&view[..4]);
        // A view counts buffers from the first one after the buffer of the views.
        let (number, at) = match length {
            0..=MAX_INLINE_BYTES => (0, (VIEW_BYTES * row + 4) as u64),
            _ => (little_endian(&view[8..12]).saturating_add(1), little_endian(&view[12..])),
        };
        let end = at + length;
        let buffer = usize::try_from(number).ok().and_then(|number| buffers.get(number));
        let value = match buffer.filter(|buffer| end <= buffer.length) {
            Some(&ViewBuffer { stored_at: Some(offset), .. }) => {
                ByteValue::Stored(CellExtent { offset: offset + at, length: length as u32 })
            }
            Some(ViewBuffer { unpacked: Some(bytes), .. }) => {
                ByteValue::text(&bytes[at as usize..end as usize], &mut reader.shard.limits)?
            }
            _ => return Err(reader.damaged("a value extends beyond the end of its buffer")),
        };
        cells.push(Some(value));
    }
    Ok(())
}

/// Locates a buffer, and decompresses it if it is compressed. The decompressed bytes of a batch must not exceed the
/// largest block.
fn open(
    reader: &mut BatchReader<'_, '_>,
    place: BufferPlace,
    number: usize,
    is_text: bool,
    unpacked: &mut u64,
) -> Result<ViewBuffer, ColumnFault> {
    match reader.buffer(place, number)? {
        BufferBytes::Uncompressed { offset, length } => {
            Ok(ViewBuffer { length, stored_at: Some(offset), unpacked: None })
        }
        BufferBytes::Packed { block, packed } => {
            let length = block.unpacked;
            // For bytes, only the buffer of the views must be decompressed.
            if !is_text && number > 1 {
                let (stored_at, _) = reader.address(block, packed)?;
                return Ok(ViewBuffer { length, stored_at: Some(stored_at), unpacked: None });
            }
            *unpacked = unpacked.saturating_add(length);
            if *unpacked > LARGEST_BLOCK {
                let why = "the decompressed texts of a batch exceed the limit: write smaller batches";
                return Err(ColumnFault::Refused(why.to_owned()));
            }
            if is_text {
                let bytes = reader.unpack(block, packed)?;
                return Ok(ViewBuffer { length, stored_at: None, unpacked: Some(bytes) });
            }
            let (stored_at, bytes) = reader.address(block, packed)?;
            Ok(ViewBuffer { length, stored_at: Some(stored_at), unpacked: Some(bytes) })
        }
    }
}
