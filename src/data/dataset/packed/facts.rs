//! Facts about a dataset, other than its samples, that `foreload pack` needs.

use super::super::cells::ColumnCells;
use super::super::format::Section;
use super::super::member::MemberRow;
use super::super::summary::{LabelFault, Notes, Skipped};
use super::super::table::TableColumn;
use super::super::{DatasetIndex, Extent, FileId, Fingerprint, Layout, MemberBytes, Stamp};
use super::PackedColumns;
use base::error::Result;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::ops::Range;

/// The facts about a dataset that `foreload pack` copies into the packed dataset.
pub struct PackingFacts {
    /// The layout of the dataset.
    pub layout: Layout,
    /// The class names by class number.
    pub classes: Vec<Vec<u8>>,
    /// What was found when the dataset was listed, without the skipped files.
    pub notes: Notes,
    /// The files that were skipped when the dataset was listed, by reason.
    pub left_out: BTreeMap<String, Skipped>,
    /// The members and columns of the samples, without the values of the columns.
    pub table: PackedColumns,
}

/// Location of a member of a sample. The key of the member is the name of a column, or the suffix of a file name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PackingMember {
    /// The index of the member's key in [`PackedColumns::keys`].
    pub key: u32,
    /// The offset of the member's first byte in the shard of the sample.
    pub offset: u64,
    /// The size of the member in bytes.
    pub length: u32,
}

/// Digest of the stamps of the source files that a packed shard is made of. The digest changes if one of these files is
/// rewritten, even if the list of files stays the same.
pub struct SourceStamps {
    digest: Sha256,
    last: Option<FileId>,
}

impl SourceStamps {
    /// Starts the digest without any file.
    pub fn new() -> Self {
        Self { digest: Sha256::new_with_prefix(b"foreload packing 2"), last: None }
    }

    /// Adds the file of the next sample, unless the previous sample is in the same file.
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
    /// The facts about the first dataset of the index.
    pub fn packing_facts(&self) -> PackingFacts {
        let part = self.first_part();
        let mut notes = part.notes.clone();
        let left_out = std::mem::take(&mut notes.skipped);
        // The packed dataset contains the files that a manifest lists, so their original locations no longer matter.
        (notes.on_servers, notes.secrets) = (false, false);
        notes.bad_shards.clear();
        // The fault names a shard of the source, which the packed dataset does not have.
        notes.label_fault = notes.label_fault.map(LabelFault::of_packed);
        let (keys, kinds) = match part.layout() {
            // The files that the columns name become members.
            Layout::Parallel => part.table_fields().into_iter().map(|field| (field.name, field.kind)).unzip(),
            _ => (part.keys(), part.kinds()),
        };
        notes.parallel.clear();
        PackingFacts {
            layout: part.layout(),
            classes: part.class_names().into_iter().map(<[u8]>::to_vec).collect(),
            table: PackedColumns { keys, kinds, image: notes.image.clone(), columns: Vec::new() },
            notes,
            left_out,
        }
    }

    /// The members of a sample of the first dataset: the image first, if the sample has one, then the other members by
    /// their keys. The index must have been loaded with its members.
    pub fn packing_members(&self, sample: u64, table: &PackedColumns) -> Vec<PackingMember> {
        let part = self.first_part();
        let image = part.image(sample).offset;
        let there = part.members_in_file(sample).filter(|row| row.place.is_single());
        let mut members: Vec<PackingMember> = there
            .map(|MemberRow { key, place }| PackingMember {
                key,
                offset: image.saturating_add_signed(place.offset_from_image),
                length: place.length,
            })
            .collect();
        // If no column is the image, the member at the image's offset is the image.
        members.sort_by_key(|member| match &table.image {
            Some(image) => table.keys.get(member.key as usize) != Some(image),
            None => member.offset != image,
        });
        members
    }

    /// The files of a sample of parallel directories in addition to its image, by the names of their fields.
    pub fn packing_partners(&self, sample: u64) -> impl Iterator<Item = (&str, Extent)> {
        let place = move |number| match self.member(sample, number) {
            MemberBytes::Separate(extent) => Some(extent),
            _ => None,
        };
        let named = self.members().iter().enumerate();
        named.filter_map(move |(number, name)| Some((name.as_str(), place(number)?)))
    }

    /// The columns of small values, with the rows in `samples`. The samples are those of the first dataset. The index
    /// must have been loaded with its columns.
    pub fn packing_columns(&self, samples: Range<u64>) -> Vec<TableColumn> {
        let part = self.first_part();
        let columns = if part.layout() == Layout::Parallel { Vec::new() } else { part.columns() };
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

    /// Digest of the current stamps of the files of these samples of the first dataset. Opening the index has read the
    /// stamps of shards, but not the stamps of loose files.
    ///
    /// # Errors
    /// The errors of [`DatasetIndex::stat`].
    pub fn packing_stamps(&self, samples: Range<u64>) -> Result<String> {
        let mut stamps = SourceStamps::new();
        for sample in samples {
            let files = std::iter::once(self.extent(sample).file);
            for file in files.chain(self.packing_partners(sample).map(|(_, extent)| extent.file)) {
                if stamps.last != Some(file) {
                    stamps.add(file, self.shard_stamp(file).map_or_else(|| self.stat(file), Ok)?);
                }
            }
        }
        Ok(stamps.finish())
    }

    /// The class number of a sample of the first dataset as stored in the index, even if the labels of the dataset
    /// cannot be used.
    pub fn packing_label(&self, sample: u64) -> u32 {
        self.first_part().label(sample)
    }

    /// The total size in bytes of all members of a sample of the first dataset, or of its image if it has no members.
    pub fn packing_bytes(&self, sample: u64) -> u64 {
        self.first_part().bytes_of_sample(sample)
    }

    /// The path of a file of the first dataset relative to its root. If the root is the file, its file name.
    pub fn packing_name(&self, file: FileId) -> Vec<u8> {
        self.first_part().name_below(file)
    }
}
