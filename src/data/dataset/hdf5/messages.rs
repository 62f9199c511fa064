//! The messages of object headers: shapes, types, fill values, layouts, filters, links and attributes.

use super::{Hdf5Element, Hdf5Fault, Hdf5Filter, Hdf5Kind, ObjectHeader, damaged, refused};
use crate::source::{ByteFields, Malformed};

/// The kinds of messages.
pub(super) mod kinds {
    pub(in super::super) const SPACE: u16 = 0x01;
    pub(in super::super) const LINKS: u16 = 0x02;
    pub(in super::super) const TYPE: u16 = 0x03;
    pub(in super::super) const FIRST_FILL: u16 = 0x04;
    pub(in super::super) const FILL: u16 = 0x05;
    pub(in super::super) const LINK: u16 = 0x06;
    pub(in super::super) const EXTERNAL: u16 = 0x07;
    pub(in super::super) const LAYOUT: u16 = 0x08;
    pub(in super::super) const FILTERS: u16 = 0x0B;
    pub(in super::super) const ATTRIBUTE: u16 = 0x0C;
    pub(in super::super) const CONTINUATION: u16 = 0x10;
    pub(in super::super) const SYMBOLS: u16 = 0x11;
    pub(in super::super) const BTREE_K: u16 = 0x13;
    pub(in super::super) const DRIVER: u16 = 0x14;
    pub(in super::super) const ATTRIBUTES: u16 = 0x15;
    pub(in super::super) const CACHE_IMAGE: u16 = 0x18;
}

/// Maximum number of dimensions.
const MAX_RANK: u64 = 32;
/// Maximum size of a text of fixed size in bytes.
const MAX_TEXT: u32 = 1 << 24;
/// Maximum depth of types in types.
const MAX_NESTED_TYPES: u32 = 8;

/// The sizes in bytes of addresses and lengths in a file.
#[derive(Debug, Clone, Copy)]
pub(super) struct Widths {
    pub(super) offsets: u64,
    pub(super) lengths: u64,
}

pub(super) struct HeaderMessage {
    pub(super) kind: u16,
    /// Whether the message only refers to the message of another object.
    pub(super) is_shared: bool,
    at: u64,
    bytes: Vec<u8>,
}

impl HeaderMessage {
    pub(super) fn fields(&self) -> ByteFields<'_> {
        ByteFields::new(&self.bytes, self.at)
    }

    /// The fields of a message that must not be shared.
    pub(super) fn whole(&self) -> Result<ByteFields<'_>, Hdf5Fault> {
        if self.is_shared {
            return refused(
                "shares a message with other objects, which is not read: rewrite it with h5repack",
            );
        }
        Ok(self.fields())
    }
}

impl ObjectHeader {
    /// Adds the messages of a block, and to `blocks` the places of further blocks. `order` is the size of the creation
    /// order, which messages of version 2 may have; `None` for version 1.
    pub(super) fn add(
        &mut self,
        mut fields: ByteFields<'_>,
        order: Option<u64>,
        widths: Widths,
        blocks: &mut Vec<(u64, u64)>,
    ) -> Result<(), Hdf5Fault> {
        let head = order.map_or(8, |order| 4 + order);
        // A rest that is too short for a message is a gap.
        while fields.rest().len() as u64 >= head {
            let at = fields.position();
            let kind = fields.uint(if order.is_some() { 1 } else { 2 })? as u16;
            let size = fields.uint(2)?;
            let flags = fields.u8()?;
            fields.take(order.unwrap_or(3))?;
            let message_at = fields.position();
            // HDF5 refuses these flags: a shared message that must not be shared, and a message that an earlier writer
            // did not know, if that writer had to fail (0x28) or did not have to mark the message (0x20 without 0x10).
            let is_odd = flags & 6 == 6 || flags & 0x28 == 0x28 || flags & 0x30 == 0x20;
            if is_odd || order.is_none() && !size.is_multiple_of(8) {
                return Err(damaged(at, "a message has impossible flags or an impossible size").into());
            }
            let bytes = fields.take(size)?;
            if kind > kinds::CACHE_IMAGE && flags & 0x80 != 0 {
                return refused(format!("has a message of the unknown kind {kind} that readers must know"));
            }
            if kind == kinds::CONTINUATION {
                let mut fields = ByteFields::new(bytes, message_at);
                blocks.push((fields.defined(widths.offsets)?, fields.uint(widths.lengths)?));
            } else if kind != 0 {
                let (is_shared, bytes) = (flags & 2 != 0, bytes.to_vec());
                self.messages.push(HeaderMessage { kind, is_shared, at: message_at, bytes });
            }
            if self.messages.len() + blocks.len() > 1 << 20 {
                return Err(damaged(at, "an object header has too many messages").into());
            }
        }
        Ok(())
    }
}

/// Returns the address of the object whose message a shared message refers to.
pub(super) fn shared(mut fields: ByteFields<'_>, widths: Widths) -> Result<u64, Hdf5Fault> {
    match (fields.u8()?, fields.u8()?) {
        (2, _) | (3, 2) => Ok(fields.defined(widths.offsets)?),
        _ => refused("shares a message over the whole file, which is not read: rewrite it with h5repack"),
    }
}

/// A shape. Dimensions without a maximum are `None` in `most`.
pub(super) struct Dataspace {
    pub(super) shape: Vec<u64>,
    pub(super) most: Vec<Option<u64>>,
}

pub(super) fn dataspace(
    fields: &mut ByteFields<'_>,
    Widths { lengths, .. }: Widths,
) -> Result<Dataspace, Hdf5Fault> {
    let version = fields.version(&[1, 2])?;
    let (rank, flags) = (u64::from(fields.u8()?), fields.u8()?);
    let kind = fields.u8()?;
    if version == 1 {
        fields.take(4)?;
    } else if kind == 2 {
        return refused("has no values (a null dataspace)");
    }
    if rank > MAX_RANK || version == 2 && u64::from(kind) != rank.min(1) {
        return Err(fields.damaged("a shape has an impossible rank").into());
    }
    let shape = fields.uints(rank, lengths)?;
    let most: Vec<_> = match flags & 1 {
        0 => shape.iter().copied().map(Some).collect(),
        _ => (0..rank).map(|_| fields.optional(lengths)).collect::<Result<_, _>>()?,
    };
    if shape.iter().zip(&most).any(|(&now, most)| most.is_some_and(|most| now > most)) {
        return Err(fields.damaged("a dimension exceeds its maximum").into());
    }
    Ok(Dataspace { shape, most })
}

/// What a type says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum TypeContent {
    Plain(Hdf5Element),
    /// References to values of variable length.
    Rows(Hdf5Element),
    /// Why it is not read, in words that follow "has values of".
    Refused(String),
}

pub(super) struct Hdf5Type {
    pub(super) content: TypeContent,
    /// The size of a value of the dataset in bytes: that of an element times the elements of an array.
    pub(super) size: u64,
    /// The dimensions of an array type.
    pub(super) array: Vec<u64>,
}

pub(super) fn datatype(
    fields: &mut ByteFields<'_>,
    widths: Widths,
    depth: u32,
) -> Result<Hdf5Type, Malformed> {
    let (class, version) = match fields.u8()? {
        start @ 0x10..0x60 => (start & 15, start >> 4),
        _ => return Err(fields.damaged("a type has an unknown version")),
    };
    let bits = fields.uint(3)?;
    let size = fields.u32()?;
    if depth > MAX_NESTED_TYPES || size == 0 {
        return Err(fields.damaged("a type has no size, or too many types in it"));
    }
    let plain = |kind| TypeContent::Plain(Hdf5Element { kind, size, big_endian: bits & 1 != 0 });
    let other = |name: &str| TypeContent::Refused(format!("{name} type"));
    let mut array = Vec::new();
    let content = match class {
        0 | 4 => {
            let (offset, precision) = (fields.uint(2)?, fields.uint(2)?);
            let is_whole = offset == 0 && precision == 8 * u64::from(size);
            let kind = if class == 0 && bits & 8 != 0 { Hdf5Kind::Signed } else { Hdf5Kind::Unsigned };
            if is_whole && [1, 2, 4, 8].contains(&size) {
                plain(kind)
            } else {
                TypeContent::Refused(format!("integers of {precision} bits in {size} bytes"))
            }
        }
        1 => {
            let numbers = [2, 2, 1, 1, 1, 1, 4].map(|size| fields.uint(size));
            let [offset, precision, exponent_at, exponent, mantissa_at, mantissa, bias] = numbers;
            let format = (size, exponent_at?, exponent?, mantissa?, bias?);
            // The sign is the highest bit, and the mantissa has an implied bit.
            let sign = 8 * u64::from(size) - 1;
            let is_ieee =
                offset? == 0 && mantissa_at? == 0 && precision? == sign + 1 && bits >> 8 & 0xFF == sign;
            match format {
                _ if !is_ieee || bits & 0x40 != 0 || bits >> 4 & 3 != 2 => other("a float of an uncommon"),
                (2, 10, 5, 10, 15) | (4, 23, 8, 23, 127) | (8, 52, 11, 52, 1023) => plain(Hdf5Kind::Float),
                (2, 7, 8, 7, 127) => plain(Hdf5Kind::BFloat),
                _ => other("a float of an uncommon"),
            }
        }
        3 if size > MAX_TEXT => TypeContent::Refused(format!("texts of {size} bytes")),
        3 => TypeContent::Plain(Hdf5Element { kind: Hdf5Kind::Text, size, big_endian: false }),
        8 => {
            let base = datatype(fields, widths, depth + 1)?;
            let names: Vec<String> =
                (0..bits & 0xFFFF).map(|_| member(fields, version)).collect::<Result<_, _>>()?;
            let values = fields.take((bits & 0xFFFF) * base.size)?;
            match base.content {
                TypeContent::Plain(element)
                    if size == 1 && names == ["FALSE", "TRUE"] && values == [0, 1] =>
                {
                    TypeContent::Plain(Hdf5Element { kind: Hdf5Kind::Bool, ..element })
                }
                content @ TypeContent::Plain(_) if base.size == u64::from(size) => content,
                _ => other("an enumeration of an uncommon"),
            }
        }
        9 => match datatype(fields, widths, depth + 1)? {
            _ if u64::from(size) != 8 + widths.offsets => {
                return Err(fields.damaged("a variable-length type has an impossible size"));
            }
            _ if bits & 15 == 1 => {
                TypeContent::Rows(Hdf5Element { kind: Hdf5Kind::Text, size: 1, big_endian: false })
            }
            Hdf5Type { content: TypeContent::Plain(element), array, .. } if array.is_empty() => {
                TypeContent::Rows(element)
            }
            _ => other("a nested variable-length"),
        },
        10 if version >= 2 => {
            let rank = u64::from(fields.u8()?);
            fields.take(if version == 2 { 3 } else { 0 })?;
            array = fields.uints(rank, 4)?;
            fields.take(if version == 2 { 4 * rank } else { 0 })?;
            let base = datatype(fields, widths, depth + 1)?;
            let total = array.iter().try_fold(base.size, |all, &edge| all.checked_mul(edge));
            if total != Some(size.into()) || rank > MAX_RANK {
                return Err(fields.damaged("an array type has an impossible size"));
            }
            array.extend(base.array);
            match base.content {
                content @ TypeContent::Plain(_) => content,
                _ => other("an array of an uncommon"),
            }
        }
        2 => other("a time"),
        5 => other("an opaque"),
        6 => other("a compound (structured or complex)"),
        7 => other("a reference"),
        11 => other("a complex"),
        _ => return Err(fields.damaged("a type of an unknown class")),
    };
    Ok(Hdf5Type { content, size: size.into(), array })
}

/// Reads the name of an enumeration's member. Before version 3, names are padded to multiples of 8 bytes.
fn member(fields: &mut ByteFields<'_>, version: u8) -> Result<String, Malformed> {
    let unended = || fields.damaged("a name has no end");
    let length = fields.rest().iter().position(|&byte| byte == 0).ok_or_else(unended)? as u64 + 1;
    fields.text(if version < 3 { length.next_multiple_of(8) } else { length })
}

/// The fill value of a type, `None` if the writer left elements undefined that were not written.
pub(super) fn fill(header: &ObjectHeader, kind: &Hdf5Type) -> Result<Option<Vec<u8>>, Hdf5Fault> {
    let mut value: &[u8] = &[];
    if let Some(message) = header.find(kinds::FILL) {
        let mut fields = message.whole()?;
        let version = fields.version(&[1, 2, 3])?;
        let (written, has_value, is_undefined) = if version == 3 {
            let flags = fields.u8()?;
            (flags >> 2 & 3, flags & 0x20 != 0, flags & 0x10 != 0)
        } else {
            fields.take(1)?;
            let written = fields.u8()?;
            let is_defined = fields.u8()? != 0;
            (written, is_defined || version == 1, !is_defined)
        };
        if is_undefined || written == 1 {
            return Ok(None);
        }
        if has_value {
            let size = fields.uint(4)?;
            value = fields.take(size)?;
        }
    } else if let Some(message) = header.find(kinds::FIRST_FILL) {
        let mut fields = message.whole()?;
        let size = fields.uint(4)?;
        value = fields.take(size)?;
    }
    let element = match kind.content {
        TypeContent::Plain(element) => u64::from(element.size) as usize,
        _ => return Ok(Some(value.to_vec())),
    };
    if value.is_empty() {
        return Ok(Some(vec![0; element]));
    }
    let first = value.get(..element).unwrap_or_default();
    if value.len() as u64 != kind.size || value.chunks(element).any(|each| each != first) {
        return refused("has a fill value of another type than its values");
    }
    Ok(Some(first.to_vec()))
}

pub(super) enum DataLayout {
    /// The values are in the object header, at this offset of the file.
    Compact {
        offset: u64,
        size: u64,
    },
    Contiguous {
        address: Option<u64>,
        size: Option<u64>,
    },
    Chunked(ChunkLayout),
}

pub(super) struct ChunkLayout {
    /// The shape of a chunk, and at the end the size of a value in bytes.
    pub(super) edges: Vec<u64>,
    pub(super) index: ChunkIndex,
    pub(super) address: Option<u64>,
}

#[derive(Clone, Copy)]
pub(super) enum ChunkIndex {
    FirstBTree,
    /// With filters, the size and filter mask of the only chunk.
    Single(Option<(u64, u32)>),
    Implicit,
    FixedArray,
    ExtensibleArray,
    SecondBTree,
}

pub(super) fn layout(fields: &mut ByteFields<'_>, widths: Widths) -> Result<DataLayout, Hdf5Fault> {
    let version = fields.version(&[1, 2, 3, 4, 5])?;
    let mut rank = if version < 3 { fields.u8()? } else { 0 };
    let class = fields.u8()?;
    if version < 3 {
        fields.take(5)?;
        let address = if class == 0 { None } else { fields.optional(widths.offsets)? };
        let edges = fields.uints(rank.into(), 4)?;
        return match class {
            0 => {
                let size = fields.uint(4)?;
                Ok(DataLayout::Compact { offset: fields.position(), size })
            }
            1 => Ok(DataLayout::Contiguous { address, size: None }),
            2 => Ok(DataLayout::Chunked(ChunkLayout { edges, index: ChunkIndex::FirstBTree, address })),
            _ => Err(fields.damaged("a layout of an unknown class").into()),
        };
    }
    match class {
        0 => {
            let size = fields.uint(2)?;
            let offset = fields.position();
            fields.take(size)?;
            return Ok(DataLayout::Compact { offset, size });
        }
        1 => {
            let (address, size) = (fields.optional(widths.offsets)?, fields.uint(widths.lengths)?);
            return Ok(DataLayout::Contiguous { address, size: Some(size) });
        }
        2 => {}
        3 => return refused("is virtual: its values are in other datasets, which is not read"),
        _ => return Err(fields.damaged("a layout of an unknown class").into()),
    }
    if version == 3 {
        rank = fields.u8()?;
        let address = fields.optional(widths.offsets)?;
        let edges = fields.uints(rank.into(), 4)?;
        return Ok(DataLayout::Chunked(ChunkLayout { edges, index: ChunkIndex::FirstBTree, address }));
    }
    let flags = fields.u8()?;
    rank = fields.u8()?;
    let width = u64::from(fields.u8()?);
    if !(1..=8).contains(&width) || flags & !3 != 0 {
        return Err(fields.damaged("a layout has an impossible width or flag").into());
    }
    if flags & 1 != 0 {
        return refused("has chunks at its end without the filters of the others, which is not read");
    }
    let edges = fields.uints(rank.into(), width)?;
    let index = match fields.u8()? {
        1 if flags & 2 != 0 => ChunkIndex::Single(Some((fields.uint(widths.lengths)?, fields.u32()?))),
        1 => ChunkIndex::Single(None),
        2 => ChunkIndex::Implicit,
        kind @ 3..=5 => {
            // The parameters are repeated in the index.
            let (index, parameters) = match kind {
                3 => (ChunkIndex::FixedArray, 1),
                4 => (ChunkIndex::ExtensibleArray, 5),
                _ => (ChunkIndex::SecondBTree, 6),
            };
            fields.take(parameters)?;
            index
        }
        _ => return Err(fields.damaged("chunks have an unknown index").into()),
    };
    Ok(DataLayout::Chunked(ChunkLayout { edges, index, address: fields.optional(widths.offsets)? }))
}

pub(super) fn filters(fields: &mut ByteFields<'_>) -> Result<Vec<Hdf5Filter>, Malformed> {
    let version = fields.version(&[1, 2])?;
    let count = fields.u8()?;
    fields.take(if version == 1 { 6 } else { 0 })?;
    let mut filters = Vec::new();
    for _ in 0..count {
        let id = fields.uint(2)? as u16;
        let length = if version == 1 || id >= 256 { fields.uint(2)? } else { 0 };
        fields.take(2)?;
        let count = fields.uint(2)?;
        let name = fields.text(if version == 1 { length.next_multiple_of(8) } else { length })?;
        let values = (0..count).map(|_| fields.u32()).collect::<Result<_, _>>()?;
        fields.take(if version == 1 { 4 * (count % 2) } else { 0 })?;
        let known = ["", "gzip", "shuffle", "fletcher32", "szip", "nbit", "scale-offset"];
        let name = known.get(usize::from(id)).map_or(name, |&name| name.to_owned());
        filters.push(Hdf5Filter { id, name, values });
    }
    Ok(filters)
}

pub(super) struct Hdf5Link {
    pub(super) name: String,
    pub(super) target: LinkTarget,
}

#[derive(Clone)]
pub(super) enum LinkTarget {
    Object(u64),
    Soft(String),
    /// An external link, or a link of a kind that an application defines.
    Outside,
}

pub(super) fn link(fields: &mut ByteFields<'_>, widths: Widths) -> Result<Hdf5Link, Malformed> {
    fields.version(&[1])?;
    let flags = fields.u8()?;
    let kind = if flags & 8 != 0 { fields.u8()? } else { 0 };
    fields.take(if flags & 4 != 0 { 8 } else { 0 })?;
    fields.take(if flags & 16 != 0 { 1 } else { 0 })?;
    let length = fields.uint(1 << (flags & 3))?;
    let name = String::from_utf8_lossy(fields.take(length)?).into_owned();
    let target = match kind {
        0 => LinkTarget::Object(fields.defined(widths.offsets)?),
        1 => {
            let length = fields.uint(2)?;
            LinkTarget::Soft(fields.text(length)?)
        }
        _ => LinkTarget::Outside,
    };
    Ok(Hdf5Link { name, target })
}

/// The addresses of a heap and of the index of its names, of a message about dense links or attributes. `None` if the
/// links or attributes are messages themselves.
pub(super) fn dense(
    fields: &mut ByteFields<'_>,
    widths: Widths,
    order: u64,
) -> Result<Option<(u64, u64)>, Malformed> {
    fields.version(&[0])?;
    let flags = fields.u8()?;
    fields.take(if flags & 1 != 0 { order } else { 0 })?;
    match (fields.optional(widths.offsets)?, fields.optional(widths.offsets)?) {
        (None, _) => Ok(None),
        (Some(heap), Some(names)) => Ok(Some((heap, names))),
        (Some(_), None) => Err(fields.damaged("a heap has no index")),
    }
}
