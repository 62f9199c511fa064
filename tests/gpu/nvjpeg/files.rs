//! JPEG files for the tests.

use foreload::testing::decode::Region;
use foreload::testing::rng::{RandomKey, RandomStream, Use};
use libjpeg_reference::Encoding;

/// A stream of random numbers for a test.
pub fn stream(number: u64) -> RandomStream {
    RandomKey::new(b"nvjpeg tests", 0, 0, Use::Augment).stream(number)
}

/// The sampling factors of luma that GPU decoders support; chroma has (1, 1).
pub const FACTORS: [(u32, u32); 4] = [(1, 1), (2, 1), (2, 2), (1, 2)];

/// A file drawn from `random`: gray or colour, with any of [`FACTORS`], with gradients and noise.
pub fn draw(random: &mut RandomStream, progressive: bool) -> Vec<u8> {
    let (width, height) = (1 + random.below(180) as u32, 1 + random.below(140) as u32);
    let channels = if random.below(5) == 0 { 1 } else { 3 };
    let factors = if channels == 1 { (1, 1) } else { FACTORS[random.below(4) as usize] };
    let encoding = Encoding {
        width,
        height,
        channels,
        factors,
        quality: 30 + random.below(70) as i32,
        restart_interval: if random.below(3) == 0 { 1 + random.below(9) as u32 } else { 0 },
        optimised: random.below(2) == 0,
        progressive,
    };
    encode(random, &encoding)
}

/// A file of this encoding.
pub fn encode(random: &mut RandomStream, encoding: &Encoding) -> Vec<u8> {
    let mut pixels = Vec::new();
    for y in 0..encoding.height {
        for x in 0..encoding.width {
            for channel in 0..encoding.channels as u32 {
                let shade = 60 + (x * (channel + 1) + 2 * y) % 120;
                pixels.push((shade + random.below(40) as u32) as u8);
            }
        }
    }
    libjpeg_reference::encode(&pixels, encoding)
}

/// Any rectangle of an image; sometimes the whole.
pub fn region(random: &mut RandomStream, width: u32, height: u32) -> Region {
    if random.below(4) == 0 {
        return Region { x: 0, y: 0, width, height };
    }
    let mut along = |full: u32| {
        let length = 1 + random.below(u64::from(full)) as u32;
        (random.below(u64::from(full - length) + 1) as u32, length)
    };
    let ((x, width), (y, height)) = (along(width), along(height));
    Region { x, y, width, height }
}
