//! Structs in Thrift's compact protocol, read field by field. Unknown fields are skipped.
//!
//! The protocol is that of Apache Thrift, `doc/specs/thrift-compact-protocol.md`.

use super::super::gather::damaged;
use crate::source::Malformed;

/// The ids of the field types that the parser uses.
pub(super) const TRUE: u8 = 1;
pub(super) const FALSE: u8 = 2;
const BYTE: u8 = 3;
pub(super) const I32: u8 = 5;
pub(super) const I64: u8 = 6;
const DOUBLE: u8 = 7;
pub(super) const BINARY: u8 = 8;
pub(super) const LIST: u8 = 9;
const SET: u8 = 10;
const MAP: u8 = 11;
pub(super) const STRUCT: u8 = 12;
const UUID: u8 = 13;

const DEEPEST: usize = 64;

pub(super) struct Thrift<'a> {
    bytes: &'a [u8],
    pub(super) at: usize,
    /// The offset of the first byte in the file, for messages.
    offset: u64,
    /// Whether a read went beyond the end of the bytes.
    pub(super) ended: bool,
}

pub(super) struct ThriftField {
    pub(super) id: i16,
    pub(super) kind: u8,
}

enum Open {
    Struct { last: i16 },
    Items { kind: u8, left: usize },
    Pairs { key: u8, value: u8, left: usize, at_key: bool },
}

impl<'a> Thrift<'a> {
    pub(super) fn new(bytes: &'a [u8], offset: u64) -> Self {
        Self { bytes, at: 0, offset, ended: false }
    }

    pub(super) fn wrong(&self, what: &str) -> Malformed {
        damaged(self.offset + self.at as u64, what)
    }

    fn take(&mut self, count: usize) -> Result<&'a [u8], Malformed> {
        let Some(taken) = self.bytes.get(self.at..).and_then(|rest| rest.get(..count)) else {
            self.ended = true;
            return Err(self.wrong("its metadata has a value that extends beyond its end"));
        };
        self.at += count;
        Ok(taken)
    }

    fn byte(&mut self) -> Result<u8, Malformed> {
        self.take(1).map(|byte| byte[0])
    }

    fn varint(&mut self) -> Result<u64, Malformed> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7F) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(self.wrong("its metadata has a number of more than ten bytes"))
    }

    pub(super) fn number(&mut self) -> Result<i64, Malformed> {
        let value = self.varint()?;
        Ok((value >> 1) as i64 ^ -((value & 1) as i64))
    }

    pub(super) fn count(&mut self) -> Result<u64, Malformed> {
        let number = self.number()?;
        u64::try_from(number).map_err(|_| self.wrong("its metadata has a negative count or position"))
    }

    pub(super) fn binary(&mut self) -> Result<&'a [u8], Malformed> {
        let length = usize::try_from(self.varint()?).unwrap_or(usize::MAX);
        self.take(length)
    }

    pub(super) fn text(&mut self) -> Result<String, Malformed> {
        let text = std::str::from_utf8(self.binary()?).map(str::to_owned);
        text.map_err(|_| self.wrong("its metadata has a name that is not UTF-8"))
    }

    /// Reads the next field of a struct; `None` at the end of the struct. `last` is the id of the previous field.
    pub(super) fn field(&mut self, last: &mut i16) -> Result<Option<ThriftField>, Malformed> {
        let head = self.byte()?;
        let kind = head & 0x0F;
        if kind == 0 {
            return Ok(None);
        }
        let id = match i16::from(head >> 4) {
            0 => i16::try_from(self.number()?)
                .map_err(|_| self.wrong("its metadata has a field with an invalid number"))?,
            step => last.checked_add(step).ok_or_else(|| self.wrong("its metadata has too many fields"))?,
        };
        *last = id;
        Ok(Some(ThriftField { id, kind }))
    }

    /// Reads the head of a list: the type and the number of its items. Each item takes at least one byte.
    fn items(&mut self) -> Result<(u8, usize), Malformed> {
        let head = self.byte()?;
        let count = match head >> 4 {
            15 => usize::try_from(self.varint()?).unwrap_or(usize::MAX),
            short => usize::from(short),
        };
        if count > self.bytes.len() - self.at {
            self.ended = true;
            return Err(self.wrong("its metadata states more items than it has bytes"));
        }
        Ok((head & 0x0F, count))
    }

    pub(super) fn structs(&mut self) -> Result<usize, Malformed> {
        let (kind, count) = self.items()?;
        if kind != STRUCT && count > 0 {
            return Err(self.wrong("its metadata has a list with items of a wrong type"));
        }
        Ok(count)
    }

    pub(super) fn numbers(&mut self) -> Result<usize, Malformed> {
        let (kind, count) = self.items()?;
        if count > 0 && kind != I32 && kind != I64 {
            return Err(self.wrong("its metadata has a list with items of a wrong type"));
        }
        (0..count).try_for_each(|_| self.varint().map(drop))?;
        Ok(count)
    }

    pub(super) fn skip(&mut self, kind: u8) -> Result<(), Malformed> {
        let mut open = Vec::new();
        // The type of a field includes the value of a boolean. In a list, each boolean takes a byte.
        self.begin(kind, false, &mut open)?;
        while let Some(innermost) = open.last_mut() {
            let next = match innermost {
                Open::Struct { last } => {
                    let mut known = *last;
                    let field = self.field(&mut known)?;
                    *last = known;
                    field.map(|field| (field.kind, false))
                }
                Open::Items { left: 0, .. } | Open::Pairs { left: 0, .. } => None,
                Open::Items { kind, left } => {
                    *left -= 1;
                    Some((*kind, true))
                }
                Open::Pairs { key, value, left, at_key } => {
                    let kind = if *at_key { *key } else { *value };
                    *left -= usize::from(!*at_key);
                    *at_key = !*at_key;
                    Some((kind, true))
                }
            };
            match next {
                Some((kind, item)) => self.begin(kind, item, &mut open)?,
                None => drop(open.pop()),
            }
        }
        Ok(())
    }

    fn begin(&mut self, kind: u8, item: bool, open: &mut Vec<Open>) -> Result<(), Malformed> {
        if open.len() >= DEEPEST {
            return Err(self.wrong("its metadata nests values too deeply"));
        }
        match kind {
            TRUE | FALSE => drop(self.take(usize::from(item))?),
            BYTE => drop(self.take(1)?),
            4 | I32 | I64 => drop(self.varint()?),
            DOUBLE => drop(self.take(8)?),
            BINARY => drop(self.binary()?),
            UUID => drop(self.take(16)?),
            LIST | SET => {
                let (kind, left) = self.items()?;
                open.push(Open::Items { kind, left });
            }
            MAP => {
                let left = usize::try_from(self.varint()?).unwrap_or(usize::MAX);
                if left > self.bytes.len() - self.at {
                    self.ended = true;
                    return Err(self.wrong("its metadata states more items than it has bytes"));
                }
                let kinds = if left > 0 { self.byte()? } else { 0 };
                open.push(Open::Pairs { key: kinds >> 4, value: kinds & 0x0F, left, at_key: true });
            }
            STRUCT => open.push(Open::Struct { last: 0 }),
            _ => return Err(self.wrong("its metadata has a value of an unknown type")),
        }
        Ok(())
    }
}
