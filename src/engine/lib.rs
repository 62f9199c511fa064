//! The engine: turns a schedule of samples into batches.
//!
//! - `config` has the settings and resolves them for one dataset and machine.
//! - `pipeline` runs the stages in threads; `batch` has the batches that the pipeline makes.
//! - `sharing` and `serve` give the batches of one pipeline to several processes.
//! - `status` reports the state of running loaders; `show` draws batches for people to look at.

#![warn(unreachable_pub)]

// The public Rust API uses only these three modules of this crate.
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
