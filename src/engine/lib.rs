//! From a schedule to batches.
//!
//! `config` has the settings, and what follows from them for a dataset and a machine. `pipeline` runs the stages in
//! threads; `batch` is what comes out. `sharing` and `serve` give one pipeline's batches to several processes.
//! `status` and `show` say what happens.

#![warn(unreachable_pub)]

// What Rust programs use of this crate is in these three.
#[warn(missing_docs)]
pub mod batch;
#[warn(missing_docs)]
pub mod config;
#[warn(missing_docs)]
pub mod pipeline;
pub mod serve;
pub mod sharing;
pub mod show;
pub mod status;
