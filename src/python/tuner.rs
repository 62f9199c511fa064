//! What a loader's tuner stands at, as a dict of `stats()`.

use engine::tune::{Decision, KnobState, TunerState};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

/// The dict `stats()["tuner"]`.
pub(super) fn tuner_stats<'py>(py: Python<'py>, state: &TunerState) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("on", state.on)?;
    dict.set_item("resting", state.resting)?;
    dict.set_item("limit", state.limit.name())?;
    let fixed = PyList::empty(py);
    for KnobState { knob, value, range } in &state.knobs {
        dict.set_item(knob.name(), value)?;
        if range.is_fixed() {
            fixed.append(knob.name())?;
        }
    }
    dict.set_item("fixed", fixed)?;
    dict.set_item("cores", state.cores)?;
    dict.set_item("changes", state.log.changes())?;
    let decisions = PyList::empty(py);
    for Decision { at, knob, from, to, why } in state.log.latest() {
        let decision = PyDict::new(py);
        decision.set_item("seconds", at)?;
        decision.set_item("setting", knob.name())?;
        decision.set_item("from", from)?;
        decision.set_item("to", to)?;
        decision.set_item("because", why)?;
        decisions.append(decision)?;
    }
    dict.set_item("decisions", decisions)?;
    Ok(dict)
}
