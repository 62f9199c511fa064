//! Decoding of many images in one call, by the decoding engine, or by the CUDA kernels that also decode Huffman codes.
//!
//! The engine and the kernels need different functions of nvJPEG. Calls with parameters, which regions require, work
//! only on the engine's backend (nvJPEG guide, 2.3.3.4). The other backends return status 9 in nvJPEG 12.4 and 13.3,
//! although they report every such file as supported. The kernels decode whole images.

use nvjpeg_sys::safe::{
    Backend, Batch, BitStream, ChromaSubsampling, Handle, Image, OutputFormat, State, image,
};

use super::decoder::{CreateError, ImageOutcome, refusal, region};
use super::memory::WorkingMemory;
use super::{Library, NvJpegBackend, Request};
use crate::decode::ColorModel;
use crate::gpu::{Event, GpuDevice, Stream};
use base::error::{DecodeError, Result};

/// All images of a call have the same output format, so grey images need a separate call.
const FORMATS: [(ColorModel, OutputFormat); 2] =
    [(ColorModel::YCbCr, OutputFormat::NVJPEG_OUTPUT_YUV), (ColorModel::Gray, OutputFormat::NVJPEG_OUTPUT_Y)];

pub(super) struct Batched {
    backend: NvJpegBackend,
    // One caller for each output format. They must be dropped before the handle.
    callers: Vec<Caller>,
    parsed: BitStream,
    /// Scratch event of [`sleep_until_idle`], which records it on a stream and waits for it.
    idle: Event,
    handle: Handle,
}

struct Caller {
    color: ColorModel,
    format: OutputFormat,
    state: State,
    params: Batch,
    done: Event,
    // The images of the call in preparation; `indices` are their positions in the requests.
    indices: Vec<usize>,
    files: Vec<*const u8>,
    lengths: Vec<usize>,
    images: Vec<Image>,
}

// SAFETY: the pointers belong to the call in preparation, which one thread makes from beginning to end.
unsafe impl Send for Caller {}

impl Batched {
    /// Makes the decoder of `backend` for batches of up to `batch` images.
    ///
    /// # Errors
    /// Fails if the GPU or the library lacks the backend.
    pub(super) fn new(
        library: &Library,
        device: &GpuDevice,
        memory: &WorkingMemory,
        backend: NvJpegBackend,
        batch: usize,
    ) -> Result<Self, CreateError> {
        let its_backend = match backend {
            NvJpegBackend::Hardware => Backend::NVJPEG_BACKEND_HARDWARE,
            _ => Backend::NVJPEG_BACKEND_GPU_HYBRID,
        };
        let handle = memory.handle(library, its_backend)?;
        let parsed = BitStream::new(&handle)?;
        let mut callers = Vec::with_capacity(FORMATS.len());
        for (color, format) in FORMATS {
            let mut state = State::new(&handle)?;
            if backend == NvJpegBackend::Hardware && color == ColorModel::YCbCr {
                // A hint, which older libraries do not support. The engine is faster after the hint, whatever size the
                // hint states (nvImageCodec, extensions/nvjpeg/hw_decoder.cpp); memory still grows with the images.
                let css = ChromaSubsampling::NVJPEG_CSS_444;
                let most = batch.clamp(1, backend.max_images_per_call());
                let _ = state.preallocate(most, (1, 1), css, format);
            }
            callers.push(Caller {
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
        Ok(Self { backend, callers, parsed, idle: Event::new(device)?, handle })
    }

    /// Returns the number of decoding engines of the GPU, and the number of cores of each.
    pub(super) fn engines(&self) -> nvjpeg_sys::Result<(u32, u32)> {
        self.handle.engines()
    }

    pub(super) fn is_idle(&self) -> Result<bool> {
        self.callers.iter().try_fold(true, |idle, caller| Ok(idle && caller.done.is_done()?))
    }

    /// Decodes the images whose outcome is not yet an error. Returns whether a call failed and was repeated in parts.
    /// `begins` is recorded when everything is parsed and only the decoding remains.
    pub(super) fn decode(
        &mut self,
        stream: &Stream,
        begins: Option<&Event>,
        requests: &[Request<'_>],
        outcomes: &mut [ImageOutcome],
    ) -> Result<bool> {
        let Self { backend, callers, parsed, idle, handle } = self;
        for caller in callers.iter_mut() {
            caller.prepare(handle, parsed, *backend, requests, outcomes)?;
        }
        if *backend == NvJpegBackend::Hardware {
            // The engine does not wait for work that the stream has queued before: it writes as soon as it is called
            // (seen on H100 with nvJPEG 12.3 to 13.2; torchcodec pull request 1634). So wait for that work here, once
            // before the calls of both formats.
            sleep_until_idle(idle, stream)?;
        }
        begins.map_or(Ok(()), |begins| begins.record(stream))?;
        let mut retried_in_parts = false;
        for caller in callers.iter_mut().filter(|caller| !caller.indices.is_empty()) {
            retried_in_parts |= caller.decode(*backend, stream, idle, outcomes)?;
        }
        Ok(retried_in_parts)
    }
}

/// Sleeps until `stream` has done the work that it has queued; `Stream::synchronize` may spin.
fn sleep_until_idle(idle: &Event, stream: &Stream) -> Result<()> {
    idle.record(stream)?;
    idle.synchronize()
}

impl Caller {
    /// Collects the images that have this caller's output format and that the backend supports.
    fn prepare(
        &mut self,
        handle: &Handle,
        parsed: &mut BitStream,
        backend: NvJpegBackend,
        requests: &[Request<'_>],
        outcomes: &mut [ImageOutcome],
    ) -> Result<()> {
        // The previous call uses the state and the parameters until it is done.
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
                // SAFETY: nothing is decoded from the parsed data, and the next file replaces it. The whole file is
                // parsed, not only its head: data after the coded data has brought engines to a halt (DALI pull request
                // 3113).
                unsafe { parsed.parse(request.bytes) }?;
                if backend != NvJpegBackend::Hardware {
                    return Ok(region(request).is_none() && handle.takes_whole(parsed)?);
                }
                let params = self.params.get(handle, self.indices.len())?;
                params.set_output(self.format)?;
                params.set_region(region(request))?;
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
                    let kind = format!("JPEG that nvJPEG's backend {} does not support", backend.name());
                    *outcome = Err(DecodeError::Unsupported(kind).into());
                }
                Err(error) => *outcome = Err(refusal(error)),
            }
        }
        Ok(())
    }

    /// Decodes all collected images in as many calls as the backend needs, and returns whether a call failed. nvJPEG
    /// does not report which image of a call caused a failure. So a failed call is repeated in halves, recursively. If
    /// the halves would be smaller than the backend's minimum, all images of the failed call are refused. (In smaller
    /// calls, the kernels leave the Huffman codes to the host.)
    fn decode(
        &mut self,
        backend: NvJpegBackend,
        stream: &Stream,
        idle: &Event,
        outcomes: &mut [ImageOutcome],
    ) -> Result<bool> {
        let count = self.indices.len();
        let least = if backend.accepts_call_of(count) { backend.min_images_per_call() } else { 1 };
        let calls = count.div_ceil(backend.max_images_per_call());
        let part = |call: usize| (count * call / calls, count * (call + 1) / calls);
        let mut left: Vec<_> = (0..calls).rev().map(part).collect();
        let mut failed = false;
        while let Some((start, end)) = left.pop() {
            let Err(error) = self.attempt(backend, start..end, stream) else {
                if !left.is_empty() {
                    // The state must be free for the next call.
                    sleep_until_idle(idle, stream)?;
                }
                continue;
            };
            failed = true;
            // After this wait the state is free. The wait reports an error of the GPU itself.
            sleep_until_idle(idle, stream)?;
            let middle = start + (end - start) / 2;
            if middle - start < least {
                for &index in &self.indices[start..end] {
                    outcomes[index] = Err(refusal(error));
                }
            } else {
                left.extend([(middle, end), (start, middle)]);
            }
        }
        self.done.record(stream)?;
        Ok(failed)
    }

    fn attempt(
        &mut self,
        backend: NvJpegBackend,
        range: std::ops::Range<usize>,
        stream: &Stream,
    ) -> nvjpeg_sys::Result<()> {
        self.state.initialise_batch(range.len(), self.format)?;
        let params = (backend == NvJpegBackend::Hardware).then_some((&self.params, range.start));
        let images = &mut self.images[range.clone()];
        let (files, lengths) = (&self.files[range.clone()], &self.lengths[range]);
        // SAFETY: the caller of the decoder keeps files and targets until the stream has done the work; targets have
        // space for the layout that the parameters request, or for the whole image; the previous call with this state
        // is done.
        unsafe { self.state.decode_batch(files, lengths, images, params, stream.handle()) }
    }
}

pub(super) fn target(request: &Request<'_>) -> Image {
    let count = request.layout.used().len();
    let planes = request.planes.map(|plane| (plane.ptr, plane.stride));
    image(&planes[..count])
}
