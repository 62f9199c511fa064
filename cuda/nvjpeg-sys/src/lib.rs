//! nvJPEG, found and loaded at run time: nothing of NVIDIA's is needed to build this or to start a program with it.
//!
//! Three layers: [`sys`] is what the header declares; [`result`] makes a [`Result`] of every status, which names the
//! call; [`safe`] has handles that free themselves in the right order. [`Library::load`] finds the library.

mod find;
pub mod result;
pub mod safe;
pub mod sys;

pub use find::{Library, LoadError, Search, Version, has_video_driver};
pub use result::{Error, Result};
