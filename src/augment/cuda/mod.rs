//! The pass on a GPU: one launch a batch, the same bits as [`Augmenter`](super::Augmenter).
//!
//! The kernels are in `cuda/`; here are what they are told and what launches them.

mod kernels;
mod launcher;
mod params;

pub use kernels::KERNELS;
pub use launcher::{Kernels, Launch, Launcher};
pub use params::{ImageParams, OutputParams};
