//! Invalid files: each is refused with an error that names the problem.

use foreload::DecodeError;
use foreload::testing::decode::{Decoder, Planes, Region};
use foreload::testing::simd::Level;

use super::images::{Kind, segment, stream};
use super::{decode, whole};

fn error(bytes: &[u8]) -> DecodeError {
    decode(bytes, Level::detect(), whole).map(|_| ()).unwrap_err()
}

#[test]
fn a_truncated_file_is_refused_whatever_the_region() {
    for (number, progressive) in [(0, false), (1, false), (2, true)] {
        let mut stream = stream(5000 + number);
        let mut kind = Kind::baseline(&mut stream);
        kind.progressive = progressive;
        let bytes = kind.encode(&mut stream);
        for length in 3..bytes.len() {
            let top = |width, _| Region { x: 0, y: 0, width, height: 1 };
            let result = decode(&bytes[..length], Level::detect(), top);
            let message = result.map(|_| ()).unwrap_err().to_string();
            assert!(message.starts_with("corrupt image:"), "{kind:?}, {length} bytes: {message}");
        }
    }
}

#[test]
fn kinds_that_no_decoder_knows_are_named() {
    let mut stream = stream(5100);
    let bytes = Kind::baseline(&mut stream).encode(&mut stream);
    let frame = segment(&bytes, 0xC0);
    for (marker, name) in [(0xC9, "arithmetic"), (0xC3, "lossless"), (0xC5, "hierarchical")] {
        let mut bytes = bytes.clone();
        bytes[frame - 3] = marker;
        let message = error(&bytes).to_string();
        assert!(message.starts_with("unsupported image:") && message.contains(name), "{message}");
    }
    let mut bytes = bytes.clone();
    bytes[frame] = 12;
    assert_eq!(error(&bytes), DecodeError::Unsupported("JPEG with 12 bits per sample".into()));
}

#[test]
fn too_many_pixels_are_refused_before_memory_is_taken() {
    let mut stream = stream(5200);
    let mut kind = Kind::baseline(&mut stream);
    for progressive in [false, true] {
        kind.progressive = progressive;
        let mut bytes = kind.encode(&mut stream);
        let frame = segment(&bytes, if progressive { 0xC2 } else { 0xC0 });
        bytes[frame + 1..frame + 5].fill(0xFF);
        let decode = |limit| Decoder::new(limit).decode(&bytes, whole, &mut Planes::default()).unwrap_err();
        let limit = 50_000_000;
        assert_eq!(decode(limit), DecodeError::TooLarge { width: 65535, height: 65535, limit });
        // Even if the limit allows the size, the file is too short for so many blocks.
        assert!(decode(u64::MAX).to_string().contains("cannot hold"));
    }
}

#[test]
fn damage_is_located() {
    let mut stream = stream(5300);
    let mut kind = Kind::baseline(&mut stream);
    (kind.width, kind.height, kind.restart_interval, kind.quality) = (150, 150, 0, 90);
    let bytes = kind.encode(&mut stream);
    let (start, end) = (segment(&bytes, 0xDA) + 12, bytes.len() - 2);
    let mut found = 0;
    for _ in 0..50 {
        let at = start + stream.below((end - start - 60) as u64) as usize;
        let mut bytes = bytes.clone();
        let damage = if bytes[at - 1] == 0xFF { 0 } else { 0xFE };
        bytes[at..at + 40].fill(damage);
        if let Err(error) = decode(&bytes, Level::detect(), whole) {
            let message = error.to_string();
            // Some damage ends the scan early, as if the file were truncated.
            if !message.contains("truncated") {
                assert!(message.contains("near byte") && message.contains("in MCU"), "{message}");
                found += 1;
            }
        }
    }
    assert!(found > 30, "{found}");
}

#[test]
fn restart_markers_must_be_complete_and_in_turn() {
    let mut stream = stream(5400);
    let mut kind = Kind::baseline(&mut stream);
    (kind.width, kind.height, kind.restart_interval, kind.one_scan) = (150, 100, 3, true);
    let bytes = kind.encode(&mut stream);
    let start = segment(&bytes, 0xDA);
    let restart = start + bytes[start..].windows(2).position(|pair| pair == [0xFF, 0xD1]).unwrap();
    let mut wrong = bytes.clone();
    wrong[restart + 1] = 0xD5;
    assert!(error(&wrong).to_string().contains("out of order"));
    let interval = segment(&bytes, 0xDD);
    let mut fewer = bytes.clone();
    fewer[interval + 1] = 2;
    assert!(error(&fewer).to_string().contains("restart intervals"));
}
