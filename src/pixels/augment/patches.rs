//! Cuts a finished image into square patches.

use super::{MemoryFormat, Output};

/// Returns the values of an image's patches of `side` × `side` pixels, row by row of patches. The values of a patch are
/// in the order of the image's format: of R, then of G, then of B, each row by row; or pixel by pixel, row by row.
///
/// # Panics
/// Panics unless `image` has the bytes of `output`, whose sides are multiples of `side`.
pub fn patches(output: &Output, side: u32, image: &[u8]) -> Vec<u8> {
    let [side, height, width] = [side, output.height, output.width].map(|pixels| pixels as usize);
    assert!(height.is_multiple_of(side) && width.is_multiple_of(side) && image.len() == output.bytes());
    let (planes, pixel) = match output.format {
        MemoryFormat::Nchw => (3, output.dtype.size()),
        MemoryFormat::Nhwc => (1, 3 * output.dtype.size()),
    };
    let mut values = Vec::with_capacity(image.len());
    for top in (0..height).step_by(side) {
        for left in (0..width).step_by(side) {
            for plane in 0..planes {
                for row in top..top + side {
                    let start = ((plane * height + row) * width + left) * pixel;
                    values.extend_from_slice(&image[start..start + side * pixel]);
                }
            }
        }
    }
    values
}

/// Returns the row and the column of each patch of an image, in the order of [`patches`].
pub fn patch_positions(output: &Output, side: u32) -> impl Iterator<Item = [i32; 2]> {
    let [rows, columns] = [output.height / side, output.width / side].map(u32::cast_signed);
    (0..rows).flat_map(move |row| (0..columns).map(move |column| [row, column]))
}
