//! Checks that the GPU's decoders have really written the images that they report as decoded. The memory of the images
//! is filled with a poison value before decoding, and a small kernel then counts the lines that still hold it
//! (`cuda/untouched.cuh`). This costs a fill, a small launch and a copy of a few bytes for each sub-batch. Foreload's
//! own kernels count damage themselves.

use super::GpuStage;
use super::image::LaneImage;
use super::placed::PlacedSample;
use base::error::{Error, Result};
use pixels::augment::cuda::{POISON, PoisonCheck};
use pixels::decode::PlanesLayout;
use pixels::gpu::{DeviceBuffer, DeviceRange, InFlight, PinnedBuffer};

pub(crate) struct WriteCheck {
    kernel: PoisonCheck,
    /// Counts on the device: the number of unwritten lines of each image of a batch, then the number of damaged rows of
    /// each image. `arrived` holds a copy on the host.
    counts: DeviceBuffer,
    arrived: Option<PinnedBuffer>,
    counted: Vec<Counted>,
    images: usize,
    /// Number of times that counts have arrived. Each round uses another poison value.
    round: usize,
}

#[derive(Debug, Clone, Copy)]
enum Counted {
    /// Nothing is counted: the CPU has decoded the image, or the image is blank.
    Unchecked,
    /// Lines that hold the poison. Up to `max_false_lines` written lines may hold the same value by chance.
    Lines { max_false_lines: u32 },
    /// Damaged rows of MCUs (the blocks of a JPEG), counted by Foreload's own kernel.
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
    pub(crate) fn bytes(images: usize) -> usize {
        2 * 4 * images
    }

    /// Makes a check for up to `images` images. The counts are copied to `host`.
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

    pub(crate) fn poison(&self, flight: &mut InFlight, memory: DeviceRange<'_>) -> Result<()> {
        flight.fill_words(memory, self.word())
    }

    /// Queues the counts of a chunk's images. Returns the index of the chunk's first [`Finding`]; `None` if no decoder
    /// of the GPU has decoded an image of the chunk. The findings of the first image of all samples come first, then
    /// those of the second image, and so on.
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

    /// Returns the arguments of a launch that counts unwritten lines on the lane's stream: the kernel, the address of
    /// the count with the index `first`, and the poison value.
    pub(crate) fn lines(&self, first: usize) -> (&PoisonCheck, u64, u32) {
        (&self.kernel, self.counts.ptr() + 4 * first as u64, self.word())
    }

    /// Queues the zeroing of the counts of damaged rows from the index `first` on. Returns the address of the count
    /// with the index 0.
    ///
    /// # Errors
    /// [`Error::Gpu`].
    pub(crate) fn damaged_rows(&self, flight: &mut InFlight, first: usize) -> Result<u64> {
        let at = 4 * (self.images + first);
        flight.fill(self.counts.range(at, 4 * (self.counted.len() - first))?, 0)?;
        Ok(self.counts.ptr() + 4 * self.images as u64)
    }

    /// Waits until the queued counts have arrived. Returns the finding of each image that was added since the last
    /// wait, in order.
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

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Finding {
    Written,
    /// Some lines hold the poison, but the image may contain this value by chance. Decode the image again over another
    /// poison: an image that is written cannot contain both.
    Unverified,
    /// So many lines hold the poison that this is not by chance: the decoder did not write the image.
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
