//! Keeps a pipeline within the share of the node's processors that `cpu=` gives it.
//!
//! Workers and the reading thread note the processor time that they take, and workers rest when it is more than the
//! pipeline's share. The reading thread looks every few seconds how many loaders have the processors together. Without
//! `cpu=` none of this runs.

mod budget;
mod node;

pub(super) use budget::{CpuBudget, CpuMeter};

use super::context::SampleContext;
use super::notify;
use crate::config::CpuShare;
use node::NodePlace;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// How often the reading thread notes what it has taken.
const NOTE_EVERY: Duration = Duration::from_millis(100);

/// How often the reading thread looks how many processors there are, and how many loaders share them.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// What the reading thread does so that the pipeline keeps to its share.
pub(super) struct ShareKeeper {
    context: Arc<SampleContext>,
    share: CpuShare,
    budget: Arc<CpuBudget>,
    place: NodePlace,
    /// Measures the reading thread, which makes it itself.
    meter: Option<CpuMeter>,
    /// When to note and to look next; at once where there is no time.
    next_note: Option<Instant>,
    next_look: Option<Instant>,
}

impl ShareKeeper {
    /// Makes a budget for the threads of a pipeline, or takes the one that its former threads had.
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
            place: NodePlace::default(),
            meter: None,
            next_note: None,
            next_look: None,
        }
    }

    /// Takes part in what the node's loaders share, until [`ShareKeeper::leave`]. The reading thread calls this in each
    /// turn of its loop; mostly nothing is due.
    pub(super) fn keep(&mut self, now: Instant) {
        let is_due = |next: Option<Instant>| next.is_none_or(|next| now >= next);
        if !is_due(self.next_note) {
            return;
        }
        self.next_note = Some(now + NOTE_EVERY);
        // The reading thread never rests, because all others wait for it: the workers rest for its time, too.
        self.meter.get_or_insert_with(|| CpuMeter::new(self.budget.clone())).note();
        if is_due(self.next_look) {
            self.next_look = Some(now + LOOK_EVERY);
            let loaders = self.place.share(&|why| notify::alone(&self.context, why));
            self.budget.set(self.share.cores(loaders));
        }
    }

    /// Leaves the processors to the node's other loaders.
    pub(super) fn leave(&mut self) {
        self.place.leave();
        (self.next_note, self.next_look) = (None, None);
    }
}
