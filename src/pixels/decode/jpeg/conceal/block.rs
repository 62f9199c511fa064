//! Reads the coefficients that one scan codes for one block, tolerating any bits.

use super::super::huffman::HuffmanCode;
use super::super::markers::Progression;
use super::source::{ScanSource, Stop};
use base::error::DecodeError;

/// The quantised coefficients of a block, in coding order.
pub(super) type ZigzagBlock = [i16; 64];

/// Stores coefficient `k`. Like libjpeg, stores a coefficient beyond the block as the block's last coefficient.
fn store(block: &mut ZigzagBlock, k: usize, value: i32) {
    block[k.min(63)] = value as i16;
}

/// Reads all coefficients of a block of a sequential file. `previous` is the DC coefficient of the component's previous
/// block.
pub(super) fn sequential(
    source: &mut ScanSource,
    dc: &HuffmanCode,
    ac: &HuffmanCode,
    previous: &mut i32,
    block: &mut ZigzagBlock,
) -> Result<(), Stop> {
    let size = source.symbol(dc)?;
    *previous = previous.wrapping_add(source.value(size)?);
    block[0] = *previous as i16;
    let mut k = 1;
    while k < 64 {
        let symbol = source.symbol(ac)?;
        let (run, size) = (usize::from(symbol >> 4), symbol & 15);
        if size > 0 {
            k += run;
            store(block, k, source.value(size)?);
        } else if run == 15 {
            k += 15;
        } else {
            break;
        }
        k += 1;
    }
    Ok(())
}

pub(super) fn dc_first(
    source: &mut ScanSource,
    codes: &HuffmanCode,
    low: u8,
    previous: &mut i32,
    block: &mut ZigzagBlock,
) -> Result<(), Stop> {
    let size = source.symbol(codes)?;
    let sum = previous.checked_add(source.value(size)?);
    *previous = sum.ok_or_else(|| DecodeError::Corrupt("a DC coefficient beyond 32 bits".into()))?;
    block[0] = (*previous << low) as i16;
    Ok(())
}

pub(super) fn dc_refine(source: &mut ScanSource, low: u8, block: &mut ZigzagBlock) -> Result<(), Stop> {
    if source.take(1)? == 1 {
        block[0] |= 1 << low;
    }
    Ok(())
}

fn ended_blocks(source: &mut ScanSource, run: usize) -> Result<u32, Stop> {
    Ok((1 << run) + source.take(run as u32)?)
}

/// Reads a block of a first AC scan, which codes the high bits of coefficients. `eob_run` is the number of following
/// blocks that have no AC coefficients in this scan.
pub(super) fn ac_first(
    source: &mut ScanSource,
    codes: &HuffmanCode,
    progression: Progression,
    eob_run: &mut u32,
    block: &mut ZigzagBlock,
) -> Result<(), Stop> {
    if *eob_run > 0 {
        *eob_run -= 1;
        return Ok(());
    }
    let (mut k, last) = (usize::from(progression.first), usize::from(progression.last));
    while k <= last {
        let symbol = source.symbol(codes)?;
        let (run, size) = (usize::from(symbol >> 4), symbol & 15);
        if size > 0 {
            k += run;
            store(block, k, source.value(size)? << progression.low);
        } else if run == 15 {
            k += 15;
        } else {
            *eob_run = ended_blocks(source, run)? - 1;
            break;
        }
        k += 1;
    }
    Ok(())
}

/// Reads a block of a refining AC scan: one further bit of each nonzero coefficient, and the coefficients that become
/// nonzero.
pub(super) fn ac_refine(
    source: &mut ScanSource,
    codes: &HuffmanCode,
    progression: Progression,
    eob_run: &mut u32,
    block: &mut ZigzagBlock,
) -> Result<(), Stop> {
    let (mut k, last) = (usize::from(progression.first), usize::from(progression.last));
    let bit = 1i16 << progression.low;
    if *eob_run == 0 {
        while k <= last {
            let symbol = source.symbol(codes)?;
            let (mut zeros, size) = (usize::from(symbol >> 4), symbol & 15);
            // A coefficient that becomes nonzero is `bit` or `-bit`, regardless of the symbol's size.
            let mut new = 0;
            if size > 0 {
                new = if source.take(1)? == 1 { bit } else { -bit };
            } else if zeros < 15 {
                *eob_run = ended_blocks(source, zeros)?;
                break;
            }
            loop {
                if block[k] != 0 {
                    correct(source, bit, &mut block[k])?;
                } else if zeros == 0 {
                    break;
                } else {
                    zeros -= 1;
                }
                k += 1;
                if k > last {
                    break;
                }
            }
            if new != 0 {
                store(block, k, new.into());
            }
            k += 1;
        }
    }
    if *eob_run > 0 {
        while k <= last {
            if block[k] != 0 {
                correct(source, bit, &mut block[k])?;
            }
            k += 1;
        }
        *eob_run -= 1;
    }
    Ok(())
}

fn correct(source: &mut ScanSource, bit: i16, coefficient: &mut i16) -> Result<(), Stop> {
    if source.take(1)? == 1 && *coefficient & bit == 0 {
        let grown = if *coefficient >= 0 { bit } else { bit.wrapping_neg() };
        *coefficient = coefficient.wrapping_add(grown);
    }
    Ok(())
}
