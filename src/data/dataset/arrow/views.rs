//! Bytes and texts that are stored as views. A view has 16 bytes and begins with the length. A value of up to 12 bytes
//! follows at once. For a longer value, its first four bytes, the number of a buffer, and the offset in that buffer
//! follow.

use super::super::gather::{ByteValue, ColumnFault};
use super::super::table::CellExtent;
use super::super::unpack::LARGEST_BLOCK;
use super::columns::{BatchReader, BufferBytes, little_endian};
use super::schema::BufferPlace;

/// The number of bytes of a view, and of the longest value that a view holds.
const VIEW: usize = 16;
const SHORT: u64 = 12;

/// A buffer that holds values.
struct ViewBuffer {
    length: u64,
    /// The offset of its first byte in the shard, or its address in a compressed block. `None` for texts in such a
    /// block, because these are copied.
    lies: Option<u64>,
    /// The decompressed bytes of a compressed buffer.
    unpacked: Option<Vec<u8>>,
}

/// Appends the values of a batch.
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
        Some(ViewBuffer { unpacked: Some(bytes), .. }) => bytes.get(..VIEW * rows).map(<[u8]>::to_vec),
        Some(&ViewBuffer { lies: Some(offset), length, .. }) if length >= (VIEW * rows) as u64 => {
            Some(reader.file.read(offset, (VIEW * rows) as u64)?)
        }
        _ => None,
    };
    let Some(views) = views else {
        return Err(reader.damaged("a buffer has fewer bytes than its column needs"));
    };
    for (row, view) in views.chunks_exact(VIEW).enumerate() {
        if present.is_some_and(|present| !present[row]) {
            cells.push(None);
            continue;
        }
        let length = little_endian(&view[..4]);
        // Views count buffers from the one after the buffer of the views.
        let (number, at) = match length {
            0..=SHORT => (0, (VIEW * row + 4) as u64),
            _ => (little_endian(&view[8..12]).saturating_add(1), little_endian(&view[12..])),
        };
        let end = at + length;
        let buffer = usize::try_from(number).ok().and_then(|number| buffers.get(number));
        let value = match buffer.filter(|buffer| end <= buffer.length) {
            Some(&ViewBuffer { lies: Some(offset), .. }) => {
                ByteValue::Lies(CellExtent { offset: offset + at, length: length as u32 })
            }
            Some(ViewBuffer { unpacked: Some(bytes), .. }) => {
                ByteValue::text(&bytes[at as usize..end as usize], reader.limits)?
            }
            _ => return Err(reader.damaged("a value extends beyond the end of its buffer")),
        };
        cells.push(Some(value));
    }
    Ok(())
}

/// Locates a buffer, and decompresses a compressed one. The total for a batch must not exceed the largest block.
fn open(
    reader: &mut BatchReader<'_, '_>,
    place: BufferPlace,
    number: usize,
    is_text: bool,
    unpacked: &mut u64,
) -> Result<ViewBuffer, ColumnFault> {
    match reader.buffer(place, number)? {
        BufferBytes::Lie { offset, length } => Ok(ViewBuffer { length, lies: Some(offset), unpacked: None }),
        BufferBytes::Packed { block, packed } => {
            let length = block.unpacked;
            // For bytes, only the views themselves are needed.
            if !is_text && number > 1 {
                let (lies, _) = reader.address(block, packed)?;
                return Ok(ViewBuffer { length, lies: Some(lies), unpacked: None });
            }
            *unpacked = unpacked.saturating_add(length);
            if *unpacked > LARGEST_BLOCK {
                let why = "the decompressed texts of a batch exceed the limit: write smaller batches";
                return Err(ColumnFault::Refused(why.to_owned()));
            }
            if is_text {
                let bytes = reader.unpack(block, packed)?;
                return Ok(ViewBuffer { length, lies: None, unpacked: Some(bytes) });
            }
            let (lies, bytes) = reader.address(block, packed)?;
            Ok(ViewBuffer { length, lies: Some(lies), unpacked: Some(bytes) })
        }
    }
}
