//! One dataset of an index: everything below one root. In this module, samples and files are numbered from 0. Values
//! from the index file are clamped: a damaged file can give wrong results, but no access out of bounds.

mod arrays;
mod blocks;
mod chunk_files;
mod named_files;
mod remote;
mod stamps;
mod stored_members;

use super::arrays::ArraySelection;
use super::cells::ColumnCells;
use super::format::{
    GROUP_PREFIX, GROUP_ROW, GROUP_SUFFIX, GroupEnd, IndexFile, STAMP_ROW, Section, stamp_at, u32_at, u64_at,
};
use super::layouts::ShardReadOptions;
use super::selected_members::MemberSelection;
use super::summary;
use super::{BadShards, Extent, FileId, FileVersion, Fingerprint, IndexOrigin, Layout, Notes, Stamp};
use crate::source::DatasetSource;
use base::error::{Error, Result};
use base::parts::RawHeaderSummary;
use chunk_files::ChunkFiles;
use named_files::NamedFiles;
use sha2::{Digest, Sha256};
use std::collections::{HashMap, HashSet};
use std::ffi::OsString;
use std::ops::Range;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, RwLock};

/// A dataset: its index file and its source. Methods panic if a sample or file number is out of range, as
/// [`super::DatasetIndex`] documents.
pub(super) struct DatasetPart {
    /// The root as the user named it.
    pub(super) root: PathBuf,
    /// The source of the dataset. It uses an absolute path, so that a later change of the working directory has no
    /// effect.
    pub(super) source: Arc<dyn DatasetSource>,
    pub(super) has_remote: bool,
    pub(super) base: PathBuf,
    pub(super) file: IndexFile,
    pub(super) notes: Notes,
    pub(super) origin: IndexOrigin,
    pub(super) seconds: f64,
    pub(super) split: Option<String>,
    /// The label column, member or key, and the directory of images, that the user named.
    pub(super) label_asked: Option<String>,
    pub(super) images_asked: Option<String>,
    pub(super) bad_shards: BadShards,
    /// Whether inode numbers are stable on the file system of the dataset. Otherwise stamps are compared without them.
    pub(super) inodes: bool,
    /// The new stamps of shards that were rewritten during the run but still hold the same samples.
    accepted_stamps: RwLock<HashMap<usize, Stamp>>,
    any_accepted: AtomicBool,
    /// Locked while a thread checks a shard whose stamp changed.
    pub(super) accepting: Mutex<()>,
    /// The members that are read from each sample; `None` if only the image is read.
    pub(super) members: Option<MemberSelection>,
    /// The arrays that are read of each sample, in a layout of arrays.
    pub(super) arrays: Option<ArraySelection>,
    named_files: Vec<NamedFiles>,
    chunk_files: Vec<ChunkFiles>,
    /// The number of groups that are shards. The groups after them belong to shards.
    shards: usize,
    /// The version of all files of the selected arrays, if none has changed since the index was opened.
    array_version: RwLock<Option<FileVersion>>,
    pub(super) selected_columns: Vec<ColumnCells<'static>>,
    stored_members: Vec<stored_members::StoredMember>,
    /// The indices of a shard's samples, sorted by image offset. Only shards of tables whose samples are not in this
    /// order have an entry.
    image_order: HashMap<u32, Vec<u32>>,
    /// The shards whose samples differ from the index, if the user keeps the index anyway. Reading these shards fails.
    pub(super) changed_shards: HashSet<usize>,
}

/// Maximum offset of an extent. With this limit, offset plus length never exceeds `i64::MAX`, even if the index is
/// damaged.
pub(super) const MAX_OFFSET: u64 = i64::MAX as u64 - u32::MAX as u64;

impl DatasetPart {
    pub(super) fn new(root: &Path, source: &dyn DatasetSource, file: IndexFile) -> Result<Self> {
        let source = source.with_absolute_path()?;
        let base = source.path(&[]);
        let notes = serde_json::from_slice(file.section(Section::Notes)).map_err(|error| {
            Error::dataset(&file.path, format!("not a usable index file: its notes are not JSON: {error}"))
        })?;
        let mut part = Self {
            root: root.to_path_buf(),
            has_remote: source.is_remote(),
            source,
            base,
            inodes: file.header.root.inode != 0,
            file,
            notes,
            origin: IndexOrigin::Loaded,
            seconds: 0.0,
            split: None,
            label_asked: None,
            images_asked: None,
            bad_shards: BadShards::default(),
            accepted_stamps: RwLock::default(),
            any_accepted: AtomicBool::default(),
            accepting: Mutex::default(),
            members: None,
            arrays: None,
            named_files: Vec::new(),
            chunk_files: Vec::new(),
            shards: 0,
            array_version: RwLock::default(),
            selected_columns: Vec::new(),
            stored_members: Vec::new(),
            image_order: HashMap::new(),
            changed_shards: HashSet::new(),
        };
        part.has_remote |= part.notes.on_servers;
        part.chunk_files = part.find_chunk_files();
        part.shards = part.find_shards();
        if part.groups() as u64 + part.chunk_file_numbers() > u64::from(u32::MAX) {
            let message =
                "has more than 4 294 967 295 chunks: choose fewer arrays with fields=, or write shards";
            return Err(Error::dataset(root, message));
        }
        if part.layout().is_table() && part.layout().is_sharded() && !part.layout().is_array() {
            part.image_order = part.orders_of_images();
        }
        Ok(part)
    }

    fn place(&self, sample: u64) -> u64 {
        u64_at(self.file.section(Section::Places), 8 * sample as usize).min(MAX_OFFSET)
    }

    fn orders_of_images(&self) -> HashMap<u32, Vec<u32>> {
        let mut orders = HashMap::new();
        for group in 0..self.groups() {
            let offsets: Vec<u64> = self.samples_of_group(group).map(|sample| self.place(sample)).collect();
            orders.extend(order(&offsets).map(|order| (group as u32, order)));
        }
        orders
    }

    pub(super) fn layout(&self) -> Layout {
        self.file.header.layout
    }

    /// Whether samples are in shards, or were in shards before packing.
    pub(super) fn has_shards_of_samples(&self) -> bool {
        self.notes.packed_of.unwrap_or(self.layout()).is_sharded()
    }

    /// Whether samples are rows of tables, or were rows of tables before packing.
    pub(super) fn is_table(&self) -> bool {
        self.notes.packed_of.unwrap_or(self.layout()).is_table()
    }

    pub(super) fn len(&self) -> u64 {
        self.file.header.samples
    }

    pub(super) fn files(&self) -> u32 {
        if self.layout().is_sharded() {
            return (self.groups() as u64 + self.chunk_file_numbers()) as u32;
        }
        (self.len() * (1 + self.named_files.len() as u64)) as u32
    }

    pub(super) fn label(&self, sample: u64) -> u32 {
        // Clamp the label, as in `extent`: a damaged index can give a wrong label, but must not cause a panic in the
        // caller.
        self.column(Section::Labels, sample).min(self.num_classes().saturating_sub(1))
    }

    /// The samples of the class `label` in a dataset of loose files. Loose files are sorted by class.
    pub(super) fn samples_of_class(&self, label: u32) -> Range<u64> {
        let first = |above: u64| search(0, self.len(), |sample| u64::from(self.label(sample)) < above);
        let label = u64::from(label);
        first(label)..first(label + 1)
    }

    /// The bytes that the first read of a sample fetches. Some members need a separate read after it.
    pub(super) fn extent(&self, sample: u64) -> Extent {
        match &self.members {
            None => self.image(sample),
            Some(members) => self.read_extent(members, sample),
        }
    }

    /// The extent of a sample's image, or of the member that replaces a missing image.
    pub(super) fn image(&self, sample: u64) -> Extent {
        if self.layout().is_array() {
            return self.record_extent(sample);
        }
        let length = self.column(Section::Lengths, sample).min(self.file.header.largest);
        if self.layout().is_sharded() {
            Extent { file: FileId(self.group_of(sample) as u32), offset: self.place(sample), length }
        } else {
            Extent { file: FileId(sample as u32), offset: 0, length }
        }
    }

    /// Whether a sample's image, or the member that replaces a missing image, is packed in its shard.
    pub(super) fn has_packed_image(&self, sample: u64) -> bool {
        self.stored_header_summary(sample)
            .is_some_and(|header_summary| *header_summary != RawHeaderSummary::default())
    }

    /// The header summary (`RawHeaderSummary`) of a sample's first member. All zeros if this member is not packed.
    pub(super) fn stored_header_summary(&self, sample: u64) -> Option<&RawHeaderSummary> {
        self.file.section(Section::HeaderSummaries).as_chunks().0.get(sample as usize)
    }

    /// The header summary of a sample's packed image, if the first read fetches only the image.
    pub(super) fn header_summary(&self, sample: u64) -> Option<&RawHeaderSummary> {
        let header_summary = self.stored_header_summary(sample)?;
        let is_packed = self.has_packed_image(sample);
        (is_packed && (self.members.is_none() || self.extent(sample) == self.image(sample)))
            .then_some(header_summary)
    }

    pub(super) fn sample_of(&self, extent: Extent) -> Option<u64> {
        let sample = if self.layout().is_array() {
            self.sample_of_record(extent)?
        } else if self.layout().is_sharded() {
            let Range { start, end } = self.samples_of(extent.file);
            match &self.members {
                Some(members) => self.sample_with(members, start..end, extent)?,
                // If the samples of a shard are not sorted by image offset, `image_order` has their order by image
                // offset.
                None => self.sample_with_image(start..end, extent),
            }
        } else {
            u64::from(extent.file.0)
        };
        (sample < self.len() && self.extent(sample) == extent).then_some(sample)
    }

    /// The sample in `samples` whose image has this `extent`; `samples.end` if there is none. All `samples` must be in
    /// the same shard.
    fn sample_with_image(&self, samples: Range<u64>, extent: Extent) -> u64 {
        let Range { start, end } = samples;
        let count = end - start;
        let sample = |number: u64| match self.image_order.get(&extent.file.0) {
            Some(order) => start + u64::from(order[number as usize]),
            None => start + number,
        };
        let first = search(0, count, |number| self.image(sample(number)).offset < extent.offset);
        // An empty image can begin at the same offset as another image.
        let here = (first..count).take_while(|&number| self.image(sample(number)).offset == extent.offset);
        let found = here.map(sample).find(|&sample| self.image(sample) == extent);
        found.unwrap_or(end)
    }

    pub(super) fn largest(&self) -> u32 {
        let largest = self.arrays.as_ref().map(|arrays| arrays.largest);
        let largest = largest.or_else(|| Some(self.members.as_ref()?.largest));
        largest.unwrap_or(self.file.header.largest)
    }

    pub(super) fn total_bytes(&self) -> u64 {
        let total = self.arrays.as_ref().map(|arrays| arrays.total);
        let total = total.or_else(|| Some(self.members.as_ref()?.total));
        total.unwrap_or(self.file.header.total_bytes)
    }

    pub(super) fn total_reads(&self) -> u64 {
        if let Some(arrays) = &self.arrays {
            return arrays.reads;
        }
        self.len() + self.members.as_ref().map_or(0, |members| members.separate_reads)
    }

    pub(super) fn samples_of(&self, file: FileId) -> Range<u64> {
        if self.layout().is_sharded() {
            if self.is_group(file) { self.samples_of_group(file.0 as usize) } else { 0..0 }
        } else {
            // Files that a manifest column names in addition to the samples' own files are not samples.
            let [start, end] = [0, 1].map(|more| (u64::from(file.0) + more).min(self.len()));
            start..end
        }
    }

    pub(super) fn path(&self, file: FileId) -> PathBuf {
        if self.layout().is_sharded() {
            return self.source.path(&self.name_in_source(file));
        }
        if let Some(name) = self.named_file(file) {
            return self.source.path(&name);
        }
        let sample = u64::from(file.0);
        let group = self.group_of(sample);
        let (directory, prefix, suffix) = self.group_parts(group);
        let name = self.name(group, sample);
        if self.layout() == Layout::Manifest {
            return self.source.path(&[prefix, name, suffix].concat());
        }
        // Files in the root itself have no directory part.
        let slash: &[u8] = if directory.is_empty() { b"" } else { b"/" };
        // Allocate only once, because this code runs for each sample on the read path.
        let parts = [self.base.as_os_str().as_bytes(), slash, directory, b"/", prefix, name, suffix].concat();
        PathBuf::from(OsString::from_vec(parts))
    }

    /// The stored part of a sample's file name: without the prefix and suffix that all names in the directory share.
    fn name(&self, group: usize, sample: u64) -> &[u8] {
        let names = self.section_of(group, GroupEnd::Names, Section::Names);
        let end = |sample| self.column(Section::Places, sample) as usize;
        let first = sample == self.group_start(group, GroupEnd::Samples);
        let start = if first { 0 } else { end(sample - 1) };
        names.get(start..end(sample)).unwrap_or_default()
    }

    /// Calls `visit` for every file in order, with the file's samples and its path below the root. If the root itself
    /// is a shard, the path is the file name of the shard. For a packed dataset, visits the files of the dataset that
    /// was packed.
    pub(super) fn each_name(&self, mut visit: impl FnMut(Range<u64>, &[u8])) -> Result<()> {
        if self.layout() == Layout::Packed {
            return self.each_packed_name(visit);
        }
        let mut path = Vec::new();
        for group in 0..self.groups() {
            let (directory, prefix, suffix) = self.group_parts(group);
            if self.layout().is_sharded() {
                visit(self.samples_of_group(group), self.shard_name(group));
                continue;
            }
            for sample in self.samples_of_group(group) {
                path.clear();
                path.extend(directory);
                if !directory.is_empty() {
                    path.push(b'/');
                }
                [prefix, self.name(group, sample), suffix].iter().for_each(|bytes| path.extend(*bytes));
                visit(sample..sample + 1, &path);
            }
        }
        Ok(())
    }

    fn shard_name(&self, group: usize) -> &[u8] {
        let own = || self.base.file_name().unwrap_or_default().as_bytes();
        Some(self.group_path(group)).filter(|path| !path.is_empty()).unwrap_or_else(own)
    }

    /// The name by which `source` opens a file; empty if the root itself is the shard.
    pub(super) fn name_in_source(&self, file: FileId) -> Vec<u8> {
        if self.layout().is_sharded() {
            return self.chunk_file(file).unwrap_or_else(|| self.group_path(file.0 as usize).to_vec());
        }
        self.name_below(file)
    }

    /// A file's path below the root; its file name if the root is this file.
    pub(super) fn name_below(&self, file: FileId) -> Vec<u8> {
        if self.layout().is_sharded() {
            return self.chunk_file(file).unwrap_or_else(|| self.shard_name(file.0 as usize).to_vec());
        }
        if let Some(name) = self.named_file(file) {
            return name;
        }
        if self.layout() == Layout::Manifest {
            let group = self.group_of(u64::from(file.0));
            let (_, prefix, suffix) = self.group_parts(group);
            return [prefix, self.name(group, u64::from(file.0)), suffix].concat();
        }
        let path = self.path(file);
        path.strip_prefix(&self.base).unwrap_or(&path).as_os_str().as_bytes().to_vec()
    }

    pub(super) fn class_names(&self) -> Vec<&[u8]> {
        summary::class_names(self.file.section(Section::Classes))
    }

    pub(super) fn reading(&self) -> ShardReadOptions {
        ShardReadOptions {
            kept_texts: self.notes.kept_texts.clone(),
            every_stem: self.notes.every_stem,
            label: self.label_asked.clone(),
            images: self.images_asked.clone(),
            not_labels: self.notes.not_labels.clone(),
            sample_axis: self.notes.sample_axis,
            arrays: self.notes.chosen_arrays.clone(),
            optional: self.notes.optional_arrays.clone(),
            largest_array: self.notes.largest_array.clone(),
        }
    }

    /// Whether the names of classes are names of directories or tars. These names are sorted like file names.
    pub(super) fn has_classes_of_files(&self) -> bool {
        let layout = self.notes.packed_of.unwrap_or(self.layout());
        matches!(layout, Layout::Folder | Layout::TarOfTars)
    }

    pub(super) fn num_classes(&self) -> u32 {
        self.file.header.classes
    }

    pub(super) fn fingerprint(&self) -> Fingerprint {
        Fingerprint(self.file.header.fingerprint)
    }

    /// A digest that identifies the root, which is a directory or a single shard, at the time of indexing. The digest
    /// covers the inode of a local root, or the name of a root on a server.
    pub(super) fn identity(&self) -> [u8; 32] {
        // If inodes are not stable, the domain still distinguishes a packed dataset from its source. Both have the same
        // fingerprint.
        let domain: &[u8] = match self.layout() {
            Layout::Packed => b"foreload packed root 1",
            _ => b"foreload root 1",
        };
        let hash = Sha256::new_with_prefix(domain);
        match self.is_remote() {
            true => hash.chain_update(self.file.section(Section::Root)).finalize().into(),
            false => hash.chain_update(self.root_stamp().inode.to_le_bytes()).finalize().into(),
        }
    }

    fn column(&self, section: Section, sample: u64) -> u32 {
        assert!(sample < self.len(), "sample {sample} of a dataset of {}", self.len());
        u32_at(self.file.section(section), 4 * sample as usize)
    }

    fn group_of(&self, sample: u64) -> usize {
        assert!(sample < self.len(), "sample {sample} of a dataset of {}", self.len());
        search(0, self.groups() as u64, |group| {
            self.group_start(group as usize + 1, GroupEnd::Samples) <= sample
        }) as usize
    }

    /// The start of a group in the list of samples, in the bytes of all paths, or in the bytes of all names. This is
    /// the end of the previous group.
    fn group_start(&self, group: usize, of: GroupEnd) -> u64 {
        match group.checked_sub(1) {
            None => 0,
            Some(before) => u64_at(self.file.section(Section::Groups), GROUP_ROW * before + 8 * of as usize),
        }
    }

    fn section_of(&self, group: usize, of: GroupEnd, section: Section) -> &[u8] {
        let bytes = self.file.section(section);
        let end = (self.group_start(group + 1, of) as usize).min(bytes.len());
        &bytes[(self.group_start(group, of) as usize).min(end)..end]
    }

    /// A group's path below the root, and the prefix and the suffix that all names in the group share.
    fn group_parts(&self, group: usize) -> (&[u8], &[u8], &[u8]) {
        assert!(group < self.groups(), "file {group} of {}", self.groups());
        let row = self.file.section(Section::Groups);
        let affix = |at| u32_at(row, GROUP_ROW * group + at) as usize;
        let path = self.section_of(group, GroupEnd::Paths, Section::Paths);
        let (path, suffix) = path.split_at(path.len().saturating_sub(affix(GROUP_SUFFIX)));
        let (path, prefix) = path.split_at(path.len().saturating_sub(affix(GROUP_PREFIX)));
        (path, prefix, suffix)
    }

    pub(super) fn groups(&self) -> usize {
        self.file.header.groups as usize
    }

    pub(super) fn group_path(&self, group: usize) -> &[u8] {
        self.group_parts(group).0
    }

    pub(super) fn group_stamp(&self, group: usize) -> Stamp {
        stamp_at(self.file.section(Section::Stamps), STAMP_ROW * group)
    }

    pub(super) fn samples_of_group(&self, group: usize) -> Range<u64> {
        self.group_start(group, GroupEnd::Samples)..self.group_start(group + 1, GroupEnd::Samples)
    }

    pub(super) fn files_of(&self, group: usize) -> impl Iterator<Item = (Vec<u8>, u32)> {
        let (_, prefix, suffix) = self.group_parts(group);
        let name = move |sample| [prefix, self.name(group, sample), suffix].concat();
        self.samples_of_group(group).map(move |sample| (name(sample), self.column(Section::Lengths, sample)))
    }
}

/// The indices of `offsets`, sorted by offset; `None` if the offsets are already sorted.
pub(super) fn order(offsets: &[u64]) -> Option<Vec<u32>> {
    if offsets.is_sorted() {
        return None;
    }
    let mut order: Vec<u32> = (0..offsets.len() as u32).collect();
    order.sort_by_key(|&number| offsets[number as usize]);
    Some(order)
}

/// Binary search for the first number in `low..high` for which `before` is false; `high` if there is none. `before`
/// must be true for all smaller numbers, and false for all larger ones.
pub(super) fn search(mut low: u64, mut high: u64, before: impl Fn(u64) -> bool) -> u64 {
    while low < high {
        let middle = low.midpoint(high);
        if before(middle) { low = middle + 1 } else { high = middle }
    }
    low
}
