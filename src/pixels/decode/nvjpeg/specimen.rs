//! Makes small baseline files with known pixel values, on which nvJPEG's backends are tried. Like photographs they have
//! odd sizes, the default Huffman codes, and coefficients after runs of zeros.

use std::f64::consts::{PI, SQRT_2};
use std::sync::LazyLock;

use super::Subsampling;
use crate::decode::PlanesLayout;
use crate::decode::jpeg::annex_k_luma_codes;
use crate::decode::jpeg::packed::{ScanBits, SymbolCodes, size_of_value, value_bits};

/// The largest accepted deviation of a sample in grey levels. It allows for a decoder's rounding.
const TOLERANCE: f64 = 1.5;

/// The quantisation step of all coefficients. With this step, the DC coefficient of a block is the mean of its samples
/// minus 128.
const STEP: u8 = 8;

/// Whether `samples` equal the known samples of a specimen, within the tolerance.
pub(super) fn is_right(layout: &PlanesLayout, samples: &[u8]) -> bool {
    layout.used().iter().enumerate().all(|(component, plane)| {
        (0..plane.height).all(|y| {
            let start = plane.offset as usize + y as usize * plane.stride as usize;
            let row = &samples[start..start + plane.width as usize];
            let block = |x: u32| SpecimenBlock::at(component, x / 8, (plane.y0 + y) / 8);
            let mut of_x = block(plane.x0);
            (plane.x0..plane.x0 + plane.width).zip(row).all(|(x, sample)| {
                if x % 8 == 0 {
                    of_x = block(x);
                }
                (f64::from(*sample) - of_x.sample(x % 8, (plane.y0 + y) % 8)).abs() <= TOLERANCE
            })
        })
    })
}

struct SpecimenBlock {
    level: i32,
    /// The coefficient of a horizontal half wave: place 1 of the zigzag.
    wave: i32,
    /// The coefficient of a half wave in both directions: place 4 of the zigzag.
    bump: i32,
}

impl SpecimenBlock {
    fn at(component: usize, column: u32, row: u32) -> Self {
        let component = component as u32;
        Self {
            level: (48 + (37 * column + 59 * row + 83 * component) % 160) as i32,
            wave: ((3 * column + 5 * row + component) % 9) as i32 - 4,
            bump: if (column + row).is_multiple_of(2) { 2 } else { -2 },
        }
    }

    /// Computes a sample with the inverse DCT (ITU T.81, A.3.3).
    fn sample(&self, x: u32, y: u32) -> f64 {
        let cosine = |at: u32| COSINES[at as usize];
        let step = f64::from(STEP) / 4.0;
        f64::from(self.level)
            + step / SQRT_2 * f64::from(self.wave) * cosine(x)
            + step * f64::from(self.bump) * cosine(x) * cosine(y)
    }
}

/// The cosines of (2x + 1) π / 16, which every sample needs.
static COSINES: LazyLock<[f64; 8]> =
    LazyLock::new(|| std::array::from_fn(|x| ((2 * x + 1) as f64 * PI / 16.0).cos()));

pub(super) fn file(sampling: Subsampling, (width, height): (u32, u32)) -> Vec<u8> {
    let (h, v) = sampling.steps();
    let components: u8 = if sampling == Subsampling::Gray { 1 } else { 3 };
    let mut file = vec![0xFF, 0xD8];
    let mut segment = |marker: u8, payload: &[u8]| {
        file.extend([0xFF, marker]);
        file.extend((payload.len() as u16 + 2).to_be_bytes());
        file.extend(payload);
    };
    segment(0xE0, b"JFIF\0\x01\x01\0\0\x01\0\x01\0\0");
    segment(0xDB, &[&[0][..], &[STEP; 64]].concat());
    let ([h1, h0], [w1, w0]) = ((height as u16).to_be_bytes(), (width as u16).to_be_bytes());
    let mut frame = vec![8, h1, h0, w1, w0, components];
    let mut scan = vec![components];
    for id in 1..=components {
        let factors = if id == 1 { (h << 4 | v) as u8 } else { 0x11 };
        frame.extend([id, factors, 0]);
        scan.extend([id, 0]);
    }
    scan.extend([0, 63, 0]);
    segment(0xC0, &frame);
    let codes = annex_k_luma_codes();
    for (class, code) in [0x00, 0x10].into_iter().zip(&codes) {
        let [counts, symbols] = code.parts();
        segment(0xC4, &[&[class][..], counts, symbols].concat());
    }
    segment(0xDA, &scan);
    let [dc, ac] = codes.each_ref().map(SymbolCodes::new);
    let mut scratch = Vec::new();
    let mut writer = BlockWriter { dc, ac, bits: ScanBits::new(&mut file, &mut scratch, false) };
    let mut last = [128; 3];
    let mcus = (width.div_ceil(8 * h), height.div_ceil(8 * v));
    for (mcu_row, mcu_column) in (0..mcus.1).flat_map(|y| (0..mcus.0).map(move |x| (y, x))) {
        for (component, last) in last.iter_mut().enumerate().take(components.into()) {
            let (h, v) = if component == 0 { (h, v) } else { (1, 1) };
            for (y, x) in (0..v).flat_map(|y| (0..h).map(move |x| (y, x))) {
                let block = SpecimenBlock::at(component, mcu_column * h + x, mcu_row * v + y);
                writer.block(&block, std::mem::replace(last, block.level));
            }
        }
    }
    writer.bits.finish();
    file.extend([0xFF, 0xD9]);
    file
}

struct BlockWriter<'a> {
    dc: SymbolCodes,
    ac: SymbolCodes,
    bits: ScanBits<'a>,
}

impl BlockWriter<'_> {
    /// Writes a block that follows a block of the level `last` (ITU T.81, F.1.2).
    fn block(&mut self, block: &SpecimenBlock, last: i32) {
        let mut put = |codes: &SymbolCodes, zeros: u32, value: i32| {
            let size = size_of_value(value);
            let symbol = (zeros << 4 | size) as usize;
            let (bits, count) = codes.with_bits(symbol, value_bits(value, size), size, &mut false);
            self.bits.put(bits, count);
        };
        put(&self.dc, 0, block.level - last);
        let mut zeros = 0;
        for value in [block.wave, 0, 0, block.bump] {
            if value == 0 {
                zeros += 1;
                continue;
            }
            put(&self.ac, zeros, value);
            zeros = 0;
        }
        // The end of the block.
        put(&self.ac, 0, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decode::{Decoder, Planes, Region, parse_header};

    #[test]
    fn specimens_hold_what_they_should() {
        for (sampling, size) in
            Subsampling::ALL.into_iter().flat_map(|sampling| [(sampling, (203, 157)), (sampling, (204, 158))])
        {
            let file = file(sampling, size);
            let header = parse_header(&file).unwrap();
            assert_eq!(Subsampling::of(&header), Some(sampling));
            let mut planes = Planes::default();
            let whole = |width, height| Region { x: 0, y: 0, width, height };
            Decoder::new(1 << 20).decode(&file, whole, &mut planes).unwrap();
            let layout = PlanesLayout::of(&header, header.whole()).unwrap();
            let mut samples = vec![0; layout.bytes as usize];
            for (to, from) in layout.used().iter().zip(&planes.planes) {
                assert_eq!((from.width, from.height), (to.width, to.height));
                for y in 0..to.height as usize {
                    let start = to.offset as usize + y * to.stride as usize;
                    samples[start..][..to.width as usize]
                        .copy_from_slice(&from.data[y * from.stride..][..to.width as usize]);
                }
            }
            assert!(is_right(&layout, &samples), "{sampling:?}");
            let last = layout.used().last().unwrap();
            samples[(last.offset + u64::from((last.height - 1) * last.stride + last.width - 1)) as usize] ^=
                4;
            assert!(!is_right(&layout, &samples), "{sampling:?}: a wrong sample goes unnoticed");
        }
    }
}
