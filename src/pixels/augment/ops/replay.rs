//! Replays operations that are given as text, as `ImageLoader.view` shows them, on given levels.

use super::{PixelOp, PixelPass};
use base::error::{Error, Result};
use base::simd::Level;
use std::panic::catch_unwind;

/// Applies `ops`, a JSON list, to the levels of an image of `size` (width, height), a plane for each colour, and
/// returns the new levels.
///
/// # Errors
/// [`Error::Config`] for `ops` or `levels`: the text is no such list, the number of levels is not that of the image, or
/// an operation cannot be applied to an image of that size.
pub fn replay(ops: &str, levels: &[u8], size: (u32, u32)) -> Result<Vec<u8>> {
    let ops: Vec<PixelOp> = serde_json::from_str(ops).map_err(|error| {
        Error::config("ops", format!("must be a list of operations as ImageLoader.view returns it: {error}"))
    })?;
    let pixels = u64::from(size.0) * u64::from(size.1);
    if levels.len() as u64 != 3 * pixels {
        let message = format!("has {} values, must have 3 for each of {pixels} pixels", levels.len());
        return Err(Error::config("levels", message));
    }
    // Drawn operations always fit their image. Operations of a list written by hand may not, and then they panic.
    catch_unwind(|| {
        let mut pass = PixelPass::new(Level::detect());
        pass.levels(pixels as usize).copy_from_slice(levels);
        pass.run(&ops, size).to_vec()
    })
    .map_err(|_| {
        Error::config("ops", format!("cannot be applied to an image of {}×{} pixels", size.0, size.1))
    })
}
