//! PNG files. The whole image is decoded to 8-bit grey or RGB. The upper 8 bits of 16-bit values are kept. Alpha is
//! dropped, as by Pillow's `convert("RGB")`.

use std::io::Cursor;

use png::{BitDepth, ColorType, Decoder, DecodingError, Limits, Transformations};

use super::{Backend, ChooseRegion};
use crate::decode::exif::Metadata;
use crate::decode::guarded::guarded;
use crate::decode::{ColorModel, Decoded, Planes};
use base::crc::crc32;
use base::error::DecodeError;

const SIGNATURE: &[u8; 8] = b"\x89PNG\r\n\x1a\n";

pub(in crate::decode) fn is(bytes: &[u8]) -> bool {
    bytes.starts_with(SIGNATURE)
}

pub(super) fn size(bytes: &[u8]) -> Result<(u32, u32), DecodeError> {
    guarded(|| {
        let mut decoder = Decoder::new(Cursor::new(bytes));
        let info = decoder.read_header_info().map_err(corrupt)?;
        Ok((info.width, info.height))
    })
}

pub(super) fn decode(
    bytes: &[u8],
    max_pixels: u64,
    choose: ChooseRegion<'_>,
    out: &mut Planes,
) -> Result<Decoded, DecodeError> {
    let (size, reduced_to_8_bits) = guarded(|| {
        let mut decoder = decoder(bytes, max_pixels);
        let info = decoder.read_header_info().map_err(corrupt)?;
        let is_gray = matches!(info.color_type, ColorType::Grayscale | ColorType::GrayscaleAlpha);
        Ok(((info.width, info.height), is_gray && info.bit_depth == BitDepth::Sixteen))
    })?;
    let region = choose(size.0, size.1)?;
    let (image, kind) = decode_with_end_added(bytes, |bytes| {
        let mut decoder = decoder(bytes, max_pixels);
        decoder.set_transformations(Transformations::EXPAND | Transformations::STRIP_16);
        read_image(decoder)
    })?;
    match kind {
        (ColorType::Grayscale, BitDepth::Eight) => {
            out.take(&image, size, region, ColorModel::Gray, |&[gray]: &[u8; 1]| [gray]);
        }
        (ColorType::GrayscaleAlpha, BitDepth::Eight) => {
            out.take(&image, size, region, ColorModel::Gray, |&[gray, _]| [gray]);
        }
        (ColorType::Rgb, BitDepth::Eight) => {
            out.take(&image, size, region, ColorModel::Rgb, |&rgb: &[u8; 3]| rgb);
        }
        (ColorType::Rgba, BitDepth::Eight) => {
            out.take(&image, size, region, ColorModel::Rgb, |&[r, g, b, _]| [r, g, b]);
        }
        other => return Err(DecodeError::Unsupported(format!("PNG of {other:?}"))),
    }
    Ok(Decoded { reduced_to_8_bits, ..Decoded::by(Backend::Png, region) })
}

pub(in crate::decode) fn decoder(bytes: &[u8], max_pixels: u64) -> Decoder<Cursor<&[u8]>> {
    // Limits the decoder's memory for rows. Callers limit the size of the image itself.
    let limits = Limits { bytes: usize::try_from(max_pixels.saturating_mul(8)).unwrap_or(usize::MAX) };
    let mut decoder = Decoder::new_with_limits(Cursor::new(bytes), limits);
    // ICC profiles and text chunks are not needed, and small chunks could decompress to a lot of memory.
    decoder.set_ignore_iccp_chunk(true);
    decoder.set_ignore_text_chunk(true);
    decoder
}

pub(in crate::decode) fn corrupt(error: DecodingError) -> DecodeError {
    DecodeError::Corrupt(format!("PNG: {error}"))
}

/// Decodes the image of a file, and returns the samples and their kind.
pub(in crate::decode) fn read_image(
    decoder: Decoder<Cursor<&[u8]>>,
) -> Result<(Vec<u8>, (ColorType, BitDepth)), DecodeError> {
    let mut reader = decoder.read_info().map_err(corrupt)?;
    let bytes = reader
        .output_buffer_size()
        .ok_or_else(|| DecodeError::Corrupt("PNG: does not fit in memory".into()))?;
    let mut image = vec![0; bytes];
    reader.next_frame(&mut image).map_err(corrupt)?;
    // Read the file to its end, so that a truncated file is detected.
    reader.finish().map_err(corrupt)?;
    Ok((image, reader.output_color_type()))
}

/// Decodes a PNG. If decoding fails and the file has image data but no end chunk, decodes the file again with the
/// missing end added. The second attempt succeeds only if all pixels are present. Pillow and libpng also accept such a
/// file.
pub(in crate::decode) fn decode_with_end_added<T>(
    bytes: &[u8],
    decode: impl Fn(&[u8]) -> Result<T, DecodeError>,
) -> Result<T, DecodeError> {
    guarded(|| decode(bytes)).or_else(|error| {
        let Some(ended) = ended(bytes) else { return Err(error) };
        guarded(|| decode(&ended)).map_err(|_| error)
    })
}

/// Copies a file that was truncated after its image data began, and adds the missing end. Returns `None` for other
/// files. A truncated chunk of image data is shortened to the bytes that exist; any other truncated chunk is left out.
fn ended(bytes: &[u8]) -> Option<Vec<u8>> {
    let (mut at, mut has_data) = (SIGNATURE.len(), false);
    for chunk in chunks(bytes) {
        if chunk.name == b"IEND" {
            return None;
        }
        has_data |= chunk.name == b"IDAT";
        at = chunk.end;
    }
    let mut ended = bytes[..at].to_vec();
    if let Some((head, data)) = bytes[at..].split_at_checked(HEAD)
        && &head[4..] == b"IDAT"
    {
        append_chunk(&mut ended, b"IDAT", &data[..data.len().min(length(head))]);
        has_data = true;
    }
    append_chunk(&mut ended, b"IEND", &[]);
    has_data.then_some(ended)
}

fn append_chunk(file: &mut Vec<u8>, name: &[u8], data: &[u8]) {
    let start = file.len();
    file.extend((data.len() as u32).to_be_bytes());
    file.extend(name);
    file.extend(data);
    let checksum = crc32(&file[start + 4..]);
    file.extend(checksum.to_be_bytes());
}

/// The number of bytes of a chunk before its data: length and name.
const HEAD: usize = 8;

const CHECKSUM: usize = 4;

/// A complete chunk, and the offset of its end in the file.
struct PngChunk<'a> {
    name: &'a [u8],
    data: &'a [u8],
    end: usize,
}

fn length(head: &[u8]) -> usize {
    u32::from_be_bytes([head[0], head[1], head[2], head[3]]) as usize
}

fn chunks(bytes: &[u8]) -> impl Iterator<Item = PngChunk<'_>> {
    let mut at = SIGNATURE.len();
    std::iter::from_fn(move || {
        let (head, rest) = bytes.get(at..)?.split_at_checked(HEAD)?;
        let data = rest.get(..length(head))?;
        rest.get(data.len() + CHECKSUM - 1)?;
        at += HEAD + data.len() + CHECKSUM;
        Some(PngChunk { name: &head[4..], data, end: at })
    })
}

/// Finds the metadata that may contain an orientation. Compressed XMP is not read.
pub(super) fn metadata(bytes: &[u8]) -> Metadata<'_> {
    const XMP: &[u8] = b"XML:com.adobe.xmp\0\0";
    Metadata {
        exif: chunks(bytes).find(|chunk| chunk.name == b"eXIf").map(|chunk| chunk.data),
        xmp: chunks(bytes)
            .filter(|chunk| chunk.name == b"iTXt")
            .find_map(|chunk| chunk.data.strip_prefix(XMP)),
    }
}
