//! Grey and saturation, as torchvision computes them.

use super::arithmetic::{fma, truncate};
use crate::level::vectorised;

/// Returns the grey level that torchvision's `rgb_to_grayscale` of uint8 gives, for each of the 2^24 colours: .2989 R +
/// .587 G + .114 B, truncated. torch rounds the first product, and then each sum once.
#[inline(always)]
pub(super) fn luma(red: u8, green: u8, blue: u8) -> u8 {
    let grey = fma(f32::from(blue), 0.114, fma(f32::from(green), 0.587, f32::from(red) * 0.2989));
    // SAFETY: the factors sum to less than 1, so the value is in 0..=255. With the checks of `truncate`, loops over
    // pixels would take 1.5 times as long.
    let level: i32 = unsafe { grey.to_int_unchecked() };
    level as u8
}

vectorised! {
    /// Replaces the levels of planes of the same length by their grey level.
    pub(super) fn to_grey(red: &mut [u8], green: &mut [u8], blue: &mut [u8]) {
        for ((red, green), blue) in red.iter_mut().zip(green).zip(blue) {
            let grey = luma(*red, *green, *blue);
            (*red, *green, *blue) = (grey, grey, grey);
        }
    }
}

vectorised! {
    /// Replaces every level by level · `of_level` + grey · `of_grey`. `of_level` is the saturation factor and `of_grey`
    /// is 1 minus this factor, each rounded to float32.
    pub(super) fn saturate(red: &mut [u8], green: &mut [u8], blue: &mut [u8], of_level: f32, of_grey: f32) {
        for ((red, green), blue) in red.iter_mut().zip(green).zip(blue) {
            let grey = f32::from(luma(*red, *green, *blue));
            *red = truncate(fma(grey, of_grey, f32::from(*red) * of_level));
            *green = truncate(fma(grey, of_grey, f32::from(*green) * of_level));
            *blue = truncate(fma(grey, of_grey, f32::from(*blue) * of_level));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grey_is_torchvisions() {
        // Results of torchvision 0.29's `v2.functional.rgb_to_grayscale`, for extreme colours, and for colours whose
        // weighted sum is an integer or nearly an integer.
        for ([red, green, blue], grey) in GOLDEN {
            assert_eq!(luma(red, green, blue), grey, "{red} {green} {blue}");
        }
    }

    const GOLDEN: [([u8; 3], u8); 17] = [
        ([0, 0, 0], 0),
        ([255, 255, 255], 254),
        ([255, 0, 0], 76),
        ([0, 255, 0], 149),
        ([0, 0, 255], 29),
        ([128, 128, 128], 127),
        ([20, 220, 113], 148),
        ([80, 164, 130], 135),
        ([140, 104, 229], 129),
        ([200, 52, 164], 109),
        ([255, 171, 0], 176),
        // These colours detect other rounding: the exact sum, or a sum in which each product is rounded, gives another
        // level.
        ([20, 152, 7], 96),
        ([40, 244, 244], 183),
        ([170, 61, 170], 106),
        ([250, 9, 228], 105),
        ([250, 13, 146], 98),
        ([250, 47, 199], 124),
    ];
}
