//! Operations that come as text, as `ImageLoader.view` shows them, run once more on levels that are given.

use super::{PixelOp, PixelPass};
use base::error::{Error, Result};
use base::simd::Level;
use std::panic::catch_unwind;

/// What `ops`, a JSON list, make of the levels of an image of `size`, its width and height: a plane of each colour.
///
/// # Errors
/// [`Error::Config`] for `ops` or `levels`: the text is no such list, there are not as many levels as the image has, or
/// an operation cannot be done to an image of that size.
pub fn replay(ops: &str, levels: &[u8], size: (u32, u32)) -> Result<Vec<u8>> {
    let ops: Vec<PixelOp> = serde_json::from_str(ops)
        .map_err(|error| Error::config("ops", format!("must be a list as view gives it: {error}")))?;
    let pixels = u64::from(size.0) * u64::from(size.1);
    if levels.len() as u64 != 3 * pixels {
        let message = format!("are {}, must be 3 of each of {pixels} pixels", levels.len());
        return Err(Error::config("levels", message));
    }
    // Transforms draw nothing that does not fit an image; a list by hand may hold anything.
    catch_unwind(|| {
        let mut pass = PixelPass::new(Level::detect());
        pass.levels(pixels as usize).copy_from_slice(levels);
        pass.run(&ops, size).to_vec()
    })
    .map_err(|_| Error::config("ops", format!("cannot be done to {} × {} pixels", size.0, size.1)))
}
