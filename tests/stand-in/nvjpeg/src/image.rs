//! One image: from the file's bytes to planes, and into the caller's memory.

use nvjpeg_sys::sys::{
    nvjpegChromaSubsampling_t as Css, nvjpegImage_t as Image, nvjpegOutputFormat_t as Format,
    nvjpegStatus_t as Status,
};

use crate::Answer;
use crate::driver::{Rows, copy_rows};
use crate::header::Header;

/// The part of an image to decode: (x, y, width, height) in pixels.
pub type Rectangle = (u32, u32, u32, u32);

/// How to decode an image.
#[derive(Debug, Clone, Copy)]
pub struct Wish {
    pub format: Format,
    pub region: Option<Rectangle>,
    pub strict: bool,
    /// Whether chroma planes lose their last samples if the image's size is odd.
    pub floor_chroma: bool,
}

/// Planes, one after another.
#[derive(Default)]
pub struct Planes {
    pub bytes: Vec<u8>,
    /// The (width, height) of each plane.
    shapes: Vec<(usize, usize)>,
}

/// Whether any implementation supports this kind of file.
pub fn is_known(header: &Header) -> bool {
    let known = [
        Css::NVJPEG_CSS_444,
        Css::NVJPEG_CSS_422,
        Css::NVJPEG_CSS_420,
        Css::NVJPEG_CSS_440,
        Css::NVJPEG_CSS_411,
        Css::NVJPEG_CSS_410,
        Css::NVJPEG_CSS_GRAY,
    ];
    matches!(header.marker, 0xC0..=0xC2) && header.precision == 8 && known.contains(&header.sampling())
}

/// Decodes a file.
pub fn decode(file: &[u8], wish: &Wish) -> Answer<Planes> {
    let header = Header::parse(file)?;
    if !is_known(&header) {
        return Err(Status::NVJPEG_STATUS_JPEG_NOT_SUPPORTED);
    }
    let count = header.factors.len();
    // The documentation does not say what chroma planes a gray image has.
    let wanted = if count == 1 { Format::NVJPEG_OUTPUT_Y } else { Format::NVJPEG_OUTPUT_YUV };
    let (x, y, width, height) = wish.region.unwrap_or((0, 0, header.width, header.height));
    let inside = |start: u32, length: u32, full: u32| {
        length > 0 && u64::from(start) + u64::from(length) <= full.into()
    };
    // The library says: "ROI offset should be aligned to subsampled pixel".
    let aligned = (0..count).all(|c| {
        let (step_x, step_y) = header.steps(c);
        x.is_multiple_of(step_x) && y.is_multiple_of(step_y)
    });
    if wish.format != wanted
        || !inside(x, width, header.width)
        || !inside(y, height, header.height)
        || !aligned
    {
        return Err(Status::NVJPEG_STATUS_INVALID_PARAMETER);
    }
    let reference = libjpeg_reference::planes(file).map_err(|_| Status::NVJPEG_STATUS_BAD_JPEG)?;
    if wish.strict && reference.warnings > 0 {
        return Err(Status::NVJPEG_STATUS_BAD_JPEG);
    }
    let mut planes = Planes::default();
    for (component, (stride, samples)) in reference.planes.iter().enumerate() {
        let (step_x, step_y) = header.steps(component);
        let along = |length: u32, step: u32| {
            if wish.floor_chroma { (length / step).max(1) } else { length.div_ceil(step) }
        };
        let (columns, rows) = (along(width, step_x) as usize, along(height, step_y) as usize);
        for row in 0..rows {
            let start = ((y / step_y) as usize + row) * stride + (x / step_x) as usize;
            planes.bytes.extend(&samples[start..start + columns]);
        }
        planes.shapes.push((columns, rows));
    }
    Ok(planes)
}

impl Planes {
    /// Refuses targets that are too small for the planes.
    pub fn check(&self, target: &Image) -> Answer {
        let fits = |(index, &(width, _)): (usize, &(usize, usize))| {
            !target.channel[index].is_null() && target.pitch[index] >= width
        };
        if self.shapes.iter().enumerate().all(fits) {
            Ok(())
        } else {
            Err(Status::NVJPEG_STATUS_INVALID_PARAMETER)
        }
    }

    /// Queues the copies of the planes, whose bytes begin at `address`.
    pub fn send(&self, address: u64, on_device: bool, target: &Image, stream: u64) -> Answer {
        let mut at = address;
        for (index, &(width, height)) in self.shapes.iter().enumerate() {
            let from = Rows { address: at, pitch: width, on_device };
            let to =
                Rows { address: target.channel[index] as u64, pitch: target.pitch[index], on_device: true };
            copy_rows(to, from, width, height, stream)?;
            at += (width * height) as u64;
        }
        Ok(())
    }
}
