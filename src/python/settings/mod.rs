//! Settings in Python: turns keyword arguments into options, and the table of settings into docstrings and signatures.

mod describe;
mod given;
mod objects;
mod read;

pub(super) use describe::describe;
pub(super) use objects::add as add_objects;
pub(super) use read::{LoaderArguments, read, read_named};

use super::error::ConfigError;
use engine::config::{Setting, UserValue};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

pub(super) fn wrong(name: &str, message: impl std::fmt::Display) -> PyErr {
    ConfigError::new_err(format!("config: {name}: {message}"))
}

/// Reads a method's argument as an integer from 0 to `largest`.
///
/// # Errors
/// `ConfigError` that names the argument, if the argument is not an integer in this range.
pub(super) fn whole_number(name: &str, argument: &Bound<'_, PyAny>, largest: u64) -> PyResult<u64> {
    let value = given::from_object(argument, false);
    let number = if let UserValue::Whole(number) = value { u64::try_from(number).ok() } else { None };
    number
        .filter(|&number| number <= largest)
        .ok_or_else(|| wrong(name, format!("is {value}, must be a whole number from 0 to {largest}")))
}

pub(super) type UserSetting = (&'static Setting, UserValue);

fn check_count(class: &str, positional: &Bound<'_, PyTuple>, most: usize, how: &str) -> PyResult<()> {
    match positional.len() {
        count if count > most => Err(wrong(
            class,
            format!("has {count} positional arguments, must have {how}: pass the others by name"),
        )),
        _ => Ok(()),
    }
}

fn keywords<'py>(
    given: Option<&Bound<'py, PyDict>>,
) -> impl Iterator<Item = PyResult<(String, Bound<'py, PyAny>)>> {
    let items: Vec<_> = given.into_iter().flat_map(|given| given.iter()).collect();
    items.into_iter().map(|(name, value)| Ok((name.str()?.to_string_lossy().into_owned(), value)))
}
