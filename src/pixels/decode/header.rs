//! The headers of an image file, which are read before decoding: they decide which decoder can handle the file.

use super::codecs::not_an_image;
use super::{ColorModel, Region, jpeg, planes::Sampling};
use base::error::DecodeError;

/// The coding process of a JPEG file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Process {
    /// Baseline DCT (SOF0).
    Baseline,
    /// Extended sequential DCT with Huffman coding (SOF1).
    Extended,
    /// Progressive DCT with Huffman coding (SOF2).
    Progressive,
    /// Lossless, hierarchical or arithmetic coding, which none of Foreload's decoders supports.
    Other,
}

/// The meaning of the components of a JPEG file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum JpegColorSpace {
    /// One component.
    Gray,
    /// Y, Cb, Cr as JFIF defines them.
    YCbCr,
    /// Red, green, blue, untransformed.
    Rgb,
    /// Cyan, magenta, yellow, black.
    Cmyk,
    /// Cyan, magenta and yellow transformed like red, green and blue; black untransformed.
    Ycck,
}

/// The headers of a JPEG file up to its first scan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JpegHeader {
    /// The width of the image in pixels, at least 1.
    pub width: u32,
    /// The height of the image in pixels, at least 1.
    pub height: u32,
    /// The coding process.
    pub process: Process,
    /// The bits per sample; 8 in nearly every file.
    pub precision: u8,
    /// The meaning of the components. It follows from the Adobe transform, the JFIF marker and the component
    /// identifiers.
    pub color_space: JpegColorSpace,
    /// The number of components.
    pub components: u8,
    /// The sampling factors (horizontal, vertical; 1..=4) of the first four components; (0, 0) for missing components.
    pub factors: [(u8, u8); 4],
    /// The number of MCUs between restart markers; 0 if there are no restart markers.
    pub restart_interval: u32,
    /// Whether the first scan holds all components, as the only scan of nearly every baseline file does.
    pub interleaved: bool,
    /// Whether, according to the headers, the CPU's region decoder can decode the file.
    pub region_decodable: bool,
}

impl JpegHeader {
    /// The colour model of the planes, if each component can be decoded to a plane without conversion; `None`
    /// otherwise.
    pub fn color(&self) -> Option<ColorModel> {
        match (self.color_space, self.components) {
            (JpegColorSpace::Gray, 1) => Some(ColorModel::Gray),
            (JpegColorSpace::YCbCr, 3) => Some(ColorModel::YCbCr),
            (JpegColorSpace::Rgb, 3) => Some(ColorModel::Rgb),
            _ => None,
        }
    }

    /// The sampling of component `index`. `None` unless a sample spans 1, 2 or 4 pixels along each axis.
    pub(super) fn sampling(&self, index: usize) -> Option<Sampling> {
        let factors = &self.factors[..usize::from(self.components).min(4)];
        let step = |factor: u8, max: u8| {
            (max.is_multiple_of(factor) && matches!(max / factor, 1 | 2 | 4)).then(|| u32::from(max / factor))
        };
        let (h, v) = *factors.get(index)?;
        let (h_max, v_max) =
            factors.iter().fold((1, 1), |(h_max, v_max), &(h, v)| (h.max(h_max), v.max(v_max)));
        Some(Sampling {
            step_x: step(h, h_max)?,
            step_y: step(v, v_max)?,
            image_width: self.width,
            image_height: self.height,
        })
    }

    /// The region that covers the whole image.
    pub fn whole(&self) -> Region {
        Region { x: 0, y: 0, width: self.width, height: self.height }
    }
}

/// Reads the headers of a JPEG file without decoding it.
///
/// # Errors
/// [`DecodeError::NotAnImage`] if `bytes` are not a JPEG, even if they are a PNG. [`DecodeError::Corrupt`] if the
/// headers are contradictory or truncated, or state more pixels than the file can contain. A kind of JPEG that no
/// decoder supports is not an error of this function, and neither is an image above a decoder's limit of pixels.
pub fn parse_header(bytes: &[u8]) -> Result<JpegHeader, DecodeError> {
    if !jpeg::is(bytes) {
        return Err(not_an_image(bytes));
    }
    jpeg::header(bytes)
}

#[cfg(test)]
impl JpegHeader {
    pub(super) fn baseline(factors: [(u8, u8); 4], components: u8) -> Self {
        let color_space = if components == 1 { JpegColorSpace::Gray } else { JpegColorSpace::YCbCr };
        Self {
            width: 100,
            height: 80,
            process: Process::Baseline,
            precision: 8,
            color_space,
            components,
            factors,
            restart_interval: 0,
            interleaved: true,
            region_decodable: true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use jpeg_encoder::{ColorType, Encoder, SamplingFactor};

    fn header(color: ColorType, sampling: SamplingFactor, progressive: bool) -> JpegHeader {
        let mut bytes = Vec::new();
        let mut encoder = Encoder::new(&mut bytes, 80);
        encoder.set_sampling_factor(sampling);
        encoder.set_progressive(progressive);
        encoder.encode(&[128; 4 * 33 * 21], 33, 21, color).unwrap();
        parse_header(&bytes).unwrap()
    }

    #[test]
    fn headers_say_who_can_decode() {
        let plain = header(ColorType::Rgb, SamplingFactor::F_2_1, false);
        assert_eq!((plain.width, plain.height, plain.components), (33, 21, 3));
        assert_eq!((plain.process, plain.color_space), (Process::Baseline, JpegColorSpace::YCbCr));
        assert_eq!((plain.precision, plain.interleaved, plain.region_decodable), (8, true, true));
        let steps = |index| plain.sampling(index).map(|sampling| (sampling.step_x, sampling.step_y));
        assert_eq!(
            [steps(0), steps(1), steps(2), steps(3)],
            [Some((1, 1)), Some((2, 1)), Some((2, 1)), None]
        );
        let progressive = header(ColorType::Rgb, SamplingFactor::F_2_2, true);
        assert_eq!(progressive.process, Process::Progressive);
        let gray = header(ColorType::Luma, SamplingFactor::F_1_1, false);
        assert_eq!((gray.color(), gray.sampling(1)), (Some(ColorModel::Gray), None));
        let ink = header(ColorType::Cmyk, SamplingFactor::F_1_1, false);
        assert_eq!((ink.color(), ink.region_decodable), (None, true));
    }

    #[test]
    fn what_is_no_jpeg_has_no_header() {
        assert!(matches!(parse_header(b"\x89PNG\r\n\x1a\n"), Err(DecodeError::NotAnImage(_))));
        assert!(matches!(parse_header(&[0xFF, 0xD8, 0xFF]), Err(DecodeError::Corrupt(_))));
    }
}
