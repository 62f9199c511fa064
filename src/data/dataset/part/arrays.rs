//! The arrays of a dataset: which ones are read of each sample, and where their bytes are.

use super::DatasetPart;
use crate::dataset::arrays::record::SampleRecord;
use crate::dataset::arrays::{
    ArrayFacts, ArrayField, ArraySelection, ArrayStorage, RECORD_DISTANCE, RECORDS, ShardArray, Slab,
};
use crate::dataset::bad_shards::REFUSED;
use crate::dataset::build::ShardRows;
use crate::dataset::format::Section;
use crate::dataset::layouts::ShardLayout;
use crate::dataset::{BadShard, Extent, FileId, FileVersion, MemberBytes, SampleAxis, Stamp};
use base::error::{Error, Result};
use base::slot::PAGE;
use sha2::{Digest, Sha256};
use std::ops::Range;
use std::sync::PoisonError;

impl DatasetPart {
    fn array_facts(&self) -> Vec<ArrayFacts> {
        serde_json::from_slice(self.file.section(Section::Arrays)).unwrap_or_default()
    }

    /// Whether the index has the samples that a loader of the fields `chosen` needs, or of all fields if none is
    /// chosen. Shards may lack those in `optional`. Always true for other layouts than those of arrays.
    pub(in crate::dataset) fn has_arrays(&self, chosen: Option<&[String]>, optional: &[String]) -> bool {
        let Some(chosen) = chosen.filter(|_| self.layout().is_array()) else {
            return !self.layout().is_array() || self.notes.chosen_arrays.is_none();
        };
        let is_optional = |name: &String| optional.contains(name);
        let may_lack = |name: &String| self.notes.optional_arrays.contains(name);
        if self.notes.chosen_arrays.as_deref() == Some(chosen)
            && chosen.iter().all(|name| is_optional(name) == may_lack(name))
        {
            return true;
        }
        // Another choice can read shards that this choice refused. Without an array that all shards must have, it can
        // have fewer samples.
        let is_refused = |bad: &BadShard| bad.message.starts_with(REFUSED);
        if self.notes.bad_shards.iter().any(is_refused) || chosen.iter().all(is_optional) {
            return false;
        }
        let fields = self.table_fields();
        let is_whole = !self.layout().shards().is_some_and(ShardLayout::reads_chosen_arrays);
        let can_read = |name: &String| {
            fields.iter().find(|field| field.name == *name).map_or(is_whole, |field| field.refused.is_none())
        };
        chosen.iter().all(|name| can_read(name) && (is_optional(name) || !may_lack(name)))
    }

    /// Whether each shard has some of the arrays of all samples. Then all samples belong to the first shard.
    fn is_joined(&self) -> bool {
        self.layout().is_joined(self.notes.sample_axis)
    }

    /// Whether shards can change in ways that reads of samples do not notice.
    pub(in crate::dataset) fn has_unnoticed_changes(&self) -> bool {
        let shares_chunks = self.arrays.as_ref().is_some_and(|selection| selection.shares_chunks);
        self.layout().is_array() && (self.is_joined() || shares_chunks && self.remote(FileId(0)).is_none())
    }

    /// The group of a sample, and the row of the group's arrays that is the sample; `None` if all of each array is.
    fn array_row(&self, sample: u64) -> (usize, Option<u64>) {
        let group = self.group_of(sample);
        let row = sample - self.samples_of_group(group).start;
        (group, (self.notes.sample_axis == SampleAxis::Axis0).then_some(row))
    }

    fn slabs<'a>(
        &'a self,
        selection: &'a ArraySelection,
        sample: u64,
    ) -> impl Iterator<Item = (usize, Slab<'a>)> {
        let (group, row) = self.array_row(sample);
        selection.slabs(self.file.arrays(), group, row)
    }

    /// Selects the arrays with these names as those that are read from each sample.
    ///
    /// # Errors
    /// [`Error::Dataset`] if shards have an array in different types; [`Error::Config`] for `fields` if the arrays of a
    /// sample are too large together.
    pub(in crate::dataset) fn select_arrays(&mut self, members: &[String]) -> Result<()> {
        let groups = if self.is_joined() { 1 } else { self.groups() };
        let mut selection = ArraySelection::new(self.file.arrays(), self.array_facts(), groups, members);
        for name in 0..selection.names.len() {
            self.array_field(&selection, name)?;
        }
        let (mut largest, mut smallest) = (0, u64::MAX);
        for group in 0..groups {
            let mut samples = self.samples_of_group(group);
            while !samples.is_empty() {
                let (mut length, mut pieces, mut same) = (0_u64, 0_u64, samples.end - samples.start);
                for (_, slab) in self.slabs(&selection, samples.start) {
                    length = length.saturating_add(slab.bytes());
                    pieces += slab.extents().count() as u64;
                    same = same.min(slab.alike());
                }
                if length > u64::from(u32::MAX) {
                    let message = format!(
                        "select arrays of which sample {} of {} has {length} bytes as stored, but at most {} are \
                         possible, also if window= reads less: {}",
                        samples.start,
                        self.root.display(),
                        u32::MAX,
                        match self.notes.sample_axis {
                            SampleAxis::File => "remove sample_axis=\"file\", so that each row is a sample",
                            SampleAxis::Axis0 => "choose fewer arrays, or write more and smaller rows",
                        }
                    );
                    return Err(Error::config("fields", message));
                }
                // Each piece is aligned to pages at both ends.
                let memory = length + pieces * 2 * PAGE as u64;
                if memory > selection.most_memory {
                    (selection.most_memory, selection.largest_sample) = (memory, samples.start);
                }
                samples.start += same;
                (largest, smallest) = (length.max(largest), length.min(smallest));
                selection.total = selection.total.saturating_add(length.saturating_mul(same));
                selection.reads = selection.reads.saturating_add(pieces.saturating_mul(same));
            }
        }
        selection.largest = largest as u32;
        selection.shares_chunks = self.notes.sample_axis == SampleAxis::Axis0
            && selection.shared_chunks(self.file.arrays()).next().is_some();
        selection.same_length = (largest == smallest).then_some(selection.largest);
        self.arrays = Some(selection);
        Ok(())
    }

    /// What all samples have in common in the array number `name` of a selection.
    fn array_field(&self, selection: &ArraySelection, name: usize) -> Result<Option<ArrayField>> {
        let mut field: Option<(usize, ArrayField)> = None;
        let groups = if self.is_joined() { 0..1 } else { 0..self.groups() };
        for group in groups.filter(|&group| !self.samples_of_group(group).is_empty()) {
            let found = selection.field(self.file.arrays(), (group, name), self.notes.sample_axis);
            let Some((shard, own)) = found else { continue };
            let Some((first, field)) = &mut field else {
                field = Some((shard, own));
                continue;
            };
            if own.stored.number != field.stored.number || own.shape.len() != field.shape.len() {
                let message = format!(
                    "has the array {:?} in another type or with another number of dimensions than {}: write all \
                     shards alike",
                    selection.names[name],
                    self.source.path(self.group_path(*first)).display()
                );
                return Err(Error::dataset(self.source.path(self.group_path(shard)), message));
            }
            let lengths = field.shape.iter_mut().zip(own.shape);
            lengths.filter(|(known, own)| **known != *own).for_each(|(known, _)| *known = None);
        }
        let of_name = selection.facts.iter().filter(|facts| facts.name == selection.names[name]);
        let mut cf: Vec<_> = of_name.map(|facts| facts.cf.clone()).collect();
        cf.dedup();
        Ok(field.map(|(_, field)| ArrayField { cf, ..field }))
    }

    /// What all samples have in common in the array that the selected member at index `member` is.
    pub(in crate::dataset) fn selected_array(&self, member: usize) -> Option<ArrayField> {
        let selection = self.arrays.as_ref()?;
        self.array_field(selection, *selection.members.get(member)?).ok().flatten()
    }

    /// The array of a sample that the selected member at index `member` is; `None` if the sample does not have it.
    pub(in crate::dataset) fn slab(&self, sample: u64, member: usize) -> Option<Slab<'_>> {
        let selection = self.arrays.as_ref()?;
        let wanted = *selection.members.get(member)?;
        self.slabs(selection, sample).find(|(name, _)| *name == wanted).map(|(_, slab)| slab)
    }

    pub(in crate::dataset) fn array_member(&self, sample: u64, member: usize) -> MemberBytes {
        self.slab(sample, member).map_or(MemberBytes::Absent, |slab| {
            let Range { start, end } = slab.range();
            MemberBytes::InExtent(start as usize..end as usize)
        })
    }

    /// The extent of a sample's record. Without a selection of arrays, records are empty.
    pub(super) fn record_extent(&self, sample: u64) -> Extent {
        let group = self.group_of(sample);
        let row = sample - self.samples_of_group(group).start;
        let length = self.arrays.as_ref().map_or(0, |selection| {
            selection.same_length.unwrap_or_else(|| {
                let bytes = self.slabs(selection, sample).map(|(_, slab)| slab.bytes()).sum::<u64>();
                u32::try_from(bytes).unwrap_or(u32::MAX)
            })
        });
        let offset = RECORDS.saturating_add(row.saturating_mul(RECORD_DISTANCE)).min(super::MAX_OFFSET);
        Extent { file: FileId(group as u32), offset, length }
    }

    /// The sample whose record has the address `extent`; `None` for the extent of a file.
    pub(in crate::dataset) fn sample_of_record(&self, extent: Extent) -> Option<u64> {
        let address = extent.offset.checked_sub(RECORDS).filter(|_| self.layout().is_array())?;
        let row = address.is_multiple_of(RECORD_DISTANCE).then_some(address / RECORD_DISTANCE)?;
        let samples =
            self.samples_of_group(Some(extent.file.0 as usize).filter(|&group| group < self.groups())?);
        samples.start.checked_add(row).filter(|sample| samples.contains(sample))
    }

    /// The record of a sample: the places of the bytes of all its arrays.
    pub(in crate::dataset) fn sample_record(&self, sample: u64) -> Option<SampleRecord> {
        let selection = self.arrays.as_ref()?;
        let slabs: Vec<Slab<'_>> = self.slabs(selection, sample).map(|(_, slab)| slab).collect();
        SampleRecord::of(slabs.iter().flat_map(Slab::extents))
    }

    /// The groups whose changes matter: if several shards hold the arrays of each sample, those of selected arrays, of
    /// selected columns and of the labels; else all.
    pub(in crate::dataset) fn read_groups(&self) -> Vec<usize> {
        let joined = self.arrays.as_ref().filter(|_| self.is_joined());
        let Some(selection) = joined else { return (0..self.groups()).collect() };
        let label = self.notes.label_column.iter().filter(|_| !self.notes.unlabeled);
        let columns = self.selected_columns.iter().map(|column| &column.facts.name);
        let names: Vec<&String> = selection.names.iter().chain(columns).chain(label).collect();
        let table = self.file.arrays();
        let shards = (0..table.len()).filter_map(|number| {
            let (group, facts) = table.key(number)?;
            names.contains(&&selection.facts.get(facts as usize)?.name).then_some(group as usize)
        });
        shards.flat_map(|shard| std::iter::once(shard).chain(self.parts_of(shard))).collect()
    }

    /// The shards that hold the selected arrays, if several shards hold those of each sample.
    pub(in crate::dataset) fn joined_shards(&self) -> Option<Vec<usize>> {
        let selection = self.arrays.as_ref().filter(|_| self.is_joined())?;
        let table = self.file.arrays();
        let numbers = (0..selection.names.len()).filter_map(|name| selection.array(0, name));
        let mut groups: Vec<usize> =
            numbers.filter_map(|number| Some(table.key(number)?.0 as usize)).collect();
        groups.extend(groups.clone().into_iter().flat_map(|group| self.parts_of(group)));
        groups.sort_unstable();
        Some(groups)
    }

    /// The version of the shards that hold the selected arrays, if several shards hold those of each sample.
    pub(in crate::dataset) fn joined_version(&self) -> Option<FileVersion> {
        self.arrays.as_ref().filter(|_| self.is_joined())?;
        let known = *self.array_version.read().unwrap_or_else(PoisonError::into_inner);
        known.or_else(|| {
            // While it is computed, no other thread can accept a stamp and clear it.
            let mut version = self.array_version.write().unwrap_or_else(PoisonError::into_inner);
            *version = self.version_of_arrays();
            *version
        })
    }

    fn version_of_arrays(&self) -> Option<FileVersion> {
        let groups = self.joined_shards()?;
        if groups.iter().any(|group| self.changed_shards.contains(group)) {
            return Some(FileVersion::NO_COPY);
        }
        Some(Self::version_of_all(groups.into_iter().map(|group| self.stamp_within(group))))
    }

    /// The version of the files with these stamps together. Directories, whose stamps have no size, are left out: what
    /// is in a record depends on files.
    pub(in crate::dataset) fn version_of_all(stamps: impl IntoIterator<Item = Stamp>) -> FileVersion {
        let files = stamps.into_iter().filter(|stamp| stamp.size > 0);
        Self::hash_of(b"foreload array files 1", files)
    }

    /// The version of a record: that of its arrays' documents, and the stamps of its chunks' files.
    pub(in crate::dataset) fn version_with(documents: FileVersion, chunks: Vec<Stamp>) -> FileVersion {
        let prefix = [&b"foreload chunk files 1"[..], &documents.0.to_le_bytes()].concat();
        Self::hash_of(&prefix, chunks.into_iter())
    }

    fn hash_of(prefix: &[u8], stamps: impl Iterator<Item = Stamp>) -> FileVersion {
        let mut hash = Sha256::new_with_prefix(prefix);
        stamps.for_each(|stamp| hash.update(stamp.version().0.to_le_bytes()));
        let digest: [u8; 32] = hash.finalize().into();
        let bits = digest.first_chunk().map_or(0, |bits| u64::from_le_bytes(*bits));
        FileVersion(bits | 1)
    }

    /// How the arrays of a shard differ from the index; `None` if the shard holds the arrays in the index unchanged.
    pub(in crate::dataset) fn different_array(&self, group: usize, found: &ShardRows) -> Option<String> {
        let (table, facts) = (self.file.arrays(), self.array_facts());
        let is_whole = !self.is_joined();
        let samples = self.samples_of_group(if is_whole { group } else { 0 });
        let (then, now) = (samples.end - samples.start, found.array_samples);
        if is_whole && now != then {
            return Some(format!("holds {now} samples, but held {then} when it was indexed"));
        }
        for number in table.of_group(group as u32) {
            let Some(known) = table.found(number, &facts) else { continue };
            let name = &known.facts.name;
            let base = self.first_array_file(group);
            let own = found.arrays.iter().find(|array| array.facts.name == *name);
            match own.map(|array| array.clone().moved(base)) {
                None => return Some(format!("has no readable array {name:?} any more")),
                Some(array) if array.shape != known.shape => {
                    let (now, then) = (array.shape, known.shape);
                    return Some(format!(
                        "has the array {name:?} of shape {now:?}, had {then:?} when indexed"
                    ));
                }
                Some(array) if array != known => {
                    let how = self.different_chunk(group, &array, &known).map_or_else(
                        || "in another form".to_owned(),
                        |key| format!("with another length or place of the chunk {key}"),
                    );
                    return Some(format!("has the array {name:?} {how} than when it was indexed"));
                }
                Some(_) => {}
            }
        }
        if self.has_other_files(group, &found.files) {
            return Some("has other chunks than when it was indexed".to_owned());
        }
        let own: Vec<Option<i64>> = match &self.notes.label_column {
            _ if self.notes.unlabeled => Vec::new(),
            _ if is_whole => found.samples.iter().map(|row| Some(row.label.into())).collect(),
            name => {
                let mut columns = found.columns.iter().filter(|column| Some(&column.name) == name.as_ref());
                columns.find_map(|column| column.cells.integers()).unwrap_or_default()
            }
        };
        let differs = |(sample, now): &(u64, Option<i64>)| *now != Some(self.label(*sample).into());
        if let Some((sample, _)) = samples.clone().zip(own).find(differs) {
            return Some(format!("has another label for its sample {sample} than when it was indexed"));
        }
        let column = self.different_column(samples.start, found)?;
        Some(format!("has other values in its column {column:?} than when it was indexed"))
    }

    /// The path of the first file with another chunk; `None` if something else differs, or the shard is that file.
    fn different_chunk(&self, group: usize, now: &ShardArray, then: &ShardArray) -> Option<String> {
        let (ArrayStorage::Grid { cells: now, .. }, ArrayStorage::Grid { cells: then, .. }) =
            (&now.storage, &then.storage)
        else {
            return None;
        };
        let (now, then) = now.iter().zip(then).find(|(now, then)| now != then)?;
        let file = if then.is_absent() { now.file } else { then.file };
        let file = FileId(u32::try_from(group).ok()?.checked_add(file).filter(|_| file > 0)?);
        Some(String::from_utf8_lossy(&self.name_in_source(file)).into_owned())
    }
}
