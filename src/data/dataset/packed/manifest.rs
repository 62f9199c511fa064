//! The manifest of a packed dataset: facts about its source, and the list of its shards.

use super::super::layouts::read_beginning;
use super::super::summary::{Notes, Skipped};
use super::super::{Contents, Fingerprint, Layout};
use super::footer::{PACKED_FORMAT, PackedFooter, ShardIdentity};
use super::{MANIFEST_FILE, MAX_SHARDS, PACKING_STATE_FILE, UNPACKING_DIRECTORY, shard_name};
use crate::source::{DatasetSource, EntryState};
use base::error::{Error, Result};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::ops::Range;
use std::path::Path;

const VERSION: u32 = 1;
const LARGEST: u64 = 256 << 20;

/// A name in JSON: text, or bytes if it is not UTF-8.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum RawName {
    /// A name that is valid UTF-8.
    Text(String),
    /// A name that is not valid UTF-8.
    Bytes(Vec<u8>),
}

impl RawName {
    /// Converts the bytes of a name.
    pub fn of(name: &[u8]) -> Self {
        match std::str::from_utf8(name) {
            Ok(text) => Self::Text(text.to_owned()),
            Err(_) => Self::Bytes(name.to_vec()),
        }
    }

    /// The bytes of the name.
    pub fn bytes(&self) -> &[u8] {
        match self {
            Self::Text(text) => text.as_bytes(),
            Self::Bytes(bytes) => bytes,
        }
    }
}

/// Statistics of the files of samples.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShardTally {
    /// The number of samples.
    pub samples: u64,
    /// The total size of all files in the source, in bytes.
    pub source_bytes: u64,
    /// The number of files that are stored packed.
    pub packed: u64,
    /// The number of files that are stored unchanged, by reason.
    pub kept: BTreeMap<String, u64>,
    /// The number of members of source shards that belong to no sample.
    pub members_left_out: u64,
}

impl ShardTally {
    /// The statistics of one shard.
    pub fn of(footer: &PackedFooter) -> Self {
        let mut tally = Self {
            samples: footer.samples.len() as u64,
            members_left_out: footer.left_out,
            ..Self::default()
        };
        for member in &footer.members {
            tally.source_bytes += u64::from(member.original);
            match footer.forms.get(member.form as usize) {
                Some(reason) if member.form != PACKED_FORMAT => {
                    *tally.kept.entry(reason.clone()).or_default() += 1;
                }
                _ => tally.packed += 1,
            }
        }
        tally
    }

    /// Adds the statistics of another shard.
    pub fn add(&mut self, other: &Self) {
        self.samples += other.samples;
        self.source_bytes += other.source_bytes;
        self.packed += other.packed;
        self.members_left_out = self.members_left_out.saturating_add(other.members_left_out);
        for (reason, count) in &other.kept {
            *self.kept.entry(reason.clone()).or_default() += count;
        }
    }
}

/// A shard of a packed dataset.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PackedShard {
    /// The size of the shard in bytes.
    pub bytes: u64,
    /// The number of samples in the shard.
    pub samples: u64,
    /// The SHA-256 of the shard's footer, in hexadecimal.
    pub digest: String,
    /// The digest of the stamps of the source files when they were packed into this shard, in hexadecimal. Manifests of
    /// older versions do not have this field.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stamps: Option<String>,
}

impl PackedShard {
    /// Makes the entry of a shard with this identity and number of samples, packed from files with these stamps.
    pub fn new(identity: &ShardIdentity, samples: u64, stamps: String) -> Self {
        let digest = Fingerprint(identity.digest).to_string();
        Self { bytes: identity.bytes, samples, digest, stamps: Some(stamps) }
    }

    fn is(&self, identity: &ShardIdentity, samples: u64) -> bool {
        (self.bytes, self.samples) == (identity.bytes, samples)
            && self.digest == Fingerprint(identity.digest).to_string()
    }
}

/// The manifest of a packed dataset.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PackedManifest {
    /// The version of the format.
    pub version: u32,
    /// The fingerprint of the dataset that was packed, in hexadecimal. The packed dataset has the same fingerprint.
    pub fingerprint: String,
    /// Whether samples are files or records that need not be images.
    pub files: bool,
    /// The layout of the dataset that was packed.
    pub layout: Layout,
    /// The maximum total size of the original files in a shard with several samples, in bytes.
    pub shard_size: u64,
    /// The class names by class number; empty if classes have no names.
    pub classes: Vec<RawName>,
    /// What was found when the source was listed, without the skipped files.
    pub notes: Notes,
    /// The files that were skipped when the source was listed, by reason.
    pub left_out: BTreeMap<String, Skipped>,
    /// Statistics of the files of all samples.
    #[serde(flatten)]
    pub tally: ShardTally,
    /// The shards in order. The file name of a shard contains the index of the shard in this list.
    pub shards: Vec<PackedShard>,
}

impl PackedManifest {
    /// The version that this program writes.
    pub const VERSION: u32 = VERSION;

    /// Reads the manifest of a packed dataset; `None` if no manifest exists and no other file shows that the directory
    /// is a packed dataset.
    ///
    /// # Errors
    /// [`Error::Dataset`] if packing or unpacking is not finished, and for a manifest that is damaged or of another
    /// version; [`Error::Io`] if the manifest cannot be read.
    pub fn find(source: &dyn DatasetSource) -> Result<Option<Self>> {
        let path = source.path(MANIFEST_FILE.as_bytes());
        let file = match source.open(MANIFEST_FILE.as_bytes()) {
            Ok(file) => file,
            Err(Error::Io { source: error, .. }) if error.kind() == ErrorKind::NotFound => {
                return refuse_unfinished(source).map(|()| None);
            }
            Err(error) => return Err(error),
        };
        let damaged =
            |why: String| Error::dataset(&path, format!("is not the manifest of a packed dataset: {why}"));
        if file.bytes.size() > LARGEST {
            return Err(damaged(format!("it has more than {LARGEST} bytes")));
        }
        let text = read_beginning(source, MANIFEST_FILE.as_bytes(), &file, LARGEST)?;
        let value: serde_json::Value =
            serde_json::from_slice(&text).map_err(|error| damaged(error.to_string()))?;
        // A manifest of another version has other fields and is not damaged.
        if let Some(version) = value.get("version").and_then(serde_json::Value::as_u64)
            && version != u64::from(VERSION)
        {
            return Err(damaged(format!("it has version {version}, this program reads {VERSION}")));
        }
        let manifest: Self = serde_json::from_value(value).map_err(|error| damaged(error.to_string()))?;
        manifest.check().map_err(damaged)?;
        Ok(Some(manifest))
    }

    fn check(&self) -> Result<(), String> {
        if self.fingerprint.len() != 64 || !self.fingerprint.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return Err("its fingerprint is not 64 hexadecimal digits".to_owned());
        }
        if self.layout == Layout::Packed || self.shards.len() > MAX_SHARDS {
            return Err("it has too many shards, or was packed from packed shards".to_owned());
        }
        let sum = self.shards.iter().try_fold(0u64, |sum, shard| sum.checked_add(shard.samples));
        if sum != Some(self.tally.samples) {
            return Err("the sample counts of its shards do not add up to its total".to_owned());
        }
        Ok(())
    }

    /// The fingerprint of the dataset that was packed.
    pub fn fingerprint(&self) -> Fingerprint {
        let digit = |at: usize| self.fingerprint.get(at..at + 2).unwrap_or_default();
        Fingerprint(std::array::from_fn(|at| u8::from_str_radix(digit(2 * at), 16).unwrap_or_default()))
    }

    /// The kind of samples.
    pub fn contents(&self) -> Contents {
        if self.files { Contents::Files } else { Contents::Images }
    }

    /// The file names of the shards, in order.
    pub fn names(&self) -> impl Iterator<Item = String> {
        (0..self.shards.len()).map(shard_name)
    }

    /// The sample ids in the shard at index `number`.
    pub fn samples_of(&self, number: usize) -> Range<u64> {
        let first = self.shards[..number].iter().map(|shard| shard.samples).sum();
        first..first + self.shards[number].samples
    }

    /// Checks that the shard at index `number` is the one in the manifest. `first` is the id of its first sample.
    ///
    /// # Errors
    /// What is wrong with the shard.
    pub fn check_shard(
        &self,
        number: usize,
        first: u64,
        footer: &PackedFooter,
        identity: &ShardIdentity,
    ) -> Result<(), String> {
        let samples = footer.samples.len() as u64;
        let (own, layout) = (self.fingerprint().0, self.layout);
        let same = footer.fingerprint == own && footer.layout == layout && footer.number as usize == number;
        let meant = self.shards.get(number).is_some_and(|shard| shard.is(identity, samples));
        if !meant || !same || footer.first != first {
            return Err(format!(
                "does not match its entry in {MANIFEST_FILE}: copy or pack the dataset again"
            ));
        }
        Ok(())
    }

    /// Checks that the dataset at `root` was packed for the requested kind of samples.
    ///
    /// # Errors
    /// [`Error::Dataset`] with a remedy.
    pub fn check_asked(&self, root: &Path, contents: Contents, every_stem: bool) -> Result<()> {
        let message = match (self.contents(), contents) {
            (Contents::Images, Contents::Files) => {
                "was packed as a dataset of images: for files, pack it with `foreload pack --files`"
            }
            (Contents::Files, Contents::Images) => {
                "was packed as a dataset of files of any kind: for images, pack it without --files"
            }
            // When the dataset was packed, a stem without an image was not a sample.
            _ if every_stem && !self.notes.every_stem && self.left_out_stems() > 0 => {
                "was packed as a dataset of images, and samples without an image were left out: to read fields without \
                 an image, or with an optional one, open the dataset that it was packed from"
            }
            _ => return Ok(()),
        };
        Err(Error::dataset(root, message))
    }

    fn left_out_stems(&self) -> u64 {
        self.left_out
            .iter()
            .filter(|(why, _)| why.starts_with("samples without an image"))
            .map(|(_, s)| s.count)
            .sum()
    }
}

fn refuse_unfinished(source: &dyn DatasetSource) -> Result<()> {
    if source.stamp(PACKING_STATE_FILE.as_bytes())? != EntryState::Gone {
        let message = "is not finished: run `foreload pack` again with the same arguments";
        return Err(Error::dataset(source.path(&[]), message));
    }
    if source.stamp(UNPACKING_DIRECTORY.as_bytes())? != EntryState::Gone {
        let message = format!(
            "is not completely unpacked: it has {UNPACKING_DIRECTORY}, so `foreload unpack` is running, failed or was \
             killed: remove the directory and unpack again"
        );
        return Err(Error::dataset(source.path(&[]), message));
    }
    Ok(())
}
