//! What comes in which batch: the schedule of an epoch, all of which is known, or the plan of a stream, which is made
//! step by step.

use base::error::{Error, Result};
use base::rng::RandomStream;
use data::dataset::DatasetIndex;
use data::schedule::{BatchEntry, Schedule};
use std::sync::Arc;
use store::tier::RankPlace;
use stream::{NextBatch, SampleStream};

/// The batches of one run of the threads.
#[derive(Clone)]
pub(super) enum Course {
    /// Those of an epoch.
    Epoch(Schedule),
    /// Those of a stream, for one iteration over it.
    Stream(StreamCourse),
}

/// One iteration over a stream.
#[derive(Clone)]
pub(super) struct StreamCourse {
    pub stream: Arc<SampleStream>,
    /// The iteration's number.
    pub iteration: u64,
    pub global_batch: u64,
    pub place: RankPlace,
}

impl Course {
    /// The number of steps; of a stream the greatest number there is, until its end is known.
    pub(super) fn steps(&self) -> u64 {
        match self {
            Self::Epoch(schedule) => schedule.steps(),
            Self::Stream(course) => course.stream.steps(),
        }
    }

    /// The places of `step`, which is the one after those that were asked for before, or the last of them again.
    ///
    /// # Errors
    /// What keeps a stream from going on.
    pub(super) fn next(&self, step: u64) -> Result<NextBatch> {
        match self {
            Self::Epoch(schedule) if step < schedule.steps() => {
                Ok(NextBatch::Places(schedule.places(step).collect()))
            }
            Self::Epoch(_) => Ok(NextBatch::End),
            Self::Stream(course) => course.stream.next(course.iteration, step),
        }
    }

    /// The number of samples of a step.
    pub(super) fn batch_len(&self, step: u64) -> u32 {
        match self {
            Self::Epoch(schedule) => schedule.batch_len(step),
            Self::Stream(course) => course.stream.batch_len(step),
        }
    }

    /// The number of places of a step of all ranks.
    pub(super) fn global_batch(&self) -> u64 {
        match self {
            Self::Epoch(schedule) => schedule.global_batch(),
            Self::Stream(course) => course.global_batch,
        }
    }

    /// The place of this rank among all.
    pub(super) fn place(&self) -> RankPlace {
        match self {
            Self::Epoch(schedule) => RankPlace { rank: schedule.rank(), world_size: schedule.world_size() },
            Self::Stream(course) => course.place,
        }
    }

    /// Whether places of a batch may show the same sample.
    pub(super) fn repeats(&self) -> bool {
        match self {
            Self::Epoch(schedule) => schedule.order().repeats() > 1,
            Self::Stream(_) => false,
        }
    }

    /// Sorts places as they are best read.
    pub(super) fn sort_for_reading<T>(&self, places: &mut [T], entry: impl Fn(&T) -> &BatchEntry) {
        if let Self::Epoch(schedule) = self {
            schedule.sort_for_reading(places, entry);
        }
    }

    /// A sample that `stream` draws to take the place of one that failed at `position`: any of the epoch's, or one of
    /// the same batch of a stream.
    ///
    /// # Errors
    /// [`Error::Dataset`] where there is none.
    pub(super) fn substitute(
        &self,
        index: &DatasetIndex,
        position: u64,
        stream: &mut RandomStream,
    ) -> Result<u64> {
        match self {
            Self::Epoch(schedule) => {
                let order = schedule.order();
                Ok(order.numbered(stream.below(order.len())).sample)
            }
            Self::Stream(course) => {
                let gone = || Error::dataset(index.root(), "the batch of a sample that failed was stopped");
                course.stream.substitute(position / course.global_batch, stream).ok_or_else(gone)
            }
        }
    }

    /// Notes that these samples failed, and that their batch is not delivered for that.
    ///
    /// # Errors
    /// Those of [`SampleStream::give_up`].
    pub(super) fn give_up(&self, failed: &[u64]) -> Result<()> {
        match self {
            Self::Epoch(_) => Ok(()),
            Self::Stream(course) => course.stream.give_up(failed),
        }
    }

    /// Notes that the consumer has the batch of `step`, and that these of its samples failed.
    ///
    /// # Errors
    /// Those of [`SampleStream::deliver`].
    pub(super) fn deliver(&self, step: u64, failed: &[u64]) -> Result<()> {
        match self {
            Self::Epoch(_) => Ok(()),
            Self::Stream(course) => course.stream.deliver(step, failed),
        }
    }
}
