//! Decodes the wanted region of a progressive JPEG: all scans of a component in parallel, one row of blocks at a time.
//!
//! A block's coefficients come from many scans. Each scan has its own reader. A row of blocks is read from all scans in
//! turn and transformed while it is in the cache, so the coefficients of only one row are in memory. DC coefficients
//! are read first, one number for each wanted block, because only DC scans can interleave components.
//!
//! Blocks outside the region are skipped, and nothing after the region's last row is read. If later scans refine
//! coefficients, the decoder must track which coefficients are nonzero, also outside the region. Tracking takes a mask
//! of 64 bits for each block of a row.
//!
//! If scans that would refine the file are missing, the image is made from the existing bits, as by libjpeg with
//! `do_block_smoothing` off: missing bits are not estimated from neighbouring blocks.

mod ac;
mod block;
mod dc;

use std::ops::Range;
use std::sync::Arc;

use super::bits::{Entropy, scan_end};
use super::huffman::{AcTable, DcTable, MAX_AC_SIZE};
use super::idct::{InverseDct, PortableIdct, Quantisation};
use super::markers::{Progression, ScanComponent, ScanHeader, truncated};
use super::scan::ScanFailure;
use super::tables::TableCache;
use super::{Jpeg, RegionLayout, damage, incomplete, unstuff};
use crate::decode::Plane;
use base::error::DecodeError;
use base::simd::Level;

use self::ac::BlockRow;
use self::block::Masks;

/// The largest number of scans that are read. Encoders write about ten scans. A file with more scans than this limit is
/// an attack, because each scan covers all blocks.
pub(super) const MAX_SCANS: usize = 100;

/// Scratch memory of more than this many bytes is freed after the image.
const KEPT: usize = 16 << 20;

#[derive(Debug, Default)]
pub(super) struct ProgressiveScratch {
    entropies: Vec<Entropy>,
    dc: [Vec<i16>; 4],
    row: BlockRow,
}

impl ProgressiveScratch {
    fn held(&self) -> usize {
        let entropies: usize = self.entropies.iter().map(Entropy::held).sum();
        let dc: usize = self.dc.iter().map(|dc| dc.capacity() * size_of::<i16>()).sum();
        entropies + dc + self.row.held()
    }

    /// Frees the memory if it is more than [`KEPT`] bytes.
    pub(super) fn free_excess(&mut self) {
        if self.held() > KEPT {
            *self = Self::default();
        }
    }
}

struct ProgressiveScan {
    scan: Vec<ScanComponent>,
    progression: Progression,
    /// The range of the scan's entropy-coded data in the file, including the two bytes of the marker after it.
    data: Range<usize>,
    restart_interval: u32,
    tables: ScanTables,
}

enum ScanTables {
    Dc(Vec<Arc<DcTable>>),
    /// Refinements of DC coefficients need no table.
    DcBits,
    Ac(Box<AcTable>),
}

impl ProgressiveScan {
    fn is_dc(&self) -> bool {
        self.progression.first == 0
    }
}

struct ScanPlan {
    passes: Vec<ProgressiveScan>,
    quantisation: Vec<Quantisation>,
}

impl ScanPlan {
    fn read(bytes: &[u8], header: &mut ScanHeader, cache: &mut TableCache) -> Result<Self, DecodeError> {
        let corrupt = |what: String| Err(DecodeError::Corrupt(what));
        let components = header.frame.components.len();
        let mut passes: Vec<ProgressiveScan> = Vec::new();
        let mut quantisation = vec![None; components];
        // The number of low bits that are still left out, by component and coefficient.
        let mut left_out = vec![[None; 64]; components];
        loop {
            let (number, Progression { first, last, high, low }) = (passes.len() + 1, header.progression);
            if number > MAX_SCANS {
                return Err(DecodeError::Unsupported(format!("JPEG of more than {MAX_SCANS} scans")));
            }
            let alone = header.scan.len() == 1;
            let band = if first == 0 { last == 0 } else { first <= last && last <= 63 && alone };
            if !band || low > MAX_AC_SIZE || (high != 0 && high != low + 1) {
                return corrupt(format!(
                    "scan {number} has an invalid progression: coefficients {first} to {last}, bits {high} to {low}"
                ));
            }
            for scan in &header.scan {
                let table = header.frame.components[scan.component].table;
                if quantisation[scan.component].is_none() {
                    quantisation[scan.component] =
                        Some(Quantisation::new(header.tables.quantisation(table)?));
                }
                for left_out in &mut left_out[scan.component][usize::from(first)..=usize::from(last)] {
                    if *left_out != (high > 0).then_some(high) {
                        return corrupt(format!(
                            "scan {number} does not continue at the bits where the previous scans ended"
                        ));
                    }
                    *left_out = Some(low);
                }
            }
            let tables = match (first, high) {
                (0, 0) => ScanTables::Dc(
                    header
                        .scan
                        .iter()
                        .map(|scan| cache.dc(header.tables.dc(scan)?))
                        .collect::<Result<_, _>>()?,
                ),
                (0, _) => ScanTables::DcBits,
                // A value with more bits than the coefficient has left is damage. New values in a refinement have one
                // bit.
                (_, high) => {
                    let size = if high == 0 { MAX_AC_SIZE - low } else { 1 };
                    ScanTables::Ac(Box::new(AcTable::new(header.tables.ac(&header.scan[0])?, size)))
                }
            };
            let end = scan_end(bytes, header.data).ok_or_else(|| truncated(bytes))?;
            passes.push(ProgressiveScan {
                scan: header.scan.clone(),
                progression: header.progression,
                data: header.data..end + 2,
                restart_interval: header.tables.restart_interval,
                tables,
            });
            if !header.next_scan(bytes, end)? {
                break;
            }
        }
        match left_out.iter().position(|left_out| left_out[0].is_none()) {
            Some(component) => Err(incomplete(Some(component))),
            None => Ok(Self { passes, quantisation: quantisation.into_iter().flatten().collect() }),
        }
    }
}

impl Jpeg {
    pub(super) fn decode_progressive(
        &mut self,
        bytes: &[u8],
        header: &mut ScanHeader,
        layout: &RegionLayout,
        level: Level,
        planes: &mut [Plane],
    ) -> Result<(), DecodeError> {
        let plan = ScanPlan::read(bytes, header, &mut self.cache)?;
        layout.shape(planes);
        let ProgressiveScratch { entropies, dc, row } = &mut self.progressive;
        entropies.resize_with(plan.passes.len().max(entropies.len()), Entropy::default);
        for (pass, entropy) in plan.passes.iter().zip(entropies.iter_mut()) {
            let bytes = &bytes[..pass.data.end];
            unstuff(entropy, bytes, pass.data.start, pass.restart_interval, layout.mcus(&pass.scan), level)?;
        }
        let job = ProgressiveJob { plan: &plan, layout, entropies };
        decode(&job, dc, row, planes, level).map_err(|(number, failure)| {
            let pass = &plan.passes[number];
            damage(bytes, pass.data.start, failure, layout.mcus(&pass.scan))
        })
    }
}

struct ProgressiveJob<'a> {
    plan: &'a ScanPlan,
    layout: &'a RegionLayout,
    entropies: &'a [Entropy],
}

/// Decodes the wanted blocks into `planes`, which begin with the first wanted block. The error has the index of the
/// failed scan, and the failure.
fn decode(
    job: &ProgressiveJob,
    dc: &mut [Vec<i16>; 4],
    row: &mut BlockRow,
    planes: &mut [Plane],
    level: Level,
) -> Result<(), (usize, ScanFailure)> {
    match level {
        // SAFETY: the level guarantees that the processor has these instructions.
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 | Level::Avx512 => unsafe { decode_avx2(job, dc, row, planes) },
        _ => decode_with::<PortableIdct>(job, dc, row, planes),
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
fn decode_avx2(
    job: &ProgressiveJob,
    dc: &mut [Vec<i16>; 4],
    row: &mut BlockRow,
    planes: &mut [Plane],
) -> Result<(), (usize, ScanFailure)> {
    decode_with::<super::idct::avx2::Avx2Idct>(job, dc, row, planes)
}

#[inline(always)]
fn decode_with<T: InverseDct + Masks>(
    job: &ProgressiveJob,
    dc: &mut [Vec<i16>; 4],
    row: &mut BlockRow,
    planes: &mut [Plane],
) -> Result<(), (usize, ScanFailure)> {
    dc::decode(job, dc)?;
    for component in 0..job.layout.parts.len() {
        ac::decode::<T>(job, component, &dc[component], row, &mut planes[component])?;
    }
    Ok(())
}
