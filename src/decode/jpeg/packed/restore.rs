//! From coefficients back to the bytes of the file: its scans are coded again, between what was kept as it is.

use super::super::huffman::Spec;
use super::super::markers::{ScanComponent, ScanHeader};
use super::super::{PROGRESSIVE, RegionLayout};
use super::bits::ScanBits;
use super::coefficients::{CodedBlock, ImageBlocks};
use super::head::Choices;
use super::masks::{MaskWork, PlainMasks};
use super::{corrupt, progressive};
use crate::error::DecodeError;
use crate::simd::Level;

/// The code of each symbol and its length, which is 0 where there is none.
pub(super) struct SymbolCodes([u32; 256]);

impl SymbolCodes {
    pub(super) fn new(spec: &Spec) -> Self {
        let mut codes = [0; 256];
        for (code, length, symbol) in spec.codes() {
            // A symbol that has two codes is coded by the first one.
            if codes[usize::from(symbol)] == 0 {
                codes[usize::from(symbol)] = code << 8 | length;
            }
        }
        Self(codes)
    }

    /// The code of a symbol followed by `size` bits, and the number of bits of both. The number is that of the bits
    /// alone where there is no code, which `missing` keeps in mind.
    #[inline(always)]
    pub(super) fn with_bits(&self, symbol: usize, bits: u32, size: u32, missing: &mut bool) -> (u32, u32) {
        let entry = self.0[symbol & 255];
        *missing |= entry == 0;
        ((entry >> 8) << size | bits, (entry & 0xFF) + size)
    }
}

/// The bits that tell a value of this size from others of the same size (ITU T.81, F.1.2.1).
#[inline(always)]
pub(super) fn value_bits(value: i32, size: u32) -> u32 {
    (value + (value >> 31)) as u32 & !(u32::MAX << size)
}

/// The number of bits of a value's magnitude.
#[inline(always)]
pub(super) fn size_of_value(value: i32) -> u32 {
    32 - value.unsigned_abs().leading_zeros()
}

/// Takes out of a file what is not entropy-coded, which `plain` gets.
pub(super) fn split_plain(file: &[u8], plain: &mut Vec<u8>) -> Result<(), DecodeError> {
    plain.clear();
    let mut header = ScanHeader::parse(file)?;
    let mut from = 0;
    loop {
        plain.extend_from_slice(&file[from..header.data]);
        let cut = || corrupt("its entropy-coded data does not end");
        from = super::super::bits::scan_end(file, header.data).ok_or_else(cut)?;
        if !header.next_scan(file, from)? {
            break;
        }
    }
    plain.extend_from_slice(&file[from..]);
    Ok(())
}

/// Writes the file of these coefficients to `out`, of which `plain` is what is not entropy-coded. `most` is the number
/// of bytes from which on it is damaged.
///
/// # Errors
/// [`DecodeError::Corrupt`] where the scans cannot be coded so.
pub(super) fn restore(
    image: &ImageBlocks,
    plain: &[u8],
    layout: &RegionLayout,
    (choices, most): (Choices, usize),
    level: Level,
    (scratch, out): (&mut Vec<u8>, &mut Vec<u8>),
) -> Result<(), DecodeError> {
    let mut header = ScanHeader::parse(plain)?;
    let mut from = 0;
    let mut first = true;
    loop {
        out.extend_from_slice(plain.get(from..header.data).unwrap_or_default());
        from = header.data;
        if header.frame.marker != PROGRESSIVE && std::mem::take(&mut first) {
            header.tables.add_standard();
        }
        check_scan(image, &header)?;
        let mut bits = ScanBits::new(out, scratch, choices.padded_with_zeros);
        if header.frame.marker == PROGRESSIVE {
            progressive::write(image, &header, layout, choices.runs_alone, &mut bits)?;
        } else {
            write_sequential(image, &header, layout, level, &mut bits)?;
        }
        bits.finish();
        if out.len() > most {
            return Err(corrupt("its file is longer than its head says"));
        }
        if !header.next_scan(plain, from)? {
            break;
        }
    }
    out.extend_from_slice(&plain[from..]);
    Ok(())
}

/// Checks that a scan is one of the frame that was packed: what it was parsed from may be damaged.
fn check_scan(image: &ImageBlocks, header: &ScanHeader) -> Result<(), DecodeError> {
    if header.scan.iter().any(|part| part.component >= image.components.len()) {
        return Err(corrupt("a scan names a component that it does not have"));
    }
    Ok(())
}

/// Calls `visit` with each block of a scan in the order in which it is coded, and `restart` where a restart marker
/// stands: `visit` gets the place of the component in the scan, and the block.
#[inline(always)]
pub(super) fn each_block<'a, C>(
    image: &'a ImageBlocks,
    header: &ScanHeader,
    layout: &RegionLayout,
    context: &mut C,
    mut restart: impl FnMut(&mut C),
    mut visit: impl FnMut(&mut C, usize, &'a CodedBlock),
) -> Result<(), DecodeError> {
    let (columns, rows) = layout.mcus(&header.scan);
    let interval = header.tables.restart_interval;
    let mut left = interval;
    for row in 0..rows as usize {
        // The blocks of an MCU: the place of the component in the scan, its row of blocks, and how many of that row.
        let mut lines: Vec<(usize, &[CodedBlock], usize)> = Vec::with_capacity(10);
        for (place, &ScanComponent { component, .. }) in header.scan.iter().enumerate() {
            let blocks = &image.components[component];
            let alone = header.scan.len() == 1;
            let (h, v) =
                if alone { (1, 1) } else { (blocks.grid.columns / columns as usize, blocks.grid.rows) };
            for y in row * v..(row + 1) * v {
                let line = blocks.blocks.get(y * blocks.grid.columns..(y + 1) * blocks.grid.columns);
                let line = line.filter(|line| line.len() >= h * columns as usize);
                lines.push((place, line.ok_or_else(|| corrupt("a scan has more blocks than it"))?, h));
            }
        }
        for column in 0..columns as usize {
            if interval > 0 {
                if left == 0 {
                    restart(context);
                    left = interval;
                }
                left -= 1;
            }
            for &(place, line, h) in &lines {
                for block in &line[column * h..(column + 1) * h] {
                    visit(context, place, block);
                }
            }
        }
    }
    Ok(())
}

/// Codes a scan of a file that is not progressive.
fn write_sequential(
    image: &ImageBlocks,
    header: &ScanHeader,
    layout: &RegionLayout,
    level: Level,
    bits: &mut ScanBits,
) -> Result<(), DecodeError> {
    let codes = |scan: &ScanComponent| {
        Ok((SymbolCodes::new(header.tables.dc(scan)?), SymbolCodes::new(header.tables.ac(scan)?)))
    };
    let codes: Vec<_> = header.scan.iter().map(codes).collect::<Result<_, DecodeError>>()?;
    match level {
        // SAFETY: the level says that the processor has these instructions.
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 | Level::Avx512 => unsafe { write_avx2(image, header, layout, &codes, bits) },
        _ => write_with::<PlainMasks>(image, header, layout, &codes, bits),
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
fn write_avx2(
    image: &ImageBlocks,
    header: &ScanHeader,
    layout: &RegionLayout,
    codes: &[(SymbolCodes, SymbolCodes)],
    bits: &mut ScanBits,
) -> Result<(), DecodeError> {
    write_with::<super::masks::VectorMasks>(image, header, layout, codes, bits)
}

#[inline(always)]
fn write_with<M: MaskWork>(
    image: &ImageBlocks,
    header: &ScanHeader,
    layout: &RegionLayout,
    codes: &[(SymbolCodes, SymbolCodes)],
    bits: &mut ScanBits,
) -> Result<(), DecodeError> {
    let mut missing = false;
    let mut context = (bits, [0i32; 4]);
    each_block(
        image,
        header,
        layout,
        &mut context,
        |(bits, dc)| {
            bits.restart();
            *dc = [0; 4];
        },
        |(bits, dc), place, block| {
            let (dc_codes, ac_codes) = &codes[place];
            let (mut cursor, room) = bits.open_block();
            let before = &mut dc[place & 3];
            let difference = i32::from(block[0]) - *before;
            *before = i32::from(block[0]);
            let size = size_of_value(difference);
            let of_value = value_bits(difference, size);
            let (code, length) = dc_codes.with_bits(size as usize, of_value, size, &mut missing);
            cursor.put(room, code, length);
            let mut nonzero = M::masks(block).nonzero;
            let mut next = 1;
            while nonzero != 0 {
                let k = nonzero.trailing_zeros();
                nonzero &= nonzero - 1;
                let mut run = k - next;
                next = k + 1;
                while run > 15 {
                    let (code, length) = ac_codes.with_bits(0xF0, 0, 0, &mut missing);
                    cursor.put(room, code, length);
                    run -= 16;
                }
                let value = i32::from(block[k as usize & 63]);
                let size = size_of_value(value);
                let symbol = (run << 4 | size) as usize;
                let (code, length) = ac_codes.with_bits(symbol, value_bits(value, size), size, &mut missing);
                cursor.put(room, code, length);
            }
            if next < 64 {
                let (code, length) = ac_codes.with_bits(0, 0, 0, &mut missing);
                cursor.put(room, code, length);
            }
            bits.close_block(cursor);
        },
    )?;
    if missing { Err(corrupt("its Huffman tables lack a symbol")) } else { Ok(()) }
}
