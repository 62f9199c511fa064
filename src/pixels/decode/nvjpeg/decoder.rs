//! The nvJPEG decoder: all backends of a GPU, and the images in flight on them.

use super::batched::Batched;
use super::memory::WorkingMemory;
use super::phased::PerImageDecoder;
use super::{Library, NvJpegBackend, Request};
use crate::gpu::{Event, GpuDevice, Stream};
use base::error::{DecodeError, Error, Result};
use nvjpeg_sys::sys::nvjpegStatus_t as Status;

/// The outcome for an image: queued or refused. [`Error::Decode`] concerns the file and recurs if the image is tried
/// again. [`Error::Unavailable`] concerns the backend, which for example lacks memory.
pub type ImageOutcome = Result<()>;

/// The outcomes of a call.
#[derive(Debug)]
pub struct CallOutcomes {
    /// The outcome for each image, in order.
    pub outcomes: Vec<ImageOutcome>,
    /// Whether a call failed and was repeated in parts. If so, its duration is no measure of the time per image.
    pub retried_in_parts: bool,
}

/// Decodes JPEGs on a GPU. It owns the state that nvJPEG needs for images in flight, and is leased to one lane (a
/// thread with its own stream) at a time.
///
/// The decoder allocates device and page-locked memory when larger images or batches arrive, and keeps it.
pub struct NvJpegDecoder {
    device: GpuDevice,
    library: Library,
    batch: usize,
    backends: Backends,
    memory: WorkingMemory,
}

/// The backends of a decoder. A backend is made by [`NvJpegDecoder::make`] or on first use, because making one takes
/// nvJPEG long and not every loader uses all backends.
#[derive(Default)]
struct Backends {
    hardware: BackendState<Batched>,
    cuda_batched: BackendState<Batched>,
    cuda: BackendState<PerImageDecoder>,
    streams: Vec<Stream>,
}

/// `None` before the backend was tried. Afterwards the backend, or the reason why this GPU lacks it.
type BackendState<T> = Option<Result<T, String>>;

pub(super) enum CreateError {
    Library(nvjpeg_sys::Error),
    Driver(Error),
}

impl From<nvjpeg_sys::Error> for CreateError {
    fn from(error: nvjpeg_sys::Error) -> Self {
        Self::Library(error)
    }
}

impl From<Error> for CreateError {
    fn from(error: Error) -> Self {
        Self::Driver(error)
    }
}

impl std::fmt::Debug for NvJpegDecoder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "nvJPEG decoder on {:?}", self.device)
    }
}

impl NvJpegDecoder {
    /// Makes a decoder for batches of up to `batch` images; larger batches need more memory.
    ///
    /// # Errors
    /// [`Error::Gpu`] if the GPU fails.
    pub fn new(library: &Library, device: &GpuDevice, batch: usize) -> Result<Self> {
        let memory = WorkingMemory::new(device)?;
        let backends = Backends::default();
        Ok(Self { device: device.clone(), library: library.clone(), batch, backends, memory })
    }

    /// Forgets the streams and makes freed memory available again. Afterwards the decoder can use other streams, even
    /// if the old streams no longer exist.
    ///
    /// # Errors
    /// [`Error::Internal`] if work is still in flight; [`Error::Gpu`] if the GPU fails.
    pub fn recycle(&mut self) -> Result<()> {
        if !self.backends.is_idle()? {
            return Err(Error::Internal("a decoder was returned while it had work in flight".into()));
        }
        self.backends.streams.clear();
        self.memory.recycle();
        Ok(())
    }

    /// Queues the decoding of images on `stream`. After success, work that is queued on the stream later finds the
    /// planes in the requests' memory. Calls can alternate between several streams.
    ///
    /// The caller must keep files and memory until the stream has done this work; memory can be freed in the stream's
    /// order. `begins` is recorded on `stream` when everything is parsed and the first call starts.
    ///
    /// The calling thread sleeps until earlier work is done:
    ///
    /// - the previous call on the same backend with images of the same colour model;
    /// - with [`NvJpegBackend::Hardware`], all work that `stream` has queued before, because the engine does not wait,
    ///   and all of this call's own work except its last call;
    /// - after a failure, the whole stream.
    ///
    /// Calls on other backends are not waited for.
    ///
    /// An image is refused if the backend does not support it or finds it damaged. The caller then tries the next
    /// backend and finally the CPU, whose result for damaged files is final. A file that does not end with an
    /// end-of-image marker is refused at once, because a GPU decoder can fill in missing parts. All images are refused
    /// if the backend cannot be made. The next call tries to make it again, unless this GPU or nvJPEG lacks the
    /// backend.
    ///
    /// # Errors
    /// [`Error::Gpu`] if the GPU failed; the state of all images is then unknown.
    pub fn decode(
        &mut self,
        stream: &Stream,
        backend: NvJpegBackend,
        begins: Option<&Event>,
        requests: &[Request<'_>],
    ) -> Result<CallOutcomes> {
        let outcomes = requests.iter().map(check).collect();
        let mut verdict = CallOutcomes { outcomes, retried_in_parts: false };
        match self.make(backend) {
            Ok(()) => {}
            // If the GPU is lost, its next call reports that.
            Err(error @ (Error::Unavailable(_) | Error::Gpu { .. })) => {
                refuse_all(&mut verdict.outcomes, &format!("nvJPEG's {}: {error}", backend.name()));
                return Ok(verdict);
            }
            Err(error) => return Err(error),
        }
        let _bound = self.device.bind()?;
        let backends = &mut self.backends;
        if backends.is_idle()? {
            self.memory.recycle();
        }
        if !backends.streams.iter().any(|known| known.handle() == stream.handle()) {
            backends.streams.push(stream.clone());
        }
        if backend != NvJpegBackend::Cuda {
            if let Some(Ok(batched)) = backends.batched(backend) {
                verdict.retried_in_parts = batched.decode(stream, begins, requests, &mut verdict.outcomes)?;
            }
        } else if let Some(Ok(cuda)) = &mut backends.cuda {
            begins.map_or(Ok(()), |begins| begins.record(stream))?;
            cuda.decode(stream, requests, &mut verdict.outcomes)?;
        }
        Ok(verdict)
    }

    /// Makes a backend if it does not exist yet.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if nvJPEG cannot make it, [`Error::Gpu`] if the GPU fails. The next call tries again,
    /// unless this GPU lacks the backend.
    pub fn make(&mut self, backend: NvJpegBackend) -> Result<()> {
        let _bound = self.device.bind()?;
        let (library, device, memory) = (&self.library, &self.device, &self.memory);
        let backends = &mut self.backends;
        match backend {
            NvJpegBackend::Cuda => {
                fill(&mut backends.cuda, backend, || PerImageDecoder::new(library, device, memory))
            }
            _ => fill(backends.batched(backend), backend, || {
                Batched::new(library, device, memory, backend, self.batch)
            }),
        }
    }

    pub(super) fn lacks_backend(&mut self, backend: NvJpegBackend) -> bool {
        match backend {
            NvJpegBackend::Cuda => matches!(self.backends.cuda, Some(Err(_))),
            _ => matches!(self.backends.batched(backend), Some(Err(_))),
        }
    }

    /// The number of the GPU's decoding engines and of cores per engine, or the reason why no engine is used.
    ///
    /// # Errors
    /// [`Error::Gpu`].
    pub fn engines(&mut self) -> Result<Result<(u32, u32), String>> {
        match self.make(NvJpegBackend::Hardware) {
            Ok(()) => {}
            Err(Error::Unavailable(reason)) => return Ok(Err(reason)),
            Err(error) => return Err(error),
        }
        let _bound = self.device.bind()?;
        match &self.backends.hardware {
            Some(Ok(hardware)) => Ok(hardware.engines().map_err(|error| error.to_string())),
            _ => Err(Error::Internal("the hardware backend was not made".into())),
        }
    }

    /// The number of allocations of working memory since the decoder was made.
    pub fn allocations(&self) -> u64 {
        self.memory.allocations()
    }
}

impl Drop for NvJpegDecoder {
    fn drop(&mut self) {
        // nvJPEG's handles need the context, and their work must be done.
        let bound = self.device.bind();
        let backends = std::mem::take(&mut self.backends);
        let done = backends.streams.iter().all(|stream| stream.synchronize().is_ok());
        if bound.is_err() || !done {
            // The GPU is lost and might still use any of this memory.
            std::mem::forget((backends, self.memory.clone()));
        }
    }
}

impl Backends {
    fn is_idle(&self) -> Result<bool> {
        let batched = [&self.hardware, &self.cuda_batched];
        for batched in batched.into_iter().flatten().flatten() {
            if !batched.is_idle()? {
                return Ok(false);
            }
        }
        let Some(Ok(cuda)) = &self.cuda else { return Ok(true) };
        cuda.is_idle()
    }

    fn batched(&mut self, backend: NvJpegBackend) -> &mut BackendState<Batched> {
        if backend == NvJpegBackend::Hardware { &mut self.hardware } else { &mut self.cuda_batched }
    }
}

fn fill<T>(
    place: &mut BackendState<T>,
    backend: NvJpegBackend,
    make: impl FnOnce() -> Result<T, CreateError>,
) -> Result<()> {
    if place.is_none() {
        *place = Some(match make() {
            Ok(made) => Ok(made),
            Err(CreateError::Library(error)) if is_final(error) => Err(explain(backend, error)),
            // A lack of memory may be temporary, so the next call tries again.
            Err(CreateError::Library(error)) => return Err(Error::Unavailable(explain(backend, error))),
            Err(CreateError::Driver(error)) => return Err(error),
        });
    }
    match place {
        Some(Err(reason)) => Err(Error::Unavailable(reason.clone())),
        _ => Ok(()),
    }
}

/// Whether this GPU or this nvJPEG lacks the requested object.
fn is_final(error: nvjpeg_sys::Error) -> bool {
    let Some(status) = error.status else { return true };
    matches!(
        status,
        Status::NVJPEG_STATUS_ARCH_MISMATCH
            | Status::NVJPEG_STATUS_JPEG_NOT_SUPPORTED
            | Status::NVJPEG_STATUS_IMPLEMENTATION_NOT_SUPPORTED
    )
}

fn explain(backend: NvJpegBackend, error: nvjpeg_sys::Error) -> String {
    let reason = error.to_string();
    let is_short = error.status == Some(Status::NVJPEG_STATUS_ALLOCATOR_FAILURE);
    if backend != NvJpegBackend::Hardware || is_short || nvjpeg_sys::has_video_driver() {
        return reason;
    }
    format!(
        "{reason}; the decoding engine needs libnvcuvid.so.1, which is missing: in a container, add `video` to \
         NVIDIA_DRIVER_CAPABILITIES"
    )
}

fn check(request: &Request<'_>) -> ImageOutcome {
    let refuse = |what: &str| Err(DecodeError::Unsupported(what.into()).into());
    if !request.bytes.ends_with(&[0xFF, 0xD9]) {
        return refuse("JPEG without an end-of-image marker at its end");
    }
    for (layout, target) in request.layout.used().iter().zip(&request.planes) {
        if target.ptr == 0 || target.stride < layout.width {
            return refuse("JPEG without memory for its planes");
        }
    }
    Ok(())
}

/// Refuses all images that are not refused yet. `why` says what is wrong with the backend.
fn refuse_all(outcomes: &mut [ImageOutcome], why: &str) {
    for outcome in outcomes.iter_mut().filter(|outcome| outcome.is_ok()) {
        *outcome = Err(Error::Unavailable(why.to_owned()));
    }
}

pub(super) fn refusal(error: nvjpeg_sys::Error) -> Error {
    match error.status {
        Some(Status::NVJPEG_STATUS_BAD_JPEG | Status::NVJPEG_STATUS_INCOMPLETE_BITSTREAM) => {
            DecodeError::Corrupt(error.to_string()).into()
        }
        _ if error.is_of_the_file() => DecodeError::Unsupported(error.to_string()).into(),
        _ => Error::Unavailable(error.to_string()),
    }
}

/// The rectangle to request; `None` for the whole image.
pub(super) fn region(request: &Request<'_>) -> Option<(u32, u32, u32, u32)> {
    let decoded = request.layout.decoded;
    (decoded != request.header.whole()).then_some((decoded.x, decoded.y, decoded.width, decoded.height))
}
