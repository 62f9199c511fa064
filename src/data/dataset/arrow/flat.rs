//! Tables of FlatBuffers, read field by field. Every access stays within the bytes.
//!
//! Like Arrow's own verification, the functions return `None` for what no writer makes: unaligned objects, fields
//! outside their table, and strings without the final zero byte. A damaged column name is thus an error, and not
//! another column.
//!
//! The layout is that of `docs/source/internals.md` of Google's FlatBuffers. A table begins with the distance to its
//! vtable. The vtable has the offset of each field in the table.

use std::ops::Range;

#[derive(Clone, Copy)]
pub(super) struct FlatTable<'a> {
    bytes: &'a [u8],
    at: usize,
    /// The table's own bytes, from `at`.
    table: &'a [u8],
    /// The offset of each field in the table, as u16s.
    fields: &'a [u8],
}

#[derive(Clone, Copy)]
pub(super) struct FlatTables<'a> {
    bytes: &'a [u8],
    at: usize,
    pub(super) count: usize,
}

fn bytes_at<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..)?.first_chunk().copied()
}

/// Follows a reference: reads the relative offset at a position, and returns the position to which it refers.
fn follow(bytes: &[u8], at: usize) -> Option<usize> {
    let offset = u32::from_le_bytes(bytes_at(bytes, at)?);
    at.checked_add(usize::try_from(offset).ok()?).filter(|at| at.is_multiple_of(4))
}

impl<'a> FlatTable<'a> {
    pub(super) fn root(bytes: &'a [u8]) -> Option<Self> {
        Self::at(bytes, follow(bytes, 0)?)
    }

    fn at(bytes: &'a [u8], at: usize) -> Option<Self> {
        let back = i32::from_le_bytes(bytes_at(bytes, at)?);
        let vtable = usize::try_from(i64::try_from(at).ok()? - i64::from(back)).ok()?;
        let [size, table_size] = [0, 2].map(|more| bytes_at(bytes, vtable + more).map(u16::from_le_bytes));
        let fields = bytes.get(vtable..)?.get(..usize::from(size?))?.get(4..)?;
        let is_sound = vtable.is_multiple_of(2) && fields.len().is_multiple_of(2);
        let table = bytes.get(at..)?.get(..usize::from(table_size?))?;
        is_sound.then_some(Self { bytes, at, table, fields })
    }

    /// The position of a field; `None` if the field has its default.
    fn place(&self, field: usize) -> Option<usize> {
        let offset = u16::from_le_bytes(bytes_at(self.fields, 2 * field)?);
        if offset == 0 { None } else { self.at.checked_add(usize::from(offset)) }
    }

    /// The bytes of a number; zeros if the field has its default; `None` if the number is outside the buffer.
    fn number<const N: usize>(&self, field: usize) -> Option<[u8; N]> {
        let Some(place) = self.place(field) else { return Some([0; N]) };
        bytes_at(self.table, place - self.at).filter(|_| place.is_multiple_of(N))
    }

    pub(super) fn u8(&self, field: usize) -> Option<u8> {
        self.number(field).map(u8::from_le_bytes)
    }

    pub(super) fn i16(&self, field: usize) -> Option<i16> {
        self.number(field).map(i16::from_le_bytes)
    }

    pub(super) fn i32(&self, field: usize) -> Option<i32> {
        self.number(field).map(i32::from_le_bytes)
    }

    pub(super) fn i64(&self, field: usize) -> Option<i64> {
        self.number(field).map(i64::from_le_bytes)
    }

    /// Whether a field is present. Use this for a field that refers to another object, such as a table.
    pub(super) fn has(&self, field: usize) -> bool {
        self.place(field).is_some()
    }

    pub(super) fn table(&self, field: usize) -> Option<Self> {
        Self::at(self.bytes, follow(self.bytes, self.place(field)?)?)
    }

    /// The bytes of a vector whose items have `size` bytes each; empty if the field does not exist.
    pub(super) fn vector(&self, field: usize, size: usize) -> Option<&'a [u8]> {
        self.bytes.get(self.items(field, size)?)
    }

    /// The range of a vector's items in the buffer; 0..0 if the field does not exist.
    fn items(&self, field: usize, size: usize) -> Option<Range<usize>> {
        let Some(place) = self.place(field) else { return Some(0..0) };
        let at = follow(self.bytes, place)?;
        let count = usize::try_from(u32::from_le_bytes(bytes_at(self.bytes, at)?)).ok()?;
        let start = at.checked_add(4)?;
        Some(start..start.checked_add(count.checked_mul(size)?)?)
    }

    /// A string; `None` if the bytes are not valid UTF-8, or lack the final zero byte.
    pub(super) fn text(&self, field: usize) -> Option<String> {
        let items = self.items(field, 1)?;
        let is_ended = !self.has(field) || self.bytes.get(items.end) == Some(&0);
        String::from_utf8(self.bytes.get(items)?.to_vec()).ok().filter(|_| is_ended)
    }

    pub(super) fn tables(&self, field: usize) -> Option<FlatTables<'a>> {
        let items = self.items(field, 4)?;
        let count = self.bytes.get(items.clone())?.len() / 4;
        Some(FlatTables { bytes: self.bytes, at: items.start, count })
    }
}

impl<'a> FlatTables<'a> {
    pub(super) fn get(&self, number: usize) -> Option<FlatTable<'a>> {
        FlatTable::at(self.bytes, follow(self.bytes, self.at + 4 * number)?)
    }
}

/// The i64 at offset `at` in each struct of a vector. Each struct has `size` bytes.
pub(super) fn longs(structs: &[u8], size: usize, at: usize) -> impl Iterator<Item = i64> + '_ {
    structs.chunks_exact(size).filter_map(move |item| bytes_at(item, at).map(i64::from_le_bytes))
}
