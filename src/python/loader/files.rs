//! `foreload.FileLoader`.

use super::Loader;
use crate::python::settings;
use engine::config::LoaderKind;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

/// The class `foreload.FileLoader`. Its documentation is generated from the table of settings, see
/// `settings::describe`.
#[pyclass(frozen, extends = Loader, module = "foreload")]
pub(in crate::python) struct FileLoader;

#[pymethods]
impl FileLoader {
    #[new]
    #[pyo3(signature = (*arguments, **settings))]
    fn new(
        py: Python<'_>,
        arguments: &Bound<'_, PyTuple>,
        settings: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<PyClassInitializer<Self>> {
        let arguments = settings::read(LoaderKind::Files, arguments, settings)?;
        let loader = Loader::open(py, arguments, settings)?;
        Ok(PyClassInitializer::from(loader).add_subclass(Self))
    }
}
