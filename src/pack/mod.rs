//! Packs a dataset into shards of our own, and gives its files back.
//!
//! Which samples go into which shard is decided first. Each thread then packs a shard at a time, which appears under
//! its name when it is whole; the manifest comes last. So a run that was killed is gone on with by the next one, and
//! what comes out is the same, bit for bit. `dataset::packed` has the format.

mod finished;
mod names;
mod open_shard;
mod packed_reader;
mod place;
mod plan;
mod room;
mod shard;
mod source;
mod tar_file;
mod tar_members;
mod tars;
mod threads;
mod tree;
mod unpack;

pub(crate) use tars::{TarReport, pack_as_tars};
pub(crate) use unpack::{UnpackReport, unpack};

use crate::dataset::packed::{
    MANIFEST, PackedFooter, PackedManifest, PackedShard, PackingFacts, RawName, ShardSeal, ShardTally,
    is_shard_name, shard_name,
};
use crate::dataset::{Contents, DatasetIndex, IndexOptions, Layout, Skipped};
use crate::error::{Error, Result};
use crate::names::named;
use open_shard::OpenPackedShard;
use place::{FoundPlace, PackingPlace, PackingRecord};
use serde::Serialize;
use shard::ShardPacker;
use source::PackSource;
use std::collections::BTreeMap;
use std::io::{ErrorKind, Write};
use std::ops::Range;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

/// How much room is wanted for a byte of the source, which is more than packed photographs take.
const ROOM: f64 = 1.35;
/// How many bytes of room are wanted for each sample beside that: headers, names and places, which are much of a tiny
/// image.
const ROOM_OF_SAMPLE: u64 = 512;

/// What is made of a dataset.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum PackedAs {
    /// Shards of our own.
    #[default]
    Packed,
    /// Tar shards as WebDataset has them.
    Tar,
}

named!(PackedAs: "packed" => Packed, "tar" => Tar);

impl PackedAs {
    fn is_packed(&self) -> bool {
        *self == Self::Packed
    }

    /// Whether a file of this name is one that packing makes.
    fn is_own(self, name: &[u8]) -> bool {
        match self {
            Self::Packed => is_shard_name(name),
            Self::Tar => tars::is_own(name),
        }
    }
}

/// What is to be packed, and how.
#[derive(Debug, Clone)]
pub(crate) struct PackOptions {
    /// The dataset.
    pub(crate) source: PathBuf,
    /// The directory that becomes the packed dataset: new, empty, or begun by an earlier run.
    pub(crate) into: PathBuf,
    /// How the source is indexed.
    pub(crate) index: IndexOptions,
    /// The most bytes of the source in a shard of several samples.
    pub(crate) shard_size: u64,
    /// The number of threads.
    pub(crate) threads: usize,
    /// Whether to begin although the file system may have too little room.
    pub(crate) force: bool,
}

/// What became of a dataset that was packed.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct PackReport {
    /// What became of its files.
    #[serde(flatten)]
    pub(crate) tally: ShardTally,
    /// What was left out when the source was listed, by reason.
    pub(crate) left_out: BTreeMap<String, Skipped>,
    /// The number of bytes of all shards.
    pub(crate) bytes: u64,
    /// The number of shards.
    pub(crate) shards: u64,
    /// The number of samples in shards that an earlier run had finished.
    pub(crate) samples_before: u64,
    /// The number of shards of an earlier run that were packed again, since files of theirs were written meanwhile.
    pub(crate) shards_again: u64,
    /// The fingerprint of the source, which the packed dataset has too.
    pub(crate) fingerprint: String,
    /// The number of threads.
    pub(crate) threads: usize,
    /// The seconds that packing took.
    pub(crate) seconds: f64,
}

/// A shard that is there.
type FinishedShard = (PackedShard, ShardTally);

/// What an earlier run left of a shard.
enum FoundShard {
    Missing,
    /// Files of the source were written since they were packed into it.
    Stale,
    Finished(FinishedShard),
}

/// Packs a dataset. `progress` is called with the number of all samples at first, and with `None` for each that is
/// done.
///
/// # Errors
/// [`Error::Config`] for directories of which one lies in the other, and where there is too little room;
/// [`Error::Dataset`] for a source that cannot be indexed or read, and for a directory that holds anything else;
/// [`Error::DatasetChanged`] for a source that changes meanwhile; [`Error::Io`] where nothing can be written.
pub(crate) fn pack(options: &PackOptions, progress: &(dyn Fn(Option<u64>) + Sync)) -> Result<PackReport> {
    let began = Instant::now();
    let PackOptions { source, into, .. } = options;
    place::refuse_nested(source, into)?;
    let index = DatasetIndex::open(source, &options.index)?;
    let facts = index.packing_facts();
    refuse_unreadable(&index, &facts)?;
    if facts.layout == Layout::Packed {
        return Err(Error::dataset(index.root(), "is packed already"));
    }
    let shards = plan::shards(&index, options.shard_size)?;
    let record = PackingRecord {
        version: PackingRecord::VERSION,
        fingerprint: index.fingerprint().to_string(),
        shard_size: options.shard_size,
        to: PackedAs::Packed,
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
    let place = match PackingPlace::open(into, &record)? {
        FoundPlace::Open(place) => place,
        FoundPlace::Finished => {
            let manifest = finished::finished(options, &index, &record)?;
            place::tidy_finished(into)?;
            let samples = manifest.tally.samples;
            return Ok(report(manifest, samples, 0));
        }
    };
    let work =
        PackingWork { index: &index, facts: &facts, place: &place, options, progress, shards: &shards };
    let (manifest, samples_before, shards_again) = work.run()?;
    place.publish(MANIFEST, |mut file| {
        let text = serde_json::to_vec(&manifest).map_err(|error| Error::Internal(error.to_string()))?;
        file.write_all(&text).map_err(|error| Error::io("write", into.join(MANIFEST), error))
    })?;
    place.finish()?;
    Ok(report(manifest, samples_before, shards_again))
}

/// Whether a dataset could be packed.
pub(crate) fn can_pack(index: &DatasetIndex) -> bool {
    let mut layouts = index.summaries().map(|summary| summary.layout);
    !index.is_packed() && !index.has_blocks() && layouts.all(Layout::can_be_packed)
}

/// Refuses a dataset whose samples cannot be read to be packed, into whatever shards.
///
/// # Errors
/// [`Error::Dataset`] with what it has.
fn refuse_unreadable(index: &DatasetIndex, facts: &PackingFacts) -> Result<()> {
    if !facts.layout.can_be_packed() {
        let message = format!("has {}, which cannot be packed yet", facts.layout.title());
        return Err(Error::dataset(index.root(), message));
    }
    if index.has_blocks() {
        let message = "has samples in compressed blocks, which are not packed yet: unpack its shards first";
        return Err(Error::dataset(index.root(), message));
    }
    Ok(())
}

/// What the threads that pack shards share.
struct PackingWork<'a> {
    index: &'a DatasetIndex,
    facts: &'a PackingFacts,
    place: &'a PackingPlace,
    options: &'a PackOptions,
    progress: &'a (dyn Fn(Option<u64>) + Sync),
    shards: &'a [Range<u64>],
}

impl PackingWork<'_> {
    /// Packs all shards that are not there yet. Returns the manifest, the number of samples that were there, and that
    /// of the shards that had to be packed again.
    fn run(&self) -> Result<(PackedManifest, u64, u64)> {
        let (found, again) = self.find_all()?;
        let samples_before = found.iter().flatten().map(|(shard, _)| shard.samples).sum();
        let missing: Vec<usize> = (0..found.len()).filter(|&number| found[number].is_none()).collect();
        room::check(self.index, self.shards, &missing, ROOM, ROOM_OF_SAMPLE, self.options)?;
        let found = Mutex::new(found);
        self.pack_missing(&missing, &found)?;
        let found = found.into_inner().unwrap_or_else(PoisonError::into_inner);
        let found: Option<Vec<FinishedShard>> = found.into_iter().collect();
        let found = found.ok_or_else(|| Error::Internal("a shard was not packed".to_owned()))?;
        let mut tally = ShardTally { members_left_out: self.left_out_shards()?, ..ShardTally::default() };
        found.iter().for_each(|(_, own)| tally.add(own));
        let manifest = PackedManifest {
            version: PackedManifest::VERSION,
            fingerprint: self.index.fingerprint().to_string(),
            files: self.index.contents() == Contents::Files,
            layout: self.facts.layout,
            shard_size: self.options.shard_size,
            classes: self.facts.classes.iter().map(|name| RawName::of(name)).collect(),
            notes: self.facts.notes.clone(),
            left_out: self.facts.left_out.clone(),
            tally,
            shards: found.into_iter().map(|(shard, _)| shard).collect(),
        };
        Ok((manifest, samples_before, again))
    }

    /// The shards that an earlier run has finished, and the number of those that must be packed again. The source's
    /// files are looked at by all threads, since storage behind a network takes its time for each.
    fn find_all(&self) -> Result<(Vec<Option<FinishedShard>>, u64)> {
        let numbers: Vec<usize> = (0..self.shards.len()).collect();
        let found = Mutex::new((vec![None; numbers.len()], 0));
        threads::each_job(
            self.options.threads,
            &numbers,
            || (),
            |(), &number, stop| {
                stop.check()?;
                let shard = self.find(number)?;
                let mut found = found.lock().unwrap_or_else(PoisonError::into_inner);
                match shard {
                    FoundShard::Missing => {}
                    FoundShard::Stale => found.1 += 1,
                    FoundShard::Finished(shard) => found.0[number] = Some(shard),
                }
                Ok(())
            },
        )?;
        Ok(found.into_inner().unwrap_or_else(PoisonError::into_inner))
    }

    /// What an earlier run left of the shard with this number.
    fn find(&self, number: usize) -> Result<FoundShard> {
        let wrong =
            |path, message: &str| Error::dataset(path, format!("{message}: remove it and pack again"));
        let (shard, seal) = match OpenPackedShard::read(self.place.path().join(shard_name(number))) {
            Err(Error::Io { source, .. }) if source.kind() == ErrorKind::NotFound => {
                return Ok(FoundShard::Missing);
            }
            Err(Error::Dataset { path, message }) => return Err(wrong(path, &message)),
            read => read?,
        };
        let footer = &shard.footer;
        let samples = &self.shards[number];
        let same = footer.fingerprint == self.index.fingerprint().0
            && (footer.number as usize, footer.first) == (number, samples.start)
            && footer.samples.len() as u64 == samples.end - samples.start;
        if !same {
            return Err(wrong(shard.path, "is a shard of another packed dataset"));
        }
        // Where a file is gone, packing the shard again says so.
        match self.index.packing_stamps(samples.clone()) {
            Ok(stamps) if Some(&stamps) == self.place.noted(number) => {
                (0..footer.samples.len()).for_each(|_| (self.progress)(None));
                Ok(FoundShard::Finished(finish(footer, &seal, stamps)))
            }
            _ => Ok(FoundShard::Stale),
        }
    }

    fn pack_missing(&self, missing: &[usize], found: &Mutex<Vec<Option<FinishedShard>>>) -> Result<()> {
        let threads = self.options.threads.min(missing.len());
        let (index, layout) = (self.index, self.facts.layout);
        let source = PackSource::new(index, self.facts, threads);
        let packer = || ShardPacker::new(index, layout, &source);
        threads::each_job(threads, missing, packer, |packer, &number, stop| {
            let name = shard_name(number);
            let path = self.place.path().join(&name);
            let done = || {
                (self.progress)(None);
                stop.check()
            };
            let samples = self.shards[number].clone();
            let (footer, seal, stamps) = self.place.publish(&name, |file| {
                let (footer, seal, stamps) = packer.pack(number, samples, file, &path, &done)?;
                self.place.note(number, &stamps)?;
                Ok((footer, seal, stamps))
            })?;
            found.lock().unwrap_or_else(PoisonError::into_inner)[number] =
                Some(finish(&footer, &seal, stamps));
            Ok(())
        })
    }

    /// The number of members in tar shards that have no sample at all, and so are nowhere in the packed shards.
    fn left_out_shards(&self) -> Result<u64> {
        if self.facts.layout != Layout::Tar {
            return Ok(0);
        }
        let source = PackSource::new(self.index, self.facts, 1);
        let empty = self.index.files().filter(|&file| self.index.samples_of(file).is_empty());
        empty.map(|file| Ok(source.listing(file)?.left_out(std::iter::empty()))).sum()
    }
}

/// What the manifest says of a shard.
fn finish(footer: &PackedFooter, seal: &ShardSeal, stamps: String) -> FinishedShard {
    let tally = ShardTally::of(footer);
    (PackedShard::new(seal, tally.samples, stamps), tally)
}
