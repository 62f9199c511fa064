//! All quantised coefficients of an image, read from a JPEG's scans or from packed units.

use super::super::bits::{BitReader, Entropy};
use super::super::blocks::CodingOrder;
use super::super::idct::{IdctBlock, Quantisation};
use super::super::markers::{Frame, ScanHeader};
use super::super::scan::{Component, decode_block};
use super::super::{Jpeg, RegionLayout, conceal, unstuff};
use super::corrupt_row;
use super::head::{BlockGrid, PackedHead, grids};
use super::region::{McuRow, UnitDecoder};
use super::unit::{NO_BYTES, UNIT, UnitBlocks};
use super::values::{PortableExpander, ReadCoded};
use base::error::DecodeError;
use base::simd::Level;

/// The coefficients of a block in coding order.
pub(super) type CodedBlock = [i16; 64];

/// The largest number of blocks of an image that is packed. It equals 44 megapixels with chroma at half the width and
/// height. Packing and restoring hold all blocks in memory.
pub(super) const MAX_BLOCKS: usize = 1 << 20;

/// If a component has memory for more blocks than this and the next image needs fewer, the memory is freed first.
const MAX_KEPT: usize = (16 << 20) / size_of::<CodedBlock>();

#[derive(Debug, Default)]
pub(super) struct ImageBlocks {
    pub(super) components: Vec<ComponentBlocks>,
}

/// The coefficients of a component, including the padding blocks of MCUs.
#[derive(Debug)]
pub(super) struct ComponentBlocks {
    pub(super) grid: BlockGrid,
    pub(super) blocks: Vec<CodedBlock>,
}

impl ComponentBlocks {
    pub(super) fn row(&self, y: usize) -> &[CodedBlock] {
        &self.blocks[y * self.grid.columns..][..self.grid.columns]
    }

    pub(super) fn row_mut(&mut self, y: usize) -> &mut [CodedBlock] {
        &mut self.blocks[y * self.grid.columns..][..self.grid.columns]
    }
}

impl ImageBlocks {
    /// Allocates the blocks of a frame, with arbitrary contents. Returns the number of rows of MCUs.
    pub(super) fn shape(&mut self, frame: &Frame) -> usize {
        let (grids, rows) = grids(frame);
        let mut old = std::mem::take(&mut self.components).into_iter();
        for grid in grids {
            let mut blocks = old.next().map_or_else(Vec::new, |component| component.blocks);
            let count = grid.columns * grid.rows * rows;
            if blocks.capacity() > MAX_KEPT && count <= MAX_KEPT {
                blocks = Vec::new();
            }
            blocks.resize(count, [0; 64]);
            self.components.push(ComponentBlocks { grid, blocks });
        }
        rows
    }

    /// Whether the inverse DCT can transform all blocks with `tables`, the quantisation tables of `frame`.
    pub(super) fn are_allowed(&self, frame: &Frame, tables: &[[u16; 64]], level: Level) -> bool {
        match level {
            // SAFETY: the level guarantees that the processor has these instructions.
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 | Level::Avx512 => unsafe { self.are_allowed_avx2(frame, tables) },
            _ => self.are_allowed_with(frame, tables),
        }
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2")]
    fn are_allowed_avx2(&self, frame: &Frame, tables: &[[u16; 64]]) -> bool {
        self.are_allowed_with(frame, tables)
    }

    #[inline(always)]
    fn are_allowed_with(&self, frame: &Frame, tables: &[[u16; 64]]) -> bool {
        // A loop, because closures passed to iterators are not compiled with the target features of this function.
        for (component, part) in self.components.iter().zip(&frame.components) {
            let quantisation = Quantisation::new(&tables[part.table]);
            let table = &tables[part.table].map(|step| step.min(i16::MAX as u16) as i16);
            for block in &component.blocks {
                if !quantisation.allows(block, table) {
                    return false;
                }
            }
        }
        true
    }
}

/// The number of blocks of a frame, including the padding blocks of MCUs.
pub(super) fn block_count(frame: &Frame) -> usize {
    let (grids, rows) = grids(frame);
    grids.iter().map(|grid| grid.columns * grid.rows * rows).sum()
}

/// Reads all coefficients of the file with this `header`. Some faults go undetected; restoring the file reveals them.
pub(super) fn read(
    jpeg: &mut Jpeg,
    bytes: &[u8],
    header: &mut ScanHeader,
    layout: &RegionLayout,
    level: Level,
    out: &mut ImageBlocks,
) -> Result<(), DecodeError> {
    let mut frame = header.frame.clone();
    if let [alone] = &mut frame.components[..] {
        (alone.h, alone.v) = (1, 1);
    }
    out.shape(&frame);
    let sequential = header.frame.marker != super::super::PROGRESSIVE;
    if sequential && header.scan.len() == header.frame.components.len() {
        return read_scan(jpeg, bytes, header, layout, level, out);
    }
    let several = conceal::coefficients(bytes, layout)?;
    for (component, read) in out.components.iter_mut().zip(several) {
        if component.blocks.len() != read.len() {
            return Err(DecodeError::Corrupt("a component has another size than its frame".into()));
        }
        component.blocks.copy_from_slice(&read);
    }
    Ok(())
}

fn read_scan(
    jpeg: &mut Jpeg,
    bytes: &[u8],
    header: &mut ScanHeader,
    layout: &RegionLayout,
    level: Level,
    out: &mut ImageBlocks,
) -> Result<(), DecodeError> {
    header.tables.add_standard();
    let mcus = layout.mcus(&header.scan);
    unstuff(&mut jpeg.entropy, bytes, header.data, header.tables.restart_interval, mcus, level)?;
    let mut components = Vec::with_capacity(3);
    for scan in &header.scan {
        let (dc, ac) = (header.tables.dc(scan)?, header.tables.ac(scan)?);
        let grid = &out.components[scan.component].grid;
        components.push(Component {
            h: (grid.columns as u32) / mcus.0,
            v: grid.rows as u32,
            plane: scan.component,
            quantisation: Quantisation::new(
                header.tables.quantisation(layout.parts[scan.component].quantisation)?,
            ),
            dc: jpeg.cache.dc(dc)?,
            ac: jpeg.cache.ac(ac),
            pairs: jpeg.cache.pairs(ac),
            columns: 0..0,
            rows: 0..0,
        });
    }
    let scan = WholeScan {
        entropy: &jpeg.entropy,
        components: &components,
        mcus,
        interval: header.tables.restart_interval,
    };
    let done = match level {
        // SAFETY: the level guarantees that the processor has these instructions.
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 | Level::Avx512 => unsafe { read_avx2(&scan, out) },
        _ => read_with(&scan, out),
    };
    done.ok_or_else(|| DecodeError::Corrupt("its entropy-coded data is damaged".into()))
}

struct WholeScan<'a> {
    entropy: &'a Entropy,
    components: &'a [Component],
    mcus: (u32, u32),
    interval: u32,
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
fn read_avx2(scan: &WholeScan, out: &mut ImageBlocks) -> Option<()> {
    read_with(scan, out)
}

#[inline(always)]
fn read_with(scan: &WholeScan, out: &mut ImageBlocks) -> Option<()> {
    let mut block = IdctBlock::new();
    let (mut segment, mut left) = (0, scan.interval);
    let mut bits: BitReader = scan.entropy.reader(0)?;
    let mut dc = [0; 3];
    for row in 0..scan.mcus.1 {
        for column in 0..scan.mcus.0 {
            if scan.interval > 0 {
                if left == 0 {
                    segment += 1;
                    (bits, dc, left) = (scan.entropy.reader(segment)?, [0; 3], scan.interval);
                }
                left -= 1;
            }
            for (component, dc) in scan.components.iter().zip(&mut dc) {
                for y in row * component.v..(row + 1) * component.v {
                    let blocks = out.components[component.plane].row_mut(y as usize);
                    for x in column * component.h..(column + 1) * component.h {
                        decode_block::<CodingOrder>(&mut bits, component, dc, &mut block).ok()?;
                        let coded: &mut CodedBlock = block.0.first_chunk_mut()?;
                        *blocks.get_mut(x as usize)? = *coded;
                        *coded = [0; 64];
                    }
                }
            }
            if bits.overrun() {
                return None;
            }
        }
    }
    Some(())
}

pub(super) fn read_packed(
    packed: &[u8],
    head: &PackedHead,
    level: Level,
    out: &mut ImageBlocks,
) -> Result<(), DecodeError> {
    match level {
        // SAFETY: the level guarantees that the processor has these instructions.
        #[cfg(target_arch = "x86_64")]
        Level::Avx512 => unsafe { read_packed_avx512(packed, head, out) },
        // SAFETY: as above.
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 => unsafe { read_packed_avx2(packed, head, out) },
        _ => read_packed_with::<PortableExpander>(packed, head, out),
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt,avx512f,avx512bw,avx512vl,avx512vbmi,avx512vbmi2")]
fn read_packed_avx512(packed: &[u8], head: &PackedHead, out: &mut ImageBlocks) -> Result<(), DecodeError> {
    read_packed_with::<super::avx512::Avx512Expander>(packed, head, out)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
fn read_packed_avx2(packed: &[u8], head: &PackedHead, out: &mut ImageBlocks) -> Result<(), DecodeError> {
    read_packed_with::<super::avx2::Avx2Expander>(packed, head, out)
}

#[inline(always)]
fn read_packed_with<R: ReadCoded>(
    packed: &[u8],
    head: &PackedHead,
    out: &mut ImageBlocks,
) -> Result<(), DecodeError> {
    let rows = out.shape(&head.frame);
    let grids = grids(&head.frame).0;
    let (mut unit_blocks, mut scratch) = (UnitBlocks::default(), NO_BYTES);
    for number in 0..rows {
        let row = McuRow::open(packed, head, number, &grids)?;
        let mut units = row.units();
        for (component, grid) in out.components.iter_mut().zip(&grids) {
            for y in number * grid.rows..(number + 1) * grid.rows {
                for blocks in component.row_mut(y).chunks_mut(UNIT) {
                    let bytes = units.next().ok_or_else(|| corrupt_row(number))??;
                    let window = bytes.window(&mut scratch);
                    unit_blocks.read(window, bytes.length, blocks.len(), blocks.len())?;
                    let mut unit = UnitDecoder::new(bytes, window, &unit_blocks, 0);
                    for (index, block) in blocks.iter_mut().enumerate() {
                        R::read(&mut unit, index, block);
                    }
                    if unit.is_damaged {
                        return Err(corrupt_row(number));
                    }
                }
            }
        }
    }
    Ok(())
}
