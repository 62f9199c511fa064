//! JPEG files of every kind that the encoder makes, drawn from a number.

use foreload::testing::rng::{RandomKey, RandomStream, Use};
use jpeg_encoder::{ColorType, Encoder, SamplingFactor};

use super::libjpeg;

/// A stream of random numbers for a test; print `number` on failure.
pub fn stream(number: u64) -> RandomStream {
    RandomKey::new(b"decode tests", 0, 0, Use::Augment).stream(number)
}

/// The image to encode, and how.
#[derive(Debug, Clone, Copy)]
pub struct Kind {
    pub width: u16,
    pub height: u16,
    pub color: ColorType,
    pub sampling: SamplingFactor,
    pub quality: u8,
    /// Whether the image has its own Huffman tables; jpeg-encoder then codes each component in its own scan.
    pub optimised: bool,
    /// Whether libjpeg encodes the image, which uses one scan.
    pub one_scan: bool,
    pub restart_interval: u16,
    pub progressive: bool,
}

impl Kind {
    /// Draws any baseline kind: gray and colour, every sampling, from 1×1 pixels on.
    pub fn baseline(stream: &mut RandomStream) -> Self {
        use SamplingFactor::*;
        let samplings = [F_1_1, F_2_1, F_1_2, F_2_2, F_4_1, F_4_2, F_1_4, F_2_4];
        let largest = if stream.below(4) == 0 { 20 } else { 150 };
        let (optimised, one_scan) = (stream.below(2) == 0, stream.below(3) > 0);
        // jpeg-encoder fails on optimised tables with restart markers.
        let restarts = (one_scan || !optimised) && stream.below(2) == 0;
        Self {
            width: 1 + stream.below(largest) as u16,
            height: 1 + stream.below(largest) as u16,
            color: if stream.below(6) == 0 { ColorType::Luma } else { ColorType::Rgb },
            sampling: samplings[stream.below(8) as usize],
            quality: 5 + stream.below(96) as u8,
            optimised,
            one_scan,
            restart_interval: if restarts { 1 + stream.below(20) as u16 } else { 0 },
            progressive: false,
        }
    }

    /// The number of components.
    pub fn channels(&self) -> usize {
        match self.color {
            ColorType::Luma => 1,
            ColorType::Rgb => 3,
            _ => 4,
        }
    }

    /// The pixels: gradients and edges under noise of random strength.
    pub fn pixels(&self, stream: &mut RandomStream) -> Vec<u8> {
        let channels = self.channels();
        let noise = 1 << stream.below(8);
        let slope: [i64; 4] = std::array::from_fn(|_| stream.below(9) as i64 - 4);
        let mut pixels = Vec::new();
        for y in 0..i64::from(self.height) {
            for x in 0..i64::from(self.width) {
                let edge = if (x / 13 + y / 11) % 5 == 0 { 90 } else { 0 };
                for slope in &slope[..channels] {
                    let value = 128 + slope * (x - y / 2) / 2 + edge + stream.below(noise) as i64;
                    pixels.push(value.clamp(0, 255) as u8);
                }
            }
        }
        pixels
    }

    /// The encoded file.
    pub fn encode(&self, stream: &mut RandomStream) -> Vec<u8> {
        let pixels = self.pixels(stream);
        if self.one_scan && self.channels() < 4 && !self.progressive {
            return self.encode_by_libjpeg(&pixels, &[]);
        }
        let mut bytes = Vec::new();
        let mut encoder = Encoder::new(&mut bytes, self.quality);
        encoder.set_sampling_factor(self.sampling);
        encoder.set_optimized_huffman_tables(self.optimised);
        encoder.set_progressive(self.progressive);
        if self.restart_interval > 0 {
            encoder.set_restart_interval(self.restart_interval);
        }
        encoder.encode(&pixels, self.width, self.height, self.color).unwrap();
        bytes
    }

    /// The file of these pixels made by libjpeg: baseline in one scan, or progressive in `scans`, or in libjpeg's
    /// default scans if `scans` is empty.
    pub fn encode_by_libjpeg(&self, pixels: &[u8], scans: &[libjpeg::Scan]) -> Vec<u8> {
        let channels = self.channels();
        // The encoder's enumeration holds the factors as a frame header does.
        let sampling = self.sampling as u32;
        let encoding = libjpeg::Encoding {
            width: self.width.into(),
            height: self.height.into(),
            channels,
            factors: (sampling >> 4, sampling & 15),
            quality: self.quality.into(),
            restart_interval: self.restart_interval.into(),
            optimised: self.optimised,
            progressive: self.progressive,
        };
        libjpeg::encode_scans(pixels, &encoding, scans)
    }
}

/// The offset of the payload of the first segment with this marker.
pub fn segment(bytes: &[u8], marker: u8) -> usize {
    let mut at = 2;
    while bytes[at + 1] != marker {
        at += 2 + usize::from(u16::from_be_bytes([bytes[at + 2], bytes[at + 3]]));
    }
    at + 4
}
