//! The kinds of sources. Each has a file or a folder.

pub mod folder;
#[cfg(feature = "redis")]
pub mod redis;
#[cfg(feature = "zeromq")]
pub mod zeromq;
