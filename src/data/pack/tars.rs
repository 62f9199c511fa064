//! Writes a dataset of any layout as tar shards, in the format of WebDataset.
//!
//! As with packed shards, each shard gets its name when it is complete, and a later run can resume a killed run.
//! Owners and times are zero, so that the same dataset gives the same bytes.

use super::finished_tars::{FinishedTar, FinishedTars};
use super::place::{self, PackingRecord, PackingTarget, TargetState};
use super::source::{PackSource, SampleFiles, SampleReader};
use super::tar_file::TarFile;
use super::tar_members::{TarNames, unused};
use super::walk::{FinishedShards, MakesShards, ShardRun};
use super::{PackOptions, PackedAs, plan};
use crate::dataset::packed::{MANIFEST_FILE, PackingFacts, SourceStamps, TARS_MARKER_FILE};
use crate::dataset::table::{TableCells, TableColumn};
use crate::dataset::{Contents, DatasetIndex, Layout, Skipped};
use base::error::{Error, Result};
use serde::Serialize;
use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::ops::Range;
use std::path::Path;
use std::time::Instant;

/// File with the class names, one per line, in the order of their numbers.
pub(super) const CLASSES: &str = "classes.txt";
const WRITE_BUFFER: usize = 4 << 20;
/// Additional disk space in bytes for each sample: headers and padding.
const DISK_SPACE_PER_SAMPLE: u64 = 4096;

/// Result of writing a dataset as tar shards.
#[derive(Debug, Clone, Default, Serialize)]
pub struct TarReport {
    /// Number of samples.
    pub samples: u64,
    /// Number of samples without an image, which readers of images skip.
    pub without_image: u64,
    /// Number of shards.
    pub shards: u64,
    /// Number of bytes of all shards.
    pub bytes: u64,
    /// Number of samples in shards of an earlier run.
    pub samples_before: u64,
    /// Number of shards of an earlier run that were written again, because their source files had been written to.
    pub shards_again: u64,
    /// Columns that cannot be read and are left out, with the reasons.
    pub columns_left_out: BTreeMap<String, String>,
    /// Files that were skipped when the source was listed, by reason.
    pub left_out: BTreeMap<String, Skipped>,
    /// Fingerprint of the source. The fingerprint of the tar shards is different.
    pub source_fingerprint: String,
    /// Number of threads.
    pub threads: usize,
    /// Duration in seconds.
    pub seconds: f64,
}

pub(super) fn is_own(name: &[u8]) -> bool {
    let number = name.strip_suffix(b".tar");
    name == CLASSES.as_bytes()
        || number.is_some_and(|number| number.len() == 6 && number.iter().all(u8::is_ascii_digit))
}

pub(super) fn shard_name(number: usize) -> String {
    format!("{number:06}.tar")
}

/// Writes a dataset as tar shards. Calls `progress` with the number of all samples first, and with `None` for each
/// finished sample.
///
/// # Errors
/// The errors of [`super::pack`]; [`Error::Config`] if the samples are not images: the records of TFRecord shards, or
/// files indexed with [`Contents::Files`].
pub fn pack_as_tars(options: &PackOptions, progress: &(dyn Fn(Option<u64>) + Sync)) -> Result<TarReport> {
    let began = Instant::now();
    let PackOptions { source, into, .. } = options;
    place::refuse_nested(source, into)?;
    let index = DatasetIndex::open(source, &options.index)?;
    super::refuse_arrays(&index)?;
    let facts = index.packing_facts();
    super::refuse_fields(options, &facts)?;
    let options = &options.within_memory(&index, &facts);
    let layout = facts.notes.packed_of.unwrap_or(facts.layout);
    if index.contents() == Contents::Files || layout == Layout::TfRecord {
        let message = "makes tar shards only of images, not of files of any kind: leave out --files";
        return Err(Error::config("to", message));
    }
    if facts.layout == Layout::Packed {
        place::refuse_url(source)?;
    }
    index.check_listed()?;
    if options.index.label.is_some() {
        index.check_labeled("label")?;
    }
    let classes = class_names(&index, options, &facts)?;
    let shards = plan::shards(&index, options.shard_size)?;
    let record = PackingRecord {
        version: PackingRecord::VERSION,
        fingerprint: index.fingerprint().to_string(),
        shard_size: options.shard_size,
        to: PackedAs::Tar,
        class_names: options.index.class_names.clone(),
        label: options.index.label.clone(),
    };
    progress(Some(index.len()));
    if into.join(MANIFEST_FILE).exists() {
        return Err(Error::dataset(into, "contains a packed dataset: choose another directory"));
    }
    // The set of columns is the same in all shards; their values are read shard by shard.
    let columns = index.packing_columns(0..0);
    let labeled = !facts.notes.unlabeled && facts.notes.label_fault.is_none();
    // Members of tar shards already contain the labels. Add a class number only if the user chose other labels or class
    // numbers, in this run or when the shards were packed.
    let is_requested = options.index.class_names.is_some() || facts.notes.label_column.is_some();
    let numbered = labeled && (layout != Layout::Tar || is_requested);
    // If several columns contain images and the user chose none of them, each column keeps its name.
    let image = facts.table.image.as_deref().filter(|_| facts.notes.ambiguous.is_none());
    let maker = TarMaker {
        names: TarNames::new(layout, numbered, &facts.table, image, &columns),
        source: PackSource::new(&index, &facts, options.threads),
        index: &index,
        facts: &facts,
        // Only rows of tables can lack an image.
        all_have_images: !index.has_tables() || layout.is_of_single_files(),
    };
    let mut report = TarReport {
        samples: index.len(),
        shards: shards.len() as u64,
        left_out: facts.left_out.clone(),
        source_fingerprint: index.fingerprint().to_string(),
        threads: options.threads,
        ..TarReport::default()
    };
    match PackingTarget::open(into, &record)? {
        TargetState::Finished => {
            let found = FinishedTars::read(options, &index, &record, &shards, &classes)?;
            place::remove_leftover_record(into)?;
            report.bytes = found.shards.iter().map(|shard| shard.bytes).sum();
            report.without_image = maker.without_image(0..index.len());
            report.samples_before = index.len();
        }
        TargetState::Open(place) => {
            let walk = ShardRun { index: &index, place: &place, options, progress, shards: &shards };
            let FinishedShards { made, samples_before, again } = walk.run(&&maker)?;
            report.bytes = made.iter().map(|(shard, _)| shard.bytes).sum();
            report.without_image = made.iter().map(|(shard, _)| shard.without_image).sum();
            (report.samples_before, report.shards_again) = (samples_before, again);
            let publish = |name: &str, bytes: &[u8]| {
                place.publish(name, |mut file| {
                    file.write_all(bytes).map_err(|error| Error::io("write", into.join(name), error))
                })
            };
            if !classes.is_empty() {
                publish(CLASSES, classes.as_bytes())?;
            }
            let finished = |(TarMade { bytes, .. }, stamps)| FinishedTar { bytes, stamps };
            let finished = FinishedTars { record, shards: made.into_iter().map(finished).collect() };
            let text = serde_json::to_vec(&finished).map_err(|error| Error::Internal(error.to_string()))?;
            publish(TARS_MARKER_FILE, &text)?;
            place.finish()?;
        }
    }
    for TableColumn { name, cells, .. } in &columns {
        if let TableCells::Refused(reason) = cells {
            report.columns_left_out.insert(name.clone(), reason.clone());
        }
    }
    if report.without_image > 0 {
        index.notices().warn_once("samples without an image", || {
            format!(
                "{}: {} samples have no image; loaders that read images from tar shards skip them",
                into.display(),
                report.without_image
            )
        });
    }
    report.seconds = began.elapsed().as_secs_f64();
    Ok(report)
}

fn class_names(index: &DatasetIndex, options: &PackOptions, facts: &PackingFacts) -> Result<String> {
    let given = options.index.class_names.as_ref();
    let given = given.map(|names| names.iter().map(|name| name.as_bytes().to_vec()).collect());
    let mut lines = String::new();
    for name in given.as_ref().unwrap_or(&facts.classes) {
        let text = std::str::from_utf8(name).ok().filter(|name| !name.contains(['\n', '\r']));
        let text = text.ok_or_else(|| {
            let name = String::from_utf8_lossy(name);
            let message = format!(
                "has a class {name:?}, which cannot be written as a line of {CLASSES}: rename the class"
            );
            Error::dataset(index.root(), message)
        })?;
        lines += text;
        lines.push('\n');
    }
    Ok(lines)
}

struct TarMaker<'a> {
    names: TarNames<'a>,
    source: PackSource<'a>,
    index: &'a DatasetIndex,
    facts: &'a PackingFacts,
    all_have_images: bool,
}

struct TarMade {
    bytes: u64,
    without_image: u64,
}

impl TarMaker<'_> {
    fn without_image(&self, samples: Range<u64>) -> u64 {
        if self.all_have_images {
            return 0;
        }
        let table = &self.facts.table;
        let has_none = |sample: &u64| {
            let members = self.index.packing_members(*sample, table);
            let first = members.first().and_then(|member| table.keys.get(member.key as usize));
            first.is_none() || first != table.image.as_ref()
        };
        samples.filter(has_none).count() as u64
    }
}

impl<'a> MakesShards for &'a TarMaker<'a> {
    type Memory = (SampleReader<'a>, SampleFiles);
    type Made = TarMade;

    const DISK_SPACE: (f64, u64) = (1.0, DISK_SPACE_PER_SAMPLE);

    fn name(number: usize) -> String {
        shard_name(number)
    }

    fn memory(&self) -> Self::Memory {
        (SampleReader::new(&self.source), SampleFiles::default())
    }

    fn found(&self, _: usize, samples: &Range<u64>, path: &Path) -> Result<Option<TarMade>> {
        let Ok(found) = path.metadata() else { return Ok(None) };
        Ok(Some(TarMade { bytes: found.len(), without_image: self.without_image(samples.clone()) }))
    }

    fn make(
        &self,
        (reader, files): &mut Self::Memory,
        _: usize,
        samples: Range<u64>,
        (file, path): (&File, &Path),
        done: &(dyn Fn() -> Result<()> + Sync),
    ) -> Result<(TarMade, String)> {
        let fail = |error| Error::io("write", path, error);
        let columns = self.index.packing_columns(samples.clone());
        let mut tar = TarFile::new(BufWriter::with_capacity(WRITE_BUFFER, file));
        let mut keys = HashMap::new();
        let mut stamps = SourceStamps::new();
        for (row, sample) in samples.clone().enumerate() {
            reader.read(sample, files)?;
            let own = self.index.extent(sample).file;
            files.stamps(own).for_each(|(file, stamp)| stamps.add(file, stamp));
            let key = unused(&self.names.key(sample, files), &mut keys);
            let label = self.index.label(sample);
            for (ending, bytes) in self.names.members(files, label, &columns, row) {
                tar.append(format!("{key}.{ending}").as_bytes(), &bytes).map_err(fail)?;
            }
            done()?;
        }
        reader.finish()?;
        tar.finish().map_err(fail)?;
        let bytes = file.metadata().map_err(fail)?.len();
        Ok((TarMade { bytes, without_image: self.without_image(samples) }, stamps.finish()))
    }
}
