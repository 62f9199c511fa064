//! nvJPEG, found and loaded at run time: to build this crate or to start a program with it, nothing of NVIDIA's is
//! needed.
//!
//! Three layers: [`sys`] declares what the header declares; [`result`] turns each status into a [`Result`] whose error
//! names the call; [`safe`] has handles that free themselves in the right order. [`Library::load`] finds the library.

mod find;
pub mod result;
pub mod safe;
pub mod sys;

pub use find::{Library, LoadError, Search, Version, has_video_driver};
pub use result::{Error, Result};
