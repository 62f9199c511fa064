//! What the tuner did, for `foreload bench`.

use engine::tune::{Decision, KnobState, TunerState};
use serde::Serialize;
use std::collections::BTreeMap;

/// What the tuner stands at after the last epoch, as in `stats()["tuner"]`.
#[derive(Debug, Serialize)]
pub(super) struct TunerReport {
    on: bool,
    resting: bool,
    limit: &'static str,
    /// The values by their names.
    #[serde(flatten)]
    values: BTreeMap<&'static str, usize>,
    fixed: Vec<&'static str>,
    cores: Option<f64>,
    changes: u64,
    decisions: Vec<DecisionReport>,
}

/// A change; `seconds` since the threads started.
#[derive(Debug, Serialize)]
struct DecisionReport {
    seconds: f64,
    setting: &'static str,
    from: usize,
    to: usize,
    because: String,
}

impl TunerReport {
    pub(super) fn new(state: &TunerState) -> Self {
        let decision = |decision: &Decision| DecisionReport {
            seconds: decision.at,
            setting: decision.knob.name(),
            from: decision.from,
            to: decision.to,
            because: decision.why.clone(),
        };
        let fixed = |state: &&KnobState| state.range.is_fixed();
        Self {
            on: state.on,
            resting: state.resting,
            limit: state.limit.name(),
            values: state.knobs.iter().map(|state| (state.knob.name(), state.value)).collect(),
            fixed: state.knobs.iter().filter(fixed).map(|state| state.knob.name()).collect(),
            cores: state.cores,
            changes: state.log.changes(),
            decisions: state.log.latest().map(decision).collect(),
        }
    }

    /// Says what was changed, if anything was.
    pub(super) fn line(&self) -> Option<String> {
        let values: Vec<_> = self.values.iter().map(|(name, value)| format!("{name} {value}")).collect();
        let changes = if self.changes == 1 { "change" } else { "changes" };
        (self.changes > 0)
            .then(|| format!("tuner        {} {changes}, now {}", self.changes, values.join(", ")))
    }
}
