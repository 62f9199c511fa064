//! Packs a dataset into shards of Foreload's own format or into tar shards. Also unpacks shards of Foreload's own
//! format.
//!
//! `plan` decides first which samples go into which shard. Each thread then writes one shard at a time. A shard gets
//! its name when it is complete; the manifest is written last. So a later run can resume a killed run, and the result
//! is the same, bit for bit. `dataset::packed` defines the format.
//!
//! - `source` reads the samples of any layout, each once and in order, and `blocks` keeps their compressed blocks.
//! - `walk` finds existing shards and makes the missing ones, both packed and tar; `place` owns the target directory.
//! - `shard` writes packed shards. `tars` writes tar shards, whose member names `tar_members` chooses.
//! - `unpack` restores the files of a packed dataset. It trusts no name and overwrites nothing.
//!
//! A packed dataset has the samples, order, fingerprint, labels, members, names and batches of its source. Every file
//! of a sample can be restored byte for byte. The shards depend only on the index and the shard size, however often
//! packing was killed. → `tests/load/pack/`

mod blocks;
mod disk_space;
mod finished;
mod finished_tars;
mod names;
mod open_shard;
mod packed_reader;
mod place;
mod plan;
mod shard;
mod source;
mod tar_file;
mod tar_members;
mod tars;
mod threads;
mod tree;
mod unpack;
mod walk;

pub use tars::{TarReport, pack_as_tars};
pub use unpack::{UnpackReport, unpack};

use crate::dataset::packed::{
    MANIFEST_FILE, PackedManifest, PackedShard, PackingFacts, RawName, ShardIdentity, ShardTally,
    TARS_MARKER_FILE, is_shard_name, shard_name,
};
use crate::dataset::{Contents, DatasetIndex, IndexOptions, Layout, Skipped};
use base::error::{Error, Result};
use base::names::named;
use open_shard::OpenPackedShard;
use place::{PackingRecord, PackingTarget, TargetState};
use serde::Serialize;
use shard::ShardPacker;
use source::{PackSource, SampleReader};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{ErrorKind, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Instant;
use walk::{FinishedShards, MakesShards, ShardRun};

/// Required disk space in bytes for each byte of the source, an upper estimate for packed photographs.
const DISK_SPACE: f64 = 1.35;
/// Additional disk space in bytes for each sample: headers, names and offsets, which matter for tiny images.
const DISK_SPACE_PER_SAMPLE: u64 = 512;

/// Format that a dataset is packed into.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum PackedAs {
    /// Packed shards in Foreload's own format.
    #[default]
    Packed,
    /// Tar shards as in WebDataset.
    Tar,
}

named!(PackedAs: "packed" => Packed, "tar" => Tar);

impl PackedAs {
    fn is_packed(&self) -> bool {
        *self == Self::Packed
    }

    /// Returns the file that is written last. If it exists, packing has finished.
    fn finished(self) -> &'static str {
        match self {
            Self::Packed => MANIFEST_FILE,
            Self::Tar => TARS_MARKER_FILE,
        }
    }

    fn is_own(self, name: &[u8]) -> bool {
        match self {
            Self::Packed => is_shard_name(name),
            Self::Tar => tars::is_own(name),
        }
    }
}

/// What to pack, and how.
#[derive(Debug, Clone)]
pub struct PackOptions {
    /// The dataset.
    pub source: PathBuf,
    /// The directory that becomes the packed dataset: new, empty, or begun by an earlier run.
    pub into: PathBuf,
    /// Options for the index of the source.
    pub index: IndexOptions,
    /// Maximum number of bytes of the source in a shard with several samples.
    pub shard_size: u64,
    /// Number of threads.
    pub threads: usize,
    /// Whether to start even if the file system may have too little space.
    pub force: bool,
}

impl PackOptions {
    /// Returns these options with so few threads that the decompressed blocks that they hold fit into memory.
    fn within_memory(&self, index: &DatasetIndex, facts: &PackingFacts) -> Self {
        Self { threads: blocks::threads(index, &facts.table, self.threads), ..self.clone() }
    }
}

/// Result of packing a dataset.
#[derive(Debug, Clone, Serialize)]
pub struct PackReport {
    /// Counts of the files.
    #[serde(flatten)]
    pub tally: ShardTally,
    /// Files that were skipped when the source was listed, by reason.
    pub left_out: BTreeMap<String, Skipped>,
    /// Number of bytes of all shards.
    pub bytes: u64,
    /// Number of shards.
    pub shards: u64,
    /// Number of samples in shards of an earlier run.
    pub samples_before: u64,
    /// Number of shards of an earlier run that were packed again, because their source files had been written to.
    pub shards_again: u64,
    /// Fingerprint of the source, and also of the packed dataset.
    pub fingerprint: String,
    /// Number of threads.
    pub threads: usize,
    /// Duration of packing in seconds.
    pub seconds: f64,
}

/// Packs a dataset. Calls `progress` with the number of all samples first, and with `None` for each finished sample.
///
/// # Errors
/// [`Error::Config`] if one directory contains the other, if other class numbers than the source's are requested, and
/// if disk space is insufficient. [`Error::Dataset`] for a source that cannot be indexed or read, and for a directory
/// with other contents. [`Error::DatasetChanged`] if the source changes during packing; [`Error::Io`] if writing fails.
pub fn pack(options: &PackOptions, progress: &(dyn Fn(Option<u64>) + Sync)) -> Result<PackReport> {
    let began = Instant::now();
    let PackOptions { source, into, .. } = options;
    place::refuse_nested(source, into)?;
    if options.index.class_names.is_some() {
        let message = "is only valid with --to tar: a packed dataset keeps the classes of its source; set class_names \
                       when it is loaded to number them";
        return Err(Error::config("class_names", message));
    }
    let index = DatasetIndex::open(source, &options.index)?;
    refuse_arrays(&index)?;
    let facts = index.packing_facts();
    refuse_fields(options, &facts)?;
    if facts.layout == Layout::Packed {
        return Err(Error::dataset(index.root(), "is already a packed dataset"));
    }
    let options = &options.within_memory(&index, &facts);
    let shards = plan::shards(&index, options.shard_size)?;
    let record = PackingRecord {
        version: PackingRecord::VERSION,
        fingerprint: index.fingerprint().to_string(),
        shard_size: options.shard_size,
        to: PackedAs::Packed,
        class_names: None,
        label: None,
    };
    let report = |manifest: PackedManifest, samples_before, shards_again| PackReport {
        bytes: manifest.shards.iter().map(|shard| shard.bytes).sum(),
        shards: manifest.shards.len() as u64,
        tally: manifest.tally,
        left_out: manifest.left_out,
        samples_before,
        shards_again,
        fingerprint: manifest.fingerprint,
        threads: options.threads,
        seconds: began.elapsed().as_secs_f64(),
    };
    progress(Some(index.len()));
    let place = match PackingTarget::open(into, &record)? {
        TargetState::Open(place) => place,
        TargetState::Finished => {
            let manifest = finished::finished(options, &index, &record)?;
            place::remove_leftover_record(into)?;
            let samples = manifest.tally.samples;
            return Ok(report(manifest, samples, 0));
        }
    };
    let maker = PackedMaker {
        index: &index,
        layout: facts.layout,
        source: PackSource::new(&index, &facts, options.threads),
    };
    let walk = ShardRun { index: &index, place: &place, options, progress, shards: &shards };
    let FinishedShards { made, samples_before, again } = walk.run(&&maker)?;
    let manifest = manifest(&index, &facts, options, maker.left_out_shards()?, made);
    place.publish(MANIFEST_FILE, |mut file| {
        let text = serde_json::to_vec(&manifest).map_err(|error| Error::Internal(error.to_string()))?;
        file.write_all(&text).map_err(|error| Error::io("write", into.join(MANIFEST_FILE), error))
    })?;
    place.finish()?;
    Ok(report(manifest, samples_before, again))
}

/// Whether a dataset can be packed: only if it is not already packed, and its samples are not parts of arrays.
pub fn can_pack(index: &DatasetIndex) -> bool {
    !index.is_packed() && !index.has_arrays()
}

fn refuse_arrays(index: &DatasetIndex) -> Result<()> {
    let why = "holds arrays, which cannot be packed: a loader reads them as they are";
    if index.has_arrays() { Err(Error::dataset(index.root(), why)) } else { Ok(()) }
}

/// Refuses fields for a source that is packed with all fields.
fn refuse_fields(options: &PackOptions, facts: &PackingFacts) -> Result<()> {
    if options.index.parallel.is_empty() || facts.layout == Layout::Parallel {
        return Ok(());
    }
    let message = "is only for parallel directories, such as images and masks: a packed dataset has all fields of its \
                   source, so remove it";
    Err(Error::config("fields", message))
}

struct PackedMaker<'a> {
    index: &'a DatasetIndex,
    layout: Layout,
    source: PackSource<'a>,
}

impl<'a> MakesShards for &'a PackedMaker<'a> {
    type Memory = ShardPacker<'a>;
    type Made = (ShardTally, ShardIdentity);

    const DISK_SPACE: (f64, u64) = (DISK_SPACE, DISK_SPACE_PER_SAMPLE);

    fn name(number: usize) -> String {
        shard_name(number)
    }

    fn memory(&self) -> ShardPacker<'a> {
        ShardPacker::new(self.index, self.layout, &self.source)
    }

    fn found(&self, number: usize, samples: &Range<u64>, path: &Path) -> Result<Option<Self::Made>> {
        let wrong = |path, message: &str| {
            Error::dataset(path, format!("{message}: remove this shard and pack again"))
        };
        let (OpenPackedShard { path, footer, .. }, identity) = match OpenPackedShard::read(path.to_path_buf())
        {
            Err(Error::Io { source, .. }) if source.kind() == ErrorKind::NotFound => return Ok(None),
            Err(Error::Dataset { path, message }) => return Err(wrong(path, &message)),
            read => read?,
        };
        let same = footer.fingerprint == self.index.fingerprint().0
            && (footer.number as usize, footer.first) == (number, samples.start)
            && footer.samples.len() as u64 == samples.end - samples.start;
        if !same {
            return Err(wrong(path, "is a shard of another packed dataset"));
        }
        Ok(Some((ShardTally::of(&footer), identity)))
    }

    fn make(
        &self,
        packer: &mut ShardPacker<'a>,
        number: usize,
        samples: Range<u64>,
        (file, path): (&File, &Path),
        done: &(dyn Fn() -> Result<()> + Sync),
    ) -> Result<(Self::Made, String)> {
        let (footer, identity, stamps) = packer.pack(number, samples, file, path, done)?;
        Ok(((ShardTally::of(&footer), identity), stamps))
    }
}

impl PackedMaker<'_> {
    /// Returns the number of members of tar shards from which no sample comes. No packed shard counts these members.
    fn left_out_shards(&self) -> Result<u64> {
        if self.layout != Layout::Tar {
            return Ok(0);
        }
        let mut reader = SampleReader::new(&self.source);
        let empty = self.index.files().filter(|&file| self.index.samples_of(file).is_empty());
        let empty = empty.filter(|&file| !self.index.is_bad_shard(file));
        empty.map(|file| Ok(reader.listing(file)?.left_out(std::iter::empty()))).sum()
    }
}

fn manifest(
    index: &DatasetIndex,
    facts: &PackingFacts,
    options: &PackOptions,
    members_left_out: u64,
    made: Vec<((ShardTally, ShardIdentity), String)>,
) -> PackedManifest {
    let mut tally = ShardTally { members_left_out, ..ShardTally::default() };
    made.iter().for_each(|((own, _), _)| tally.add(own));
    let shard = |((own, identity), stamps): ((ShardTally, ShardIdentity), String)| {
        PackedShard::new(&identity, own.samples, stamps)
    };
    PackedManifest {
        version: PackedManifest::VERSION,
        fingerprint: index.fingerprint().to_string(),
        files: index.contents() == Contents::Files,
        layout: facts.layout,
        shard_size: options.shard_size,
        classes: facts.classes.iter().map(|name| RawName::of(name)).collect(),
        notes: facts.notes.clone(),
        left_out: facts.left_out.clone(),
        tally,
        shards: made.into_iter().map(shard).collect(),
    }
}
