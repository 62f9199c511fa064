//! One Python exception per kind of error, all under `foreload.Error`.

use base::error::Error as Cause;
use data::dataset::DatasetIndex;
use engine::config::python_name;
use pyo3::exceptions::{PyAttributeError, PyException, PyUserWarning};
use pyo3::prelude::*;

macro_rules! exceptions {
    ($($name:ident: $base:ty = $doc:literal;)*) => {
        $(pyo3::create_exception!(foreload, $name, $base, $doc);)*
    };
}

exceptions! {
    Error: PyException = "Any failure of Foreload.";
    ConfigError: Error =
        "A setting has an invalid value, or no setting has this name; the message says which and what to do.";
    DatasetError: Error = "The dataset or its index cannot be used.";
    DatasetChangedError: DatasetError = "The dataset has changed since it was indexed.";
    IoError: Error = "An operation on a file failed.";
    DecodeError: Error = "An image cannot be decoded.";
    SampleError: Error =
        "A sample failed: attributes sample_id, key (in a tar shard), path, offset, length; __cause__ says why.";
    TooManyErrorsError: Error = "More samples failed than max_errors allows; __cause__ is the last failure.";
    UnavailableError: Error = "Something that this build or machine does not have was requested.";
    GpuError: Error = "A call of the GPU's driver or of a library on it failed.";
    InternalError: Error = "A defect in Foreload.";
    Warning: PyUserWarning =
        "Something was skipped, replaced or slowed down, although nothing failed; the message says what to do.";
}

/// Makes the exception for `error`, with its causes chained and a sample's place as attributes.
pub(super) fn to_python(py: Python<'_>, error: &Cause) -> PyErr {
    let message = error.to_string();
    match error {
        Cause::Config { setting, message } => {
            ConfigError::new_err(format!("config: {}: {message}", python_name(setting)))
        }
        Cause::Dataset { .. } => DatasetError::new_err(message),
        Cause::DatasetChanged { .. } => DatasetChangedError::new_err(message),
        Cause::Io { .. } => IoError::new_err(message),
        Cause::Decode(_) => DecodeError::new_err(message),
        Cause::Unavailable(_) => UnavailableError::new_err(message),
        Cause::Gpu { .. } => GpuError::new_err(message),
        Cause::Internal(_) => InternalError::new_err(message),
        Cause::TooManyErrors { source, .. } => {
            let exception = TooManyErrorsError::new_err(message);
            exception.set_cause(py, Some(to_python(py, source)));
            exception
        }
        Cause::Sample { id, key, path, offset, length, source } => {
            let exception = SampleError::new_err(message);
            let value = exception.value(py);
            let attributes = value
                .setattr("sample_id", id)
                .and_then(|()| value.setattr("key", key.as_deref()))
                .and_then(|()| value.setattr("path", &**path))
                .and_then(|()| value.setattr("offset", offset))
                .and_then(|()| value.setattr("length", length));
            if let Err(failure) = attributes {
                return failure;
            }
            exception.set_cause(py, Some(to_python(py, source)));
            exception
        }
    }
}

/// Makes the exception for missing labels: an AttributeError, so that `hasattr` works.
pub(super) fn no_labels(index: &DatasetIndex) -> PyErr {
    PyAttributeError::new_err(format!("the dataset has no labels: {}", index.to_label()))
}

pub(super) fn raise<T>(py: Python<'_>, result: crate::Result<T>) -> PyResult<T> {
    result.map_err(|error| to_python(py, &error))
}
