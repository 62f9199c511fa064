//! What `foreload pack` needs to know of the dataset that it packs, beside its samples.

use super::super::cells::ColumnCells;
use super::super::format::Section;
use super::super::member::MemberRow;
use super::super::summary::{LabelFault, Notes, Skipped};
use super::super::table::TableColumn;
use super::super::{DatasetIndex, FileId, Fingerprint, Layout, Stamp};
use super::PackedColumns;
use base::error::Result;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::ops::Range;

/// The facts about a dataset of one root.
pub struct PackingFacts {
    /// How its samples are stored.
    pub layout: Layout,
    /// The names of its classes by number.
    pub classes: Vec<Vec<u8>>,
    /// What was noted when it was listed, but for what was left out.
    pub notes: Notes,
    /// What was left out when it was listed, by reason.
    pub left_out: BTreeMap<String, Skipped>,
    /// The members and columns that samples have, without the columns' values.
    pub table: PackedColumns,
}

/// The place of a member of a sample, whose name is that of a column, or an ending.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PackingMember {
    /// The number of its key among [`PackedColumns::keys`].
    pub key: u32,
    /// The place of its first byte in the sample's shard.
    pub offset: u64,
    /// The number of its bytes.
    pub length: u32,
}

/// The digest of the stamps of those files of the source that a packed shard is made of. It is another when one of them
/// is written again, even if the list of files stays the same.
pub struct SourceStamps {
    digest: Sha256,
    last: Option<FileId>,
}

impl SourceStamps {
    /// No facts.
    pub fn new() -> Self {
        Self { digest: Sha256::new_with_prefix(b"foreload packing 2"), last: None }
    }

    /// Takes the file of the next sample, which may be the one before it.
    pub fn add(&mut self, file: FileId, stamp: Stamp) {
        if self.last.replace(file) != Some(file) {
            self.digest.update(stamp.to_bytes());
        }
    }

    /// The digest, in hexadecimal.
    pub fn finish(self) -> String {
        Fingerprint(self.digest.finalize().into()).to_string()
    }
}

impl DatasetIndex {
    /// The facts about the first of its datasets.
    pub fn packing_facts(&self) -> PackingFacts {
        let part = self.first_part();
        let mut notes = part.notes.clone();
        let left_out = std::mem::take(&mut notes.skipped);
        // Where a manifest's files lie does not matter any more.
        (notes.on_servers, notes.secrets) = (false, false);
        notes.bad_shards.clear();
        // The shard that a fault names is none of the packed dataset's.
        notes.label_fault = notes.label_fault.map(LabelFault::of_packed);
        PackingFacts {
            layout: part.layout(),
            classes: part.class_names().into_iter().map(<[u8]>::to_vec).collect(),
            table: PackedColumns {
                keys: part.keys(),
                kinds: part.kinds(),
                image: notes.image.clone(),
                columns: Vec::new(),
            },
            notes,
            left_out,
        }
    }

    /// The members of a sample of the first dataset, whose index was read with them: its image first, if it has one,
    /// the others by their keys.
    pub fn packing_members(&self, sample: u64, table: &PackedColumns) -> Vec<PackingMember> {
        let part = self.first_part();
        let image = part.image(sample).offset;
        let there = part.members_in_file(sample).filter(|row| row.place.is_single());
        let mut members: Vec<PackingMember> = there
            .map(|MemberRow { key, place }| PackingMember {
                key,
                offset: image.saturating_add_signed(place.apart),
                length: place.length,
            })
            .collect();
        // Where no column is the image, the one that lies at the place of the image is.
        members.sort_by_key(|member| match &table.image {
            Some(image) => table.keys.get(member.key as usize) != Some(image),
            None => member.offset != image,
        });
        members
    }

    /// The columns of small values of these samples of the first dataset, whose index was read with them.
    pub fn packing_columns(&self, samples: Range<u64>) -> Vec<TableColumn> {
        let part = self.first_part();
        let columns = part.columns();
        let section = part.file.section(Section::Cells);
        let cells = (0..columns.len()).map(|of| ColumnCells::of(&columns, of, section, part.len()));
        let column = |cells: ColumnCells<'_>| TableColumn {
            name: cells.facts.name.clone(),
            kind: cells.facts.kind,
            classes: cells.facts.classes.clone(),
            cells: cells.cells(samples.clone()),
        };
        cells.map(column).collect()
    }

    /// The stamps that the files of these samples of the first dataset have now. Opening the index has looked at
    /// shards, but at no loose file.
    ///
    /// # Errors
    /// Those of [`DatasetIndex::stat`].
    pub fn packing_stamps(&self, samples: Range<u64>) -> Result<String> {
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
    pub fn packing_label(&self, sample: u64) -> u32 {
        self.first_part().label(sample)
    }

    /// The number of bytes of all members of a sample of the first dataset, or of its image where it has no members.
    pub fn packing_bytes(&self, sample: u64) -> u64 {
        self.first_part().bytes_of_sample(sample)
    }

    /// The name of a file of the first dataset below its root; its own name where the root is the file.
    pub fn packing_name(&self, file: FileId) -> Vec<u8> {
        self.first_part().name_below(file)
    }
}
