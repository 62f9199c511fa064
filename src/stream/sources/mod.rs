//! The kinds of sources, one in each module.

pub mod folder;
#[cfg(feature = "redis")]
pub mod redis;
#[cfg(feature = "zeromq")]
pub mod zeromq;
