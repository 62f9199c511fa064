//! Statistics of caches as Python dicts.

use base::trace::TraceNumber;
use pyo3::prelude::*;
use pyo3::types::{IntoPyDict, PyDict};
use store::peers::PeerValue;
use store::tier::{Cache, CacheStats};

pub(super) fn set_number(dict: &Bound<'_, PyDict>, name: &str, number: TraceNumber) -> PyResult<()> {
    match number {
        TraceNumber::Whole(count) => dict.set_item(name, count),
        TraceNumber::Real(seconds) => dict.set_item(name, seconds),
    }
}

pub(super) fn peer_stats<'py>(py: Python<'py>, cache: Option<&Cache>) -> PyResult<Bound<'py, PyDict>> {
    let nodes = PyDict::new(py);
    for (name, peer) in cache.map(Cache::peers).unwrap_or_default() {
        let of_node = PyDict::new(py);
        for (name, value) in peer.by_name() {
            match value {
                PeerValue::Number(number) => set_number(&of_node, name, number)?,
                PeerValue::Text(text) => of_node.set_item(name, text)?,
            }
        }
        nodes.set_item(name, of_node)?;
    }
    let served = cache.and_then(Cache::served).map(|served| served.by_name().into_py_dict(py)).transpose()?;
    let dict = PyDict::new(py);
    dict.set_item("nodes", nodes)?;
    dict.set_item("served", served)?;
    Ok(dict)
}

pub(super) fn cache_stats<'py>(
    py: Python<'py>,
    cache: &CacheStats,
    last_error: Option<String>,
) -> PyResult<Bound<'py, PyDict>> {
    let dict = cache.source.by_name().into_py_dict(py)?;
    let tiers = PyDict::new(py);
    for (tier, stats) in &cache.tiers {
        tiers.set_item(tier.as_str(), stats.by_name().into_py_dict(py)?)?;
    }
    dict.set_item("tiers", tiers)?;
    dict.set_item("last_error", last_error)?;
    Ok(dict)
}
