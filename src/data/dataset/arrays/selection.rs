//! The arrays that a loader reads from each sample.

use super::{ArrayFacts, ArrayTable, CfFacts, Slab};
use crate::dataset::SampleAxis;
use pixels::arrays::StoredType;
use std::sync::Arc;

/// Marks a shard that has no array of a name.
pub(in crate::dataset) const NO_ARRAY: u32 = u32::MAX;

/// An array of all samples, as far as it is the same for all of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArrayField {
    /// The type of the elements as they are stored.
    pub stored: StoredType,
    /// The lengths of the dimensions of a sample's array; `None` for a dimension in which samples differ.
    pub shape: Vec<Option<u64>>,
    /// The decodings that the attributes of the array ask for, which may differ from shard to shard; `None` for shards
    /// without such attributes.
    pub cf: Vec<Option<CfFacts>>,
}

/// The arrays that are read of each sample, and where they are in the index.
pub(in crate::dataset) struct ArraySelection {
    /// The facts that arrays of the index refer to.
    pub(in crate::dataset) facts: Vec<Arc<ArrayFacts>>,
    /// For each selected member, the number of its name in `names`.
    pub(in crate::dataset) members: Vec<usize>,
    /// The names of the arrays without repetitions, sorted. The record of a sample has the arrays in this order.
    pub(in crate::dataset) names: Vec<String>,
    /// For each group, the numbers of its arrays in the order of `names`, or [`NO_ARRAY`]. If each shard has some of
    /// the arrays of all samples, the numbers of all shards together, as if they were one group.
    pub(in crate::dataset) arrays: Vec<u32>,
    /// The sizes of records in bytes, and the number of pieces of all records together.
    pub(in crate::dataset) largest: u32,
    pub(in crate::dataset) total: u64,
    pub(in crate::dataset) reads: u64,
    /// The length of every record; `None` if records have different lengths.
    pub(in crate::dataset) same_length: Option<u32>,
    /// The sample whose record needs the most memory while it is read, and this memory in bytes.
    pub(in crate::dataset) largest_sample: u64,
    pub(in crate::dataset) most_memory: u64,
    /// Whether several samples share chunks that must be decoded.
    pub(in crate::dataset) shares_chunks: bool,
}

impl ArraySelection {
    /// Selects the arrays with the names in `members`, in a dataset with `groups` groups of samples.
    pub(in crate::dataset) fn new(
        table: ArrayTable<'_>,
        facts: Vec<ArrayFacts>,
        groups: usize,
        members: &[String],
    ) -> Self {
        let mut names = members.to_vec();
        names.sort_unstable();
        names.dedup();
        let number = |name: &String| names.partition_point(|known| known < name);
        let members = members.iter().map(number).collect();
        let mut arrays = vec![NO_ARRAY; groups * names.len()];
        for array in 0..table.len() {
            let Some((group, of)) = table.key(array) else { continue };
            let group = if groups == 1 { 0 } else { group as usize };
            let name = facts.get(of as usize).map(|facts| &facts.name);
            if let Some(at) = name.and_then(|name| names.binary_search(name).ok())
                && let Some(place) = arrays.get_mut(group * names.len() + at)
            {
                *place = array as u32;
            }
        }
        let facts = facts.into_iter().map(Arc::new).collect();
        Self {
            facts,
            members,
            names,
            arrays,
            largest: 0,
            total: 0,
            reads: 0,
            same_length: None,
            largest_sample: 0,
            most_memory: 0,
            shares_chunks: false,
        }
    }

    /// The number of an array of a group; `None` if the group does not have it.
    pub(in crate::dataset) fn array(&self, group: usize, name: usize) -> Option<usize> {
        let number = self.arrays.get(group * self.names.len() + name)?;
        (*number != NO_ARRAY).then_some(*number as usize)
    }

    /// The array `name` of a group, with the number of the shard that has it.
    pub(in crate::dataset) fn field(
        &self,
        table: ArrayTable<'_>,
        (group, name): (usize, usize),
        axis: SampleAxis,
    ) -> Option<(usize, ArrayField)> {
        let array = table.get(self.array(group, name)?)?;
        let (stored, shape) = (self.facts.get(array.row.facts as usize)?.stored, array.sample_shape(axis));
        Some((array.row.group as usize, ArrayField { stored, shape, cf: Vec::new() }))
    }

    /// The arrays of row `row` of a group in the order of the record. With `None`, a sample is all of each array.
    pub(in crate::dataset) fn slabs<'a>(
        &'a self,
        table: ArrayTable<'a>,
        group: usize,
        row: Option<u64>,
    ) -> impl Iterator<Item = (usize, Slab<'a>)> {
        let mut at = 0;
        (0..self.names.len()).filter_map(move |name| {
            let number = self.array(group, name)?;
            let array = table.get(number)?;
            let facts = self.facts.get(array.row.facts as usize)?;
            let file = array.row.group;
            let own = number.saturating_sub(table.of_group(file).start) as u64;
            let slab = Slab::of(facts, array, row, (file, own), at);
            at = slab.bytes().saturating_add(at);
            Some((name, slab))
        })
    }
}
