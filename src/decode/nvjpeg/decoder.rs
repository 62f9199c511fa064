//! A decoder: all backends that the GPU has, and the images that are under way on them.

use super::batched::Batched;
use super::memory::WorkingMemory;
use super::phased::Phased;
use super::{Library, NvJpegBackend, Request};
use crate::error::{DecodeError, Error, Result};
use crate::gpu::{Event, GpuDevice, Stream};
use nvjpeg_sys::sys::nvjpegStatus_t as Status;

/// What became of an image: queued, or refused. [`Error::Decode`] is about the file, and will be said again;
/// [`Error::Unavailable`] is about the backend: for want of memory, say.
pub(crate) type ImageOutcome = Result<()>;

/// What became of a call's images.
#[derive(Debug)]
pub struct Verdict {
    /// Of each, in order.
    pub outcomes: Vec<ImageOutcome>,
    /// Something failed and was tried in parts: how long it took says nothing of how long images take.
    pub in_parts: bool,
}

/// Decodes JPEGs on a GPU; owns everything that nvJPEG remembers of images under way. Lent to one lane at
/// a time.
///
/// It takes working memory from the device and page-locked memory from the host as larger images or batches come, and
/// keeps it.
pub struct NvJpegDecoder {
    device: GpuDevice,
    library: Library,
    batch: usize,
    backends: Option<Backends>,
    memory: WorkingMemory,
}

/// The backends. Each is made by [`NvJpegDecoder::make`], or when it is first asked for: that takes the library long,
/// and not every loader uses all.
#[derive(Default)]
struct Backends {
    hardware: MadeBackend<Batched>,
    cuda_batched: MadeBackend<Batched>,
    cuda: MadeBackend<Phased>,
    /// Streams that were used.
    streams: Vec<Stream>,
}

/// A backend, once it is made; or why there is none on this GPU.
type MadeBackend<T> = Option<Result<T, String>>;

/// Why a backend could not be made.
pub(super) enum NotMade {
    Library(nvjpeg_sys::Error),
    Driver(Error),
}

impl From<nvjpeg_sys::Error> for NotMade {
    fn from(error: nvjpeg_sys::Error) -> Self {
        Self::Library(error)
    }
}

impl From<Error> for NotMade {
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
    /// A decoder for batches of up to `batch` images; larger ones take more memory.
    ///
    /// # Errors
    /// [`Error::Gpu`] where the GPU fails.
    pub fn new(library: &Library, device: &GpuDevice, batch: usize) -> Result<Self> {
        let memory = WorkingMemory::new(device)?;
        let backends = Some(Backends::default());
        Ok(Self { device: device.clone(), library: library.clone(), batch, backends, memory })
    }

    /// Its work is done, whose streams it forgets: it may go on with others', also after they have ended.
    ///
    /// # Errors
    /// [`Error::Gpu`].
    pub fn recycle(&mut self) -> Result<()> {
        let Some(backends) = &mut self.backends else { return Ok(()) };
        if !backends.is_idle()? {
            return Err(Error::Internal("a decoder was given back while it worked".into()));
        }
        backends.streams.clear();
        self.memory.recycle();
        Ok(())
    }

    /// Queues the decoding of images on `stream`; where they succeed, work that the stream gets from then on finds the
    /// planes in the requests' memory. Several streams may be used in turn.
    ///
    /// The caller keeps files and memory until the stream has passed; memory may be freed in the stream's order. The
    /// host sleeps here until these are done: the last call of the same backend and kind; with
    /// [`NvJpegBackend::Hardware`] all that `stream` has queued before, since the engine does not wait; after a failure
    /// the stream. Calls on other backends are not waited for. `begins` is recorded on `stream` where the host's own
    /// work is through, so that what comes between it and the end is the GPU's.
    ///
    /// An image is refused where the backend does not take it or finds it damaged: the next backend's turn, at last the
    /// CPU's, whose word on damage is final. A file that does not end with an end-of-image marker is refused at once,
    /// since a GPU decoder may fill in what is missing. All are refused where the backend cannot be made: unless this
    /// GPU or nvJPEG has none, that is tried again with the next call.
    ///
    /// # Errors
    /// [`Error::Gpu`]: the GPU failed, and nothing is known of any image.
    pub fn decode(
        &mut self,
        stream: &Stream,
        backend: NvJpegBackend,
        begins: Option<&Event>,
        requests: &[Request<'_>],
    ) -> Result<Verdict> {
        let outcomes = requests.iter().map(check).collect();
        let mut verdict = Verdict { outcomes, in_parts: false };
        match self.make(backend) {
            Ok(()) => {}
            // If it is the GPU that is lost, its next call says so.
            Err(error @ (Error::Unavailable(_) | Error::Gpu { .. })) => {
                refuse_all(&mut verdict.outcomes, &format!("nvJPEG's {}: {error}", backend.name()));
                return Ok(verdict);
            }
            Err(error) => return Err(error),
        }
        let _bound = self.device.bind()?;
        let backends = self.backends.as_mut().ok_or_else(dropped)?;
        if backends.is_idle()? {
            self.memory.recycle();
        }
        if !backends.streams.iter().any(|known| known.handle() == stream.handle()) {
            backends.streams.push(stream.clone());
        }
        if backend != NvJpegBackend::Cuda {
            if let Some(Ok(batched)) = backends.batched(backend) {
                verdict.in_parts = batched.decode(stream, begins, requests, &mut verdict.outcomes)?;
            }
        } else if let Some(Ok(cuda)) = &mut backends.cuda {
            begins.map_or(Ok(()), |begins| begins.record(stream))?;
            cuda.decode(stream, requests, &mut verdict.outcomes)?;
        }
        Ok(verdict)
    }

    /// Makes a backend if it was not yet.
    ///
    /// # Errors
    /// [`Error::Unavailable`] where nvJPEG cannot, [`Error::Gpu`] where the GPU fails. Unless there is none on this
    /// GPU, it is tried again when it is asked for again.
    pub fn make(&mut self, backend: NvJpegBackend) -> Result<()> {
        let _bound = self.device.bind()?;
        let (library, device, memory) = (&self.library, &self.device, &self.memory);
        let backends = self.backends.as_mut().ok_or_else(dropped)?;
        match backend {
            NvJpegBackend::Cuda => fill(&mut backends.cuda, backend, || Phased::new(library, device, memory)),
            _ => fill(backends.batched(backend), backend, || {
                Batched::new(library, device, memory, backend, self.batch)
            }),
        }
    }

    /// Whether this GPU or this nvJPEG has no such backend, as [`NvJpegDecoder::make`] has found out.
    pub(super) fn is_without(&mut self, backend: NvJpegBackend) -> bool {
        let Some(backends) = &mut self.backends else { return false };
        match backend {
            NvJpegBackend::Cuda => matches!(backends.cuda, Some(Err(_))),
            _ => matches!(backends.batched(backend), Some(Err(_))),
        }
    }

    /// Decoding engines of the GPU, and cores of each; or why none is used.
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
        match self.backends.as_ref().map(|backends| &backends.hardware) {
            Some(Some(Ok(hardware))) => Ok(hardware.engines().map_err(|error| error.to_string())),
            _ => Err(dropped()),
        }
    }

    /// How often working memory was allocated since the decoder was made.
    pub fn allocations(&self) -> u64 {
        self.memory.allocations()
    }
}

impl Drop for NvJpegDecoder {
    fn drop(&mut self) {
        // nvJPEG's handles want the context; what they still work with must be done.
        let bound = self.device.bind();
        let backends = self.backends.take();
        let done =
            backends.iter().flat_map(|backends| &backends.streams).all(|stream| stream.synchronize().is_ok());
        if bound.is_err() || !done {
            // The GPU is lost: nobody can tell what of this it still uses.
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

    /// Where a backend for batches is.
    fn batched(&mut self, backend: NvJpegBackend) -> &mut MadeBackend<Batched> {
        if backend == NvJpegBackend::Hardware { &mut self.hardware } else { &mut self.cuda_batched }
    }
}

/// Puts into an empty place what `make` makes.
fn fill<T>(
    place: &mut MadeBackend<T>,
    backend: NvJpegBackend,
    make: impl FnOnce() -> Result<T, NotMade>,
) -> Result<()> {
    if place.is_none() {
        *place = Some(match make() {
            Ok(made) => Ok(made),
            Err(NotMade::Library(error)) if is_final(error) => Err(explain(backend, error)),
            // For want of memory, say, of which there may be some the next time.
            Err(NotMade::Library(error)) => return Err(Error::Unavailable(explain(backend, error))),
            Err(NotMade::Driver(error)) => return Err(error),
        });
    }
    match place {
        Some(Err(reason)) => Err(Error::Unavailable(reason.clone())),
        _ => Ok(()),
    }
}

/// Whether this GPU or this nvJPEG does not have what was to be made.
fn is_final(error: nvjpeg_sys::Error) -> bool {
    let Some(status) = error.status else { return true };
    matches!(
        status,
        Status::NVJPEG_STATUS_ARCH_MISMATCH
            | Status::NVJPEG_STATUS_JPEG_NOT_SUPPORTED
            | Status::NVJPEG_STATUS_IMPLEMENTATION_NOT_SUPPORTED
    )
}

fn dropped() -> Error {
    Error::Internal("a decoder that was dropped".into())
}

/// Why a backend could not be made, with what is missing if that can be seen.
fn explain(backend: NvJpegBackend, error: nvjpeg_sys::Error) -> String {
    let reason = error.to_string();
    let is_short = error.status == Some(Status::NVJPEG_STATUS_ALLOCATOR_FAILURE);
    if backend != NvJpegBackend::Hardware || is_short || nvjpeg_sys::has_video_driver() {
        return reason;
    }
    format!(
        "{reason}; the engine is driven by libnvcuvid.so.1, which is not there: a container needs \
         NVIDIA_DRIVER_CAPABILITIES with `video`"
    )
}

/// What can be seen of a request without decoding it.
fn check(request: &Request<'_>) -> ImageOutcome {
    let refuse = |what: &str| Err(DecodeError::Unsupported(what.into()).into());
    if !request.bytes.ends_with(&[0xFF, 0xD9]) {
        return refuse("JPEG that does not end with its end-of-image marker");
    }
    for (layout, target) in request.layout.used().iter().zip(&request.planes) {
        if target.ptr == 0 || target.stride < layout.width {
            return refuse("JPEG without memory for its planes");
        }
    }
    Ok(())
}

/// Refuses the images that were not yet, for the backend's sake.
fn refuse_all(outcomes: &mut [ImageOutcome], why: &str) {
    for outcome in outcomes.iter_mut().filter(|outcome| outcome.is_ok()) {
        *outcome = Err(Error::Unavailable(why.to_owned()));
    }
}

/// What nvJPEG's error means for an image.
pub(super) fn refusal(error: nvjpeg_sys::Error) -> Error {
    match error.status {
        Some(Status::NVJPEG_STATUS_BAD_JPEG | Status::NVJPEG_STATUS_INCOMPLETE_BITSTREAM) => {
            DecodeError::Corrupt(error.to_string()).into()
        }
        _ if error.is_of_the_file() => DecodeError::Unsupported(error.to_string()).into(),
        _ => Error::Unavailable(error.to_string()),
    }
}

/// The rectangle to ask for; `None`: the whole image.
pub(super) fn region(request: &Request<'_>) -> Option<(u32, u32, u32, u32)> {
    let decoded = request.layout.decoded;
    (decoded != request.header.whole()).then_some((decoded.x, decoded.y, decoded.width, decoded.height))
}
