//! Run plans: which samples are in which batch. The threads read, decode and deliver by a [`RunPlan`]. The plan of an
//! epoch is known in advance; the plan of a stream is made step by step.

mod epoch;
mod stream;

pub(crate) use stream::StreamRunPlan;

use ::stream::NextBatch;
use base::error::Result;
use base::rng::RandomStream;
use data::dataset::DatasetIndex;
use data::schedule::RepeatSpread;
use data::state::{OrderIdentity, State};

pub(crate) trait RunPlan: Send + Sync {
    /// Returns the number of steps; `u64::MAX` until the end is known.
    fn steps(&self) -> u64;

    /// Returns the number of steps; `None` for a plan that may have no end.
    fn known_steps(&self) -> Option<u64> {
        Some(self.steps())
    }

    /// Returns the samples of the batch of `step`. Callers ask for steps in order, and may ask again for the latest
    /// step.
    ///
    /// # Errors
    /// The errors that end a stream.
    fn next(&self, step: u64) -> Result<NextBatch>;

    fn batch_len(&self, step: u64) -> u32;

    /// Returns the number of the bucket whose size the images of `step` have; `None` without buckets.
    fn bucket(&self, _step: u64) -> Option<u8> {
        None
    }

    fn global_batch(&self) -> u64;

    /// Returns the map from places in the global batches to positions of the epoch's order. Repeats of a sample have
    /// neighbouring positions, so a batch is read in this order, and each sample once. `None` if no sample repeats.
    fn repeats(&self) -> Option<RepeatSpread> {
        None
    }

    /// Draws a substitute for the failed sample at `position`, with random numbers from `stream`. The substitute is any
    /// sample of the epoch or, if the samples come from a stream, a sample of the same batch.
    ///
    /// # Errors
    /// [`base::error::Error::Dataset`] if there is no such sample.
    fn substitute(&self, index: &DatasetIndex, position: u64, stream: &mut RandomStream) -> Result<u64>;

    /// Records that the samples `failed` failed, so that their batch is not delivered.
    ///
    /// # Errors
    /// The errors of [`::stream::SampleStream::give_up`].
    fn give_up(&self, _failed: &[u64]) -> Result<()> {
        Ok(())
    }

    /// Records that the batch of `step` was delivered to the consumer, and which of its samples failed.
    ///
    /// # Errors
    /// The errors of [`::stream::SampleStream::deliver`].
    fn deliver(&self, _step: u64, _failed: &[u64]) -> Result<()> {
        Ok(())
    }

    /// Returns the state after `steps` steps of this `epoch`, in which `errors` samples failed. `None` for a stream,
    /// because the stream itself keeps its state.
    fn state(&self, identity: &OrderIdentity, epoch: u64, steps: u64, errors: u64) -> Option<State>;
}
