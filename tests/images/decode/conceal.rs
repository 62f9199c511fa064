//! Damaged files are decoded as libjpeg does it. If Pillow decodes a file, the result is libjpeg's coefficients,
//! transformed as in libjpeg-turbo's vector code; if Pillow refuses a file, it is refused.

use foreload::DecodeError;
use foreload::testing::decode::{Damaged, Decoded, Decoder, Planes, Region};
use foreload::testing::rng::RandomStream;
use foreload::testing::simd::Level;

use crate::seeds::seeds;

use super::images::{Kind, stream};
use super::odd_kinds::are_coded;
use super::region::{any_region, assert_equal};
use super::{libjpeg, scripts, whole};

fn conceal(bytes: &[u8], choose: impl FnOnce(u32, u32) -> Region) -> Result<(Planes, Decoded), DecodeError> {
    let mut planes = Planes::default();
    let mut decoder = Decoder::with_level(100_000_000, Level::detect()).with_damaged(Damaged::Conceal);
    let decoded = decoder.decode(bytes, choose, &mut planes)?;
    Ok((planes, decoded))
}

/// The counts of a test's files.
#[derive(Debug, Default)]
pub struct Tally {
    decoded: u32,
    refused: u32,
    pub concealed: u32,
    /// The files that end in the middle of a segment that the damage created.
    amid: u32,
    /// The files with fill bytes inside their data, which are decoded but not compared.
    filled: u32,
    /// The blocks whose coefficients overflow 16 bits in an intermediate step. A Python test compares their samples
    /// with Pillow's.
    beyond: u64,
}

/// Checks that a file gives what Pillow's libjpeg gives, as a whole and in drawn regions.
pub fn check(bytes: &[u8], stream: &mut RandomStream, tally: &mut Tally, what: &str) {
    let decoded = conceal(bytes, whole);
    let pillow_decodes = libjpeg::pillow_decodes(bytes);
    if let Err(error) = &decoded
        && pillow_decodes
        && ["ends inside the segment", "unexpected marker"]
            .iter()
            .any(|what| error.to_string().contains(what))
    {
        // It depends on libjpeg's version, and on the bytes up to the file's end, whether libjpeg gives up before this
        // point.
        tally.amid += 1;
        return;
    }
    if !pillow_decodes {
        let why = decoded.map(|(_, decoded)| decoded.concealed);
        assert!(why.is_err(), "{what}: Pillow refuses what is decoded with {why:?}");
        tally.refused += 1;
        return;
    }
    let (planes, Decoded { region, concealed, .. }) =
        decoded.unwrap_or_else(|error| panic!("{what}: Pillow decodes it, but: {error}"));
    tally.decoded += 1;
    tally.concealed += u32::from(concealed.is_some());
    if !libjpeg::planes(bytes).is_ok_and(|reference| are_coded(&planes, &reference)) {
        return;
    }
    let (reference, beyond) = expected(bytes, &planes, what);
    tally.beyond += beyond;
    let what = format!("{what}, concealed {concealed:?}");
    // If two 0xFF precede a stuffed zero, libjpeg first takes them for a marker, restarts the block and forgets to
    // clear it.
    if bytes.windows(3).any(|bytes| bytes == [0xFF, 0xFF, 0]) {
        tally.filled += 1;
        return;
    }
    assert_equal(&planes, region, &reference, &what);
    for turn in 0..3 {
        let (planes, decoded) = conceal(bytes, |width, height| any_region(stream, width, height)).unwrap();
        let what = format!("{what}, region {turn}: {:?}", decoded.region);
        assert_equal(&planes, decoded.region, &reference, &what);
    }
}

/// Libjpeg's coefficients, transformed here; and the number of blocks that are taken from `planes`, because this
/// transform cannot compute them.
fn expected(bytes: &[u8], planes: &Planes, what: &str) -> (libjpeg::Reference, u64) {
    let mut reference = libjpeg::planes(bytes).expect(what);
    // In a file with one scan, Pillow accepts a truncated segment after it; this call does not.
    let cut = scans(bytes).first().map_or(bytes.len(), |scan| scan.end);
    let (components, _) = libjpeg::coefficients(bytes)
        .or_else(|_| libjpeg::coefficients(&[&bytes[..cut], &[0xFF, 0xD9]].concat()))
        .expect(what);
    let mut beyond = 0;
    for (index, component) in components.iter().enumerate() {
        let (stride, samples) = &mut reference.planes[index];
        let plane = &planes.planes[index];
        for (number, block) in component.blocks.iter().enumerate() {
            let (x, y) = (8 * (number % component.columns), 8 * (number / component.columns));
            let transformed = transform(block, &component.steps);
            beyond += u64::from(transformed.is_none());
            for row in 0..8 {
                let out = &mut samples[(y + row) * *stride + x..][..8];
                match &transformed {
                    Some(samples) => out.copy_from_slice(&samples[8 * row..][..8]),
                    None => out.copy_from_slice(&plane.data[(y + row) * plane.stride + x..][..8]),
                }
            }
        }
    }
    (reference, beyond)
}

/// The inverse DCT of `jidctint.c` in wide arithmetic with saturated samples; `None` if a value of libjpeg-turbo's
/// vector code exceeds its 16 bits.
fn transform(block: &[i16; 64], steps: &[u16; 64]) -> Option<[u8; 64]> {
    let mut values: Vec<i64> = (0..64).map(|i| i64::from(block[i]) * i64::from(steps[i])).collect();
    if values.iter().any(|&value| i16::try_from(value).is_err()) {
        return None;
    }
    for (shift, line, step) in [(11, 1, 8), (18, 8, 1)] {
        for i in 0..8 {
            let at = |k: usize| i * line + k * step;
            let input: [i64; 8] = std::array::from_fn(|k| values[at(k)]);
            let sums = [input[0] + input[4], input[0] - input[4], input[7] + input[3], input[5] + input[1]];
            let z1 = (input[2] + input[6]) * 4433;
            let (low, high) = (z1 - input[6] * 15137, z1 + input[2] * 6270);
            let even = [
                (sums[0] << 13) + high,
                (sums[1] << 13) + low,
                (sums[1] << 13) - low,
                (sums[0] << 13) - high,
            ];
            let z5 = (sums[2] + sums[3]) * 9633;
            let (z1, z2) = ((input[7] + input[1]) * -7373, (input[5] + input[3]) * -20995);
            let (z3, z4) = (sums[2] * -16069 + z5, sums[3] * -3196 + z5);
            let odd = [
                input[1] * 12299 + z1 + z4,
                input[3] * 25172 + z2 + z3,
                input[5] * 16819 + z2 + z4,
                input[7] * 2446 + z1 + z3,
            ];
            for k in 0..4 {
                values[at(k)] = (even[k] + odd[k] + (1 << (shift - 1))) >> shift;
                values[at(7 - k)] = (even[k] - odd[k] + (1 << (shift - 1))) >> shift;
            }
            let narrow = |value: &i64| i16::try_from(*value).is_ok();
            let kept: Vec<i64> = (0..8).map(|k| values[at(k)]).collect();
            if !sums.iter().all(narrow) || !(shift == 18 || kept.iter().all(narrow)) {
                return None;
            }
        }
    }
    Some(std::array::from_fn(|i| (values[i] + 128).clamp(0, 255) as u8))
}

/// The ranges of the scans' entropy-coded data, up to the first damaged segment.
fn scans(bytes: &[u8]) -> Vec<std::ops::Range<usize>> {
    let (mut scans, mut at) = (Vec::new(), 2);
    while let Some(&[0xFF, marker @ (..=0xD8 | 0xDA..), high, low]) = bytes.get(at..at + 4) {
        at += 2 + usize::from(u16::from_be_bytes([high, low]));
        if marker == 0xDA {
            let data = bytes.get(at..).unwrap_or_default();
            let ends = |pair: &[u8]| pair[0] == 0xFF && !matches!(pair[1], 0 | 0xD0..=0xD7);
            let length = data.windows(2).position(ends).unwrap_or(data.len());
            scans.extend((length > 0).then_some(at..at + length));
            at += length;
        }
    }
    scans
}

/// Damages the entropy-coded data in one to three places.
pub fn damage(bytes: &mut Vec<u8>, stream: &mut RandomStream) {
    for _ in 0..1 + stream.below(3) {
        let scans = scans(bytes);
        if scans.is_empty() {
            return;
        }
        let scan = scans[stream.below(scans.len() as u64) as usize].clone();
        let at = scan.start + stream.below(scan.len() as u64) as usize;
        let length = (1 + stream.below(6) as usize).min(scan.end - at);
        let value = [stream.next_u32() as u8, 0, 0xFF, 0xFE, 0x55][stream.below(5) as usize];
        match stream.below(9) {
            0..=2 => bytes[at] ^= 1 << stream.below(8),
            3 => bytes[at] = value,
            4 => bytes.insert(at, value),
            5 => drop(bytes.drain(at..at + length)),
            6 => {
                let piece = bytes[at..at + length].to_vec();
                bytes.splice(at..at, piece);
            }
            // Inserts a marker at a wrong place: mostly a restart marker, sometimes any marker.
            7 => {
                let marker =
                    if stream.below(4) == 0 { stream.next_u32() as u8 } else { 0xD0 + stream.below(8) as u8 };
                bytes.splice(at..at, [0xFF, marker]);
            }
            // Removes a restart marker, or changes its index.
            _ => {
                let restarts: Vec<usize> = (scan.start..scan.end - 1)
                    .filter(|&at| bytes[at] == 0xFF && matches!(bytes[at + 1], 0xD0..=0xD7))
                    .collect();
                if !restarts.is_empty() {
                    let at = restarts[stream.below(restarts.len() as u64) as usize];
                    if stream.below(2) == 0 {
                        bytes.drain(at..at + 2);
                    } else {
                        bytes[at + 1] = 0xD0 + stream.below(8) as u8;
                    }
                }
            }
        }
    }
}

/// Makes damaged files of all kinds, each from a seed.
fn damaged(number: u64) -> (Vec<u8>, String, RandomStream) {
    let mut stream = stream(20_000 + number);
    let (mut bytes, what) = if number.is_multiple_of(3) {
        let (bytes, what) = scripts::file(&mut stream);
        (bytes, format!("{what:?}"))
    } else {
        let kind = Kind::baseline(&mut stream);
        (kind.encode(&mut stream), format!("{kind:?}"))
    };
    damage(&mut bytes, &mut stream);
    (bytes, format!("file {number}, {what}"), stream)
}

#[test]
fn damaged_files_give_what_libjpeg_gives() {
    let numbers = seeds(30_000);
    let count = numbers.end - numbers.start;
    let mut tally = Tally::default();
    for number in numbers {
        let (bytes, what, mut stream) = damaged(number);
        check(&bytes, &mut stream, &mut tally, &what);
    }
    println!("{tally:?}");
    assert!(u64::from(tally.concealed) > count / 2 && u64::from(tally.refused) > count / 50, "{tally:?}");
    assert!(u64::from(tally.amid + tally.filled) <= count / 50, "{tally:?}");
}

#[test]
fn whole_files_are_decoded_alike_by_force() {
    let mut tally = Tally::default();
    for number in 0..100 {
        let mut stream = stream(30_000 + number);
        let kind = Kind::baseline(&mut stream);
        let bytes = kind.encode(&mut stream);
        check(&bytes, &mut stream, &mut tally, &format!("image {number}, {kind:?}"));
    }
    assert_eq!((tally.decoded, tally.concealed, tally.beyond), (100, 0, 0), "{tally:?}");
}
