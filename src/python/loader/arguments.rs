//! Arguments of several types, as users write them.

use crate::config::{Weights, parse_bytes};
use crate::dataset::{ClassRef, Select};
use crate::error::{Error, Result};
use pyo3::prelude::*;
use pyo3::types::PyString;
use std::collections::HashMap;
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
pub struct List<T>(pub Vec<T>);

impl<'py, T: FromPyObjectOwned<'py>> FromPyObject<'_, 'py> for List<T> {
    type Error = PyErr;

    fn extract(given: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        let list = match given.getattr_opt("tolist")? {
            Some(tolist) => tolist.call0()?,
            None => given.to_owned(),
        };
        Ok(Self(list.extract()?))
    }
}

/// A class, by number or name.
#[derive(FromPyObject, PartialEq, Eq, Hash)]
pub enum Class {
    Number(u32),
    Name(String),
}

impl From<Class> for ClassRef {
    fn from(class: Class) -> Self {
        match class {
            Class::Number(number) => Self::Number(number),
            Class::Name(name) => Self::Name(name),
        }
    }
}

/// Weights: a word, one for each of some classes, or one for each sample.
pub enum WeightsGiven {
    Word(String),
    Classes(HashMap<Class, f64>),
    Samples(Vec<f64>),
}

impl<'py> FromPyObject<'_, 'py> for WeightsGiven {
    type Error = PyErr;

    fn extract(given: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        if given.is_instance_of::<PyString>() {
            return Ok(Self::Word(given.extract()?));
        }
        if let Ok(classes) = given.extract() {
            return Ok(Self::Classes(classes));
        }
        Ok(Self::Samples(given.extract::<List<f64>>()?.0))
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
            Self::Classes(classes) => Ok(Weights::Classes(
                classes.into_iter().map(|(class, weight)| (class.into(), weight)).collect(),
            )),
            Self::Samples(weights) => Ok(Weights::Samples(weights)),
        }
    }
}

/// The part of a dataset that is asked for.
pub fn selected(indices: Option<List<u64>>, classes: Option<Vec<Class>>, files: Option<PathBuf>) -> Select {
    Select {
        indices: indices.map(|indices| indices.0),
        classes: classes.map(|classes| classes.into_iter().map(ClassRef::from).collect()),
        files,
    }
}
