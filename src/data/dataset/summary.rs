//! What was found while a dataset was listed, and the summary of an index, for display and for `--json`.

use super::below::shard_layout;
use super::layouts::Layout;
use super::left_out::{SkipCost, SkipReason};
use super::part::DatasetPart;
use super::places::SkippedByReason;
use super::zarr::ChunkKeys;
use super::{BadShard, Contents, DirectoryField, FieldKind, SampleAxis};
use crate::source::RequestCounts;
use base::error::Error;
use base::notices::{NoticeKind, Notices};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// How an index was obtained.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase", tag = "origin", content = "because")]
pub enum IndexOrigin {
    /// The index was loaded from a file that an earlier start wrote.
    Loaded,
    /// The index was built now. The string is the reason: no index existed, a rebuild was requested, or the old index
    /// was not usable.
    Built(String),
}

/// Files that were skipped for one reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Skipped {
    /// The number of files.
    pub count: u64,
    /// The name of one of the files, as an example.
    pub example: String,
    /// The cost of skipping these files.
    pub loss: SkipCost,
}

/// What was found while the dataset was listed. It is stored in the index.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Notes {
    /// Skipped files, by reason.
    pub skipped: SkippedByReason,
    /// The files of `skipped` by place: the root, or the path of a directory.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) places: BTreeMap<String, SkippedByReason>,
    /// The class directories without images. They keep their class numbers.
    pub empty_classes: Vec<String>,
    /// Whether no sample has a label, or the labels cannot be used.
    pub unlabeled: bool,
    /// Why existing labels cannot be used.
    pub label_fault: Option<LabelFault>,
    /// Whether every stem of the shards is a sample, with or without an image.
    #[serde(default)]
    pub every_stem: bool,
    /// The columns of tables from which the index keeps all strings.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kept_texts: Vec<String>,
    /// The label column of a table; in tar shards, the member or key that the user named as the label.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label_column: Option<String>,
    /// The columns of tables whose values cannot be labels, with the reasons.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub not_labels: BTreeMap<String, String>,
    /// An unlabelled image inside a directory of a tar shard. In datasets of loose files, such directories are classes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_directory: Option<String>,
    /// Whether no sample has an image.
    #[serde(default)]
    pub imageless: bool,
    /// The name of a sample with several images and no clear main image.
    pub ambiguous: Option<String>,
    /// The column of a table that holds the samples' images.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// Whether any sample of a table has no image.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub images_missing: bool,
    /// Whether the smallest label of a table is 1.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub labels_from_one: bool,
    /// A description of missing or contradictory shards, if the part numbers in their names show any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub incomplete: Option<String>,
    /// The shards that could not be read, sorted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub bad_shards: Vec<BadShard>,
    /// Whether a manifest names files on servers. Such files are read by requests.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub on_servers: bool,
    /// Whether the URLs of a manifest contain secrets. The index does not store secrets, so the manifest is read at
    /// every start.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub secrets: bool,
    /// What one sample of a dataset of arrays is.
    #[serde(default, skip_serializing_if = "is_axis0")]
    pub sample_axis: SampleAxis,
    /// The fields for which a dataset of arrays was indexed. Depending on the layout, the index has only these, or all
    /// arrays with as many rows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chosen_arrays: Option<Vec<String>>,
    /// Those of the fields that shards may lack.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) optional_arrays: Vec<String>,
    /// Without chosen fields, the array whose rows are the samples of all shards.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) largest_array: Option<String>,
    /// The arrays whose chunks are files of their own, by the paths of their shards, and how these files are named.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) chunk_keys: BTreeMap<String, ChunkKeys>,
    /// For parallel directories, the fields in the order of [`IndexOptions::parallel`](super::IndexOptions::parallel).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) parallel: Vec<DirectoryField>,
    /// For a packed dataset, the layout of the dataset that was packed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub packed_of: Option<Layout>,
}

/// Reason why the labels of a dataset cannot be used. The fault is an error only for loaders that need labels.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LabelFault {
    /// The path of the shard, relative to the root; empty if the root itself is the shard.
    shard: String,
    message: String,
}

impl LabelFault {
    pub(super) fn new(shard: &[u8], message: String) -> Self {
        Self { shard: String::from_utf8_lossy(shard).into_owned(), message }
    }

    /// Converts the fault for a packed dataset, where the shards of the source no longer exist: moves the name of the
    /// shard into the message.
    pub(super) fn of_packed(self) -> Self {
        let Self { shard, message } = self;
        let place = if shard.is_empty() { String::new() } else { format!("{shard} in the source: ") };
        Self { shard: String::new(), message: format!("{place}{message}") }
    }

    pub(super) fn is_of(&self, shard: &[u8]) -> bool {
        self.shard == String::from_utf8_lossy(shard)
    }

    /// The message about the shard's first sample without a usable label.
    pub fn message(&self) -> &str {
        &self.message
    }

    pub(super) fn error(&self, root: &Path) -> Error {
        let shard = if self.shard.is_empty() { root.to_path_buf() } else { root.join(&self.shard) };
        Error::dataset(shard, self.message.clone())
    }
}

fn is_axis0(axis: &SampleAxis) -> bool {
    *axis == SampleAxis::Axis0
}

const REASONS_NAMED: usize = 5;
const LONGEST_EXAMPLE: usize = 120;

impl Notes {
    /// Whether each chunk of the array of the shard with this path is a file.
    pub(super) fn has_chunk_files(&self, path: &[u8]) -> bool {
        !self.chunk_keys.is_empty() && self.chunk_keys.contains_key(&*String::from_utf8_lossy(path))
    }

    pub(super) fn skip(&mut self, what: SkipReason, example: impl FnOnce() -> String) {
        self.skip_all(what, 1, example);
    }

    pub(super) fn skip_all(&mut self, what: SkipReason, count: u64, example: impl FnOnce() -> String) {
        if count > 0 {
            let (loss, words) = what.facts();
            let skipped = || Skipped { count: 0, example: example(), loss };
            self.skipped.entry(words.into_owned()).or_insert_with(skipped).count += count;
        }
    }

    /// Records a sample with several images. Keeps the first sample by name, independent of the order of calls.
    pub(super) fn record_ambiguous(&mut self, stem: String) {
        self.ambiguous = Some(self.ambiguous.take().map_or(stem.clone(), |known| known.min(stem)));
    }

    pub(super) fn explain(&self, missing: &str) -> String {
        let is_array =
            |name: &str| shard_layout(name.as_bytes(), Contents::Images).is_some_and(Layout::is_array);
        let mut examples = self.skipped.values().map(|skipped| skipped.example.as_str());
        if let Some(name) = examples.find(|name| name.contains('/') && is_array(name)) {
            return format!(
                "{missing}; found: files of arrays in directories, which are not searched, such as {name}: open a \
                 directory of arrays, or several as a list"
            );
        }
        match named(self.skipped.iter()) {
            found if found.is_empty() => missing.to_owned(),
            found => format!("{missing}; found: {found}"),
        }
    }

    /// Reports to the user which files of the dataset at `root` are not read. If `just_indexed`, also reports labels
    /// that cannot be used, even if no labels are needed. If `labels` (the dataset's own labels are needed), also
    /// reports tables that possibly hold labels.
    pub(super) fn notify(&self, root: &Path, just_indexed: bool, labels: bool, notices: &Notices) {
        let of = |wanted| named(self.skipped.iter().filter(move |(_, skipped)| skipped.loss == wanted));
        let root = root.display();
        let warn = |message: String| notices.notify(NoticeKind::Warning, message);
        let inform = |message: String| notices.notify(NoticeKind::Information, message);
        let (samples, beside) = (of(SkipCost::Sample), of(SkipCost::Beside));
        if !samples.is_empty() {
            warn(format!(
                "{root}: left out: {samples}; convert, repair or remove them; `foreload index {root}` lists all"
            ));
        }
        if let Some(why) = &self.incomplete {
            warn(format!("{root}: judging by the names of its shards, it {why}"));
        }
        if let Some(LabelFault { message, .. }) = self.label_fault.as_ref().filter(|_| just_indexed) {
            let all = of(SkipCost::Label);
            let all = if all.is_empty() { all } else { format!("; {all}") };
            warn(format!(
                "{root}: its samples are treated as unlabelled: {message}{all}; a loader that needs labels fails with \
                 this message"
            ));
        }
        let (_, tables) = SkipReason::Metadata.facts();
        if let Some(table) = self.skipped.get(&*tables).filter(|_| labels && !self.unlabeled) {
            let example = &table.example;
            warn(format!(
                "{root}: labels are the names of its directories, and are not taken from {example}: to read its \
                 columns, set labels=\"{root}/{example}\""
            ));
        }
        if self.labels_from_one {
            inform(format!(
                "{root}: no label is 0, so classes seem to be numbered from 1: labels are returned unchanged, and the \
                 number of classes includes an empty class 0; subtract 1 if your model numbers classes from 0"
            ));
        }
        if !beside.is_empty() {
            inform(format!("{root}: not read, because these are not samples: {beside}"));
        }
        if let Some(first) = self.empty_classes.first() {
            warn(format!(
                "{root}: {} classes have no image, e.g. {}; they keep their class numbers: if they are not classes, \
                 remove their directories and rebuild the index",
                self.empty_classes.len(),
                shortened(first)
            ));
        }
    }

    /// Adds the notes of another thread. For each reason, the example that is kept does not depend on the order of the
    /// threads.
    pub(super) fn absorb(&mut self, other: Self) {
        for (reason, more) in other.skipped {
            let skipped = self.skipped.entry(reason).or_insert_with(|| Skipped {
                count: 0,
                example: more.example.clone(),
                loss: more.loss,
            });
            skipped.count += more.count;
            skipped.example = std::mem::take(&mut skipped.example).min(more.example);
        }
        self.merge_places(other.places);
        self.empty_classes.extend(other.empty_classes);
        self.unlabeled |= other.unlabeled;
        self.every_stem |= other.every_stem;
        self.kept_texts.extend(other.kept_texts);
        self.label_column = self.label_column.take().or(other.label_column);
        self.not_labels.extend(other.not_labels);
        self.in_directory = self.in_directory.take().into_iter().chain(other.in_directory).min();
        self.imageless |= other.imageless;
        self.label_fault = self.label_fault.take().or(other.label_fault);
        self.images_missing |= other.images_missing;
        self.labels_from_one |= other.labels_from_one;
        self.on_servers |= other.on_servers;
        self.secrets |= other.secrets;
        self.image = self.image.take().or(other.image);
        self.incomplete = self.incomplete.take().or(other.incomplete);
        self.packed_of = self.packed_of.or(other.packed_of);
        self.chunk_keys.extend(other.chunk_keys);
        self.parallel.extend(other.parallel);
        self.largest_array = self.largest_array.take().or(other.largest_array);
        if let Some(stem) = other.ambiguous {
            self.record_ambiguous(stem);
        }
    }
}

/// The most frequent reasons, each with its count and example, and the number of other reasons.
fn named<'a>(skipped: impl Iterator<Item = (&'a String, &'a Skipped)>) -> String {
    let mut skipped: Vec<_> = skipped.collect();
    skipped.sort_by_key(|(_, skipped)| std::cmp::Reverse(skipped.count));
    let more = skipped.len().saturating_sub(REASONS_NAMED);
    let name = |(reason, skipped): &(&String, &Skipped)| {
        format!("{} {}, e.g. {}", skipped.count, shortened(reason), shortened(&skipped.example))
    };
    let mut names: Vec<String> = skipped.iter().take(REASONS_NAMED).map(name).collect();
    if more > 0 {
        names.push(format!("and {more} other kinds"));
    }
    names.join("; ")
}

fn shortened(name: &str) -> String {
    if name.len() <= LONGEST_EXAMPLE {
        return name.to_owned();
    }
    let half = LONGEST_EXAMPLE / 2;
    let head = (0..=half).rev().find(|&at| name.is_char_boundary(at)).unwrap_or(0);
    let tail = (name.len() - half..name.len()).find(|&at| name.is_char_boundary(at)).unwrap_or(name.len());
    format!("{}…{}", &name[..head], &name[tail..])
}

/// The total size of samples, and the size of the largest.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct SampleBytes {
    /// The total size of all samples in bytes.
    pub total_bytes: u64,
    /// The size of the largest sample in bytes.
    pub largest: u64,
}

impl SampleBytes {
    pub(super) fn of(samples: impl Iterator<Item = u64>) -> Self {
        samples.fold(Self::default(), |Self { total_bytes, largest }, bytes| Self {
            total_bytes: total_bytes + bytes,
            largest: largest.max(bytes),
        })
    }
}

/// A field of the samples of tables.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TableField {
    /// The name by which a loader selects the field.
    pub name: String,
    /// The kind of the field's values.
    pub kind: FieldKind,
    /// Why the field cannot be read; `None` if it can be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
}

/// Facts that `foreload index` shows.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct IndexSummary {
    /// The dataset as the user named it.
    pub root: PathBuf,
    /// The layout of the samples.
    pub layout: Layout,
    /// The number of samples.
    pub samples: u64,
    /// The number of classes; 0 if samples have no labels.
    pub classes: u32,
    /// The total size of all images or loose files in bytes. If samples in shards have no image, their first member is
    /// counted.
    pub total_bytes: u64,
    /// The size of the largest image, loose file or first member in bytes.
    pub largest: u32,
    /// The sizes of samples in shards with all their members; `None` if samples are loose files, or if the index was
    /// loaded without members.
    pub members: Option<SampleBytes>,
    /// The number of shards, or of directories of loose files.
    pub groups: u64,
    /// What was found while the dataset was listed.
    #[serde(flatten)]
    pub notes: Notes,
    /// The keys of the members that samples in shards have. `fields=` can select these keys.
    pub keys: Vec<String>,
    /// The fields that samples of tables have, with their kinds.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub fields: Vec<TableField>,
    /// Advice on how to add labels, for a dataset without labels.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to_label: Option<String>,
    /// The dataset's fingerprint in hexadecimal.
    pub fingerprint: String,
    /// The index file.
    pub index_path: PathBuf,
    /// The size of the index file in bytes.
    pub index_bytes: u64,
    /// How the index was obtained.
    #[serde(flatten)]
    pub origin: IndexOrigin,
    /// The time that loading or building took, in seconds.
    pub seconds: f64,
    /// The requests that loading or building made, if the dataset is on a server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requests: Option<RequestCounts>,
}

impl IndexSummary {
    /// The sizes of the samples, with all members if they are known, else of the images.
    pub fn bytes(&self) -> SampleBytes {
        let images = SampleBytes { total_bytes: self.total_bytes, largest: u64::from(self.largest) };
        self.members.unwrap_or(images)
    }
}

impl DatasetPart {
    pub(super) fn summary(&self) -> IndexSummary {
        let header = &self.file.header;
        IndexSummary {
            root: self.root.clone(),
            layout: self.layout(),
            samples: self.len(),
            classes: if self.notes.unlabeled { 0 } else { self.num_classes() },
            total_bytes: header.total_bytes,
            largest: header.largest,
            members: self.member_bytes(),
            groups: header.groups,
            notes: Notes { places: BTreeMap::new(), ..self.notes.clone() },
            keys: self.keys(),
            fields: self.table_fields(),
            to_label: self.notes.unlabeled.then(|| self.to_label()),
            fingerprint: self.fingerprint().to_string(),
            index_path: self.file.path.clone(),
            index_bytes: self.file.size,
            origin: self.origin.clone(),
            seconds: self.seconds,
            requests: self.source.request_counts(),
        }
    }
}

pub(super) fn class_names(mut bytes: &[u8]) -> Vec<&[u8]> {
    let mut names = Vec::new();
    while let Some((length, rest)) = bytes.split_first_chunk() {
        let Some((name, rest)) = rest.split_at_checked(u32::from_le_bytes(*length) as usize) else { break };
        names.push(name);
        bytes = rest;
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(notes: &Notes) -> Vec<base::notices::Notice> {
        let notices = Notices::default();
        notes.notify(Path::new("/data"), true, true, &notices);
        std::iter::from_fn(|| notices.next()).collect()
    }

    #[test]
    fn what_is_left_out_is_said_briefly_however_much_it_is() {
        assert_eq!(said(&Notes::default()), []);
        let mut notes = Notes::default();
        for number in 0..10_000 {
            let skipped = Skipped { count: 1, example: "x/".repeat(3000), loss: SkipCost::Sample };
            notes.skipped.insert(format!("{number} of some kind"), skipped);
        }
        notes.skip(SkipReason::BrokenLink, || "class/b.jpg".to_owned());
        notes.skip(SkipReason::BrokenLink, || unreachable!("one example is enough"));
        let [only] = &said(&notes)[..] else { panic!("one message") };
        assert!(
            only.message.contains("2 broken links and special files, e.g. class/b.jpg"),
            "{}",
            only.message
        );
        assert!(only.message.contains("and 9996 other kinds"), "{}", only.message);
        assert!(notes.explain("nothing is there").len() < 2000);
    }

    #[test]
    fn a_table_of_labels_that_nobody_reads_is_a_warning_for_whoever_wants_labels() {
        let mut notes = Notes::default();
        notes.skip(SkipReason::Metadata, || "metadata.csv".to_owned());
        let [only] = &said(&notes)[..] else { panic!("one message") };
        assert!(only.kind == NoticeKind::Warning && only.message.contains("labels=\"/data/metadata.csv\""));
        let notices = Notices::default();
        notes.notify(Path::new("/data"), true, false, &notices);
        assert_eq!(notices.next(), None);
    }

    #[test]
    fn what_nobody_misses_is_no_warning() {
        let mut notes = Notes::default();
        notes.skip(SkipReason::Hidden, || ".nfs01".to_owned());
        assert_eq!(said(&notes), []);
        notes.skip(SkipReason::NoImage, || "a/Thumbs.db".to_owned());
        notes.skip(SkipReason::FileInRoot, || "cover.jpg".to_owned());
        let [only] = &said(&notes)[..] else { panic!("one message") };
        assert_eq!(only.kind, NoticeKind::Information);
        assert!(only.message.contains("a/Thumbs.db") && only.message.contains("cover.jpg"));
        let classes = Notes { empty_classes: vec!["dog".to_owned()], ..Notes::default() };
        let [only] = &said(&classes)[..] else { panic!("one message") };
        assert!(only.kind == NoticeKind::Warning && only.message.contains("dog"), "{}", only.message);
    }
}
