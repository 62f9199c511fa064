//! Encodes the scans of progressive files again (ITU T.81, annex G). The same choices are made as by libjpeg: which
//! blocks are joined to an end-of-band run, and when a run is written.

use super::super::RegionLayout;
use super::super::markers::{Progression, ScanHeader};
use super::coefficients::{CodedBlock, ImageBlocks};
use super::corrupt;
use super::restore::{ScanCoder, each_block};
use super::scan_bits::ScanBits;
use super::symbols::{SymbolCodes, size_of_value, value_bits};
use base::error::DecodeError;

/// The maximum number of blocks in an end-of-band run.
const LONGEST_RUN: u32 = 0x7FFF;
/// The largest number of pending correction bits of a run. libjpeg ends a run before the next block could exceed it.
const MAX_CORRECTIONS: usize = 1000 - 64 + 1;

pub(super) fn write(
    image: &ImageBlocks,
    header: &ScanHeader,
    layout: &RegionLayout,
    single_block_runs: bool,
    bits: &mut ScanBits,
) -> Result<(), DecodeError> {
    let Progression { first, last, high, low } = header.progression;
    let alone = header.scan.len() == 1;
    if low > 13 || last > 63 || if first == 0 { last != 0 } else { first > last || !alone } {
        return Err(corrupt("a scan has an invalid progression"));
    }
    if first == 0 {
        write_dc(image, header, layout, bits, low, high > 0)
    } else {
        write_ac(image, header, layout, single_block_runs, bits)
    }
}

/// Encodes a scan of DC coefficients: their differences, or one further bit of each coefficient.
fn write_dc(
    image: &ImageBlocks,
    header: &ScanHeader,
    layout: &RegionLayout,
    bits: &mut ScanBits,
    low: u8,
    refines: bool,
) -> Result<(), DecodeError> {
    let codes: Vec<_> = if refines {
        Vec::new()
    } else {
        header
            .scan
            .iter()
            .map(|scan| header.tables.dc(scan).map(SymbolCodes::new))
            .collect::<Result<_, _>>()?
    };
    let mut scan = DcScan { bits, codes, low, before: [0; 4], missing: false };
    each_block(image, header, layout, &mut scan)?;
    if scan.missing { Err(corrupt("its Huffman tables have no code for a symbol")) } else { Ok(()) }
}

struct DcScan<'a, 'b> {
    bits: &'a mut ScanBits<'b>,
    /// The codes of each component of the scan; empty for a scan that adds a further bit.
    codes: Vec<SymbolCodes>,
    low: u8,
    before: [i32; 4],
    missing: bool,
}

impl ScanCoder for DcScan<'_, '_> {
    fn restart(&mut self) {
        self.bits.restart();
        self.before = [0; 4];
    }

    fn block(&mut self, place: usize, block: &CodedBlock) {
        let value = i32::from(block[0]) >> self.low;
        let Some(codes) = self.codes.get(place) else { return self.bits.put(value as u32 & 1, 1) };
        let difference = value - std::mem::replace(&mut self.before[place & 3], value);
        let size = size_of_value(difference);
        let of_value = value_bits(difference, size);
        let (code, length) = codes.with_bits(size as usize, of_value, size, &mut self.missing);
        self.bits.put(code, length);
    }
}

struct AcScan<'a, 'b> {
    bits: &'a mut ScanBits<'b>,
    codes: SymbolCodes,
    progression: Progression,
    longest_run: u32,
    missing: bool,
    /// The length of the pending end-of-band run: the number of blocks that need no further code in this scan.
    run: u32,
    /// The correction bits of the pending run's blocks, which are written after the run.
    corrections: Vec<u8>,
}

fn write_ac(
    image: &ImageBlocks,
    header: &ScanHeader,
    layout: &RegionLayout,
    single_block_runs: bool,
    bits: &mut ScanBits,
) -> Result<(), DecodeError> {
    let codes = SymbolCodes::new(header.tables.ac(&header.scan[0])?);
    let progression = header.progression;
    let longest_run = if single_block_runs { 1 } else { LONGEST_RUN };
    let mut scan =
        AcScan { bits, codes, progression, longest_run, missing: false, run: 0, corrections: Vec::new() };
    each_block(image, header, layout, &mut scan)?;
    scan.end_run();
    if scan.missing { Err(corrupt("its Huffman tables have no code for a symbol")) } else { Ok(()) }
}

impl ScanCoder for AcScan<'_, '_> {
    fn restart(&mut self) {
        self.end_run();
        self.bits.restart();
    }

    fn block(&mut self, _: usize, block: &CodedBlock) {
        if self.progression.high == 0 { self.first(block) } else { self.refine(block) }
    }
}

impl AcScan<'_, '_> {
    fn symbol(&mut self, symbol: u32, more: u32, size: u32) {
        let (code, length) = self.codes.with_bits(symbol as usize, more, size, &mut self.missing);
        self.bits.put(code, length);
    }

    fn end_run(&mut self) {
        if self.run > 0 {
            let size = 31 - self.run.leading_zeros();
            let more = self.run & !(u32::MAX << size);
            self.symbol(size << 4, more, size);
            self.run = 0;
            self.write_corrections(0);
        }
    }

    fn write_corrections(&mut self, from: usize) {
        for bit in self.corrections.drain(from..) {
            self.bits.put(u32::from(bit), 1);
        }
    }

    fn extend_run(&mut self) {
        self.run += 1;
        if self.run == self.longest_run {
            self.end_run();
        }
    }

    /// Encodes a block in a first AC scan, which codes the high bits of coefficients.
    fn first(&mut self, block: &CodedBlock) {
        let Progression { first, last, low, .. } = self.progression;
        let mut zeros = 0;
        for k in first..=last {
            let value = i32::from(block[usize::from(k)]);
            let magnitude = value.abs() >> low;
            if magnitude == 0 {
                zeros += 1;
                continue;
            }
            self.end_run();
            while zeros > 15 {
                self.symbol(0xF0, 0, 0);
                zeros -= 16;
            }
            let size = size_of_value(magnitude);
            let value = if value < 0 { -magnitude } else { magnitude };
            self.symbol(zeros << 4 | size, value_bits(value, size), size);
            zeros = 0;
        }
        if zeros > 0 {
            self.extend_run();
        }
    }

    /// Encodes a block in a refining AC scan: one further bit of the coefficients.
    fn refine(&mut self, block: &CodedBlock) {
        let Progression { first, last, low, .. } = self.progression;
        let magnitude = |k: u8| i32::from(block[usize::from(k)]).abs() >> low;
        // After the last coefficient that becomes nonzero in this scan, the block needs no more codes.
        let end = (first..=last).rev().find(|&k| magnitude(k) == 1).unwrap_or(0);
        let mut zeros = 0;
        // This block's correction bits begin at index `own`, after those of the pending run.
        let mut own = self.corrections.len();
        for k in first..=last {
            let value = magnitude(k);
            if value == 0 {
                zeros += 1;
                continue;
            }
            while zeros > 15 && k <= end {
                self.end_run_before(&mut own);
                self.symbol(0xF0, 0, 0);
                zeros -= 16;
                self.write_corrections(0);
            }
            if value > 1 {
                self.corrections.push((value & 1) as u8);
                continue;
            }
            self.end_run_before(&mut own);
            let sign = u32::from(block[usize::from(k)] >= 0);
            self.symbol(zeros << 4 | 1, sign, 1);
            self.write_corrections(0);
            zeros = 0;
        }
        if zeros > 0 || !self.corrections[own..].is_empty() {
            self.run += 1;
            if self.run == self.longest_run || self.corrections.len() > MAX_CORRECTIONS {
                self.end_run();
            }
        }
    }

    /// Writes the pending run before a block's codes. Keeps the block's own correction bits, which begin at `own`.
    fn end_run_before(&mut self, own: &mut usize) {
        let block = self.corrections.split_off(*own);
        self.end_run();
        self.corrections = block;
        *own = 0;
    }
}
