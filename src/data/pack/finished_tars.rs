//! What lies beside tar shards that are all there, by which a later run knows them.

use super::PackOptions;
use super::finished::refuse_changed;
use super::place::PackingRecord;
use super::tars::{CLASSES, shard_name};
use crate::dataset::DatasetIndex;
use crate::dataset::packed::TARS;
use base::error::{Error, Result};
use serde::{Deserialize, Serialize};
use std::fs;
use std::ops::Range;

/// A tar shard that is there.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct FinishedTar {
    /// The number of its bytes.
    pub(super) bytes: u64,
    /// The digest of the stamps of what it was made of, in hexadecimal.
    pub(super) stamps: String,
}

/// The file [`TARS`].
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct FinishedTars {
    /// What they were made of, and how.
    #[serde(flatten)]
    pub(super) record: PackingRecord,
    /// The shards in order.
    pub(super) shards: Vec<FinishedTar>,
}

impl FinishedTars {
    /// Reads the file in the directory of `options`, and checks that the shards are those of `record` with these
    /// samples and `classes`, and that neither they nor the dataset have changed since.
    ///
    /// # Errors
    /// [`Error::Dataset`] for shards of something else or made otherwise, for what is not there whole, and where files
    /// of the dataset were written since; [`Error::Io`] where something cannot be read.
    pub(super) fn read(
        options: &PackOptions,
        index: &DatasetIndex,
        record: &PackingRecord,
        shards: &[Range<u64>],
        classes: &str,
    ) -> Result<Self> {
        let into = &options.into;
        let path = into.join(TARS);
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
            return Err(damaged("it lists another number of shards".to_owned()));
        }
        let look = |number: usize| {
            let path = into.join(shard_name(number));
            let FinishedTar { bytes, stamps } = &found.shards[number];
            let size = path.metadata().map_err(|error| Error::io("look at", &path, error))?.len();
            if size != *bytes {
                let message = format!("has {size} bytes, not the {bytes} that were written");
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
