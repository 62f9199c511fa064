//! The kinds of sources, a file or a folder each.

pub(crate) mod folder;
pub(crate) mod redis;
pub(crate) mod zeromq;
