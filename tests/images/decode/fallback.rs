//! What the other decoders do: four-component JPEG, baseline and progressive, and PNG. All of it is cropped to the
//! region.

use foreload::testing::decode::{Backend, ColorModel, Plane, Planes, Region};
use foreload::testing::simd::Level;
use jpeg_encoder::{ColorType, SamplingFactor};
use libjpeg_reference::J_COLOR_SPACE;

use super::images::{Kind, stream};
use super::region::any_region;
use super::{decode, libjpeg};

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

#[test]
fn four_components_become_rgb_as_pillow_has_it() {
    for number in 0..40 {
        let mut stream = stream(3000 + number);
        let mut kind = Kind::baseline(&mut stream);
        kind.color = if number % 2 == 0 { ColorType::Cmyk } else { ColorType::CmykAsYcck };
        kind.sampling = SamplingFactor::F_1_1;
        kind.quality = kind.quality.max(50);
        kind.optimised = false;
        kind.progressive = number % 4 == 3;
        let bytes = kind.encode(&mut stream);
        let choose = |width, height| any_region(&mut stream, width, height);
        let (planes, region, backend) = decode(&bytes, Level::detect(), choose).unwrap();
        assert_eq!((backend, planes.color), (Backend::Zune, ColorModel::Rgb));
        let (stored, _) = libjpeg::pixels(&bytes, J_COLOR_SPACE::JCS_CMYK).unwrap();
        // The values are inverted, as Pillow takes them; then comes what ink and black leave.
        let expected: Vec<u8> = stored
            .chunks(4)
            .flat_map(|pixel| {
                let light = f64::from(pixel[3]);
                [0, 1, 2].map(|i| (light - f64::from(255 - pixel[i]) * light / 255.0).round() as u8)
            })
            .collect();
        let difference = difference(&planes, region, &expected);
        assert!(difference <= 4, "image {number}, {kind:?}: {difference}");
    }
}

#[test]
fn png_files_of_every_colour_type_are_decoded() {
    use png::{BitDepth::*, ColorType::*};
    let kinds = [(Grayscale, Eight, 1), (GrayscaleAlpha, Eight, 2), (Rgb, Eight, 3), (Rgba, Eight, 4)];
    let kinds = kinds.into_iter().chain([(Grayscale, Sixteen, 2), (Rgb, Sixteen, 6), (Indexed, Eight, 1)]);
    for (color, depth, bytes_per_pixel) in kinds {
        let mut stream = stream(4000 + bytes_per_pixel);
        let (width, height) = (37, 23);
        let data: Vec<u8> = (0..width * height * bytes_per_pixel).map(|_| stream.below(200) as u8).collect();
        let palette: Vec<u8> = (0..600).map(|_| stream.below(256) as u8).collect();
        let mut file = Vec::new();
        let mut encoder = png::Encoder::new(&mut file, width as u32, height as u32);
        encoder.set_color(color);
        encoder.set_depth(depth);
        if color == Indexed {
            encoder.set_palette(&palette);
        }
        encoder.write_header().unwrap().write_image_data(&data).unwrap();
        let expected: Vec<u8> = data
            .chunks(bytes_per_pixel as usize)
            .flat_map(|pixel| match (color, depth) {
                (Indexed, _) => palette[3 * usize::from(pixel[0])..][..3].to_vec(),
                (Rgb, Sixteen) => vec![pixel[0], pixel[2], pixel[4]],
                (Rgb | Rgba, _) => pixel[..3].to_vec(),
                _ => vec![pixel[0]],
            })
            .collect();
        let choose = |width, height| any_region(&mut stream, width, height);
        let (planes, region, backend) = decode(&file, Level::detect(), choose).unwrap();
        assert_eq!(backend, Backend::Png);
        assert_eq!(difference(&planes, region, &expected), 0, "{color:?} {depth:?}");
        for length in 0..file.len() {
            assert!(
                decode(&file[..length], Level::detect(), |_, _| region).is_err(),
                "{color:?}, {length} bytes"
            );
        }
    }
}

#[test]
fn texts_of_a_png_take_no_memory() {
    let mut bytes = Vec::new();
    let mut encoder = png::Encoder::new(&mut bytes, 4, 4);
    encoder.set_color(png::ColorType::Grayscale);
    // The text is far larger than what a decoder of 16 pixels may allocate.
    encoder.add_ztxt_chunk("Comment".to_owned(), "x".repeat(1 << 20)).unwrap();
    encoder.add_text_chunk("Author".to_owned(), "y".repeat(1 << 20)).unwrap();
    encoder.write_header().unwrap().write_image_data(&[7; 16]).unwrap();
    let mut planes = Planes::default();
    let whole = |width, height| Region { x: 0, y: 0, width, height };
    foreload::testing::decode::Decoder::new(16).decode(&bytes, whole, &mut planes).unwrap();
    assert_eq!(planes.planes[0].data[..16], [7; 16]);
}
