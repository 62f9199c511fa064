//! Decoding image by image: the CPU decodes the Huffman codes, CUDA kernels do the rest. For huge baseline images the
//! kernels also decode the codes.

use nvjpeg_sys::safe::{
    Backend, BitStream, Decoder, DeviceBuffer, OutputFormat, Params, PinnedBuffer, State,
};

use super::batched::target;
use super::decoder::{CreateError, ImageOutcome, refusal, region};
use super::memory::WorkingMemory;
use super::{Library, Request, host_decodes_huffman};
use crate::decode::ColorModel;
use crate::gpu::{Event, GpuDevice, Stream};
use base::error::{DecodeError, Result};

/// nvJPEG's decoder with separately called phases.
pub(super) struct PerImageDecoder {
    // Two states, each for one image in flight. The fields of this struct are dropped in this order.
    image_states: [ImageState; 2],
    latest: usize,
    by_cpu: Decoder,
    by_gpu: Decoder,
}

/// The state of one image in flight. A decoder has two states, so that the CPU decodes the codes of one image while the
/// data of the other image is copied to the GPU.
struct ImageState {
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
        let handle = memory.handle(library, Backend::NVJPEG_BACKEND_DEFAULT)?;
        let by_cpu = Decoder::new(&handle, Backend::NVJPEG_BACKEND_HYBRID)?;
        let by_gpu = Decoder::new(&handle, Backend::NVJPEG_BACKEND_GPU_HYBRID)?;
        let image_state = || {
            Ok::<_, CreateError>(ImageState {
                done: Event::new(device)?,
                by_cpu: State::of(&by_cpu)?,
                by_gpu: State::of(&by_gpu)?,
                parsed: BitStream::new(&handle)?,
                params: Params::new(&handle)?,
                pinned: PinnedBuffer::new(&handle)?,
                device: DeviceBuffer::new(&handle)?,
            })
        };
        Ok(Self { image_states: [image_state()?, image_state()?], latest: 0, by_cpu, by_gpu })
    }

    pub(super) fn is_idle(&self) -> Result<bool> {
        self.image_states.iter().try_fold(true, |idle, image_state| Ok(idle && image_state.done.is_done()?))
    }

    /// Decodes the images whose outcome is not yet an error.
    pub(super) fn decode(
        &mut self,
        stream: &Stream,
        requests: &[Request<'_>],
        outcomes: &mut [ImageOutcome],
    ) -> Result<()> {
        for (request, outcome) in requests.iter().zip(outcomes).filter(|(_, outcome)| outcome.is_ok()) {
            self.latest = (self.latest + 1) % self.image_states.len();
            let image_state = &mut self.image_states[self.latest];
            // The copy of the state's previous image might still read the state's page-locked buffer.
            image_state.done.synchronize()?;
            match image_state.decode([&self.by_cpu, &self.by_gpu], stream, request) {
                Ok(true) => {}
                Ok(false) => {
                    let kind = "JPEG that nvJPEG's backend cuda does not support";
                    *outcome = Err(DecodeError::Unsupported(kind.into()).into())
                }
                Err(error) => {
                    // Wait until the work that was queued for the image is done. This call reports an error of the GPU
                    // itself.
                    image_state.done.record(stream)?;
                    image_state.done.synchronize()?;
                    *outcome = Err(refusal(error));
                }
            }
            image_state.done.record(stream)?;
        }
        Ok(())
    }
}

impl ImageState {
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
        // SAFETY: the caller of the decoder keeps the file until the stream has done the work; only then does the state
        // parse another file.
        unsafe { self.parsed.parse(request.bytes) }?;
        let huge = !host_decodes_huffman(request.header) && by_gpu.takes(&self.parsed, &self.params)?;
        if !huge && !by_cpu.takes(&self.parsed, &self.params)? {
            return Ok(false);
        }
        let (decoder, state) = if huge { (by_gpu, &mut self.by_gpu) } else { (by_cpu, &mut self.by_cpu) };
        let mut image = target(request);
        // SAFETY: the buffers live as long as the states; `done` shows that their previous use is done; the caller
        // keeps the file and the target, which has space for the layout that the parameters request.
        unsafe {
            state.attach_pinned(&self.pinned)?;
            state.attach_device(&self.device)?;
            decoder.decode_host(state, &self.params, &self.parsed)?;
            decoder.decode_device(state, &self.parsed, &mut image, stream.handle())?;
        }
        Ok(true)
    }
}
