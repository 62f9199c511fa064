//! Decoding image by image: the CPU decodes the Huffman codes, CUDA kernels do the rest. For huge baseline images the
//! kernels also decode the codes.

use nvjpeg_sys::safe::{
    Backend, BitStream, Decoder, DeviceBuffer, Handle, OutputFormat, Params, PinnedBuffer, State,
};

use super::batched::target;
use super::decoder::{CreateError, ImageOutcome, refusal, region};
use super::memory::WorkingMemory;
use super::{Library, Request, by_host};
use crate::decode::ColorModel;
use crate::gpu::{Event, GpuDevice, Stream};
use base::error::{DecodeError, Result};

/// nvJPEG's decoder with separately called phases.
pub(super) struct PerImageDecoder {
    // The state of two images. The fields are dropped in this order.
    pages: [Page; 2],
    /// The index of the most recently used page.
    latest: usize,
    by_cpu: Decoder,
    by_gpu: Decoder,
}

/// The state of one image in flight. There are two, so that the CPU decodes the codes of one image while those of the
/// other are copied.
struct Page {
    /// Passed when the image is done.
    done: Event,
    by_cpu: State,
    by_gpu: State,
    parsed: BitStream,
    params: Params,
    pinned: PinnedBuffer,
    device: DeviceBuffer,
}

impl PerImageDecoder {
    pub(super) fn new(
        library: &Library,
        device: &GpuDevice,
        memory: &WorkingMemory,
    ) -> Result<Self, CreateError> {
        let flags = nvjpeg_sys::sys::NVJPEG_FLAGS_BITSTREAM_STRICT;
        let backend = Backend::NVJPEG_BACKEND_DEFAULT;
        let handle = Handle::new(library.raw(), backend, memory.of_device(), memory.of_host(), flags)?;
        let by_cpu = Decoder::new(&handle, Backend::NVJPEG_BACKEND_HYBRID)?;
        let by_gpu = Decoder::new(&handle, Backend::NVJPEG_BACKEND_GPU_HYBRID)?;
        let page = || {
            Ok::<_, CreateError>(Page {
                done: Event::new(device)?,
                by_cpu: State::of(&by_cpu)?,
                by_gpu: State::of(&by_gpu)?,
                parsed: BitStream::new(&handle)?,
                params: Params::new(&handle)?,
                pinned: PinnedBuffer::new(&handle)?,
                device: DeviceBuffer::new(&handle)?,
            })
        };
        Ok(Self { pages: [page()?, page()?], latest: 0, by_cpu, by_gpu })
    }

    /// Whether no image is in flight.
    pub(super) fn is_idle(&self) -> Result<bool> {
        self.pages.iter().try_fold(true, |idle, page| Ok(idle && page.done.is_done()?))
    }

    /// Decodes the images that `outcomes` does not refuse yet.
    pub(super) fn decode(
        &mut self,
        stream: &Stream,
        requests: &[Request<'_>],
        outcomes: &mut [ImageOutcome],
    ) -> Result<()> {
        for (request, outcome) in requests.iter().zip(outcomes).filter(|(_, outcome)| outcome.is_ok()) {
            self.latest = (self.latest + 1) % self.pages.len();
            let page = &mut self.pages[self.latest];
            // The copy for the image before the previous one reads this page's page-locked buffer.
            page.done.synchronize()?;
            match page.decode([&self.by_cpu, &self.by_gpu], stream, request) {
                Ok(true) => {}
                Ok(false) => {
                    let kind = "JPEG that nvJPEG's backend cuda does not support";
                    *outcome = Err(DecodeError::Unsupported(kind.into()).into())
                }
                Err(error) => {
                    // Wait until the work that was queued for the image is done; an error of the GPU itself shows here.
                    page.done.record(stream)?;
                    page.done.synchronize()?;
                    *outcome = Err(refusal(error));
                }
            }
            page.done.record(stream)?;
        }
        Ok(())
    }
}

impl Page {
    /// Queues an image. Returns `false` if no decoder supports it.
    fn decode(
        &mut self,
        [by_cpu, by_gpu]: [&Decoder; 2],
        stream: &Stream,
        request: &Request<'_>,
    ) -> nvjpeg_sys::Result<bool> {
        self.params.set_output(match request.layout.color {
            ColorModel::Gray => OutputFormat::NVJPEG_OUTPUT_Y,
            _ => OutputFormat::NVJPEG_OUTPUT_YUV,
        })?;
        self.params.set_region(region(request))?;
        // SAFETY: the caller of the decoder keeps the file until the stream has passed; after that the page parses
        // another.
        unsafe { self.parsed.parse(request.bytes) }?;
        let huge = !by_host(request.header) && by_gpu.takes(&self.parsed, &self.params)?;
        if !huge && !by_cpu.takes(&self.parsed, &self.params)? {
            return Ok(false);
        }
        let (decoder, state) = if huge { (by_gpu, &mut self.by_gpu) } else { (by_cpu, &mut self.by_cpu) };
        let mut image = target(request);
        // SAFETY: the buffers live as long as the states; `done` shows that their previous use is done; the caller
        // keeps the file and the target, which has room for the layout that the parameters request.
        unsafe {
            state.attach_pinned(&self.pinned)?;
            state.attach_device(&self.device)?;
            decoder.decode_host(state, &self.params, &self.parsed)?;
            decoder.decode_device(state, &self.parsed, &mut image, stream.handle())?;
        }
        Ok(true)
    }
}
