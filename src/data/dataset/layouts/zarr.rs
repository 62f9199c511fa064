//! Stores of zarr, groups in them and single arrays. `dataset/zarr/` reads the metadata.
//!
//! Each array is a shard, whose file is the array's own document. Which chunks are stored is found when the dataset is
//! indexed: the array's directories are listed, and the indexes of its shards are read. So a chunk that vanishes later
//! is an error and never the fill value. The array depends on the stamps of its directories and of zarr's shards
//! ([`ArrayFile`]), and a column also on the stamps of its chunks. Any other chunk that is a file has no stamp. Like a
//! loose file, it is checked when it is read.
//!
//! Only the arrays that the user chose are searched for chunks, or all arrays if none is chosen.

use super::super::arrays::filters::{ChunkScratch, most_packed, unpack_chunk};
use super::super::arrays::{self, ArrayFacts, ArrayFile, ArrayStorage, ChunkCell, ShardArray};
use super::super::parallel::for_each;
use super::super::samples::ShardContents;
use super::super::spill::directory_of;
use super::super::table::{TableCells, TableColumn};
use super::super::zarr::{
    ARRAY, ATTRIBUTES, LARGEST_DOCUMENT, MARKERS, NODE, ZarrArray, ZarrNode, array_v2, cannot_list,
    check_inside, document, find_arrays, node_v3, zarr_node,
};
use super::super::{FieldKind, SampleAxis};
use super::{ShardLayout, ShardParser, ShardReadOptions};
use crate::source::{DatasetSource, EntryKind, Malformed, OpenFile, ReadAt, is_gone};
use base::error::{Error, Result};
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, PoisonError};

const THREADS: usize = 8;
const REMOTE_THREADS: usize = 16;
/// The most directories whose stamps are kept. Deeper directories are only compared by `foreload verify`.
const MOST_DIRECTORIES: usize = 1 << 16;
/// The most shards that are requested from a server that lists no directories.
const MOST_PROBED: u64 = 1 << 20;
/// The size in bytes of the largest array that becomes a column, and its most chunks.
const LARGEST_COLUMN: u64 = 64 << 20;
const MOST_CHUNKS_OF_COLUMN: usize = 1 << 16;

/// Whether a file in the root shows that the root is a store, group or array.
pub(in crate::dataset) fn is_zarr_file(name: &[u8]) -> bool {
    MARKERS.iter().any(|marker| marker.as_bytes() == name)
}

pub(super) struct ZarrArrays;

impl ShardLayout for ZarrArrays {
    fn marker_files(&self) -> &'static [&'static str] {
        &MARKERS
    }

    fn listed_shards(&self, source: &dyn DatasetSource, directory: &[u8]) -> Result<Option<Vec<Vec<u8>>>> {
        let mut found = Vec::new();
        if !directory.is_empty() {
            // The caller asks only whether the directory is a dataset of its own, which would cost several requests.
            let is_node = !source.is_remote() && zarr_node(source, directory)?.is_some();
            return Ok(is_node.then_some(found));
        }
        let is_node = find_arrays(source, directory, 0, &mut found)?;
        found.sort_unstable();
        let mut directories: Vec<&[u8]> = found.iter().map(|document| directory_of(document)).collect();
        directories.sort_unstable();
        if let Some(pair) = directories.windows(2).find(|pair| pair[1].starts_with(pair[0])) {
            return Err(Error::dataset(source.path(pair[1]), "is an array inside of another array"));
        }
        Ok(is_node.then_some(found))
    }

    fn is_array(&self) -> bool {
        true
    }

    fn has_arrays_apart(&self) -> bool {
        true
    }

    fn reads_chosen_arrays(&self) -> bool {
        true
    }

    fn is_part(&self, path: &[u8]) -> bool {
        let name = &path[directory_of(path).len()..];
        name != NODE.as_bytes() && name != ARRAY.as_bytes()
    }

    fn empty_message(&self) -> String {
        "none of the chosen fields is an array in it that has rows: `foreload index` lists its arrays"
            .to_owned()
    }

    fn parser(&self, source: &dyn DatasetSource, reading: &ShardReadOptions) -> Result<Box<dyn ShardParser>> {
        if reading.sample_axis == SampleAxis::File {
            let message = "is \"file\", but the samples of zarr arrays are rows: leave it out, and give several stores \
                           as a list of paths";
            return Err(Error::config("sample_axis", message));
        }
        Ok(Box::new(ZarrParser { source: source.with_absolute_path()?, reading: reading.clone() }))
    }
}

struct ZarrParser {
    source: Arc<dyn DatasetSource>,
    reading: ShardReadOptions,
}

impl ShardParser for ZarrParser {
    fn contents(&self, name: &[u8], bytes: &dyn ReadAt) -> Result<ShardContents, Malformed> {
        let directory = directory_of(name);
        let (spelled, is_chosen) = self.spelled(directory);
        let mut contents = ShardContents::default();
        let refuse = |why: String, mut contents: ShardContents| {
            let (name, cells) = (spelled.clone(), TableCells::Refused(why));
            let column = TableColumn { name, kind: FieldKind::Array, classes: Vec::new(), cells };
            contents.rows.columns.push(column);
            Ok(contents)
        };
        if !is_chosen {
            return refuse(
                "it is not one of the fields for which the dataset was indexed".to_owned(),
                contents,
            );
        }
        let failed = |error: Error| Malformed { offset: 0, message: error.to_string() };
        check_inside(&*self.source, name).map_err(failed)?;
        if bytes.size() > LARGEST_DOCUMENT {
            return refuse("it has too large metadata".to_owned(), contents);
        }
        let mut text = vec![0; bytes.size() as usize];
        let got = bytes.fill_at(&mut text, 0)?;
        text.truncate(got);
        let is_v2 = name.ends_with(ARRAY.as_bytes());
        if is_v2 {
            let path = [directory, ATTRIBUTES.as_bytes()].concat();
            let attributes = document(&*self.source, &path, LARGEST_DOCUMENT).map_err(failed)?;
            let array = array_v2(&text, attributes.as_ref().map(|(text, _)| &text[..]));
            contents.rows.files.extend(attributes.map(|(_, stamp)| ArrayFile { path, stamp }));
            array.map(Box::new)
        } else {
            node_v3(&text).and_then(|node| match node {
                ZarrNode::Array(array) => Ok(array),
                ZarrNode::Group { .. } => Err("is a group".to_owned()),
            })
        }
        .and_then(|array| {
            let facts = array.facts(spelled.clone(), is_v2)?;
            Ok((array, facts))
        })
        .map_or_else(
            |why| refuse(format!("it {why}"), ShardContents::default()),
            |(zarr, facts)| {
                let stored = StoredArray { source: &*self.source, document: name, zarr: &zarr };
                let files = std::mem::take(&mut contents.rows.files);
                let ReadArray { array, files, values } = stored.read(facts, files).map_err(failed)?;
                arrays::check(&array, |_| u64::MAX)?;
                if let Some(values) = values {
                    let storage = ArrayStorage::Run { file: 0, start: 0 };
                    let facts = ArrayFacts { filters: Vec::new(), ..array.facts.clone() };
                    let list = ShardArray { facts, storage, shape: array.shape.clone() };
                    let column = arrays::column(&list, &&values[..], SampleAxis::Axis0)?;
                    contents.rows.columns.extend(column);
                }
                if zarr.shards.is_none() {
                    let keys = (String::from_utf8_lossy(name).into_owned(), zarr.keys);
                    contents.findings.notes.chunk_keys.extend([keys]);
                }
                contents.rows.arrays.push(array);
                contents.rows.files = files;
                Ok(contents)
            },
        )
    }
}

impl ZarrParser {
    /// The name of the array in a directory as the user wrote it, and whether the array must be read. Names may begin
    /// with a slash. The root has the name of the store.
    fn spelled(&self, directory: &[u8]) -> (String, bool) {
        let own = match directory.strip_suffix(b"/") {
            Some(name) => String::from_utf8_lossy(name).into_owned(),
            None => {
                let root = self.source.path(&[]);
                root.file_name().map_or_else(|| "/".to_owned(), |name| name.to_string_lossy().into_owned())
            }
        };
        let ShardReadOptions { arrays, label, .. } = &self.reading;
        let is_own = |name: &&String| {
            let short = name.strip_prefix('/').unwrap_or(name);
            short == own || directory.is_empty() && matches!(short, "" | ".")
        };
        let chosen = arrays.iter().flatten().chain(label).find(is_own);
        (chosen.cloned().unwrap_or(own), arrays.is_none() || chosen.is_some())
    }
}

/// An array whose chunks are searched.
struct StoredArray<'a> {
    source: &'a dyn DatasetSource,
    /// The path of the array's document.
    document: &'a [u8],
    zarr: &'a ZarrArray,
}

/// The files with chunks, each with its number in the grid of files and its size, and the array's directories.
#[derive(Default)]
struct ChunkListing {
    files: Vec<(u64, u64)>,
    directories: Vec<ArrayFile>,
    has_document: bool,
}

/// An array with its stored chunks.
struct ReadArray {
    array: ShardArray,
    /// The files and directories on whose stamps it depends, sorted by path.
    files: Vec<ArrayFile>,
    /// All elements as they are stored, if the array can be a column.
    values: Option<Vec<u8>>,
}

/// A shard, and the chunks in it by their numbers.
type ShardChunks = (ArrayFile, Vec<(u64, ChunkCell)>);

/// A size that the listing does not contain.
const UNKNOWN: u64 = u64::MAX;

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl StoredArray<'_> {
    fn path(&self, name: &str) -> Vec<u8> {
        [directory_of(self.document), name.as_bytes()].concat()
    }

    fn refused(&self, name: &str, why: impl Into<String>) -> Error {
        Error::dataset(self.source.path(&self.path(name)), why)
    }

    fn threads(&self) -> usize {
        if self.source.is_remote() { REMOTE_THREADS } else { THREADS }
    }

    /// Finds the stored chunks. The array also depends on the stamps of `parts`.
    fn read(&self, facts: ArrayFacts, mut parts: Vec<ArrayFile>) -> Result<ReadArray> {
        let ChunkListing { files, directories, .. } = match self.list()? {
            Some(listing) => listing,
            None => self.probe()?,
        };
        parts.extend(directories);
        let bytes = self.zarr.chunk_bytes();
        let mut stored: Vec<(u64, ChunkCell)> = Vec::new();
        let mut paths = Vec::new();
        if self.zarr.shards.is_some() {
            let mut shards = self.shards(&files)?;
            parts.extend(shards.iter().map(|(file, _)| file.clone()));
            parts.sort_unstable_by(|one, other| one.path.cmp(&other.path));
            for (shard, cells) in &mut shards {
                let file = parts.partition_point(|file| file.path < shard.path) as u32;
                cells.iter_mut().for_each(|(_, cell)| cell.file = file);
                stored.append(cells);
            }
            paths.extend(parts.iter().map(|file| file.path.clone()));
        } else {
            parts.sort_unstable_by(|one, other| one.path.cmp(&other.path));
            let is_encoded = !self.zarr.filters.is_empty();
            for (number, size) in files {
                let is_possible =
                    if is_encoded { (1..=most_packed(bytes)).contains(&size) } else { size == bytes };
                let length = u32::try_from(size).ok().filter(|_| is_possible);
                let length = length.ok_or_else(|| {
                    let why =
                        format!("has {size} bytes, which no chunk of {bytes} bytes can have: it is damaged");
                    self.refused(&self.zarr.key(number), why)
                })?;
                // Files of chunks are numbered as the chunks are. They have no stamp.
                let cell = ChunkCell { file: number as u32, offset: 0, length, mask: 0, version: 1 };
                stored.push((number, cell));
            }
        }
        let count = self.zarr.grid().iter().fold(1u64, |count, length| count.saturating_mul(*length));
        if count > (64 * stored.len() as u64).max(1 << 22) && !stored.is_empty() {
            let why =
                format!("has {count} chunks, of which {} are stored: write larger chunks", stored.len());
            return Err(Error::dataset(self.source.path(self.document), why));
        }
        let storage = if stored.is_empty() {
            ArrayStorage::Fill
        } else {
            let mut cells = vec![ChunkCell::absent(); count as usize];
            for (number, cell) in stored {
                if let Some(place) = cells.get_mut(number as usize) {
                    *place = cell;
                }
            }
            ArrayStorage::Grid { chunk: self.zarr.chunk.clone(), cells }
        };
        let array = ShardArray { facts, shape: self.zarr.shape.clone(), storage };
        let (values, of_column) = self.elements(&array, &paths)?.unzip();
        if self.zarr.shards.is_none() {
            // The index has the values of a column, so it depends on their files.
            parts.extend(of_column.into_iter().flatten());
            parts.sort_unstable_by(|one, other| one.path.cmp(&other.path));
        }
        Ok(ReadArray { array, files: parts, values })
    }

    /// Lists the directories of the array; `None` if the server lists none.
    fn list(&self) -> Result<Option<ChunkListing>> {
        let mut found = ChunkListing::default();
        let mut level = vec![String::new()];
        while !level.is_empty() {
            let (listed, next) = (Mutex::new(ChunkListing::default()), Mutex::new(Vec::new()));
            for_each(self.threads(), level.len(), |at| {
                let Some((own, below)) = self.list_one(&level[at])? else { return Ok(()) };
                let mut listed = lock(&listed);
                listed.files.extend(own.files);
                listed.directories.extend(own.directories);
                listed.has_document |= own.has_document;
                lock(&next).extend(below);
                Ok(())
            })?;
            let listed = listed.into_inner().unwrap_or_else(PoisonError::into_inner);
            if level[0].is_empty() && !listed.has_document {
                return Ok(None);
            }
            found.files.extend(listed.files);
            if found.directories.len() + listed.directories.len() <= MOST_DIRECTORIES {
                found.directories.extend(listed.directories);
            }
            level = next.into_inner().unwrap_or_else(PoisonError::into_inner);
        }
        // Some servers list no sizes.
        if found.files.iter().any(|(_, size)| *size == UNKNOWN) {
            let sizes = Mutex::new(Vec::new());
            for_each(self.threads(), found.files.len(), |at| {
                let number = found.files[at].0;
                let size = self.source.size(&self.path(&self.zarr.key(number)))?;
                lock(&sizes).extend(size.map(|size| (number, size)));
                Ok(())
            })?;
            found.files = sizes.into_inner().unwrap_or_else(PoisonError::into_inner);
        }
        found.files.sort_unstable();
        Ok(Some(found))
    }

    /// Lists one directory below that of the array. Returns also the directories in it that may have chunks.
    fn list_one(&self, name: &str) -> Result<Option<(ChunkListing, Vec<String>)>> {
        let path = self.path(name);
        let directory = match self.source.directory(path.strip_suffix(b"/").unwrap_or(&path)) {
            Err(Error::Io { source, .. }) if !name.is_empty() && is_gone(&source) => return Ok(None),
            Err(error) if name.is_empty() && self.source.is_remote() && cannot_list(&error) => {
                return Ok(None);
            }
            directory => directory?,
        };
        let (mut found, mut below) = (ChunkListing::default(), Vec::new());
        if !name.is_empty() || !self.source.is_remote() {
            // The path of the root must not be empty, which would be that of a shard.
            let path = if path.is_empty() { b"./".to_vec() } else { path };
            found.directories.push(ArrayFile { path, stamp: directory.stamp() });
        }
        directory.entries(&mut |entry| {
            let Ok(own) = std::str::from_utf8(entry.name) else { return Ok(ControlFlow::Continue(())) };
            let own = if name.is_empty() { own.to_owned() } else { format!("{name}/{own}") };
            let chunk = self.zarr.file_of(&own);
            let is_directory = entry.kind == EntryKind::Directory;
            let is_known = chunk.is_some() || is_directory && self.zarr.may_be_directory(&own);
            // Some servers list no hidden files.
            let is_hidden = is_known && self.document.ends_with(ARRAY.as_bytes());
            found.has_document |= name.is_empty() && (is_hidden || self.document.ends_with(entry.name));
            if !is_known {
                return Ok(ControlFlow::Continue(()));
            }
            if entry.target.is_some() {
                check_inside(self.source, &self.path(&own))?;
            }
            match (chunk, entry.kind) {
                (None, _) => below.push(own),
                (Some(chunk), EntryKind::File) => {
                    let size = match entry.size {
                        None if self.source.is_remote() => Some(UNKNOWN),
                        None => directory.size(entry.name)?,
                        size => size,
                    };
                    found.files.extend(size.map(|size| (chunk, size)));
                }
                (Some(_), _) => {
                    return Err(self.refused(&own, "has the name of a chunk, but is no regular file"));
                }
            }
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(Some((found, below)))
    }

    /// Requests each shard from a server that lists no directories.
    fn probe(&self) -> Result<ChunkListing> {
        let count = self.zarr.files().iter().product::<u64>();
        let refused = |why: String| Err(Error::dataset(self.source.path(self.document), why));
        if self.zarr.shards.is_none() {
            return refused(
                "is an array of which each chunk is a file, on a server that lists no directories, so it is unknown \
                 which chunks are stored: write shards (zarr: shards=...), or use an object store or a server that \
                 lists directories"
                    .to_owned(),
            );
        }
        if count > MOST_PROBED {
            return refused(format!(
                "has {count} shards on a server that lists no directories: write larger shards"
            ));
        }
        let files = Mutex::new(Vec::new());
        for_each(self.threads(), count as usize, |number| {
            let size = self.source.size(&self.path(&self.zarr.key(number as u64)))?;
            lock(&files).extend(size.map(|size| (number as u64, size)));
            Ok(())
        })?;
        let mut files = files.into_inner().unwrap_or_else(PoisonError::into_inner);
        files.sort_unstable();
        Ok(ChunkListing { files, ..ChunkListing::default() })
    }

    /// Reads the indexes of shards.
    fn shards(&self, files: &[(u64, u64)]) -> Result<Vec<ShardChunks>> {
        let Some(format) = &self.zarr.shards else { return Ok(Vec::new()) };
        let found = Mutex::new(Vec::new());
        for_each(self.threads(), files.len(), |at| {
            let (number, key) = (files[at].0, self.zarr.key(files[at].0));
            let refused = |why: String| self.refused(&key, why);
            let OpenFile { bytes, stamp } = self.source.open(&self.path(&key))?;
            let range = format.index_range(bytes.size()).map_err(refused)?;
            let mut index = vec![0; (range.end - range.start) as usize];
            let got = bytes.read_at(&mut index, range.start);
            let got = got.map_err(|error| Error::io("read", self.source.path(&self.path(&key)), error))?;
            let cells = self.zarr.shard_cells(number, &index[..got], bytes.size()).map_err(refused)?;
            let cell = |length, offset| ChunkCell { file: 0, offset, length, mask: 0, version: 0 };
            let cells = cells.into_iter().map(|of| (of.chunk, cell(of.length, of.offset))).collect();
            lock(&found).push((ArrayFile { path: self.path(&key), stamp }, cells));
            Ok(())
        })?;
        Ok(found.into_inner().unwrap_or_else(PoisonError::into_inner))
    }

    /// All elements of a list of numbers as they are stored, and the files that were read; `None` if the array cannot
    /// be a column. The files of the cells have these paths, or the names of chunks.
    fn elements(&self, array: &ShardArray, paths: &[Vec<u8>]) -> Result<Option<(Vec<u8>, Vec<ArrayFile>)>> {
        let (Some(&rows), bytes) = (self.zarr.shape.first(), self.zarr.chunk_bytes()) else {
            return Ok(None);
        };
        let size = rows.saturating_mul(self.zarr.element.size.into());
        let cells = match &array.storage {
            ArrayStorage::Grid { cells, .. } => &cells[..],
            _ => &[],
        };
        if self.zarr.shape.len() > 1
            || size.max(bytes) > LARGEST_COLUMN
            || cells.len() > MOST_CHUNKS_OF_COLUMN
        {
            return Ok(None);
        }
        let fill = &array.facts.fill;
        let all = if fill.is_empty() { vec![0; size as usize] } else { fill.repeat(rows as usize) };
        let all = Mutex::new((all, Vec::new()));
        for_each(self.threads(), cells.len(), |number| {
            let ChunkCell { file, offset, length, mask, .. } = cells[number];
            if offset == ChunkCell::ABSENT {
                return Ok(());
            }
            let own = || self.path(&self.zarr.key(file.into()));
            let path = paths.get(file as usize).cloned().unwrap_or_else(own);
            let opened = self.source.open(&path)?;
            let mut packed = vec![0; length as usize];
            let got = opened.bytes.read_at(&mut packed, offset);
            let got = got.map_err(|error| Error::io("read", self.source.path(&path), error))?;
            let mut scratch = ChunkScratch::default();
            let filters = &array.facts.filters;
            let unpacked = unpack_chunk(filters, mask, &packed[..got], bytes as usize, &mut scratch);
            let damaged = |why| Error::dataset(self.source.path(&path), format!("holds a chunk that {why}"));
            let unpacked = unpacked.map_err(damaged)?;
            let (all, files) = &mut *lock(&all);
            files.push(ArrayFile { path, stamp: opened.stamp });
            let start = number * bytes as usize;
            let end = all.len().min(start + unpacked.len());
            all[start..end].copy_from_slice(&unpacked[..end - start]);
            Ok(())
        })?;
        Ok(Some(all.into_inner().unwrap_or_else(PoisonError::into_inner)))
    }
}
