//! What a tuner stands at, for statistics.

use super::{DecisionLog, Knob, KnobRange, WhatLimits};

/// What a pipeline's tuner stands at.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TunerState {
    /// Whether anything is tuned.
    pub on: bool,
    /// Whether nothing is looked for at the moment.
    pub resting: bool,
    /// What held the pipeline up when that was measured last.
    pub limit: WhatLimits,
    /// The knobs with their values.
    pub knobs: Vec<KnobState>,
    /// The processors that the pipeline may take on average, where it has a budget.
    pub cores: Option<f64>,
    pub log: DecisionLog,
}

/// A knob with its value and its bounds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct KnobState {
    pub knob: Knob,
    pub value: usize,
    pub range: KnobRange,
}
