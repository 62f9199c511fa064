//! The pass on a GPU: one launch for each view, with the same bits as [`Augmenter`](super::Augmenter). Before it the
//! decoded planes are checked, after it colours are changed.
//!
//! The kernels are in `cuda/`. Here are their parameters and what launches them.

mod kernels;
mod launcher;
mod mixing;
mod params;
mod program;
#[cfg(test)]
mod tests;
mod untouched;
mod views;

pub use launcher::{Kernels, Launch, Launcher};
pub use mixing::{MixLauncher, RingParams};
pub use params::{ImageParams, OutputParams};
pub use program::Programs;
pub(super) use program::{HeldLevels, ProgramWriter};
pub use untouched::{POISON, Untouched};
pub use views::{LaneMemory, LevelsAt, ProgramsAt, ViewLauncher};
