//! Writes a dataset of any layout as tar shards, as WebDataset has them, which any program reads.
//!
//! As where shards of our own are packed, each shard appears under its name when it is whole, and a run that was killed
//! is gone on with. Owners and times are zero, so that the same dataset makes the same bytes.

use super::place::{self, FoundPlace, PackingPlace, PackingRecord};
use super::source::{PackSource, SampleFiles, SampleReader};
use super::tar_file::TarFile;
use super::tar_members::{TarNames, unused};
use super::threads::each_job;
use super::{PackOptions, PackedAs, plan, refuse_unreadable, room};
use crate::dataset::packed::{PackingFacts, SourceStamps};
use crate::dataset::table::{TableCells, TableColumn};
use crate::dataset::{Contents, DatasetIndex, Layout, Skipped};
use crate::error::{Error, Result};
use serde::Serialize;
use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::ops::Range;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

/// The file with the names of the classes, one a line, in the order of their numbers.
const CLASSES: &str = "classes.txt";
/// The bytes that are written at a time.
const WRITTEN: usize = 4 << 20;
/// How many bytes of room are wanted for each sample beside its own: headers, and what fills blocks.
const ROOM_OF_SAMPLE: u64 = 4096;

/// What became of a dataset that was written as tar shards.
#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct TarReport {
    /// The number of samples.
    pub(crate) samples: u64,
    /// The number of samples without an image, which readers of images leave out.
    pub(crate) without_image: u64,
    /// The number of shards.
    pub(crate) shards: u64,
    /// The number of bytes of all shards.
    pub(crate) bytes: u64,
    /// The number of samples in shards that an earlier run had finished.
    pub(crate) samples_before: u64,
    /// The columns that cannot be read, and so are not there, with the reasons.
    pub(crate) columns_left_out: BTreeMap<String, String>,
    /// What was left out when the source was listed, by reason.
    pub(crate) left_out: BTreeMap<String, Skipped>,
    /// The fingerprint of the source. That of the tar shards is another.
    pub(crate) source_fingerprint: String,
    /// The number of threads.
    pub(crate) threads: usize,
    /// The seconds that it took.
    pub(crate) seconds: f64,
}

/// Whether a file of this name is one that is written here.
pub(super) fn is_own(name: &[u8]) -> bool {
    let number = name.strip_suffix(b".tar");
    name == CLASSES.as_bytes()
        || number.is_some_and(|number| number.len() == 6 && number.iter().all(u8::is_ascii_digit))
}

/// The name of a shard.
fn shard_name(number: usize) -> String {
    format!("{number:06}.tar")
}

/// Writes a dataset as tar shards. `progress` is called with the number of all samples at first, and with `None` for
/// each that is done.
///
/// # Errors
/// Those of [`super::pack`]; [`Error::Config`] for files of any kind.
pub(crate) fn pack_as_tars(
    options: &PackOptions,
    progress: &(dyn Fn(Option<u64>) + Sync),
) -> Result<TarReport> {
    let began = Instant::now();
    let PackOptions { source, into, .. } = options;
    place::refuse_nested(source, into)?;
    let index = DatasetIndex::open(source, &options.index)?;
    let facts = index.packing_facts();
    refuse_unreadable(&index, &facts)?;
    let layout = facts.notes.packed_of.unwrap_or(facts.layout);
    if index.contents() == Contents::Files || layout == Layout::TfRecord {
        let message = "makes tar shards of images, and not of files of any kind: leave out --files";
        return Err(Error::config("to", message));
    }
    if facts.layout == Layout::Packed {
        place::refuse_url(source)?;
    }
    let classes = class_names(&index, &facts)?;
    let shards = plan::shards(&index, options.shard_size)?;
    let record = PackingRecord {
        version: PackingRecord::VERSION,
        fingerprint: index.fingerprint().to_string(),
        shard_size: options.shard_size,
        to: PackedAs::Tar,
    };
    progress(Some(index.len()));
    let FoundPlace::Open(place) = PackingPlace::open(into, &record)? else {
        return Err(Error::dataset(into, "holds a packed dataset: name a directory of its own"));
    };
    let report = TarReport {
        samples: index.len(),
        shards: shards.len() as u64,
        left_out: facts.left_out.clone(),
        source_fingerprint: index.fingerprint().to_string(),
        threads: options.threads,
        ..TarReport::default()
    };
    // What columns there are is the same in all shards; their values are read shard by shard.
    let columns = index.packing_columns(0..0);
    let labeled = !facts.notes.unlabeled && facts.notes.label_fault.is_none();
    // Where several columns are images and none is meant, each keeps its name.
    let image = facts.table.image.as_deref().filter(|_| facts.notes.ambiguous.is_none());
    let work = TarWork {
        names: TarNames::new(layout, labeled, &facts.table, image, &columns),
        source: PackSource::new(&index, &facts, options.threads),
        sum: Mutex::new(report),
        index: &index,
        facts: &facts,
        place: &place,
        options,
        progress,
        shards: &shards,
    };
    let mut report = work.run()?;
    for TableColumn { name, cells, .. } in &columns {
        if let TableCells::Refused(reason) = cells {
            report.columns_left_out.insert(name.clone(), reason.clone());
        }
    }
    if !classes.is_empty() {
        place.publish(CLASSES, |mut file| {
            file.write_all(classes.as_bytes()).map_err(|error| Error::io("write", into.join(CLASSES), error))
        })?;
    }
    place.finish()?;
    if report.without_image > 0 {
        index.notices().warn_once("samples without an image", || {
            format!(
                "{}: {} samples have no image, and whoever reads images of tar shards leaves those out",
                into.display(),
                report.without_image
            )
        });
    }
    report.seconds = began.elapsed().as_secs_f64();
    Ok(report)
}

/// The names of the classes, one a line; empty where they have none.
fn class_names(index: &DatasetIndex, facts: &PackingFacts) -> Result<String> {
    let mut lines = String::new();
    for name in &facts.classes {
        let text = std::str::from_utf8(name).ok().filter(|name| !name.contains(['\n', '\r']));
        let text = text.ok_or_else(|| {
            let name = String::from_utf8_lossy(name);
            let message = format!(
                "has a class {name:?}, which is no line of text for {CLASSES}: give the class another name"
            );
            Error::dataset(index.root(), message)
        })?;
        lines += text;
        lines.push('\n');
    }
    Ok(lines)
}

/// What the threads that write shards share.
struct TarWork<'a> {
    names: TarNames<'a>,
    source: PackSource<'a>,
    sum: Mutex<TarReport>,
    index: &'a DatasetIndex,
    facts: &'a PackingFacts,
    place: &'a PackingPlace,
    options: &'a PackOptions,
    progress: &'a (dyn Fn(Option<u64>) + Sync),
    shards: &'a [Range<u64>],
}

impl TarWork<'_> {
    /// Writes all shards that are not there yet.
    fn run(self) -> Result<TarReport> {
        let mut missing = Vec::new();
        for number in 0..self.shards.len() {
            if !self.find(number)? {
                missing.push(number);
            }
        }
        room::check(self.index, self.shards, &missing, 1.0, ROOM_OF_SAMPLE, self.options)?;
        let threads = self.options.threads.min(missing.len());
        let memory = || (SampleReader::new(&self.source), SampleFiles::default());
        each_job(threads, &missing, memory, |(reader, files), &number, stop| {
            let done = || {
                (self.progress)(None);
                stop.check()
            };
            let name = shard_name(number);
            self.place.publish(&name, |file| {
                let stamps = self.write(number, file, reader, files, &done)?;
                self.place.note(number, &stamps)
            })?;
            let bytes = self.path(number).metadata().map_or(0, |found| found.len());
            self.sum.lock().unwrap_or_else(PoisonError::into_inner).bytes += bytes;
            Ok(())
        })?;
        Ok(self.sum.into_inner().unwrap_or_else(PoisonError::into_inner))
    }

    fn path(&self, number: usize) -> PathBuf {
        self.place.path().join(shard_name(number))
    }

    /// Whether an earlier run has finished a shard, of files that are what they were then. A shard of other files is
    /// removed, so that no run that follows takes it for the new one.
    fn find(&self, number: usize) -> Result<bool> {
        let path = self.path(number);
        let Ok(found) = path.metadata() else { return Ok(false) };
        let samples = self.shards[number].clone();
        let stamps = self.index.packing_stamps(samples.clone())?;
        if self.place.noted(number) != Some(&stamps) {
            fs::remove_file(&path).map_err(|error| Error::io("remove", &path, error))?;
            return Ok(false);
        }
        let count = samples.end - samples.start;
        (0..count).for_each(|_| (self.progress)(None));
        let without = samples.filter(|&sample| !self.has_image(sample)).count() as u64;
        let mut sum = self.sum.lock().unwrap_or_else(PoisonError::into_inner);
        sum.bytes += found.len();
        sum.samples_before += count;
        sum.without_image += without;
        Ok(true)
    }

    /// Whether a sample has an image, which only rows of tables may lack.
    fn has_image(&self, sample: u64) -> bool {
        if !self.index.has_tables() {
            return true;
        }
        let table = &self.facts.table;
        let members = self.index.packing_members(sample, table);
        let first = members.first().and_then(|member| table.keys.get(member.key as usize));
        first.is_some() && first == table.image.as_ref()
    }

    /// Writes a shard to `file`. Returns the [`SourceStamps`] of what it was made of.
    fn write(
        &self,
        number: usize,
        file: &File,
        reader: &mut SampleReader<'_>,
        files: &mut SampleFiles,
        done: &(dyn Fn() -> Result<()> + Sync),
    ) -> Result<String> {
        let path = self.path(number);
        let fail = |error| Error::io("write", &path, error);
        let samples = self.shards[number].clone();
        let columns = self.index.packing_columns(samples.clone());
        let mut tar = TarFile::new(BufWriter::with_capacity(WRITTEN, file));
        let mut keys = HashMap::new();
        let mut stamps = SourceStamps::new();
        let mut without_image = 0;
        for (row, sample) in samples.enumerate() {
            reader.read(sample, files)?;
            stamps.add(self.index.extent(sample).file, files.stamp);
            let key = unused(&self.names.key(sample, files), &mut keys);
            let label = self.index.packing_label(sample);
            for (ending, bytes) in self.names.members(files, label, &columns, row) {
                tar.append(format!("{key}.{ending}").as_bytes(), &bytes).map_err(fail)?;
            }
            without_image += u64::from(!self.has_image(sample));
            done()?;
        }
        reader.finish()?;
        tar.finish().map_err(fail)?;
        self.sum.lock().unwrap_or_else(PoisonError::into_inner).without_image += without_image;
        Ok(stamps.finish())
    }
}
