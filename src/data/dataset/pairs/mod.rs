//! Parallel directories: samples whose files are in several directories of the root and belong together by their names,
//! such as `images/a.jpg` and `masks/a.png`.
//!
//! The layout is chosen by the fields of a loader, whose sources name directories or patterns (`stems.rs`). The files
//! of the first field are the samples, sorted by path. The other fields are columns of the names of files, as a
//! manifest has them, so `part/named_files.rs` reads both. Every directory is a group with a stamp, so that files that
//! are added, removed or renamed are noticed. If any stamp differs, all directories are listed and compared again.

mod stems;

use super::arrays::ArrayFile;
use super::below::{DatasetSearch, shard_layout};
use super::build::{FileRow, GroupRows, IndexBuilder, IndexGroup, ListedRows, ShardRows};
use super::ignored::ignored_entry;
use super::left_out::SkipReason;
use super::open::{self, IndexProgress};
use super::packed::PackedManifest;
use super::part::DatasetPart;
use super::samples::text;
use super::selected_members::IMAGE;
use super::table::{TableCells, TableColumn};
use super::{Contents, IndexOptions, Notes, Stamp, changes, folder, survey};
use crate::source::EntryKind;
use base::error::{Error, Result};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::OsStr;
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use stems::{Partners, StemPattern, partners};

/// A field that can be read as a parallel directory.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct DirectoryField {
    /// The source of the field: a directory, or a pattern with one `*`.
    pub source: String,
    /// Whether a sample may lack the field.
    pub optional: bool,
}

/// The samples of parallel directories.
pub(super) struct PairedRows {
    /// The samples, at the path of the root.
    pub(super) group: IndexGroup,
    /// The other directories and their stamps, sorted by path.
    pub(super) directories: Vec<ArrayFile>,
    pub(super) notes: Notes,
}

/// The options without fields to read as parallel directories, unless they name such directories of the root.
///
/// # Errors
/// [`Error::Config`] for fields of which only some name directories, and for a pattern on a server.
pub(super) fn chosen(search: DatasetSearch<'_>, options: &IndexOptions) -> Result<IndexOptions> {
    let mut options = options.clone();
    if !are_directories(search, &options.parallel)? {
        options.parallel.clear();
    }
    Ok(options)
}

fn are_directories(search: DatasetSearch<'_>, fields: &[DirectoryField]) -> Result<bool> {
    let source = search.source;
    let is_named = source.manifest().is_some() || source.named_files().is_some();
    let is_image_alone = fields.iter().all(|field| field.source == IMAGE);
    if is_image_alone || search.contents == Contents::Files || is_named {
        return Ok(false);
    }
    if source.is_remote() {
        // Asking for directories would cost every dataset on a server some requests at each start.
        return match fields.iter().find(|field| field.source.contains('*')) {
            None => Ok(false),
            Some(DirectoryField { source, .. }) => Err(Error::config(
                "fields",
                format!(
                    "has {source:?}, but directories on a server are not paired by names: list the files in a table \
                     with a column for each field, and open the table"
                ),
            )),
        };
    }
    if !source.is_directory()? {
        return Ok(false);
    }
    let is_directory = |field: &DirectoryField| {
        let Ok(pattern) = StemPattern::parse(&field.source) else { return field.source.contains('*') };
        let name = pattern.directory();
        let is_array = |document: &str| source.open(format!("{name}/{document}").as_bytes()).is_ok();
        source.directory(name.as_bytes()).is_ok()
            && !["zarr.json", ".zarray", ".zgroup"].into_iter().any(is_array)
    };
    let missing: Vec<&str> =
        fields.iter().filter(|field| !is_directory(field)).map(|field| field.source.as_str()).collect();
    // The fields of a packed dataset have the same sources as before packing.
    if missing.len() == fields.len() || PackedManifest::find(source)?.is_some() {
        return Ok(false);
    }
    if missing.is_empty() {
        return Ok(true);
    }
    let (mut directories, mut has_shards) = (BTreeSet::new(), false);
    search.entries(&[], |entry| {
        match entry.kind {
            _ if ignored_entry(entry, search.contents).is_some() => {}
            EntryKind::Directory => _ = directories.insert(text(entry.name)),
            _ => has_shards |= shard_layout(entry.name, search.contents).is_some(),
        }
        Ok(ControlFlow::Continue(()))
    })?;
    if has_shards {
        return Ok(false);
    }
    let message = format!(
        "has {:?}, which names no directory of {}, unlike the other fields; its directories are {}",
        missing[0],
        source.path(&[]).display(),
        Vec::from_iter(directories).join(", ")
    );
    Err(Error::config("fields", message))
}

/// Indexes parallel directories.
///
/// # Errors
/// The errors of [`read`].
pub(super) fn index(
    search: DatasetSearch<'_>,
    fields: &[DirectoryField],
    builder: &mut IndexBuilder,
    threads: usize,
    progress: &IndexProgress,
) -> Result<Notes> {
    let PairedRows { group, directories, notes } = read(search, fields, threads, progress)?;
    builder.add(&group)?;
    for ArrayFile { path, stamp } in directories {
        builder.add(&IndexGroup { path, stamp, rows: GroupRows::ArrayFile })?;
    }
    Ok(notes.assigned_to(&[]))
}

/// Lists the directories of an index again. Returns what they hold, and how that differs from the index.
///
/// # Errors
/// The errors of [`read`].
pub(super) fn compare(
    index: &DatasetPart,
    search: DatasetSearch<'_>,
) -> Result<(PairedRows, Option<String>)> {
    let threads = open::threads(&IndexOptions::default(), search.source, index.layout());
    let found = read(search, &index.notes.parallel, threads, &IndexProgress::new(false))?;
    let GroupRows::Listed(rows) = &found.group.rows else { return Ok((found, None)) };
    let column = || {
        let name = index.different_column(0, &rows.table)?;
        Some(format!("has other files for {name:?} than when it was indexed"))
    };
    let directories = || {
        let is_other = index.has_other_files(0, &found.directories);
        is_other.then(|| "has other directories than when it was indexed".to_owned())
    };
    let message = changes::different_files(index, 0, (&rows.names, &rows.files));
    let message = message.or_else(column).or_else(directories);
    Ok((found, message))
}

/// Lists the directories of the fields, and finds the files of each sample.
///
/// # Errors
/// [`Error::Config`] for a field that cannot name files; [`Error::Dataset`] for a sample that lacks a file or has two;
/// [`Error::Io`] if a directory cannot be listed.
pub(super) fn read(
    search: DatasetSearch<'_>,
    fields: &[DirectoryField],
    threads: usize,
    progress: &IndexProgress,
) -> Result<PairedRows> {
    let root = search.source.path(&[]);
    let mut patterns = Vec::with_capacity(fields.len());
    for DirectoryField { source, .. } in fields {
        let wrong = |why| Error::config("fields", format!("has {source:?}, which {why}"));
        patterns.push(StemPattern::parse(source).map_err(wrong)?);
    }
    let (first, others) = patterns
        .split_first()
        .ok_or_else(|| Error::Internal("parallel directories without a field".to_owned()))?;
    progress.expect(0, "files");
    let mut stamps = BTreeMap::from([(Vec::new(), search.source.directory(&[])?.stamp())]);
    let mut notes = Notes { unlabeled: true, parallel: fields.to_vec(), ..Notes::default() };
    notes.image = Some(first.source().to_owned());
    let mut samples = FoundFiles::below(search, first, threads, progress, &mut stamps)?;
    if first.takes_any_extension() {
        notes.skipped = std::mem::take(&mut samples.notes.skipped);
    }
    samples.paths.retain(|(path, _)| first.stem(path).is_some());
    let stems: Vec<&[u8]> = samples.paths.iter().filter_map(|(path, _)| first.stem(path)).collect();
    if !others.is_empty() {
        refuse_same_stems(&root, first, &stems, &samples)?;
    }
    let mut columns = Vec::new();
    let all = DatasetSearch { contents: Contents::Files, ..search };
    for (pattern, field) in others.iter().zip(&fields[1..]) {
        let files = FoundFiles::below(all, pattern, threads, progress, &mut stamps)?;
        let paths = files.paths.iter().map(|(path, _)| &path[..]);
        let found = partners(pattern, &stems, paths);
        check(&root, field, pattern, &samples, &found)?;
        let count = found.others.len() as u64;
        notes.skip_all(SkipReason::WithoutPartner, count, || text(found.others[0]));
        columns.push(column(&root, pattern, &found)?);
    }
    columns.sort_by(|a, b| a.name.cmp(&b.name));
    let table = ShardRows { columns, ..ShardRows::default() };
    let rows = samples.listed(&root, table)?;
    let stamp = stamps.remove(&Vec::new()).unwrap_or_default();
    Ok(PairedRows {
        group: IndexGroup { path: Vec::new(), stamp, rows: GroupRows::Listed(rows) },
        directories: stamps.into_iter().map(|(path, stamp)| ArrayFile { path, stamp }).collect(),
        notes,
    })
}

/// Files below a directory with their sizes, sorted by path.
struct FoundFiles {
    paths: Vec<(Vec<u8>, u32)>,
    notes: Notes,
}

impl FoundFiles {
    fn below(
        search: DatasetSearch<'_>,
        pattern: &StemPattern<'_>,
        threads: usize,
        progress: &IndexProgress,
        stamps: &mut BTreeMap<Vec<u8>, Stamp>,
    ) -> Result<Self> {
        let directory = pattern.directory().as_bytes().to_vec();
        let directories = if directory.is_empty() { Vec::new() } else { vec![directory] };
        let mut found = Self { paths: Vec::new(), notes: Notes::default() };
        folder::walk(search, &directories, threads, |group, notes| {
            found.notes.absorb(notes);
            let IndexGroup { path, stamp, rows } = group;
            if let GroupRows::Files { names, files, .. } = rows {
                progress.step(files.len() as u64);
                let whole = |file: &FileRow| (survey::below(&path, file.name_in(&names)), file.length);
                found.paths.extend(files.iter().map(whole));
            }
            // Several fields can be in one directory. The older stamp shows all later changes.
            stamps.entry(path).or_insert(stamp);
            Ok(())
        })?;
        found.paths.sort_unstable();
        Ok(found)
    }

    fn listed(self, root: &Path, table: ShardRows) -> Result<ListedRows> {
        let mut rows = ListedRows { table, ..ListedRows::default() };
        for (path, length) in &self.paths {
            let name = u32::try_from(rows.names.len()).map_err(|_| {
                Error::dataset(root, "holds more than 4 GiB of paths of images: open parts of it as a list")
            })?;
            rows.names.extend(path);
            rows.files.push(FileRow { name, name_length: path.len() as u32, length: *length });
        }
        Ok(rows)
    }
}

/// Refuses samples with the same stem, because the files of other fields would belong to both.
fn refuse_same_stems(
    root: &Path,
    pattern: &StemPattern<'_>,
    stems: &[&[u8]],
    samples: &FoundFiles,
) -> Result<()> {
    let mut known = HashMap::with_capacity(stems.len());
    let twice = stems.iter().zip(0..).find_map(|(stem, at)| Some((known.insert(*stem, at)?, at)));
    let Some((first, second)) = twice else { return Ok(()) };
    let [first, second] = [first, second].map(|at: usize| text(&samples.paths[at].0));
    let message = format!(
        "{first} and {second} differ only in their extensions, so files of other fields would belong to both: remove \
         one, rename one, or choose an extension with a pattern such as \"{}/*.jpg\"",
        pattern.directory()
    );
    Err(Error::dataset(root, message))
}

/// # Errors
/// [`Error::Dataset`] for a sample with two files, and for samples without a file that is not optional.
fn check(
    root: &Path,
    field: &DirectoryField,
    pattern: &StemPattern<'_>,
    samples: &FoundFiles,
    found: &Partners<'_>,
) -> Result<()> {
    let source = &field.source;
    let image = |sample: usize| text(&samples.paths[sample].0);
    if let Some((sample, [first, second])) = found.twice {
        let message = format!(
            "{} and {} both belong to {}: remove one, or choose by a pattern such as \"{}/*.png\"",
            text(first),
            text(second),
            image(sample),
            pattern.directory()
        );
        return Err(Error::dataset(root, message));
    }
    let missing = || (0..found.of_samples.len()).filter(|&sample| found.of_samples[sample].is_none());
    let Some(first) = missing().next().filter(|_| !field.optional) else { return Ok(()) };
    let others = match found.others.first() {
        Some(other) if missing().count() == found.of_samples.len() => format!(
            " ({} has another name: a pattern such as \"masks/*_label.png\" says what to leave out)",
            text(other)
        ),
        _ => String::new(),
    };
    let message = format!(
        "{source} has no file for {} of {} images, such as {}{others}: add it, or make the field optional, as in \
         foreload.fields.Mask({source:?}, optional=True)",
        missing().count(),
        found.of_samples.len(),
        image(first)
    );
    Err(Error::dataset(root, message))
}

/// The names of a field's files as a column.
fn column(root: &Path, pattern: &StemPattern<'_>, found: &Partners<'_>) -> Result<TableColumn> {
    let wrong = |path: &[u8]| {
        let path = root.join(OsStr::from_bytes(path));
        Error::dataset(path, "has a name that is not UTF-8, as an index needs here: rename it")
    };
    let mut names = Vec::with_capacity(found.of_samples.len());
    for path in &found.of_samples {
        names.push(path.map(|path| std::str::from_utf8(path).map_err(|_| wrong(path))).transpose()?);
    }
    Ok(TableColumn {
        name: pattern.source().to_owned(),
        kind: pattern.kind(names.iter().flatten().copied()),
        classes: Vec::new(),
        cells: TableCells::Texts(names.into_iter().map(|name| name.map(Box::from)).collect()),
    })
}
