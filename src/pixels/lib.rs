//! From the bytes of an image to a tensor: decoders, random transforms, and access to the GPU that can run both.

#![warn(missing_docs, unreachable_pub)]

pub mod augment;
pub mod decode;
pub mod gpu;
