//! The index of all datasets that a job reads, concatenated to one dataset. Samples and files are numbered
//! consecutively, in the order of the datasets.

mod arrays;
mod blocks;
pub use blocks::BlockCosts;
mod live;
pub use live::StreamSamples;
mod places;
mod samples;
mod versions;

use super::cancel::Cancel;
use super::checks::{check_members, columns_and_members, faulty, refuse_repeated};
use super::classes::Classes;
use super::format::{IndexFile, LoadMembers};
use super::packed::PackedFooter;
use super::part::DatasetPart;
use super::{
    BlockCache, Contents, Extent, FileId, Fingerprint, IndexOptions, IndexOrigin, IndexSummary, SampleAxis,
    class_names, open,
};
use crate::source;
use base::error::{Error, Result};
use base::notices::Notices;
use sha2::{Digest, Sha256};
use std::collections::HashSet;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Extents and labels of all samples, in memory: about 20 bytes per sample, if each sample is a separate file.
pub struct DatasetIndex {
    /// The datasets, in order. There is at least one, except for a stream, which has none.
    parts: Vec<OffsetDataset>,
    classes: Classes,
    samples: u64,
    files: u32,
    notices: Notices,
    /// The names of the members that are read from each sample. Columns are not included. `None` if only the image is
    /// read.
    members: Option<Vec<String>>,
    unpacked: BlockCache,
    /// The samples of a stream, which has no `parts`.
    live: Option<Arc<dyn StreamSamples>>,
}

struct OffsetDataset {
    part: DatasetPart,
    sample: u64,
    file: u32,
}

impl DatasetIndex {
    /// Loads the index of `root`, or builds and stores it.
    ///
    /// `root` is a directory of class directories, a directory of shards, or one shard; see [`super::Contents::Files`]
    /// for files of any kind. If processes start together, the first builds the index and the others wait for it.
    ///
    /// Every start checks whether the dataset still matches its index. It compares the stamps of the root, of all
    /// directories and of all shards, and lists or parses again the directories and shards whose stamp changed.
    /// [`IndexOptions::changed`] decides what happens if the dataset differs.
    ///
    /// # Errors
    /// - [`Error::DatasetChanged`] if the dataset differs from its index and [`IndexOptions::changed`] does not allow
    ///   this;
    /// - [`Error::Dataset`] for a root that does not exist, has no samples or no known layout, for shards that cannot
    ///   be indexed, and for an index directory inside the dataset;
    /// - [`Error::Io`] if a file or directory cannot be read or written.
    pub fn open(root: &Path, options: &IndexOptions) -> Result<Self> {
        let cancel = Cancel::default();
        Self::concatenate(vec![open::open(root, options, &cancel)?], options, &cancel)
    }

    /// Opens several datasets like [`DatasetIndex::open`] and concatenates them in the order of `roots`. If classes
    /// have names, the combined classes are all names in sorted order, and a dataset that has all of these names keeps
    /// its labels. Class numbers without names are kept. With one root, this function does the same as `open`.
    ///
    /// Listing a large dataset takes minutes, so another thread can set `cancel`, for Ctrl-C. The call then fails soon,
    /// also while it waits for another process that builds the index. No partial index remains. An index that already
    /// exists is loaded even after cancellation.
    ///
    /// # Errors
    /// The errors of `open`; [`Error::Dataset`], "indexing was interrupted", after cancellation; [`Error::Config`] if
    /// `roots` is empty; [`Error::Dataset`] for roots that overlap, and for labels that cannot be combined (see
    /// [`DatasetIndex::classes`]).
    pub fn open_all(
        roots: &[impl AsRef<Path>],
        options: &IndexOptions,
        cancel: &Arc<AtomicBool>,
    ) -> Result<Self> {
        let cancel = Cancel::by(cancel);
        refuse_repeated(roots, &cancel, options)?;
        Self::concatenate(
            roots.iter().map(|root| open::open(root.as_ref(), options, &cancel)).collect::<Result<_>>()?,
            options,
            &cancel,
        )
    }

    /// Loads the index file `file` for `root`, without checking `root`.
    ///
    /// # Errors
    /// [`Error::Io`] if the file cannot be read, [`Error::Dataset`] if it is not a valid index file.
    pub fn load(root: &Path, file: &Path) -> Result<Self> {
        Self::concatenate(
            vec![DatasetPart::new(
                &source::shown(root),
                &*source::at(root)?,
                IndexFile::load(file, LoadMembers::All)?,
            )?],
            &IndexOptions::default(),
            &Cancel::default(),
        )
    }

    fn concatenate(mut parts: Vec<DatasetPart>, options: &IndexOptions, cancel: &Cancel) -> Result<Self> {
        if let Some(members) = &options.members {
            check_members(&parts, members, options)?;
        }
        let (columns, mut members) = columns_and_members(&parts, options);
        if members.as_ref().is_some_and(Vec::is_empty) {
            // Parallel directories are packed with all fields.
            members = parts[0].all_directories().or(members);
        }
        let selected = members.as_deref().unwrap_or_default();
        for number in 0..parts.len() {
            let (before, rest) = parts.split_at_mut(number);
            let part = &mut rest[0];
            part.select_columns(&columns);
            part.name_files(selected, options, cancel)?;
            part.store_members(selected, before.first())?;
            part.select(selected)?;
            if !columns.is_empty() {
                part.file.drop_members();
            }
        }
        if let Some((part, fault)) = faulty(&parts).filter(|_| !options.without_labels) {
            return Err(fault.error(&part.root));
        }
        let mut classes = Classes::of(&parts, options.without_labels)?;
        if let Some(names) = &options.class_names {
            classes = classes.numbered_by(names).map_err(|why| {
                let root = parts[0].root.display();
                Error::config(
                    "class_names",
                    format!("numbers classes by their names, but {root} {why}: omit it"),
                )
            })?;
        } else if !options.without_labels
            && let [first, ..] = &parts[..]
        {
            class_names::notify(&classes.names, &first.root, &options.notices);
        }
        let mut index = Self {
            parts: Vec::with_capacity(parts.len()),
            classes,
            samples: 0,
            files: 0,
            notices: options.notices.clone(),
            members,
            unpacked: BlockCache::default(),
            live: None,
        };
        for part in parts {
            let (built, labels) = (part.origin != IndexOrigin::Loaded, !options.without_labels);
            part.notes.notify(&part.root, built, labels, &index.notices);
            let (sample, file) = (index.samples, index.files);
            index.samples += part.len();
            index.files = file.checked_add(part.files()).ok_or_else(|| {
                let message =
                    "has, together with the datasets before it, more than 4 294 967 295 files: pack them into shards";
                Error::dataset(&part.root, message)
            })?;
            index.parts.push(OffsetDataset { part, sample, file });
        }
        Ok(index)
    }

    /// The names of the members that are read from each sample; empty if only the image is read.
    pub fn members(&self) -> &[String] {
        self.members.as_deref().unwrap_or_default()
    }

    /// Messages to the user about the dataset and about reading it.
    pub fn notices(&self) -> &Notices {
        &self.notices
    }

    /// The roots of the datasets as the user named them, in order, each with its range of sample ids.
    pub fn parts(&self) -> impl ExactSizeIterator<Item = (&Path, Range<u64>)> {
        let range = |placed: &OffsetDataset| placed.sample..placed.sample + placed.part.len();
        self.parts.iter().map(move |placed| (placed.part.root.as_path(), range(placed)))
    }

    /// The first dataset's root as the user named it. Errors that are about all datasets name this root.
    pub fn root(&self) -> &Path {
        self.live.as_ref().map_or_else(|| self.parts[0].part.root.as_path(), |live| live.name())
    }

    /// Whether all samples are in shards.
    pub fn is_sharded(&self) -> bool {
        self.parts.iter().all(|placed| placed.part.layout().is_sharded())
    }

    /// What the samples are: images, or files of any kind.
    pub fn contents(&self) -> Contents {
        self.parts.first().map_or(Contents::Images, |placed| placed.part.file.header.contents)
    }

    /// The number of samples.
    pub fn len(&self) -> u64 {
        self.samples
    }

    /// Whether there are no samples. Indexing refuses a dataset without samples, so only the index of a stream is
    /// empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether samples have labels: class directories, or a class number with each image. With several datasets, either
    /// all have labels or none has.
    pub fn is_labeled(&self) -> bool {
        self.classes.labeled
    }

    /// Checks that samples have labels, because `setting` needs them.
    ///
    /// # Errors
    /// [`Error::Config`] for `setting`, with a remedy; [`Error::Dataset`] if labels exist but cannot be used.
    pub fn check_labeled(&self, setting: &'static str) -> Result<()> {
        if self.is_labeled() {
            return Ok(());
        }
        if let Some((part, fault)) = faulty(self.parts.iter().map(|placed| &placed.part)) {
            return Err(fault.error(&part.root));
        }
        let (root, to_label) = (self.root(), self.to_label());
        let message = format!("needs labels, but {} has none: {to_label}", root.display());
        Err(Error::config(setting, message))
    }

    /// The name of a sample with several images, if it is unclear which image is the main one; for a table, the names
    /// of its image columns. `None` if there is no such sample. If there is one, the setting `fields` must name the
    /// image.
    pub fn ambiguous(&self) -> Option<&str> {
        self.parts.iter().find_map(|placed| placed.part.notes.ambiguous.as_deref())
    }

    /// The sample whose bytes are exactly `extent`; `None` if there is no such sample.
    pub fn sample_of(&self, extent: Extent) -> Option<u64> {
        if extent.file.0 >= self.files {
            return None;
        }
        let (placed, file) = self.dataset_of_file(extent.file);
        placed.part.sample_of(Extent { file, ..extent }).map(|sample| placed.sample + sample)
    }

    /// Calls `take` with ranges of samples of these classes, in no particular order. Class directories need no pass
    /// over the other samples; shards need one pass over all samples.
    pub(super) fn each_of_classes(&self, labels: &[u32], mut take: impl FnMut(Range<u64>)) {
        for (number, placed) in self.parts.iter().enumerate() {
            let (part, first) = (&placed.part, placed.sample);
            let own: HashSet<u32> =
                labels.iter().flat_map(|&label| self.classes.in_part(number, label)).collect();
            if part.layout() != super::Layout::Folder {
                let found = (0..part.len()).filter(|&sample| own.contains(&part.label(sample)));
                found.for_each(|sample| take(first + sample..first + sample + 1));
            } else {
                let ranges = own.into_iter().map(|label| part.samples_of_class(label));
                ranges.for_each(|Range { start, end }| take(first + start..first + end));
            }
        }
    }

    /// All files: shards, and files of single samples.
    pub fn files(&self) -> impl Iterator<Item = FileId> + use<> {
        (0..self.files).map(FileId)
    }

    /// Calls `visit` for every file in order, with the file's samples and its path below the root of the dataset. For a
    /// packed dataset, visits the files of the dataset that was packed. The names of these files are read from the
    /// packed shards.
    pub(super) fn each_name(&self, mut visit: impl FnMut(Range<u64>, &[u8])) -> Result<()> {
        self.parts.iter().try_for_each(|OffsetDataset { part, sample, .. }| {
            part.each_name(|samples, path| visit(sample + samples.start..sample + samples.end, path))
        })
    }

    /// Reads the footer of a packed shard; `None` for any other file.
    ///
    /// # Errors
    /// [`Error::Io`] and [`Error::Dataset`] if the shard cannot be read.
    ///
    /// # Panics
    /// Panics if the index has no such file.
    pub fn packed_footer(&self, file: FileId) -> Result<Option<PackedFooter>> {
        let (placed, file) = self.dataset_of_file(file);
        let is_packed = placed.part.layout() == super::Layout::Packed;
        is_packed.then(|| placed.part.packed_footer(file)).transpose()
    }

    /// The path of a sample in messages: that of its file or shard. For a packed shard, the name of the sample before
    /// packing follows, as if the shard were a directory.
    ///
    /// # Panics
    /// Panics if `sample` is not below [`DatasetIndex::len`].
    pub fn shown_path(&self, sample: u64) -> PathBuf {
        if let Some(live) = &self.live {
            return live.shown(sample);
        }
        let placed = self.dataset_of_sample(sample).1;
        placed.part.shown_path(sample - placed.sample)
    }

    /// The key of a sample in a tar shard, for messages; `None` if finding it needs a search.
    pub fn key_in_tar(&self, sample: u64) -> Option<Box<str>> {
        let (part, sample) = self.own_sample(sample)?;
        part.key_in_tar(sample)
    }

    /// Whether each sample has a name: samples are single files, or were single files before packing.
    pub(super) fn has_sample_names(&self) -> bool {
        self.dataset_parts()
            .any(|part| !part.has_shards_of_samples() || part.notes.sample_axis == SampleAxis::File)
    }

    pub(super) fn dataset_parts(&self) -> impl Iterator<Item = &DatasetPart> {
        self.parts.iter().map(|placed| &placed.part)
    }

    pub(super) fn first_part(&self) -> &DatasetPart {
        &self.parts[0].part
    }

    /// The samples of a file, in the order of the file.
    ///
    /// # Panics
    /// Panics if the index has no such file.
    pub fn samples_of(&self, file: FileId) -> Range<u64> {
        let (placed, file) = self.dataset_of_file(file);
        let Range { start, end } = placed.part.samples_of(file);
        placed.sample + start..placed.sample + end
    }

    /// The full path of a file.
    ///
    /// # Panics
    /// Panics if the index has no such file.
    pub fn path(&self, file: FileId) -> PathBuf {
        if let Some(live) = &self.live {
            return live.path(file);
        }
        let (placed, file) = self.dataset_of_file(file);
        placed.part.path(file)
    }

    /// The class names by class number; empty if classes have no names (tar with `.cls`). [`IndexOptions::class_names`]
    /// replaces them.
    ///
    /// Several datasets must all have names, or all numbers, or all no labels. Numbers next to names are refused,
    /// because their meaning is unknown. There is one exception. If all datasets with names have the same names, and
    /// all numbers are below the number of names, the numbers refer to these names. An example is a class directory and
    /// the shards that were made of it. With [`super::Contents::Files`], labels that cannot be combined are dropped.
    pub fn classes(&self) -> &[String] {
        &self.classes.names
    }

    /// The number of classes: the number of names, or else the largest class number plus one; 0 if samples have no
    /// labels.
    pub fn num_classes(&self) -> u32 {
        self.classes.count
    }

    /// The dataset's fingerprint; for several datasets, the hash of their fingerprints in order.
    pub fn fingerprint(&self) -> Fingerprint {
        if let Some(live) = &self.live {
            return live.fingerprint();
        }
        Fingerprint(self.digest(b"foreload datasets 1", |part| part.fingerprint().0))
    }

    /// Digest of the inodes of the datasets' directories or single shards. Unlike the fingerprint, the digest
    /// distinguishes two datasets of equal content. All nodes that share the file system compute the same digest.
    /// Inodes are left out on file systems where they are not stable, such as FUSE. The digest depends on the members
    /// that are read, because cached copies of a sample hold only these members.
    pub fn identity(&self) -> [u8; 32] {
        let roots = self.digest(b"foreload roots 1", DatasetPart::identity);
        let has_members = |p: &OffsetDataset| p.part.members.is_some() || p.part.arrays.is_some();
        let Some(members) = self.members.as_ref().filter(|_| self.parts.iter().any(has_members)) else {
            return roots;
        };
        let mut hash = Sha256::new_with_prefix(match self.has_arrays() {
            true => &b"foreload array record 1"[..],
            false => b"foreload members 1",
        });
        hash.update(roots);
        let mut sorted: Vec<&String> = members.iter().collect();
        sorted.sort_unstable();
        sorted.dedup();
        sorted.iter().for_each(|member| hash.update([member.as_bytes(), b"\n"].concat()));
        hash.finalize().into()
    }

    fn digest(&self, domain: &[u8], of: impl Fn(&DatasetPart) -> [u8; 32]) -> [u8; 32] {
        if let [only] = &self.parts[..] {
            return of(&only.part);
        }
        let mut hash = Sha256::new_with_prefix(domain);
        self.parts.iter().for_each(|placed| hash.update(of(&placed.part)));
        hash.finalize().into()
    }

    /// The size of the largest sample in bytes.
    pub fn largest(&self) -> u32 {
        let largest = self.parts.iter().map(|placed| placed.part.largest()).max();
        largest.or_else(|| Some(self.live.as_ref()?.sizes().0)).unwrap_or(0)
    }

    /// The size of a sample in bytes: the mean, or for a stream the usual size.
    pub fn mean_bytes(&self) -> u64 {
        let usual = self.live.as_ref().map(|live| u64::from(live.sizes().1));
        usual.unwrap_or_else(|| self.total_bytes() / self.len().max(1))
    }

    /// The total size of all samples in bytes.
    pub fn total_bytes(&self) -> u64 {
        self.parts.iter().map(|placed| placed.part.total_bytes()).sum()
    }

    /// The number of reads that fetch all samples: one per sample, and one for each member that is stored far from the
    /// rest of its sample.
    pub fn total_reads(&self) -> u64 {
        self.parts.iter().map(|placed| placed.part.total_reads()).sum()
    }

    /// Whether any sample has a member or a table column with this name.
    pub fn has_member(&self, name: &str) -> bool {
        self.parts.iter().any(|OffsetDataset { part, .. }| {
            part.keys().iter().any(|key| key == name) || part.columns().iter().any(|of| of.name == name)
        })
    }

    /// The facts about each dataset that `foreload index` shows.
    pub fn summaries(&self) -> impl ExactSizeIterator<Item = IndexSummary> {
        self.parts.iter().map(|placed| placed.part.summary())
    }

    /// Returns the dataset of a sample, and the sample's number in it; `None` in a stream.
    pub(super) fn own_sample(&self, sample: u64) -> Option<(&DatasetPart, u64)> {
        let placed = self.live.is_none().then(|| self.dataset_of_sample(sample).1)?;
        Some((&placed.part, sample - placed.sample))
    }

    /// Returns the dataset of a file, and the file's number in it; `None` in a stream.
    fn own_file(&self, file: FileId) -> Option<(&DatasetPart, FileId)> {
        let (placed, file) = self.live.is_none().then(|| self.dataset_of_file(file))?;
        Some((&placed.part, file))
    }

    fn dataset_of_sample(&self, sample: u64) -> (usize, &OffsetDataset) {
        match &self.parts[..] {
            [only] => (0, only),
            parts => {
                assert!(sample < self.samples, "sample {sample} of a dataset of {}", self.samples);
                let number = parts.partition_point(|placed| placed.sample <= sample) - 1;
                (number, &parts[number])
            }
        }
    }

    fn dataset_of_file(&self, file: FileId) -> (&OffsetDataset, FileId) {
        match &self.parts[..] {
            [only] => (only, file),
            parts => {
                assert!(file.0 < self.files, "file {} of {}", file.0, self.files);
                let placed = &parts[parts.partition_point(|placed| placed.file <= file.0) - 1];
                (placed, FileId(file.0 - placed.file))
            }
        }
    }
}

impl OffsetDataset {
    fn global_file(&self, file: FileId) -> FileId {
        FileId(self.file + file.0)
    }
}
