//! Checks that images which a decoder reports as decoded were really written, before they go into a batch. The memory
//! is filled with a poison first, and a small kernel counts the lines that still hold it (`cuda/untouched.cuh`). This
//! costs a fill, a small launch and a copy of a few bytes for each sub-batch. Foreload's own kernels count damage
//! themselves.

use super::GpuStage;
use super::image::LaneImage;
use super::placed::PlacedSample;
use base::error::{Error, Result};
use pixels::augment::cuda::{POISON, PoisonCheck};
use pixels::decode::PlanesLayout;
use pixels::gpu::{DeviceBuffer, DeviceRange, InFlight, PinnedBuffer};

/// The check whether a lane's decoders have written the memory of their images.
pub(crate) struct WriteCheck {
    kernel: PoisonCheck,
    /// Counts on the device: first the number of unwritten lines of each image of a batch, then the number of damaged
    /// rows of each image. `arrived` holds a copy on the host.
    counts: DeviceBuffer,
    arrived: Option<PinnedBuffer>,
    /// The kind of count for each image whose counts are queued.
    counted: Vec<Counted>,
    images: usize,
    /// The number of times that counts have arrived. It selects the poison.
    round: usize,
}

/// The kind of count for an image.
#[derive(Debug, Clone, Copy)]
enum Counted {
    /// Nothing is counted: the CPU has decoded the image, or the image is blank.
    Unchecked,
    /// Unwritten lines. Up to `max_false_lines` written lines may look unwritten.
    Lines { max_false_lines: u32 },
    /// Damaged rows of MCUs.
    DamagedRows,
}

impl Counted {
    fn of(image: &LaneImage, at: &Option<(u64, PlanesLayout)>) -> Self {
        match (image, at) {
            (LaneImage::Encoded { .. }, Some((_, layout))) => {
                Self::Lines { max_false_lines: PoisonCheck::max_false_lines(layout) }
            }
            (LaneImage::Own { .. }, _) => Self::DamagedRows,
            _ => Self::Unchecked,
        }
    }
}

impl WriteCheck {
    /// Returns the number of bytes of the counts of `images` images.
    pub(crate) fn bytes(images: usize) -> usize {
        2 * 4 * images
    }

    /// Makes a check for up to `images` images, whose counts arrive in `host`.
    ///
    /// # Errors
    /// [`Error::Gpu`]; [`Error::Config`] if the device has no memory.
    pub(crate) fn new(
        stage: &GpuStage,
        flight: &mut InFlight,
        images: usize,
        host: PinnedBuffer,
    ) -> Result<Self> {
        let counts = stage.memory.allocate(flight.stream(), Self::bytes(images))?;
        flight.fill(counts.whole(), 0)?;
        let kernel = PoisonCheck::new(&stage.gpu.kernels)?;
        let counted = Vec::with_capacity(images);
        Ok(Self { kernel, counts, arrived: Some(host), counted, images, round: 0 })
    }

    /// Queues the filling of memory with the poison, before images are decoded into it.
    ///
    /// # Errors
    /// [`Error::Gpu`].
    pub(crate) fn poison(&self, flight: &mut InFlight, memory: DeviceRange<'_>) -> Result<()> {
        flight.fill_words(memory, self.word())
    }

    /// Adds the images of a chunk to the images whose counts are queued, if a decoder of the GPU has decoded any image
    /// of the chunk. Returns the index of the chunk's first [`Finding`]. The findings of the first image of all samples
    /// come first, then the findings of their second image, and so on.
    ///
    /// # Errors
    /// [`Error::Internal`] if there are more images than counts.
    pub(crate) fn add(&mut self, placed: &[PlacedSample]) -> Result<Option<usize>> {
        if !placed.iter().any(|placed| placed.work.is_for_gpu()) {
            return Ok(None);
        }
        let first = self.counted.len();
        for image in 0..placed[0].work.images.len() {
            let of = |placed: &PlacedSample| Counted::of(placed.work.images.get(image), placed.at.get(image));
            self.counted.extend(placed.iter().map(of));
        }
        match self.counted.len() <= self.images {
            true => Ok(Some(first)),
            false => {
                Err(Error::Internal(format!("{} images to check, more than a batch has", self.counted.len())))
            }
        }
    }

    /// Returns the arguments of a launch that counts unwritten lines: the kernel, the address of the count with the
    /// index `first`, and the poison that the kernel looks for. The kernel runs on the lane's stream.
    pub(crate) fn lines(&self, first: usize) -> (&PoisonCheck, u64, u32) {
        (&self.kernel, self.counts.ptr() + 4 * first as u64, self.word())
    }

    /// Queues the zeroing of the counts of damaged rows, from the index `first` on. Returns the address of the count
    /// with the index 0.
    ///
    /// # Errors
    /// [`Error::Gpu`].
    pub(crate) fn damaged_rows(&self, flight: &mut InFlight, first: usize) -> Result<u64> {
        let at = 4 * (self.images + first);
        flight.fill(self.counts.range(at, 4 * (self.counted.len() - first))?, 0)?;
        Ok(self.counts.ptr() + 4 * self.images as u64)
    }

    /// Waits for queued work. Returns the finding of each image that was counted since the last wait, in order.
    ///
    /// # Errors
    /// [`Error::Gpu`].
    pub(crate) fn wait(&mut self, flight: &mut InFlight) -> Result<Vec<Finding>> {
        flight.copy_to_host(self.arrived.take().ok_or_else(lost)?, self.counts.whole())?;
        flight.submit()?;
        flight.wait()?;
        self.round += 1;
        let host = self.arrived.insert(flight.arrived().ok_or_else(lost)?);
        let (lines, rows) = host.as_chunks::<4>().0.split_at(self.images);
        let findings = self.counted.drain(..).zip(lines.iter().zip(rows)).map(|(counted, (lines, rows))| {
            let [lines, rows] = [lines, rows].map(|count| u32::from_ne_bytes(*count));
            match counted {
                Counted::Lines { max_false_lines } => Finding::of(lines, max_false_lines),
                Counted::DamagedRows if rows > 0 => Finding::Damaged,
                Counted::DamagedRows | Counted::Unchecked => Finding::Written,
            }
        });
        Ok(findings.collect())
    }

    fn word(&self) -> u32 {
        POISON[self.round % POISON.len()]
    }
}

/// The result of the check of one image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Finding {
    /// All lines were written.
    Written,
    /// Some lines look unwritten, but the image may contain these very values. Decode it again over another poison: an
    /// image that is written cannot look unwritten both times.
    Unverified,
    /// So many lines look unwritten that the image cannot contain all these values by chance.
    Skipped,
    /// A packed or an indexed image with damaged rows.
    Damaged,
}

impl Finding {
    fn of(lines: u32, max_false_lines: u32) -> Self {
        match lines {
            0 => Self::Written,
            _ if lines <= max_false_lines => Self::Unverified,
            _ => Self::Skipped,
        }
    }
}

fn lost() -> Error {
    Error::Internal("the counts of unwritten lines are missing".into())
}
