//! Handles that free themselves, after everything that was made from them. Functions stay `unsafe` if they access
//! device memory or if their work continues after they return.

mod handle;
mod objects;

pub use crate::sys::{
    nvjpegBackend_t as Backend, nvjpegChromaSubsampling_t as ChromaSubsampling, nvjpegImage_t as Image,
    nvjpegOutputFormat_t as OutputFormat,
};
pub use handle::{Allocator, Handle};
pub use objects::{Batch, BitStream, Decoder, DeviceBuffer, Params, PinnedBuffer, State, image};
