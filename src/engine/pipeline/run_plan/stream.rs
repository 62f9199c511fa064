//! The run plan (`RunPlan`) of one iteration over a stream, which the stream makes step by step.

use super::RunPlan;
use ::stream::{NextBatch, SampleStream};
use base::error::{Error, Result};
use base::rng::RandomStream;
use data::dataset::DatasetIndex;
use data::state::{OrderIdentity, State};
use std::sync::Arc;

pub(crate) struct StreamRunPlan {
    pub stream: Arc<SampleStream>,
    pub iteration: u64,
    pub global_batch: u64,
}

impl RunPlan for StreamRunPlan {
    fn steps(&self) -> u64 {
        self.stream.steps()
    }

    fn known_steps(&self) -> Option<u64> {
        None
    }

    fn next(&self, step: u64) -> Result<NextBatch> {
        self.stream.next(self.iteration, step)
    }

    fn batch_len(&self, step: u64) -> u32 {
        self.stream.batch_len(step)
    }

    fn global_batch(&self) -> u64 {
        self.global_batch
    }

    fn substitute(&self, index: &DatasetIndex, position: u64, stream: &mut RandomStream) -> Result<u64> {
        let gone = || {
            Error::dataset(index.root(), "a failed sample cannot be replaced, because its batch was stopped")
        };
        self.stream.substitute(position / self.global_batch, stream).ok_or_else(gone)
    }

    fn give_up(&self, failed: &[u64]) -> Result<()> {
        self.stream.give_up(failed)
    }

    fn deliver(&self, step: u64, failed: &[u64]) -> Result<()> {
        self.stream.deliver(step, failed)
    }

    fn state(&self, _: &OrderIdentity, _epoch: u64, _steps: u64, _errors: u64) -> Option<State> {
        None
    }
}
