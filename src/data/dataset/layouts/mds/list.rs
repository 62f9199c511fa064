//! The file `index.json`, which lists the shards of a dataset and describes their columns.

use super::super::is_relative_path;
use crate::dataset::unpack::BlockCodec;
use serde::Deserialize;
use std::collections::{BTreeMap, HashSet};

#[derive(Debug, Deserialize)]
pub(super) struct MdsList {
    pub(super) shards: Vec<MdsShard>,
}

/// The fields that identify `index.json` as a list of shards. They are parsed first, so that a file of another program
/// is not loaded completely.
#[derive(Deserialize)]
struct MdsFormats {
    shards: Vec<MdsFormat>,
}

#[derive(Deserialize)]
struct MdsFormat {
    format: Option<String>,
    version: Option<u64>,
}

#[derive(Debug, Clone, Default, Deserialize)]
pub(super) struct MdsShard {
    pub(super) column_names: Vec<String>,
    pub(super) column_encodings: Vec<String>,
    /// For each column, the size of its values in bytes; `None` if the size varies.
    pub(super) column_sizes: Vec<Option<u64>>,
    pub(super) compression: Option<String>,
    pub(super) raw_data: MdsFile,
    pub(super) zip_data: Option<MdsFile>,
    pub(super) samples: u64,
}

#[derive(Debug, Clone, Default, Deserialize)]
pub(super) struct MdsFile {
    pub(super) basename: String,
    pub(super) bytes: u64,
    /// The checksums of the file, in hexadecimal, by algorithm.
    #[serde(default)]
    pub(super) hashes: BTreeMap<String, String>,
}

impl MdsList {
    /// Parses `index.json`; returns `None` if the file is of another program.
    ///
    /// # Errors
    /// A message for a list that is damaged, or that describes unreadable shards.
    pub(super) fn parse(text: &[u8]) -> Result<Option<Self>, String> {
        let MdsFormats { shards } = match serde_json::from_slice(text) {
            Ok(formats) => formats,
            // Other programs also write files with the name `index.json`.
            Err(error) if text.windows(5).any(|part| part == b"\"mds\"") => {
                return Err(format!("is not a valid list of MDS shards: {error}"));
            }
            Err(_) => return Ok(None),
        };
        if shards.iter().all(|shard| shard.format.is_none()) {
            return Ok(None);
        }
        for MdsFormat { format, version } in &shards {
            if format.as_deref() != Some("mds") {
                let format = format.as_deref().unwrap_or("unknown");
                return Err(format!(
                    "lists shards in the format {format:?}: of MosaicML Streaming's formats, only \"mds\" is read"
                ));
            }
            if *version != Some(2) {
                return Err("lists MDS shards of another version than 2: only version 2 is read".to_owned());
            }
        }
        let list: Self = serde_json::from_slice(text)
            .map_err(|error| format!("is not a valid list of MDS shards: {error}"))?;
        let mut names = HashSet::new();
        for (number, shard) in list.shards.iter().enumerate() {
            shard.check().map_err(|message| format!("is damaged: shard {number} {message}"))?;
            for file in std::iter::once(&shard.raw_data).chain(&shard.zip_data) {
                if !names.insert(&file.basename) {
                    return Err(format!("lists {:?} twice", file.basename));
                }
            }
        }
        Ok(Some(list))
    }
}

impl MdsShard {
    /// The directories of the shard's files, relative to the directory of `index.json`. File names contain directories
    /// if MosaicML's `merge_index` merged several lists.
    pub(super) fn directories(&self) -> impl Iterator<Item = &str> {
        let files = std::iter::once(&self.raw_data).chain(&self.zip_data);
        files.filter_map(|file| file.basename.rsplit_once('/')).map(|(directory, _)| directory)
    }

    /// The codec of a compressed shard. `compression` is the name of an algorithm, possibly followed by a colon and a
    /// level.
    ///
    /// # Errors
    /// The reason why the codec is not supported, as a phrase.
    pub(super) fn codec(&self) -> Result<BlockCodec, String> {
        let compression = self.compression.as_deref().unwrap_or("an unnamed algorithm");
        match compression.split(':').next().unwrap_or_default() {
            "zstd" => Ok(BlockCodec::Zstd),
            "gz" => Ok(BlockCodec::Gzip),
            "snappy" => Ok(BlockCodec::Snappy),
            _ => Err(format!(
                "is compressed with {compression}, which is not supported: decompress it to {}, or write the dataset \
                 with zstd, gz or snappy",
                self.raw_data.basename
            )),
        }
    }

    pub(super) fn check(&self) -> Result<(), String> {
        for file in [Some(&self.raw_data), self.zip_data.as_ref()].into_iter().flatten() {
            let name = file.basename.as_str();
            if !is_relative_path(name) {
                return Err(format!(
                    "is called {name:?}, which is not the path of a file next to index.json or below it"
                ));
            }
        }
        let columns = self.column_names.len();
        if columns != self.column_encodings.len() || columns != self.column_sizes.len() {
            return Err("does not have one encoding and one size for each column".to_owned());
        }
        let mut names = HashSet::new();
        match self.column_names.iter().find(|name| !names.insert(name.as_str())) {
            Some(name) => Err(format!("has two columns {name:?}")),
            None if columns == 0 => Err("has no columns".to_owned()),
            None => Ok(()),
        }
    }
}
