//! The errors of Foreload. Each message names the setting, file or sample, and what to do.

mod serialized;

pub use serialized::SerializedError;

use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// A result whose error is [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Returns a message if `beginning`, the first bytes of a file, is a Git LFS pointer. `None` for other files.
pub fn git_lfs_pointer(beginning: &[u8]) -> Option<&'static str> {
    let is_pointer = beginning.starts_with(b"version https://git-lfs.github.com/spec/");
    is_pointer.then_some(
        "is a Git LFS pointer, not the file itself: run `git lfs pull` where the dataset was cloned",
    )
}

/// All errors. Each kind becomes one Python exception under `foreload.Error`.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A setting has an impossible value. `message` says what is wrong and what would be right.
    #[error("config: {setting}: {message}")]
    Config {
        /// The name of the setting as the user wrote it, e.g. `batch_size`.
        setting: &'static str,
        /// What is wrong and what would be right: "is 0, must be at least 1".
        message: String,
    },

    /// The dataset or its index cannot be used.
    #[error("dataset {path}: {message}", path = path.display())]
    Dataset {
        /// The directory, shard or index file.
        path: PathBuf,
        /// What is wrong and what to do.
        message: String,
    },

    /// The dataset has changed since it was indexed.
    #[error(
        "dataset changed: {path}: {message}; index it again: rebuild_index=True in a new loader, or \
         `foreload index --rebuild-index` with the loader's fields",
        path = path.display()
    )]
    DatasetChanged {
        /// The directory, file or shard that differs.
        path: PathBuf,
        /// What differs: "is 8000 bytes, was 9001 when indexed".
        message: String,
    },

    /// An operation on a file failed. `what` is e.g. "read 8000 bytes at 9001 of".
    #[error("{what} {path}: {source}", path = path.display())]
    Io {
        /// What was tried: "read 8000 bytes at 9001 of".
        what: String,
        /// The file of the operation.
        path: PathBuf,
        /// The operating system's error.
        source: std::io::Error,
    },

    /// The bytes of an image cannot be decoded.
    #[error(transparent)]
    Decode(#[from] DecodeError),

    /// One sample failed, because of `source`.
    #[error("sample {id}{} ({}, bytes {offset}+{length}): {source}", shown_key(key.as_deref()), path.display())]
    Sample {
        /// The sample id: the index of the sample in the dataset, from 0.
        id: u64,
        /// The key of a sample in a tar shard, if known.
        key: Option<Box<str>>,
        /// The file or shard with the sample.
        path: Box<Path>,
        /// The offset of the sample's first byte in the file.
        offset: u64,
        /// The number of the sample's bytes.
        length: u32,
        /// The cause of the failure.
        source: Box<Error>,
    },

    /// More samples failed than `max_errors` allows. `source` is the failure that exceeded the limit.
    #[error("{count} samples failed, max_errors is {max_errors}; the last: {source}")]
    TooManyErrors {
        /// The number of failures so far in this epoch.
        count: u64,
        /// The value of `max_errors`.
        max_errors: u64,
        /// The last failure.
        source: Box<Error>,
    },

    /// This build or machine lacks something that was requested.
    #[error("{0}")]
    Unavailable(String),

    /// A call of the GPU driver or of a GPU library failed.
    #[error("{call}: {status}{advice}")]
    Gpu {
        /// The name of the function that failed, for example `cuMemAllocFromPoolAsync`.
        call: &'static str,
        /// The name and description of the returned status: "CUDA_ERROR_OUT_OF_MEMORY: out of memory".
        status: String,
        /// What to do: "; lower device_memory". Empty if no usual cause is known.
        advice: &'static str,
    },

    /// A thread of the pipeline panicked because of a defect in Foreload. Contains the panic message.
    #[error("internal error: {0}; please report it")]
    Internal(String),
}

/// Why an image could not be decoded. [`Error::Sample`] names the sample.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum DecodeError {
    /// No codec accepts the file. Contains the supported formats and a description of the file's first bytes.
    #[error("not {0}")]
    NotAnImage(String),
    /// The file is valid, but none of Foreload's decoders supports its kind (arithmetic coding, 12 bits, lossless).
    #[error("unsupported image: {0}")]
    Unsupported(String),
    /// The file contradicts itself or ends too early.
    #[error("corrupt image: {0}")]
    Corrupt(String),
    /// The bytes of a field that is not an image are invalid. Contains the problem.
    #[error("{0}")]
    Damaged(String),
    /// A field of a sample with several fields failed.
    #[error("field {name:?}: {source}")]
    Field {
        /// The name of the field.
        name: String,
        /// What is wrong with the field.
        source: Box<DecodeError>,
    },
    /// The image has more pixels than the limit. The file might be a decompression bomb.
    #[error(
        "image of {width}×{height} pixels exceeds the limit of {limit} pixels; raise max_pixels if this is intended"
    )]
    TooLarge {
        /// The image's width in pixels.
        width: u32,
        /// The image's height in pixels.
        height: u32,
        /// The limit in pixels.
        limit: u64,
    },
}

fn shown_key(key: Option<&str>) -> String {
    key.map_or_else(String::new, |key| format!(", key {key:?}"))
}

impl Error {
    /// Makes the error for a panic in a thread that was `doing` something.
    pub fn panicked(doing: &str, panic: &(dyn std::any::Any + Send)) -> Self {
        let text = panic.downcast_ref::<&str>().copied();
        let text =
            text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message");
        Self::Internal(format!("{doing}: {text}"))
    }

    /// Makes the error for `what`, a part of Foreload that this build lacks because the cargo feature `feature` was
    /// off.
    pub fn left_out(what: &str, feature: &str) -> Self {
        Self::Unavailable(format!(
            "this build of Foreload has no {what}: build it with the cargo feature `{feature}`, or install a wheel"
        ))
    }

    /// Makes an [`Error::Config`].
    pub fn config(setting: &'static str, message: impl Into<String>) -> Self {
        Self::Config { setting, message: message.into() }
    }

    /// Adds the name of the field to this error, for samples with several fields.
    pub fn of_field(self, name: &str) -> Self {
        match self {
            Self::Config { setting, message } => Self::config(setting, format!("{name:?}: {message}")),
            Self::Decode(source) if !matches!(source, DecodeError::Field { .. }) => {
                DecodeError::Field { name: name.into(), source: Box::new(source) }.into()
            }
            other => other,
        }
    }

    /// Makes an [`Error::Io`]. `what` precedes the path: `open`, `read 8000 bytes at 9001 of`.
    pub fn io(what: impl Into<String>, path: impl Into<PathBuf>, source: std::io::Error) -> Self {
        Self::Io { what: what.into(), path: path.into(), source }
    }

    /// Makes an [`Error::Dataset`].
    pub fn dataset(path: impl Into<PathBuf>, message: impl Into<String>) -> Self {
        Self::Dataset { path: path.into(), message: message.into() }
    }
}
