//! Runs the operations of one image on its grey levels.

use super::PixelOp;
use super::grey;

/// Three planes of grey levels, R, G and B, and what operations need beside them. Each thread has one.
#[derive(Debug, Default)]
pub(in crate::augment) struct PixelPass {
    levels: Vec<u8>,
}

impl PixelPass {
    /// Room for the levels of an image of this many pixels, all of which must be written.
    pub(in crate::augment) fn levels(&mut self, pixels: usize) -> &mut [u8] {
        self.levels.resize(3 * pixels, 0);
        &mut self.levels
    }

    /// Applies `ops` in order to the levels of an image of `width` × `height` pixels, and returns them.
    pub(in crate::augment) fn run(&mut self, ops: &[PixelOp], (width, height): (u32, u32)) -> &[u8] {
        let pixels = width as usize * height as usize;
        for op in ops {
            let (red, others) = self.levels.split_at_mut(pixels);
            let (green, blue) = others.split_at_mut(pixels);
            match op {
                PixelOp::RgbToGrayscale => grey::to_grey([red, green, blue]),
                other => unimplemented!("{other:?}"),
            }
        }
        &self.levels
    }
}
