//! The decoder of a lane: all rungs that the GPU has, and the images that are under way on them.

use super::batched::Batched;
use super::memory::Memory;
use super::phased::Phased;
use super::{Library, Request, Rung};
use crate::error::{DecodeError, Error, Result};
use crate::gpu::{Device, Event, Stream};

/// What became of an image: queued, or refused.
pub type Outcome = Result<(), DecodeError>;

/// Decodes JPEGs on a GPU; owns everything that nvJPEG remembers of images under way. One per lane.
///
/// It takes working memory from the device and page-locked memory from the host as larger images or batches come, and
/// keeps it.
pub struct Decoder {
    device: Device,
    library: Library,
    batch: usize,
    rungs: Option<Rungs>,
    memory: Memory,
}

/// Each is made when it is first asked for: that takes the library long, and not every loader uses all.
#[derive(Default)]
struct Rungs {
    /// Or why there is none.
    hardware: Option<Result<Batched, String>>,
    cuda_batched: Option<Result<Batched, String>>,
    cuda: Option<Phased>,
    /// Streams that were used.
    streams: Vec<Stream>,
}

impl std::fmt::Debug for Decoder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "nvJPEG decoder on {:?}", self.device)
    }
}

impl Decoder {
    /// A decoder for batches of up to `batch` images; larger ones take more memory.
    ///
    /// # Errors
    /// [`Error::Gpu`] where the GPU fails.
    pub fn new(library: &Library, device: &Device, batch: usize) -> Result<Self> {
        let memory = Memory::new(device)?;
        let rungs = Some(Rungs::default());
        Ok(Self { device: device.clone(), library: library.clone(), batch, rungs, memory })
    }

    /// Its work is done, whose streams it forgets: it may go on with others', also after they have ended.
    ///
    /// # Errors
    /// [`Error::Gpu`].
    pub fn settle(&mut self) -> Result<()> {
        let Some(rungs) = &mut self.rungs else { return Ok(()) };
        if !rungs.is_idle()? {
            return Err(Error::Internal("a decoder was given back while it worked".into()));
        }
        rungs.streams.clear();
        self.memory.settle();
        Ok(())
    }

    /// Queues the decoding of images on `stream`; where they succeed, work that the stream gets from then on finds the
    /// planes in the requests' memory. Several streams may be used in turn.
    ///
    /// The caller keeps files and memory until the stream has passed; memory may be freed in the stream's order. The host
    /// sleeps here until these are done: the last call of the same rung and kind; with [`Rung::Hardware`] all that `stream`
    /// has queued before, since the engine does not wait; after a failure the stream. Calls on other rungs are not waited
    /// for. `begins` is recorded on `stream` where the host's own work is through, so that what comes between it and the
    /// end is the GPU's.
    ///
    /// An image is refused where the rung does not take it or finds it damaged: the next rung's turn, at last the CPU's,
    /// whose word on damage is final. A file that does not end with an end-of-image marker is refused at once, since a GPU
    /// decoder may fill in what is missing.
    ///
    /// # Errors
    /// [`Error::Gpu`]: the GPU failed, and nothing is known of any image. [`Error::Unavailable`] where nvJPEG cannot work
    /// with this GPU at all.
    pub fn decode(
        &mut self,
        stream: &Stream,
        rung: Rung,
        begins: Option<&Event>,
        requests: &[Request<'_>],
    ) -> Result<Vec<Outcome>> {
        let mut outcomes: Vec<Outcome> = requests.iter().map(check).collect();
        let _bound = self.device.bind()?;
        let rungs =
            self.rungs.as_mut().ok_or_else(|| Error::Internal("a decoder that was dropped".into()))?;
        if rungs.is_idle()? {
            self.memory.settle();
        }
        if !rungs.streams.iter().any(|known| known.handle() == stream.handle()) {
            rungs.streams.push(stream.clone());
        }
        let (library, device, memory) = (&self.library, &self.device, &self.memory);
        if rung == Rung::Cuda {
            let cuda = match &mut rungs.cuda {
                Some(cuda) => cuda,
                empty => empty.insert(Phased::new(library, device, memory)?),
            };
            begins.map_or(Ok(()), |begins| begins.record(stream))?;
            cuda.decode(stream, requests, &mut outcomes)?;
            return Ok(outcomes);
        }
        match rungs.batched(rung, || Batched::new(library, device, memory, rung, self.batch))? {
            Ok(batched) => batched.decode(stream, begins, requests, &mut outcomes)?,
            Err(reason) => outcomes
                .fill(Err(DecodeError::Unsupported(format!("JPEG, for nvJPEG's {}: {reason}", rung.name())))),
        }
        Ok(outcomes)
    }

    /// Decoding engines of the GPU, and cores of each; or why none is used.
    ///
    /// # Errors
    /// [`Error::Gpu`].
    pub fn engines(&mut self) -> Result<Result<(u32, u32), String>> {
        let _bound = self.device.bind()?;
        let (library, device, memory) = (&self.library, &self.device, &self.memory);
        let make = || Batched::new(library, device, memory, Rung::Hardware, self.batch);
        let rungs =
            self.rungs.as_mut().ok_or_else(|| Error::Internal("a decoder that was dropped".into()))?;
        Ok(match rungs.batched(Rung::Hardware, make)? {
            Ok(hardware) => hardware.engines().map_err(|error| error.to_string()),
            Err(reason) => Err(reason.clone()),
        })
    }

    /// How often working memory was allocated since the decoder was made.
    pub fn allocations(&self) -> u64 {
        self.memory.allocations()
    }
}

impl Drop for Decoder {
    fn drop(&mut self) {
        // nvJPEG's handles want the context; what they still work with must be done.
        let bound = self.device.bind();
        let rungs = self.rungs.take();
        let done = rungs.iter().flat_map(|rungs| &rungs.streams).all(|stream| stream.synchronize().is_ok());
        if bound.is_err() || !done {
            // The GPU is lost: nobody can tell what of this it still uses.
            std::mem::forget((rungs, self.memory.clone()));
        }
    }
}

impl Rungs {
    fn is_idle(&self) -> Result<bool> {
        let batched = [&self.hardware, &self.cuda_batched];
        for batched in batched.into_iter().flatten().flatten() {
            if !batched.is_idle()? {
                return Ok(false);
            }
        }
        self.cuda.as_ref().map_or(Ok(true), Phased::is_idle)
    }

    /// A rung for batches, made by `make` if it was not yet; or why there is none.
    fn batched(
        &mut self,
        rung: Rung,
        make: impl FnOnce() -> Result<Batched>,
    ) -> Result<&mut Result<Batched, String>> {
        let place = if rung == Rung::Hardware { &mut self.hardware } else { &mut self.cuda_batched };
        Ok(match place {
            Some(made) => made,
            empty => empty.insert(match make() {
                Ok(batched) => Ok(batched),
                // A rung that is not there is none that is used: `Abilities::probe` has seen it.
                Err(Error::Unavailable(reason)) if rung == Rung::Hardware => Err(explain(reason)),
                Err(Error::Unavailable(reason)) => Err(reason),
                Err(error) => return Err(error),
            }),
        })
    }
}

/// Why there is no engine, with what is missing if that can be seen.
fn explain(reason: String) -> String {
    if nvjpeg_sys::has_video_driver() {
        return reason;
    }
    format!(
        "{reason}; the engine is driven by libnvcuvid.so.1, which is not there: a container needs \
         NVIDIA_DRIVER_CAPABILITIES with `video`"
    )
}

/// What can be seen of a request without decoding it.
fn check(request: &Request<'_>) -> Outcome {
    if !request.bytes.ends_with(&[0xFF, 0xD9]) {
        return Err(DecodeError::Unsupported("JPEG that does not end with its end-of-image marker".into()));
    }
    for (layout, target) in request.layout.used().iter().zip(&request.planes) {
        if target.ptr == 0 || target.stride < layout.width {
            return Err(DecodeError::Unsupported("JPEG without memory for its planes".into()));
        }
    }
    Ok(())
}

/// What nvJPEG's error means for an image.
pub(super) fn refusal(error: nvjpeg_sys::Error) -> DecodeError {
    use nvjpeg_sys::sys::nvjpegStatus_t as Status;
    match error.status {
        Some(Status::NVJPEG_STATUS_BAD_JPEG | Status::NVJPEG_STATUS_INCOMPLETE_BITSTREAM) => {
            DecodeError::Corrupt(error.to_string())
        }
        _ => DecodeError::Unsupported(error.to_string()),
    }
}

/// The rectangle to ask for; `None`: the whole image.
pub(super) fn region(request: &Request<'_>) -> Option<(u32, u32, u32, u32)> {
    let decoded = request.layout.decoded;
    (decoded != request.header.whole()).then_some((decoded.x, decoded.y, decoded.width, decoded.height))
}
