//! The pass on a GPU, with the same bits as [`Augmenter`](super::Augmenter). The kernels are in the repository's
//! `cuda/` folder; this module has their parameters and launches them.
//!
//! Each view takes one launch, or two if pixels change: the first launch makes grey levels or finished images, and the
//! second runs the images' programs on them. Mixing takes one more launch for each view when the batch is complete.
//! Before the pass, decoded planes are checked ([`PoisonCheck`]). Tests also compile the kernels for the CPU, run them
//! there, and compare the bytes.

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
pub use mixing::{MixGroupParams, MixLauncher};
pub use params::{ImageParams, OutputParams};
pub use program::Programs;
pub(super) use program::{LevelSetRef, ProgramWriter};
pub use untouched::{POISON, PoisonCheck};
pub use views::{LaneMemory, LevelsAt, ProgramsAt, ViewLauncher};
