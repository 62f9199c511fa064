//! Reads a loader's arguments as options.

use super::given::{from_object, repr_text};
use super::objects::{objects, resources};
use super::{UserSetting, check_count, keywords, wrong};
use crate::python::error::{ConfigError, raise};
use engine::config::{
    GivenSettings, LoaderKind, LoaderOptions, Setting, SettingsObject, UserValue, check_given_once,
    unknown_setting,
};
use pyo3::exceptions::PyException;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use std::path::PathBuf;

/// Reads the datasets and the options from the arguments of `loader`.
///
/// # Errors
/// `ConfigError` that names the setting: if the value is invalid, if there is no such setting, or if it is given twice.
pub(in crate::python) fn read(
    loader: LoaderKind,
    positional: &Bound<'_, PyTuple>,
    named: Option<&Bound<'_, PyDict>>,
) -> PyResult<LoaderArguments> {
    check_count(loader.name(), positional, 1, "one, the path")?;
    let mut path = positional.get_item(0).ok();
    let (options, given) = read_named(loader, positional.py(), named, |name, value| {
        if name != "path" {
            return Ok(false);
        }
        match path.replace(value.clone()) {
            None => Ok(true),
            Some(_) => Err(wrong("path", "is given twice, by position and by name")),
        }
    })?;
    paths(path).map(|paths| LoaderArguments { paths, options, given })
}

pub(in crate::python) struct LoaderArguments {
    pub paths: Vec<PathBuf>,
    pub options: LoaderOptions,
    /// The user's values of the settings from which `options` was made.
    pub given: GivenSettings,
}

/// Reads the options from the keyword arguments `named`. Skips a keyword if `takes` returns true for it, because
/// `takes` has then read the keyword itself.
///
/// # Errors
/// The errors of [`read`].
pub(in crate::python) fn read_named<'py>(
    loader: LoaderKind,
    py: Python<'py>,
    named: Option<&Bound<'py, PyDict>>,
    mut takes: impl FnMut(&str, &Bound<'py, PyAny>) -> PyResult<bool>,
) -> PyResult<(LoaderOptions, GivenSettings)> {
    let mut arguments: Vec<(UserSetting, String)> = Vec::new();
    let mut misplaced: Vec<UserSetting> = Vec::new();
    for entry in keywords(named) {
        let (name, value) = entry?;
        if takes(&name, &value)? {
            continue;
        }
        if name == SettingsObject::Resources.keyword() {
            for (setting, value) in resources(&value)? {
                let call = format!("{name}=Resources({}={value})", setting.name);
                arguments.push(((setting, value), call));
            }
            continue;
        }
        let Some(setting) = Setting::named(&name).filter(|setting| setting.belongs_to(loader)) else {
            return Err(wrong(&name, unknown_setting(loader, &name)));
        };
        let value = value_of(setting, &value)?;
        if setting.member.is_none_or(|member| member.is_keyword) {
            let call = format!("{name}={value}");
            arguments.push(((setting, value), call));
        } else {
            misplaced.push((setting, value));
        }
    }
    if let Some((setting, _)) = misplaced.first() {
        return Err(wrong(setting.name, in_its_object(&misplaced)));
    }
    options(py, loader, &arguments)
}

fn value_of(setting: &Setting, value: &Bound<'_, PyAny>) -> PyResult<UserValue> {
    if setting.objects().next().is_some() {
        return objects(setting.name, value);
    }
    let form = setting.description();
    if let Some(attribute) = form.attribute {
        let shown = || from_object(value, false);
        refuse_set(setting, value, || format!("is {}", shown()))?;
        if let Ok(Some(held)) = value.getattr_opt(attribute) {
            if held.is_none() {
                return Err(wrong(
                    setting.name,
                    format!("is {}, whose attribute {attribute} is None", shown()),
                ));
            }
            refuse_set(setting, &held, || {
                format!("is {}, whose attribute {attribute} is {}", shown(), from_object(&held, false))
            })?;
            return Ok(from_object(&held, form.takes_iterables));
        }
    }
    let Some((module, function)) = form.text_by.filter(|_| !value.is_none()) else {
        return Ok(from_object(value, form.takes_iterables));
    };
    let py = value.py();
    let text = py.import(module)?.call_method1(function, (value,)).map_err(|error| {
        // If a method of the inspected object raised an exception, refuse the argument instead. Pass KeyboardInterrupt
        // on.
        if error.is_instance_of::<ConfigError>(py) || !error.is_instance_of::<PyException>(py) {
            return error;
        }
        let refused =
            wrong(setting.name, format!("is {}, must be {}", from_object(value, false), form.may_be));
        refused.set_cause(py, Some(error));
        refused
    })?;
    Ok(from_object(&text, false))
}

/// Refuses a set (or a view of the keys of a dict) if the order of the list matters, because a set of strings has
/// another order in each process.
fn refuse_set(setting: &Setting, value: &Bound<'_, PyAny>, what: impl FnOnce() -> String) -> PyResult<()> {
    if !value.is_instance(&value.py().import("collections.abc")?.getattr("Set")?)? {
        return Ok(());
    }
    let message = format!(
        "{}, a set, which has no order: pass a list in the order of the numbers, such as sorted(names)",
        what()
    );
    Err(wrong(setting.name, message))
}

fn options(
    py: Python<'_>,
    loader: LoaderKind,
    arguments: &[(UserSetting, String)],
) -> PyResult<(LoaderOptions, GivenSettings)> {
    let mut options = loader.usual();
    let mut given = GivenSettings::default();
    for (number, ((setting, value), call)) in arguments.iter().enumerate() {
        if !setting.belongs_to(loader) {
            return Err(wrong(setting.name, unknown_setting(loader, setting.name)));
        }
        // If an object may also give the setting, None as a keyword means "not given".
        if setting.member.is_some() && *value == UserValue::Nothing {
            continue;
        }
        let other = arguments[..number]
            .iter()
            .find(|((other, value), _)| other.name == setting.name && *value != UserValue::Nothing);
        if let Some((_, other)) = other {
            return Err(wrong(
                &setting.python_name(),
                format!("is given twice, {other} and {call}: remove one of the two"),
            ));
        }
        raise(py, setting.set(&mut options, value))?;
        given.give(setting.name, value.clone());
    }
    if options.transforms.is_some() {
        let said = arguments.iter().filter(|((_, value), _)| *value != UserValue::Nothing);
        let said: Vec<&str> = said.map(|((setting, _), _)| setting.name).collect();
        raise(py, check_given_once(&said))?;
    }
    Ok((options, given))
}

/// Explains how to write the call if all of the settings must be members of an object instead of keywords.
fn in_its_object(misplaced: &[UserSetting]) -> String {
    let Some(object) = misplaced.first().and_then(|(setting, _)| setting.member).map(|member| member.object)
    else {
        return String::new();
    };
    let mut arguments = Vec::new();
    for (number, setting) in object.members().enumerate() {
        let name = setting.member.map_or(setting.name, |member| member.name);
        let value = misplaced
            .iter()
            .find(|(other, _)| other.name == setting.name)
            .map(|(_, value)| value.to_string());
        match value {
            _ if number < object.positional() => arguments.push(value.unwrap_or_else(|| name.to_owned())),
            Some(value) => arguments.push(format!("{name}={value}")),
            None => {}
        }
    }
    let (keyword, class) = (object.keyword(), object.class());
    format!("is now part of {keyword}=: use {keyword}=foreload.{class}({})", arguments.join(", "))
}

fn paths(path: Option<Bound<'_, PyAny>>) -> PyResult<Vec<PathBuf>> {
    const MUST: &str = "must be the path of a dataset, or a list of several";
    let Some(path) = path else { return Err(wrong("path", format!("is not given, {MUST}"))) };
    let value = from_object(&path, true);
    let usable =
        |value: &UserValue| value.path().filter(|path| UserValue::is_usable_path(path)).map(PathBuf::from);
    let paths = match value.items() {
        None => usable(&value).map(|path| vec![path]),
        Some(items) => {
            items.map(|item| usable(&item)).collect::<Option<Vec<_>>>().filter(|paths| !paths.is_empty())
        }
    };
    paths.ok_or_else(|| {
        let found = repr_text(&path);
        // A URL may hold a password or a signature.
        let found =
            if found.contains("://") { "an invalid value that contains a URL".to_owned() } else { found };
        wrong("path", format!("is {found}, {MUST}"))
    })
}
