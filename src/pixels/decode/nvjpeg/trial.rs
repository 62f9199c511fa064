//! Determines the abilities of a GPU by trial: every backend decodes small images with known pixel values, whole and in
//! part.
//!
//! For every image, nvJPEG is also asked whether it supports the image. But its reply does not cover errors such as a
//! region that is shifted by a few pixels, or planes in the wrong order. These errors would enter every batch
//! unnoticed. Results for one GPU and version of nvJPEG might not hold for others.

use super::specimen::{self, is_right};
use super::{Abilities, Ability, Library, NvJpegBackend, NvJpegDecoder, PlaneTarget, Request, Subsampling};
use crate::decode::{JpegHeader, PlanesLayout, Region, parse_header};
use crate::gpu::{GpuDevice, InFlight, MemoryPool, PinnedBuffer, Stream};
use base::error::{Error, Result};

/// The size of the trial images. As with most photographs, it is no multiple of the size of an MCU. It is large enough
/// for decoding engines, which require a minimum size.
const ODD_SIZE: (u32, u32) = (203, 157);

/// The size rounded up to whole chroma samples, for a backend that fails only if a chroma sample is partly outside the
/// image.
fn even(sampling: Subsampling) -> (u32, u32) {
    let ((width, height), (step_x, step_y)) = (ODD_SIZE, sampling.steps());
    (width.next_multiple_of(step_x), height.next_multiple_of(step_y))
}

/// The number of images of a trial on the CUDA backend, which decodes them one after another.
const FEW: usize = 4;

type TrialResult = Result<(), String>;

impl Abilities {
    /// Determines the abilities of nvJPEG on this GPU. Takes as long as making decoders, and frees everything that it
    /// makes.
    ///
    /// # Errors
    /// Fails if nvJPEG cannot use the GPU at all, or if the GPU fails.
    pub fn probe(library: &Library, device: &GpuDevice) -> Result<Self> {
        let mut decoder =
            NvJpegDecoder::new(library, device, NvJpegBackend::CudaBatched.min_images_per_call() + 1)?;
        let engines = decoder.engines()?;
        let mut examiner = BackendProbe {
            decoder,
            stream: Stream::new(device)?,
            pool: MemoryPool::new(device, device.memory()?.1 as usize)?,
            device: device.clone(),
            failures: Default::default(),
            cores: engines.as_ref().map_or(1, |(engines, cores)| (engines * cores) as usize),
        };
        let mut abilities = Self { engines: engines.ok(), ..Self::default() };
        let mut backends = Vec::with_capacity(NvJpegBackend::ALL.len());
        for backend in NvJpegBackend::ALL {
            match examiner.decoder.make(backend) {
                Ok(()) => backends.push(backend),
                // The backend `Cuda` is required, because nvJPEG does not work without it. The other backends are
                // optional.
                Err(Error::Unavailable(reason)) if backend != NvJpegBackend::Cuda => {
                    if !examiner.decoder.lacks_backend(backend) {
                        examiner.failures[backend as usize] = Some(reason.clone());
                    }
                    for sampling in Subsampling::ALL {
                        abilities.note(backend, sampling, Some(reason.clone()));
                    }
                }
                Err(error) => return Err(error),
            }
        }
        for (backend, sampling) in
            backends.into_iter().flat_map(|backend| Subsampling::ALL.map(|sampling| (backend, sampling)))
        {
            let (ability, reason) = examiner.ability(backend, sampling, ODD_SIZE)?;
            abilities.set(backend, sampling, ability);
            // With one pixel per chroma sample, no chroma sample is partly outside the image.
            if ability < backend.best() && even(sampling) != ODD_SIZE {
                let (even, _) = examiner.ability(backend, sampling, even(sampling))?;
                abilities.set_even(backend, sampling, even.max(ability));
            }
            abilities.note(backend, sampling, reason);
        }
        let mut failures = NvJpegBackend::ALL.into_iter().zip(examiner.failures);
        let failed = failures.find(|(backend, why)| why.is_some() && !abilities.serves(*backend));
        abilities.failed = failed.and_then(|(backend, why)| Some((backend, why?)));
        Ok(abilities)
    }
}

struct BackendProbe {
    decoder: NvJpegDecoder,
    stream: Stream,
    pool: MemoryPool,
    device: GpuDevice,
    /// For each backend, the latest failure that does not concern its abilities.
    failures: [Option<String>; NvJpegBackend::ALL.len()],
    /// The number of images that the engines decode in parallel.
    cores: usize,
}

impl BackendProbe {
    /// Returns (the ability of a backend for images of this kind, the reason why it cannot do more).
    fn ability(
        &mut self,
        backend: NvJpegBackend,
        sampling: Subsampling,
        size: (u32, u32),
    ) -> Result<(Ability, Option<String>)> {
        let file = specimen::file(sampling, size);
        let header = parse_header(&file)?;
        let mut why = None;
        if backend.best() == Ability::Region {
            match self.agrees(backend, &file, &header, &regions(size))? {
                Ok(()) => return Ok((Ability::Region, None)),
                Err(reason) => why = Some(reason),
            }
        }
        match self.agrees(backend, &file, &header, &[header.whole()])? {
            Ok(()) => Ok((Ability::Whole, why)),
            Err(reason) => Ok((Ability::None, Some(reason))),
        }
    }

    /// Whether the backend decodes a batch of the image's regions correctly.
    fn agrees(
        &mut self,
        backend: NvJpegBackend,
        file: &[u8],
        header: &JpegHeader,
        regions: &[Region],
    ) -> Result<TrialResult> {
        let unlaid = || Error::Internal("a trial image has no plane layout".into());
        let layout = |region: &Region| PlanesLayout::of(header, *region).ok_or_else(unlaid);
        let layouts: Vec<PlanesLayout> = regions.iter().map(layout).collect::<Result<_>>()?;
        let count = match backend {
            // Each core gets a second image, and one core gets a third.
            NvJpegBackend::Hardware => 2 * self.cores + 1,
            NvJpegBackend::CudaBatched => backend.min_images_per_call() + 1,
            NvJpegBackend::Cuda => FEW,
        };
        // Space for the whole image, in case a decoder ignores the region.
        let image_bytes = layout(&header.whole())?.bytes.next_multiple_of(256) as usize;
        let memory = self.pool.allocate(&self.stream, count * image_bytes)?;
        // Fill the memory first, so that samples that a decoder does not write cannot be right by chance.
        let mut flight = InFlight::new(&self.stream)?;
        flight.fill(memory.whole(), 0)?;
        let mut bytes = PinnedBuffer::new(&self.device, file.len())?;
        bytes.copy_from_slice(file);
        let layout = |index: usize| &layouts[index % layouts.len()];
        let requests: Vec<Request<'_>> = (0..count)
            .map(|index| {
                let at = memory.ptr() + (index * image_bytes) as u64;
                let planes = layout(index).planes;
                let planes = planes.map(|p| PlaneTarget { ptr: at + p.offset, stride: p.stride });
                Request { bytes: &bytes, header, layout: layout(index), planes }
            })
            .collect();
        // A failure is a result of the trial and must not prevent the next trial.
        let verdict = self.decoder.decode(&self.stream, backend, None, &requests);
        // Even after a failure, queued work may access the memory that is freed when this function returns.
        self.stream.synchronize()?;
        if let Some(error) = verdict?.outcomes.into_iter().find_map(Result::err) {
            if let Error::Unavailable(why) = &error {
                self.failures[backend as usize] = Some(why.clone());
            }
            return Ok(Err(error.to_string()));
        }
        let samples = PinnedBuffer::new(&self.device, count * image_bytes)?;
        let samples = self.stream.copy_to_host(samples, memory.whole())?;
        let wrong = (0..count).find(|&index| !is_right(layout(index), &samples[index * image_bytes..]));
        Ok(wrong.map_or(Ok(()), |index| {
            let Region { x, y, width, height } = layout(index).decoded;
            let (w, h) = (header.width, header.height);
            Err(format!(
                "wrong samples in a region of {width}×{height} at ({x}, {y}) of {w}×{h}, image {index} of {count}"
            ))
        }))
    }
}

fn regions((width, height): (u32, u32)) -> [Region; 2] {
    [
        Region { x: 37, y: 41, width: 50, height: 30 },
        Region { x: 130, y: 90, width: width - 130, height: height - 90 },
    ]
}
