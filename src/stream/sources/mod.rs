//! The kinds of sources, a file or a folder each.

pub mod folder;
#[cfg(feature = "redis")]
pub mod redis;
#[cfg(feature = "zeromq")]
pub mod zeromq;
