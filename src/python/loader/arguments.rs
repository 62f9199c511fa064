//! Arguments of several types, as users write them.

use crate::config::{Weights, parse_bytes};
use crate::dataset::{ClassRef, Select};
use crate::error::{Error, Result};
use crate::python::error::ConfigError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyMapping, PyString};
use std::path::PathBuf;

/// A height and width, from one number or two.
#[derive(FromPyObject)]
pub enum Size {
    Square(u32),
    Sides((u32, u32)),
}

impl Size {
    pub fn sides(self) -> (u32, u32) {
        match self {
            Self::Square(side) => (side, side),
            Self::Sides(sides) => sides,
        }
    }
}

/// A list of transforms, as the JSON text that `foreload.transforms` makes of it.
pub struct TransformsGiven(pub String);

impl<'py> FromPyObject<'_, 'py> for TransformsGiven {
    type Error = PyErr;

    fn extract(given: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        let module = given.py().import("foreload.transforms")?;
        Ok(Self(module.call_method1("to_json", (given,))?.extract()?))
    }
}

/// Bytes, from a number or a text such as "300MB".
#[derive(FromPyObject)]
pub enum Bytes {
    Number(u64),
    Text(String),
}

impl Bytes {
    pub fn number(self, setting: &'static str) -> Result<u64> {
        match self {
            Self::Number(bytes) => Ok(bytes),
            Self::Text(text) => parse_bytes(setting, &text),
        }
    }
}

/// One dataset, or several.
#[derive(FromPyObject)]
pub enum Roots {
    One(PathBuf),
    Several(Vec<PathBuf>),
}

impl Roots {
    pub fn paths(self) -> Vec<PathBuf> {
        match self {
            Self::One(path) => vec![path],
            Self::Several(paths) => paths,
        }
    }
}

/// Numbers, from a sequence or from an array, whose own way to a list is many times as fast.
fn numbers<'py, T: FromPyObjectOwned<'py>>(
    setting: &'static str,
    given: Borrowed<'_, 'py, PyAny>,
) -> PyResult<Vec<T>> {
    let list = match given.getattr_opt("tolist")? {
        Some(tolist) => tolist.call0()?,
        None => given.to_owned(),
    };
    let number = |item: Bound<'py, PyAny>| {
        // Python's truth values are numbers too, but a mask is no list of numbers.
        let taken = if item.is_instance_of::<PyBool>() { None } else { item.extract().ok() };
        taken.ok_or_else(|| wrong(setting, &format!("has {}, must be numbers", shown(&item))))
    };
    let items = list.try_iter().map_err(|_| wrong(setting, "must be a list or an array of numbers"))?;
    items.map(|item| number(item?)).collect()
}

fn wrong(setting: &'static str, message: &str) -> PyErr {
    ConfigError::new_err(format!("config: {setting}: {message}"))
}

fn shown(given: &Bound<'_, PyAny>) -> String {
    given.repr().map_or_else(|_| "something".into(), |repr| repr.to_string())
}

/// Numbers of samples.
pub struct Indices(Vec<u64>);

impl<'py> FromPyObject<'_, 'py> for Indices {
    type Error = PyErr;

    fn extract(given: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        Ok(Self(numbers("indices", given)?))
    }
}

/// A class, by number or name.
pub struct Class(ClassRef);

impl<'py> FromPyObject<'_, 'py> for Class {
    type Error = PyErr;

    fn extract(given: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        if let Ok(name) = given.extract() {
            return Ok(Self(ClassRef::Name(name)));
        }
        if !given.is_instance_of::<PyBool>()
            && let Ok(number) = given.extract()
        {
            return Ok(Self(ClassRef::Number(number)));
        }
        Err(wrong("classes", &format!("has {}, must be names or numbers of classes", shown(&given))))
    }
}

/// Weights: a word, one for each of some classes, or one for each sample.
pub enum WeightsGiven {
    Word(String),
    Classes(Vec<(ClassRef, f64)>),
    Samples(Vec<f64>),
}

impl<'py> FromPyObject<'_, 'py> for WeightsGiven {
    type Error = PyErr;

    fn extract(given: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        if given.is_instance_of::<PyString>() {
            return Ok(Self::Word(given.extract()?));
        }
        let Ok(classes) = given.cast::<PyMapping>() else {
            return Ok(Self::Samples(numbers("weights", given)?));
        };
        let weight = |item: Bound<'py, PyAny>| {
            let taken = item.extract::<(Class, f64)>();
            taken.map(|(class, weight)| (class.0, weight)).map_err(|_| {
                wrong("weights", &format!("has {}, must be classes and their numbers", shown(&item)))
            })
        };
        classes.items()?.iter().map(weight).collect::<PyResult<_>>().map(Self::Classes)
    }
}

impl WeightsGiven {
    pub fn weights(self) -> Result<Weights> {
        match self {
            Self::Word(word) if word == "balanced" => Ok(Weights::Balanced),
            Self::Word(word) => Err(Error::config(
                "weights",
                format!(
                    "is {word:?}, must be \"balanced\", a dict of classes, or one number for each sample"
                ),
            )),
            Self::Classes(classes) => Ok(Weights::Classes(classes)),
            Self::Samples(weights) => Ok(Weights::Samples(weights)),
        }
    }
}

/// The part of a dataset that is asked for.
pub fn selected(indices: Option<Indices>, classes: Option<Vec<Class>>, files: Option<PathBuf>) -> Select {
    Select {
        indices: indices.map(|indices| indices.0),
        classes: classes.map(|classes| classes.into_iter().map(|class| class.0).collect()),
        files,
    }
}
