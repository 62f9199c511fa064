//! The contents of the batches of all loaders of images, for Python.

use crate::python::error::raise;
use base::names::NamedValue;
use engine::config::LoaderConfig;
use engine::pipeline::Pipeline;
use pyo3::prelude::*;
use pyo3::types::{IntoPyDict, PyDict};

pub(super) fn kinds<'py>(py: Python<'py>, config: &LoaderConfig) -> PyResult<Bound<'py, PyDict>> {
    config.field_names().map(|(name, kind)| (name, kind.name())).into_py_dict(py)
}

pub(super) fn packing<'py>(
    py: Python<'py>,
    pipeline: &Pipeline,
    epoch: u64,
    (rank, world_size): (u32, u32),
) -> PyResult<Bound<'py, PyDict>> {
    let packed = raise(py, py.detach(|| pipeline.packing(epoch, rank, world_size)))?;
    let dict = packed.counts().into_py_dict(py)?;
    dict.set_item("fullness", packed.fullness)?;
    Ok(dict)
}

pub(super) fn optional(config: &LoaderConfig) -> Vec<String> {
    let fields = config.fields.list.iter();
    fields.filter(|field| field.optional.is_some()).map(|field| field.name.clone()).collect()
}

pub(super) fn mixes_hard_labels(config: &LoaderConfig) -> bool {
    config.mix.as_ref().is_some_and(|plan| !plan.labels.are_mixed())
}

pub(super) fn dense(py: Python<'_>, config: &LoaderConfig) -> PyResult<Vec<(String, &'static str, usize)>> {
    let tensors = raise(py, config.dense_tensors())?.into_iter();
    Ok(tensors.map(|(field, element, dimensions)| (field, element.name(), dimensions)).collect())
}
