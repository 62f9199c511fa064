//! What every layer of Foreload uses and that knows none of them: errors and notices, names and units that users write,
//! checksums, random numbers, the processor's vector instructions, page-aligned buffers, the log of what a job did when
//! (`trace`), and how the processes of a user find one another on a node (`node`).

#![warn(missing_docs, unreachable_pub)]

pub mod crc;
pub mod error;
pub mod json;
pub mod names;
pub mod node;
pub mod notices;
pub mod parts;
pub mod rng;
pub mod simd;
pub mod slot;
pub mod text;
pub mod tier_name;
pub mod trace;
pub mod units;
pub mod version;
