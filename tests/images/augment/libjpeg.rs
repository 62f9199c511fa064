//! A random JPEG made by libjpeg, and the planes and pixels that libjpeg decodes.

use foreload::testing::decode::{ColorModel, Plane, Planes};
use foreload::testing::rng::RandomStream;
use libjpeg_reference::{Encoding, J_COLOR_SPACE};

/// A JPEG of random colours whose chroma has 1/`across` of the columns and 1/`down` of the rows.
pub fn encode(random: &mut RandomStream, width: u32, height: u32, factors: (u32, u32)) -> Vec<u8> {
    let rgb: Vec<u8> = (0..3 * width * height).map(|_| random.next_u32() as u8).collect();
    let encoding = Encoding {
        width,
        height,
        channels: 3,
        factors,
        quality: 90,
        restart_interval: 0,
        optimised: false,
        progressive: false,
    };
    libjpeg_reference::encode(&rgb, &encoding)
}

/// R, G and B of every pixel.
pub fn rgb(jpeg: &[u8]) -> Vec<u8> {
    libjpeg_reference::pixels(jpeg, J_COLOR_SPACE::JCS_RGB).unwrap().0
}

/// The components' samples, straight after the inverse DCT.
pub fn planes(jpeg: &[u8]) -> Planes {
    let mut reference = libjpeg_reference::planes(jpeg).unwrap();
    let (width, height) = (reference.width, reference.height);
    let planes = std::array::from_fn(|c| {
        let (step_x, step_y) = reference.steps(c);
        let (full_width, full_height) = (width.div_ceil(step_x), height.div_ceil(step_y));
        let (stride, data) = std::mem::take(&mut reference.planes[c]);
        Plane {
            data,
            stride,
            x0: 0,
            y0: 0,
            width: full_width,
            height: full_height,
            full_width,
            full_height,
            step_x,
            step_y,
        }
    });
    Planes { image_width: width, image_height: height, color: ColorModel::YCbCr, planes }
}
