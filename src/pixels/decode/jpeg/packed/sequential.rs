//! Encodes the scans of sequential files: one block after another, in the order of the scan.

use super::super::RegionLayout;
use super::super::huffman::Spec;
use super::super::markers::{ScanComponent, ScanHeader};
use super::coefficients::{CodedBlock, ImageBlocks};
use super::corrupt;
use super::masks::{MaskWork, PlainMasks};
use super::restore::{ScanCoder, each_block};
use super::scan_bits::{BitCursor, ScanBits};
use super::symbols::{SymbolCodes, size_of_value, value_bits};
use base::error::DecodeError;
use base::simd::Level;
use std::marker::PhantomData;

/// For each AC symbol, its code. The lowest bits of a symbol are the number of value bits that follow the code.
pub(super) struct AcCodes([u32; 256]);

/// The number of low bits of an entry that store the length of the code and its value bits.
const LENGTH_BITS: u32 = 5;

const MAX_SIZE: u32 = 10;

impl AcCodes {
    fn new(spec: &Spec) -> Self {
        let codes = SymbolCodes::new(spec);
        let entry = |symbol: usize| {
            let (size, mut missing) = (symbol as u32 & 15, false);
            let (code, length) = codes.with_bits(symbol, 0, size.min(MAX_SIZE), &mut missing);
            // Packed files have no symbols with more value bits than [`MAX_SIZE`].
            if missing || size > MAX_SIZE { 0 } else { code << LENGTH_BITS | length }
        };
        Self(std::array::from_fn(entry))
    }

    /// The code of a symbol followed by its value bits, and the length of both. Sets `missing` if the symbol has no
    /// code.
    #[inline(always)]
    pub(super) fn with_bits(&self, symbol: u8, bits: u32, missing: &mut bool) -> (u32, u32) {
        let entry = self.0[usize::from(symbol)];
        *missing |= entry == 0;
        (entry >> LENGTH_BITS | bits, entry & ((1 << LENGTH_BITS) - 1))
    }

    #[inline(always)]
    pub(super) fn put(
        &self,
        symbol: u8,
        bits: u32,
        cursor: &mut BitCursor,
        space: &mut [u8],
        missing: &mut bool,
    ) {
        let (code, length) = self.with_bits(symbol, bits, missing);
        cursor.put(space, code.into(), length);
    }

    #[inline(always)]
    pub(super) fn put_value(
        &self,
        value: i16,
        mut run: u32,
        cursor: &mut BitCursor,
        space: &mut [u8],
        missing: &mut bool,
    ) {
        while run > 15 {
            self.put(SIXTEEN_ZEROS, 0, cursor, space, missing);
            run -= 16;
        }
        let size = size_of_value(value.into());
        self.put((run << 4 | size) as u8, value_bits(value.into(), size), cursor, space, missing);
    }
}

const SIXTEEN_ZEROS: u8 = 0xF0;

pub(super) const END: u8 = 0;

pub(super) trait CodeBlock {
    fn ac(block: &CodedBlock, codes: &AcCodes, cursor: &mut BitCursor, space: &mut [u8], missing: &mut bool);
}

pub(super) struct ScalarBlockEncoder<M>(PhantomData<M>);

impl<M: MaskWork> CodeBlock for ScalarBlockEncoder<M> {
    #[inline(always)]
    fn ac(block: &CodedBlock, codes: &AcCodes, cursor: &mut BitCursor, space: &mut [u8], missing: &mut bool) {
        let mut nonzero = M::masks(block).nonzero;
        let mut next = 1;
        while nonzero != 0 {
            let k = nonzero.trailing_zeros();
            nonzero &= nonzero - 1;
            codes.put_value(block[k as usize & 63], k - next, cursor, space, missing);
            next = k + 1;
        }
        if next < 64 {
            codes.put(END, 0, cursor, space, missing);
        }
    }
}

pub(super) fn write(
    image: &ImageBlocks,
    header: &ScanHeader,
    layout: &RegionLayout,
    level: Level,
    bits: &mut ScanBits,
) -> Result<(), DecodeError> {
    let codes = |scan: &ScanComponent| {
        Ok((SymbolCodes::new(header.tables.dc(scan)?), AcCodes::new(header.tables.ac(scan)?)))
    };
    let codes: Vec<_> = header.scan.iter().map(codes).collect::<Result<_, DecodeError>>()?;
    match level {
        // SAFETY: the level guarantees that the processor has these instructions.
        #[cfg(target_arch = "x86_64")]
        Level::Avx512 => unsafe { write_avx512(image, header, layout, &codes, bits) },
        // SAFETY: as above.
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 => unsafe { write_avx2(image, header, layout, &codes, bits) },
        _ => write_with::<ScalarBlockEncoder<PlainMasks>>(image, header, layout, &codes, bits),
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt,avx512f,avx512bw,avx512vl,avx512vbmi,avx512vbmi2")]
fn write_avx512(
    image: &ImageBlocks,
    header: &ScanHeader,
    layout: &RegionLayout,
    codes: &[(SymbolCodes, AcCodes)],
    bits: &mut ScanBits,
) -> Result<(), DecodeError> {
    write_with::<super::blocks_avx512::Avx512BlockEncoder>(image, header, layout, codes, bits)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
fn write_avx2(
    image: &ImageBlocks,
    header: &ScanHeader,
    layout: &RegionLayout,
    codes: &[(SymbolCodes, AcCodes)],
    bits: &mut ScanBits,
) -> Result<(), DecodeError> {
    write_with::<ScalarBlockEncoder<super::masks::VectorMasks>>(image, header, layout, codes, bits)
}

#[inline(always)]
fn write_with<B: CodeBlock>(
    image: &ImageBlocks,
    header: &ScanHeader,
    layout: &RegionLayout,
    codes: &[(SymbolCodes, AcCodes)],
    bits: &mut ScanBits,
) -> Result<(), DecodeError> {
    let mut scan = SequentialScan { bits, codes, dc: [0; 4], missing: false, coder: PhantomData::<B> };
    each_block(image, header, layout, &mut scan)?;
    if scan.missing { Err(corrupt("its Huffman tables have no code for a symbol")) } else { Ok(()) }
}

struct SequentialScan<'a, 'b, B> {
    bits: &'a mut ScanBits<'b>,
    codes: &'a [(SymbolCodes, AcCodes)],
    dc: [i32; 4],
    missing: bool,
    coder: PhantomData<B>,
}

impl<B: CodeBlock> ScanCoder for SequentialScan<'_, '_, B> {
    fn restart(&mut self) {
        self.bits.restart();
        self.dc = [0; 4];
    }

    #[inline(always)]
    fn block(&mut self, place: usize, block: &CodedBlock) {
        let (dc_codes, ac_codes) = &self.codes[place];
        let (mut cursor, space) = self.bits.open_block();
        let before = &mut self.dc[place & 3];
        let difference = i32::from(block[0]) - *before;
        *before = i32::from(block[0]);
        let size = size_of_value(difference);
        let of_value = value_bits(difference, size);
        let (code, length) = dc_codes.with_bits(size as usize, of_value, size, &mut self.missing);
        cursor.put(space, code.into(), length);
        B::ac(block, ac_codes, &mut cursor, space, &mut self.missing);
        self.bits.close_block(cursor);
    }
}
