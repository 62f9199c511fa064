//! The header summary that an index stores for a packed image: the image's size and sampling, and the approximate ends
//! of its rows of MCUs. With it, a reader finds the bytes that a region needs before it reads any byte of the image.
//! `docs/packed.md` specifies the format byte by byte.

use super::super::RegionLayout;
use super::super::markers::Frame;
use super::head::{PackedHead, color_number, color_of, grids, packed_frame};
use crate::decode::header::JpegColorSpace;
use crate::decode::{Region, Turn, orientation};
use base::crc::checksum;
use base::error::DecodeError;
use base::parts::{RawHeaderSummary, WantedBytes};

/// The number of row ends in a header summary. A photograph of 500 × 375 pixels in 4:2:0 has 24 rows of MCUs.
const ENDS: usize = 24;
const FIXED: usize = PackedHeaderSummary::BYTES - ENDS;
/// The bits of byte 4 that hold the orientation, and the bit of byte 5 that says that they do.
const TURN_BITS: u8 = 0b1100_1000;
const KNOWS_TURN: u8 = 0b1000;
/// The bytes after the head are divided into this many sections of equal length, except the last. A row end is stored
/// as the index of its section.
const SECTIONS: u32 = 256;

/// The size, the sampling and the approximate row ends of a packed image, read from an index instead of from the image.
#[derive(Debug, Clone)]
pub struct PackedHeaderSummary {
    frame: Frame,
    turn: Option<Turn>,
    color_space: JpegColorSpace,
    head: u32,
    /// For each stored row end, the index of the section that contains it.
    ends: [u8; ENDS],
}

impl PackedHeaderSummary {
    /// The number of bytes of a header summary in an index.
    pub const BYTES: usize = size_of::<RawHeaderSummary>();

    /// The header summary of a packed image, as an index stores it.
    ///
    /// # Errors
    /// [`DecodeError::Corrupt`] for a damaged head.
    pub fn of(packed: &[u8]) -> Result<RawHeaderSummary, DecodeError> {
        let mut bytes = Self::of_head(&PackedHead::read(packed)?, packed.len());
        let from_0 = Turn::of_exif(orientation(packed)).exif() - 1;
        bytes[4] |= (from_0 & 1) << 3 | (from_0 & 6) << 5;
        bytes[5] |= KNOWS_TURN;
        Ok(bytes)
    }

    fn of_head(head: &PackedHead, length: usize) -> RawHeaderSummary {
        let mut bytes = RawHeaderSummary::default();
        bytes[..2].copy_from_slice(&(head.frame.width as u16).to_le_bytes());
        bytes[2..4].copy_from_slice(&(head.frame.height as u16).to_le_bytes());
        bytes[4] = head.tables.len() as u8 | color_number(head.color_space) << 4;
        for (byte, part) in bytes[5..FIXED].iter_mut().zip(&head.frame.components) {
            *byte = part.h as u8 | (part.v as u8) << 4;
        }
        let section = section_bytes(length - head.length);
        let rows = head.rows.chunks(rows_per_end(head.rows.len()));
        for (byte, rows) in bytes[FIXED..].iter_mut().zip(rows) {
            let end = rows.last().map_or(0, |row| row.end);
            *byte = (end / section).min(SECTIONS - 1) as u8;
        }
        bytes
    }

    /// Whether the `parts` of a packed image are intact: the checksums of the head and of all rows of MCUs inside the
    /// parts match. The image must also have this header summary, because the parts were chosen by it. Bytes outside
    /// the parts can have any value and are not used.
    pub fn parts_are_intact(header_summary: &RawHeaderSummary, packed: &[u8], parts: WantedBytes) -> bool {
        let start = packed.get(..parts.head as usize).unwrap_or(packed);
        let Ok(head) = PackedHead::read_start(start, packed.len()) else { return false };
        let is_intact = |row: usize| {
            let place = head.row(row);
            !parts.holds(&place)
                || packed.get(place).is_some_and(|bytes| checksum(bytes) == head.rows[row].crc)
        };
        Self::of_head(&head, packed.len()) == without_turn(*header_summary)
            && (0..head.rows.len()).all(is_intact)
    }

    /// Reads and validates a header summary from an index. Returns `None` if the summary is empty or invalid.
    pub fn read(bytes: &RawHeaderSummary) -> Option<Self> {
        let from_0 = bytes[4] >> 3 & 1 | bytes[4] >> 5 & 6;
        let turn = (bytes[5] & KNOWS_TURN != 0).then(|| Turn::of_exif(Some(from_0 + 1)));
        let bytes = without_turn(*bytes);
        let half = |at: usize| u32::from(u16::from_le_bytes([bytes[at], bytes[at + 1]]));
        let (width, height, tables) = (half(0), half(2), usize::from(bytes[4] & 15));
        let factors = &bytes[5..FIXED];
        let components = factors.iter().take_while(|&&byte| byte != 0).count();
        let color_space = color_of(bytes[4] >> 4, components)?;
        let component = |&byte: &u8| [byte & 15, byte >> 4, 0];
        let frame = packed_frame((width, height), factors[..components].iter().map(component))?;
        let (grids, rows) = grids(&frame);
        let head = PackedHead::length_of(grids.len(), tables, rows) as u32;
        let mut ends = [0; ENDS];
        ends.copy_from_slice(&bytes[FIXED..]);
        Some(Self { frame, turn, color_space, head, ends })
    }

    /// How the image is turned to be upright. `None` if the summary does not say it, because an older version of
    /// Foreload made it.
    pub fn turn(&self) -> Option<Turn> {
        self.turn
    }

    /// The width and height of the image as it is stored.
    pub fn size(&self) -> (u32, u32) {
        (self.frame.width, self.frame.height)
    }

    /// The parts of a packed image of `length` bytes that decoding `region` reads: the head, and the rows of MCUs with
    /// wanted blocks, rounded outwards to whole sections. Returns `None` if the header summary is of another image.
    pub fn parts(&self, region: Region, length: u32) -> Option<WantedBytes> {
        let layout = RegionLayout::of_coded(&self.frame, self.color_space, region)?;
        let (grids, count) = grids(&self.frame);
        let rows = layout.rows_of_mcus(&grids, count);
        let body_bytes = length.checked_sub(self.head).filter(|&bytes| bytes > 0 && !rows.is_empty())?;
        let (section, each) = (section_bytes(body_bytes as usize), rows_per_end(count));
        // The end of a row is inside its section: not before the section's start, and before its end.
        let start = match rows.start / each {
            0 => 0,
            first => u32::from(self.ends[first - 1]) * section,
        };
        let last = u32::from(self.ends[(rows.end - 1) / each]);
        let end = (last + 1).saturating_mul(section).min(body_bytes);
        (start < end).then(|| WantedBytes::new(self.head, self.head + start..self.head + end))
    }
}

/// Removes the orientation, which is in bits that are otherwise 0.
fn without_turn(mut bytes: RawHeaderSummary) -> RawHeaderSummary {
    if bytes[5] & KNOWS_TURN != 0 {
        bytes[4] &= !TURN_BITS;
        bytes[5] &= !KNOWS_TURN;
    }
    bytes
}

fn section_bytes(body_bytes: usize) -> u32 {
    (body_bytes as u32).div_ceil(SECTIONS).max(1)
}

/// The number of rows of MCUs that share one stored end.
fn rows_per_end(rows: usize) -> usize {
    rows.div_ceil(ENDS).max(1)
}
