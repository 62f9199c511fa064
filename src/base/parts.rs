//! Which bytes of a sample are wanted, where not all of them are: what readers are asked for, and decoders may look at.

use std::ops::Range;

/// What an index keeps of a packed image, so that parts of it can be read. Only decoders know what is in it. All of it
/// is zero for a file that is not packed.
pub type RawOutline = [u8; 32];

/// Two parts of a sample's bytes, counted from its first byte: those that it begins with, and a range behind them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ByteParts {
    /// The number of bytes of the first part, at least 1.
    pub head: u32,
    /// Where the second part begins, at or behind the end of the first.
    pub start: u32,
    /// Where it ends; the bytes behind it are not wanted.
    pub end: u32,
}

impl ByteParts {
    /// The first `head` bytes and those of `body`, which come after them.
    ///
    /// # Panics
    /// Panics when the parts are empty or overlap.
    pub fn new(head: u32, body: Range<u32>) -> Self {
        assert!(0 < head && head <= body.start && body.start < body.end, "{body:?} behind {head} bytes");
        Self { head, start: body.start, end: body.end }
    }

    /// The bytes before `end`, all of which are the first part.
    pub fn until(end: u32) -> Self {
        Self { head: end, start: end, end }
    }

    /// The smallest parts that hold both.
    pub fn union(self, other: Self) -> Self {
        Self {
            head: self.head.max(other.head),
            start: self.start.min(other.start).max(self.head.max(other.head)),
            end: self.end.max(other.end),
        }
    }

    /// Whether all of `range` is among the bytes.
    pub fn holds(self, range: &Range<usize>) -> bool {
        let [head, start, end] = [self.head, self.start, self.end].map(|at| at as usize);
        range.is_empty() || range.end <= head || range.end <= end && (range.start >= start || start == head)
    }

    /// The number of bytes.
    pub fn bytes(self) -> u32 {
        self.head + (self.end - self.start)
    }
}

/// What parts of a packed image are chosen by: its outline, and the number of its bytes. The same parts of images of
/// the same outline and length hold the same rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OutlinedBytes {
    /// The outline, as indexes and segments keep it.
    pub outline: RawOutline,
    /// The number of the image's bytes.
    pub length: u32,
}
