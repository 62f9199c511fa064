//! Reads the DC coefficients of the wanted blocks.

use super::super::bits::BitReader;
use super::super::huffman::DcTable;
use super::super::scan::{ScanFailure, ScanFault, read_difference};
use super::super::{ComponentRegion, RegionLayout};
use super::{ProgressiveJob, ProgressiveScan, ScanTables};

/// Reads all DC scans into `dc`, which has the wanted blocks of each component in order.
#[inline(always)]
pub(super) fn decode(job: &ProgressiveJob, dc: &mut [Vec<i16>; 4]) -> Result<(), (usize, ScanFailure)> {
    for (part, dc) in job.layout.parts.iter().zip(dc.iter_mut()) {
        dc.clear();
        dc.resize(part.columns.len() * part.rows.len(), 0);
    }
    for (number, pass) in job.plan.passes.iter().enumerate().filter(|(_, pass)| pass.is_dc()) {
        read_scan(job, number, pass, dc).map_err(|failure| (number, failure))?;
    }
    Ok(())
}

/// Reads one scan, up to the last MCU that contains a wanted block.
#[inline(always)]
fn read_scan(
    job: &ProgressiveJob,
    number: usize,
    pass: &ProgressiveScan,
    dc: &mut [Vec<i16>; 4],
) -> Result<(), ScanFailure> {
    let layout: &RegionLayout = job.layout;
    let entropy = &job.entropies[number];
    // A scan of one component is not interleaved: an MCU is one block, regardless of the sampling factors.
    let alone = pass.scan.len() == 1;
    let size = |part: &ComponentRegion| if alone { (1, 1) } else { (part.h, part.v) };
    let parts = pass.scan.iter().map(|scan| &layout.parts[scan.component]);
    let rows = parts.clone().map(|part| part.rows.end.div_ceil(size(part).1)).max().unwrap_or(0);
    let last = parts.map(|part| part.columns.end.div_ceil(size(part).0)).max().unwrap_or(0);
    let (columns, _) = layout.mcus(&pass.scan);
    let out_of_data = |mcu, byte| ScanFailure { fault: ScanFault::OutOfData, mcu, byte };
    let mut bits = entropy.reader(0).ok_or(out_of_data(0, 0))?;
    let (mut segment, mut left) = (0, pass.restart_interval);
    let mut previous = [0; 4];
    // The transform later detects values out of range for 8-bit samples. So only check that values fit in 16 bits.
    let most = i32::from(i16::MAX) >> pass.progression.low;
    for row in 0..rows {
        for column in 0..if row + 1 < rows { columns } else { last } {
            let failed = |fault, bits: &BitReader| {
                let mcu = u64::from(row) * u64::from(columns) + u64::from(column);
                ScanFailure { fault, mcu, byte: bits.consumed_bytes() }
            };
            if pass.restart_interval > 0 {
                if left == 0 {
                    if !bits.only_padding() {
                        return Err(failed(ScanFault::LeftOver, &bits));
                    }
                    segment += 1;
                    bits = entropy.reader(segment).ok_or(failed(ScanFault::OutOfData, &bits))?;
                    (previous, left) = ([0; 4], pass.restart_interval);
                }
                left -= 1;
            }
            for (index, scan) in pass.scan.iter().enumerate() {
                let part = &layout.parts[scan.component];
                let (h, v) = size(part);
                for y in row * v..(row + 1) * v {
                    for x in column * h..(column + 1) * h {
                        let value = match &pass.tables {
                            ScanTables::Dc(tables) => {
                                first(&mut bits, &tables[index], &mut previous[index], most)
                            }
                            _ => Ok(refinement(&mut bits)),
                        };
                        let value = value.map_err(|fault| failed(fault, &bits))?;
                        if part.rows.contains(&y) && part.columns.contains(&x) {
                            let (x, y) = (x - part.columns.start, y - part.rows.start);
                            let dc = &mut dc[scan.component][y as usize * part.columns.len() + x as usize];
                            // In a first scan, `*dc` is zero. In a refining scan, the bit to add is still zero in
                            // `*dc`.
                            *dc |= (value << pass.progression.low) as i16;
                        }
                    }
                }
            }
            if bits.overrun() {
                return Err(failed(ScanFault::OutOfData, &bits));
            }
        }
    }
    Ok(())
}

/// Reads a DC coefficient without the low bits that later scans add.
#[inline(always)]
fn first(bits: &mut BitReader, table: &DcTable, previous: &mut i32, most: i32) -> Result<i32, ScanFault> {
    bits.refill();
    *previous += read_difference(bits, table)?;
    if previous.abs() > most {
        return Err(ScanFault::OutOfRange);
    }
    Ok(*previous)
}

#[inline(always)]
fn refinement(bits: &mut BitReader) -> i32 {
    bits.refill();
    let bit = (bits.window >> 63) as i32;
    bits.consume(1);
    bit
}
