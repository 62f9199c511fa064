//! Damaged images: whatever is flipped, cut or spliced, the decoder returns pixels or an error, never a panic, and the
//! same result with every instruction set. `FORELOAD_FUZZ_SECONDS` sets a longer duration than the default in
//! `common/fuzz.rs`.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

use foreload::testing::decode::{ColorModel, Damaged, Decoder, Planes, Region};
use foreload::testing::rng::{RandomKey, RandomStream, Use};
use foreload::testing::simd::Level;
use jpeg_encoder::{ColorType, Encoder, SamplingFactor};

use super::{scripts, webp};
use crate::fuzz::{fuzz_seed, fuzz_time};

/// A small valid image of any kind.
pub fn image(stream: &mut RandomStream) -> Vec<u8> {
    use SamplingFactor::*;
    if stream.below(5) == 0 {
        return scripts::file(stream).0;
    }
    let (width, height) = (1 + stream.below(70) as u16, 1 + stream.below(70) as u16);
    let pixels: Vec<u8> = (0..4 * usize::from(width) * usize::from(height))
        .map(|i| (i as u64 / 9 + stream.below(60)) as u8)
        .collect();
    let mut bytes = Vec::new();
    if stream.below(12) == 0 {
        let mut encoder = png::Encoder::new(&mut bytes, width.into(), height.into());
        encoder.set_color(png::ColorType::Rgba);
        encoder.write_header().unwrap().write_image_data(&pixels).unwrap();
        return bytes;
    }
    match stream.below(16) {
        0 => {
            let color = image_webp::ColorType::Rgba8;
            return webp::lossless(&pixels, width.into(), height.into(), color);
        }
        1 => return webp::LOSSY.to_vec(),
        _ => {}
    }
    let mut encoder = Encoder::new(&mut bytes, 10 + stream.below(90) as u8);
    let samplings = [F_1_1, F_2_1, F_1_2, F_2_2, F_4_1, F_4_2, F_1_4, F_2_4];
    encoder.set_sampling_factor(samplings[stream.below(8) as usize]);
    encoder.set_progressive(stream.below(6) == 0);
    match stream.below(3) {
        0 => encoder.set_restart_interval(1 + stream.below(9) as u16),
        1 => encoder.set_optimized_huffman_tables(true),
        _ => {}
    }
    let colors = [ColorType::Rgba, ColorType::Rgba, ColorType::Luma, ColorType::CmykAsYcck];
    encoder.encode(&pixels, width, height, colors[stream.below(4) as usize]).unwrap();
    bytes
}

/// Damages the file in one to four places, headers more often than the rest.
pub fn damage(bytes: &mut Vec<u8>, stream: &mut RandomStream) {
    for _ in 0..1 + stream.below(4) {
        if bytes.len() < 4 {
            return;
        }
        let reach = if stream.below(2) == 0 { bytes.len().min(700) } else { bytes.len() } as u64;
        let at = stream.below(reach) as usize;
        let length = 1 + stream.below(16.min(bytes.len() as u64 - at as u64)) as usize;
        match stream.below(7) {
            0 | 1 => bytes[at] ^= 1 << stream.below(8),
            2 => bytes[at] = stream.next_u32() as u8,
            3 => bytes[at] = [0, 1, 0x7F, 0x80, 0xFE, 0xFF][stream.below(6) as usize],
            4 => bytes.truncate(at),
            5 => {
                let piece = bytes[at..at + length].to_vec();
                let to = stream.below(bytes.len() as u64) as usize;
                bytes.splice(to..to, piece);
            }
            _ => drop(bytes.drain(at..at + length)),
        }
    }
}

/// A random region of an image of this size.
pub fn region(seed: u64, (full_width, full_height): (u32, u32)) -> Region {
    let mut stream = RandomKey::new(b"fuzz region", seed, 0, Use::Augment).stream(0);
    let (width, height) =
        (1 + stream.below(full_width.into()) as u32, 1 + stream.below(full_height.into()) as u32);
    let x = stream.below(u64::from(full_width - width) + 1) as u32;
    let y = stream.below(u64::from(full_height - height) + 1) as u32;
    Region { x, y, width, height }
}

/// The result of the decoder: the error's message, or the region's samples.
pub fn answer(
    decoder: &mut Decoder,
    planes: &mut Planes,
    bytes: &[u8],
    seed: u64,
) -> Result<Vec<u8>, String> {
    let choose = |width, height| region(seed, (width, height));
    decoder.decode(bytes, choose, planes).map_err(|error| error.to_string())?;
    Ok(samples(planes))
}

/// Decoders for every SIMD level with this setting for damage.
pub fn decoders(damaged: Damaged) -> Vec<(Decoder, Planes)> {
    let decoder = |level| Decoder::with_level(1_000_000, level).with_damaged(damaged);
    Level::available().map(|level| (decoder(level), Planes::default())).collect()
}

/// The common result of all `decoders`.
pub fn answers(decoders: &mut [(Decoder, Planes)], bytes: &[u8], seed: u64) -> Result<Vec<u8>, String> {
    let mut answers = decoders.iter_mut().map(|(decoder, planes)| {
        catch_unwind(AssertUnwindSafe(|| answer(decoder, planes, bytes, seed)))
            .unwrap_or_else(|_| panic!("the decoder panicked: FORELOAD_FUZZ_SEED={seed}"))
    });
    let first = answers.next().unwrap();
    assert!(answers.all(|other| other == first), "levels differ: FORELOAD_FUZZ_SEED={seed}");
    first
}

/// The samples of the planes that are used, plane by plane and row by row.
pub fn samples(planes: &Planes) -> Vec<u8> {
    let used = if planes.color == ColorModel::Gray { 1 } else { 3 };
    let rows = planes.planes[..used].iter().flat_map(|plane| {
        (0..plane.height as usize).map(|y| &plane.data[y * plane.stride..][..plane.width as usize])
    });
    rows.flatten().copied().collect()
}

/// The runs of a test, each with its seed and random numbers: for the requested time, and at least so many that all
/// outcomes occur, even on a slow machine.
pub fn fuzz_runs(name: &[u8]) -> impl Iterator<Item = (u64, RandomStream)> {
    let (first, start) = (fuzz_seed(), Instant::now());
    println!("seeds from FORELOAD_FUZZ_SEED={first} on");
    let seeds =
        (first..).zip(0u64..).take_while(move |(_, runs)| start.elapsed() < fuzz_time() || *runs < 500);
    seeds.map(move |(seed, _)| (seed, RandomKey::new(name, seed, 0, Use::Augment).stream(0)))
}

#[test]
fn damaged_images_give_pixels_or_an_error() {
    let (mut decoders, mut concealing) = (decoders(Damaged::Refuse), decoders(Damaged::Conceal));
    let (mut runs, mut pixels, mut concealed) = (0u64, 0u64, 0u64);
    for (seed, mut stream) in fuzz_runs(b"fuzz") {
        let mut bytes = image(&mut stream);
        damage(&mut bytes, &mut stream);
        let [refusing, concealing] =
            [&mut decoders, &mut concealing].map(|decoders| answers(decoders, &bytes, seed));
        if refusing.is_ok() {
            assert!(refusing == concealing, "nothing to conceal, but: FORELOAD_FUZZ_SEED={seed}");
        }
        pixels += u64::from(refusing.is_ok());
        concealed += u64::from(refusing.is_err() && concealing.is_ok());
        runs += 1;
    }
    let counts =
        format!("{runs} images, {pixels} of them decoded, {concealed} more with their damage concealed");
    println!("{counts}");
    assert!(pixels > 0 && concealed > 0 && pixels + concealed < runs, "{counts}");
}
