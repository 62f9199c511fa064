//! The arrays of samples: their parts, and the records in which readers fetch them.

use super::super::Extent;
use super::super::arrays::record::{Piece, SampleRecord};
use super::super::arrays::{ArrayField, MAX_RECORD, Slab};
use super::DatasetIndex;

impl DatasetIndex {
    /// Whether the samples of any dataset are parts of arrays, which are read as records.
    pub fn has_arrays(&self) -> bool {
        self.parts.iter().any(|placed| placed.part.layout().is_array())
    }

    /// The array of a sample that the member with index `field` in [`IndexOptions::members`] is; `None` if the sample
    /// does not have it.
    ///
    /// # Panics
    /// Panics if `sample` is not below [`DatasetIndex::len`].
    ///
    /// [`IndexOptions::members`]: crate::dataset::IndexOptions::members
    pub fn array(&self, sample: u64, field: usize) -> Option<Slab<'_>> {
        let (part, sample) = self.own_sample(sample)?;
        part.slab(sample, field)
    }

    /// What all samples have in common in the array that the member with index `field` is, for each dataset in which
    /// the member is an array.
    pub fn array_fields(&self, field: usize) -> impl Iterator<Item = ArrayField> {
        self.parts.iter().filter_map(move |placed| placed.part.selected_array(field))
    }

    /// The record of the sample whose extent this is: the places of its arrays' bytes in files; `None` for an extent of
    /// a file.
    ///
    /// # Panics
    /// Panics when the index has no such file.
    pub fn record(&self, extent: Extent) -> Option<SampleRecord> {
        let (placed, own) =
            (self.live.is_none() && self.has_arrays()).then(|| self.dataset_of_file(extent.file))?;
        let sample = placed.part.sample_of_record(Extent { file: own, ..extent })?;
        let mut record = placed.part.sample_record(sample)?;
        for Piece { extent, .. } in &mut record.pieces {
            extent.file = placed.global_file(extent.file);
        }
        Some(record)
    }

    /// Whether the cache can keep a sample: its record is at most [`MAX_RECORD`] bytes long. Always true for samples
    /// that are not arrays.
    ///
    /// # Panics
    /// Panics if `sample` is not below [`DatasetIndex::len`].
    pub fn is_record(&self, sample: u64) -> bool {
        let part = self.own_sample(sample).filter(|(part, _)| part.layout().is_array());
        part.is_none_or(|(part, sample)| u64::from(part.extent(sample).length) <= MAX_RECORD)
    }

    /// A sample whose record needs the most memory while it is read; `None` if no samples are arrays.
    pub fn largest_record(&self) -> Option<u64> {
        let arrays = self.parts.iter().filter_map(|placed| Some((placed, placed.part.arrays.as_ref()?)));
        let largest = arrays.max_by_key(|(_, arrays)| arrays.most_memory);
        largest.map(|(placed, arrays)| placed.sample + arrays.largest_sample)
    }
}
