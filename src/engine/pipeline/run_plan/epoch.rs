//! The run plan (`RunPlan`) of an epoch is its schedule.

use super::RunPlan;
use ::stream::NextBatch;
use base::error::Result;
use base::rng::RandomStream;
use data::dataset::DatasetIndex;
use data::schedule::{RepeatSpread, Schedule};
use data::state::{OrderIdentity, State};

impl RunPlan for Schedule {
    fn steps(&self) -> u64 {
        Self::steps(self)
    }

    fn next(&self, step: u64) -> Result<NextBatch> {
        Ok(match step < Self::steps(self) {
            true => NextBatch::Places(self.places(step).collect()),
            false => NextBatch::End,
        })
    }

    fn batch_len(&self, step: u64) -> u32 {
        Self::batch_len(self, step)
    }

    fn bucket(&self, step: u64) -> Option<u8> {
        Self::bucket(self, step)
    }

    fn global_batch(&self) -> u64 {
        Self::global_batch(self)
    }

    fn repeats(&self) -> Option<RepeatSpread> {
        let order = self.order();
        (order.repeats() > 1).then(|| RepeatSpread::new(order, Self::global_batch(self)))
    }

    fn substitute(&self, _: &DatasetIndex, position: u64, stream: &mut RandomStream) -> Result<u64> {
        Ok(self.order().substitute(position, stream))
    }

    fn state(&self, identity: &OrderIdentity, epoch: u64, steps: u64, errors: u64) -> Option<State> {
        Some(State::new(identity, epoch, self, steps, errors))
    }
}
