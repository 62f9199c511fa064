//! Shards of a dataset, tar, TFRecord or packed: each is read once, by several threads.

use super::build::{GroupRows, IndexBuilder, IndexGroup, ShardRows};
use super::cancel::Cancel;
use super::open::IndexProgress;
use super::parallel::collect;
pub(crate) use super::samples::{ShardContents, ShardFindings};
pub use super::samples::{Stems, contents};
use super::summary::LabelFault;
use super::tfrecord::records;
use super::{Layout, Notes, Stamp, packed, samples};
use crate::error::{Error, Result};
use crate::source::{DatasetSource, Malformed, OpenFile, ReadAt};
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

/// Whether a file name promises a compressed tar.
pub(super) fn is_compressed_name(name: &OsStr) -> bool {
    let name = name.as_bytes();
    let tar = [".tar.gz", ".tar.zst", ".tar.bz2", ".tar.xz", ".tar.lz4", ".tgz"];
    tar.iter().any(|ending| name.ends_with(ending.as_bytes()))
}

/// Indexes the shards of these names; the only name is empty where the root is the shard.
pub(super) fn index(
    source: &dyn DatasetSource,
    shards: &[Vec<u8>],
    kind: ShardKind,
    builder: &mut IndexBuilder,
    threads: usize,
    progress: &IndexProgress,
    cancel: &Cancel,
) -> Result<Notes> {
    progress.expect(shards.len() as u64, "shards");
    let next = AtomicUsize::new(0);
    let mut notes = Notes { every_stem: kind == ShardKind::Tar(Stems::All), ..Notes::default() };
    let mut has_images = false;
    // The first in the order of the shards, whoever found it first.
    let (mut labeled, mut unlabeled, mut unusable): (Option<Named>, Option<Named>, Option<Named>) =
        (None, None, None);
    collect(
        threads.min(shards.len()),
        |send| {
            while let Some(shard) = shards.get(next.fetch_add(1, Ordering::Relaxed)) {
                let contents = read(source, shard, kind, cancel);
                if !send(contents.map(|(stamp, contents)| (shard, stamp, contents))) {
                    return;
                }
            }
        },
        |(shard, stamp, ShardContents { rows, findings }): (&Vec<u8>, Stamp, ShardContents)| {
            builder.add(&IndexGroup { path: shard.clone(), stamp, rows: GroupRows::Shard(rows) })?;
            progress.step(1);
            keep_first(&mut labeled, shard, findings.labeled);
            keep_first(&mut unlabeled, shard, findings.unlabeled);
            keep_first(&mut unusable, shard, findings.unusable);
            has_images |= findings.has_images;
            notes.absorb(findings.notes);
            Ok(())
        },
    )?;
    notes.label_fault = match (&labeled, unlabeled, unusable) {
        (_, _, Some((shard, message))) => Some(LabelFault::new(&shard, message)),
        (Some((with, labeled)), Some((shard, sample)), None) => {
            let message = format!(
                "sample {sample:?} has neither a .cls member nor a .json member with label or cls, but {labeled:?} of \
                 {} has a label: label all samples or none",
                source.path(with).display()
            );
            Some(LabelFault::new(&shard, message))
        }
        _ => None,
    };
    notes.unlabeled = labeled.is_none() || notes.label_fault.is_some();
    notes.imageless = notes.every_stem && !has_images;
    Ok(notes)
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
}

fn open<'a>(
    source: &dyn DatasetSource,
    shard: &[u8],
    cancel: &'a Cancel,
) -> Result<(Cancellable<'a>, Stamp)> {
    let OpenFile { bytes, stamp } = source.open(shard)?;
    Ok((Cancellable { bytes, cancel }, stamp))
}

fn malformed(path: &Path, Malformed { offset, message }: Malformed) -> Error {
    Error::dataset(path, format!("at byte {offset}: {message}"))
}

/// What shards are, and what in them is a sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ShardKind {
    Tar(Stems),
    TfRecord,
    Packed,
}

impl ShardKind {
    /// The kind of shards of `layout`, in which stems without an image are samples if `every_stem` says so; `None`
    /// where samples are loose files.
    pub(super) fn of(layout: Layout, every_stem: bool) -> Option<Self> {
        match layout {
            Layout::Folder => None,
            Layout::Tar if every_stem => Some(Self::Tar(Stems::All)),
            Layout::Tar => Some(Self::Tar(Stems::WithImage)),
            Layout::TfRecord => Some(Self::TfRecord),
            Layout::Packed => Some(Self::Packed),
        }
    }
}

/// Parses one shard, which has this stamp.
pub(super) fn read(
    source: &dyn DatasetSource,
    shard: &[u8],
    kind: ShardKind,
    cancel: &Cancel,
) -> Result<(Stamp, ShardContents)> {
    cancel.check(&source.path(&[]))?;
    let (bytes, stamp) = open(source, shard, cancel)?;
    let contents = match kind {
        ShardKind::Tar(stems) => contents(&bytes, stems),
        ShardKind::Packed => packed::shard_contents(&bytes),
        ShardKind::TfRecord => records(&bytes).map(|samples| ShardContents {
            rows: ShardRows { samples, ..ShardRows::default() },
            findings: ShardFindings::default(),
        }),
    };
    Ok((stamp, contents.map_err(|error| malformed(&source.path(shard), error))?))
}

/// The name of the first image in a tar shard; what lies behind it is not looked at.
pub(super) fn first_image(
    source: &dyn DatasetSource,
    shard: &[u8],
    cancel: &Cancel,
) -> Result<Option<String>> {
    let (bytes, _) = open(source, shard, cancel)?;
    samples::first_image(&bytes).map_err(|error| malformed(&source.path(shard), error))
}
