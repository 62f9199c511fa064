//! The pass on a GPU: one launch a view, the same bits as [`Augmenter`](super::Augmenter); a look at its planes before,
//! and colours behind.
//!
//! The kernels are in `cuda/`; here are what they are told and what launches them.

mod colours;
mod kernels;
mod launcher;
mod params;
mod untouched;

pub(crate) use colours::{LaneMemory, MOST_COLOUR_STEPS, ViewLauncher};
pub use launcher::{Kernels, Launch, Launcher};
pub use params::{ImageParams, OutputParams};
pub use untouched::{POISON, Untouched};
