//! Packs a dataset into shards of our own, and gives its files back.
//!
//! Which samples go into which shard is decided first. Each thread then packs a shard at a time, which appears under
//! its name when it is whole; the manifest comes last. So a run that was killed is gone on with by the next one, and
//! what comes out is the same, bit for bit. `dataset::packed` has the format.

mod finished;
mod names;
mod open_shard;
mod place;
mod plan;
mod shard;
mod source;
mod tar_file;
mod threads;
mod tree;
mod unpack;

pub(crate) use unpack::{UnpackReport, unpack};

use crate::dataset::packed::{
    MANIFEST, MOST_SHARDS, PackedFooter, PackedManifest, PackedShard, PackingFacts, RawName, ShardSeal,
    ShardTally, shard_name,
};
use crate::dataset::{Contents, DatasetIndex, IndexOptions, Layout, Skipped};
use crate::error::{Error, Result};
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
    if facts.layout == Layout::Packed {
        return Err(Error::dataset(index.root(), "is packed already"));
    }
    if !facts.layout.can_be_packed() {
        let message = format!("has {}, which cannot be packed yet", facts.layout.title());
        return Err(Error::dataset(index.root(), message));
    }
    let shards = plan::shards(&index, options.shard_size);
    if shards.len() > MOST_SHARDS {
        let message =
            format!("would make {} shards, must make at most {MOST_SHARDS}: raise it", shards.len());
        return Err(Error::config("shard-size", message));
    }
    let record = PackingRecord {
        version: PackingRecord::VERSION,
        fingerprint: index.fingerprint().to_string(),
        shard_size: options.shard_size,
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
        self.check_room(&missing)?;
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

    /// Checks that the file system has room for the shards that are missing.
    fn check_room(&self, missing: &[usize]) -> Result<()> {
        let samples = missing.iter().flat_map(|&number| self.shards[number].clone());
        let bytes = |(count, bytes), sample| (count + 1, bytes + self.index.packing_bytes(sample));
        let (count, bytes): (u64, u64) = samples.fold((0, 0), bytes);
        let wanted = (ROOM * bytes as f64) as u64 + ROOM_OF_SAMPLE * count;
        let path = self.place.path();
        // A file system that cannot say what is free is written to until it is full.
        let Ok(found) = rustix::fs::statvfs(path) else { return Ok(()) };
        let free = found.f_bavail.saturating_mul(found.f_frsize);
        if free < wanted && !self.options.force {
            let message = format!(
                "{} has {free} bytes free, and packing may take {wanted}, {ROOM} times the {bytes} bytes that are \
                 still to be packed and {ROOM_OF_SAMPLE} bytes a sample: make room, name another directory, or try \
                 all the same with --force",
                path.display()
            );
            return Err(Error::config("DST", message));
        }
        Ok(())
    }

    fn pack_missing(&self, missing: &[usize], found: &Mutex<Vec<Option<FinishedShard>>>) -> Result<()> {
        let threads = self.options.threads.min(missing.len());
        let (index, layout) = (self.index, self.facts.layout);
        let source = PackSource::new(index, layout, threads);
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
        let source = PackSource::new(self.index, Layout::Tar, 1);
        let empty = self.index.files().filter(|&file| self.index.samples_of(file).is_empty());
        empty.map(|file| Ok(source.listing(file)?.left_out(std::iter::empty()))).sum()
    }
}

/// What the manifest says of a shard.
fn finish(footer: &PackedFooter, seal: &ShardSeal, stamps: String) -> FinishedShard {
    let tally = ShardTally::of(footer);
    (PackedShard::new(seal, tally.samples, stamps), tally)
}
