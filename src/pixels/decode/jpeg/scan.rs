//! Huffman decoding of a sequential scan: transforms the blocks of the wanted region and skips the other blocks.

use std::ops::Range;
use std::sync::Arc;

use super::bits::{BitReader, Entropy, value};
use super::blocks::{BlockPlace, BlockSink, CoefficientOrder, SingleBlockSink};
use super::huffman::{
    AC_BITS, AcTable, DC_BITS, DcTable, HuffmanCode, LookupEntry, MAX_AC_SIZE, MAX_DC_SIZE,
};
use super::idct::{IdctBlock, OutOfRange, PortableIdct, Quantisation};
use super::pairs::PairTable;
use crate::decode::Plane;
use base::simd::Level;

pub(super) struct Component {
    /// The columns and rows of this component's blocks in an MCU.
    pub(super) h: u32,
    pub(super) v: u32,
    pub(super) plane: usize,
    pub(super) quantisation: Quantisation,
    pub(super) dc: Arc<DcTable>,
    pub(super) ac: Arc<AcTable>,
    pub(super) pairs: Arc<PairTable>,
    pub(super) columns: Range<u32>,
    pub(super) rows: Range<u32>,
}

pub(super) struct Scan<'a> {
    pub(super) entropy: &'a Entropy,
    pub(super) components: &'a [Component],
    pub(super) columns: u32,
    pub(super) rows: u32,
    pub(super) restart_interval: u32,
    /// The columns and rows of the MCUs that hold wanted blocks.
    pub(super) wanted: (Range<u32>, Range<u32>),
    pub(super) start: ScanStart,
}

/// The start of a scan's entropy-coded bytes; by default the first MCU.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct ScanStart {
    /// The index of the first MCU, which is at or before all wanted MCUs.
    pub(super) mcu: u64,
    /// The number of bits of the first byte that precede this MCU.
    pub(super) skip: u32,
    /// The DC coefficient of each component's last block before this MCU.
    pub(super) dc: [i32; 4],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ScanFault {
    /// Bits with which no Huffman code begins.
    BadCode,
    /// A run of zeros exceeds the block.
    BlockOverrun,
    /// A coefficient is larger than 8-bit samples allow.
    OutOfRange,
    /// The data ends too early, or a restart marker comes too early.
    OutOfData,
    /// A restart marker comes too late.
    LeftOver,
}

impl From<OutOfRange> for ScanFault {
    fn from(_: OutOfRange) -> Self {
        Self::OutOfRange
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ScanFailure {
    pub(super) fault: ScanFault,
    pub(super) mcu: u64,
    /// The number of unstuffed bytes before the fault.
    pub(super) byte: usize,
}

/// The start of a row of MCUs, found while decoding a scan without restart markers.
#[derive(Debug, Clone, Copy)]
pub(super) struct RowStart {
    /// The number of unstuffed bits before the row, counted from the first unstuffed byte of the scan.
    pub(super) bit: usize,
    /// The DC coefficient of each component's last block before the row.
    pub(super) dc: [i32; 4],
}

/// Decodes the wanted blocks into their components' planes, which begin with the first wanted block. Stores in `rows`
/// the start of each row of MCUs that decoding reaches. These are all rows from the start of the scan on, unless a
/// restart marker allows a jump.
pub(super) fn decode(
    scan: &Scan,
    planes: &mut [Plane],
    rows: &mut Vec<RowStart>,
    level: Level,
) -> Result<(), ScanFailure> {
    rows.clear();
    // A block is transformed after the next block is read, so a coefficient out of range is detected one block late.
    // With AVX-512, which transforms pairs, it is detected even later. A scan that fails with AVX-512 is decoded again
    // with AVX2, so that all levels report the same position.
    match level {
        // SAFETY: the level guarantees that the processor has these instructions.
        #[cfg(target_arch = "x86_64")]
        Level::Avx512 => unsafe {
            decode_avx512(scan, planes, rows).or_else(|_| decode(scan, planes, rows, Level::Avx2))
        },
        // SAFETY: as above.
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 => unsafe { decode_avx2(scan, planes, rows) },
        _ => decode_with::<SingleBlockSink<PortableIdct>>(scan, planes, rows),
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,avx512f,avx512bw,avx512vbmi")]
fn decode_avx512(scan: &Scan, planes: &mut [Plane], rows: &mut Vec<RowStart>) -> Result<(), ScanFailure> {
    decode_with::<super::blocks::PairedBlockSink>(scan, planes, rows)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt")]
fn decode_avx2(scan: &Scan, planes: &mut [Plane], rows: &mut Vec<RowStart>) -> Result<(), ScanFailure> {
    decode_with::<SingleBlockSink<super::idct::avx2::Avx2Idct>>(scan, planes, rows)
}

#[inline(always)]
fn decode_with<B: BlockSink>(
    scan: &Scan,
    planes: &mut [Plane],
    starts: &mut Vec<RowStart>,
) -> Result<(), ScanFailure> {
    let (columns, rows) = scan.wanted.clone();
    let (width, interval) = (u64::from(scan.columns), u64::from(scan.restart_interval));
    let end = u64::from(rows.end - 1) * width + u64::from(columns.end);
    let segment_of = |mcu: u64| mcu.checked_div(interval).unwrap_or(0);
    let mut blocks = B::new();
    let ScanStart { mut mcu, skip, dc } = scan.start;
    let first_segment = segment_of(mcu);
    let mut segment = first_segment;
    let mut bits = scan.entropy.reader(0).ok_or(ScanFailure { fault: ScanFault::OutOfData, mcu, byte: 0 })?;
    bits.refill();
    bits.consume(skip);
    // The state at an MCU boundary consists of the reader and the components' last DC coefficients. They are two
    // variables, because a common struct with the array would keep the reader out of registers.
    let (mut bits, mut dc) = (bits, dc);
    while mcu < end {
        // Restart markers allow a jump to the segment of the next wanted MCU.
        let (row, column) = ((mcu / width) as u32, (mcu % width) as u32);
        let wanted = if row < rows.start {
            (rows.start, columns.start)
        } else if column < columns.end {
            (row, column.max(columns.start))
        } else {
            (row + 1, columns.start)
        };
        let target = segment_of(u64::from(wanted.0) * width + u64::from(wanted.1));
        if target > segment {
            segment = target;
            mcu = target * interval;
            let Some(start) = scan.entropy.reader((target - first_segment) as usize) else {
                return Err(ScanFailure { fault: ScanFault::OutOfData, mcu, byte: bits.consumed_bytes() });
            };
            (bits, dc) = (start, [0; 4]);
            continue;
        }
        if column == 0 {
            starts.push(RowStart { bit: bits.consumed_bits(), dc });
        }
        let segment_end = if interval == 0 { u64::MAX } else { (segment + 1) * interval };
        let run = (width - u64::from(column)).min(segment_end - mcu).min(end - mcu) as u32;
        let wanted_here = if row < rows.start { 0..0 } else { columns.clone() };
        for column in column..column + run {
            let done = if wanted_here.contains(&column) {
                decode_mcu(&mut bits, &mut dc, scan.components, planes, &mut blocks, (row, column))
            } else {
                skip_mcu(&mut bits, &mut dc, scan.components)
            };
            let done = if bits.overrun() { Err(ScanFault::OutOfData) } else { done };
            if let Err(fault) = done {
                let mcu = u64::from(row) * width + u64::from(column);
                return Err(ScanFailure { fault, mcu, byte: bits.consumed_bytes() });
            }
        }
        mcu += u64::from(run);
        // Like libjpeg, accept any data after the last interval.
        if mcu == segment_end && mcu < u64::from(scan.rows) * width && !bits.only_padding() {
            return Err(ScanFailure { fault: ScanFault::LeftOver, mcu, byte: bits.consumed_bytes() });
        }
    }
    let done = blocks.flush(scan.components, planes);
    done.map_err(|fault| ScanFailure { fault: fault.into(), mcu: end - 1, byte: bits.consumed_bytes() })
}

#[inline(always)]
fn decode_mcu<B: BlockSink>(
    bits: &mut BitReader,
    dc: &mut [i32; 4],
    components: &[Component],
    planes: &mut [Plane],
    blocks: &mut B,
    (row, column): (u32, u32),
) -> Result<(), ScanFault> {
    for ((number, component), dc) in components.iter().enumerate().zip(dc) {
        let stride = planes[component.plane].stride;
        for y in row * component.v..(row + 1) * component.v {
            for x in column * component.h..(column + 1) * component.h {
                if component.rows.contains(&y) && component.columns.contains(&x) {
                    let last = decode_block::<B>(bits, component, dc, blocks.block())?;
                    let (x, y) = (x - component.columns.start, y - component.rows.start);
                    let at = 8 * (y as usize * stride + x as usize);
                    let place = BlockPlace { component: number, at };
                    if last == 0 {
                        place.write_dc(components, planes, blocks.block())?;
                    } else {
                        blocks.put(components, planes, place)?;
                    }
                } else {
                    skip_block(bits, component, dc)?;
                }
            }
        }
    }
    Ok(())
}

#[inline(always)]
pub(super) fn skip_mcu(
    bits: &mut BitReader,
    dc: &mut [i32; 4],
    components: &[Component],
) -> Result<(), ScanFault> {
    for (component, dc) in components.iter().zip(dc) {
        for _ in 0..component.h * component.v {
            skip_block(bits, component, dc)?;
        }
    }
    Ok(())
}

/// Reads a DC difference, which takes at most 16 bits if the lookup table covers it. The window must have 56 bits.
#[inline(always)]
pub(super) fn read_difference(bits: &mut BitReader, table: &DcTable) -> Result<i32, ScanFault> {
    let entry = table.fast[(bits.window >> (64 - DC_BITS)) as usize];
    if entry.is_special() {
        return Ok(read_long(bits, &table.code, MAX_DC_SIZE)?.1);
    }
    let difference = value(bits.window, entry.0 >> 8, |x| x >> 1 >> (entry.0 >> 16 & 63));
    bits.consume(entry.0);
    Ok(difference)
}

#[inline(always)]
fn read_dc(bits: &mut BitReader, component: &Component, dc: &mut i32) -> Result<(), ScanFault> {
    *dc += read_difference(bits, &component.dc)?;
    if dc.abs() > component.quantisation.dc_limit {
        return Err(ScanFault::OutOfRange);
    }
    Ok(())
}

/// Reads a symbol that the lookup tables do not cover, and its value, of any length. Leaves 56 bits in the window.
///
/// All functions that take a reader by reference are inlined: a call would force the reader out of registers
/// everywhere.
#[inline(always)]
pub(super) fn read_long(
    bits: &mut BitReader,
    codes: &HuffmanCode,
    max_size: u8,
) -> Result<(u8, i32), ScanFault> {
    bits.refill();
    let (length, symbol) = codes.find(bits.window).ok_or(ScanFault::BadCode)?;
    let size = symbol & 15;
    if size > max_size {
        return Err(ScanFault::OutOfRange);
    }
    let value = value(bits.window, length, |x| x >> 1 >> (63 - u32::from(size)));
    bits.consume(length + u32::from(size));
    bits.refill();
    Ok((symbol, value))
}

/// Reads a block's coefficients into `block`, which must be zero, in the order of `B`. Returns the index of the last
/// coefficient in coding order.
#[inline(always)]
pub(super) fn decode_block<B: CoefficientOrder>(
    bits: &mut BitReader,
    component: &Component,
    dc: &mut i32,
    block: &mut IdctBlock,
) -> Result<usize, ScanFault> {
    bits.refill();
    read_dc(bits, component, dc)?;
    block.0[0] = *dc as i16;
    let (ac, pairs): (&AcTable, &PairTable) = (&component.ac, &component.pairs);
    let mut k = 0;
    loop {
        bits.refill();
        // The window has bits for three lookups of at most 18 bits.
        for _ in 0..3 {
            let symbols = pairs.0[(bits.window >> (64 - AC_BITS)) as usize];
            let next = k + symbols.advance();
            // Symbols can lead beyond the block. The index then maps to an unused entry, so that all values can be
            // stored before any index is checked.
            block.0[B::index(k + symbols.first())] = symbols.first_value() as i16;
            block.0[B::index(next)] = symbols.last_value(bits.window) as i16;
            if next > 62 {
                if let Some(last) = symbols.last(next) {
                    bits.consume(symbols.bits());
                    return Ok(last);
                }
                // The pair table does not cover this code, or the first of its two symbols ends the block. Read one
                // symbol.
                let (ends, value) = read_symbol(bits, ac, &mut k)?;
                if value != 0 {
                    block.0[B::index(k)] = value as i16;
                }
                if ends {
                    return Ok(k);
                }
                break;
            }
            bits.consume(symbols.bits());
            k = next;
        }
    }
}

/// Reads the symbol after coefficient `k`. Returns (whether the symbol ends the block, its value). If the symbol does
/// not end the block, the window might need a refill.
#[inline(always)]
fn read_symbol(bits: &mut BitReader, table: &AcTable, k: &mut usize) -> Result<(bool, i32), ScanFault> {
    bits.refill();
    let mut entry = table.fast[(bits.window >> (64 - AC_BITS)) as usize];
    if entry == LookupEntry::OTHER {
        entry = table.long(bits.window);
    }
    let (advance, value) = if !entry.is_special() {
        let value = value(bits.window, entry.0 >> 8, |x| x >> (entry.0 >> 16 & 63));
        bits.consume(entry.0);
        ((entry.0 >> 24) as usize, value)
    } else if entry.is_end() {
        bits.consume(entry.0);
        return Ok((true, 0));
    } else if entry.is_zeros() {
        bits.consume(entry.0);
        (16, 0)
    } else {
        let (symbol, value) = read_long(bits, &table.code, MAX_AC_SIZE)?;
        if symbol & 15 == 0 && symbol != 0xF0 {
            return Ok((true, 0));
        }
        (usize::from(symbol >> 4) + 1, value)
    };
    *k += advance;
    match *k {
        0..63 => Ok((false, value)),
        63 => Ok((true, value)),
        _ => Err(ScanFault::BlockOverrun),
    }
}

/// Reads a block's DC difference and skips its other coefficients.
#[inline(always)]
fn skip_block(bits: &mut BitReader, component: &Component, dc: &mut i32) -> Result<(), ScanFault> {
    bits.refill();
    read_dc(bits, component, dc)?;
    bits.refill();
    let (ac, pairs): (&AcTable, &PairTable) = (&component.ac, &component.pairs);
    let mut k = 0;
    loop {
        // The window has bits for three lookups. Detects the same faults as `decode_block`.
        for _ in 0..3 {
            let symbols = pairs.0[(bits.window >> (64 - AC_BITS)) as usize];
            let next = k + symbols.advance();
            if next > 62 {
                if symbols.last(next).is_some() {
                    bits.consume(symbols.bits());
                    return Ok(());
                }
                if read_symbol(bits, ac, &mut k)?.0 {
                    return Ok(());
                }
                break;
            }
            bits.consume(symbols.bits());
            k = next;
        }
        bits.refill();
    }
}
