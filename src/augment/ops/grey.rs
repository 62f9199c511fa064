//! Grey, as torchvision has it.

/// Makes the levels of R, G and B, planes of the same length, grey.
pub(super) fn to_grey([red, green, blue]: [&mut [u8]; 3]) {
    for ((red, green), blue) in red.iter_mut().zip(green).zip(blue) {
        let grey = luma(*red, *green, *blue);
        (*red, *green, *blue) = (grey, grey, grey);
    }
}

/// The grey level that torchvision's `rgb_to_grayscale` of uint8 gives, for each of the 2^24 colours:
/// .2989 R + .587 G + .114 B, truncated. torch computes it in f32 and rounds each sum once. The same comes of f64,
/// because it holds the products and sums exactly before they are rounded.
#[inline]
fn luma(red: u8, green: u8, blue: u8) -> u8 {
    let first = f32::from(red) * 0.2989;
    let second = (f64::from(first) + f64::from(green) * f64::from(0.587_f32)) as f32;
    let third = (f64::from(second) + f64::from(blue) * f64::from(0.114_f32)) as f32;
    third as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grey_is_torchvisions() {
        // `v2.functional.rgb_to_grayscale` of torchvision 0.29: the levels of the ends, and of colours whose sum is,
        // or is nearly, a whole number.
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
        // Here the decimal sum, or that of sums and products each rounded, would give another level.
        ([20, 152, 7], 96),
        ([40, 244, 244], 183),
        ([170, 61, 170], 106),
        ([250, 9, 228], 105),
        ([250, 13, 146], 98),
        ([250, 47, 199], 124),
    ];
}
