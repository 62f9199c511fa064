//! Whether images that a decoder says it decoded were written at all, before they go into a batch: see
//! `cuda/untouched.cuh`. It costs a fill, a small launch and a copy of a few bytes a piece.

use super::Stage;
use crate::augment::cuda::{POISON, Untouched};
use crate::error::{Error, Result};
use crate::gpu::{DeviceBuffer, DeviceRange, Flight, PinnedBuffer};

/// The looks of one lane.
pub struct Check {
    kernel: Untouched,
    /// A number for each image of a batch, on the device and on the host.
    counts: DeviceBuffer,
    arrived: Option<PinnedBuffer>,
    /// Looks that are queued, and rounds before.
    looks: usize,
    round: usize,
}

impl Check {
    /// For up to `images` images, whose counts arrive in `host`.
    ///
    /// # Errors
    /// [`Error::Gpu`], [`Error::Config`] where the device has no memory.
    pub fn new(stage: &Stage, flight: &mut Flight, images: usize, host: PinnedBuffer) -> Result<Self> {
        let counts = stage.memory.allocate(flight.stream(), 4 * images)?;
        flight.fill(counts.whole(), 0)?;
        let kernel = Untouched::new(&stage.kept.kernels)?;
        Ok(Self { kernel, counts, arrived: Some(host), looks: 0, round: 0 })
    }

    /// Queues the poisoning of memory that images will be decoded into.
    ///
    /// # Errors
    /// [`Error::Gpu`].
    pub fn poison(&self, flight: &mut Flight, memory: DeviceRange<'_>) -> Result<()> {
        flight.fill_words(memory, self.word())
    }

    /// The kernel that looks, where its next `n` counts go, and which word they are of: for a launch on the lane's stream.
    ///
    /// # Errors
    /// [`Error::Internal`] for more images than there is room for.
    pub fn next(&mut self, n: usize) -> Result<(&Untouched, u64, u32)> {
        let to = self.counts.range(4 * self.looks, 4 * n)?.ptr();
        self.looks += n;
        Ok((&self.kernel, to, self.word()))
    }

    /// Waits for what is queued, and gives what was found of each image that was looked at since the last time, in order.
    ///
    /// # Errors
    /// [`Error::Gpu`].
    pub fn land(&mut self, flight: &mut Flight) -> Result<Vec<Finding>> {
        let looks = std::mem::take(&mut self.looks);
        flight.copy_to_host(self.arrived.take().ok_or_else(lost)?, self.counts.whole())?;
        flight.depart()?;
        flight.land()?;
        self.round += 1;
        let host = self.arrived.insert(flight.arrived().ok_or_else(lost)?);
        let counts = host.as_chunks::<4>().0[..looks].iter();
        Ok(counts.map(|&count| Finding::of(u32::from_ne_bytes(count))).collect())
    }

    fn word(&self) -> u32 {
        POISON[self.round % POISON.len()]
    }
}

/// What a look at an image's planes found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Finding {
    /// All lines were written.
    Written,
    /// Some look as if not; the image may really be so.
    Doubtful,
    /// So many were not that it is no chance.
    Skipped,
}

impl Finding {
    fn of(lines: u32) -> Self {
        match lines {
            0 => Self::Written,
            1..=Untouched::BY_CHANCE => Self::Doubtful,
            _ => Self::Skipped,
        }
    }
}

fn lost() -> Error {
    Error::Internal("the counts of a look at planes got lost".into())
}
