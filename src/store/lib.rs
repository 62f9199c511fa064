//! Reading: from drives, from other nodes, and from copies that are kept.
//!
//! `io` reads extents of files by io_uring or threads, and of remote objects. `peers` serves what a node keeps to
//! others, and reads from them. `segments` writes the files that copies lie in. `tier` plans from the schedule what is
//! worth keeping in memory and on NVMe, keeps it, and reads each sample from where it is cheapest.

#![warn(missing_docs, unreachable_pub)]

pub mod io;
pub mod peers;
pub mod segments;
pub mod tier;
