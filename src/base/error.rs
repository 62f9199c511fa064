//! The errors of Foreload, in words that name the thing to act on.

mod carried;

pub use carried::CarriedError;

use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// A result whose error is [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What is wrong with a file that is a pointer of Git LFS; `None` for other beginnings of files.
pub fn git_lfs_pointer(beginning: &[u8]) -> Option<&'static str> {
    let is_pointer = beginning.starts_with(b"version https://git-lfs.github.com/spec/");
    is_pointer.then_some(
        "is a pointer of Git LFS and not the file itself: run `git lfs pull` where the dataset was cloned",
    )
}

/// What went wrong. Each kind becomes one Python exception under `foreload.Error`.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A setting has a value that cannot work. `message` says what is wrong and what would be right.
    #[error("config: {setting}: {message}")]
    Config {
        /// The name of the setting as the user wrote it, e.g. `batch_size`.
        setting: &'static str,
        /// What is wrong and what would be right: "is 0, must be at least 1".
        message: String,
    },

    /// The dataset, or the index of it, cannot be used.
    #[error("dataset {path}: {message}", path = path.display())]
    Dataset {
        /// The directory, shard or index file.
        path: PathBuf,
        /// What is wrong and what to do.
        message: String,
    },

    /// The dataset is not what it was when it was indexed.
    #[error("dataset changed: {path}: {message}; run `foreload index --rebuild` on it", path = path.display())]
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
        /// The file that it was tried on.
        path: PathBuf,
        /// The operating system's error.
        source: std::io::Error,
    },

    /// The bytes of an image are not what a decoder can turn into pixels.
    #[error(transparent)]
    Decode(#[from] DecodeError),

    /// One sample failed; `source` says why.
    #[error("sample {id}{} ({}, bytes {offset}+{length}): {source}", shown_key(key.as_deref()), path.display())]
    Sample {
        /// The sample id, which is its number in the index.
        id: u64,
        /// The key of a sample in a tar shard, where it is known.
        key: Option<Box<str>>,
        /// The file or shard that holds it.
        path: Box<Path>,
        /// Where the sample's bytes begin in the file.
        offset: u64,
        /// How many bytes the sample has.
        length: u32,
        /// The cause of the failure.
        source: Box<Error>,
    },

    /// More samples failed than `max_errors` allows; `source` is the failure that was one too many.
    #[error("{count} samples failed, max_errors is {max_errors}; the last: {source}")]
    TooManyErrors {
        /// The number of failures so far in this epoch.
        count: u64,
        /// The value of `max_errors`.
        max_errors: u64,
        /// The last failure.
        source: Box<Error>,
    },

    /// This build or machine lacks something that was asked for.
    #[error("{0}")]
    Unavailable(String),

    /// A call of the GPU's driver or of a library on it failed.
    #[error("{call}: {status}{advice}")]
    Gpu {
        /// The function that failed: `cuMemAllocFromPoolAsync`.
        call: &'static str,
        /// The name and description of its status: "CUDA_ERROR_OUT_OF_MEMORY: out of memory".
        status: String,
        /// What to do: "; lower device_memory", or nothing if no usual cause is known.
        advice: &'static str,
    },

    /// A thread of the pipeline died of a defect in Foreload; holds what the thread said.
    #[error("internal error: {0}; please report it")]
    Internal(String),
}

/// Why an image could not be decoded. The sample it belongs to is named by [`Error::Sample`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum DecodeError {
    /// No codec is for such a file. Holds the formats that there are codecs for, and the file's first bytes in words.
    #[error("not {0}")]
    NotAnImage(String),
    /// The file is legal but of a kind that no decoder here knows (arithmetic coding, 12 bits, lossless).
    #[error("unsupported image: {0}")]
    Unsupported(String),
    /// The file contradicts itself or ends too early.
    #[error("corrupt image: {0}")]
    Corrupt(String),
    /// The bytes of a field that is no image are not what they should be; holds what is wrong with them.
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
    /// The image has more pixels than the limit allows: perhaps a decompression bomb.
    #[error(
        "image of {width}×{height} pixels exceeds the limit of {limit} pixels; raise max_pixels if it is meant"
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

/// A sample's key in a message.
fn shown_key(key: Option<&str>) -> String {
    key.map_or_else(String::new, |key| format!(", key {key:?}"))
}

impl Error {
    /// Makes the error for a panic in the thread that was `doing` something.
    pub fn panicked(doing: &str, panic: &(dyn std::any::Any + Send)) -> Self {
        let text = panic.downcast_ref::<&str>().copied();
        let text =
            text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message");
        Self::Internal(format!("{doing}: {text}"))
    }

    /// The error for what this build lacks, because the cargo feature `feature` was off.
    pub fn left_out(what: &str, feature: &str) -> Self {
        Self::Unavailable(format!(
            "this build of Foreload has no {what}: build it with the cargo feature `{feature}`, or install a wheel"
        ))
    }

    /// Makes an [`Error::Config`].
    pub fn config(setting: &'static str, message: impl Into<String>) -> Self {
        Self::Config { setting, message: message.into() }
    }

    /// This error, as one of the field with this `name`, where several fields could have it.
    pub fn of_field(self, name: &str) -> Self {
        match self {
            Self::Config { setting, message } => Self::config(setting, format!("{name:?}: {message}")),
            Self::Decode(source) if !matches!(source, DecodeError::Field { .. }) => {
                DecodeError::Field { name: name.into(), source: Box::new(source) }.into()
            }
            other => other,
        }
    }

    /// Makes an [`Error::Io`]; `what` stands before the path: `open`, `read 8000 bytes at 9001 of`.
    pub fn io(what: impl Into<String>, path: impl Into<PathBuf>, source: std::io::Error) -> Self {
        Self::Io { what: what.into(), path: path.into(), source }
    }

    /// Makes an [`Error::Dataset`].
    pub fn dataset(path: impl Into<PathBuf>, message: impl Into<String>) -> Self {
        Self::Dataset { path: path.into(), message: message.into() }
    }
}
