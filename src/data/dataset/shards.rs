//! Reads the shards of a dataset on several threads. The result does not depend on the order of reading. If the
//! contents of some shards determine the options by which all shards must be read, all shards are read a second time
//! (`ShardsFound::read_again`).

use super::arrays::{self, ArrayFile};
use super::bad_shards::{REFUSED, UnreadShards};
use super::build::{GroupRows, IndexBuilder, IndexGroup, ShardRows};
use super::cancel::Cancel;
use super::class_names::ClassNames;
use super::layouts::{self, ShardParser, ShardReadOptions};
use super::open::IndexProgress;
use super::parallel::collect;
pub use super::samples::ShardContents;
pub use super::samples::{Stems, contents};
use super::summary::LabelFault;
use super::table::TableCells;
use super::whole_file::{self, UnpackedShard, in_decompressed};
use super::{FieldKind, Layout, Notes, SampleAxis, Stamp, samples};
use crate::source::{DatasetSource, Malformed, OpenFile, ReadAt, is_gone};
use base::error::{Error, Result, git_lfs_pointer};
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

pub(super) fn refuse_compressed<S: ReadAt + ?Sized>(source: &S, readable: &str) -> Result<(), Malformed> {
    let mut magic = [0; 6];
    let got = source.fill_at(&mut magic, 0)?;
    let known: [(&[u8], &str); 5] = [
        (b"\x1f\x8b", "gzip"),
        (b"\x28\xb5\x2f\xfd", "zstd"),
        (b"BZh", "bzip2"),
        (b"\xfd7zXZ\0", "xz"),
        (b"\x04\x22\x4d\x18", "lz4"),
    ];
    let Some((_, name)) = known.iter().find(|(start, _)| magic[..got].starts_with(start)) else {
        return Ok(());
    };
    let message =
        format!("is compressed with {name}: samples can only be read from {readable}; decompress it");
    Err(Malformed { offset: 0, message })
}

pub(super) struct DatasetShards<'a> {
    pub(super) source: &'a dyn DatasetSource,
    pub(super) layout: Layout,
    /// The names of the shards; one empty name if the root itself is the shard.
    pub(super) names: &'a [Vec<u8>],
    pub(super) reading: ShardReadOptions,
}

pub(super) struct ShardsFound {
    pub(super) notes: Notes,
    pub(super) classes: Vec<Vec<u8>>,
    /// Maps the labels that were added to the builder to class numbers; `None` if they are class numbers already.
    pub(super) labels: Option<Vec<u32>>,
    pub(super) read_again: Option<ShardReadOptions>,
    /// The shards that could not be read. In the index they are groups without samples.
    pub(super) unread: UnreadShards,
}

pub(super) fn index(
    shards: &DatasetShards<'_>,
    builder: &mut IndexBuilder,
    threads: usize,
    progress: &IndexProgress,
    cancel: &Cancel,
) -> Result<ShardsFound> {
    let largest_array = largest_array(shards, cancel)?;
    let &DatasetShards { source, layout, names: shards, ref reading } = shards;
    let Some(layout_impl) = layout.shards() else {
        return Err(Error::Internal("loose files are no shards".into()));
    };
    let reading = &ShardReadOptions { largest_array, ..reading.clone() };
    let parser = layout_impl.parser(source, reading)?;
    progress.expect(shards.len() as u64, "shards");
    let next = AtomicUsize::new(0);
    let mut notes = Notes {
        every_stem: reading.every_stem,
        kept_texts: reading.kept_texts.clone(),
        not_labels: reading.not_labels.clone(),
        largest_array: reading.largest_array.clone(),
        ..Notes::default()
    };
    let (mut verbatim, mut kept) = (BTreeSet::new(), BTreeSet::new());
    let (mut has_images, mut smallest_label) = (false, None);
    let mut unread = UnreadShards::default();
    // The image column and the label column of tables, with the class names that a schema defines.
    let (mut image, mut label) = (Consensus::<String>::default(), Consensus::<LabelOrigin>::default());
    let (mut names, mut label_columns) = (ClassNames::default(), BTreeSet::new());
    // A table column that is named like a label column but has no values.
    let mut empty_label: Option<Named> = None;
    // The first sample with a label, the first without, and the first with an unusable label, in the order of the
    // shards. Threads can find them in any order.
    let (mut labeled, mut unlabeled, mut unusable): (Option<Named>, Option<Named>, Option<Named>) =
        (None, None, None);
    // The shards whose arrays are joined to samples when all shards have been read.
    let mut joined: Vec<(&Vec<u8>, Stamp, ShardContents)> = Vec::new();
    let mut add = |shard: &Vec<u8>, stamp: Stamp, contents: ShardContents| -> Result<()> {
        let ShardContents { mut rows, findings } = contents;
        if findings.classes_are_values && !names.are_too_many() {
            names.renumber(&mut rows.samples, &findings.classes);
        }
        record_text_storage(&rows, &mut verbatim, &mut kept);
        for ArrayFile { path, stamp } in std::mem::take(&mut rows.files) {
            builder.add(&IndexGroup { path, stamp, rows: GroupRows::ArrayFile })?;
        }
        let rows = GroupRows::Shard(rows);
        builder.add(&IndexGroup { path: shard.clone(), stamp, rows })?;
        if findings.labeled.is_some() {
            let of_schema = (!findings.classes_are_values).then_some(findings.classes);
            let column = findings.label_column.unwrap_or_default();
            label_columns.insert(column.clone());
            label.add(shard, Some((column, of_schema)));
        } else if layout.is_table() {
            keep_first(&mut empty_label, shard, findings.label_column);
        }
        keep_first(&mut labeled, shard, findings.labeled);
        keep_first(&mut unlabeled, shard, findings.unlabeled);
        keep_first(&mut unusable, shard, findings.unusable);
        has_images |= findings.has_images;
        smallest_label = smallest_label.into_iter().chain(findings.smallest_label).min();
        image.add(shard, findings.notes.image.clone());
        notes.absorb(findings.notes);
        Ok(())
    };
    collect(
        threads.min(shards.len()),
        |send| {
            while let Some(shard) = shards.get(next.fetch_add(1, Ordering::Relaxed)) {
                if !send(read(source, shard, &*parser, cancel).map(|read| (shard, read))) {
                    return;
                }
            }
        },
        |(shard, read): (&Vec<u8>, ReadShard<ShardContents>)| {
            let contents = read.found.unwrap_or_else(|error| {
                unread.add(shard, error);
                ShardContents::default()
            });
            progress.step(1);
            if layout.is_joined(reading.sample_axis) {
                joined.push((shard, read.stamp, contents));
                return Ok(());
            }
            add(shard, read.stamp, contents)
        },
    )?;
    joined.sort_by_key(|(shard, ..)| *shard);
    let mut contents: Vec<&mut ShardContents> = joined.iter_mut().map(|(.., contents)| contents).collect();
    arrays::join(&mut contents, reading).map_err(|message| Error::dataset(source.path(&[]), message))?;
    joined.into_iter().try_for_each(|(shard, stamp, contents)| add(shard, stamp, contents))?;
    if let Some([(one, of_one), (other, of_other)]) = image.differing() {
        let message = format!(
            "has its images in the column {of_other:?}, but {} has them in {of_one:?}: write all shards with one \
             schema",
            source.path(one).display()
        );
        return Err(Error::dataset(source.path(other), message));
    }
    let column = label.first.as_ref().map(|(_, (column, _))| column.clone());
    let read_again = read_again(reading, &notes, &label_columns, &names, &verbatim, &kept);
    if read_again.is_some() {
        return Ok(ShardsFound { notes, classes: Vec::new(), labels: None, read_again, unread });
    }
    let mut odd = names.are_too_many().then(|| (Vec::new(), TOO_MANY.to_owned()));
    if let Some([(one, of_one), (other, of_other)]) = label.differing() {
        let one = source.path(one);
        if of_one.1.is_some() == of_other.1.is_some() {
            let message = format!(
                "has other class names than {}, or another column of labels: write all shards with one schema, or \
                 choose the column with label=",
                one.display()
            );
            return Err(Error::dataset(source.path(other), message));
        }
        let kinds = |is_number: bool| if is_number { "class numbers" } else { "class names" };
        let (own, others) = (kinds(of_other.1.is_some()), kinds(of_one.1.is_some()));
        let message = format!(
            "has {own} as labels, but {} has {others}: write the same kind of labels in all shards, or choose other \
             labels with label=",
            one.display()
        );
        odd = Some((other.clone(), message));
    }
    let with = |shard: &Vec<u8>| source.path(shard).display().to_string();
    notes.label_fault = match (&labeled, unlabeled, unusable.or(odd)) {
        (_, _, Some((shard, message))) => Some(LabelFault::new(&shard, message)),
        (Some((labeled, with_label)), Some((shard, sample)), None) if layout.is_table() => {
            let message = format!(
                "has no label for its sample {sample}, but sample {with_label} of {} has one: label all samples or \
                 none",
                with(labeled)
            );
            Some(LabelFault::new(&shard, message))
        }
        (Some((labeled, with_label)), Some((shard, sample)), None) => {
            let missing = match &reading.label {
                Some(key) => format!("neither a .{key} member nor a .json member with {key}"),
                None => "neither a .cls member nor a .json member with label or cls".to_owned(),
            };
            let message = format!(
                "sample {sample:?} has {missing}, but {with_label:?} of {} has a label: label all samples or none",
                with(labeled)
            );
            Some(LabelFault::new(&shard, message))
        }
        _ => None,
    };
    notes.unlabeled = labeled.is_none() || notes.label_fault.is_some();
    notes.imageless = (notes.every_stem || layout.is_table()) && !has_images;
    let column = column.or(empty_label.map(|(_, column)| column));
    notes.label_column = column.filter(|column| !column.is_empty());
    let has_names = !names.is_empty();
    let (classes, labels) = match label.first {
        // Store all labels as class 0 if they are not used, so that the index does not depend on the order of reading.
        _ if notes.unlabeled => (Vec::new(), has_names.then(Vec::new)),
        Some((_, (_, None))) => {
            let (classes, labels) = names.into_classes();
            (classes, Some(labels))
        }
        Some((_, (_, Some(classes)))) => (classes, None),
        None => (Vec::new(), None),
    };
    notes.labels_from_one = !notes.unlabeled && classes.is_empty() && smallest_label == Some(1);
    let classes = classes.into_iter().map(String::into_bytes).collect();
    Ok(ShardsFound { notes, classes, labels, read_again: None, unread })
}

/// The largest array of the first shard with arrays, whose rows are the samples of all shards if the user chose no
/// fields. Otherwise each shard could have rows of another array as samples.
fn largest_array(shards: &DatasetShards<'_>, cancel: &Cancel) -> Result<Option<String>> {
    let DatasetShards { source, layout, names, reading } = shards;
    let is_needed = layout.is_array()
        && reading.sample_axis == SampleAxis::Axis0
        && reading.arrays.is_none()
        && !layout.is_joined(reading.sample_axis)
        && names.len() > 1;
    let Some(layout_impl) = layout.shards().filter(|_| is_needed) else { return Ok(None) };
    let parser = layout_impl.parser(*source, reading)?;
    for shard in *names {
        if let Ok(found) = read(*source, shard, &*parser, cancel)?.found
            && let Some(array) = arrays::largest(found.rows.arrays.iter())
        {
            return Ok(Some(array.facts.name.clone()));
        }
    }
    Ok(None)
}

const TOO_MANY: &str = "has more than 1048576 different texts, which are too many for class names";

/// Returns the options with which all shards must be read again, if necessary. If only some shards store the strings of
/// a column verbatim, the index must keep the strings of all shards. A column that cannot be the label in one shard
/// must not be the label in any shard.
fn read_again(
    reading: &ShardReadOptions,
    notes: &Notes,
    label_columns: &BTreeSet<String>,
    names: &ClassNames,
    verbatim: &BTreeSet<String>,
    kept: &BTreeSet<String>,
) -> Option<ShardReadOptions> {
    let mut again = reading.clone();
    let mixed = verbatim.intersection(kept).filter(|name| !reading.kept_texts.contains(name));
    again.kept_texts.extend(mixed.cloned());
    // Skip the empty name, which stands for tar shards.
    for column in label_columns.iter().filter(|column| !column.is_empty()) {
        let too_many = names.are_too_many().then_some(TOO_MANY);
        let why = too_many.or(notes.not_labels.get(column).map(String::as_str));
        again.not_labels.extend(why.map(|why| (column.clone(), why.to_owned())));
    }
    (again != *reading).then_some(again)
}

/// Adds each text column of a shard to `verbatim` if its strings stay in the shard, or to `kept` if the index keeps
/// them.
fn record_text_storage(rows: &ShardRows, verbatim: &mut BTreeSet<String>, kept: &mut BTreeSet<String>) {
    let stored_texts = rows
        .keys
        .iter()
        .zip(&rows.kinds)
        .filter(|(_, kind)| matches!(kind, FieldKind::Text | FieldKind::Json));
    verbatim.extend(stored_texts.map(|(name, _)| name.clone()));
    let texts = rows.columns.iter().filter(|column| matches!(column.cells, TableCells::Texts(_)));
    kept.extend(texts.map(|column| column.name.clone()));
}

/// A value that all shards must agree on. If two shards differ, the error names the same two shards whatever the order
/// of reading.
#[derive(Default)]
struct Consensus<T> {
    first: Option<(Vec<u8>, T)>,
    other: Option<(Vec<u8>, T)>,
}

impl<T: PartialEq> Consensus<T> {
    fn add(&mut self, shard: &[u8], said: Option<T>) {
        let Some(said) = said else { return };
        let mut now = (shard.to_vec(), said);
        let Some(first) = &mut self.first else {
            self.first = Some(now);
            return;
        };
        if now.0 < first.0 {
            std::mem::swap(first, &mut now);
        }
        if now.1 != first.1 && self.other.as_ref().is_none_or(|(known, _)| now.0 < *known) {
            self.other = Some(now);
        }
    }

    fn differing(&self) -> Option<[(&Vec<u8>, &T); 2]> {
        let ((one, of_one), (other, of_other)) = (self.first.as_ref()?, self.other.as_ref()?);
        Some([(one, of_one), (other, of_other)])
    }
}

/// The name of the label column, and the class names if a schema defines them.
type LabelOrigin = (String, Option<Vec<String>>);

/// The path of a shard, with the name of a sample in the shard or a message about this sample.
type Named = (Vec<u8>, String);

fn keep_first(first: &mut Option<Named>, shard: &[u8], said: Option<String>) {
    if let Some(said) = said
        && first.as_ref().is_none_or(|(known, _)| shard < known.as_slice())
    {
        *first = Some((shard.to_vec(), said));
    }
}

/// A shard whose reads fail after indexing was cancelled.
struct CancellableShard<'a> {
    bytes: Box<dyn ReadAt + Send + Sync>,
    cancel: &'a Cancel,
    /// Whether a read has failed. If so, the shard itself is not necessarily damaged.
    has_failed: AtomicBool,
}

impl ReadAt for CancellableShard<'_> {
    fn size(&self) -> u64 {
        self.bytes.size()
    }
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> std::io::Result<usize> {
        self.cancel.check_io()?;
        let read = self.bytes.read_at(buffer, offset);
        self.has_failed.fetch_or(read.is_err(), Ordering::Relaxed);
        read
    }
    fn worth_reading(&self) -> usize {
        self.bytes.worth_reading()
    }
}

fn malformed(path: &Path, bytes: &dyn ReadAt, fault: Malformed) -> Error {
    let mut beginning = [0; 64];
    let read = bytes.read_at(&mut beginning, 0).unwrap_or_default();
    match git_lfs_pointer(&beginning[..read]) {
        Some(why) => Error::dataset(path, why),
        None if fault.is_refusal() => Error::dataset(path, format!("{REFUSED}{}", fault.message)),
        None => Error::dataset(path, format!("at byte {}: {}", fault.offset, fault.message)),
    }
}

/// Maximum number of times that a shard is opened. It is opened again if parsing fails and its stamp has changed
/// meanwhile.
const MAX_ATTEMPTS: u32 = 3;

pub(super) struct ReadShard<T> {
    /// The shard's stamp; the default stamp if the file does not exist.
    pub(super) stamp: Stamp,
    pub(super) found: Result<T>,
}

impl<T> ReadShard<T> {
    fn bad(stamp: Stamp, error: Error) -> Self {
        Self { stamp, found: Err(error) }
    }
}

/// Opens a shard and parses it. If parsing fails and the stamp has changed since the shard was opened, the shard was
/// modified during parsing, or a server returned another version. In this case the shard is opened again.
///
/// # Errors
/// [`Error::Io`] and [`Error::Dataset`] after cancellation, and for failed reads, which show nothing about the shard's
/// state.
fn parsed<'a, T>(
    source: &dyn DatasetSource,
    shard: &[u8],
    cancel: &'a Cancel,
    parse: impl Fn(&CancellableShard<'a>) -> Result<T, Malformed>,
) -> Result<ReadShard<T>> {
    let mut attempts = 0;
    loop {
        cancel.check(&source.path(&[]))?;
        let OpenFile { bytes, stamp } = match source.open(shard) {
            Err(error @ Error::Dataset { .. }) => {
                return Ok(ReadShard::bad(source.stamp(shard)?.stamp().unwrap_or_default(), error));
            }
            Err(Error::Io { what, path, source }) if is_gone(&source) => {
                return Ok(ReadShard::bad(Stamp::default(), Error::Io { what, path, source }));
            }
            opened => opened?,
        };
        let bytes = CancellableShard { bytes, cancel, has_failed: AtomicBool::new(false) };
        let error = match parse(&bytes) {
            Ok(found) => return Ok(ReadShard { stamp, found: Ok(found) }),
            Err(error) => malformed(&source.path(shard), &bytes, error),
        };
        attempts += 1;
        if attempts == MAX_ATTEMPTS || source.stamp(shard)?.stamp().is_none_or(|now| now == stamp) {
            cancel.check(&source.path(&[]))?;
            return match bytes.has_failed.into_inner() {
                true => Err(error),
                false => Ok(ReadShard::bad(stamp, error)),
            };
        }
    }
}

pub(super) fn read(
    source: &dyn DatasetSource,
    shard: &[u8],
    parser: &dyn ShardParser,
    cancel: &Cancel,
) -> Result<ReadShard<ShardContents>> {
    parsed(source, shard, cancel, |bytes| parser.contents(shard, bytes))
}

/// Compares one shard with the checksums that its layout stores. If something cannot be compared, returns a description
/// of it with the reason.
pub(super) fn verify(
    source: &dyn DatasetSource,
    shard: &[u8],
    parser: &dyn ShardParser,
    cancel: &Cancel,
) -> Result<Option<String>> {
    parsed(source, shard, cancel, |bytes| parser.verify(shard, bytes))?.found
}

pub(super) fn is_tar_of_tars(
    source: &dyn DatasetSource,
    shard: &[u8],
    cancel: &Cancel,
) -> Result<ReadShard<bool>> {
    let is_one = |bytes: &CancellableShard<'_>| {
        // Tars of tars are read only if they are not compressed.
        if whole_file::codec_of(bytes).is_ok_and(|codec| codec.is_some()) {
            return Ok(false);
        }
        layouts::is_tar_of_tars(bytes)
    };
    parsed(source, shard, cancel, is_one)
}

/// The name of the first image in a tar shard. Members after this image are not read.
pub(super) fn first_image(
    source: &dyn DatasetSource,
    shard: &[u8],
    cancel: &Cancel,
) -> Result<ReadShard<Option<String>>> {
    let first = |bytes: &CancellableShard<'_>| match whole_file::codec_of(bytes)? {
        Some(codec) => {
            let shard = UnpackedShard::of(bytes, codec, None)?;
            samples::first_image(shard.bytes()).map_err(in_decompressed)
        }
        None => samples::first_image(bytes),
    };
    parsed(source, shard, cancel, first)
}
