//! Tar shards as WebDataset writes them: a sample is the adjacent members that share a stem.

use super::archive::{Member, Members};
use super::build::{Builder, Group, Packed, Rows};
use super::cancel::Cancel;
use super::open::Progress;
use super::parallel::collect;
use super::records::records;
use super::source::{Malformed, ReadAt, SizedFile};
use super::{Layout, Notes, Stamp};
use crate::error::{Error, Result};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Longest `.cls` member: a number and white space.
const MAX_CLS: u64 = 64;
/// Longest `.json` member that is searched for a label.
const MAX_JSON: u64 = 16 << 20;

/// What a shard holds.
#[derive(Debug, Default)]
pub struct Contents {
    /// Its samples in order; an unlabelled one has label 0.
    pub samples: Vec<Packed>,
    /// What was left out.
    pub notes: Notes,
    /// The first sample without a label.
    pub unlabeled: Option<String>,
    /// The first sample with one.
    pub labeled: Option<String>,
}

/// Members of one stem.
struct Sample {
    stem: Vec<u8>,
    image: Option<Part>,
    cls: Option<Part>,
    json: Option<Part>,
}

/// A member, and its data where that may be a label: read at once, while the bytes around its header are at hand.
struct Part {
    member: Member,
    data: Option<Vec<u8>>,
}

/// Finds the samples of a shard without reading their images.
///
/// # Errors
/// [`Malformed`] for an archive that is damaged, truncated or compressed, a sample with two images, a label that is no
/// class number, and an image of 4 GiB or more.
pub fn contents<S: ReadAt + ?Sized>(source: &S) -> Result<Contents, Malformed> {
    refuse_compressed(source, "plain tar")?;
    let mut contents = Contents::default();
    let mut members = Members::new(source);
    let mut current: Option<Sample> = None;
    while let Some(member) = members.next_member()? {
        let name = || String::from_utf8_lossy(&member.name).into_owned();
        if !member.plain {
            if !member.name.ends_with(b"/") {
                contents.notes.skip("links, devices and sparse files in shards", name);
            }
            continue;
        }
        let Some((stem, suffix)) = split(&member.name) else {
            contents.notes.skip("members without stem or suffix", name);
            continue;
        };
        if current.as_ref().is_none_or(|sample| sample.stem != stem) {
            let stem = stem.to_vec();
            let next = Sample { stem, image: None, cls: None, json: None };
            contents.close(current.replace(next))?;
        }
        let Some(sample) = &mut current else { continue };
        let labeled = sample.cls.is_some();
        let (slot, limit) = match suffix.as_slice() {
            b"jpg" | b"jpeg" | b"png" => (&mut sample.image, None),
            b"cls" => (&mut sample.cls, Some(MAX_CLS)),
            b"json" => (&mut sample.json, Some(MAX_JSON).filter(|_| !labeled)),
            _ => {
                let suffix = String::from_utf8_lossy(&suffix).into_owned();
                contents.notes.skip(format!(".{suffix} members"), name);
                continue;
            }
        };
        let data = match limit {
            Some(limit) if member.size <= limit => Some(members.read(member.offset, member.size)?),
            _ => None,
        };
        if let Some(Part { member: first, .. }) = slot {
            return Err(Malformed {
                offset: member.offset,
                message: format!(
                    "sample {:?} has two members of one kind, {:?} and {:?}: keep one",
                    String::from_utf8_lossy(&sample.stem),
                    String::from_utf8_lossy(&first.name),
                    String::from_utf8_lossy(&member.name)
                ),
            });
        }
        *slot = Some(Part { member, data });
    }
    contents.close(current)?;
    Ok(contents)
}

impl Contents {
    /// Takes a sample whose last member has passed.
    fn close(&mut self, sample: Option<Sample>) -> Result<(), Malformed> {
        let Some(sample) = sample else { return Ok(()) };
        let name = || String::from_utf8_lossy(&sample.stem).into_owned();
        let Some(Part { member: image, .. }) = &sample.image else {
            self.notes.skip("samples without an image", name);
            return Ok(());
        };
        let length = u32::try_from(image.size).map_err(|_| Malformed {
            offset: image.offset,
            message: format!("the image of sample {:?} has {} bytes: 4 GiB or more", name(), image.size),
        })?;
        let label = match (&sample.cls, &sample.json) {
            (Some(cls), _) => Some(read_cls(cls)?),
            (None, Some(json)) => read_json(json)?,
            (None, None) => None,
        };
        match label {
            Some(_) if self.labeled.is_none() => self.labeled = Some(name()),
            None if self.unlabeled.is_none() => self.unlabeled = Some(name()),
            _ => {}
        }
        self.samples.push(Packed { offset: image.offset, length, label: label.unwrap_or(0) });
        Ok(())
    }
}

/// Stem (directory included) and suffix in lower case, parted at the first dot of the base name, as WebDataset does.
/// `None` for names without a dot and for hidden files.
fn split(name: &[u8]) -> Option<(&[u8], Vec<u8>)> {
    let base = name.iter().rposition(|&b| b == b'/').map_or(0, |slash| slash + 1);
    let dot = name[base..].iter().position(|&b| b == b'.').filter(|&dot| dot > 0)?;
    Some((&name[..base + dot], name[base + dot + 1..].to_ascii_lowercase()))
}

fn read_cls(Part { member, data }: &Part) -> Result<u32, Malformed> {
    let text = data.as_deref().and_then(|data| std::str::from_utf8(data).ok());
    let number = text.and_then(|text| text.trim().parse().ok()).filter(|&number| number < u32::MAX);
    number.ok_or_else(|| Malformed {
        offset: member.offset,
        message: format!(
            "{:?} should hold a class number from 0 to 4294967294 as text",
            String::from_utf8_lossy(&member.name)
        ),
    })
}

/// The integer at `label` or `cls`; `None` where neither key is there.
fn read_json(Part { member, data }: &Part) -> Result<Option<u32>, Malformed> {
    let name = String::from_utf8_lossy(&member.name);
    let fail = |message: String| Malformed { offset: member.offset, message };
    let Some(data) = data else {
        let message = format!("{name:?} has {} bytes; a label is looked for in up to 16 MiB", member.size);
        return Err(fail(message));
    };
    let value: serde_json::Value =
        serde_json::from_slice(data).map_err(|error| fail(format!("{name:?} is not JSON: {error}")))?;
    let Some((key, label)) = ["label", "cls"].iter().find_map(|key| Some((key, value.get(key)?))) else {
        return Ok(None);
    };
    let number = label.as_u64().and_then(|n| u32::try_from(n).ok()).filter(|&n| n < u32::MAX);
    let message = || format!("{name:?}: {key} should be a class number from 0 to 4294967294");
    number.map(Some).ok_or_else(|| fail(message()))
}

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

/// Indexes `shards` (file names below `root`; one empty name where the root is the shard).
pub(super) fn index(
    root: &Path,
    shards: &[Vec<u8>],
    layout: Layout,
    builder: &mut Builder,
    threads: usize,
    progress: &Progress,
    cancel: &Cancel,
) -> Result<Notes> {
    progress.expect(shards.len() as u64, "shards");
    let next = AtomicUsize::new(0);
    let mut notes = Notes::default();
    // The first in the order of the shards, whoever found it first.
    let (mut labeled, mut unlabeled): (Option<Named>, Option<Named>) = (None, None);
    collect(
        threads.min(shards.len()),
        |send| {
            while let Some(shard) = shards.get(next.fetch_add(1, Ordering::Relaxed)) {
                if !send(read(root, shard, layout, cancel)) {
                    return;
                }
            }
        },
        |(group, contents): (Group, Contents)| {
            builder.add(&group)?;
            progress.step(1);
            keep_first(&mut labeled, &group.path, contents.labeled);
            keep_first(&mut unlabeled, &group.path, contents.unlabeled);
            notes.absorb(contents.notes);
            Ok(())
        },
    )?;
    match (labeled, unlabeled) {
        (Some((with, labeled)), Some((shard, sample))) => {
            let message = format!(
                "sample {sample:?} has neither a .cls member nor a .json member with label or cls, but {labeled:?} of \
                 {} has a label: label all samples or none",
                join(root, &with).display()
            );
            Err(Error::dataset(join(root, &shard), message))
        }
        (labeled, _) => {
            notes.unlabeled = labeled.is_none();
            Ok(notes)
        }
    }
}

/// A shard and a sample in it.
type Named = (Vec<u8>, String);

fn keep_first(first: &mut Option<Named>, shard: &[u8], sample: Option<String>) {
    if let Some(sample) = sample
        && first.as_ref().is_none_or(|(known, _)| shard < known.as_slice())
    {
        *first = Some((shard.to_vec(), sample));
    }
}

fn join(root: &Path, shard: &[u8]) -> PathBuf {
    if shard.is_empty() { root.to_path_buf() } else { root.join(OsStr::from_bytes(shard)) }
}

/// A shard that can no longer be read once indexing is cancelled.
struct Cancellable<'a> {
    file: SizedFile,
    cancel: &'a Cancel,
}

impl ReadAt for Cancellable<'_> {
    fn size(&self) -> u64 {
        self.file.size()
    }
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> std::io::Result<usize> {
        self.cancel.check_io()?;
        self.file.read_at(buffer, offset)
    }
}

/// Parses one shard.
pub(super) fn read(root: &Path, shard: &[u8], layout: Layout, cancel: &Cancel) -> Result<(Group, Contents)> {
    cancel.check(root)?;
    let path = join(root, shard);
    let file = std::fs::File::open(&path).map_err(|error| Error::io("open", &path, error))?;
    let metadata = file.metadata().map_err(|error| Error::io("look at", &path, error))?;
    if !metadata.is_file() {
        return Err(Error::dataset(path, "is not a regular file, as a shard must be"));
    }
    // Headers are far apart: reading ahead would read the images. A hint; refusing it costs only speed.
    let _ = rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::Random);
    let source = Cancellable { file: SizedFile { file, size: metadata.len() }, cancel };
    let contents = match layout {
        Layout::TfRecord => records(&source).map(|samples| Contents { samples, ..Contents::default() }),
        _ => contents(&source),
    };
    let mut contents = contents
        .map_err(|error| Error::dataset(&path, format!("at byte {}: {}", error.offset, error.message)))?;
    let rows = Rows::Shard(std::mem::take(&mut contents.samples));
    Ok((Group { path: shard.to_vec(), stamp: Stamp::of(&metadata), rows }, contents))
}

#[cfg(test)]
mod tests {
    use super::split;

    #[test]
    fn names_are_parted_as_webdataset_parts_them() {
        let parts = |name: &'static str| split(name.as_bytes());
        assert_eq!(parts("a/b.c/d.seg.PNG"), Some((&b"a/b.c/d"[..], b"seg.png".to_vec())));
        assert_eq!(parts("./000.jpg"), Some((&b"./000"[..], b"jpg".to_vec())));
        assert_eq!(parts("a/.hidden.jpg"), None);
        assert_eq!(parts("a.b/README"), None);
    }
}
