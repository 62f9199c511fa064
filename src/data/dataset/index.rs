//! The index of all datasets that a job reads, as one. Samples and files are numbered consecutively, in the order of
//! the datasets.

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
use super::format::{Beside, IndexFile};
use super::packed::PackedFooter;
use super::part::DatasetPart;
use super::{
    BlockCache, Contents, Extent, FileId, Fingerprint, IndexOptions, IndexOrigin, IndexSummary, class_names,
    open,
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

/// Extents and labels of all samples, in memory: about 20 bytes for each sample that is a loose file.
pub struct DatasetIndex {
    /// The datasets in order: at least one, and none for a stream.
    parts: Vec<OffsetDataset>,
    classes: Classes,
    samples: u64,
    files: u32,
    notices: Notices,
    /// The members that are read of each sample, without columns. `None` if only the image is read.
    members: Option<Vec<String>>,
    unpacked: BlockCache,
    /// The samples of a stream, which has no `parts`.
    live: Option<Arc<dyn StreamSamples>>,
}

/// A dataset and its position in the concatenation.
struct OffsetDataset {
    part: DatasetPart,
    /// The number of its first sample in the concatenation.
    sample: u64,
    /// The number of its first file in the concatenation.
    file: u32,
}

impl DatasetIndex {
    /// Loads the index of `root`, or builds and stores it.
    ///
    /// `root` is a directory of class directories, a directory of shards, or one shard; see [`super::Contents::Files`]
    /// for files of any kind. If processes start together, the first builds the index and the others wait for it.
    ///
    /// Every start checks whether the dataset still matches its index. It compares the stamps of the root, of all
    /// directories and of all shards, and lists or parses again what has another stamp. [`IndexOptions::changed`]
    /// decides what happens if something differs.
    ///
    /// # Errors
    /// - [`Error::DatasetChanged`] if the dataset differs from its index and [`IndexOptions::changed`] refuses that;
    /// - [`Error::Dataset`] for a root that does not exist, has no samples or no known layout, for shards that cannot
    ///   be indexed, and for an index directory inside the dataset;
    /// - [`Error::Io`] if something cannot be read or written.
    pub fn open(root: &Path, options: &IndexOptions) -> Result<Self> {
        let cancel = Cancel::default();
        Self::concatenate(vec![open::open(root, options, &cancel)?], options, &cancel)
    }

    /// Opens several datasets like [`DatasetIndex::open`] and concatenates them in the order of `roots`. If classes
    /// have names, the classes of the whole are all names in sorted order, and a dataset that has all of them keeps its
    /// labels. Class numbers without names are kept. With one root this is the same as `open`.
    ///
    /// Listing a large dataset takes minutes, so another thread can set `cancel`, for Ctrl-C. The call then fails soon,
    /// also while it waits for another process that builds the index. No partial index remains. An index that already
    /// exists is loaded even so.
    ///
    /// # Errors
    /// The errors of `open`; [`Error::Dataset`], "indexing was interrupted", after cancellation; [`Error::Config`] if
    /// there is no root; [`Error::Dataset`] for roots that overlap, and for labels that cannot be combined (see
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
    /// [`Error::Io`] if it cannot be read, [`Error::Dataset`] if it is not a valid index file.
    pub fn load(root: &Path, file: &Path) -> Result<Self> {
        Self::concatenate(
            vec![DatasetPart::new(
                &source::shown(root),
                &*source::at(root)?,
                IndexFile::load(file, Beside::All)?,
            )?],
            &IndexOptions::default(),
            &Cancel::default(),
        )
    }

    fn concatenate(mut parts: Vec<DatasetPart>, options: &IndexOptions, cancel: &Cancel) -> Result<Self> {
        if let Some(members) = &options.members {
            check_members(&parts, members, options)?;
        }
        let (columns, members) = columns_and_members(&parts, options);
        for part in &mut parts {
            part.select_columns(&columns);
            part.name_files(members.as_deref().unwrap_or_default(), options, cancel)?;
            part.select(members.as_deref().unwrap_or_default())?;
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

    /// Messages to the user about the dataset and everything that reads it.
    pub fn notices(&self) -> &Notices {
        &self.notices
    }

    /// The roots of the datasets as the user named them, each with its range of samples, in order.
    pub fn parts(&self) -> impl ExactSizeIterator<Item = (&Path, Range<u64>)> {
        let range = |placed: &OffsetDataset| placed.sample..placed.sample + placed.part.len();
        self.parts.iter().map(move |placed| (placed.part.root.as_path(), range(placed)))
    }

    /// The first dataset's root as the user named it. Errors about all datasets name it.
    pub fn root(&self) -> &Path {
        self.live.as_ref().map_or_else(|| self.parts[0].part.root.as_path(), |live| live.name())
    }

    /// Whether all samples are in shards, each of which holds many.
    pub fn is_sharded(&self) -> bool {
        self.parts.iter().all(|placed| placed.part.layout().is_sharded())
    }

    /// The kind of samples.
    pub fn contents(&self) -> Contents {
        self.parts.first().map_or(Contents::Images, |placed| placed.part.file.header().contents)
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

    /// Whether samples have labels: class directories, or a class number with each image. Of several datasets, either
    /// all have labels or none has.
    pub fn is_labeled(&self) -> bool {
        self.classes.labeled
    }

    /// Checks that samples have labels, because `setting` needs them.
    ///
    /// # Errors
    /// [`Error::Config`] for `setting`, with what to do; [`Error::Dataset`] if labels exist but cannot be used.
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

    /// A sample with several images and no clear main image. `fields` must then name one.
    pub fn ambiguous(&self) -> Option<&str> {
        self.parts.iter().find_map(|placed| placed.part.notes.ambiguous.as_deref())
    }

    /// The sample whose bytes are exactly `extent`; `None` if there is none.
    pub fn sample_of(&self, extent: Extent) -> Option<u64> {
        if extent.file.0 >= self.files {
            return None;
        }
        let (placed, file) = self.part_of(extent.file);
        placed.part.sample_of(Extent { file, ..extent }).map(|sample| placed.sample + sample)
    }

    /// Calls `take` with ranges of samples of these classes, in no particular order. Class directories need no pass
    /// over the other samples; shards need one pass over all.
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

    /// All files: shards, and loose files of samples.
    pub fn files(&self) -> impl Iterator<Item = FileId> + use<> {
        (0..self.files).map(FileId)
    }

    /// Calls `visit` for every file in order, with its samples and its path below its dataset's root. For a packed
    /// dataset these are the files of its source. Their names are read from the packed shards.
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
    /// Panics if there is no such file.
    pub fn packed_footer(&self, file: FileId) -> Result<Option<PackedFooter>> {
        let (placed, file) = self.part_of(file);
        let is_packed = placed.part.layout() == super::Layout::Packed;
        is_packed.then(|| placed.part.packed_footer(file)).transpose()
    }

    /// The path by which messages name a sample: its file or shard. For a packed shard, the name of the sample before
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

    /// The key of a sample in a tar shard, for messages; `None` if only a search would find it.
    pub fn key_in_tar(&self, sample: u64) -> Option<Box<str>> {
        let placed = self.live.is_none().then(|| self.dataset_of_sample(sample).1)?;
        placed.part.key_in_tar(sample - placed.sample)
    }

    /// Whether samples are loose files, or were before packing, so that each has a name.
    pub(super) fn has_sample_names(&self) -> bool {
        !self.parts.iter().all(|placed| placed.part.has_shards_of_samples())
    }

    /// The datasets, in order.
    pub(super) fn dataset_parts(&self) -> impl Iterator<Item = &DatasetPart> {
        self.parts.iter().map(|placed| &placed.part)
    }

    /// The first of the datasets.
    pub(super) fn first_part(&self) -> &DatasetPart {
        &self.parts[0].part
    }

    /// The samples of a file, in their order in the file.
    ///
    /// # Panics
    /// Panics if the index has no such file.
    pub fn samples_of(&self, file: FileId) -> Range<u64> {
        let (placed, file) = self.part_of(file);
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
        let (placed, file) = self.part_of(file);
        placed.part.path(file)
    }

    /// The class names by number; empty if there are only numbers (tar with `.cls`). [`IndexOptions::class_names`]
    /// replaces them.
    ///
    /// Several datasets must all have names, or all numbers, or all no labels. Numbers next to names are refused,
    /// because their meaning is unknown. There is one exception: if all datasets with names have the same names, and
    /// the numbers are below their count, the numbers stand for these names. Shards made of such a directory have such
    /// numbers. With [`super::Contents::Files`], labels that cannot be combined are dropped.
    pub fn classes(&self) -> &[String] {
        &self.classes.names
    }

    /// The number of classes: the number of names, or else the largest class number plus one; 0 if samples have no
    /// labels.
    pub fn num_classes(&self) -> u32 {
        self.classes.count
    }

    /// The dataset's fingerprint; for several datasets, the hash of theirs in order.
    pub fn fingerprint(&self) -> Fingerprint {
        if let Some(live) = &self.live {
            return live.fingerprint();
        }
        Fingerprint(self.digest(b"foreload datasets 1", |part| part.fingerprint().0))
    }

    /// Digest of the inodes of the datasets' directories or single shards. Unlike the fingerprint, it distinguishes two
    /// datasets of equal content. It is the same on all nodes that share the file system. Inodes are left out where
    /// they do not persist, as on FUSE. The digest depends on the members that are read, because cached copies of a
    /// sample hold only these.
    pub fn identity(&self) -> [u8; 32] {
        let roots = self.digest(b"foreload roots 1", DatasetPart::identity);
        let Some(members) =
            self.members.as_ref().filter(|_| self.parts.iter().any(|p| p.part.members.is_some()))
        else {
            return roots;
        };
        let mut hash = Sha256::new_with_prefix(b"foreload members 1");
        hash.update(roots);
        let mut sorted: Vec<&String> = members.iter().collect();
        sorted.sort_unstable();
        sorted.dedup();
        sorted.iter().for_each(|member| hash.update([member.as_bytes(), b"\n"].concat()));
        hash.finalize().into()
    }

    /// The digest of a single dataset, or the hash of the digests of several.
    fn digest(&self, domain: &[u8], of: impl Fn(&DatasetPart) -> [u8; 32]) -> [u8; 32] {
        if let [only] = &self.parts[..] {
            return of(&only.part);
        }
        let mut hash = Sha256::new_with_prefix(domain);
        self.parts.iter().for_each(|placed| hash.update(of(&placed.part)));
        hash.finalize().into()
    }

    /// The number of bytes of the largest sample.
    pub fn largest(&self) -> u32 {
        let largest = self.parts.iter().map(|placed| placed.part.largest()).max();
        largest.or_else(|| Some(self.live.as_ref()?.sizes().0)).unwrap_or(0)
    }

    /// The number of bytes of a sample: the mean, or for a stream the usual size.
    pub fn mean_bytes(&self) -> u64 {
        let usual = self.live.as_ref().map(|live| u64::from(live.sizes().1));
        usual.unwrap_or_else(|| self.total_bytes() / self.len().max(1))
    }

    /// The number of bytes of all samples.
    pub fn total_bytes(&self) -> u64 {
        self.parts.iter().map(|placed| placed.part.total_bytes()).sum()
    }

    /// The number of reads of all samples: one for each, and one for each member that is stored elsewhere in its shard.
    pub fn total_reads(&self) -> u64 {
        self.parts.iter().map(|placed| placed.part.total_reads()).sum()
    }

    /// Whether some sample has a member or a table column of this name.
    pub fn has_member(&self, name: &str) -> bool {
        self.parts.iter().any(|OffsetDataset { part, .. }| {
            part.keys().iter().any(|key| key == name) || part.columns().iter().any(|of| of.name == name)
        })
    }

    /// The facts that `foreload index` shows of each dataset.
    pub fn summaries(&self) -> impl ExactSizeIterator<Item = IndexSummary> {
        self.parts.iter().map(|placed| placed.part.summary())
    }

    /// The dataset that has `sample`, and its number among the datasets.
    fn dataset_of_sample(&self, sample: u64) -> (usize, &OffsetDataset) {
        match &self.parts[..] {
            // This is the usual case. It needs no search.
            [only] => (0, only),
            parts => {
                assert!(sample < self.samples, "sample {sample} of a dataset of {}", self.samples);
                let number = parts.partition_point(|placed| placed.sample <= sample) - 1;
                (number, &parts[number])
            }
        }
    }

    /// The dataset that has `file`, and the file's number there.
    fn part_of(&self, file: FileId) -> (&OffsetDataset, FileId) {
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
    /// Converts the number of one of the dataset's files to the number in the concatenation.
    fn whole(&self, file: FileId) -> FileId {
        FileId(self.file + file.0)
    }
}
