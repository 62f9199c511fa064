//! The manifest of a packed dataset: facts about its source, and the list of its shards.

use super::super::summary::{Notes, Skipped};
use super::super::{Contents, Fingerprint, Layout};
use super::footer::{PACKED_FORMAT, PackedFooter, ShardIdentity};
use super::{MANIFEST_FILE, MAX_SHARDS, UNFINISHED, UNPACKING_DIRECTORY, shard_name};
use crate::source::{DatasetSource, OpenFile, Seen};
use base::error::{Error, Result};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::ops::Range;
use std::path::Path;

/// The version of the format of manifests.
const VERSION: u32 = 1;
/// The largest number of bytes of a manifest that are read.
const LARGEST: u64 = 256 << 20;

/// A name in JSON: text, or bytes if it is not UTF-8.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum RawName {
    /// A name that is UTF-8.
    Text(String),
    /// Any other name.
    Bytes(Vec<u8>),
}

impl RawName {
    /// The name that these bytes are.
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

/// Statistics of the files that samples are made of.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShardTally {
    /// The number of samples.
    pub samples: u64,
    /// The number of bytes of all files in the source.
    pub source_bytes: u64,
    /// The number of files that are packed.
    pub packed: u64,
    /// The number of files that are stored unchanged, by reason.
    pub kept: BTreeMap<String, u64>,
    /// The number of members of source shards that belong to no sample.
    pub members_left_out: u64,
}

impl ShardTally {
    /// The counts of one shard.
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

    /// Adds the counts of another shard.
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
    /// The number of its bytes.
    pub bytes: u64,
    /// The number of its samples.
    pub samples: u64,
    /// The SHA-256 of its footer, in hexadecimal.
    pub digest: String,
    /// The digest of the stamps of the source files when they were packed into this shard, in hexadecimal. Manifests of
    /// older versions lack it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stamps: Option<String>,
}

impl PackedShard {
    /// The shard with this identity and number of samples, made of files with these stamps.
    pub fn new(seal: &ShardIdentity, samples: u64, stamps: String) -> Self {
        let digest = Fingerprint(seal.digest).to_string();
        Self { bytes: seal.bytes, samples, digest, stamps: Some(stamps) }
    }

    /// Whether it has this identity and number of samples.
    fn is(&self, seal: &ShardIdentity, samples: u64) -> bool {
        (self.bytes, self.samples) == (seal.bytes, samples)
            && self.digest == Fingerprint(seal.digest).to_string()
    }
}

/// The manifest of a packed dataset.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PackedManifest {
    /// The version of this format.
    pub version: u32,
    /// The fingerprint of the source, in hexadecimal. The packed dataset has the same fingerprint.
    pub fingerprint: String,
    /// Whether samples are files of any kind, not images.
    pub files: bool,
    /// The layout of the source.
    pub layout: Layout,
    /// The largest number of the source's bytes in a shard of several samples.
    pub shard_size: u64,
    /// The names of the classes by number; empty if there are only numbers.
    pub classes: Vec<RawName>,
    /// What was found when the source was listed, without what was skipped.
    pub notes: Notes,
    /// What was skipped when the source was listed, by reason.
    pub left_out: BTreeMap<String, Skipped>,
    /// Statistics of the files.
    #[serde(flatten)]
    pub tally: ShardTally,
    /// The shards in order; their names are their numbers.
    pub shards: Vec<PackedShard>,
}

impl PackedManifest {
    /// The version that this program writes.
    pub const VERSION: u32 = VERSION;

    /// Reads the manifest of a packed dataset; `None` if there is none and nothing shows that there should be one.
    ///
    /// # Errors
    /// [`Error::Dataset`] if packing or unpacking is not finished, and for a manifest that is damaged or of another
    /// version; [`Error::Io`] if it cannot be read.
    pub fn find(source: &dyn DatasetSource) -> Result<Option<Self>> {
        let path = source.path(MANIFEST_FILE.as_bytes());
        let bytes = match source.open(MANIFEST_FILE.as_bytes()) {
            Ok(OpenFile { bytes, .. }) => bytes,
            Err(Error::Io { source: error, .. }) if error.kind() == ErrorKind::NotFound => {
                return refuse_unfinished(source).map(|()| None);
            }
            Err(error) => return Err(error),
        };
        let damaged =
            |why: String| Error::dataset(&path, format!("is not the manifest of a packed dataset: {why}"));
        if bytes.size() > LARGEST {
            return Err(damaged(format!("it has more than {LARGEST} bytes")));
        }
        let mut text = vec![0; bytes.size() as usize];
        let read = bytes.read_at(&mut text, 0).map_err(|error| Error::io("read", &path, error))?;
        text.truncate(read);
        let value: serde_json::Value =
            serde_json::from_slice(&text).map_err(|error| damaged(error.to_string()))?;
        // A manifest of another version has other fields. That is no damage.
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

    /// The fingerprint of the source.
    pub fn fingerprint(&self) -> Fingerprint {
        let digit = |at: usize| self.fingerprint.get(at..at + 2).unwrap_or_default();
        Fingerprint(std::array::from_fn(|at| u8::from_str_radix(digit(2 * at), 16).unwrap_or_default()))
    }

    /// The kind of the samples.
    pub fn contents(&self) -> Contents {
        if self.files { Contents::Files } else { Contents::Images }
    }

    /// The names of the shards' files, in order.
    pub fn names(&self) -> impl Iterator<Item = String> {
        (0..self.shards.len()).map(shard_name)
    }

    /// The samples of the shard with this number.
    pub fn samples_of(&self, number: usize) -> Range<u64> {
        let first = self.shards[..number].iter().map(|shard| shard.samples).sum();
        first..first + self.shards[number].samples
    }

    /// Checks that the shard with this number is the one in the manifest. `first` is the number of its first sample.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn check_shard(
        &self,
        number: usize,
        first: u64,
        footer: &PackedFooter,
        seal: &ShardIdentity,
    ) -> Result<(), String> {
        let samples = footer.samples.len() as u64;
        let (own, layout) = (self.fingerprint().0, self.layout);
        let same = footer.fingerprint == own && footer.layout == layout && footer.number as usize == number;
        let meant = self.shards.get(number).is_some_and(|shard| shard.is(seal, samples));
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
    /// [`Error::Dataset`] with what to do.
    pub fn check_asked(&self, root: &Path, contents: Contents, every_stem: bool) -> Result<()> {
        let message = match (self.contents(), contents) {
            (Contents::Images, Contents::Files) => {
                "was packed as a dataset of images: for files, pack it with `foreload pack --files`"
            }
            (Contents::Files, Contents::Images) => {
                "was packed as a dataset of files of any kind: for images, pack it without --files"
            }
            // A stem without an image was no sample when the dataset was packed.
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

/// Refuses a directory in which a packed dataset, or the files of one, are not complete yet.
fn refuse_unfinished(source: &dyn DatasetSource) -> Result<()> {
    if source.stamp(UNFINISHED.as_bytes())? != Seen::Gone {
        let message = "is not finished: run `foreload pack` again with the same arguments";
        return Err(Error::dataset(source.path(&[]), message));
    }
    if source.stamp(UNPACKING_DIRECTORY.as_bytes())? != Seen::Gone {
        let message = format!(
            "is not completely unpacked: it has {UNPACKING_DIRECTORY}, so `foreload unpack` is running, failed or was \
             killed: remove the directory and unpack again"
        );
        return Err(Error::dataset(source.path(&[]), message));
    }
    Ok(())
}
