//! What an index keeps of a packed image, so that it is known before a read which of its bytes a region needs: its
//! size, its sampling, and about where its rows of MCUs end. `docs/packed.md` specifies it byte by byte.

use super::super::RegionLayout;
use super::super::markers::Frame;
use super::head::{PackedHead, color_number, color_of, grids, packed_frame};
use crate::decode::Region;
use crate::decode::header::JpegColorSpace;
use base::crc::checksum;
use base::error::DecodeError;
use base::parts::{ByteParts, RawOutline};

/// The number of ends of rows that an outline has. A photograph of 500 × 375 pixels has as many rows of MCUs.
const ENDS: usize = 24;
/// The bytes before the ends.
const FIXED: usize = PackedOutline::BYTES - ENDS;
/// The bytes behind the head are divided into so many sections, which are equally long but for the last. An end is the
/// number of its section.
const SECTIONS: u32 = 256;

/// What is known of a packed image without reading it.
#[derive(Debug, Clone)]
pub struct PackedOutline {
    frame: Frame,
    color_space: JpegColorSpace,
    /// The bytes of the head.
    head: u32,
    /// The section in which each end lies.
    ends: [u8; ENDS],
}

impl PackedOutline {
    /// The bytes that an index keeps of an image.
    pub const BYTES: usize = size_of::<RawOutline>();

    /// The outline of a packed image, as an index keeps it.
    ///
    /// # Errors
    /// [`DecodeError::Corrupt`] for a damaged head.
    pub fn of(packed: &[u8]) -> Result<RawOutline, DecodeError> {
        Ok(Self::of_head(&PackedHead::read(packed)?, packed.len()))
    }

    /// The outline of a packed image of so many bytes, which begins with this head.
    fn of_head(head: &PackedHead, length: usize) -> RawOutline {
        let mut bytes = RawOutline::default();
        bytes[..2].copy_from_slice(&(head.frame.width as u16).to_le_bytes());
        bytes[2..4].copy_from_slice(&(head.frame.height as u16).to_le_bytes());
        bytes[4] = head.tables.len() as u8 | color_number(head.color_space) << 4;
        for (byte, part) in bytes[5..FIXED].iter_mut().zip(&head.frame.components) {
            *byte = part.h as u8 | (part.v as u8) << 4;
        }
        let section = section_bytes(length - head.length);
        let rows = head.rows.chunks(rows_an_end(head.rows.len()));
        for (byte, rows) in bytes[FIXED..].iter_mut().zip(rows) {
            let end = rows.last().map_or(0, |row| row.end);
            *byte = (end / section).min(SECTIONS - 1) as u8;
        }
        bytes
    }

    /// Whether these parts of the bytes of a packed image are what was written: the head and the rows of MCUs among
    /// them have their checksums, and the image has this outline, so that the parts hold all rows that they were chosen
    /// for. The other bytes may be anything, and are not looked at.
    pub fn is_of_parts(outline: &RawOutline, packed: &[u8], parts: ByteParts) -> bool {
        let start = packed.get(..parts.head as usize).unwrap_or(packed);
        let Ok(head) = PackedHead::read_start(start, packed.len()) else { return false };
        let is_intact = |row: usize| {
            let place = head.row(row);
            !parts.holds(&place)
                || packed.get(place).is_some_and(|bytes| checksum(bytes) == head.rows[row].crc)
        };
        Self::of_head(&head, packed.len()) == *outline && (0..head.rows.len()).all(is_intact)
    }

    /// Reads what an index keeps, which is not trusted; `None` where nothing is known, or what is there is none.
    pub fn read(bytes: &RawOutline) -> Option<Self> {
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
        Some(Self { frame, color_space, head, ends })
    }

    /// The columns and rows of the image.
    pub fn size(&self) -> (u32, u32) {
        (self.frame.width, self.frame.height)
    }

    /// The parts that decoding `region` reads of the packed image, which has `length` bytes: its head, and the rows of
    /// MCUs that hold wanted blocks, rounded outwards. `None` where the outline is of another image.
    pub fn parts(&self, region: Region, length: u32) -> Option<ByteParts> {
        let layout = RegionLayout::of_coded(&self.frame, self.color_space, region)?;
        let (grids, count) = grids(&self.frame);
        let rows = layout.rows_of_mcus(&grids, count);
        let behind = length.checked_sub(self.head).filter(|&behind| behind > 0 && !rows.is_empty())?;
        let (section, each) = (section_bytes(behind as usize), rows_an_end(count));
        // A row ends not before its section begins, and before that is over.
        let start = match rows.start / each {
            0 => 0,
            first => u32::from(self.ends[first - 1]) * section,
        };
        let last = u32::from(self.ends[(rows.end - 1) / each]);
        let end = (last + 1).saturating_mul(section).min(behind);
        (start < end).then(|| ByteParts::new(self.head, self.head + start..self.head + end))
    }
}

/// The bytes of a section of an image that has so many bytes behind its head.
fn section_bytes(behind: usize) -> u32 {
    (behind as u32).div_ceil(SECTIONS).max(1)
}

/// The rows of MCUs for which there is one end.
fn rows_an_end(rows: usize) -> usize {
    rows.div_ceil(ENDS).max(1)
}
