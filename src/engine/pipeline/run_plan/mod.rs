//! Run plans: which samples are in which batch. The threads read, decode and deliver by a [`RunPlan`]. The plan of an
//! epoch is known in advance, that of a stream is made step by step.

mod epoch;
mod stream;

pub(crate) use stream::StreamRunPlan;

use ::stream::NextBatch;
use base::error::Result;
use base::rng::RandomStream;
use data::dataset::DatasetIndex;
use data::schedule::RepeatSpread;
use data::state::{OrderIdentity, State};
use store::tier::RankPlace;

/// A run plan: the batches of one run of the threads.
pub(crate) trait RunPlan: Send + Sync {
    /// Returns the number of steps; `u64::MAX` until the end is known.
    fn steps(&self) -> u64;

    /// Returns the number of steps; `None` for a plan that may have no end.
    fn known_steps(&self) -> Option<u64> {
        Some(self.steps())
    }

    /// Returns the places of `step`. Steps are asked for in order, and the latest one may be asked for again.
    ///
    /// # Errors
    /// The errors that end a stream.
    fn next(&self, step: u64) -> Result<NextBatch>;

    /// Returns the number of samples of a step.
    fn batch_len(&self, step: u64) -> u32;

    /// Returns the number of places in a step of all ranks.
    fn global_batch(&self) -> u64;

    /// Returns this rank and the number of ranks.
    fn place(&self) -> RankPlace;

    /// Returns the spread of repeated samples, which brings places that show the same sample together, so that it is
    /// read once. `None` where no sample repeats.
    fn repeats(&self) -> Option<RepeatSpread> {
        None
    }

    /// Draws a sample from `stream` that replaces a failed one at `position`: any sample of the epoch, or one of the
    /// same batch of a stream.
    ///
    /// # Errors
    /// [`base::error::Error::Dataset`] if there is none.
    fn substitute(&self, index: &DatasetIndex, position: u64, stream: &mut RandomStream) -> Result<u64>;

    /// Records that these samples failed, and that their batch is not delivered because of that.
    ///
    /// # Errors
    /// The errors of [`::stream::SampleStream::give_up`].
    fn give_up(&self, _failed: &[u64]) -> Result<()> {
        Ok(())
    }

    /// Records that the consumer has the batch of `step`, and which of its samples failed.
    ///
    /// # Errors
    /// The errors of [`::stream::SampleStream::deliver`].
    fn deliver(&self, _step: u64, _failed: &[u64]) -> Result<()> {
        Ok(())
    }

    /// Returns the state after `steps` steps of this `epoch`, in which `errors` samples failed. `None` if states are
    /// kept elsewhere.
    fn state(&self, identity: &OrderIdentity, epoch: u64, steps: u64, errors: u64) -> Option<State>;
}
