//! Docstrings and signatures of the classes with settings as arguments, for `help()` and `inspect.signature`.

use super::objects::attribute;
use engine::config::{LoaderKind, SettingsClass, SettingsObject, docstring, signature};
use pyo3::prelude::*;
use pyo3::types::{PyCFunction, PyDict};
use std::ffi::CString;

/// A signature that is made on first use, because importing `inspect` takes longer than importing Foreload.
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

fn give_attributes(class: &Bound<'_, PyAny>, object: SettingsObject) -> PyResult<()> {
    let py = class.py();
    let property = py.import("builtins")?.getattr("property")?;
    for setting in object.members() {
        let Some(member) = setting.member else { continue };
        let get = PyCFunction::new_closure(py, None, None, move |arguments, _| {
            attribute(&arguments.get_item(0)?, setting).map(Bound::unbind)
        })?;
        let doc = setting.doc(LoaderKind::Images);
        class.setattr(member.name, property.call1((get, py.None(), py.None(), doc))?)?;
    }
    Ok(())
}

pub(in crate::python) fn describe(module: &Bound<'_, PyModule>) -> PyResult<()> {
    for class in SettingsClass::all() {
        let named = module.getattr(class.name())?;
        named.setattr("__doc__", docstring(class))?;
        named.setattr("__signature__", SignatureOfSettings(class))?;
        if let SettingsClass::Object(object) = class {
            give_attributes(&named, object)?;
        }
    }
    Ok(())
}
