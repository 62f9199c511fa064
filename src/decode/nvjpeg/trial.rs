//! What a GPU can do, by trying: small images whose samples are known are decoded by every rung, whole and in part.
//!
//! What the library says it supports is asked for every image besides; but a region that lands a few samples beside where
//! it should, or planes in another order, would go unnoticed into every batch, and what holds of one GPU and version of
//! nvJPEG need not hold of another.

use super::{
    Abilities, Ability, Decoder, LARGE_BATCH, Library, PlaneTarget, PlanesLayout, Request, Rung, Subsampling,
};
use crate::decode::{Header, Region, parse_header};
use crate::error::{Error, Result};
use crate::gpu::{Device, Flight, MemoryPool, PinnedBuffer, Stream};

/// Not a multiple of any MCU, and not smaller than what decoding engines take.
const SIZE: (u32, u32) = (200, 152);

/// Copies of the image in a trial: enough for Huffman codes to be decoded on the GPU.
const BATCH: usize = LARGE_BATCH + 1;

/// Parts of the image: inside, and to its right and lower edges.
const REGIONS: [Region; 2] = [
    Region { x: 37, y: 41, width: 50, height: 30 },
    Region { x: 130, y: 90, width: SIZE.0 - 130, height: SIZE.1 - 90 },
];

/// Levels that a decoder may be off.
const TOLERANCE: u8 = 1;

impl Abilities {
    /// Finds out what nvJPEG can do on this GPU. It takes some milliseconds and leaves nothing behind.
    ///
    /// # Errors
    /// Where nvJPEG cannot work with the GPU at all, or the GPU fails.
    pub fn probe(library: &Library, device: &Device) -> Result<Self> {
        let mut trial = Trial {
            decoder: Decoder::new(library, device, BATCH)?,
            stream: Stream::new(device)?,
            pool: MemoryPool::new(device, device.memory()?.1 as usize)?,
            device: device.clone(),
        };
        let mut abilities = Self::default();
        for sampling in Subsampling::ALL {
            let file = file(sampling);
            let header = parse_header(&file)?;
            for rung in Rung::ALL {
                let ability = if trial.agrees(rung, &file, &header, &REGIONS)? {
                    Ability::Region
                } else if trial.agrees(rung, &file, &header, &[header.whole()])? {
                    Ability::Whole
                } else {
                    Ability::None
                };
                abilities.set(rung, sampling, ability);
            }
        }
        Ok(abilities)
    }
}

struct Trial {
    decoder: Decoder,
    stream: Stream,
    pool: MemoryPool,
    device: Device,
}

impl Trial {
    /// Whether a batch of the image's regions comes out as it should.
    fn agrees(&mut self, rung: Rung, file: &[u8], header: &Header, regions: &[Region]) -> Result<bool> {
        let unlaid = || Error::Internal("an image for trials without a layout".into());
        let layouts = regions.iter().map(|&region| PlanesLayout::of(header, region).ok_or_else(unlaid));
        let layouts: Vec<PlanesLayout> = layouts.collect::<Result<_>>()?;
        // Other rungs do the same whatever the count.
        let count = if rung == Rung::CudaBatched { BATCH } else { 4 };
        let largest = layouts.iter().map(|layout| layout.bytes).max().unwrap_or(0) as usize;
        let memory = self.pool.allocate(&self.stream, count * largest)?;
        // What a decoder leaves out must not look right by chance.
        let mut flight = Flight::new(&self.stream)?;
        flight.fill(memory.whole(), 0)?;
        let mut bytes = PinnedBuffer::new(&self.device, file.len())?;
        bytes.copy_from_slice(file);
        let layout = |index: usize| &layouts[index % layouts.len()];
        let requests: Vec<Request<'_>> = (0..count)
            .map(|index| {
                let at = memory.ptr() + (index * largest) as u64;
                let planes = layout(index).planes;
                let planes = planes.map(|p| PlaneTarget { ptr: at + p.offset, stride: p.stride });
                Request { bytes: &bytes, header, layout: layout(index), planes }
            })
            .collect();
        let outcomes = self.decoder.decode(&self.stream, rung, &requests);
        // Whatever came out, what was queued reads and writes what is freed here.
        self.stream.synchronize()?;
        if outcomes?.iter().any(Result::is_err) {
            return Ok(false);
        }
        let samples = PinnedBuffer::new(&self.device, count * largest)?;
        let samples = self.stream.copy_to_host(samples, memory.whole())?;
        Ok((0..count).all(|index| is_right(layout(index), &samples[index * largest..])))
    }
}

/// Whether the planes hold what [`level`] says.
fn is_right(layout: &PlanesLayout, samples: &[u8]) -> bool {
    layout.used().iter().enumerate().all(|(component, plane)| {
        (0..plane.height).all(|y| {
            let row = plane.offset as usize + y as usize * plane.stride as usize;
            (0..plane.width).all(|x| {
                let expected = level(component, (plane.x0 + x) / 8, (plane.y0 + y) / 8);
                samples[row + x as usize].abs_diff(expected) <= TOLERANCE
            })
        })
    })
}

/// The level of all samples of a block.
fn level(component: usize, column: u32, row: u32) -> u8 {
    (48 + (37 * column + 59 * row + 83 * component as u32) % 160) as u8
}

/// A baseline file whose blocks are of one level each.
fn file(sampling: Subsampling) -> Vec<u8> {
    let (h, v) = sampling.steps();
    let components: u8 = if sampling == Subsampling::Gray { 1 } else { 3 };
    let mut file = vec![0xFF, 0xD8];
    let mut segment = |marker: u8, payload: &[u8]| {
        file.extend([0xFF, marker]);
        file.extend((payload.len() as u16 + 2).to_be_bytes());
        file.extend(payload);
    };
    segment(0xE0, b"JFIF\0\x01\x01\0\0\x01\0\x01\0\0");
    // Every step is 8: a block's mean is then its DC coefficient, from 128 on.
    segment(0xDB, &[&[0][..], &[8; 64]].concat());
    let ([h1, h0], [w1, w0]) = ((SIZE.1 as u16).to_be_bytes(), (SIZE.0 as u16).to_be_bytes());
    let mut frame = vec![8, h1, h0, w1, w0, components];
    let mut scan = vec![components];
    for id in 1..=components {
        let factors = if id == 1 { (h << 4 | v) as u8 } else { 0x11 };
        frame.extend([id, factors, 0]);
        scan.extend([id, 0]);
    }
    scan.extend([0, 63, 0]);
    segment(0xC0, &frame);
    // DC: the sizes 0 to 8 by codes of four bits. AC: the end of the block by one bit.
    segment(0xC4, &[&[0x00, 0, 0, 0, 9][..], &[0; 12], &[0, 1, 2, 3, 4, 5, 6, 7, 8]].concat());
    segment(0xC4, &[&[0x10, 1][..], &[0; 15], &[0]].concat());
    segment(0xDA, &scan);
    let mut bits = Bits::default();
    let mut last = [128; 3];
    let mcus = (SIZE.0.div_ceil(8 * h), SIZE.1.div_ceil(8 * v));
    for (mcu_row, mcu_column) in (0..mcus.1).flat_map(|y| (0..mcus.0).map(move |x| (y, x))) {
        for (component, last) in last.iter_mut().enumerate().take(components.into()) {
            let (h, v) = if component == 0 { (h, v) } else { (1, 1) };
            for (y, x) in (0..v).flat_map(|y| (0..h).map(move |x| (y, x))) {
                let level = i32::from(level(component, mcu_column * h + x, mcu_row * v + y));
                bits.block(level - std::mem::replace(last, level));
            }
        }
    }
    file.extend(bits.end());
    file.extend([0xFF, 0xD9]);
    file
}

/// Entropy-coded bytes in the making.
#[derive(Default)]
struct Bits {
    bytes: Vec<u8>,
    pending: u32,
    count: u32,
}

impl Bits {
    /// A block of the DC difference alone (ITU T.81, F.1.2.1).
    fn block(&mut self, difference: i32) {
        let size = 32 - difference.unsigned_abs().leading_zeros();
        self.put(size, 4);
        let code = if difference < 0 { difference - 1 } else { difference };
        self.put(code as u32 & ((1 << size) - 1), size);
        self.put(0, 1);
    }

    fn put(&mut self, value: u32, count: u32) {
        self.pending = self.pending << count | value;
        self.count += count;
        while self.count >= 8 {
            self.count -= 8;
            let byte = (self.pending >> self.count) as u8;
            self.bytes.push(byte);
            if byte == 0xFF {
                self.bytes.push(0);
            }
        }
    }

    fn end(mut self) -> Vec<u8> {
        if self.count > 0 {
            let missing = 8 - self.count;
            self.put((1 << missing) - 1, missing);
        }
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decode::{Decoder, Planes};

    #[test]
    fn trial_images_hold_what_they_should() {
        for sampling in Subsampling::ALL {
            let file = file(sampling);
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
            samples[layout.used().last().unwrap().offset as usize] ^= 2;
            assert!(!is_right(&layout, &samples), "{sampling:?}: a wrong sample goes unnoticed");
        }
    }
}
