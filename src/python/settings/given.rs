//! Converts Python objects to values that a setting accepts, and back.

use engine::config::Given;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyFloat, PyInt, PyList, PyMapping, PyString, PyTuple};
use std::path::PathBuf;

/// Converts an object to a value. Never fails: any other object becomes the text of its `repr`.
///
/// Arrays, tensors and their scalars, of any library, are read through their `tolist`. Iterables other than lists and
/// tuples are read only `with_iterables`, because a dataset or an endless generator must not be consumed.
pub(super) fn given(value: &Bound<'_, PyAny>, with_iterables: bool) -> Given {
    within(value, with_iterables, 0)
}

/// Converts an object that is nested `depth` levels inside another.
fn within(value: &Bound<'_, PyAny>, with_iterables: bool, depth: usize) -> Given {
    understood(value, with_iterables, depth).unwrap_or_else(|| Given::Other(shown(value)))
}

/// Deepest nesting that is read. No setting nests deeper, but a list that contains itself does.
const DEEPEST: usize = 8;

/// Returns the `repr` of an object.
pub(super) fn shown(value: &Bound<'_, PyAny>) -> String {
    let kind = || value.get_type().name().map_or_else(|_| "an object".into(), |name| name.to_string());
    value.repr().map_or_else(|_| kind(), |repr| repr.to_string_lossy().into_owned())
}

fn understood(value: &Bound<'_, PyAny>, with_iterables: bool, depth: usize) -> Option<Given> {
    if depth > DEEPEST {
        return None;
    }
    if value.is_none() {
        return Some(Given::Nothing);
    }
    if let Ok(truth) = value.cast::<PyBool>() {
        return Some(Given::Truth(truth.is_true()));
    }
    if value.is_instance_of::<PyInt>() {
        return value.extract().ok().map(Given::Whole);
    }
    if value.is_instance_of::<PyFloat>() {
        return value.extract().ok().map(Given::Number);
    }
    if let Ok(text) = value.cast::<PyString>() {
        // A string that is not valid Unicode can still be a path.
        let text = text.extract().map(Given::Text);
        return text.or_else(|_| value.extract().map(Given::Path)).ok();
    }
    if value.is_instance_of::<PyList>() || value.is_instance_of::<PyTuple>() {
        return list(value, with_iterables, depth);
    }
    if let Ok(map) = value.cast::<PyMapping>() {
        let entry = |entry: Bound<'_, PyAny>| {
            let (key, item): (Bound<'_, PyAny>, Bound<'_, PyAny>) = entry.extract().ok()?;
            Some((within(&key, false, depth + 1), within(&item, with_iterables, depth + 1)))
        };
        return map.items().ok()?.iter().map(entry).collect::<Option<_>>().map(Given::Map);
    }
    // Foreload's own objects with named parts: fields, transforms.
    if let Ok(Some(parts)) = value.getattr_opt("_as_setting") {
        return parts.call0().ok().and_then(|parts| understood(&parts, with_iterables, depth + 1));
    }
    if let Ok(Some(tolist)) = value.getattr_opt("tolist") {
        let plain = tolist.call0().ok()?;
        // Only plain results are read: an object whose `tolist` returns itself would recurse without end.
        let has_tolist = plain.hasattr("tolist").unwrap_or(true);
        return if has_tolist { None } else { understood(&plain, with_iterables, depth + 1) };
    }
    if let Ok(path) = value.extract::<PathBuf>() {
        return Some(Given::Path(path));
    }
    // Integers and other numbers of any library, such as `fractions.Fraction`.
    if value.hasattr("__index__").unwrap_or(false) {
        return value.extract().ok().map(Given::Whole);
    }
    if value.hasattr("__float__").unwrap_or(false) {
        return value.extract().ok().map(Given::Number);
    }
    if with_iterables { list(value, with_iterables, depth) } else { None }
}

fn list(value: &Bound<'_, PyAny>, with_iterables: bool, depth: usize) -> Option<Given> {
    let mut list = Given::empty_list();
    for item in value.try_iter().ok()? {
        list.push(within(&item.ok()?, with_iterables, depth + 1));
    }
    Some(list)
}

/// Converts a value to a Python object.
pub(super) fn object<'py>(py: Python<'py>, value: &Given) -> PyResult<Bound<'py, PyAny>> {
    Ok(match value {
        Given::Nothing => py.None().into_bound(py),
        Given::Truth(truth) => truth.into_pyobject(py)?.to_owned().into_any(),
        Given::Whole(number) => number.into_pyobject(py)?.into_any(),
        Given::Number(number) => number.into_pyobject(py)?.into_any(),
        Given::Text(text) | Given::Other(text) => text.into_pyobject(py)?.into_any(),
        Given::Path(path) => path.into_pyobject(py)?.into_any(),
        Given::List(_) | Given::Wholes(_) | Given::Numbers(_) => {
            let items = value.items().into_iter().flatten().map(|item| object(py, &item));
            PyTuple::new(py, items.collect::<PyResult<Vec<_>>>()?)?.into_any()
        }
        Given::Map(map) => {
            let dict = PyDict::new(py);
            for (key, item) in map {
                dict.set_item(object(py, key)?, object(py, item)?)?;
            }
            dict.into_any()
        }
    })
}
