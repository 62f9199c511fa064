//! Decides which samples are staged, in which order and by which reads. This module does no I/O.

use crate::tier::fill::STAGED_READ;
use data::dataset::{DatasetIndex, Extent, FileId};
use data::schedule::{BatchEntry, Order, Schedule};
use std::ops::Range;

/// The maximum number of bytes between two wanted samples that are read and discarded rather than skipped. Headers
/// between the files of an archive are shorter; samples that are kept already are usually longer, and are skipped.
const GAP: u64 = 8 << 10;

/// A group of samples that is staged as a whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum StagingUnit {
    /// A shard. The process that locks it first stages it.
    Shard(FileId),
    /// The files of a batch of this rank. Other ranks stage their own files.
    Step(u64),
}

/// Returns the units of an epoch in the order of their next use, for a rank that is at `step`. Units of steps begin
/// `steps_ahead` steps later, because the files of earlier steps are being read already.
pub(crate) fn units(
    index: &DatasetIndex,
    schedule: &Schedule,
    step: u64,
    steps_ahead: u64,
) -> Vec<StagingUnit> {
    if !index.is_sharded() {
        return (step + steps_ahead..schedule.steps()).map(StagingUnit::Step).collect();
    }
    let order = schedule.order();
    let cursor = schedule.first_position(step);
    let next_use = |file| Some((next_use(order, index.samples_of(file), cursor)?, file));
    let mut shards: Vec<(u64, FileId)> = index.files().filter_map(next_use).collect();
    shards.sort_unstable();
    shards.into_iter().map(|(_, file)| StagingUnit::Shard(file)).collect()
}

/// Returns the first position from `cursor` on at which the epoch draws one of `samples`. Positions before `cursor`
/// count as positions of the next epoch. `None` if the epoch draws none of `samples`.
fn next_use(order: &Order, samples: Range<u64>, cursor: u64) -> Option<u64> {
    let positions = samples.flat_map(|sample| order.positions(sample));
    let uses = positions.map(|position| if position < cursor { position + order.len() } else { position });
    uses.min()
}

/// Returns the samples of a unit, without samples that epochs never draw, in the order of their places in the source.
pub(crate) fn samples(unit: &StagingUnit, index: &DatasetIndex, schedule: &Schedule) -> Vec<u64> {
    match unit {
        StagingUnit::Shard(file) => {
            let selection = schedule.order().selection();
            index.samples_of(*file).filter(|sample| selection.contains(*sample)).collect()
        }
        StagingUnit::Step(step) => {
            let mut places: Vec<BatchEntry> = schedule.places(*step).filter(|place| place.valid).collect();
            schedule.sort_for_reading(&mut places, |place| place);
            places.dedup_by_key(|place| place.draw.sample);
            places.into_iter().map(|place| place.draw.sample).collect()
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StagedChunk {
    pub extent: Extent,
    /// The wanted samples in the extent, in the order of their offsets.
    pub samples: Vec<u64>,
}

impl StagedChunk {
    /// Returns the range of the chunk's bytes that holds `extent`, which must be the extent of one of the chunk's
    /// samples.
    pub(crate) fn range(&self, extent: Extent) -> Range<usize> {
        let begin = (extent.offset - self.extent.offset) as usize;
        begin..begin + extent.length as usize
    }
}

/// Returns the reads for `samples`, except samples that are not `wanted`. The samples are in one file, in the order of
/// their offsets, or each sample is a file.
///
/// Neighbours are read together, up to [`STAGED_READ`] bytes, with at most [`GAP`] unwanted bytes between two
/// neighbours. If half of a shard's samples were used before the shard is staged, only the other half is read, so that
/// no byte leaves the source twice.
pub(crate) fn chunks(
    index: &DatasetIndex,
    samples: &[u64],
    wanted: impl Fn(u64) -> bool,
) -> Vec<StagedChunk> {
    let mut chunks: Vec<StagedChunk> = Vec::new();
    for &sample in samples.iter().filter(|&&sample| wanted(sample)) {
        let extent = index.extent(sample);
        let end = extent.offset + u64::from(extent.length);
        let joined = chunks.last_mut().filter(|chunk| {
            let piece_end = chunk.extent.offset + u64::from(chunk.extent.length);
            chunk.extent.file == extent.file
                && (piece_end..=piece_end + GAP).contains(&extent.offset)
                && end - chunk.extent.offset <= STAGED_READ
        });
        match joined {
            Some(chunk) => {
                chunk.extent.length = (end - chunk.extent.offset) as u32;
                chunk.samples.push(sample);
            }
            None => chunks.push(StagedChunk { extent, samples: vec![sample] }),
        }
    }
    chunks
}
