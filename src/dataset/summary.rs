//! What there is to say about an index, for people and for `--json`.

use super::Layout;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Where an index came from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase", tag = "origin", content = "because")]
pub enum Origin {
    /// A file made by an earlier start.
    Loaded,
    /// Made now; says why: "there was none", "--rebuild", or what was wrong with the old one.
    Built(String),
}

/// Files of one kind that are no samples.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Skipped {
    /// How many.
    pub count: u64,
    /// One of them (the first by name among those of its directory or shard).
    pub example: String,
}

/// What was noticed while the dataset was read; kept in the index.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Notes {
    /// What was left out, by reason.
    pub skipped: BTreeMap<String, Skipped>,
    /// Class directories that hold no image; they keep their class number.
    pub empty_classes: Vec<String>,
    /// No sample has a label: all are of class 0.
    pub unlabeled: bool,
}

impl Notes {
    /// Counts something that is no sample.
    pub(super) fn skip(&mut self, reason: impl Into<String>, example: impl FnOnce() -> String) {
        let skipped =
            self.skipped.entry(reason.into()).or_insert_with(|| Skipped { count: 0, example: example() });
        skipped.count += 1;
    }

    /// That something is missing, and what was found instead.
    pub(super) fn explain(&self, missing: &str) -> String {
        let found = |(reason, skipped): (&String, &Skipped)| {
            format!("{} {reason}, e.g. {}", skipped.count, skipped.example)
        };
        let found: Vec<String> = self.skipped.iter().map(found).collect();
        if found.is_empty() { missing.to_owned() } else { format!("{missing}; found: {}", found.join("; ")) }
    }

    /// Adds what another thread noticed. Which example stays does not depend on who came first.
    pub(super) fn absorb(&mut self, other: Self) {
        for (reason, more) in other.skipped {
            let skipped = self
                .skipped
                .entry(reason)
                .or_insert_with(|| Skipped { count: 0, example: more.example.clone() });
            skipped.count += more.count;
            skipped.example = std::mem::take(&mut skipped.example).min(more.example);
        }
        self.empty_classes.extend(other.empty_classes);
        self.unlabeled |= other.unlabeled;
    }
}

/// What `foreload index` shows.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Summary {
    /// The dataset as the user named it.
    pub root: PathBuf,
    /// How the samples are stored.
    pub layout: Layout,
    /// Number of samples.
    pub samples: u64,
    /// Number of classes.
    pub classes: u32,
    /// Bytes of all samples.
    pub total_bytes: u64,
    /// Bytes of the largest sample.
    pub largest: u32,
    /// Number of directories (loose files) or shards.
    pub groups: u64,
    /// What was left out, by reason; empty classes; whether labels are missing.
    #[serde(flatten)]
    pub notes: Notes,
    /// The dataset's fingerprint in hexadecimal.
    pub fingerprint: String,
    /// The index file.
    pub index_path: PathBuf,
    /// Its size in bytes.
    pub index_bytes: u64,
    /// Whether it was loaded or built.
    #[serde(flatten)]
    pub origin: Origin,
    /// How long loading or building took.
    pub seconds: f64,
}

/// The names in the section of classes.
pub(super) fn class_names(mut bytes: &[u8]) -> Vec<&[u8]> {
    let mut names = Vec::new();
    while let Some((length, rest)) = bytes.split_first_chunk() {
        let Some((name, rest)) = rest.split_at_checked(u32::from_le_bytes(*length) as usize) else { break };
        names.push(name);
        bytes = rest;
    }
    names
}
