//! Kinds of JPEG whose planes are not their components: four components, subsampled RGB, samples of three pixels. Whole
//! files give libjpeg's pixels, and a damaged file is decoded if Pillow decodes it. A Python test compares the pixels
//! of damaged files with Pillow's.

use foreload::DecodeError;
use foreload::testing::decode::{Backend, ColorModel, Decoder, Plane, Planes, Region};
use foreload::testing::rng::RandomStream;
use foreload::testing::simd::Level;
use libjpeg_reference::{Encoding, J_COLOR_SPACE};

use super::conceal::{Tally, check, damage};
use super::images::{segment, stream};
use super::region::{any_region, assert_equal};
use super::{decode, libjpeg, whole};

/// The sampling factors of the components. Images with three components use the first three.
const FACTORS: [[(u32, u32); 4]; 10] = [
    [(1, 1); 4],
    [(2, 1), (1, 1), (1, 1), (2, 1)],
    [(1, 2), (1, 1), (1, 1), (1, 2)],
    [(2, 2), (1, 1), (1, 1), (2, 2)],
    [(3, 1), (1, 1), (1, 1), (3, 1)],
    [(3, 2), (1, 1), (1, 1), (1, 1)],
    [(1, 3), (1, 1), (1, 1), (1, 1)],
    [(4, 1), (1, 1), (2, 1), (1, 1)],
    [(1, 1), (2, 2), (1, 2), (1, 1)],
    [(1, 1), (3, 1), (3, 1), (1, 1)],
];

const SPACES: [J_COLOR_SPACE; 4] =
    [J_COLOR_SPACE::JCS_YCbCr, J_COLOR_SPACE::JCS_RGB, J_COLOR_SPACE::JCS_CMYK, J_COLOR_SPACE::JCS_YCCK];

/// A file of the kind with this index, and its description.
fn file(number: usize, stream: &mut RandomStream) -> (Vec<u8>, String) {
    let (space, factors) = (SPACES[number % 4], FACTORS[number / 4 % FACTORS.len()]);
    let channels = if number % 4 < 2 { 3 } else { 4 };
    let image = Encoding {
        width: 1 + stream.below(70) as u32,
        height: 1 + stream.below(70) as u32,
        channels,
        factors: (1, 1),
        quality: 50 + stream.below(50) as i32,
        restart_interval: stream.below(2) as u32 * (1 + stream.below(6) as u32),
        optimised: stream.below(2) == 0,
        progressive: number / 40 % 2 == 1,
    };
    let noise = 1 << stream.below(8);
    let (across, down) = (stream.below(9) as u32, stream.below(9) as u32);
    let pixel = |x: u32, y: u32, channel: u32| 40 * channel + across * x / 4 + down * y / 4;
    let mut pixels = Vec::new();
    for (y, x) in (0..image.height).flat_map(|y| (0..image.width).map(move |x| (y, x))) {
        pixels.extend((0..channels as u32).map(|c| (pixel(x, y, c) + stream.below(noise) as u32) as u8));
    }
    let bytes = libjpeg::encode_in(&pixels, &image, space, &factors[..channels]);
    (bytes, format!("file {number}, {image:?}, {factors:?}"))
}

/// The largest difference between the planes' region and an image of interleaved pixels.
pub fn difference(planes: &Planes, region: Region, image: &[u8]) -> u8 {
    let channels = if planes.color == ColorModel::Gray { 1 } else { 3 };
    let at = |plane: &Plane, x: u32, y: u32| {
        plane.data[(y - plane.y0) as usize * plane.stride + (x - plane.x0) as usize]
    };
    let mut largest = 0;
    for y in region.y..region.y + region.height {
        for x in region.x..region.x + region.width {
            let pixel = (y * planes.image_width + x) as usize * channels;
            for (plane, &expected) in planes.planes.iter().zip(&image[pixel..pixel + channels]) {
                largest = largest.max(at(plane, x, y).abs_diff(expected));
            }
        }
    }
    largest
}

/// Whether planes are the coded components of a file.
pub fn are_coded(planes: &Planes, reference: &libjpeg::Reference) -> bool {
    let is_coded = |(index, plane): (usize, &Plane)| reference.steps(index) == (plane.step_x, plane.step_y);
    let count = reference.planes.len();
    count < 4 && planes.planes[..count].iter().enumerate().all(is_coded)
}

/// Checks that the planes' region equals libjpeg's: its components, or, if the decoder does not return components, its
/// pixels, with inks converted as Pillow does it.
pub fn assert_is_libjpegs(
    planes: &Planes,
    region: Region,
    bytes: &[u8],
    reference: &libjpeg::Reference,
    what: &str,
) {
    if are_coded(planes, reference) {
        return assert_equal(planes, region, reference, what);
    }
    let is_ink = reference.planes.len() == 4;
    let space = match planes.color {
        _ if is_ink => J_COLOR_SPACE::JCS_CMYK,
        ColorModel::YCbCr => J_COLOR_SPACE::JCS_YCbCr,
        _ => J_COLOR_SPACE::JCS_RGB,
    };
    let (pixels, _) = libjpeg::pixels(bytes, space).expect(what);
    // The values are inverted, as Pillow reads them. Then the ink and the black each absorb a part of the light.
    let cmyk_to_rgb = |pixel: &[u8]| {
        let light = f64::from(pixel[3]);
        [0, 1, 2].map(|i| (light - f64::from(255 - pixel[i]) * light / 255.0).round() as u8)
    };
    let pixels = if is_ink { pixels.chunks(4).flat_map(cmyk_to_rgb).collect() } else { pixels };
    let difference = difference(planes, region, &pixels);
    assert!(difference <= u8::from(is_ink), "{what}, {region:?}: {difference}");
}

#[test]
fn whole_files_give_libjpegs_pixels() {
    for number in 0..4 * FACTORS.len() * 4 {
        let mut stream = stream(3000 + number as u64);
        let (bytes, what) = file(number, &mut stream);
        let reference = libjpeg::planes(&bytes).unwrap();
        for (turn, level) in Level::available().chain(Level::available()).enumerate() {
            let choose = |width, height| {
                if turn == 0 { whole(width, height) } else { any_region(&mut stream, width, height) }
            };
            let (planes, region, backend) =
                decode(&bytes, level, choose).unwrap_or_else(|error| panic!("{what}: {error}"));
            assert_eq!(backend, Backend::Region, "{what}");
            assert_is_libjpegs(&planes, region, &bytes, &reference, &what);
        }
    }
}

#[test]
fn damage_is_found_and_concealed_or_refused() {
    let mut tally = Tally::default();
    for number in 0..400 {
        let mut stream = stream(3500 + number as u64);
        let (mut bytes, what) = file(number, &mut stream);
        damage(&mut bytes, &mut stream);
        let concealed = tally.concealed;
        check(&bytes, &mut stream, &mut tally, &what);
        let refused = Decoder::new(10_000).decode(&bytes, whole, &mut Planes::default()).is_err();
        assert!(refused || tally.concealed == concealed, "{what}");
    }
    println!("{tally:?}");
    assert!(tally.concealed > 200, "{tally:?}");
}

#[test]
fn samples_of_parts_of_pixels_are_unsupported_and_named() {
    let mut stream = stream(3999);
    let (mut bytes, what) = file(16, &mut stream);
    let frame = segment(&bytes, 0xC0);
    bytes[frame + 10] = 0x21;
    assert!(libjpeg::pixels(&bytes, J_COLOR_SPACE::JCS_RGB).is_err(), "{what}");
    match decode(&bytes, Level::detect(), whole).map(|_| ()) {
        Err(DecodeError::Unsupported(message)) => {
            assert!(message.contains("factors 2×1 and 3×1") && message.contains("encode"), "{message}");
        }
        other => panic!("{other:?}"),
    }
}
