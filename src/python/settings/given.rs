//! Converts Python objects to values that a setting accepts, and back.

use engine::config::UserValue;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyFloat, PyInt, PyList, PyMapping, PyString, PyTuple};
use std::path::PathBuf;

/// Converts an object to a value. Never fails: any other object becomes the string of its `repr`.
///
/// Arrays, tensors and their scalars, of any library, are read through their `tolist`. Iterables other than lists and
/// tuples are read only `with_iterables`, because a dataset or an endless generator must not be consumed.
pub(super) fn from_object(value: &Bound<'_, PyAny>, with_iterables: bool) -> UserValue {
    convert_nested(value, with_iterables, 0)
}

fn convert_nested(value: &Bound<'_, PyAny>, with_iterables: bool, depth: usize) -> UserValue {
    convert(value, with_iterables, depth).unwrap_or_else(|| UserValue::Other(repr_text(value)))
}

/// The maximum depth of nesting that is read. No setting nests deeper, but a list that contains itself does.
const DEEPEST: usize = 8;

pub(super) fn repr_text(value: &Bound<'_, PyAny>) -> String {
    let kind = || value.get_type().name().map_or_else(|_| "an object".into(), |name| name.to_string());
    value.repr().map_or_else(|_| kind(), |repr| repr.to_string_lossy().into_owned())
}

fn convert(value: &Bound<'_, PyAny>, with_iterables: bool, depth: usize) -> Option<UserValue> {
    if depth > DEEPEST {
        return None;
    }
    if value.is_none() {
        return Some(UserValue::Nothing);
    }
    if let Ok(truth) = value.cast::<PyBool>() {
        return Some(UserValue::Truth(truth.is_true()));
    }
    if value.is_instance_of::<PyInt>() {
        return value.extract().ok().map(UserValue::Whole);
    }
    if value.is_instance_of::<PyFloat>() {
        return value.extract().ok().map(UserValue::Number);
    }
    if let Ok(text) = value.cast::<PyString>() {
        // A string that is not valid Unicode can still be a path.
        let text = text.extract().map(UserValue::Text);
        return text.or_else(|_| value.extract().map(UserValue::Path)).ok();
    }
    if value.is_instance_of::<PyList>() || value.is_instance_of::<PyTuple>() {
        return list(value, with_iterables, depth);
    }
    if let Ok(map) = value.cast::<PyMapping>() {
        let entry = |entry: Bound<'_, PyAny>| {
            let (key, item): (Bound<'_, PyAny>, Bound<'_, PyAny>) = entry.extract().ok()?;
            Some((convert_nested(&key, false, depth + 1), convert_nested(&item, with_iterables, depth + 1)))
        };
        return map.items().ok()?.iter().map(entry).collect::<Option<_>>().map(UserValue::Map);
    }
    // Foreload's own objects, such as fields and transforms, return their named parts by `_as_setting`.
    if let Ok(Some(parts)) = value.getattr_opt("_as_setting") {
        return parts.call0().ok().and_then(|parts| convert(&parts, with_iterables, depth + 1));
    }
    if let Ok(Some(tolist)) = value.getattr_opt("tolist") {
        let plain = tolist.call0().ok()?;
        // Only plain results are read: an object whose `tolist` returns itself would recurse without end.
        let has_tolist = plain.hasattr("tolist").unwrap_or(true);
        return if has_tolist { None } else { convert(&plain, with_iterables, depth + 1) };
    }
    if let Ok(path) = value.extract::<PathBuf>() {
        return Some(UserValue::Path(path));
    }
    if value.hasattr("__index__").unwrap_or(false) {
        return value.extract().ok().map(UserValue::Whole);
    }
    if value.hasattr("__float__").unwrap_or(false) {
        return value.extract().ok().map(UserValue::Number);
    }
    if with_iterables { list(value, with_iterables, depth) } else { None }
}

fn list(value: &Bound<'_, PyAny>, with_iterables: bool, depth: usize) -> Option<UserValue> {
    let mut list = UserValue::empty_list();
    for item in value.try_iter().ok()? {
        list.push(convert_nested(&item.ok()?, with_iterables, depth + 1));
    }
    Some(list)
}

pub(super) fn object<'py>(py: Python<'py>, value: &UserValue) -> PyResult<Bound<'py, PyAny>> {
    Ok(match value {
        UserValue::Nothing => py.None().into_bound(py),
        UserValue::Truth(truth) => truth.into_pyobject(py)?.to_owned().into_any(),
        UserValue::Whole(number) => number.into_pyobject(py)?.into_any(),
        UserValue::Number(number) => number.into_pyobject(py)?.into_any(),
        UserValue::Text(text) | UserValue::Other(text) => text.into_pyobject(py)?.into_any(),
        UserValue::Path(path) => path.into_pyobject(py)?.into_any(),
        UserValue::List(_) | UserValue::Wholes(_) | UserValue::Numbers(_) => {
            let items = value.items().into_iter().flatten().map(|item| object(py, &item));
            PyTuple::new(py, items.collect::<PyResult<Vec<_>>>()?)?.into_any()
        }
        UserValue::Map(map) => {
            let dict = PyDict::new(py);
            for (key, item) in map {
                dict.set_item(object(py, key)?, object(py, item)?)?;
            }
            dict.into_any()
        }
    })
}
