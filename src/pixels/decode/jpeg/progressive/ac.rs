//! Reads the AC coefficients of one component, one row of blocks at a time, and transforms them.

use super::super::bits::{BitReader, Entropy};
use super::super::huffman::AcTable;
use super::super::idct::{IdctBlock, InverseDct, Quantisation, dc_only};
use super::super::scan::{ScanFailure, ScanFault};
use super::block::{Band, Coefficients, Masks, first, refine, skip_block};
use super::{ProgressiveJob, ScanTables};
use crate::decode::Plane;

#[derive(Debug, Default)]
pub(super) struct BlockRow {
    /// The coefficients of the blocks to decode in this row. They are zeroed after each row.
    coefficients: Vec<Coefficients>,
    /// For each block of the component, wanted or not, the mask of its nonzero coefficients. Used only if the component
    /// has refining scans.
    nonzero: Vec<u64>,
}

impl BlockRow {
    pub(super) fn held(&self) -> usize {
        self.coefficients.capacity() * size_of::<Coefficients>() + self.nonzero.capacity() * size_of::<u64>()
    }
}

struct ScanCursor<'a> {
    entropy: &'a Entropy,
    table: &'a AcTable,
    number: usize,
    band: Band,
    refines: bool,
    /// The number of blocks between restart markers; 0 if there are none.
    restart_interval: u64,
    segment: usize,
    /// The number of blocks of the restart interval that are still to be read.
    left: u64,
    block: u64,
    bits: BitReader<'a>,
    /// The number of following blocks that have no (further) codes in this scan.
    eob_run: u32,
}

impl<'a> ScanCursor<'a> {
    fn new(job: &ProgressiveJob<'a>, number: usize) -> Option<Self> {
        let pass = &job.plan.passes[number];
        let ScanTables::Ac(table) = &pass.tables else { return None };
        let entropy = &job.entropies[number];
        let restart_interval = u64::from(pass.restart_interval);
        Some(Self {
            entropy,
            table,
            number,
            band: Band::new(pass.progression),
            refines: pass.progression.high > 0,
            restart_interval,
            segment: 0,
            left: if restart_interval > 0 { restart_interval } else { u64::MAX },
            block: 0,
            bits: entropy.reader(0)?,
            eob_run: 0,
        })
    }

    fn failure(&self, fault: ScanFault) -> (usize, ScanFailure) {
        (self.number, ScanFailure { fault, mcu: self.block, byte: self.bits.consumed_bytes() })
    }

    fn restart(&mut self, segment: u64) -> Result<(), (usize, ScanFailure)> {
        self.segment = segment as usize;
        self.bits = self.entropy.reader(self.segment).ok_or(self.failure(ScanFault::OutOfData))?;
        (self.block, self.left, self.eob_run) = (segment * self.restart_interval, self.restart_interval, 0);
        Ok(())
    }

    /// Returns how many of the next `wanted` blocks precede the next restart marker; at least one.
    #[inline(always)]
    fn available(&mut self, wanted: usize) -> Result<usize, (usize, ScanFailure)> {
        if self.left == 0 {
            if !self.bits.only_padding() {
                return Err(self.failure(ScanFault::LeftOver));
            }
            self.restart(self.segment as u64 + 1)?;
        }
        Ok(self.left.min(wanted as u64) as usize)
    }

    #[inline(always)]
    fn count(&mut self, blocks: usize) {
        self.block += blocks as u64;
        self.left -= blocks as u64;
    }

    /// Skips blocks of a first scan up to index `block`. Complete restart intervals are skipped without reading them.
    #[inline(always)]
    fn skip_to(&mut self, block: u64) -> Result<(), (usize, ScanFailure)> {
        if let Some(segment) = block.checked_div(self.restart_interval)
            && segment > self.segment as u64
        {
            if self.left == 0 && !self.bits.only_padding() {
                return Err(self.failure(ScanFault::LeftOver));
            }
            self.restart(segment)?;
        }
        let (mut bits, mut eob_run) = (self.bits, self.eob_run);
        let (mut to_come, mut done) = ((block - self.block) as usize, Ok(()));
        while to_come > 0 {
            if eob_run > 0 {
                let blocks = to_come.min(eob_run as usize);
                eob_run -= blocks as u32;
                to_come -= blocks;
                continue;
            }
            done = skip_block(&mut bits, &mut eob_run, self.table, self.band);
            if done.is_err() || bits.overrun() {
                break;
            }
            to_come -= 1;
        }
        (self.bits, self.eob_run) = (bits, eob_run);
        self.count((block - self.block) as usize - to_come);
        if self.bits.overrun() {
            return Err(self.failure(ScanFault::OutOfData));
        }
        done.map_err(|fault| self.failure(fault))
    }

    #[inline(always)]
    fn read(&mut self, mut row: &mut [Coefficients]) -> Result<(), (usize, ScanFailure)> {
        while !row.is_empty() {
            let count = self.available(row.len())?;
            let (these, rest) = row.split_at_mut(count);
            row = rest;
            let (mut bits, mut eob_run) = (self.bits, self.eob_run);
            let (mut x, mut done) = (0, Ok(()));
            while x < count {
                if eob_run > 0 {
                    let blocks = (count - x).min(eob_run as usize);
                    eob_run -= blocks as u32;
                    x += blocks;
                    continue;
                }
                let mut unused = 0;
                done = first::<true, false>(
                    &mut bits,
                    &mut eob_run,
                    self.table,
                    self.band,
                    &mut unused,
                    &mut these[x],
                );
                if done.is_err() || bits.overrun() {
                    break;
                }
                x += 1;
            }
            (self.bits, self.eob_run) = (bits, eob_run);
            self.count(x);
            if self.bits.overrun() {
                return Err(self.failure(ScanFault::OutOfData));
            }
            done.map_err(|fault| self.failure(fault))?;
        }
        Ok(())
    }

    /// Reads the next blocks of a first or a refining scan, and updates the masks. With `STORE` the coefficients are
    /// stored in `row`. Without `STORE`, `row` is empty.
    #[inline(always)]
    fn read_masks<T: Masks, const STORE: bool>(
        &mut self,
        mut nonzero: &mut [u64],
        mut row: &mut [Coefficients],
    ) -> Result<(), (usize, ScanFailure)> {
        let mut dummy = Coefficients::ZERO;
        while !nonzero.is_empty() {
            let count = self.available(nonzero.len())?;
            let (these, rest) = nonzero.split_at_mut(count);
            nonzero = rest;
            let (mut bits, mut eob_run) = (self.bits, self.eob_run);
            let (mut x, mut done) = (0, Ok(()));
            while x < count {
                let block = if STORE { &mut row[x] } else { &mut dummy };
                done = if self.refines {
                    refine::<T, STORE>(&mut bits, &mut eob_run, self.table, self.band, &mut these[x], block)
                } else if eob_run > 0 {
                    eob_run -= 1;
                    Ok(())
                } else {
                    first::<STORE, true>(&mut bits, &mut eob_run, self.table, self.band, &mut these[x], block)
                };
                if done.is_err() || bits.overrun() {
                    break;
                }
                x += 1;
            }
            (self.bits, self.eob_run) = (bits, eob_run);
            self.count(x);
            if self.bits.overrun() {
                return Err(self.failure(ScanFault::OutOfData));
            }
            done.map_err(|fault| self.failure(fault))?;
            if STORE {
                row = &mut row[count..];
            }
        }
        Ok(())
    }
}

#[inline(always)]
pub(super) fn decode<T: InverseDct + Masks>(
    job: &ProgressiveJob,
    component: usize,
    dc: &[i16],
    row: &mut BlockRow,
    plane: &mut Plane,
) -> Result<(), (usize, ScanFailure)> {
    let part = &job.layout.parts[component];
    let passes = job.plan.passes.iter().enumerate();
    let own = passes.filter(|(_, pass)| !pass.is_dc() && pass.scan[0].component == component);
    let mut tracks: Vec<ScanCursor> = own.filter_map(|(number, _)| ScanCursor::new(job, number)).collect();
    let history = tracks.iter().any(|track| track.refines);
    let width = part.width();
    let (start, end) = (part.columns.start as usize, part.columns.end as usize);
    row.coefficients.clear();
    row.coefficients.resize(end - start, Coefficients::ZERO);
    row.nonzero.clear();
    row.nonzero.resize(if history { width } else { 0 }, 0);
    let mut block = IdctBlock::new();
    if history {
        for _ in 0..part.rows.start {
            row.nonzero.fill(0);
            for track in &mut tracks {
                track.read_masks::<T, false>(&mut row.nonzero, &mut [])?;
            }
        }
    }
    for y in part.rows.clone() {
        if history {
            row.nonzero.fill(0);
        }
        for track in &mut tracks {
            if history {
                let (left, rest) = row.nonzero.split_at_mut(start);
                let (wanted, right) = rest.split_at_mut(end - start);
                track.read_masks::<T, false>(left, &mut [])?;
                track.read_masks::<T, true>(wanted, &mut row.coefficients)?;
                if y + 1 < part.rows.end {
                    track.read_masks::<T, false>(right, &mut [])?;
                }
            } else {
                track.skip_to(u64::from(y) * width as u64 + start as u64)?;
                track.read(&mut row.coefficients)?;
            }
        }
        let y = (y - part.rows.start) as usize;
        let out = &mut plane.data[8 * y * plane.stride..];
        let dc = &dc[y * (end - start)..][..end - start];
        transform::<T>(
            &mut row.coefficients,
            dc,
            &job.plan.quantisation[component],
            &mut block,
            out,
            plane.stride,
        )
        .map_err(|x| {
            let failed = tracks.first().map(|track| track.failure(ScanFault::OutOfRange));
            let (number, failure) =
                failed.unwrap_or((0, ScanFailure { fault: ScanFault::OutOfRange, mcu: 0, byte: 0 }));
            let mcu = (y + part.rows.start as usize) * width + start + x;
            (number, ScanFailure { mcu: mcu as u64, ..failure })
        })?;
    }
    Ok(())
}

/// Transforms a row of blocks and clears their coefficients. The error is the index of the block that is out of range.
#[inline(always)]
fn transform<T: InverseDct>(
    row: &mut [Coefficients],
    dc: &[i16],
    quantisation: &Quantisation,
    block: &mut IdctBlock,
    out: &mut [u8],
    stride: usize,
) -> Result<(), usize> {
    for (x, (coefficients, &dc)) in row.iter_mut().zip(dc).enumerate() {
        let out = &mut out[8 * x..];
        let any = coefficients.0.iter().fold(0, |any, value| any | value);
        let done = if i32::from(dc).abs() > quantisation.dc_limit {
            return Err(x);
        } else if any == 0 {
            dc_only(dc, quantisation, out, stride)
        } else {
            block.0[..64].copy_from_slice(&coefficients.0);
            *coefficients = Coefficients::ZERO;
            block.0[0] = dc;
            T::block(block, quantisation, out, stride)
        };
        done.map_err(|_| x)?;
    }
    Ok(())
}
