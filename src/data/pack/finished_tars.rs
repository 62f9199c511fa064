//! The file next to finished tar shards that identifies them for later runs.

use super::PackOptions;
use super::finished::refuse_changed;
use super::place::PackingRecord;
use super::tars::{CLASSES, shard_name};
use crate::dataset::DatasetIndex;
use crate::dataset::packed::TARS_MARKER_FILE;
use base::error::{Error, Result};
use serde::{Deserialize, Serialize};
use std::fs;
use std::ops::Range;

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct FinishedTar {
    pub(super) bytes: u64,
    /// Digest of the source files' stamps, in hexadecimal.
    pub(super) stamps: String,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct FinishedTars {
    /// The source of the shards, and the options for making them.
    #[serde(flatten)]
    pub(super) record: PackingRecord,
    pub(super) shards: Vec<FinishedTar>,
}

impl FinishedTars {
    /// Reads the file in the directory of `options`. Checks that the shards match `record`, `shards` (the samples of
    /// each shard) and `classes`, and that neither the shards nor the source have changed after packing.
    ///
    /// # Errors
    /// [`Error::Dataset`] for shards of another source or with other options, for incomplete shards, and if files of
    /// the dataset were written after packing; [`Error::Io`] if a file cannot be read.
    pub(super) fn read(
        options: &PackOptions,
        index: &DatasetIndex,
        record: &PackingRecord,
        shards: &[Range<u64>],
        classes: &str,
    ) -> Result<Self> {
        let into = &options.into;
        let path = into.join(TARS_MARKER_FILE);
        let text = fs::read(&path).map_err(|error| Error::io("read", &path, error))?;
        let damaged = |why: String| {
            let message = format!("is damaged ({why}): remove {} and pack again", into.display());
            Error::dataset(&path, message)
        };
        let found: Self = serde_json::from_slice(&text).map_err(|error| damaged(error.to_string()))?;
        if found.record != *record {
            return Err(Error::dataset(into, record.difference(Some(&found.record))));
        }
        if found.shards.len() != shards.len() {
            return Err(damaged("it lists a wrong number of shards".to_owned()));
        }
        let look = |number: usize| {
            let path = into.join(shard_name(number));
            let FinishedTar { bytes, stamps } = &found.shards[number];
            let size = path.metadata().map_err(|error| Error::io("look at", &path, error))?.len();
            if size != *bytes {
                let message = format!("has {size} bytes, but {bytes} were written");
                return Err(Error::dataset(&path, message));
            }
            if number == 0 && !classes.is_empty() {
                let path = into.join(CLASSES);
                let there = fs::read(&path).map_err(|error| Error::io("read", &path, error))?;
                if there != classes.as_bytes() {
                    return Err(Error::dataset(&path, "has other classes than the dataset"));
                }
            }
            Ok(Some(stamps.clone()))
        };
        refuse_changed(options, index, shards, shard_name, look)?;
        Ok(found)
    }
}
