//! Restores the bytes of a file from its coefficients: encodes the scans again, and puts them between the stored bytes
//! that are not entropy-coded.

use super::super::markers::{ScanComponent, ScanHeader};
use super::super::{PROGRESSIVE, RegionLayout};
use super::coefficients::{CodedBlock, ImageBlocks};
use super::head::Choices;
use super::scan_bits::ScanBits;
use super::{corrupt, progressive, sequential};
use base::error::DecodeError;
use base::simd::Level;

pub(super) fn copy_uncoded_bytes(file: &[u8], plain: &mut Vec<u8>) -> Result<(), DecodeError> {
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

/// Writes the file with these coefficients to `out`. `plain` has the file's bytes that are not entropy-coded. Only
/// damaged data gives a file of more than `most` bytes.
///
/// # Errors
/// [`DecodeError::Corrupt`] if the file has more than `most` bytes, or if the scans cannot be encoded with its headers.
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
            progressive::write(image, &header, layout, choices.single_block_runs, &mut bits)?;
        } else {
            sequential::write(image, &header, layout, level, &mut bits)?;
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

/// Checks that the scan's components exist in the packed frame: the headers in `plain` can be damaged.
fn check_scan(image: &ImageBlocks, header: &ScanHeader) -> Result<(), DecodeError> {
    if header.scan.iter().any(|part| part.component >= image.components.len()) {
        return Err(corrupt("a scan names a component that the image does not have"));
    }
    Ok(())
}

/// Encodes the blocks of a scan one after another. A trait, because a closure would be compiled without the target
/// features of the enclosing function.
pub(super) trait ScanCoder {
    fn restart(&mut self);

    /// Encodes the next block. `place` is the index of the block's component in the scan.
    fn block(&mut self, place: usize, block: &CodedBlock);
}

/// Passes the blocks of a scan to `coder` in coding order.
#[inline(always)]
pub(super) fn each_block(
    image: &ImageBlocks,
    header: &ScanHeader,
    layout: &RegionLayout,
    coder: &mut impl ScanCoder,
) -> Result<(), DecodeError> {
    let (columns, rows) = layout.mcus(&header.scan);
    let interval = header.tables.restart_interval;
    let mut left = interval;
    // For each row of blocks in a row of MCUs: the component's index in the scan, the blocks, and the number of blocks
    // per MCU.
    let mut lines: Vec<(usize, &[CodedBlock], usize)> = Vec::with_capacity(10);
    for row in 0..rows as usize {
        lines.clear();
        for (place, &ScanComponent { component, .. }) in header.scan.iter().enumerate() {
            let blocks = &image.components[component];
            let alone = header.scan.len() == 1;
            let (h, v) =
                if alone { (1, 1) } else { (blocks.grid.columns / columns as usize, blocks.grid.rows) };
            for y in row * v..(row + 1) * v {
                let line = blocks.blocks.get(y * blocks.grid.columns..(y + 1) * blocks.grid.columns);
                let line = line.filter(|line| line.len() >= h * columns as usize);
                lines.push((place, line.ok_or_else(|| corrupt("a scan has more blocks than the image"))?, h));
            }
        }
        for column in 0..columns as usize {
            if interval > 0 {
                if left == 0 {
                    coder.restart();
                    left = interval;
                }
                left -= 1;
            }
            for &(place, line, h) in &lines {
                for block in &line[column * h..(column + 1) * h] {
                    coder.block(place, block);
                }
            }
        }
    }
    Ok(())
}
