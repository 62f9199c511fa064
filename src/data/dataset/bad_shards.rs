//! Shards that are unreadable when a dataset is indexed, and how they are handled.
//!
//! The index keeps such a shard as a group without samples, with the shard's stamp, so that a later start detects that
//! the shard was repaired. The user decides whether to train on the readable shards alone ([`BadShards`]). →
//! `tests/data/bad_shards.rs`

use super::part::DatasetPart;
use super::{DatasetIndex, Fingerprint, IndexOptions, Notes};
use crate::source::DatasetSource;
use base::error::{Error, Result};
use base::names::named;
use base::notices::NoticeKind;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::path::{Path, PathBuf};

/// Maximum number of unreadable shards that an error lists. `foreload index` lists all.
const LISTED: usize = 100;

const NAMED: usize = 3;

/// The beginning of messages about shards that are intact, but cannot be read as the user asks. Such a message says
/// what to change, so no other copy of the shard is needed.
pub(super) const REFUSED: &str = "is not read: ";

/// How shards are handled that are unreadable when a dataset is indexed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum BadShards {
    /// Opening the dataset fails with an error that names the unreadable shards.
    #[default]
    Error,
    /// The unreadable shards are skipped, with a warning. Samples, order and fingerprint are those of the readable
    /// shards.
    Skip,
}

named!(BadShards: "error" => Error, "skip" => Skip);

/// A shard that could not be read when its dataset was indexed.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct BadShard {
    /// The path of the shard below the root.
    pub shard: String,
    /// The reason why it cannot be read.
    pub message: String,
}

impl BadShard {
    pub(super) fn path(&self, source: &dyn DatasetSource) -> PathBuf {
        source.path(self.shard.as_bytes())
    }
}

impl Notes {
    pub(super) fn bad_shard(&self, path: &[u8]) -> Option<&BadShard> {
        if self.bad_shards.is_empty() {
            return None;
        }
        let shard = String::from_utf8_lossy(path);
        let found = self.bad_shards.binary_search_by(|bad| bad.shard.as_str().cmp(&shard));
        found.ok().map(|at| &self.bad_shards[at])
    }
}

impl IndexOptions {
    pub(super) fn refuses(&self, bad: &[BadShard]) -> bool {
        self.bad_shards == BadShards::Error && !self.bad_shards_later && !bad.is_empty()
    }
}

#[derive(Default)]
pub(super) struct UnreadShards(Vec<(Vec<u8>, Error)>);

impl UnreadShards {
    pub(super) fn add(&mut self, shard: &[u8], error: Error) {
        self.0.push((shard.to_vec(), error));
    }

    /// Records the unreadable shards in `notes`. The dataset has `shards` shards in all. The readable shards have
    /// `samples` samples.
    ///
    /// # Errors
    /// An error that names the unreadable shards, if the `options` do not skip them or no sample is left.
    pub(super) fn record(
        mut self,
        (root, source): (&Path, &dyn DatasetSource),
        options: &IndexOptions,
        (shards, samples): (usize, u64),
        notes: &mut Notes,
    ) -> Result<()> {
        if shards == 1
            && let Some((_, error)) = self.0.pop()
        {
            return Err(error);
        }
        let bad = |(shard, error): (Vec<u8>, Error)| {
            let message = match error {
                Error::Dataset { message, .. } => message,
                _ => "does not exist".to_owned(),
            };
            BadShard { shard: String::from_utf8_lossy(&shard).into_owned(), message }
        };
        let mut bad: Vec<BadShard> = self.0.into_iter().map(bad).collect();
        bad.sort_unstable();
        if options.refuses(&bad) || samples == 0 && !bad.is_empty() {
            return Err(refused((root, source), &bad, (shards, samples)));
        }
        notes.bad_shards = bad;
        Ok(())
    }
}

fn refused(
    (root, source): (&Path, &dyn DatasetSource),
    bad: &[BadShard],
    (shards, samples): (usize, u64),
) -> Error {
    let is_damaged = bad.iter().any(|bad| !bad.message.starts_with(REFUSED));
    let skip = (samples > 0).then_some("or leave out unreadable shards with bad_shards=\"skip\"");
    let remedy = |repair: &'static str| {
        let remedies: Vec<&str> = is_damaged.then_some(repair).into_iter().chain(skip).collect();
        remedies.join(", ")
    };
    if let [only] = bad {
        let remedy = remedy("repair it or download it again");
        let before = if remedy.is_empty() { "" } else { "; " };
        return Error::dataset(only.path(source), format!("{}{before}{remedy}", only.message));
    }
    let what = match bad.len() == shards {
        true => format!("none of its {shards} shards can be read"),
        false => format!("{} of its {shards} shards cannot be read", bad.len()),
    };
    let listed = bad.iter().take(LISTED);
    let mut lines: Vec<String> =
        listed.map(|bad| format!("  {}: {}", bad.path(source).display(), bad.message)).collect();
    if let Some(more) = bad.len().checked_sub(LISTED).filter(|more| *more > 0) {
        lines.push(format!("  and {more} more: `foreload index {}` lists all", root.display()));
    }
    lines.push(remedy("repair them or download them again"));
    Error::dataset(root, format!("{what}:\n{}", lines.join("\n").trim_end()))
}

/// Reports the shards that were unreadable when `index` was made.
///
/// # Errors
/// An error that names the shards, if the `options` do not skip unreadable shards.
pub(super) fn report(index: &DatasetPart, options: &IndexOptions) -> Result<()> {
    let (bad, shards) = (&index.notes.bad_shards, index.groups());
    if bad.is_empty() {
        return Ok(());
    }
    if options.refuses(bad) {
        return Err(refused((&index.root, &*index.source), bad, (shards, index.len())));
    }
    if options.bad_shards == BadShards::Skip {
        let root = index.root.display();
        let message = format!(
            "{root}: {} of its {shards} shards cannot be read and are left out (bad_shards=\"skip\"): {}; repair them \
             or download them again; `foreload index {root}` lists all",
            bad.len(),
            summarise(bad)
        );
        options.notices.notify(NoticeKind::Warning, message);
    }
    Ok(())
}

impl DatasetIndex {
    /// The unreadable shards, each with its full path. If `refused`, without the shards of datasets that are opened
    /// with [`BadShards::Skip`].
    pub(super) fn bad_shards(&self, refused: bool) -> impl Iterator<Item = (&BadShard, PathBuf)> {
        let parts = self.dataset_parts();
        let parts = parts.filter(move |part| !refused || part.bad_shards == BadShards::Error);
        parts.flat_map(|part| part.notes.bad_shards.iter().map(|bad| (bad, bad.path(&*part.source))))
    }
}

fn summarise(bad: &[BadShard]) -> String {
    let named = bad.iter().take(NAMED).map(|BadShard { shard, message }| format!("{shard} ({message})"));
    let named = named.collect::<Vec<_>>().join(", ");
    match bad.len().checked_sub(NAMED) {
        None | Some(0) => named,
        Some(more) => format!("{named}, and {more} more"),
    }
}

/// The fingerprint of a packed dataset without the unreadable shards `bad`. `whole` is the fingerprint of the dataset
/// that was packed.
pub(super) fn fingerprint_without(whole: Fingerprint, bad: &[BadShard]) -> Fingerprint {
    if bad.is_empty() {
        return whole;
    }
    let mut digest = Sha256::new();
    digest.update(b"foreload packed without ");
    digest.update(whole.0);
    for BadShard { shard, .. } in bad {
        digest.update(shard);
        digest.update([0]);
    }
    Fingerprint(digest.finalize().into())
}

/// Joins the faults of several files of the dataset at `root` into one message, with a line for each fault.
pub(super) fn join_faults(root: &Path, mut faults: Vec<(PathBuf, String)>) -> Option<(PathBuf, String)> {
    faults.sort_unstable();
    if faults.len() < 2 {
        return faults.pop();
    }
    let lines = faults.iter().map(|(path, message)| format!("\n  {}: {message}", path.display()));
    let lines = lines.collect::<String>();
    let message = format!("{} shards or directories are changed or damaged:{lines}", faults.len());
    Some((root.to_path_buf(), message))
}
