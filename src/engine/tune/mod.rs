//! What of a running pipeline follows what limits it: decisions over measured rates. Pure: observations bring the time.
//!
//! [`Tuner`] is told what a pipeline did in a stretch of time, an [`Observation`], and answers with changes, each a
//! [`Decision`]. It changes one [`Knob`] at a time, waits, measures, and keeps the change if more samples came than
//! noise explains; on the way back to what is usual it changes several and keeps what loses nothing. What a consumer
//! that never waits does not need is given back. Then it rests until it measures something else; what it has found out
//! before is not tried again.

mod decision;
mod knob;
mod measure;
mod memory;
mod rules;
mod state;
mod tuner;

#[cfg(test)]
mod tests;

pub use decision::{Decision, DecisionLog};
pub use knob::{Knob, KnobRange, KnobValues};
pub use measure::{Observation, WhatLimits};
pub use state::{KnobState, TunerState};
pub use tuner::Tuner;
