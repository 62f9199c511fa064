//! What `help()` and `inspect.signature` say of the classes whose arguments are settings.

use crate::config::{SettingsClass, docstring, signature};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::ffi::CString;

/// A signature, made when it is first asked for: `inspect` takes longer to import than all of Foreload.
#[pyclass(frozen, module = "foreload")]
struct SignatureOfSettings(SettingsClass);

#[pymethods]
impl SignatureOfSettings {
    fn __get__<'py>(
        &self,
        py: Python<'py>,
        _instance: &Bound<'py, PyAny>,
        _owner: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let source = format!("lambda {}: None", signature(self.0, false).join(", "));
        let function = py.eval(&CString::new(source)?, Some(&PyDict::new(py)), None)?;
        py.import("inspect")?.call_method1("signature", (function,))
    }
}

/// Gives the classes of a module their docstrings and signatures.
pub(in crate::python) fn describe(module: &Bound<'_, PyModule>) -> PyResult<()> {
    for class in SettingsClass::ALL {
        let named = module.getattr(class.name())?;
        named.setattr("__doc__", docstring(class))?;
        named.setattr("__signature__", SignatureOfSettings(class))?;
    }
    Ok(())
}
