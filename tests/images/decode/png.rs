//! PNG files of every colour type, whole and cut short.

use foreload::testing::decode::{Backend, Planes, Region};
use foreload::testing::simd::Level;

use super::decode;
use super::images::stream;
use super::odd_kinds::difference;
use super::region::any_region;

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
        // A file without its end, or without the checksums of its data, still has all pixels.
        let data = file.windows(4).position(|name| name == b"IDAT").unwrap() - 4;
        let length = u32::from_be_bytes(file[data..data + 4].try_into().unwrap()) as usize;
        let pixels = data + 8 + length - 4;
        for length in 0..file.len() {
            let cut = decode(&file[..length], Level::detect(), |_, _| region);
            // The last byte of the data before its checksum may be only its end marker.
            let is_whole = cut.is_ok() && length + 1 >= pixels;
            assert_eq!(cut.is_ok() || length >= pixels, is_whole, "{color:?}, {length} bytes");
            if let Ok((planes, ..)) = cut {
                assert_eq!(difference(&planes, region, &expected), 0, "{color:?}, {length} bytes");
            }
        }
        // The checksum shows the damage of data, even if the end is missing. The data starts with a stored block or
        // with the codes of one, so that damaged data at its end is often decompressed without an error.
        let mut damaged = file[..data + 12 + length].to_vec();
        for at in data + 8 + 2..data + 8 + length {
            damaged[at] ^= 1;
            assert!(decode(&damaged, Level::detect(), |_, _| region).is_err(), "{color:?}, byte {at}");
            damaged[at] ^= 1;
        }
    }
}

#[test]
fn texts_of_a_png_take_no_memory() {
    let mut bytes = Vec::new();
    let mut encoder = png::Encoder::new(&mut bytes, 4, 4);
    encoder.set_color(png::ColorType::Grayscale);
    // The text is far larger than the memory that a decoder of 16 pixels may allocate.
    encoder.add_ztxt_chunk("Comment".to_owned(), "x".repeat(1 << 20)).unwrap();
    encoder.add_text_chunk("Author".to_owned(), "y".repeat(1 << 20)).unwrap();
    encoder.write_header().unwrap().write_image_data(&[7; 16]).unwrap();
    let mut planes = Planes::default();
    let whole = |width, height| Region { x: 0, y: 0, width, height };
    foreload::testing::decode::Decoder::new(16).decode(&bytes, whole, &mut planes).unwrap();
    assert_eq!(planes.planes[0].data[..16], [7; 16]);
}
