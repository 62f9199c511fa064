//! The kinds of sources: each a file, or a folder of files.

pub(crate) mod folder;
