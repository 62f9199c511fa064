//! From pixels to a JPEG of a wanted size. The quality is searched, and too smooth a photograph gets sharpness and
//! grain.

use super::huffman;
use super::photos::{Pixel, PixelGrid};
use super::recipe::{JpegCoding, PhotoRecipe, normal};
use base::rng::RandomStream;
use jpeg_encoder::{ChromaSubsamplingMethod, ColorType, Encoder, EncodingError, SamplingFactor};

/// One encoded image.
pub(crate) struct EncodedImage {
    /// The bytes of the file.
    pub bytes: Vec<u8>,
    /// The quality setting that it was encoded with, 1 to 100.
    pub quality: u8,
}

/// Sensor noise, drawn once and cut at a random place for every image: luminance noise is white, chrominance
/// noise blurred, as demosaicing leaves it.
pub(crate) struct Grain {
    pixels: Vec<Pixel>,
}

impl Grain {
    /// The pixels on a side of the tile.
    const SIDE: usize = 512;

    /// Draws the tile.
    pub(crate) fn new(random: &mut RandomStream) -> Self {
        let side = Self::SIDE;
        let mut draw = || -> Vec<f32> { (0..side * side).map(|_| normal(random) as f32).collect() };
        let luminance = draw();
        let chrominance = [draw(), draw(), draw()];
        let blurred = |plane: &[f32], x: usize, y: usize| {
            let at = |dx: usize, dy: usize| plane[(y + dy) % side * side + (x + dx) % side];
            0.5 * (at(0, 0) + at(1, 0) + at(0, 1) + at(1, 1))
        };
        let pixel = |i: usize| {
            let (x, y) = (i % side, i / side);
            std::array::from_fn(|lane| match chrominance.get(lane) {
                Some(plane) => 0.9 * luminance[i] + 0.45 * blurred(plane, x, y),
                None => 0.0,
            })
        };
        Self { pixels: (0..side * side).map(pixel).collect() }
    }

    fn at(&self, x: usize, y: usize) -> &Pixel {
        &self.pixels[y % Self::SIDE * Self::SIDE + x % Self::SIDE]
    }
}

/// The finish of an image before encoding. It is one number, so that it can be searched for.
#[derive(Clone, Copy)]
struct Sharpening {
    /// The strength: 0 leaves the pixels as they are; 1 is strong sharpening and the grain of a fast film.
    strength: f32,
    /// The position where the grain is cut from its tile.
    offset: [usize; 2],
}

/// The rows of a sample of the image: a multiple of the height of an MCU.
const BAND: usize = 32;

/// Encodes `image` as `recipe` says.
pub(crate) fn encode(
    image: &PixelGrid,
    recipe: &PhotoRecipe,
    grain: &Grain,
    optimize: bool,
    random: &mut RandomStream,
) -> Result<EncodedImage, EncodingError> {
    let mut offset = || random.below(Grain::SIDE as u64) as usize;
    let offset = [offset(), offset()];
    // Sizes are estimated on bands spread over the image, for a quarter of the work.
    let bands: Vec<usize> = match image.height / BAND {
        count @ 0..8 => (0..count.max(1)).map(|i| i * BAND).collect(),
        count => (0..count / 4).map(|i| (i * 4 + 1) * BAND).collect(),
    };
    let rate = |pixels: &[u8], quality: u8| -> Result<f64, EncodingError> {
        let rows = pixels.len() / 3 / image.width;
        let bytes = jpeg(pixels, image.width, rows, recipe.coding, quality)?.len().saturating_sub(HEADER);
        Ok(bytes as f64 * 8.0 / (rows * image.width) as f64)
    };

    let mut finish = Sharpening { strength: 0.0, offset };
    let mut quality = recipe.best_quality;
    let sample = sampled(image, &bands, grain, finish);
    // Busy photographs make larger files: the rate is a third of the way from the drawn one to the photograph's own.
    let own = rate(&sample, quality)?;
    let wanted = recipe.bits_per_pixel.powf(2.0 / 3.0) * own.clamp(2.0, 9.0).cbrt();
    if own > wanted {
        let (mut low, mut high) = (20, quality);
        while high - low > 1 {
            let middle = low + (high - low).div_ceil(3) * 2;
            let middle = middle.clamp(low + 1, high - 1);
            if rate(&sample, middle)? > wanted { high = middle } else { low = middle }
        }
        quality = low;
    } else {
        let (mut low, mut high) = (0.0, 1.0);
        for _ in 0..5 {
            finish.strength = 0.5 * (low + high);
            let rate = rate(&sampled(image, &bands, grain, finish), quality)?;
            if (rate / wanted - 1.0).abs() < 0.03 {
                break;
            }
            if rate > wanted { high = finish.strength } else { low = finish.strength }
        }
    }

    let mut pixels = Vec::with_capacity(3 * image.width * image.height);
    finished(image, 0..image.height, grain, finish, &mut pixels);
    let mut bytes = jpeg(&pixels, image.width, image.height, recipe.coding, quality)?;
    if optimize && recipe.coding != JpegCoding::Progressive {
        bytes = huffman::optimize(&bytes).expect("a baseline JPEG just written");
    }
    Ok(EncodedImage { bytes, quality })
}

/// The bytes of the headers and standard tables, which do not grow with the image.
const HEADER: usize = 620;

fn sampled(image: &PixelGrid, bands: &[usize], grain: &Grain, finish: Sharpening) -> Vec<u8> {
    let mut pixels = Vec::with_capacity(3 * image.width * BAND * bands.len());
    for &top in bands {
        finished(image, top..(top + BAND).min(image.height), grain, finish, &mut pixels);
    }
    pixels
}

/// Appends rows of the image as 8-bit RGB, sharpened (unsharp mask over 3×3 pixels) and grained.
fn finished(
    image: &PixelGrid,
    rows: std::ops::Range<usize>,
    grain: &Grain,
    finish: Sharpening,
    out: &mut Vec<u8>,
) {
    let width = image.width;
    let round = |value: f32| (value + 0.5).clamp(0.0, 255.0) as u8;
    if finish.strength == 0.0 {
        let pixels = &image.pixels[rows.start * width..rows.end * width];
        out.extend(pixels.iter().flat_map(|p| [round(p[0]), round(p[1]), round(p[2])]));
        return;
    }
    let sharpen = 1.2 * finish.strength.min(0.5);
    let noise = 30.0 * finish.strength * finish.strength;
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
            // Photon noise grows with the square root of the light; this is a line through it, which is cheap.
            let noise = noise * (0.4 + pixel[1].clamp(0.0, 255.0) * (0.6 / 255.0));
            let value: Pixel = std::array::from_fn(|lane| {
                let blurred = (left[lane] + sums[x][lane] + right[lane]) * (1.0 / 9.0);
                pixel[lane] + sharpen * (pixel[lane] - blurred) + noise * grain[lane]
            });
            out.extend([round(value[0]), round(value[1]), round(value[2])]);
        }
    }
}

fn jpeg(
    rgb: &[u8],
    width: usize,
    height: usize,
    coding: JpegCoding,
    quality: u8,
) -> Result<Vec<u8>, EncodingError> {
    let mut bytes = Vec::with_capacity(rgb.len() / 4);
    let mut encoder = Encoder::new(&mut bytes, quality);
    encoder.set_sampling_factor(match coding {
        JpegCoding::Yuv420 | JpegCoding::Progressive => SamplingFactor::F_2_2,
        JpegCoding::Yuv444 | JpegCoding::Gray | JpegCoding::Cmyk => SamplingFactor::F_1_1,
    });
    encoder.set_chroma_subsampling_method(ChromaSubsamplingMethod::Average);
    if coding == JpegCoding::Progressive {
        encoder.set_progressive(true);
        encoder.set_optimized_huffman_tables(true);
    }
    let (width, height) = (width as u16, height as u16);
    match coding {
        JpegCoding::Yuv420 | JpegCoding::Yuv444 | JpegCoding::Progressive => {
            encoder.encode(rgb, width, height, ColorType::Rgb)?;
        }
        JpegCoding::Gray => {
            let gray: Vec<u8> = rgb.chunks_exact(3).map(luma).collect();
            encoder.encode(&gray, width, height, ColorType::Luma)?;
        }
        JpegCoding::Cmyk => {
            let cmyk: Vec<u8> = rgb.chunks_exact(3).flat_map(inks).collect();
            encoder.encode(&cmyk, width, height, ColorType::Cmyk)?;
        }
    }
    Ok(bytes)
}

/// The luminance as JFIF defines it.
fn luma(rgb: &[u8]) -> u8 {
    ((19_595 * u32::from(rgb[0]) + 38_470 * u32::from(rgb[1]) + 7_471 * u32::from(rgb[2]) + 32_768) >> 16)
        as u8
}

/// The four inks of a colour, with three quarters of its gray printed in black.
fn inks(rgb: &[u8]) -> [u8; 4] {
    let light = u32::from(rgb.iter().copied().max().unwrap_or(0));
    let black = (255 - light) * 3 / 4;
    let ink = |value: u8| {
        let left = 255 - black;
        (255 - (u32::from(value) * 255 + left / 2) / left) as u8
    };
    [ink(rgb[0]), ink(rgb[1]), ink(rgb[2]), black as u8]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inks_print_the_colour() {
        for rgb in [[0u8, 0, 0], [255, 255, 255], [200, 30, 90], [1, 2, 3]] {
            let [c, m, y, k] = inks(&rgb);
            for (ink, value) in [c, m, y].into_iter().zip(rgb) {
                let printed = (255.0 - f64::from(ink)) * (255.0 - f64::from(k)) / 255.0;
                assert!((printed - f64::from(value)).abs() <= 1.0, "{rgb:?}: {printed}");
            }
        }
    }
}
