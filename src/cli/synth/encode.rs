//! Encodes pixels as a JPEG of a given quality and size. A photograph that is too smooth is sharpened and gets grain. A
//! photograph with too much detail is softened.

use super::exif;
use super::huffman::{CodeCounts, CodedSymbols};
use super::photos::{Pixel, PixelGrid};
use super::recipe::{JpegCoding, PhotoRecipe};
use base::rng::RandomStream;
use jpeg_encoder::{ChromaSubsamplingMethod, ColorType, Encoder, EncodingError, SamplingFactor};

pub(crate) struct EncodedImage {
    pub bytes: Vec<u8>,
    pub quality: u8,
    /// The statistics of its Huffman codes; all zero for a progressive image.
    pub counts: CodeCounts,
}

/// Sensor noise, drawn once and cut at a random offset for every image. Luminance noise is white. Chrominance noise is
/// blurred, as after demosaicing.
pub(crate) struct Grain {
    pixels: Vec<Pixel>,
}

impl Grain {
    const SIDE: usize = 512;

    pub(crate) fn new(random: &mut RandomStream) -> Self {
        let side = Self::SIDE;
        let mut draw = || -> Vec<f32> { (0..side * side).map(|_| random.normal() as f32).collect() };
        let luminance = draw();
        let chrominance = [draw(), draw(), draw()];
        let blurred = |plane: &[f32], x: usize, y: usize| {
            let at = |dx: usize, dy: usize| plane[(y + dy) % side * side + (x + dx) % side];
            0.5 * (at(0, 0) + at(1, 0) + at(0, 1) + at(1, 1))
        };
        let pixel = |i: usize| {
            let (x, y) = (i % side, i / side);
            std::array::from_fn(|lane| match chrominance.get(lane) {
                Some(plane) => 0.95 * luminance[i] + 0.25 * blurred(plane, x, y),
                None => 0.0,
            })
        };
        Self { pixels: (0..side * side).map(pixel).collect() }
    }

    fn at(&self, x: usize, y: usize) -> &Pixel {
        &self.pixels[y % Self::SIDE * Self::SIDE + x % Self::SIDE]
    }
}

/// The adjustment of an image before encoding. The strength is a single number, so that a search can find it.
#[derive(Clone, Copy)]
struct PhotoFinish {
    /// The strength. 0 leaves the pixels unchanged, and −1 replaces each pixel by the mean of its 3×3 neighbourhood.
    /// Positive values sharpen and add grain: 1 is strong sharpening, with the grain of a fast film.
    strength: f32,
    offset: [usize; 2],
}

/// The height in pixels of a band of the image: a multiple of the height of an MCU.
const BAND: usize = 32;

pub(crate) fn encode(
    image: &PixelGrid,
    recipe: &PhotoRecipe,
    grain: &Grain,
    random: &mut RandomStream,
) -> Result<EncodedImage, EncodingError> {
    let mut offset = || random.below(Grain::SIDE as u64) as usize;
    let offset = [offset(), offset()];
    // Estimate sizes on bands that are spread over the image, which costs at most a quarter of the work.
    let bands: Vec<usize> = match image.height / BAND {
        count @ 0..8 => (0..count.max(1)).map(|i| i * BAND).collect(),
        count => (0..count / 4).step_by((count / 4).div_ceil(8)).map(|i| (i * 4 + 1) * BAND).collect(),
    };
    let rate = |finish: PhotoFinish, quality: u8| -> Result<f64, EncodingError> {
        let pixels = sampled(image, &bands, grain, finish);
        let rows = pixels.len() / 3 / image.width;
        let bytes = jpeg(&pixels, image.width, rows, recipe.coding, quality, None)?;
        let bits = match CodedSymbols::read(&bytes) {
            Some(symbols) if recipe.own_tables => symbols.with_own_tables().1.bits,
            Some(symbols) => symbols.counts().bits,
            None => 8 * bytes.len().saturating_sub(HEADER) as u64,
        };
        Ok(bits as f64 / (rows * image.width) as f64)
    };

    let wanted = (recipe.bits_per_pixel - 8.0 * HEADER as f64 / (image.width * image.height) as f64).max(0.3);
    let mut quality = recipe.quality;
    let finish = |strength| PhotoFinish { strength, offset };
    let (mut low, mut high) = (-1.0, 1.0);
    let softest = rate(finish(low), quality)?;
    let mut strength = low;
    if softest > wanted {
        // Even the softest image has too much detail for this quality, so lower the quality.
        let (mut least, mut most) = (20, quality);
        while most - least > 1 {
            let middle = least + (most - least) / 2;
            if rate(finish(low), middle)? > wanted { most = middle } else { least = middle }
        }
        quality = least;
    } else {
        for _ in 0..7 {
            strength = 0.5 * (low + high);
            let rate = rate(finish(strength), quality)?;
            if (rate / wanted - 1.0).abs() < 0.02 {
                break;
            }
            if rate > wanted { high = strength } else { low = strength }
        }
    }

    let mut pixels = Vec::with_capacity(3 * image.width * image.height);
    finished(image, 0..image.height, grain, finish(strength), &mut pixels);
    let exif = match recipe.orientation {
        Some(orientation) => Some(exif::segment(orientation, &preview(image)?)),
        None => None,
    };
    let mut bytes = jpeg(&pixels, image.width, image.height, recipe.coding, quality, exif.as_deref())?;
    let mut counts = CodeCounts::default();
    if let Some(symbols) = CodedSymbols::read(&bytes) {
        if recipe.own_tables {
            (bytes, counts) = symbols.with_own_tables();
        } else {
            counts = symbols.counts();
        }
    }
    Ok(EncodedImage { bytes, quality, counts })
}

fn preview(image: &PixelGrid) -> Result<Vec<u8>, EncodingError> {
    let step = image.width.max(image.height).div_ceil(160).max(1);
    let (width, height) = (image.width / step, image.height / step);
    let places = (0..height).flat_map(|y| (0..width).map(move |x| y * step * image.width + x * step));
    let pixels: Vec<u8> = places.flat_map(|place| rgb(&image.pixels[place])).collect();
    jpeg(&pixels, width, height, JpegCoding::Yuv420, 75, None)
}

/// The bytes of the headers and standard tables, which do not grow with the image.
const HEADER: usize = 620;

fn rgb(pixel: &Pixel) -> [u8; 3] {
    std::array::from_fn(|lane| (pixel[lane] + 0.5).clamp(0.0, 255.0) as u8)
}

fn sampled(image: &PixelGrid, bands: &[usize], grain: &Grain, finish: PhotoFinish) -> Vec<u8> {
    let mut pixels = Vec::with_capacity(3 * image.width * BAND * bands.len());
    for &top in bands {
        finished(image, top..(top + BAND).min(image.height), grain, finish, &mut pixels);
    }
    pixels
}

/// Appends rows of the image as 8-bit RGB: sharpened (unsharp mask over 3×3 pixels) with grain, or softened.
fn finished(
    image: &PixelGrid,
    rows: std::ops::Range<usize>,
    grain: &Grain,
    finish: PhotoFinish,
    out: &mut Vec<u8>,
) {
    let width = image.width;
    if finish.strength == 0.0 {
        let pixels = &image.pixels[rows.start * width..rows.end * width];
        out.extend(pixels.iter().flat_map(rgb));
        return;
    }
    let softer = finish.strength < 0.0;
    let sharpen = if softer { finish.strength } else { 8.0 * finish.strength };
    let noise = if softer { 0.0 } else { 32.0 * finish.strength * finish.strength };
    let row = |y: usize| &image.pixels[y * width..][..width];
    let mut sums = vec![[0.0f32; 4]; width];
    for y in rows {
        let near = [row(y.saturating_sub(1)), row(y), row((y + 1).min(image.height - 1))];
        for (x, sum) in sums.iter_mut().enumerate() {
            *sum = std::array::from_fn(|lane| near[0][x][lane] + near[1][x][lane] + near[2][x][lane]);
        }
        for x in 0..width {
            let pixel = &near[1][x];
            let (left, right) = (&sums[x.saturating_sub(1)], &sums[(x + 1).min(width - 1)]);
            let grain = grain.at(x + finish.offset[0], y + finish.offset[1]);
            // Photon noise grows with the square root of the light. This linear approximation is cheaper.
            let noise = noise * (0.4 + pixel[1].clamp(0.0, 255.0) * (0.6 / 255.0));
            let value: Pixel = std::array::from_fn(|lane| {
                let blurred = (left[lane] + sums[x][lane] + right[lane]) * (1.0 / 9.0);
                pixel[lane] + sharpen * (pixel[lane] - blurred) + noise * grain[lane]
            });
            out.extend(rgb(&value));
        }
    }
}

fn jpeg(
    rgb: &[u8],
    width: usize,
    height: usize,
    coding: JpegCoding,
    quality: u8,
    exif: Option<&[u8]>,
) -> Result<Vec<u8>, EncodingError> {
    let mut bytes = Vec::with_capacity(rgb.len() / 4);
    let mut encoder = Encoder::new(&mut bytes, quality);
    encoder.set_sampling_factor(match coding {
        JpegCoding::Yuv420 | JpegCoding::Progressive => SamplingFactor::F_2_2,
        JpegCoding::Yuv422 => SamplingFactor::F_2_1,
        JpegCoding::Yuv444 | JpegCoding::Gray => SamplingFactor::F_1_1,
    });
    encoder.set_chroma_subsampling_method(ChromaSubsamplingMethod::Average);
    if coding == JpegCoding::Progressive {
        encoder.set_progressive(true);
        encoder.set_optimized_huffman_tables(true);
    }
    if let Some(exif) = exif {
        encoder.add_app_segment(1, exif.to_vec())?;
    }
    let (width, height) = (width as u16, height as u16);
    if coding == JpegCoding::Gray {
        let gray: Vec<u8> = rgb.chunks_exact(3).map(luma).collect();
        encoder.encode(&gray, width, height, ColorType::Luma)?;
    } else {
        encoder.encode(rgb, width, height, ColorType::Rgb)?;
    }
    Ok(bytes)
}

/// The luminance as JFIF defines it.
fn luma(rgb: &[u8]) -> u8 {
    ((19_595 * u32::from(rgb[0]) + 38_470 * u32::from(rgb[1]) + 7_471 * u32::from(rgb[2]) + 32_768) >> 16)
        as u8
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::rng::{RandomKey, Use};
    use pixels::decode::{Decoder, Planes, Region};

    #[test]
    fn own_tables_change_bytes_but_no_pixel() {
        let mut random = RandomKey::new(b"own tables", 0, 0, Use::Augment).stream(0);
        let decode = |bytes: &[u8]| {
            let mut planes = Planes::default();
            let whole = |width, height| Region { x: 0, y: 0, width, height };
            Decoder::new(u64::MAX).decode(bytes, whole, &mut planes).unwrap();
            planes.rgb()
        };
        for coding in [JpegCoding::Gray, JpegCoding::Yuv420, JpegCoding::Yuv422, JpegCoding::Yuv444] {
            let rgb: Vec<u8> = (0..3 * 61 * 47).map(|i| (i / 9 + random.below(30) as usize) as u8).collect();
            let plain = jpeg(&rgb, 61, 47, coding, 85, None).unwrap();
            let symbols = CodedSymbols::read(&plain).unwrap();
            let before = symbols.counts();
            let (bytes, counts) = symbols.with_own_tables();
            assert!(bytes.len() < plain.len() && counts.bits < before.bits, "{coding:?}");
            assert_eq!(CodeCounts { bits: counts.bits, ..before }, counts, "{coding:?}");
            assert!(decode(&plain) == decode(&bytes), "{coding:?}");
        }
    }
}
