//! Shards of a dataset, tar, TFRecord or packed: each is read once, by several threads.

use super::build::{GroupRows, IndexBuilder, IndexGroup, ShardRows};
use super::cancel::Cancel;
use super::layouts::{self, ShardParser};
use super::open::IndexProgress;
use super::parallel::collect;
pub(crate) use super::samples::ShardContents;
pub use super::samples::{Stems, contents};
use super::summary::LabelFault;
use super::table::TableCells;
use super::whole_file::{self, UnpackedShard, unpacked_place};
use super::{FieldKind, Layout, Notes, Stamp, samples};
use crate::error::{Error, Result, git_lfs_pointer};
use crate::source::{DatasetSource, Malformed, OpenFile, ReadAt};
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Samples can only be read from what is not compressed.
pub(super) fn refuse_compressed<S: ReadAt + ?Sized>(source: &S, readable: &str) -> Result<(), Malformed> {
    let mut magic = [0; 6];
    let got = source
        .read_at(&mut magic, 0)
        .map_err(|error| Malformed { offset: 0, message: format!("reading failed: {error}") })?;
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
    let message = format!("is compressed with {name}: samples can only be read from {readable}; unpack it");
    Err(Malformed { offset: 0, message })
}

/// Whether a file name promises a tar that is compressed in a way that is not read.
pub(super) fn is_compressed_name(name: &OsStr) -> bool {
    let name = name.as_bytes();
    let tar = [".tar.bz2", ".tar.xz", ".tar.lz4"];
    tar.iter().any(|ending| name.ends_with(ending.as_bytes()))
}

/// The shards of a dataset.
pub(super) struct DatasetShards<'a> {
    pub(super) source: &'a dyn DatasetSource,
    pub(super) layout: Layout,
    /// Their names; the only one is empty where the root is the shard.
    pub(super) names: &'a [Vec<u8>],
    /// Whether stems without an image are samples, too.
    pub(super) every_stem: bool,
    /// The columns of which all texts are kept.
    pub(super) kept_texts: Vec<String>,
}

/// What was found in all shards beside the samples.
pub(super) struct ShardsFound {
    pub(super) notes: Notes,
    /// The names of the classes by number.
    pub(super) classes: Vec<Vec<u8>>,
    /// The columns whose texts lie in some shards as they are and in others do not: all are to be kept.
    pub(super) mixed_texts: Vec<String>,
}

/// Indexes all shards.
pub(super) fn index(
    shards: &DatasetShards<'_>,
    builder: &mut IndexBuilder,
    threads: usize,
    progress: &IndexProgress,
    cancel: &Cancel,
) -> Result<ShardsFound> {
    let &DatasetShards { source, layout, names: shards, every_stem, ref kept_texts } = shards;
    let Some(knows) = layout.shards() else {
        return Err(Error::Internal("loose files are no shards".into()));
    };
    let mut parser = knows.parser(source, every_stem)?;
    parser.keep_texts(kept_texts);
    progress.expect(shards.len() as u64, "shards");
    let next = AtomicUsize::new(0);
    let mut notes = Notes { every_stem, kept_texts: kept_texts.clone(), ..Notes::default() };
    let (mut lying, mut kept) = (BTreeSet::new(), BTreeSet::new());
    let (mut has_images, mut smallest_label) = (false, None);
    // Of tables: the column of the images, and that of the labels with the names of the classes.
    let (mut image, mut label): (Agreed<String>, Agreed<(String, Vec<String>)>) =
        (Agreed::default(), Agreed::default());
    // The first in the order of the shards, whoever found it first.
    let (mut labeled, mut unlabeled, mut unusable): (Option<Named>, Option<Named>, Option<Named>) =
        (None, None, None);
    collect(
        threads.min(shards.len()),
        |send| {
            while let Some(shard) = shards.get(next.fetch_add(1, Ordering::Relaxed)) {
                let contents = read(source, shard, &*parser, cancel);
                if !send(contents.map(|(stamp, contents)| (shard, stamp, contents))) {
                    return;
                }
            }
        },
        |(shard, stamp, ShardContents { rows, findings }): (&Vec<u8>, Stamp, ShardContents)| {
            note_texts(&rows, &mut lying, &mut kept);
            builder.add(&IndexGroup { path: shard.clone(), stamp, rows: GroupRows::Shard(rows) })?;
            progress.step(1);
            keep_first(&mut labeled, shard, findings.labeled);
            keep_first(&mut unlabeled, shard, findings.unlabeled);
            keep_first(&mut unusable, shard, findings.unusable);
            has_images |= findings.has_images;
            smallest_label = smallest_label.into_iter().chain(findings.smallest_label).min();
            image.add(shard, findings.notes.image.clone());
            label.add(shard, findings.label_column.map(|column| (column, findings.classes)));
            notes.absorb(findings.notes);
            Ok(())
        },
    )?;
    if let Some([(one, of_one), (other, of_other)]) = image.differing() {
        let message = format!(
            "has its images in the column {of_other:?}, and {} in {of_one:?}: shards of one dataset need one schema",
            source.path(one).display()
        );
        return Err(Error::dataset(source.path(other), message));
    }
    if let Some([(one, _), (other, _)]) = label.differing() {
        let message =
            format!("has other class names than {}, or another column of labels", source.path(one).display());
        return Err(Error::dataset(source.path(other), message));
    }
    let with = |shard: &Vec<u8>| source.path(shard).display().to_string();
    notes.label_fault = match (&labeled, unlabeled, unusable) {
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
            let message = format!(
                "sample {sample:?} has neither a .cls member nor a .json member with label or cls, but {with_label:?} \
                 of {} has a label: label all samples or none",
                with(labeled)
            );
            Some(LabelFault::new(&shard, message))
        }
        _ => None,
    };
    notes.unlabeled = labeled.is_none() || notes.label_fault.is_some();
    notes.imageless = (notes.every_stem || layout.is_table()) && !has_images;
    let classes = label.first.filter(|_| !notes.unlabeled).map(|(_, (_, classes))| classes);
    let classes = classes.unwrap_or_default();
    notes.labels_from_one = !notes.unlabeled && classes.is_empty() && smallest_label == Some(1);
    let classes = classes.into_iter().map(String::into_bytes).collect();
    let mixed_texts = lying.intersection(&kept).cloned().collect();
    Ok(ShardsFound { notes, classes, mixed_texts })
}

/// Notes of a table in which columns texts lie in the shard, and of which they were kept.
fn note_texts(rows: &ShardRows, lying: &mut BTreeSet<String>, kept: &mut BTreeSet<String>) {
    let lie = rows
        .keys
        .iter()
        .zip(&rows.kinds)
        .filter(|(_, kind)| matches!(kind, FieldKind::Text | FieldKind::Json));
    lying.extend(lie.map(|(name, _)| name.clone()));
    let texts = rows.columns.iter().filter(|column| matches!(column.cells, TableCells::Texts(_)));
    kept.extend(texts.map(|column| column.name.clone()));
}

/// What all shards must agree on that say anything of it. Which two of them differ does not depend on the order in
/// which they were read.
struct Agreed<T> {
    /// The first shard by name, and what it says.
    first: Option<(Vec<u8>, T)>,
    /// The first of those that say something else than another.
    other: Option<(Vec<u8>, T)>,
}

impl<T> Default for Agreed<T> {
    fn default() -> Self {
        Self { first: None, other: None }
    }
}

impl<T: PartialEq> Agreed<T> {
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

    /// Two shards that differ, with what they say.
    fn differing(&self) -> Option<[(&Vec<u8>, &T); 2]> {
        let ((one, of_one), (other, of_other)) = (self.first.as_ref()?, self.other.as_ref()?);
        Some([(one, of_one), (other, of_other)])
    }
}

/// A shard, with a sample in it or a message about it.
type Named = (Vec<u8>, String);

fn keep_first(first: &mut Option<Named>, shard: &[u8], said: Option<String>) {
    if let Some(said) = said
        && first.as_ref().is_none_or(|(known, _)| shard < known.as_slice())
    {
        *first = Some((shard.to_vec(), said));
    }
}

/// A shard that can no longer be read once indexing is cancelled.
struct Cancellable<'a> {
    bytes: Box<dyn ReadAt + Send + Sync>,
    cancel: &'a Cancel,
}

impl ReadAt for Cancellable<'_> {
    fn size(&self) -> u64 {
        self.bytes.size()
    }
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> std::io::Result<usize> {
        self.cancel.check_io()?;
        self.bytes.read_at(buffer, offset)
    }
    fn worth_reading(&self) -> usize {
        self.bytes.worth_reading()
    }
}

fn open<'a>(
    source: &dyn DatasetSource,
    shard: &[u8],
    cancel: &'a Cancel,
) -> Result<(Cancellable<'a>, Stamp)> {
    let OpenFile { bytes, stamp } = source.open(shard)?;
    Ok((Cancellable { bytes, cancel }, stamp))
}

/// The error of a shard that cannot be parsed.
fn malformed(path: &Path, bytes: &dyn ReadAt, Malformed { offset, message }: Malformed) -> Error {
    let mut beginning = [0; 64];
    let read = bytes.read_at(&mut beginning, 0).unwrap_or_default();
    match git_lfs_pointer(&beginning[..read]) {
        Some(why) => Error::dataset(path, why),
        None => Error::dataset(path, format!("at byte {offset}: {message}")),
    }
}

/// How often a shard is opened that has another stamp after it was parsed in vain.
const MOST_MOVES: u32 = 3;

/// Parses one shard, which has this stamp. One that was written to meanwhile, or of which a server had told another
/// version, is parsed anew.
pub(super) fn read(
    source: &dyn DatasetSource,
    shard: &[u8],
    parser: &dyn ShardParser,
    cancel: &Cancel,
) -> Result<(Stamp, ShardContents)> {
    cancel.check(&source.path(&[]))?;
    let mut moves = 0;
    loop {
        let (bytes, stamp) = open(source, shard, cancel)?;
        let error = match parser.contents(shard, &bytes) {
            Ok(contents) => return Ok((stamp, contents)),
            Err(error) => malformed(&source.path(shard), &bytes, error),
        };
        moves += 1;
        if moves == MOST_MOVES || source.stamp(shard)?.stamp().is_none_or(|now| now == stamp) {
            return Err(error);
        }
        cancel.check(&source.path(&[]))?;
    }
}

/// Compares one shard with the checksums that its layout keeps. What cannot be compared, and why, is returned.
pub(super) fn verify(
    source: &dyn DatasetSource,
    shard: &[u8],
    parser: &dyn ShardParser,
    cancel: &Cancel,
) -> Result<Option<String>> {
    let (bytes, _) = open(source, shard, cancel)?;
    parser.verify(shard, &bytes).map_err(|error| malformed(&source.path(shard), &bytes, error))
}

/// Whether a tar shard is a tar of tars, by its first members.
pub(super) fn is_tar_of_tars(source: &dyn DatasetSource, shard: &[u8], cancel: &Cancel) -> Result<bool> {
    let (bytes, _) = open(source, shard, cancel)?;
    // Tars of tars are read only where they are not compressed.
    if whole_file::codec_of(&bytes).is_ok_and(|codec| codec.is_some()) {
        return Ok(false);
    }
    layouts::is_tar_of_tars(&bytes).map_err(|error| malformed(&source.path(shard), &bytes, error))
}

/// The name of the first image in a tar shard; what lies behind it is not looked at.
pub(super) fn first_image(
    source: &dyn DatasetSource,
    shard: &[u8],
    cancel: &Cancel,
) -> Result<Option<String>> {
    let (bytes, _) = open(source, shard, cancel)?;
    let first = whole_file::codec_of(&bytes).and_then(|codec| match codec {
        Some(codec) => {
            let shard = UnpackedShard::of(&bytes, codec, None)?;
            samples::first_image(shard.bytes()).map_err(unpacked_place)
        }
        None => samples::first_image(&bytes),
    });
    first.map_err(|error| malformed(&source.path(shard), &bytes, error))
}
