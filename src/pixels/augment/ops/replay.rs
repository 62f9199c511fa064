//! Applies a JSON list of operations, as `ImageLoader.view` returns it, to the grey levels of an image.

use super::{PixelOp, PixelPass};
use base::error::{Error, Result};
use base::simd::Level;
use std::panic::catch_unwind;

/// Applies `ops`, a JSON list, to `levels` and returns the new levels. `levels` has the planes of R, G and B of an
/// image of `size` (width, height).
///
/// # Errors
/// [`Error::Config`] for `ops` or `levels`: the text is not a list of operations, the number of levels does not match
/// the image's size, or an operation cannot be applied to an image of that size.
pub fn replay(ops: &str, levels: &[u8], size: (u32, u32)) -> Result<Vec<u8>> {
    let ops: Vec<PixelOp> = serde_json::from_str(ops).map_err(|error| {
        Error::config("ops", format!("must be a list of operations as ImageLoader.view returns it: {error}"))
    })?;
    let pixels = u64::from(size.0) * u64::from(size.1);
    if levels.len() as u64 != 3 * pixels {
        let message = format!("has {} values, must have 3 for each of {pixels} pixels", levels.len());
        return Err(Error::config("levels", message));
    }
    // Drawn operations always fit their image. Operations that were written by hand might not fit, and then they panic.
    catch_unwind(|| {
        let mut pass = PixelPass::new(Level::detect());
        pass.levels(pixels as usize).copy_from_slice(levels);
        pass.run(&ops, size).to_vec()
    })
    .map_err(|_| {
        Error::config("ops", format!("cannot be applied to an image of {}×{} pixels", size.0, size.1))
    })
}
