//! Errors that are sent from one process to another. The received error has the same text and kind.

use super::{DecodeError, Error};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// An [`Error`] in a serialisable form. [`Error::Gpu`] becomes [`Error::Unavailable`] with the same text.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[allow(missing_docs, reason = "variants and fields are those of Error")]
pub enum SerializedError {
    Config {
        setting: String,
        message: String,
    },
    Dataset {
        path: Vec<u8>,
        message: String,
    },
    DatasetChanged {
        path: Vec<u8>,
        message: String,
    },
    Io {
        what: String,
        path: Vec<u8>,
        code: Option<i32>,
        text: String,
    },
    Decode(DecodeError),
    Sample {
        id: u64,
        key: Option<Box<str>>,
        path: Vec<u8>,
        offset: u64,
        length: u32,
        source: Box<SerializedError>,
    },
    TooManyErrors {
        count: u64,
        max_errors: u64,
        source: Box<SerializedError>,
    },
    Unavailable(String),
    Internal(String),
}

impl From<&Error> for SerializedError {
    fn from(error: &Error) -> Self {
        let bytes = |path: &Path| path.as_os_str().as_bytes().to_vec();
        match error {
            Error::Config { setting, message } => {
                Self::Config { setting: (*setting).to_owned(), message: message.clone() }
            }
            Error::Dataset { path, message } => Self::Dataset { path: bytes(path), message: message.clone() },
            Error::DatasetChanged { path, message } => {
                Self::DatasetChanged { path: bytes(path), message: message.clone() }
            }
            Error::Io { what, path, source } => Self::Io {
                what: what.clone(),
                path: bytes(path),
                code: source.raw_os_error(),
                text: source.to_string(),
            },
            Error::Decode(error) => Self::Decode(error.clone()),
            Error::Sample { id, key, path, offset, length, source } => Self::Sample {
                id: *id,
                key: key.clone(),
                path: bytes(path),
                offset: *offset,
                length: *length,
                source: Box::new((&**source).into()),
            },
            Error::TooManyErrors { count, max_errors, source } => Self::TooManyErrors {
                count: *count,
                max_errors: *max_errors,
                source: Box::new((&**source).into()),
            },
            Error::Unavailable(message) => Self::Unavailable(message.clone()),
            Error::Internal(message) => Self::Internal(message.clone()),
            Error::Gpu { .. } => Self::Unavailable(error.to_string()),
        }
    }
}

impl From<SerializedError> for Error {
    fn from(serialized: SerializedError) -> Self {
        let path = |bytes| PathBuf::from(OsString::from_vec(bytes));
        match serialized {
            SerializedError::Config { setting, message } => Self::config(kept(setting), message),
            SerializedError::Dataset { path: bytes, message } => Self::dataset(path(bytes), message),
            SerializedError::DatasetChanged { path: bytes, message } => {
                Self::DatasetChanged { path: path(bytes), message }
            }
            SerializedError::Io { what, path: bytes, code, text } => {
                let source =
                    code.map_or_else(|| std::io::Error::other(text), std::io::Error::from_raw_os_error);
                Self::io(what, path(bytes), source)
            }
            SerializedError::Decode(error) => error.into(),
            SerializedError::Sample { id, key, path: bytes, offset, length, source } => {
                let source = Box::new((*source).into());
                Self::Sample { id, key, path: path(bytes).into(), offset, length, source }
            }
            SerializedError::TooManyErrors { count, max_errors, source } => {
                Self::TooManyErrors { count, max_errors, source: Box::new((*source).into()) }
            }
            SerializedError::Unavailable(message) => Self::Unavailable(message),
            SerializedError::Internal(message) => Self::Internal(message),
        }
    }
}

/// Maximum number of setting names that are leaked. Foreload has far fewer settings.
const MAX_NAMES: usize = 1000;

/// Leaks the name of a setting, because [`Error::Config`] needs a `&'static str`. Each name is leaked only once.
fn kept(name: String) -> &'static str {
    static NAMES: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());
    let mut names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    match names.get(name.as_str()) {
        Some(name) => name,
        None if names.len() < MAX_NAMES => {
            let name: &'static str = name.leak();
            names.insert(name);
            name
        }
        None => "shared",
    }
}

impl Serialize for Error {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        SerializedError::from(self).serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Error {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        SerializedError::deserialize(deserializer).map(Self::from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_read_says_what_was_written() {
        let sample = |source| Error::Sample {
            id: 7,
            key: Some("a/7".into()),
            path: PathBuf::from(OsString::from_vec(b"/data/\xFF.tar".to_vec())).into(),
            offset: 512,
            length: 99,
            source: Box::new(source),
        };
        let damaged = DecodeError::Field {
            name: "mask".into(),
            source: Box::new(DecodeError::TooLarge { width: 1, height: 2, limit: 1 }),
        };
        for error in [
            sample(damaged.into()),
            sample(Error::io("read 8 bytes at 9 of", "/x", std::io::Error::from_raw_os_error(5))),
            sample(Error::io("open", "/x", std::io::Error::other("a server said no"))),
            Error::dataset("/x", "is no directory"),
            Error::DatasetChanged { path: "/x".into(), message: "is gone".into() },
            Error::TooManyErrors {
                count: 3,
                max_errors: 2,
                source: Box::new(sample(Error::Internal("x".into()))),
            },
            Error::Unavailable("no memory".into()),
            Error::config("memory", "is 1, must be more"),
            sample(Error::config("transforms", "cannot take it")),
        ] {
            let document = serde_json::to_string(&SerializedError::from(&error)).unwrap();
            let read: Error = serde_json::from_str::<SerializedError>(&document).unwrap().into();
            assert_eq!(read.to_string(), error.to_string());
            assert_eq!(std::mem::discriminant(&read), std::mem::discriminant(&error));
        }
    }
}
