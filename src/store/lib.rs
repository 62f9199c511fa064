//! Reads samples from drives, from servers, from other nodes, and from cached copies.
//!
//! - `io` reads extents of files, by io_uring or threads, and extents of files on servers.
//! - `segments` writes the files that hold cached copies.
//! - `peers` serves a node's cached samples to other nodes, and reads samples from them.
//! - `tier` plans from the sample order which samples to keep in memory and on NVMe, keeps them, and reads each sample
//!   from the cheapest place.

#![warn(missing_docs, unreachable_pub)]

pub mod io;
pub mod peers;
pub mod segments;
pub mod tier;
