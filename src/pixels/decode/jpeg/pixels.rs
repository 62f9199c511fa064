//! Computes full-resolution planes from components that the resize does not support as they are coded: four components,
//! subsampled RGB, or samples that span three pixels. Upsampling follows libjpeg, and the conversion of CMYK to RGB
//! follows Pillow.

use crate::decode::header::JpegColorSpace;
use crate::decode::upsampling::ycc_to_rgb;
use crate::decode::{Plane, Planes, Region};

/// Fills the planes of `out`, which are shaped for `region`, from the image's components.
pub(super) fn assemble(components: &[Plane], color_space: JpegColorSpace, region: Region, out: &mut Planes) {
    let width = region.width as usize;
    let rows = (region.y..region.y + region.height).enumerate();
    let paper: fn([u8; 4]) -> [u8; 3] = match color_space {
        JpegColorSpace::Gray | JpegColorSpace::YCbCr | JpegColorSpace::Rgb => {
            for (component, plane) in components.iter().zip(&mut out.planes) {
                for (row, y) in rows.clone() {
                    component.upsample_row(&region, y, &mut plane.data[row * plane.stride..][..width]);
                }
            }
            return;
        }
        JpegColorSpace::Cmyk => |[c, m, y, k]| cmyk_to_rgb([c, m, y], k),
        JpegColorSpace::Ycck => |[y, cb, cr, k]| cmyk_to_rgb(ycc_to_rgb(y, cb, cr).map(|ink| 255 - ink), k),
    };
    let mut inks: [Vec<u8>; 4] = std::array::from_fn(|_| vec![0; width]);
    for (row, y) in rows {
        for (component, ink) in components.iter().zip(&mut inks) {
            component.upsample_row(&region, y, ink);
        }
        let at = row * out.planes[0].stride;
        let [first, second, third, fourth] = &inks;
        let of_pixels = first.iter().zip(second).zip(third).zip(fourth);
        for (x, (((&first, &second), &third), &fourth)) in of_pixels.enumerate() {
            let rgb = paper([first, second, third, fourth]);
            for (plane, value) in out.planes.iter_mut().zip(rgb) {
                plane.data[at + x] = value;
            }
        }
    }
}

/// Converts stored cyan, magenta, yellow and black to red, green and blue, as Pillow does. Stored values are inverted,
/// as Adobe's programs write them. The result is the product of the light that the ink and the black let through.
fn cmyk_to_rgb(stored: [u8; 3], black: u8) -> [u8; 3] {
    let light = u32::from(black);
    stored.map(|stored| {
        let product = u32::from(255 - stored) * light + 128;
        (light - ((product + (product >> 8)) >> 8).min(light)) as u8
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ink_on_paper_is_as_pillow_has_it() {
        // The expected values are those of Pillow 12: Image.new("CMYK", (1, 1), (255 - c, 255 - m, 255 - y, 255 -
        // k)).convert("RGB").
        assert_eq!(cmyk_to_rgb([255, 128, 0], 255), [255, 128, 0]);
        assert_eq!(cmyk_to_rgb([255, 128, 0], 100), [100, 50, 0]);
        assert_eq!(cmyk_to_rgb([200, 100, 50], 0), [0, 0, 0]);
    }
}
