//! What comes in which batch. The threads read, decode and deliver by a [`Course`], whether all of it is known
//! beforehand, as of an epoch, or it is made step by step, as of a stream.

mod epoch;
mod stream;

pub(crate) use stream::StreamCourse;

use ::stream::NextBatch;
use base::error::Result;
use base::rng::RandomStream;
use data::dataset::DatasetIndex;
use data::schedule::RepeatSpread;
use data::state::{OrderIdentity, State};
use store::tier::RankPlace;

/// The batches of one run of the threads.
pub(crate) trait Course: Send + Sync {
    /// The number of steps; the greatest number there is, until the end is known.
    fn steps(&self) -> u64;

    /// The number of steps; `None` for a course that may go on for ever.
    fn known_steps(&self) -> Option<u64> {
        Some(self.steps())
    }

    /// The places of `step`, which is the one after those that were asked for before, or the last of them again.
    ///
    /// # Errors
    /// What keeps a stream from going on.
    fn next(&self, step: u64) -> Result<NextBatch>;

    /// The number of samples of a step.
    fn batch_len(&self, step: u64) -> u32;

    /// The number of places of a step of all ranks.
    fn global_batch(&self) -> u64;

    /// The place of this rank among all.
    fn place(&self) -> RankPlace;

    /// Where places of a batch may show the same sample: what brings such places together, so that the sample is read
    /// once.
    fn repeats(&self) -> Option<RepeatSpread> {
        None
    }

    /// A sample that `stream` draws to take the place of one that failed at `position`: any of the epoch's, or one of
    /// the same batch of a stream.
    ///
    /// # Errors
    /// [`base::error::Error::Dataset`] where there is none.
    fn substitute(&self, index: &DatasetIndex, position: u64, stream: &mut RandomStream) -> Result<u64>;

    /// Notes that these samples failed, and that their batch is not delivered for that.
    ///
    /// # Errors
    /// Those of [`::stream::SampleStream::give_up`].
    fn give_up(&self, _failed: &[u64]) -> Result<()> {
        Ok(())
    }

    /// Notes that the consumer has the batch of `step`, and that these of its samples failed.
    ///
    /// # Errors
    /// Those of [`::stream::SampleStream::deliver`].
    fn deliver(&self, _step: u64, _failed: &[u64]) -> Result<()> {
        Ok(())
    }

    /// The state after `steps` steps of this `epoch`, of whose samples so many failed; `None` where states are kept
    /// elsewhere.
    fn state(&self, identity: &OrderIdentity, epoch: u64, steps: u64, errors: u64) -> Option<State>;
}
