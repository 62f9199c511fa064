//! Foreload: a data loader for people who train on GPUs. It knows the epoch's order and loads ahead.
//!
//! Data flows one way: [`dataset`] → [`schedule`] → [`tier`] → [`io`] → [`decode`] → [`augment`] → [`batch`] →
//! hand-off by [`dlpack`]. [`pipeline`] is the one module that knows every stage; `ARCHITECTURE.md` has the
//! picture, the invariants and the words.

pub mod augment;
pub mod batch;
pub mod cli;
pub mod config;
pub mod dataset;
pub mod decode;
pub mod dlpack;
pub mod error;
pub mod gpu;
pub mod io;
pub mod notices;
pub mod pipeline;
#[cfg(feature = "python")]
mod python;
pub mod rng;
pub mod schedule;
pub mod simd;
pub mod simulate;
pub mod slot;
pub mod state;
pub mod tier;
pub mod trace;

pub use error::{Error, Result};
