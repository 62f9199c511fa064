//! Keeps a pipeline within the share of the node's processors that `cpu=` gives it.
//!
//! Workers and the reading thread record the processor time that they use. If this time exceeds the pipeline's share,
//! workers sleep. The reading thread checks every two seconds how many loaders share the processors: each loader holds
//! a lock on one byte of a file. Without `cpu=` this module does nothing.

mod budget;
mod node;

pub(super) use budget::{CpuBudget, CpuMeter};

use super::context::SampleContext;
use super::notify;
use crate::config::CpuShare;
use node::NodeMembership;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

const RECORD_EVERY: Duration = Duration::from_millis(100);

const COUNT_EVERY: Duration = Duration::from_secs(2);

pub(super) struct CpuShareLimiter {
    context: Arc<SampleContext>,
    share: CpuShare,
    budget: Arc<CpuBudget>,
    membership: NodeMembership,
    /// The meter of the reading thread. It must be made on that thread, so it is made at the first use.
    meter: Option<CpuMeter>,
    /// The times of the next record and of the next count; `None` means at once.
    next_record: Option<Instant>,
    next_count: Option<Instant>,
}

impl CpuShareLimiter {
    /// Makes a budget for the threads of a pipeline, or reuses the budget in `budget` that its earlier threads had.
    pub(super) fn new(
        context: &Arc<SampleContext>,
        budget: &OnceLock<Arc<CpuBudget>>,
        share: CpuShare,
    ) -> Self {
        let budget = budget.get_or_init(|| Arc::new(CpuBudget::new(share.cores(1)))).clone();
        Self {
            context: context.clone(),
            share,
            budget,
            membership: NodeMembership::default(),
            meter: None,
            next_record: None,
            next_count: None,
        }
    }

    /// Records the reading thread's processor time and updates the budget from the number of loaders, if either is due.
    /// The reading thread calls this in each iteration of its loop.
    pub(super) fn keep(&mut self, now: Instant) {
        let is_due = |next: Option<Instant>| next.is_none_or(|next| now >= next);
        if !is_due(self.next_record) {
            return;
        }
        self.next_record = Some(now + RECORD_EVERY);
        // The reading thread never sleeps to save processor time, because all other threads wait for it. Its time is
        // recorded, so the workers sleep longer.
        self.meter.get_or_insert_with(|| CpuMeter::new(self.budget.clone())).note();
        if is_due(self.next_count) {
            self.next_count = Some(now + COUNT_EVERY);
            let loaders = self.membership.share(&|why| notify::no_other_loaders_found(&self.context, why));
            self.budget.set(self.share.cores(loaders));
        }
    }

    /// Removes this loader from the loaders that share the processors. The next call of [`CpuShareLimiter::keep`] adds
    /// it again.
    pub(super) fn leave(&mut self) {
        self.membership.leave();
        (self.next_record, self.next_count) = (None, None);
    }
}
