//! The pass on a GPU: one launch for each view, with the same bits as [`Augmenter`](super::Augmenter). Before it the
//! decoded planes are checked, after it colours are changed.
//!
//! The kernels are in `cuda/`. Here are their parameters and what launches them.

mod colours;
mod kernels;
mod launcher;
mod mixing;
mod params;
mod untouched;

pub(crate) use colours::{LaneMemory, ViewLauncher};
pub use launcher::{Kernels, Launch, Launcher};
pub(crate) use mixing::{MixLauncher, PairParams};
pub use params::{ImageParams, OutputParams};
pub use untouched::{POISON, Untouched};
