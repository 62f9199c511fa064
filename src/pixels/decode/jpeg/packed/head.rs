//! The head of a packed image: image properties, quantisation tables, and the positions of the rows of MCUs.

use std::ops::Range;

use super::super::idct::Quantisation;
use super::super::markers::{Frame, FrameComponent, ScanHeader};
use super::unit::{UNIT, min_row_bytes};
use super::{SIGNATURE, corrupt};
use crate::decode::header::JpegColorSpace;
use base::crc::checksum;
use base::error::DecodeError;

/// The size in bytes of the head's fields before the components.
const FIXED: usize = 36;

/// The size in bytes of a component's entry in the head.
const COMPONENT: usize = 4;
const TABLE: usize = 128;
/// The size in bytes of a row's entry in the head.
const ROW: usize = 8;

/// The bits of [`Choices`] in the head.
const PADDED_WITH_ZEROS: u8 = 1;
const SINGLE_BLOCK_RUNS: u8 = 2;

/// The largest size of all rows together, in bytes. Row ends are stored in 32 bits.
const MAX_ROWS_BYTES: usize = u32::MAX as usize;

#[derive(Debug, Clone)]
pub(super) struct PackedHead {
    pub(super) frame: Frame,
    pub(super) color_space: JpegColorSpace,
    /// The quantisation tables, in coding order; components refer to them by index.
    pub(super) tables: Vec<[u16; 64]>,
    pub(super) original: OriginalFile,
    pub(super) rows: Vec<PackedRow>,
    pub(super) length: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct OriginalFile {
    pub(super) length: u32,
    pub(super) crc: u32,
    /// The number of the file's bytes that are not entropy-coded.
    pub(super) plain: u32,
    pub(super) choices: Choices,
}

/// An encoder's choices that the headers of a file do not state.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Choices {
    /// Whether entropy-coded segments are padded with 0 bits instead of the usual 1 bits.
    pub(super) padded_with_zeros: bool,
    /// Whether progressive scans code the end of each block separately. Usually the ends of consecutive blocks are
    /// joined.
    pub(super) single_block_runs: bool,
}

impl Choices {
    /// All combinations, in the order in which they are tried: the most likely first.
    pub(super) const ALL: [Self; 4] = [
        Self { padded_with_zeros: false, single_block_runs: false },
        Self { padded_with_zeros: true, single_block_runs: false },
        Self { padded_with_zeros: false, single_block_runs: true },
        Self { padded_with_zeros: true, single_block_runs: true },
    ];

    fn flags(self) -> u8 {
        let flag = |is: bool, flag| if is { flag } else { 0 };
        flag(self.padded_with_zeros, PADDED_WITH_ZEROS) | flag(self.single_block_runs, SINGLE_BLOCK_RUNS)
    }

    fn of_flags(flags: u8) -> Self {
        Self {
            padded_with_zeros: flags & PADDED_WITH_ZEROS != 0,
            single_block_runs: flags & SINGLE_BLOCK_RUNS != 0,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PackedRow {
    /// The offset of the row's end, in bytes from the start of the first row.
    pub(super) end: u32,
    pub(super) crc: u32,
}

/// The layout of a component's blocks in rows of MCUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct BlockGrid {
    /// The number of columns of blocks, including the padding blocks of MCUs.
    pub(super) columns: usize,
    /// The number of rows of blocks in a row of MCUs.
    pub(super) rows: usize,
}

impl BlockGrid {
    pub(super) fn units(&self) -> usize {
        self.columns.div_ceil(UNIT)
    }

    /// The number of blocks in a unit of a row of blocks. The last unit can have fewer blocks than the other units.
    pub(super) fn blocks(&self, unit: usize) -> usize {
        (self.columns - unit * UNIT).min(UNIT)
    }
}

pub(super) fn grids(frame: &Frame) -> (Vec<BlockGrid>, usize) {
    let most = |factor: fn(&FrameComponent) -> u32| frame.components.iter().map(factor).max().unwrap_or(1);
    let (columns, rows) =
        (frame.width.div_ceil(8 * most(|part| part.h)), frame.height.div_ceil(8 * most(|part| part.v)));
    let grid =
        |part: &FrameComponent| BlockGrid { columns: (columns * part.h) as usize, rows: part.v as usize };
    (frame.components.iter().map(grid).collect(), rows as usize)
}

pub(super) fn color_number(color_space: JpegColorSpace) -> u8 {
    match color_space {
        JpegColorSpace::Gray => 0,
        JpegColorSpace::YCbCr => 1,
        _ => 2,
    }
}

/// The colour space that a number encodes for this many components. `None` for a colour space that is not packed.
pub(super) fn color_of(number: u8, components: usize) -> Option<JpegColorSpace> {
    match (number, components) {
        (0, 1) => Some(JpegColorSpace::Gray),
        (1, 3) => Some(JpegColorSpace::YCbCr),
        (2, 3) => Some(JpegColorSpace::Rgb),
        _ => None,
    }
}

/// Returns the frame of a file as the head stores it, and the different quantisation tables, to which the components
/// refer by index. In a frame of one component, an MCU is one block, regardless of the sampling factors.
pub(super) fn frame_of(header: &ScanHeader) -> Result<(Frame, Vec<[u16; 64]>), DecodeError> {
    let mut frame = Frame { marker: 0xC0, ..header.frame.clone() };
    let mut tables: Vec<[u16; 64]> = Vec::new();
    let alone = frame.components.len() == 1;
    for part in &mut frame.components {
        let table = header.tables.quantisation(part.table)?;
        part.table = tables.iter().position(|known| known == table).unwrap_or_else(|| {
            tables.push(*table);
            tables.len() - 1
        });
        if alone {
            (part.h, part.v) = (1, 1);
        }
    }
    Ok((frame, tables))
}

/// The frame of a packed image of this size, with components of (h, v, index of the quantisation table). `None` for
/// invalid numbers.
pub(super) fn packed_frame(
    (width, height): (u32, u32),
    components: impl Iterator<Item = [u8; 3]>,
) -> Option<Frame> {
    let component = |(id, [h, v, table]): (usize, [u8; 3])| FrameComponent {
        id: id as u8,
        h: h.into(),
        v: v.into(),
        table: table.into(),
    };
    let components: Vec<_> = components.enumerate().map(component).collect();
    let factors = |part: &FrameComponent| (1..=4).contains(&part.h) && (1..=4).contains(&part.v);
    let is_possible = width > 0 && height > 0 && components.iter().all(factors);
    is_possible.then_some(Frame { marker: 0xC0, precision: 8, width, height, components })
}

impl PackedHead {
    pub(super) fn length_of(components: usize, tables: usize, rows: usize) -> usize {
        FIXED + components * COMPONENT + tables * TABLE + rows * ROW + 4
    }

    pub(super) fn write(&self, out: &mut Vec<u8>) {
        let Self { frame, tables, original, rows, .. } = self;
        let start = out.len();
        let length = Self::length_of(frame.components.len(), tables.len(), rows.len());
        out.extend(SIGNATURE);
        for value in [length as u32, original.length, original.crc, original.plain] {
            out.extend(value.to_le_bytes());
        }
        for value in [frame.width as u16, frame.height as u16, rows.len() as u16, 0] {
            out.extend(value.to_le_bytes());
        }
        let color = color_number(self.color_space);
        out.extend([frame.components.len() as u8, color, tables.len() as u8, original.choices.flags()]);
        for part in &frame.components {
            out.extend([part.h as u8, part.v as u8, part.table as u8, 0]);
        }
        for table in tables {
            table.iter().for_each(|step| out.extend(step.to_le_bytes()));
        }
        for row in rows {
            out.extend(row.end.to_le_bytes());
            out.extend(row.crc.to_le_bytes());
        }
        let crc = checksum(&out[start..]);
        out.extend(crc.to_le_bytes());
    }

    /// Overwrites the head at the start of `packed`. The old head must have the same length.
    pub(super) fn overwrite(&self, packed: &mut [u8]) {
        let mut head = Vec::new();
        self.write(&mut head);
        packed[..head.len()].copy_from_slice(&head);
    }

    pub(super) fn read(packed: &[u8]) -> Result<Self, DecodeError> {
        Self::read_start(packed, packed.len())
    }

    /// Reads the head like [`PackedHead::read`], but only from `packed`, the first bytes of an image of `bytes` bytes.
    pub(super) fn read_start(packed: &[u8], bytes: usize) -> Result<Self, DecodeError> {
        let fixed: &[u8; FIXED] = packed.first_chunk().ok_or_else(|| corrupt("its head is truncated"))?;
        if fixed[..8] != *SIGNATURE {
            return Err(corrupt("it does not begin with the signature of this version"));
        }
        let word = |at: usize| u32::from_le_bytes([fixed[at], fixed[at + 1], fixed[at + 2], fixed[at + 3]]);
        let half = |at: usize| u16::from_le_bytes([fixed[at], fixed[at + 1]]);
        let length = word(8) as usize;
        let [components, color, tables, flags] = [32, 33, 34, 35].map(|at| fixed[at]);
        let (width, height, rows) = (u32::from(half(24)), u32::from(half(26)), usize::from(half(28)));
        if length != Self::length_of(usize::from(components), usize::from(tables), rows) {
            return Err(corrupt("the length in its head does not match the head's contents"));
        }
        let head = packed.get(..length).ok_or_else(|| corrupt("its head is truncated"))?;
        let (head, crc) = head.split_last_chunk().ok_or_else(|| corrupt("its head is truncated"))?;
        if checksum(head) != u32::from_le_bytes(*crc) {
            return Err(corrupt("the checksum of its head is wrong"));
        }
        let (parts, rest) = head[FIXED..].split_at(usize::from(components) * COMPONENT);
        let (steps, ends) = rest.split_at(usize::from(tables) * TABLE);
        let color_space = color_of(color, usize::from(components))
            .ok_or_else(|| corrupt("its head has an unsupported colour space"))?;
        let components = parts.chunks_exact(COMPONENT).map(|part| [part[0], part[1], part[2]]);
        let frame = packed_frame((width, height), components)
            .filter(|frame| frame.components.iter().all(|part| part.table < usize::from(tables)))
            .ok_or_else(|| corrupt("its head is inconsistent"))?;
        let table =
            |steps: &[u8]| std::array::from_fn(|k| u16::from_le_bytes([steps[2 * k], steps[2 * k + 1]]));
        let row = |row: &[u8]| PackedRow {
            end: u32::from_le_bytes([row[0], row[1], row[2], row[3]]),
            crc: u32::from_le_bytes([row[4], row[5], row[6], row[7]]),
        };
        let head = Self {
            frame,
            color_space,
            tables: steps.chunks_exact(TABLE).map(table).collect(),
            original: OriginalFile {
                length: word(12),
                crc: word(16),
                plain: word(20),
                choices: Choices::of_flags(flags),
            },
            rows: ends.chunks_exact(ROW).map(row).collect(),
            length,
        };
        head.check(bytes)?;
        Ok(head)
    }

    /// Checks that the rows match the frame and fit in `bytes` bytes. A row must have at least the bytes of units whose
    /// blocks are all zero, so that a head cannot cause allocations much larger than `bytes`.
    fn check(&self, bytes: usize) -> Result<(), DecodeError> {
        let (grids, rows) = grids(&self.frame);
        let least = |grid: &BlockGrid| {
            let units = (0..grid.units()).map(|unit| min_row_bytes(grid.blocks(unit)));
            grid.rows * units.sum::<usize>()
        };
        let least: usize = grids.iter().map(least).sum();
        if self.has_zero_step() {
            return Err(corrupt("a quantisation step is 0"));
        }
        let mut start = 0;
        for row in &self.rows {
            let length = row.end.checked_sub(start).ok_or_else(|| corrupt("its rows overlap"))?;
            if (length as usize) < least {
                return Err(corrupt("a row is too short for its units"));
            }
            start = row.end;
        }
        let end = self.length as u64 + u64::from(start) + u64::from(self.original.plain);
        if self.rows.len() != rows || end != bytes as u64 {
            return Err(corrupt(&format!("it has {bytes} bytes, but its head says {end}")));
        }
        Ok(())
    }

    /// Whether a component's quantisation table contains the step 0, which is invalid (ITU T.81, B.2.4.1): it leaves
    /// the size of coefficients unbounded.
    pub(super) fn has_zero_step(&self) -> bool {
        self.frame.components.iter().any(|part| self.tables[part.table].contains(&0))
    }

    pub(super) fn row(&self, row: usize) -> Range<usize> {
        let start = row.checked_sub(1).map_or(0, |before| self.rows[before].end);
        self.length + start as usize..self.length + self.rows[row].end as usize
    }

    pub(super) fn plain<'a>(&self, packed: &'a [u8]) -> &'a [u8] {
        &packed[packed.len() - self.original.plain as usize..]
    }

    pub(super) fn quantisation(&self) -> Vec<Quantisation> {
        self.frame.components.iter().map(|part| Quantisation::new(&self.tables[part.table])).collect()
    }
}

/// Returns the number of the file's bytes that are not entropy-coded, from a head that was not checked.
pub(super) fn plain_bytes(packed: &[u8]) -> Option<usize> {
    let bytes = packed.get(20..24)?.first_chunk()?;
    Some(u32::from_le_bytes(*bytes) as usize)
}

/// Returns the end of a row in the integer type of the head; `None` if `bytes` is too large for this type.
pub(super) fn row_end(bytes: usize) -> Option<u32> {
    (bytes < MAX_ROWS_BYTES).then_some(bytes as u32)
}
