//! Keeps a pipeline within the share of the node's processors that `cpu=` gives it.
//!
//! Workers and the reading thread record the processor time that they use. Workers rest when it is more than the
//! pipeline's share. The reading thread checks every two seconds how many loaders share the processors: each of them
//! holds a lock on one byte of a file. Without `cpu=` none of this runs.

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
const NOTE_EVERY: Duration = Duration::from_millis(100);

/// How often the reading thread checks how many processors there are, and how many loaders share them.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// The reading thread's part in keeping the pipeline within its share.
pub(super) struct CpuShareLimiter {
    context: Arc<SampleContext>,
    share: CpuShare,
    budget: Arc<CpuBudget>,
    place: NodeMembership,
    /// Measures the reading thread. That thread makes the meter itself.
    meter: Option<CpuMeter>,
    /// When to record and when to check next; `None` means at once.
    next_note: Option<Instant>,
    next_look: Option<Instant>,
}

impl CpuShareLimiter {
    /// Makes a budget for the threads of a pipeline, or reuses the one of its former threads.
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
            place: NodeMembership::default(),
            meter: None,
            next_note: None,
            next_look: None,
        }
    }

    /// Shares the processors with the node's other loaders, until [`CpuShareLimiter::leave`]. The reading thread calls
    /// this in each turn of its loop; usually nothing is due.
    pub(super) fn keep(&mut self, now: Instant) {
        let is_due = |next: Option<Instant>| next.is_none_or(|next| now >= next);
        if !is_due(self.next_note) {
            return;
        }
        self.next_note = Some(now + NOTE_EVERY);
        // The reading thread never rests, because all others wait for it. The workers rest for its time, too.
        self.meter.get_or_insert_with(|| CpuMeter::new(self.budget.clone())).note();
        if is_due(self.next_look) {
            self.next_look = Some(now + LOOK_EVERY);
            let loaders = self.place.share(&|why| notify::alone(&self.context, why));
            self.budget.set(self.share.cores(loaders));
        }
    }

    /// Leaves all processors to the node's other loaders.
    pub(super) fn leave(&mut self) {
        self.place.leave();
        (self.next_note, self.next_look) = (None, None);
    }
}
