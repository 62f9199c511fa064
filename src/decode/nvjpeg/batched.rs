//! Many images in one call: the decoding engine, and the CUDA kernels that decode Huffman codes too.

use nvjpeg_sys::safe::{
    Backend, Batch, BitStream, ChromaSubsampling, Handle, Image, OutputFormat, State, image,
};

use super::decoder::{Outcome, refusal, region};
use super::memory::Memory;
use super::{Library, Request, Rung};
use crate::decode::ColorModel;
use crate::error::{DecodeError, Error, Result};
use crate::gpu::{Device, Event, Stream};

/// A batch's images all have the same output format, so gray ones go in a call of their own.
const FORMATS: [(ColorModel, OutputFormat); 2] =
    [(ColorModel::YCbCr, OutputFormat::NVJPEG_OUTPUT_YUV), (ColorModel::Gray, OutputFormat::NVJPEG_OUTPUT_Y)];

/// nvJPEG's batched decoder on one backend.
pub(super) struct Batched {
    rung: Rung,
    // Dropped before the handle.
    calls: Vec<Call>,
    parsed: BitStream,
    handle: Handle,
}

/// What calls of one output format need.
struct Call {
    color: ColorModel,
    format: OutputFormat,
    state: State,
    params: Batch,
    /// Passed when the last call is done.
    done: Event,
    // Of the call in preparation.
    indices: Vec<usize>,
    files: Vec<*const u8>,
    lengths: Vec<usize>,
    images: Vec<Image>,
}

// SAFETY: the pointers are of the call in preparation, which one thread makes from beginning to end.
unsafe impl Send for Call {}

impl Batched {
    /// The decoder of `rung` for batches of up to `batch` images.
    ///
    /// # Errors
    /// Where the GPU or the library does not have it.
    pub(super) fn new(
        library: &Library,
        device: &Device,
        memory: &Memory,
        rung: Rung,
        batch: usize,
    ) -> Result<Self> {
        let backend = match rung {
            Rung::Hardware => Backend::NVJPEG_BACKEND_HARDWARE,
            _ => Backend::NVJPEG_BACKEND_GPU_HYBRID,
        };
        let flags = nvjpeg_sys::sys::NVJPEG_FLAGS_BITSTREAM_STRICT;
        let failed = |error: nvjpeg_sys::Error| Error::Unavailable(error.to_string());
        let handle = Handle::new(library.raw(), backend, memory.of_device(), memory.of_host(), flags);
        let handle = handle.map_err(failed)?;
        let parsed = BitStream::new(&handle).map_err(failed)?;
        let mut calls = Vec::with_capacity(FORMATS.len());
        for (color, format) in FORMATS {
            let mut state = State::new(&handle).map_err(failed)?;
            if rung == Rung::Hardware && color == ColorModel::YCbCr {
                // A hint, which older libraries do not take. Whatever the size it says, the engine is faster after it
                // (nvImageCodec, extensions/nvjpeg/hw_decoder.cpp); memory grows with the images that come.
                let css = ChromaSubsampling::NVJPEG_CSS_444;
                let _ = state.preallocate(batch.max(1), (1, 1), css, format);
            }
            calls.push(Call {
                color,
                format,
                state,
                params: Batch::default(),
                done: Event::new(device)?,
                indices: Vec::with_capacity(batch),
                files: Vec::with_capacity(batch),
                lengths: Vec::with_capacity(batch),
                images: Vec::with_capacity(batch),
            });
        }
        Ok(Self { rung, calls, parsed, handle })
    }

    /// Engines of the GPU, and cores of each.
    pub(super) fn engines(&self) -> nvjpeg_sys::Result<(u32, u32)> {
        self.handle.engines()
    }

    /// Whether nothing is under way.
    pub(super) fn is_idle(&self) -> Result<bool> {
        self.calls.iter().try_fold(true, |idle, call| Ok(idle && call.done.is_done()?))
    }

    /// Decodes what `outcomes` does not refuse yet.
    pub(super) fn decode(
        &mut self,
        stream: &Stream,
        requests: &[Request<'_>],
        outcomes: &mut [Outcome],
    ) -> Result<()> {
        let Self { rung, calls, parsed, handle } = self;
        for call in calls {
            call.prepare(handle, parsed, *rung, requests, outcomes)?;
            if call.indices.is_empty() {
                continue;
            }
            if *rung == Rung::Hardware {
                // The engine does not wait for what the stream has queued before: it writes when it is called (seen on
                // H100 with nvJPEG 12.3 to 13.2; torchcodec pull request 1634). So what is queued must be done.
                stream.synchronize()?;
            }
            call.decode(stream, outcomes)?;
        }
        Ok(())
    }
}

impl Call {
    /// Gathers the images of this format that the backend takes.
    fn prepare(
        &mut self,
        handle: &Handle,
        parsed: &mut BitStream,
        rung: Rung,
        requests: &[Request<'_>],
        outcomes: &mut [Outcome],
    ) -> Result<()> {
        // The state and the parameters serve the last call until it is done.
        self.done.synchronize()?;
        self.indices.clear();
        self.files.clear();
        self.lengths.clear();
        self.images.clear();
        for (index, (request, outcome)) in requests.iter().zip(outcomes).enumerate() {
            if outcome.is_err() || request.layout.color != self.color {
                continue;
            }
            let mut take = || {
                let params = self.params.get(handle, self.indices.len())?;
                params.set_output(self.format)?;
                params.set_region(region(request))?;
                parsed.parse_header(request.bytes)?;
                handle.takes(parsed, params)
            };
            match take() {
                Ok(true) => {
                    self.indices.push(index);
                    self.files.push(request.bytes.as_ptr());
                    self.lengths.push(request.bytes.len());
                    self.images.push(target(request));
                }
                Ok(false) => {
                    *outcome = Err(DecodeError::Unsupported(format!("JPEG, for nvJPEG's {}", rung.name())));
                }
                Err(error) => *outcome = Err(refusal(error)),
            }
        }
        Ok(())
    }

    /// One call for all, and where it fails one for each: a batch does not say which of its images is to blame.
    fn decode(&mut self, stream: &Stream, outcomes: &mut [Outcome]) -> Result<()> {
        if let Err(error) = self.attempt(0..self.indices.len(), stream) {
            // The state is free again, and an error of the GPU itself comes out here.
            stream.synchronize()?;
            if self.indices.len() == 1 {
                outcomes[self.indices[0]] = Err(refusal(error));
            } else {
                for at in 0..self.indices.len() {
                    if let Err(error) = self.attempt(at..at + 1, stream) {
                        outcomes[self.indices[at]] = Err(refusal(error));
                    }
                    stream.synchronize()?;
                }
            }
        }
        self.done.record(stream)
    }

    fn attempt(&mut self, range: std::ops::Range<usize>, stream: &Stream) -> nvjpeg_sys::Result<()> {
        self.state.initialise_batch(range.len(), self.format)?;
        let (files, lengths) = (&self.files[range.clone()], &self.lengths[range.clone()]);
        // SAFETY: the caller of the decoder keeps files and targets until the stream has passed; targets have room for
        // the layout, which is what the parameters ask for; the last batch of this state is done.
        unsafe {
            self.state.decode_batch(
                files,
                lengths,
                &mut self.images[range.clone()],
                &self.params,
                range.start,
                stream.handle(),
            )
        }
    }
}

/// Where a request's planes go.
pub(super) fn target(request: &Request<'_>) -> Image {
    let count = request.layout.used().len();
    let planes = request.planes.map(|plane| (plane.ptr, plane.stride));
    image(&planes[..count])
}
