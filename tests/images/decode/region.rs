//! The planes of the region decoder equal libjpeg's, sample for sample, for any region and SIMD level.

use foreload::testing::decode::{Backend, ColorModel, Planes, Region};
use foreload::testing::rng::RandomStream;
use foreload::testing::simd::Level;

use super::images::{Kind, segment, stream};
use super::{decode, libjpeg, whole};

/// A region inside an image: a small one, a wide one, or the whole.
pub fn any_region(stream: &mut RandomStream, width: u32, height: u32) -> Region {
    let mut along = |full: u32| {
        let length = 1 + stream.below(u64::from(full)) as u32;
        (stream.below(u64::from(full - length) + 1) as u32, length)
    };
    let ((x, width), (y, height)) = (along(width), along(height));
    Region { x, y, width, height }
}

/// Checks that `planes` hold what `region` needs, and that they equal the reference's.
pub fn assert_equal(planes: &Planes, region: Region, reference: &libjpeg::Reference, what: &str) {
    for (index, (plane, (stride, expected))) in planes.planes.iter().zip(&reference.planes).enumerate() {
        let margin = |step: u32| u32::from(step > 1);
        let first_x = (region.x / plane.step_x).saturating_sub(margin(plane.step_x));
        let first_y = (region.y / plane.step_y).saturating_sub(margin(plane.step_y));
        let end_x = (region.x + region.width).div_ceil(plane.step_x) + margin(plane.step_x);
        let end_y = (region.y + region.height).div_ceil(plane.step_y) + margin(plane.step_y);
        assert_eq!(plane.full_width, planes.image_width.div_ceil(plane.step_x), "{what}");
        assert_eq!(plane.full_height, planes.image_height.div_ceil(plane.step_y), "{what}");
        assert!(plane.x0 <= first_x && plane.y0 <= first_y, "{what}");
        assert!(plane.x0 + plane.width >= end_x.min(plane.full_width), "{what}");
        assert!(plane.y0 + plane.height >= end_y.min(plane.full_height), "{what}");
        assert!(plane.data.len() >= plane.stride * plane.height as usize + 64, "{what}");
        for y in 0..plane.height {
            let width = plane.width as usize;
            let row = &plane.data[y as usize * plane.stride..][..width];
            let expected = &expected[(plane.y0 + y) as usize * stride + plane.x0 as usize..][..width];
            assert_eq!(row, expected, "{what}: plane {index}, row {}", plane.y0 + y);
        }
    }
}

/// Checks the planes of the whole image and of `turns - 1` drawn regions, at every level, against the reference's.
pub fn assert_decodes(
    bytes: &[u8],
    reference: &libjpeg::Reference,
    stream: &mut RandomStream,
    turns: usize,
    what: &str,
) {
    for turn in 0..turns {
        let choose = |width, height| {
            if turn == 0 { whole(width, height) } else { any_region(stream, width, height) }
        };
        let what = format!("{what}, region {turn}");
        let (planes, region, backend) =
            decode(bytes, Level::detect(), choose).unwrap_or_else(|error| panic!("{what}: {error}"));
        assert_eq!(backend, Backend::Region, "{what}");
        assert_equal(&planes, region, reference, &what);
        for level in Level::available() {
            let (planes, _, _) = decode(bytes, level, |_, _| region).unwrap();
            assert_equal(&planes, region, reference, &format!("{what}, {}", level.name()));
        }
    }
}

#[test]
fn planes_are_those_of_libjpeg() {
    for number in 0..400 {
        let mut stream = stream(number);
        let kind = Kind::baseline(&mut stream);
        let bytes = kind.encode(&mut stream);
        let reference = libjpeg::planes(&bytes).unwrap();
        assert_eq!(reference.warnings, 0);
        assert_decodes(&bytes, &reference, &mut stream, 4, &format!("image {number}, {kind:?}"));
    }
}

#[test]
fn a_decoder_carries_nothing_from_image_to_image() {
    let mut decoder = foreload::testing::decode::Decoder::new(1_000_000);
    let mut planes = Planes::default();
    for number in 1000..1200 {
        let mut stream = stream(number);
        let kind = Kind::baseline(&mut stream);
        let mut bytes = kind.encode(&mut stream);
        if number % 5 == 0 {
            // Decodes a damaged image in between.
            let at = segment(&bytes, 0xDA) + 20 + stream.below(30) as usize;
            let end = bytes.len() - 2;
            bytes[at.min(end)..end].fill(0x55);
            let _ = decoder.decode(&bytes, whole, &mut planes);
            continue;
        }
        let reference = libjpeg::planes(&bytes).unwrap();
        let decoded = decoder
            .decode(&bytes, |width, height| any_region(&mut stream, width, height), &mut planes)
            .unwrap();
        assert_equal(&planes, decoded.region, &reference, &format!("image {number}, {kind:?}"));
    }
}

/// A 4:4:4 image whose header says that its components are red, green and blue.
#[test]
fn colours_without_transform_are_rgb() {
    let mut stream = stream(1);
    let mut kind = Kind::baseline(&mut stream);
    (kind.color, kind.sampling) = (jpeg_encoder::ColorType::Rgb, jpeg_encoder::SamplingFactor::F_1_1);
    let mut bytes = kind.encode(&mut stream);
    let jfif = segment(&bytes, 0xE0);
    bytes[jfif] = b'X';
    let adobe = [&[0xFF, 0xEE, 0, 14][..], b"Adobe", &[0; 7]].concat();
    bytes.splice(2..2, adobe);
    let (planes, region, backend) = decode(&bytes, Level::detect(), whole).unwrap();
    assert_eq!((planes.color, backend), (ColorModel::Rgb, Backend::Region));
    assert_equal(&planes, region, &libjpeg::planes(&bytes).unwrap(), "RGB");
}

#[test]
fn what_stands_after_the_end_does_not_matter() {
    let mut stream = stream(2);
    let mut bytes = Kind::baseline(&mut stream).encode(&mut stream);
    let reference = libjpeg::planes(&bytes).unwrap();
    bytes.extend([0, 1, 2, 0xFF, 0xD8, 0xFF, 0xC0, 7]);
    let (planes, region, _) = decode(&bytes, Level::detect(), whole).unwrap();
    assert_equal(&planes, region, &reference, "trailing bytes");
}

/// Frames of Motion JPEG omit the standard's Huffman tables.
#[test]
fn missing_huffman_tables_are_the_standards() {
    let mut stream = stream(3);
    let mut kind = Kind::baseline(&mut stream);
    (kind.optimised, kind.color) = (false, jpeg_encoder::ColorType::Rgb);
    let mut bytes = kind.encode(&mut stream);
    let reference = libjpeg::planes(&bytes).unwrap();
    while bytes[..segment(&bytes, 0xDA)].windows(2).any(|pair| pair == [0xFF, 0xC4]) {
        let start = segment(&bytes, 0xC4) - 4;
        let length = usize::from(u16::from_be_bytes([bytes[start + 2], bytes[start + 3]]));
        bytes.drain(start..start + 2 + length);
    }
    let (planes, region, _) = decode(&bytes, Level::detect(), whole).unwrap();
    assert_equal(&planes, region, &reference, "Motion JPEG");
}
