//! The wire format of protocol buffers, read field by field. Values that are not needed are skipped, never read.
//!
//! The encoding is described in <https://protobuf.dev/programming-guides/encoding/>.

use crate::source::{Malformed, ReadAt, Window};

const LONGEST_VARINT: u64 = 10;
const DEEPEST: usize = 100;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WireValue {
    Varint(u64),
    Fixed64,
    Fixed32(u32),
    /// A field that is stored as a length and the bytes from `start` to `end`: a message, a string, bytes or a packed
    /// list.
    Bytes {
        start: u64,
        end: u64,
    },
}

/// Reader of the fields of a message, from the offset `at` to the offset `end`.
#[derive(Debug, Clone, Copy)]
pub(super) struct WireMessage {
    at: u64,
    end: u64,
}

impl WireMessage {
    pub(super) fn new(start: u64, end: u64) -> Self {
        Self { at: start, end }
    }

    pub(super) fn is_done(self) -> bool {
        self.at >= self.end
    }

    /// The field number and the value of the next field; `None` at the end. Groups are obsolete and are skipped.
    ///
    /// # Errors
    /// [`Malformed`] if the bytes are not a message.
    pub(super) fn next<S: ReadAt + ?Sized>(
        &mut self,
        bytes: &mut Window<'_, S>,
    ) -> Result<Option<(u64, WireValue)>, Malformed> {
        let mut groups: Vec<u64> = Vec::new();
        loop {
            if self.is_done() {
                return if groups.is_empty() { Ok(None) } else { Err(self.wrong("a group is not closed")) };
            }
            let tag = self.varint(bytes)?;
            let number = tag >> 3;
            if number == 0 || tag > u64::from(u32::MAX) {
                return Err(self.wrong("a field has an invalid number"));
            }
            let value = match tag & 7 {
                0 => WireValue::Varint(self.varint(bytes)?),
                1 => {
                    self.take(8)?;
                    WireValue::Fixed64
                }
                2 => {
                    let length = self.varint(bytes)?;
                    let start = self.take(length)?;
                    WireValue::Bytes { start, end: self.at }
                }
                3 if groups.len() < DEEPEST => {
                    groups.push(number);
                    continue;
                }
                4 if groups.pop() == Some(number) => continue,
                5 => WireValue::Fixed32(self.fixed32(bytes)?),
                _ => return Err(self.wrong("a field has an invalid type")),
            };
            if groups.is_empty() {
                return Ok(Some((number, value)));
            }
        }
    }

    pub(super) fn varint<S: ReadAt + ?Sized>(&mut self, bytes: &mut Window<'_, S>) -> Result<u64, Malformed> {
        let there = bytes.read(self.at, LONGEST_VARINT.min(self.end.saturating_sub(self.at)))?;
        let mut value = 0;
        for (place, &byte) in (0u32..).zip(&there) {
            let bits = u64::from(byte & 0x7f);
            if place == 9 && bits > 1 {
                break;
            }
            value |= bits << (7 * place);
            if byte & 0x80 == 0 {
                self.at += u64::from(place) + 1;
                return Ok(value);
            }
        }
        Err(self.wrong("a varint has no end"))
    }

    pub(super) fn fixed32<S: ReadAt + ?Sized>(
        &mut self,
        bytes: &mut Window<'_, S>,
    ) -> Result<u32, Malformed> {
        let at = self.take(4)?;
        let four = bytes.read(at, 4)?;
        Ok(four.first_chunk().map_or(0, |four| u32::from_le_bytes(*four)))
    }

    fn take(&mut self, length: u64) -> Result<u64, Malformed> {
        let start = self.at;
        match start.checked_add(length) {
            Some(end) if end <= self.end => {
                self.at = end;
                Ok(start)
            }
            _ => Err(self.wrong("a field extends beyond its message")),
        }
    }

    fn wrong(&self, what: &str) -> Malformed {
        Malformed { offset: self.at, message: what.to_owned() }
    }
}
