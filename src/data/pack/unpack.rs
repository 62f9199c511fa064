//! Restores the files from which a packed dataset was made: loose files at their paths, members in tar shards, and
//! records in TFRecord shards with their original names.
//!
//! A packed dataset may come from an attacker. So names are checked component by component, checksums are verified
//! before anything is written, and nothing is overwritten.

use super::open_shard::OpenPackedShard;
use super::packed_reader::FileReader;
use super::place::refuse_url;
use super::tar_file::TarFile;
use super::threads::{JobStop, each_job};
use super::tree::OutputTree;
use super::{names, place};
use crate::dataset::layouts::masked;
use crate::dataset::packed::{MANIFEST_FILE, PackedManifest, PackedMember};
use crate::dataset::{Layout, Skipped};
use base::crc::checksum;
use base::error::{Error, Result};
use serde::Serialize;
use std::collections::BTreeMap;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

const WRITE_BUFFER: usize = 4 << 20;

/// Result of unpacking.
#[derive(Debug, Clone, Default, Serialize)]
pub struct UnpackReport {
    /// Number of files, members or records.
    pub files: u64,
    /// Number of bytes of these files, members or records.
    pub bytes: u64,
    /// Number of restored tar or TFRecord shards; 0 for loose files.
    pub archives: u64,
    /// Number of shards with a compression ending in the source. They are written uncompressed, without that ending.
    pub not_compressed: u64,
    /// Files that were skipped when the source was listed for packing, by reason.
    pub left_out: BTreeMap<String, Skipped>,
    /// Number of members of tar shards that belonged to no sample, and were skipped.
    pub members_left_out: u64,
    /// Duration in seconds.
    pub seconds: f64,
}

/// Restores the original files of the packed dataset at `source` in the directory `into`, which must be new or empty.
/// Calls `progress` with the number of all files first, and with `None` for each finished file.
///
/// # Errors
/// [`Error::Config`] for a directory that is not empty, or if one directory contains the other. [`Error::Dataset`] if
/// `source` is not a packed dataset, or if it is damaged or malicious. [`Error::Io`] if reading or writing fails. After
/// an error, the files written so far stay, but the directory cannot be opened as a dataset.
pub fn unpack(
    source: &Path,
    into: &Path,
    threads: usize,
    progress: &(dyn Fn(Option<u64>) + Sync),
) -> Result<UnpackReport> {
    let began = Instant::now();
    place::refuse_nested(source, into)?;
    refuse_url(source)?;
    let manifest = PackedManifest::find(&*crate::source::at(source)?)?.ok_or_else(|| {
        Error::dataset(source, format!("is not a packed dataset: it has no {MANIFEST_FILE}"))
    })?;
    refuse_unwritable(source, &manifest)?;
    let tree = OutputTree::open(into)?;
    let files =
        manifest.tally.kept.values().fold(manifest.tally.packed, |sum, kept| sum.saturating_add(*kept));
    progress(Some(files));
    if manifest.layout == Layout::Folder {
        // Create the directories of all classes, even of those without images, because they determine the class
        // numbers.
        manifest.classes.iter().try_for_each(|class| tree.make_directory(class.bytes()))?;
    }
    let unpacking = Unpacking { source, manifest: &manifest, tree: &tree, progress };
    let report = unpacking.run(threads)?;
    tree.finish()?;
    let seconds = began.elapsed().as_secs_f64();
    let PackedManifest { left_out, tally, .. } = manifest;
    Ok(UnpackReport { left_out, members_left_out: tally.members_left_out, seconds, ..report })
}

/// Fails for a dataset whose source format cannot be written.
fn refuse_unwritable(source: &Path, manifest: &PackedManifest) -> Result<()> {
    if manifest.layout.is_of_files() {
        return Ok(());
    }
    let title = manifest.layout.title();
    let instead = match manifest.files {
        true => "FileLoader returns the bytes of each".to_owned(),
        false => format!(
            "`foreload pack {} DST --to tar` makes tar shards of it, with the same images and values",
            source.display()
        ),
    };
    Err(Error::dataset(source, format!("was packed from {title}, which unpacking cannot write: {instead}")))
}

/// Returns the name of a source shard without its compression ending, because shards are written uncompressed.
fn plain_name(name: &[u8], layout: Layout) -> Vec<u8> {
    let endings: &[(&str, &str)] = match layout {
        Layout::Tar => &[(".tar.gz", ".tar"), (".tgz", ".tar"), (".tar.zst", ".tar")],
        _ => &[(".gz", ""), (".zlib", "")],
    };
    let plain = |(packed, plain): &(&str, &str)| {
        name.strip_suffix(packed.as_bytes()).map(|start| [start, plain.as_bytes()].concat())
    };
    endings.iter().find_map(plain).unwrap_or_else(|| name.to_vec())
}

enum UnpackJob {
    /// Write the loose files of the packed shard with this index.
    Files(usize),
    /// Write the archive with this name. Its members are in the packed shards with these indexes.
    Archive(Vec<u8>, Vec<usize>),
}

struct Unpacking<'a> {
    source: &'a Path,
    manifest: &'a PackedManifest,
    tree: &'a OutputTree,
    progress: &'a (dyn Fn(Option<u64>) + Sync),
}

impl Unpacking<'_> {
    fn run(&self, threads: usize) -> Result<UnpackReport> {
        let jobs = self.jobs()?;
        let sum = Mutex::new(UnpackReport::default());
        each_job(threads, &jobs, FileReader::default, |files, job, stop| {
            let done = match job {
                UnpackJob::Files(number) => self.write_files(&self.open(*number)?, files, stop)?,
                UnpackJob::Archive(name, shards) => self.write_archive(name, shards, files, stop)?,
            };
            let mut sum = sum.lock().unwrap_or_else(PoisonError::into_inner);
            sum.files += done.files;
            sum.bytes += done.bytes;
            sum.archives += done.archives;
            sum.not_compressed += done.not_compressed;
            Ok(())
        })?;
        Ok(sum.into_inner().unwrap_or_else(PoisonError::into_inner))
    }

    fn jobs(&self) -> Result<Vec<UnpackJob>> {
        let shards = 0..self.manifest.shards.len();
        if self.manifest.layout == Layout::Folder {
            return Ok(shards.map(UnpackJob::Files).collect());
        }
        let mut archives: BTreeMap<Vec<u8>, Vec<usize>> = BTreeMap::new();
        for number in shards {
            for source in self.open(number)?.footer.sources {
                let shards = archives.entry(source).or_default();
                if shards.last() != Some(&number) {
                    shards.push(number);
                }
            }
        }
        Ok(archives.into_iter().map(|(name, shards)| UnpackJob::Archive(name, shards)).collect())
    }

    fn open(&self, number: usize) -> Result<OpenPackedShard> {
        OpenPackedShard::open(self.source, self.manifest, number)
    }

    fn write_files(
        &self,
        shard: &OpenPackedShard,
        files: &mut FileReader,
        stop: &JobStop,
    ) -> Result<UnpackReport> {
        let mut report = UnpackReport::default();
        for (member, name) in shard.footer.by_sample().flat_map(|(_, members)| members) {
            stop.check()?;
            let bytes = files.read(shard, member, name)?;
            self.tree.create(name, |mut file| {
                file.write_all(bytes).map_err(|error| Error::io("write", self.tree.named(name), error))
            })?;
            report.files += 1;
            report.bytes += bytes.len() as u64;
            (self.progress)(None);
        }
        Ok(report)
    }

    fn write_archive(
        &self,
        archive: &[u8],
        shards: &[usize],
        files: &mut FileReader,
        stop: &JobStop,
    ) -> Result<UnpackReport> {
        let shards: Vec<OpenPackedShard> =
            shards.iter().map(|&number| self.open(number)).collect::<Result<_>>()?;
        let mut members: Vec<(&OpenPackedShard, PackedMember, &[u8])> = Vec::new();
        for shard in &shards {
            for (sample, own) in shard.footer.by_sample() {
                if shard.footer.sources[sample.source as usize] == archive {
                    members.extend(own.into_iter().map(|(member, name)| (shard, member, name)));
                }
            }
        }
        members.sort_by_key(|(_, member, _)| member.order);
        let refuse = |shard: &OpenPackedShard, message: String| Err(Error::dataset(&shard.path, message));
        for pair in members.windows(2) {
            if let [(_, first, _), (shard, second, name)] = pair
                && first.order == second.order
            {
                let name = String::from_utf8_lossy(name);
                let message =
                    format!("has two members with the same place in their source shard, one is {name:?}");
                return refuse(shard, message);
            }
        }
        let layout = self.manifest.layout;
        let name = plain_name(archive, layout);
        let not_compressed = u64::from(name != archive);
        let fail = |error| Error::io("write", self.tree.named(&name), error);
        self.tree.create(&name, |file| {
            let mut file = Archive::new(layout, BufWriter::with_capacity(WRITE_BUFFER, file));
            let mut report = UnpackReport { archives: 1, not_compressed, ..UnpackReport::default() };
            for (shard, member, name) in members {
                stop.check()?;
                names::check(name, layout, || shard.path.clone())?;
                let bytes = files.read(shard, member, name)?;
                file.append(name, bytes).map_err(fail)?;
                report.files += 1;
                report.bytes += bytes.len() as u64;
                (self.progress)(None);
            }
            file.finish().map_err(fail)?;
            Ok(report)
        })
    }
}

enum Archive<W: Write> {
    Tar(TarFile<W>),
    TfRecord(W),
}

impl<W: Write> Archive<W> {
    fn new(layout: Layout, file: W) -> Self {
        if layout == Layout::TfRecord { Self::TfRecord(file) } else { Self::Tar(TarFile::new(file)) }
    }

    fn append(&mut self, name: &[u8], bytes: &[u8]) -> std::io::Result<()> {
        match self {
            Self::Tar(file) => file.append(name, bytes),
            Self::TfRecord(file) => {
                let length = (bytes.len() as u64).to_le_bytes();
                file.write_all(&length)?;
                file.write_all(&masked(checksum(&length)).to_le_bytes())?;
                file.write_all(bytes)?;
                file.write_all(&masked(checksum(bytes)).to_le_bytes())
            }
        }
    }

    fn finish(self) -> std::io::Result<()> {
        match self {
            Self::Tar(file) => file.finish().map(drop),
            Self::TfRecord(mut file) => file.flush(),
        }
    }
}
