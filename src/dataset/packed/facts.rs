//! What `foreload pack` needs to know of the dataset that it packs, beside its samples.

use super::super::summary::{LabelFault, Notes, Skipped};
use super::super::{DatasetIndex, Layout};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;

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
    /// The digest of the stamps of its shards, which changes when one of them is written again. Loose files have no
    /// stamps in the index.
    pub(crate) stamps: [u8; 32],
}

impl DatasetIndex {
    /// The facts about the first of its datasets.
    pub(crate) fn packing_facts(&self) -> PackingFacts {
        let part = self.first_part();
        let mut notes = part.notes.clone();
        let left_out = std::mem::take(&mut notes.skipped);
        // The shard that a fault names is none of the packed dataset's.
        notes.label_fault = notes.label_fault.map(LabelFault::of_packed);
        let mut stamps = Sha256::new_with_prefix(b"foreload packing 1");
        self.files()
            .filter_map(|file| self.shard_stamp(file))
            .for_each(|stamp| stamps.update(stamp.to_bytes()));
        PackingFacts {
            layout: part.layout(),
            classes: part.class_names().into_iter().map(<[u8]>::to_vec).collect(),
            notes,
            left_out,
            stamps: stamps.finalize().into(),
        }
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
    pub(crate) fn packing_name(&self, file: super::super::FileId) -> Vec<u8> {
        self.first_part().name_below(file)
    }
}
