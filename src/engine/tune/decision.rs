//! What was decided, as users see it.

use super::Knob;
use std::collections::VecDeque;

/// The most decisions that are kept for statistics. The log has all of them.
const KEPT: usize = 64;

/// A change of a knob.
#[derive(Debug, Clone, PartialEq)]
pub struct Decision {
    /// Seconds since the threads started.
    pub at: f64,
    pub knob: Knob,
    pub from: usize,
    pub to: usize,
    /// Why, in words.
    pub why: String,
}

/// The latest decisions, and how many there were.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct DecisionLog {
    latest: VecDeque<Decision>,
    changes: u64,
}

impl DecisionLog {
    pub fn add(&mut self, decision: Decision) {
        self.changes += 1;
        self.latest.push_back(decision);
        if self.latest.len() > KEPT {
            self.latest.pop_front();
        }
    }

    /// The latest, in order.
    pub fn latest(&self) -> impl Iterator<Item = &Decision> {
        self.latest.iter()
    }

    /// How many there were.
    pub fn changes(&self) -> u64 {
        self.changes
    }
}
