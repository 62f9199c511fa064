//! Keeps a pipeline within the share of the node's processors that `cpu=` gives it.
//!
//! Workers and the reading thread record the processor time that they use. If this time exceeds the pipeline's share,
//! workers sleep. The reading thread checks every two seconds how many loaders share the processors: each loader holds
//! a lock on one byte of a file. Without `cpu=` none of this runs.

mod budget;
mod node;

pub(super) use budget::{CpuBudget, CpuMeter};

use super::context::SampleContext;
use super::notify;
use crate::config::CpuShare;
use node::NodeMembership;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// How often the reading thread records the processor time that it has used.
const RECORD_EVERY: Duration = Duration::from_millis(100);

/// How often the reading thread checks how many processors there are, and how many loaders share them.
const COUNT_EVERY: Duration = Duration::from_secs(2);

/// Keeps the pipeline within its share of the processors. The reading thread owns it and calls it.
pub(super) struct CpuShareLimiter {
    context: Arc<SampleContext>,
    share: CpuShare,
    budget: Arc<CpuBudget>,
    membership: NodeMembership,
    /// The meter of the reading thread. Only that thread can make it, so it is made later.
    meter: Option<CpuMeter>,
    /// When to record and when to check next; `None` means at once.
    next_record: Option<Instant>,
    next_count: Option<Instant>,
}

impl CpuShareLimiter {
    /// Makes a budget for the threads of a pipeline, or reuses the budget of the pipeline's earlier threads.
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

    /// Shares the processors with the node's other loaders, until [`CpuShareLimiter::leave`]. The reading thread calls
    /// this in each iteration of its loop; most calls have nothing to do.
    pub(super) fn keep(&mut self, now: Instant) {
        let is_due = |next: Option<Instant>| next.is_none_or(|next| now >= next);
        if !is_due(self.next_record) {
            return;
        }
        self.next_record = Some(now + RECORD_EVERY);
        // The reading thread never sleeps to save processor time, because all other threads wait for it. Its time
        // counts, so the workers sleep longer.
        self.meter.get_or_insert_with(|| CpuMeter::new(self.budget.clone())).note();
        if is_due(self.next_count) {
            self.next_count = Some(now + COUNT_EVERY);
            let loaders = self.membership.share(&|why| notify::no_other_loaders_found(&self.context, why));
            self.budget.set(self.share.cores(loaders));
        }
    }

    /// Stops sharing: from now on, the node's other loaders do not count this loader.
    pub(super) fn leave(&mut self) {
        self.membership.leave();
        (self.next_record, self.next_count) = (None, None);
    }
}
