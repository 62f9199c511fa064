//! Datasets whose files are listed in a manifest: one sample per row, in the order of the rows. A manifest is a table,
//! or a document of COCO annotations.

use super::below::shard_layout;
use super::build::{FileRow, GroupRows, IndexGroup, ListedRows};
use super::cancel::Cancel;
use super::class_names::{self, ClassNames};
use super::coco::CocoImages;
use super::columns::{LISTED_LABELS, ListingTable};
use super::kind::{image_extensions, is_image_file};
use super::layouts::ShardReadOptions;
use super::open::IndexProgress;
use super::parallel::for_each;
use super::rows_of_table;
use super::samples::{ShardContents, ShardFindings};
use super::summary::LabelFault;
use super::table::{ShardTable, TableColumn};
use super::{Contents, IndexOptions, Layout, Notes};
use crate::source::{DatasetSource, ManifestNames, ManifestSource, OpenFile, TableFormat, read_whole};
use base::error::{Error, Result};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// The maximum size of a table in bytes, for about ten million rows. The table is read into memory whole.
const LARGEST: u64 = 1 << 30;

/// The number of files whose sizes a thread looks up before it takes the next files. For files on servers, this number
/// is 1.
const PORTION: usize = 256;

/// The number of threads that request sizes from servers. They mostly wait for responses.
pub(super) const SIZE_REQUEST_THREADS: usize = 64;

/// Size that marks a missing file.
pub(super) const NO_FILE: u32 = u32::MAX;

/// What to do about names of missing files in a table.
pub(super) const OF_TABLES: &str =
    "correct the paths, which are relative to the manifest, or remove the lines";

/// The files that a manifest lists, with further values.
pub(super) trait FileListing: Sync {
    /// The name of the column that names the files.
    fn naming(&self) -> &str;

    fn len(&self) -> usize;

    /// Says where a row is, for messages.
    fn place(&self, row: usize) -> String;

    /// The text that names the file of a row. The error says what is wrong with it.
    fn file(&self, row: usize) -> Result<&str, String>;

    /// The other columns. Called once.
    fn columns(&mut self) -> Vec<TableColumn>;

    /// What to do about names of missing files.
    fn remedy(&self) -> &'static str;
}

pub(super) struct ManifestRows {
    pub(super) group: IndexGroup,
    pub(super) notes: Notes,
    pub(super) classes: Vec<Vec<u8>>,
}

/// Reads the manifest of `source`, and looks up all files that it lists.
///
/// # Errors
/// [`Error::Dataset`] if the manifest is not a table of files, or (with the line) if a file is missing or not
/// accessible; [`Error::Io`] if the manifest cannot be read.
pub(super) fn read(
    source: &ManifestSource,
    contents: Contents,
    reading: &ShardReadOptions,
    threads: usize,
    progress: &IndexProgress,
    cancel: &Cancel,
) -> Result<ManifestRows> {
    let wrong = |message: String| Error::dataset(source.path(&[]), message);
    let OpenFile { stamp, .. } = source.open(&[])?;
    let mut table = parse(source, reading)?;
    let mut rows = ListedRows::default();
    let names = take_names(source, &*table, &mut rows)?;
    if contents == Contents::Images {
        check_endings(source, &*table, &rows)?;
    }
    let secrets = names.has_secrets();
    names.set_secret_urls();
    let is_on_server = rows.files().any(|(name, _)| source.is_on_server(name));
    let what = if contents == Contents::Images { "images" } else { "files" };
    progress.expect(rows.files.len() as u64, what);
    measure(
        source,
        &*table,
        &mut rows,
        if is_on_server { SIZE_REQUEST_THREADS } else { threads },
        progress,
        cancel,
    )?;
    let found = ShardTable { samples: table.len() as u64, columns: table.columns(), blocks: Vec::new() };
    let found = rows_of_table::contents(found, &[][..], &LISTED_LABELS, reading);
    let ShardContents { rows: own, findings } = found.map_err(|fault| wrong(fault.message))?;
    rows.table = own;
    for (sample, file) in rows.table.samples.iter_mut().zip(&rows.files) {
        (sample.offset, sample.length) = (0, file.length);
    }
    let mut notes = Notes {
        image: Some(table.naming().to_owned()),
        on_servers: is_on_server,
        secrets,
        label_fault: label_fault(&findings).map(|message| LabelFault::new(&[], message)),
        ..Notes::default()
    };
    notes.absorb(Notes { skipped: findings.notes.skipped, ..Notes::default() });
    notes.unlabeled = findings.labeled.is_none() || notes.label_fault.is_some();
    (notes.label_column, notes.not_labels) = (findings.label_column, findings.notes.not_labels);
    let mut classes = findings.classes;
    if findings.classes_are_values {
        let mut names = ClassNames::default();
        names.renumber(&mut rows.table.samples, &classes);
        let labels;
        (classes, labels) = names.into_classes();
        class_names::renumber(&mut rows.table.samples, if notes.unlabeled { &[] } else { &labels });
    }
    if notes.unlabeled {
        classes.clear();
    }
    notes.labels_from_one = !notes.unlabeled && classes.is_empty() && findings.smallest_label == Some(1);
    let group = IndexGroup { path: Vec::new(), stamp, rows: GroupRows::Listed(rows) };
    Ok(ManifestRows { group, notes, classes: classes.into_iter().map(String::into_bytes).collect() })
}

/// Reads the manifest of `source` again, and requests its files by the current URLs from now on. This is needed if the
/// URLs contain secrets, because the index stores only the names of the files. `indexed` has these names.
///
/// # Errors
/// The errors of [`read`] about the manifest itself; [`Error::DatasetChanged`] if the manifest names other files than
/// the index.
pub(super) fn set_secret_urls(
    source: &ManifestSource,
    reading: &ShardReadOptions,
    indexed: impl Iterator<Item = Vec<u8>>,
) -> Result<()> {
    let mut rows = ListedRows::default();
    let names = take_names(source, &*parse(source, reading)?, &mut rows)?;
    if !rows.files().map(|(name, _)| name.to_vec()).eq(indexed) {
        let message = "names other files than when it was indexed, and the index does not store its URLs: set \
                       rebuild_index=True";
        return Err(Error::DatasetChanged { path: source.path(&[]), message: message.to_owned() });
    }
    names.set_secret_urls();
    Ok(())
}

fn parse(source: &ManifestSource, reading: &ShardReadOptions) -> Result<Box<dyn FileListing>> {
    let path = source.path(&[]);
    let format = source.format().ok_or_else(|| Error::Internal("a manifest is not a table".to_owned()))?;
    if format == TableFormat::Coco {
        return Ok(Box::new(CocoImages::read(source, reading.images.as_deref())?));
    }
    let table = ListingTable::parse(format, &read_whole(source, LARGEST)?, reading.label.as_deref());
    Ok(Box::new(table.map_err(|fault| Error::dataset(path, fault.message()))?))
}

/// # Errors
/// [`Error::Config`] if the setting `images` is set, but the dataset is no document of COCO annotations.
pub(super) fn check_images(source: &dyn DatasetSource, options: &IndexOptions) -> Result<()> {
    let format = source.manifest().and_then(ManifestSource::format);
    if options.images.is_none() || format == Some(TableFormat::Coco) {
        return Ok(());
    }
    let path = source.path(&[]);
    let message =
        format!("is for a .json of COCO annotations, but the dataset is {}: remove it", path.display());
    Err(Error::config("images", message))
}

fn take_names<'a>(
    source: &'a ManifestSource,
    table: &dyn FileListing,
    rows: &mut ListedRows,
) -> Result<ManifestNames<'a>> {
    let mut names = source.names();
    for row in 0..table.len() {
        let name = table.file(row).and_then(|text| names.take(text));
        let wrong = |message| Error::dataset(source.path(&[]), format!("{}: {message}", table.place(row)));
        let name = name.map_err(wrong)?;
        let at = u32::try_from(rows.names.len());
        let at =
            at.map_err(|_| wrong("there are more than 4 GiB of names: split the manifest".to_owned()))?;
        rows.names.extend(&name);
        rows.files.push(FileRow { name: at, name_length: name.len() as u32, length: 0 });
    }
    Ok(names)
}

/// Fails for a path whose extension is not that of an image that can be decoded. URLs are not checked.
fn check_endings(source: &ManifestSource, table: &dyn FileListing, rows: &ListedRows) -> Result<()> {
    let is_odd = |name: &[u8]| !ManifestSource::is_url(name) && !is_image_file(name);
    let Some((row, (name, _))) = rows.files().enumerate().find(|(_, (name, _))| is_odd(name)) else {
        return Ok(());
    };
    let remedy = match shard_layout(name, Contents::Images).is_some_and(Layout::is_array) {
        true => "open the directory of the arrays with sample_axis=\"file\", and set labels= to this table",
        false => "remove it",
    };
    let message = format!(
        "{}: its column {:?} names {}, which does not end in {}: {remedy}",
        table.place(row),
        table.naming(),
        source.path(name).display(),
        image_extensions()
    );
    Err(Error::dataset(source.path(&[]), message))
}

fn measure(
    source: &ManifestSource,
    table: &dyn FileListing,
    rows: &mut ListedRows,
    threads: usize,
    progress: &IndexProgress,
    cancel: &Cancel,
) -> Result<()> {
    let names: Vec<&[u8]> = rows.files().map(|(name, _)| name).collect();
    let (place, remedy) = (&|row: usize| table.place(row), table.remedy());
    let named = NamedBy { column: table.naming(), place, remedy };
    let lengths = sizes(source, &names, named, threads, progress, cancel)?;
    rows.files.iter_mut().zip(lengths).for_each(|(file, length)| file.length = length);
    Ok(())
}

/// The column that names files, a function that describes the location of the name in a row, and what to do about names
/// of missing files, for messages.
pub(super) struct NamedBy<'a> {
    pub(super) column: &'a str,
    pub(super) place: &'a (dyn Fn(usize) -> String + Sync),
    pub(super) remedy: &'static str,
}

/// Looks up the sizes of the files with these `names`, each file once.
///
/// # Errors
/// [`Error::Dataset`] for a name that is not a file, and for a file that is too large. The message says where the name
/// is.
pub(super) fn sizes(
    source: &dyn DatasetSource,
    names: &[&[u8]],
    named: NamedBy<'_>,
    threads: usize,
    progress: &IndexProgress,
    cancel: &Cancel,
) -> Result<Vec<u32>> {
    let root = source.path(&[]);
    let NamedBy { column, place, remedy } = named;
    let mut first: HashMap<&[u8], usize> = HashMap::new();
    let firsts: Vec<usize> =
        names.iter().enumerate().map(|(row, name)| *first.entry(*name).or_insert(row)).collect();
    drop(first);
    let sizes: Vec<AtomicU32> = names.iter().map(|_| AtomicU32::new(NO_FILE)).collect();
    let portion = if threads == SIZE_REQUEST_THREADS { 1 } else { PORTION };
    for_each(threads.min(names.len().div_ceil(portion)), names.len().div_ceil(portion), |number| {
        for row in number * portion..names.len().min((number + 1) * portion) {
            cancel.check(&root)?;
            progress.step(1);
            if firsts[row] != row {
                continue;
            }
            let wrong = |message: String| Error::dataset(&*root, format!("{}: {message}", place(row)));
            let found = source.size(names[row]);
            let Some(bytes) = found.map_err(|error| wrong(error.to_string()))? else { continue };
            let size = u32::try_from(bytes).ok().filter(|&size| size != NO_FILE).ok_or_else(|| {
                let name = source.path(names[row]);
                let name = name.display();
                wrong(format!("{name} has {bytes} bytes: files of 4 GiB or more cannot be loaded"))
            })?;
            sizes[row].store(size, Relaxed);
        }
        Ok(())
    })?;
    let missing = |row: &usize| sizes[firsts[*row]].load(Relaxed) == NO_FILE;
    if let Some(row) = (0..names.len()).find(missing) {
        let others = match (0..names.len()).filter(missing).count() - 1 {
            0 => String::new(),
            count => format!(", and {count} others name missing files"),
        };
        let message = format!(
            "{}: its column {column:?} names {}, which is not an existing file{others}: {remedy}",
            place(row),
            source.path(names[row]).display()
        );
        return Err(Error::dataset(root, message));
    }
    Ok(firsts.iter().map(|&first| sizes[first].load(Relaxed)).collect())
}

fn label_fault(findings: &ShardFindings) -> Option<String> {
    match (&findings.unusable, &findings.labeled, &findings.unlabeled) {
        (Some(message), _, _) => Some(message.clone()),
        (None, Some(labeled), Some(unlabeled)) => Some(format!(
            "has no label for its sample {unlabeled}, but sample {labeled} has one: label all samples or none"
        )),
        _ => None,
    }
}
