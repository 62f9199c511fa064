//! Handles that free themselves, after everything that was made from them. Functions that read or write memory of the
//! device, or whose work goes on after they returned, stay `unsafe`.

mod handle;
mod objects;

pub use crate::sys::{
    nvjpegBackend_t as Backend, nvjpegChromaSubsampling_t as ChromaSubsampling, nvjpegImage_t as Image,
    nvjpegOutputFormat_t as OutputFormat,
};
pub use handle::{Allocator, Handle};
pub use objects::{Batch, BitStream, Decoder, DeviceBuffer, Params, PinnedBuffer, State, image};
