//! The classes that group settings, such as `foreload.Directory`.

use super::given::{from_object, object};
use super::{UserSetting, check_count, keywords, wrong};
use crate::python::error::raise;
use engine::config::{LoaderOptions, RESOURCES_MAY_BE, Setting, SettingsObject, UserValue};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

/// The content of an instance of such a class: the checked values of the members that the user set, in the order of the
/// table of settings.
#[derive(Debug, Clone, PartialEq)]
struct UserMembers {
    object: SettingsObject,
    given: Vec<(&'static str, UserValue)>,
}

impl UserMembers {
    fn new(
        object: SettingsObject,
        positional: &Bound<'_, PyTuple>,
        named: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Self> {
        let py = positional.py();
        let by_place: Vec<_> = if object.positional() > 0 { object.members().collect() } else { Vec::new() };
        let names: Vec<_> =
            by_place.iter().filter_map(|setting| setting.member).map(|member| member.name).collect();
        let how = if names.is_empty() { "none".to_owned() } else { format!("only {}", names.join(", ")) };
        check_count(object.class(), positional, names.len(), &how)?;
        let in_place = names.iter().map(|name| (*name).to_owned()).zip(positional.iter());
        let mut pairs: Vec<(&'static str, UserValue)> = Vec::new();
        for entry in in_place.map(Ok).chain(keywords(named)) {
            let (name, value) = entry?;
            let full_name = format!("{}.{name}", object.path());
            let Some(setting) = object.member(&name) else {
                return Err(wrong(&full_name, object.unknown(&name)));
            };
            if pairs.iter().any(|(known, _)| *known == setting.name) {
                return Err(wrong(&full_name, "is given twice, by position and by name"));
            }
            let value = from_object(&value, setting.description().takes_iterables);
            let is_keyword = setting.member.is_some_and(|member| member.is_keyword);
            // None means "not given" for a setting that is also a keyword, even if the setting accepts None.
            if !is_keyword || value != UserValue::Nothing {
                raise(py, setting.set(&mut LoaderOptions::default(), &value))?;
            }
            pairs.push((setting.name, value));
        }
        for setting in object.members().take(object.positional()) {
            let found = pairs.iter().find(|(name, _)| *name == setting.name);
            if found.is_none_or(|(_, value)| *value == UserValue::Nothing) {
                let must = setting.description().may_be.trim_end_matches(", or None").to_owned();
                return Err(wrong(&setting.python_name(), format!("is not given, must be {must}")));
            }
        }
        let order = |name: &str| object.members().position(|setting| setting.name == name);
        pairs.sort_by_key(|(name, _)| order(name));
        Ok(Self { object, given: pairs })
    }

    fn settings(&self) -> Vec<UserSetting> {
        let of = |(name, value): &(&'static str, UserValue)| {
            self.object
                .members()
                .find(|setting| setting.name == *name)
                .map(|setting| (setting, value.clone()))
        };
        self.given.iter().filter_map(of).collect()
    }

    fn named(&self) -> impl Iterator<Item = (&'static str, UserValue)> {
        self.settings().into_iter().filter_map(|(setting, value)| Some((setting.member?.name, value)))
    }

    fn attribute<'py>(&self, py: Python<'py>, setting: &Setting) -> PyResult<Bound<'py, PyAny>> {
        let found = self.given.iter().find(|(known, _)| *known == setting.name);
        let value =
            found.map_or_else(|| setting.shown(&LoaderOptions::default()), |(_, value)| value.clone());
        object(py, &value)
    }

    fn repr(&self) -> String {
        let members: Vec<_> = self.named().map(|(name, value)| format!("{name}={value}")).collect();
        format!("foreload.{}({})", self.object.class(), members.join(", "))
    }

    fn arguments<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyTuple>, Bound<'py, PyDict>)> {
        let named = PyDict::new(py);
        for (name, value) in self.named() {
            named.set_item(name, object(py, &value)?)?;
        }
        Ok((PyTuple::empty(py), named))
    }
}

/// The classes differ only in their settings, which come from the table of settings.
macro_rules! classes {
    ($($(#[doc = $about:literal])+ $class:ident = $row:path;)+) => {
        pub(in crate::python) fn add(module: &Bound<'_, PyModule>) -> PyResult<()> {
            $(module.add_class::<$class>()?;)+
            Ok(())
        }

        fn held<'a>(instance: &'a Bound<'_, PyAny>) -> Option<&'a UserMembers> {
            $(if let Ok(object) = instance.cast::<$class>() {
                return Some(&object.get().0);
            })+
            None
        }

        $(
        $(#[doc = $about])+
        #[pyclass(frozen, module = "foreload")]
        struct $class(UserMembers);

        #[pymethods]
        impl $class {
            #[new]
            #[pyo3(signature = (*arguments, **settings))]
            fn new(arguments: &Bound<'_, PyTuple>, settings: Option<&Bound<'_, PyDict>>) -> PyResult<Self> {
                UserMembers::new(SettingsObject::$class, arguments, settings).map(Self)
            }

            fn __repr__(&self) -> String {
                self.0.repr()
            }

            fn __eq__(&self, other: &Self) -> bool {
                self.0 == other.0
            }

            fn __hash__(&self) -> u64 {
                use std::hash::{DefaultHasher, Hash, Hasher};
                let mut hasher = DefaultHasher::new();
                self.0.repr().hash(&mut hasher);
                hasher.finish()
            }

            fn __getnewargs_ex__<'py>(
                &self,
                py: Python<'py>,
            ) -> PyResult<(Bound<'py, PyTuple>, Bound<'py, PyDict>)> {
                self.0.arguments(py)
            }
        }
        )+
    };
}
engine::settings_objects!(classes);

pub(super) fn attribute<'py>(
    instance: &Bound<'py, PyAny>,
    setting: &'static Setting,
) -> PyResult<Bound<'py, PyAny>> {
    let members = held(instance)
        .ok_or_else(|| PyTypeError::new_err("a settings object is expected, such as foreload.Directory"))?;
    members.attribute(instance.py(), setting)
}

pub(super) fn resources(value: &Bound<'_, PyAny>) -> PyResult<Vec<UserSetting>> {
    if value.is_none() {
        return Ok(Vec::new());
    }
    let must = || wrong("resources", format!("is {}, must be {RESOURCES_MAY_BE}", from_object(value, false)));
    one("resources", value)?.map(|members| members.settings()).ok_or_else(must)
}

/// Reads the value of a keyword that takes one object or a list of objects. Each object becomes a dict: the name of its
/// class, and a dict of its members.
pub(super) fn objects(keyword: &str, value: &Bound<'_, PyAny>) -> PyResult<UserValue> {
    let text = |text: &str| UserValue::Text(text.into());
    let object = |item: &Bound<'_, PyAny>| {
        let Some(members) = one(keyword, item)? else { return Ok(from_object(item, false)) };
        let named = members.named().map(|(name, value)| (text(name), value)).collect();
        Ok(UserValue::Map(vec![(text(members.object.class()), UserValue::Map(named))]))
    };
    let Some(items) = items(value) else { return object(value) };
    Ok(UserValue::List(items.iter().map(object).collect::<PyResult<_>>()?))
}

/// Reads one object: an instance of a class, or a dict that describes it as YAML or JSON would.
fn one(keyword: &str, value: &Bound<'_, PyAny>) -> PyResult<Option<UserMembers>> {
    if let Some(members) = held(value).filter(|members| members.object.keyword() == keyword) {
        return Ok(Some(members.clone()));
    }
    let Ok(named) = value.cast::<PyDict>() else { return Ok(None) };
    // A dict with one class name as its key gives the class: {"Ram": {"size": "20GB"}}.
    let class = |object: &SettingsObject| named.len() == 1 && named.contains(object.class()).unwrap_or(false);
    let (object, arguments) = match SettingsObject::of_keyword(keyword).find(class) {
        Some(object) => (object, named.get_item(object.class())?),
        None => {
            let Some(usual) = SettingsObject::usual(keyword) else { return Ok(None) };
            (usual, Some(value.clone()))
        }
    };
    let Some(Ok(arguments)) = arguments.as_ref().map(|arguments| arguments.cast::<PyDict>()) else {
        return Ok(None);
    };
    UserMembers::new(object, &PyTuple::empty(value.py()), Some(arguments)).map(Some)
}

fn items<'py>(value: &Bound<'py, PyAny>) -> Option<Vec<Bound<'py, PyAny>>> {
    let is_list = value.is_instance_of::<pyo3::types::PyList>() || value.is_instance_of::<PyTuple>();
    is_list.then(|| value.try_iter().ok()?.collect::<PyResult<_>>().ok()).flatten()
}
