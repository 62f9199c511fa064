//! WebP: the decoded pixels, animations and their canvas, and the errors of truncated files.
//! `tests/python/test_webp.py` compares the same files with Pillow.

use foreload::DecodeError;
use foreload::testing::decode::{Backend, ColorModel, Decoder, Planes, Region};
use foreload::testing::simd::Level;
use image_webp::{ColorType, WebPEncoder};

use super::images::stream;
use super::odd_kinds::difference;
use super::region::any_region;
use super::{decode, whole};

/// 24×16 pixels, lossy; written by Pillow with quality 40.
pub const LOSSY: &[u8] = include_bytes!("lossy.webp");

/// A lossless file.
pub fn lossless(pixels: &[u8], width: u32, height: u32, color: ColorType) -> Vec<u8> {
    let mut file = Vec::new();
    WebPEncoder::new(&mut file).encode(pixels, width, height, color).unwrap();
    file
}

fn chunk(name: &[u8; 4], content: &[u8]) -> Vec<u8> {
    let padding = &[0][..content.len() % 2];
    [name, &(content.len() as u32).to_le_bytes()[..], content, padding].concat()
}

/// A file of these chunks.
fn riff(chunks: &[Vec<u8>]) -> Vec<u8> {
    chunk(b"RIFF", &[b"WEBP".to_vec(), chunks.concat()].concat())
}

/// A VP8X chunk: 2 in its flags says that the file is an animation.
fn extended(flags: u8, width: u32, height: u32) -> Vec<u8> {
    let size = [width - 1, height - 1].map(|side| side.to_le_bytes());
    chunk(b"VP8X", &[&[flags, 0, 0, 0][..], &size[0][..3], &size[1][..3]].concat())
}

/// The frame of an animation with the chunk that codes it.
fn frame(x: u32, y: u32, width: u32, height: u32, coded: &[u8]) -> Vec<u8> {
    let numbers = [x / 2, y / 2, width - 1, height - 1, 100].map(|number| number.to_le_bytes());
    let numbers: Vec<u8> = numbers.iter().flat_map(|number| number[..3].to_vec()).collect();
    chunk(b"ANMF", &[&numbers[..], &[0], coded].concat())
}

fn animation(width: u32, height: u32, frames: &[Vec<u8>]) -> Vec<u8> {
    riff(&[&[extended(2, width, height), chunk(b"ANIM", &[255, 255, 255, 255, 0, 0])], frames].concat())
}

/// The chunk that codes the image of a simple file.
fn coded(file: &[u8]) -> Vec<u8> {
    file[12..].to_vec()
}

fn reason(bytes: &[u8]) -> String {
    decode(bytes, Level::detect(), whole).unwrap_err().to_string()
}

#[test]
fn lossless_pixels_are_those_of_the_file() {
    for (number, color) in [ColorType::L8, ColorType::Rgb8, ColorType::Rgba8].into_iter().enumerate() {
        let mut stream = stream(5000 + number as u64);
        let (width, height) = (37, 23);
        let bytes = [1, 3, 4][number];
        let pixels: Vec<u8> = (0..width * height * bytes).map(|_| stream.below(256) as u8).collect();
        let file = lossless(&pixels, width, height, color);
        let expected: Vec<u8> = pixels
            .chunks(bytes as usize)
            .flat_map(|pixel| if bytes == 1 { [pixel[0]; 3] } else { [pixel[0], pixel[1], pixel[2]] })
            .collect();
        let choose = |width, height| any_region(&mut stream, width, height);
        let (planes, region, backend) = decode(&file, Level::detect(), choose).unwrap();
        assert_eq!((backend, planes.color), (Backend::WebP, ColorModel::Rgb));
        assert_eq!(difference(&planes, region, &expected), 0, "{color:?}");
    }
}

#[test]
fn what_is_not_whole_is_an_error() {
    let pixels: Vec<u8> = (0..3 * 19 * 11).map(|i| (i * 31 % 251) as u8).collect();
    let lossless = lossless(&pixels, 19, 11, ColorType::Rgb8);
    let framed = animation(24, 16, &[frame(0, 0, 24, 16, &coded(LOSSY))]);
    for file in [LOSSY, &lossless, &framed] {
        assert!(decode(file, Level::detect(), whole).is_ok());
        for length in 0..file.len() - file.len() % 2 {
            assert!(decode(&file[..length], Level::detect(), whole).is_err(), "{length} of {}", file.len());
        }
    }
    assert!(reason(&LOSSY[..60]).contains("truncated: has 60 of 122 bytes"), "{}", reason(&LOSSY[..60]));
}

#[test]
fn other_chunks_are_passed_over() {
    let plain = decode(LOSSY, Level::detect(), whole).unwrap().0;
    // The flags promise alpha and texts, and chunks have odd lengths. The alpha is damaged, but the decoder does not
    // read it.
    let chunks = [
        extended(0x3C, 24, 16),
        chunk(b"ICCP", b"x"),
        chunk(b"ALPH", b"?"),
        coded(LOSSY),
        chunk(b"EXIF", b"abc"),
    ];
    let found = decode(&riff(&chunks), Level::detect(), whole).unwrap().0;
    for (plane, other) in plain.planes.iter().zip(&found.planes) {
        assert!(plane.data[..24 * 16] == other.data[..24 * 16]);
    }
}

#[test]
fn of_an_animation_the_first_frame_is_decoded() {
    let small = lossless(&[10, 20, 30, 40, 50, 60], 2, 1, ColorType::Rgb8);
    let other = lossless(&[200; 12], 2, 2, ColorType::Rgb8);
    let file = animation(6, 4, &[frame(2, 2, 2, 1, &coded(&small)), frame(0, 0, 2, 2, &coded(&other))]);
    let (planes, region, _) = decode(&file, Level::detect(), whole).unwrap();
    let mut expected = vec![0; 6 * 4 * 3];
    expected[(2 * 6 + 2) * 3..][..6].copy_from_slice(&[10, 20, 30, 40, 50, 60]);
    assert_eq!((region, difference(&planes, region, &expected)), (whole(6, 4), 0));
}

#[test]
fn headers_that_contradict_each_other_are_errors() {
    let image = coded(LOSSY);
    let size = "its image has another size than its header says";
    assert!(reason(&riff(&[extended(0, 25, 16), image.clone()])).contains(size));
    assert!(reason(&animation(24, 15, &[frame(0, 0, 24, 16, &image)])).contains(size));
    assert!(reason(&animation(24, 18, &[frame(0, 4, 24, 16, &image)])).contains(size));
    assert!(
        reason(&animation(50, 50, &[frame(0, 0, 23, 16, &image)])).contains("first frame has another size")
    );
    assert!(reason(&animation(50, 50, &[])).contains("without frames"));
    assert!(reason(&riff(&[chunk(b"EXIF", b"")])).contains("no image"));
    assert!(reason(&riff(&[chunk(b"VP8X", b"123")])).contains("VP8X chunk is too short"));
    assert!(reason(&riff(&[chunk(b"VP8 ", b"123")])).contains("states a size of 0"));
    let mut wide = lossless(&[0; 3], 1, 1, ColorType::Rgb8);
    // The width is 16384 columns, which the decoder reads as 0.
    wide[21] = 0xFF;
    wide[22] |= 0x3F;
    assert!(decode(&wide, Level::detect(), |_, _| Region { x: 0, y: 0, width: 1, height: 1 }).is_err());
}

#[test]
fn too_many_pixels_are_refused_before_memory_is_taken() {
    let mut decoder = Decoder::new(24 * 16 - 1);
    let mut refused = |bytes: &[u8]| decoder.decode(bytes, whole, &mut Planes::default()).unwrap_err();
    assert_eq!(refused(LOSSY), DecodeError::TooLarge { width: 24, height: 16, limit: 383 });
    // The canvas has 2⁴⁸ pixels.
    let side = 1 << 24;
    let huge = animation(side, side, &[frame(0, 0, 24, 16, &coded(LOSSY))]);
    assert_eq!(refused(&huge), DecodeError::TooLarge { width: side, height: side, limit: 383 });
}
