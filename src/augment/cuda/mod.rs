//! The pass on a GPU: one launch a batch, the same bits as [`Augmenter`](super::Augmenter); and a look at its planes before.
//!
//! The kernels are in `cuda/`; here are what they are told and what launches them.

mod kernels;
mod launcher;
mod params;
mod untouched;

pub use kernels::KERNELS;
pub use launcher::{Kernels, Launch, Launcher};
pub use params::{ImageParams, OutputParams};
pub use untouched::{POISON, Untouched};
