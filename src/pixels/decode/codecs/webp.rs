//! WebP files, lossy and lossless. The whole image is decoded to RGB. Alpha is dropped, as by Pillow's
//! `convert("RGB")`. An animation gives its first frame on a black canvas, as Pillow opens it.
//!
//! This module parses the container itself, for two reasons: only the chunk with the coded image is needed, and
//! truncated files must be detected. Layout: <https://developers.google.com/speed/webp/docs/riff_container>.

use std::io::Cursor;
use std::ops::Range;

use image_webp::{DecodingError, WebPDecoder};

use super::{Backend, ChooseRegion};
use crate::decode::exif::Metadata;
use crate::decode::guarded::guarded;
use crate::decode::{ColorModel, Decoded, Planes};
use base::error::DecodeError;

/// The size in bytes of a chunk's header: its name and the length of its content.
const HEADER: usize = 8;

/// The size in bytes of the fields of an animation frame before its chunks: position, size, duration, flags.
const FRAME: usize = 16;

/// The bit in a VP8X chunk's first byte that marks an animation.
const ANIMATION: u8 = 1 << 1;

pub(super) fn is(bytes: &[u8]) -> bool {
    bytes.len() >= 12 && bytes.starts_with(b"RIFF") && &bytes[8..12] == b"WEBP"
}

pub(super) fn size(bytes: &[u8]) -> Result<(u32, u32), DecodeError> {
    Ok(Picture::find(bytes)?.canvas)
}

pub(super) fn decode(
    bytes: &[u8],
    choose: ChooseRegion<'_>,
    out: &mut Planes,
) -> Result<Decoded, DecodeError> {
    let picture = Picture::find(bytes)?;
    let region = choose(picture.canvas.0, picture.canvas.1)?;
    let (pixels, has_alpha) = guarded(|| picture.pixels())?;
    let size = picture.canvas;
    if has_alpha {
        let canvas = picture.on_canvas::<4>(pixels);
        out.take(&canvas, size, region, ColorModel::Rgb, |&[r, g, b, _]| [r, g, b]);
    } else {
        let canvas = picture.on_canvas::<3>(pixels);
        out.take(&canvas, size, region, ColorModel::Rgb, |&rgb: &[u8; 3]| rgb);
    }
    Ok(Decoded::by(Backend::WebP, region))
}

pub(super) fn metadata(bytes: &[u8]) -> Metadata<'_> {
    let content = bytes.get(HEADER..).unwrap_or_default();
    let find = |name: &[u8]| {
        let found = Chunks { bytes: content, at: 4 }.flatten().find(|chunk| chunk.name == name);
        found.map(|chunk| &content[chunk.content])
    };
    Metadata { exif: find(b"EXIF"), xmp: find(b"XMP ") }
}

/// The coded image of a file, and its position on the canvas.
struct Picture<'a> {
    /// The chunk with the coded image, including the chunk's header: `VP8 ` or `VP8L`.
    chunk: &'a [u8],
    canvas: (u32, u32),
    /// The width and height of the coded image; the first frame of an animation can be smaller than the canvas.
    size: (u32, u32),
    at: (u32, u32),
}

impl<'a> Picture<'a> {
    fn find(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        let promised = number::<4>(bytes, 4) as usize;
        // The padding byte after content of odd length is not required.
        let Some(content) = bytes.get(HEADER..).and_then(|content| content.get(..promised)) else {
            let whole = promised.saturating_add(HEADER);
            let message = format!("truncated: has {} of {whole} bytes", bytes.len());
            return Err(corrupt(&message));
        };
        let mut chunks = Chunks { bytes: content, at: 4 };
        let first = chunks.next().ok_or_else(|| corrupt("it contains no image"))??;
        match first.name {
            b"VP8X" => Self::extended(content, first.content, chunks),
            _ => Self::still(coded(std::iter::once(Ok(first)), content)?),
        }
    }

    fn still(chunk: &'a [u8]) -> Result<Self, DecodeError> {
        let size = coded_size(chunk)?;
        Ok(Self { chunk, canvas: size, size, at: (0, 0) })
    }

    /// The picture of a file whose first chunk is VP8X. `head` is that chunk's range in `content`; `chunks` are the
    /// chunks after it.
    fn extended(content: &'a [u8], head: Range<usize>, mut chunks: Chunks<'a>) -> Result<Self, DecodeError> {
        let head = &content[head];
        if head.len() < 10 {
            return Err(corrupt("its VP8X chunk is too short"));
        }
        let canvas = (1 + number::<3>(head, 4), 1 + number::<3>(head, 7));
        let picture = if head[0] & ANIMATION == 0 {
            Self::still(coded(chunks, content)?)?
        } else {
            let frame = chunks.find(|chunk| chunk.as_ref().map_or(true, |chunk| chunk.name == b"ANMF"));
            let frame = &content[frame.ok_or_else(|| corrupt("an animation without frames"))??.content];
            if frame.len() < FRAME {
                return Err(corrupt("its first frame is too short"));
            }
            let inner = Chunks { bytes: frame, at: FRAME };
            let at = (2 * number::<3>(frame, 0), 2 * number::<3>(frame, 3));
            let size = (1 + number::<3>(frame, 6), 1 + number::<3>(frame, 9));
            let picture = Self { canvas, at, ..Self::still(coded(inner, frame)?)? };
            if picture.size != size {
                return Err(corrupt("its first frame has another size than its frame header says"));
            }
            picture
        };
        let ends = |at: u32, size: u32, whole: u32| u64::from(at) + u64::from(size) <= u64::from(whole);
        let inside =
            ends(picture.at.0, picture.size.0, canvas.0) && ends(picture.at.1, picture.size.1, canvas.1);
        if !inside || picture.canvas != canvas {
            return Err(corrupt("its image has another size than its header says"));
        }
        Ok(picture)
    }

    /// Decodes the coded image. Returns its pixels, and whether they have alpha. A pixel has 4 bytes with alpha, 3
    /// without.
    fn pixels(&self) -> Result<(Vec<u8>, bool), DecodeError> {
        let failed = |error: DecodingError| match error {
            DecodingError::UnsupportedFeature(what) => DecodeError::Unsupported(format!("WebP: {what}")),
            error => corrupt(&error.to_string()),
        };
        // The decoder needs a file, so make one that consists only of this chunk.
        let mut file = Vec::with_capacity(12 + self.chunk.len());
        file.extend(b"RIFF");
        file.extend((4 + self.chunk.len() as u32).to_le_bytes());
        file.extend(b"WEBP");
        file.extend(self.chunk);
        let mut decoder = WebPDecoder::new(Cursor::new(file)).map_err(failed)?;
        if decoder.dimensions() != self.size {
            return Err(corrupt("its headers contradict each other"));
        }
        let bytes = decoder.output_buffer_size().ok_or_else(|| corrupt("it does not fit in memory"))?;
        let mut pixels = vec![0; bytes];
        decoder.read_image(&mut pixels).map_err(failed)?;
        Ok((pixels, decoder.has_alpha()))
    }

    fn on_canvas<const BYTES: usize>(&self, pixels: Vec<u8>) -> Vec<u8> {
        if self.size == self.canvas {
            return pixels;
        }
        let mut canvas = vec![0; self.canvas.0 as usize * self.canvas.1 as usize * BYTES];
        let row = self.size.0 as usize * BYTES;
        for (y, line) in pixels.chunks_exact(row).enumerate() {
            let first = (self.at.1 as usize + y) * self.canvas.0 as usize + self.at.0 as usize;
            canvas[first * BYTES..][..row].copy_from_slice(line);
        }
        canvas
    }
}

struct RiffChunk<'a> {
    name: &'a [u8],
    whole: Range<usize>,
    content: Range<usize>,
}

struct Chunks<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Iterator for Chunks<'a> {
    type Item = Result<RiffChunk<'a>, DecodeError>;

    fn next(&mut self) -> Option<Self::Item> {
        let rest = self.bytes.get(self.at..).filter(|rest| !rest.is_empty())?;
        let length = number::<4>(rest, 4) as usize;
        if rest.len() < HEADER || rest.len() - HEADER < length {
            self.at = self.bytes.len();
            return Some(Err(corrupt("a chunk is longer than the chunk or file that contains it")));
        }
        let begin = self.at;
        let content = begin + HEADER..begin + HEADER + length;
        self.at = content.end + length % 2;
        Some(Ok(RiffChunk { name: &rest[..4], whole: begin..content.end, content }))
    }
}

fn coded<'a>(
    chunks: impl Iterator<Item = Result<RiffChunk<'a>, DecodeError>>,
    bytes: &'a [u8],
) -> Result<&'a [u8], DecodeError> {
    for chunk in chunks {
        let chunk = chunk?;
        if matches!(chunk.name, b"VP8 " | b"VP8L") {
            return Ok(&bytes[chunk.whole]);
        }
    }
    Err(corrupt("it contains no image"))
}

fn coded_size(chunk: &[u8]) -> Result<(u32, u32), DecodeError> {
    let content = &chunk[HEADER..];
    let size = if chunk.starts_with(b"VP8L") {
        let sizes = number::<4>(content, 1);
        (1 + (sizes & 0x3FFF), 1 + (sizes >> 14 & 0x3FFF))
    } else {
        (number::<2>(content, 6) & 0x3FFF, number::<2>(content, 8) & 0x3FFF)
    };
    let least = if chunk.starts_with(b"VP8L") { 5 } else { 10 };
    if content.len() < least || size.0 == 0 || size.1 == 0 {
        return Err(corrupt("its image header is truncated or states a size of 0"));
    }
    Ok(size)
}

/// Reads the little-endian number of BYTES bytes at `at`; bytes beyond the end count as 0.
fn number<const BYTES: usize>(bytes: &[u8], at: usize) -> u32 {
    (0..BYTES).rev().fold(0, |number, i| number << 8 | u32::from(bytes.get(at + i).copied().unwrap_or(0)))
}

fn corrupt(message: &str) -> DecodeError {
    DecodeError::Corrupt(format!("WebP: {message}"))
}
