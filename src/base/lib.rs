//! The foundation of all layers, which depends on none of them:
//!
//! - `error` and `notices`: errors, and warnings and information for the user;
//! - `names`, `units`, `json` and `tier_name`: values in settings, and names in statistics;
//! - `counting`: counters with names;
//! - `crc`, `rng`, `simd`, `slot` and `parts`: checksums, random numbers, SIMD levels, page-aligned buffers, and wanted
//!   byte ranges;
//! - `threads`: starting and ending threads;
//! - `trace`: the interval log of a job;
//! - `locks`: locks that survive a panic;
//! - `node`: how the processes of a user find one another on a node.

#![warn(missing_docs, unreachable_pub)]

pub mod counting;
pub mod crc;
pub mod error;
pub mod json;
pub mod locks;
pub mod lookup3;
pub mod names;
pub mod node;
pub mod notices;
pub mod parts;
pub mod rng;
pub mod simd;
pub mod slot;
pub mod text;
pub mod threads;
pub mod tier_name;
pub mod trace;
pub mod units;
pub mod version;
