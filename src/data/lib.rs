//! Datasets: where they lie, what is in them, and in which order an epoch takes it.
//!
//! `source` lists and reads directories, servers and object stores, over `http` where they are far away. `dataset`
//! makes an index of what lies there, in any layout. `schedule` says which sample an epoch takes when, `state` how far
//! a training has come. `pack` writes a dataset anew as packed shards or tars.

#![warn(missing_docs, unreachable_pub)]

pub mod dataset;
pub mod http;
pub mod pack;
pub mod schedule;
pub mod source;
pub mod state;
