//! What `foreload pack` needs to know of the dataset that it packs, beside its samples.

use super::super::summary::{LabelFault, Notes, Skipped};
use super::super::{DatasetIndex, FileId, Fingerprint, Layout, Stamp};
use crate::error::Result;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::ops::Range;

/// The facts about a dataset of one root.
pub(crate) struct PackingFacts {
    /// How its samples are stored.
    pub(crate) layout: Layout,
    /// The names of its classes by number.
    pub(crate) classes: Vec<Vec<u8>>,
    /// What was noted when it was listed, but for what was left out.
    pub(crate) notes: Notes,
    /// What was left out when it was listed, by reason.
    pub(crate) left_out: BTreeMap<String, Skipped>,
}

/// The digest of the stamps of those files of the source that a packed shard is made of. It is another when one of them
/// is written again, even if the list of files stays the same.
pub(crate) struct SourceStamps {
    digest: Sha256,
    last: Option<FileId>,
}

impl SourceStamps {
    pub(crate) fn new() -> Self {
        Self { digest: Sha256::new_with_prefix(b"foreload packing 2"), last: None }
    }

    /// Takes the file of the next sample, which may be the one before it.
    pub(crate) fn add(&mut self, file: FileId, stamp: Stamp) {
        if self.last.replace(file) != Some(file) {
            self.digest.update(stamp.to_bytes());
        }
    }

    /// The digest, in hexadecimal.
    pub(crate) fn finish(self) -> String {
        Fingerprint(self.digest.finalize().into()).to_string()
    }
}

impl DatasetIndex {
    /// The facts about the first of its datasets.
    pub(crate) fn packing_facts(&self) -> PackingFacts {
        let part = self.first_part();
        let mut notes = part.notes.clone();
        let left_out = std::mem::take(&mut notes.skipped);
        // The shard that a fault names is none of the packed dataset's.
        notes.label_fault = notes.label_fault.map(LabelFault::of_packed);
        PackingFacts {
            layout: part.layout(),
            classes: part.class_names().into_iter().map(<[u8]>::to_vec).collect(),
            notes,
            left_out,
        }
    }

    /// The stamps that the files of these samples of the first dataset have now. Opening the index has looked at
    /// shards, but at no loose file.
    ///
    /// # Errors
    /// Those of [`DatasetIndex::stat`].
    pub(crate) fn packing_stamps(&self, samples: Range<u64>) -> Result<String> {
        let mut stamps = SourceStamps::new();
        for sample in samples {
            let file = self.extent(sample).file;
            if stamps.last != Some(file) {
                stamps.add(file, self.shard_stamp(file).map_or_else(|| self.stat(file), Ok)?);
            }
        }
        Ok(stamps.finish())
    }

    /// The class number that the index has for a sample of the first dataset, even where labels as a whole cannot be
    /// used.
    pub(crate) fn packing_label(&self, sample: u64) -> u32 {
        self.first_part().label(sample)
    }

    /// The number of bytes of all members of a sample of the first dataset, or of its image where it has no members.
    pub(crate) fn packing_bytes(&self, sample: u64) -> u64 {
        self.first_part().bytes_of_sample(sample)
    }

    /// The name of a file of the first dataset below its root; its own name where the root is the file.
    pub(crate) fn packing_name(&self, file: FileId) -> Vec<u8> {
        self.first_part().name_below(file)
    }
}
