//! Byte ranges of a sample, for uses that need only parts of it. Readers fetch these ranges, and decoders must not
//! access any other byte.

use std::ops::Range;

/// A summary of a packed image's header. An index stores the summary, so that only the needed parts of the image must
/// be read. Only decoders interpret the bytes. All bytes are zero for a file that is not packed.
pub type RawHeaderSummary = [u8; 32];

/// Two byte ranges of a sample: its first bytes, and a later range. Offsets count from the sample's first byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WantedBytes {
    /// The number of bytes of the first part, at least 1.
    pub head: u32,
    /// The start of the second part, at or after the end of the first.
    pub start: u32,
    /// The end of the second part, exclusive.
    pub end: u32,
}

impl WantedBytes {
    /// The first `head` bytes, and the bytes of `body`, which come after them.
    ///
    /// # Panics
    /// Panics if the parts are empty or overlap.
    pub fn new(head: u32, body: Range<u32>) -> Self {
        assert!(0 < head && head <= body.start && body.start < body.end, "{body:?} after {head} bytes");
        Self { head, start: body.start, end: body.end }
    }

    /// Only the bytes before `end`. The second part is empty.
    pub fn until(end: u32) -> Self {
        Self { head: end, start: end, end }
    }

    /// The smallest two parts that contain all bytes of `self` and `other`.
    pub fn union(self, other: Self) -> Self {
        Self {
            head: self.head.max(other.head),
            start: self.start.min(other.start).max(self.head.max(other.head)),
            end: self.end.max(other.end),
        }
    }

    /// Whether the parts contain all of `range`.
    pub fn holds(self, range: &Range<usize>) -> bool {
        let [head, start, end] = [self.head, self.start, self.end].map(|at| at as usize);
        range.is_empty() || range.end <= head || range.end <= end && (range.start >= start || start == head)
    }

    /// The number of bytes in both parts.
    pub fn bytes(self) -> u32 {
        self.head + (self.end - self.start)
    }
}

/// The header summary and the length of a packed image. They determine in which byte range each row is: images with the
/// same summary and length have the same ranges.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SummarizedBytes {
    /// The header summary, as indexes and segments store it.
    pub header_summary: RawHeaderSummary,
    /// The number of the image's bytes.
    pub length: u32,
}
