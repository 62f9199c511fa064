//! Reads the AC coefficients that one scan codes for one block.

use super::super::bits::{BitReader, value};
use super::super::huffman::{AC_BITS, AcTable, LookupEntry, MAX_AC_SIZE};
use super::super::idct::{PLACES, PortableIdct};
use super::super::markers::Progression;
use super::super::scan::{ScanFault, read_long};

/// The mask bit of coefficient 0. It is the highest bit, so that the mask's bits from the top are in coding order.
const FIRST: u64 = 1 << 63;

/// The coefficients of a block, in the order of [`PLACES`]. The entry of the DC coefficient is not used.
#[derive(Debug, Clone, Copy)]
#[repr(align(64))]
pub(super) struct Coefficients(pub(super) [i16; 64]);

impl Coefficients {
    pub(super) const ZERO: Self = Self([0; 64]);

    /// Coefficient `k` in coding order. An index beyond 63, which only damaged data produces, maps to the unused DC
    /// entry.
    #[inline(always)]
    fn at(&mut self, k: usize) -> &mut i16 {
        &mut self.0[usize::from(PLACES[k & 127]) & 63]
    }
}

/// Mask operations for which some processors have an instruction.
pub(super) trait Masks {
    /// Distributes the low bits of `bits` to the set bits of `mask`, lowest to lowest.
    fn deposit(bits: u64, mask: u64) -> u64;
}

impl Masks for PortableIdct {
    #[inline(always)]
    fn deposit(mut bits: u64, mut mask: u64) -> u64 {
        let mut deposited = 0;
        while mask != 0 && bits != 0 {
            let lowest = mask & mask.wrapping_neg();
            deposited |= if bits & 1 == 1 { lowest } else { 0 };
            mask ^= lowest;
            bits >>= 1;
        }
        deposited
    }
}

#[cfg(target_arch = "x86_64")]
impl Masks for super::super::idct::avx2::Avx2Idct {
    #[inline(always)]
    fn deposit(bits: u64, mask: u64) -> u64 {
        // SAFETY: this type is used only in functions compiled for AVX2 and BMI2, which run only at
        // [`base::simd::Level::Avx2`] and above; at these levels the processor has both.
        unsafe { std::arch::x86_64::_pdep_u64(bits, mask) }
    }
}

#[derive(Clone, Copy)]
pub(super) struct Band {
    first: usize,
    last: usize,
    /// The number of low bits that the scan leaves out.
    low: u32,
    mask: u64,
}

impl Band {
    pub(super) fn new(progression: Progression) -> Self {
        let Progression { first, last, low, .. } = progression;
        let mask = (u64::MAX >> first) & (u64::MAX << (63 - last));
        Self { first: first.into(), last: last.into(), low: low.into(), mask }
    }
}

/// Reads a block of a first scan. With `STORE`, stores the coefficients. With `MASK`, updates the mask of nonzero
/// coefficients.
#[inline(always)]
pub(super) fn first<const STORE: bool, const MASK: bool>(
    bits: &mut BitReader,
    eob_run: &mut u32,
    table: &AcTable,
    band: Band,
    nonzero: &mut u64,
    block: &mut Coefficients,
) -> Result<(), ScanFault> {
    bits.refill();
    let mut k = band.first - 1;
    loop {
        // The window has enough bits for two plain symbols of at most 21 bits, or for a plain symbol and an end of
        // block, whose code has at most 11 bits and its run at most 14 bits.
        for _ in 0..2 {
            let entry = table.fast[(bits.window >> (64 - AC_BITS)) as usize];
            if entry.is_special() {
                let (run, value) = match special(bits, table, entry, MAX_AC_SIZE - band.low as u8)? {
                    SpecialSymbol::End(blocks) => {
                        *eob_run = blocks - 1;
                        return Ok(());
                    }
                    SpecialSymbol::Zeros => (15, 0),
                    SpecialSymbol::Value(run, value) => (run, value),
                };
                k += run + 1;
                if value != 0 {
                    if STORE {
                        *block.at(k) = (value << band.low) as i16;
                    }
                    if MASK {
                        *nonzero |= FIRST >> (k & 63);
                    }
                }
                if k >= band.last {
                    return if k == band.last { Ok(()) } else { Err(ScanFault::BlockOverrun) };
                }
                break;
            }
            if STORE {
                let value = value(bits.window, entry.0 >> 8, |x| x >> (entry.0 >> 16 & 63));
                bits.consume(entry.0);
                k += (entry.0 >> 24) as usize;
                *block.at(k) = (value << band.low) as i16;
            } else {
                bits.consume(entry.0);
                k += (entry.0 >> 24) as usize;
            }
            if MASK {
                *nonzero |= FIRST >> (k & 63);
            }
            if k >= band.last {
                return if k == band.last { Ok(()) } else { Err(ScanFault::BlockOverrun) };
            }
        }
        bits.refill();
    }
}

#[inline(always)]
pub(super) fn skip_block(
    bits: &mut BitReader,
    eob_run: &mut u32,
    table: &AcTable,
    band: Band,
) -> Result<(), ScanFault> {
    let (mut nonzero, mut block) = (0, Coefficients::ZERO);
    first::<false, false>(bits, eob_run, table, band, &mut nonzero, &mut block)
}

enum SpecialSymbol {
    /// The end of this many blocks, including the current one. They have no further codes.
    End(u32),
    Zeros,
    Value(usize, i32),
}

/// Reads the symbol of a special entry and the bits after it. Afterwards the window might need a refill.
#[inline(always)]
fn special(
    bits: &mut BitReader,
    table: &AcTable,
    entry: LookupEntry,
    max_size: u8,
) -> Result<SpecialSymbol, ScanFault> {
    let run = if entry.is_end() {
        bits.consume(entry.0);
        entry.run_bits()
    } else if entry.is_zeros() {
        bits.consume(entry.0);
        return Ok(SpecialSymbol::Zeros);
    } else {
        let (symbol, value) = read_long(bits, &table.code, max_size)?;
        match (symbol >> 4, symbol & 15) {
            (15, 0) => return Ok(SpecialSymbol::Zeros),
            (run, 0) => run.into(),
            (run, _) => return Ok(SpecialSymbol::Value(run.into(), value)),
        }
    };
    let more = (bits.window >> 1 >> (63 - run)) as u32;
    bits.consume(run);
    Ok(SpecialSymbol::End((1 << run) + more))
}

/// Reads a block of a refining scan: a correction bit for each coefficient that is already in `nonzero`, and the
/// coefficients that become nonzero.
#[inline(always)]
pub(super) fn refine<T: Masks, const STORE: bool>(
    bits: &mut BitReader,
    eob_run: &mut u32,
    table: &AcTable,
    band: Band,
    nonzero: &mut u64,
    block: &mut Coefficients,
) -> Result<(), ScanFault> {
    let (mut to_come, mut grown) = (band.mask, 0);
    bits.refill();
    while *eob_run == 0 {
        let entry = table.fast[(bits.window >> (64 - AC_BITS)) as usize];
        let (run, value) = if entry.is_special() {
            match special(bits, table, entry, 1)? {
                SpecialSymbol::End(blocks) => {
                    *eob_run = blocks;
                    break;
                }
                SpecialSymbol::Zeros => (15, 0),
                SpecialSymbol::Value(run, value) => (run as u32, value),
            }
        } else {
            let value = value(bits.window, entry.0 >> 8, |x| x >> 63);
            bits.consume(entry.0);
            ((entry.0 >> 24) - 1, value)
        };
        // The symbol's place is after `run` zeros, not counting coefficients that are already nonzero.
        let zeros = to_come & !*nonzero;
        let Some(zeros_after) = zeros.count_ones().checked_sub(run + 1) else {
            return Err(ScanFault::BlockOverrun);
        };
        let place = T::deposit(1 << zeros_after, zeros);
        grown |= corrections::<T>(bits, to_come & *nonzero & !(place | (place - 1)));
        to_come &= place - 1;
        if value != 0 {
            *nonzero |= place;
            if STORE {
                *block.at(place.leading_zeros() as usize) = (value << band.low) as i16;
            }
        }
        if to_come == 0 {
            if STORE {
                grow(grown, band, block);
            }
            return Ok(());
        }
        bits.refill();
    }
    grown |= corrections::<T>(bits, to_come & *nonzero);
    if STORE {
        grow(grown, band, block);
    }
    *eob_run -= 1;
    Ok(())
}

/// Reads a bit for each coefficient in the mask `which`, and returns the mask of coefficients whose magnitudes grow.
/// The window must have 32 bits.
#[inline(always)]
fn corrections<T: Masks>(bits: &mut BitReader, which: u64) -> u64 {
    let count = which.count_ones();
    if count > 32 {
        let late = T::deposit((1 << (count - 32)) - 1, which);
        let early = corrections_in_window::<T>(bits, which ^ late, 32);
        bits.refill();
        return early | corrections_in_window::<T>(bits, late, count - 32);
    }
    corrections_in_window::<T>(bits, which, count)
}

#[inline(always)]
fn corrections_in_window<T: Masks>(bits: &mut BitReader, which: u64, count: u32) -> u64 {
    let grown = T::deposit(bits.window >> 1 >> (63 - count), which);
    bits.consume(count);
    grown
}

/// Adds the scan's bit to the magnitudes of the coefficients in the mask `grown`.
#[inline(always)]
fn grow(mut grown: u64, band: Band, block: &mut Coefficients) {
    while grown != 0 {
        let k = grown.leading_zeros();
        grown ^= FIRST >> k;
        let coefficient = block.at(k as usize);
        *coefficient += ((*coefficient >> 15) | 1) << band.low;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::rng::{RandomKey, Use};

    #[test]
    fn bits_are_deposited_where_the_mask_is_set() {
        assert_eq!(PortableIdct::deposit(0b101, 0b1101_0000), 0b1001_0000);
        assert_eq!(PortableIdct::deposit(u64::MAX, 0b1101), 0b1101);
        #[cfg(target_arch = "x86_64")]
        if base::simd::Level::available().any(|level| level >= base::simd::Level::Avx2) {
            use super::super::super::idct::avx2::Avx2Idct;
            let mut stream = RandomKey::new(b"masks", 0, 0, Use::Augment).stream(0);
            for _ in 0..1000 {
                let mut random = || u64::from(stream.next_u32()) << 32 | u64::from(stream.next_u32());
                let (bits, mask) = (random(), random() & random());
                assert_eq!(
                    Avx2Idct::deposit(bits, mask),
                    PortableIdct::deposit(bits, mask),
                    "{bits:x} {mask:x}"
                );
            }
        }
    }
}
