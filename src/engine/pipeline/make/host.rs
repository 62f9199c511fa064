//! Makes batches in host memory.

use super::BatchOpener;
use super::sample::HostPlace;
use crate::batch::Sink;
use crate::pipeline::{mixing::MixGroups, run::EpochRun};
use base::error::Result;
use std::sync::Arc;

pub(crate) struct HostOpener;

impl BatchOpener for HostOpener {
    type Place = HostPlace;

    fn begin(&mut self, run: &Arc<EpochRun>, step: u64, len: u32) -> Result<Option<Vec<HostPlace>>> {
        let sink: Arc<dyn Sink> = run.inbox.clone();
        let Some((closer, tickets)) = run.batches.begin_in(run.layout, step, len, &sink)? else {
            return Ok(None);
        };
        // Close the batch at once, because the tickets of all its samples exist. It is complete when the last ticket is
        // finished.
        closer.close();
        let mix_groups = run.mix_keys.is_some().then(|| Arc::new(MixGroups::new(len)));
        Ok(Some(
            tickets.into_iter().map(|ticket| HostPlace { ticket, mix_groups: mix_groups.clone() }).collect(),
        ))
    }
}
