//! Checks that images which a decoder reports as decoded were really written, before they go into a batch: see
//! `cuda/untouched.cuh`. It costs a fill, a small launch and a copy of a few bytes for each piece.

use super::GpuStage;
use crate::augment::cuda::{POISON, Untouched};
use crate::decode::nvjpeg::PlanesLayout;
use crate::error::{Error, Result};
use crate::gpu::{DeviceBuffer, DeviceRange, InFlight, PinnedBuffer};

/// The write checks of one lane.
pub(crate) struct WriteCheck {
    kernel: Untouched,
    /// A count for each image of a batch, on the device; `arrived` is the same on the host.
    counts: DeviceBuffer,
    arrived: Option<PinnedBuffer>,
    /// How many lines of each image whose count is queued may look unwritten by chance.
    by_chance: Vec<u32>,
    /// How often counts have arrived.
    round: usize,
}

impl WriteCheck {
    /// Makes a check for up to `images` images, whose counts arrive in `host`.
    ///
    /// # Errors
    /// [`Error::Gpu`]; [`Error::Config`] where the device has no memory.
    pub(crate) fn new(
        stage: &GpuStage,
        flight: &mut InFlight,
        images: usize,
        host: PinnedBuffer,
    ) -> Result<Self> {
        let counts = stage.memory.allocate(flight.stream(), 4 * images)?;
        flight.fill(counts.whole(), 0)?;
        let kernel = Untouched::new(&stage.gpu.kernels)?;
        Ok(Self { kernel, counts, arrived: Some(host), by_chance: Vec::with_capacity(images), round: 0 })
    }

    /// Queues the poisoning of memory that images will be decoded into.
    ///
    /// # Errors
    /// [`Error::Gpu`].
    pub(crate) fn poison(&self, flight: &mut InFlight, memory: DeviceRange<'_>) -> Result<()> {
        flight.fill_words(memory, self.word())
    }

    /// The number of images whose counts are queued since the last wait.
    pub(crate) fn queued(&self) -> usize {
        self.by_chance.len()
    }

    /// What a launch on the lane's stream needs: the kernel that counts, the address of its next counts, and the poison
    /// that it looks for. There is a count for each of `layouts`; `None` is a blank image.
    ///
    /// # Errors
    /// [`Error::Internal`] for more images than there is room for.
    pub(crate) fn next<'a>(
        &mut self,
        layouts: impl Iterator<Item = Option<&'a PlanesLayout>>,
    ) -> Result<(&Untouched, u64, u32)> {
        let first = self.by_chance.len();
        self.by_chance.extend(layouts.map(|layout| layout.map_or(0, Untouched::by_chance)));
        let to = self.counts.range(4 * first, 4 * (self.by_chance.len() - first))?.ptr();
        Ok((&self.kernel, to, self.word()))
    }

    /// Waits for what is queued. Returns the finding of each image that was counted since the last wait, in order.
    ///
    /// # Errors
    /// [`Error::Gpu`].
    pub(crate) fn wait(&mut self, flight: &mut InFlight) -> Result<Vec<Finding>> {
        flight.copy_to_host(self.arrived.take().ok_or_else(lost)?, self.counts.whole())?;
        flight.submit()?;
        flight.wait()?;
        self.round += 1;
        let host = self.arrived.insert(flight.arrived().ok_or_else(lost)?);
        let counts = host.as_chunks::<4>().0.iter().map(|&count| u32::from_ne_bytes(count));
        Ok(counts
            .zip(self.by_chance.drain(..))
            .map(|(lines, by_chance)| Finding::of(lines, by_chance))
            .collect())
    }

    fn word(&self) -> u32 {
        POISON[self.round % POISON.len()]
    }
}

/// What was found about an image's planes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Finding {
    /// All lines were written.
    Written,
    /// Some lines look as if they were not written, but the image may really look like that. When it is decoded once
    /// more, over another poison, it is not doubtful again.
    Doubtful,
    /// So many lines were not written that it cannot be chance.
    Skipped,
}

impl Finding {
    fn of(lines: u32, by_chance: u32) -> Self {
        match lines {
            0 => Self::Written,
            _ if lines <= by_chance => Self::Doubtful,
            _ => Self::Skipped,
        }
    }
}

fn lost() -> Error {
    Error::Internal("the counts of untouched lines got lost".into())
}
