//! From the bytes of an image to a tensor: decoders, the transforms and their draws, and the GPU that some of both run
//! on.

#![warn(missing_docs, unreachable_pub)]

pub mod augment;
pub mod decode;
pub mod gpu;
