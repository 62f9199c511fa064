//! Datasets: where they are stored, what they contain, and in which order an epoch takes their samples.
//!
//! - `source` lists and reads directories, servers and object stores; `http` is the client for remote ones.
//! - `dataset` builds the index of a dataset, whatever its layout.
//! - `schedule` assigns samples to the steps of an epoch, and `state` stores the progress of a training run.
//! - `pack` writes a dataset to new shards, packed or tar, and unpacks them.

#![warn(missing_docs, unreachable_pub)]

pub mod dataset;
pub mod http;
pub mod pack;
pub mod schedule;
pub mod source;
pub mod state;
