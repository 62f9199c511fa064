//! Zarr arrays, versions 2 and 3: what their metadata say of shape, elements, chunks and files.
//!
//! - `metadata.rs` reads the documents (`.zarray`, `zarr.json`, consolidated ones). zarr-python writes NaN as no JSON
//!   parser but Python's accepts it, so they are scanned by `base::json`. No crate reads such documents.
//! - `encoding.rs` reads data types, fill values and codecs.
//! - This file finds the arrays of a store, computes the names of chunk files, and finds chunks in shards by the
//!   shards' indexes. `layouts/zarr.rs` finds the chunks that are stored.
//!
//! A document is either understood completely, or refused by the name of what is not read.
//! Errors continue a sentence that begins with the array: "is encoded with bz2, which is not read".
//!
//! The names of chunk files consist of numbers, `c` and a separator, so they never lead out of the array's directory.

mod encoding;
mod metadata;
#[cfg(test)]
mod tests;

use super::arrays::filters::{ChunkFilter, most_packed};
use super::arrays::{ArrayFacts, cf};
use super::layouts::{open_optional, read_beginning};
use super::survey::below;
use crate::source::{DatasetSource, EntryKind, Stamp, is_gone};
use base::error::{Error, Result};
use pixels::arrays::{MemoryOrder, StoredType};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::ops::{ControlFlow, Range};

use encoding::{ZarrElement, ZarrKind};
use metadata::consolidated_v2;
pub(super) use metadata::{ZarrNode, array_v2, node_v3};

/// The document of an array or a group of version 3.
pub(super) const NODE: &str = "zarr.json";
/// The documents of version 2: of an array, of its attributes, of a group, and of all arrays below a group.
pub(super) const ARRAY: &str = ".zarray";
pub(super) const ATTRIBUTES: &str = ".zattrs";
pub(super) const GROUP: &str = ".zgroup";
pub(super) const CONSOLIDATED: &str = ".zmetadata";
pub(super) const MARKERS: [&str; 4] = [NODE, ARRAY, GROUP, CONSOLIDATED];

pub(super) const LARGEST_DOCUMENT: u64 = 16 << 20;
pub(super) const LARGEST_CONSOLIDATED: u64 = 256 << 20;
/// The most groups inside of each other. Links can form a cycle.
pub(super) const DEEPEST: usize = 32;
/// An array. All chunks have the same shape, also those that extend over the array's end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::dataset) struct ZarrArray {
    /// The lengths of the dimensions, at most 32.
    pub(in crate::dataset) shape: Vec<u64>,
    /// The shape of a chunk; in a sharded array of a chunk in a shard. No length is 0.
    pub(in crate::dataset) chunk: Vec<u64>,
    /// The elements in a decoded chunk, which is row-major.
    pub(in crate::dataset) element: ZarrElement,
    /// The element of absent chunks, in this machine's byte order.
    pub(in crate::dataset) fill: Box<[u8]>,
    /// Whether the metadata state the fill value. xarray takes a stated one for `_FillValue` (version 2).
    pub(in crate::dataset) states_fill: bool,
    /// The filters of a chunk, in the order in which the writer applied them.
    pub(in crate::dataset) filters: Vec<ChunkFilter>,
    /// The names of chunk files.
    pub(in crate::dataset) keys: ChunkKeys,
    /// How chunks are stored in shards; `None` if each chunk is a file.
    pub(in crate::dataset) shards: Option<ShardFormat>,
    /// The attributes, each as its JSON text.
    pub(in crate::dataset) attributes: BTreeMap<String, Vec<u8>>,
}

/// How the number of a chunk becomes the name of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::dataset) struct ChunkKeys {
    /// Whether names begin with `c` (the encoding `default` of version 3).
    pub(in crate::dataset) is_prefixed: bool,
    /// `.` or `/`.
    pub(in crate::dataset) separator: char,
}

/// How the chunks of a shard are found. A shard is a file with many chunks, and with an index at its start or end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::dataset) struct ShardFormat {
    /// The number of chunks in a shard, by dimension.
    pub(in crate::dataset) per_shard: Vec<u64>,
    /// Whether the numbers of the index are big-endian.
    pub(in crate::dataset) big_endian: bool,
    /// Whether the index ends with its CRC-32C.
    pub(in crate::dataset) has_checksum: bool,
    /// Whether the index is at the start of the file.
    pub(in crate::dataset) at_start: bool,
}

/// A stored chunk of a shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::dataset) struct InnerChunk {
    /// The number of the chunk in the row-major grid of all chunks of the array.
    pub(in crate::dataset) chunk: u64,
    /// The offset of its first byte in the shard.
    pub(in crate::dataset) offset: u64,
    /// Its number of stored bytes.
    pub(in crate::dataset) length: u32,
}

impl ZarrArray {
    /// The number of chunks along each dimension.
    pub(in crate::dataset) fn grid(&self) -> Vec<u64> {
        self.shape.iter().zip(&self.chunk).map(|(length, chunk)| length.div_ceil(*chunk)).collect()
    }

    /// The number of files along each dimension: of shards, or else of chunks.
    pub(in crate::dataset) fn files(&self) -> Vec<u64> {
        let grid = self.grid();
        let Some(shards) = &self.shards else { return grid };
        grid.iter().zip(&shards.per_shard).map(|(chunks, each)| chunks.div_ceil(*each)).collect()
    }

    /// The number of bytes of a decoded chunk.
    pub(in crate::dataset) fn chunk_bytes(&self) -> u64 {
        self.chunk.iter().fold(u64::from(self.element.size), |bytes, length| bytes.saturating_mul(*length))
    }

    /// The name, below the array's directory, of the file with this number in the row-major grid of files.
    pub(in crate::dataset) fn key(&self, file: u64) -> String {
        self.keys.name(file, &self.files())
    }

    /// The number of the file with this name below the array's directory; `None` for a file that holds no chunks.
    pub(in crate::dataset) fn file_of(&self, name: &str) -> Option<u64> {
        let files = self.files();
        let numbers = name.strip_prefix('c').unwrap_or(name).split(self.keys.separator);
        let numbers = numbers.filter(|number| !number.is_empty()).map(str::parse::<u64>);
        let number = numbers
            .zip(&files)
            .try_fold(0u64, |sum, (number, length)| sum.checked_mul(*length)?.checked_add(number.ok()?))?;
        let is_file = number < files.iter().product() && self.key(number) == name;
        is_file.then_some(number)
    }

    /// Whether files with chunks can be in the directory with this name below the array's directory.
    pub(in crate::dataset) fn may_be_directory(&self, name: &str) -> bool {
        let ChunkKeys { is_prefixed, separator } = self.keys;
        let (mut parts, files) = (name.split('/'), self.files());
        let is_start = !is_prefixed || parts.next() == Some("c");
        let numbers: Vec<&str> = parts.collect();
        let is_in =
            |(number, length): (&&str, &u64)| number.parse::<u64>().is_ok_and(|number| number < *length);
        separator == '/' && is_start && numbers.len() < files.len() && numbers.iter().zip(&files).all(is_in)
    }

    /// What the metadata say of the elements.
    pub(in crate::dataset) fn facts(&self, name: String, is_v2: bool) -> Result<ArrayFacts, String> {
        let element = self.element;
        let stored = StoredType { number: element.number(), swapped: element.swapped };
        let mut fill = if self.fill.iter().all(|byte| *byte == 0) { Vec::new() } else { self.fill.to_vec() };
        if element.swapped {
            fill.reverse();
        }
        let mut filters = self.filters.clone();
        if filters.is_empty() && self.shards.is_none() && self.chunk.first().is_some_and(|rows| *rows > 1) {
            // A file without a stamp is read whole. So chunks that samples share are read like those that must be
            // decoded, with a filter that changes nothing.
            filters.push(ChunkFilter::Shuffle { size: 1 });
        }
        let cf = cf(stored, self.cf_attributes(is_v2)?)?;
        Ok(ArrayFacts { name, stored, order: MemoryOrder::RowMajor, filters, fill, cf })
    }

    /// The stored chunks of the shard with this number in the row-major grid of files. `index` are the bytes at
    /// [`ShardFormat::index_range`], and `size` is the size of the shard.
    ///
    /// # Errors
    /// A description of what is wrong with the index, which continues a sentence about the shard.
    pub(in crate::dataset) fn shard_cells(
        &self,
        file: u64,
        index: &[u8],
        size: u64,
    ) -> Result<Vec<InnerChunk>, String> {
        let Some(shards) = &self.shards else { return Ok(Vec::new()) };
        let rows = shards.rows(index)?;
        let (grid, bytes) = (self.grid(), self.chunk_bytes());
        let shard = coordinates(file, &self.files());
        let number = |inside: &[u64]| {
            let places = grid.iter().zip(&shard).zip(&shards.per_shard).zip(inside);
            places.into_iter().try_fold(0u64, |number, (((&length, shard), each), inside)| {
                let place = shard * each + inside;
                (place < length).then(|| number * length + place)
            })
        };
        let (mut cells, mut inside) = (Vec::new(), vec![0; grid.len()]);
        for (offset, length) in rows {
            let chunk = number(&inside);
            advance(&mut inside, &shards.per_shard);
            if (offset, length) == (u64::MAX, u64::MAX) {
                continue;
            }
            let fits = offset.checked_add(length).is_some_and(|end| end <= size);
            let is_possible =
                if self.filters.is_empty() { length == bytes } else { length <= most_packed(bytes) };
            let stored = u32::try_from(length).ok().filter(|_| fits && is_possible);
            let stored = stored.ok_or_else(|| {
                format!(
                    "has a damaged index: {length} bytes at {offset}, in a file of {size} bytes with chunks of \
                     {bytes} bytes"
                )
            })?;
            // Chunks after the array's end may be stored, but are never read.
            cells.extend(chunk.map(|chunk| InnerChunk { chunk, offset, length: stored }));
        }
        Ok(cells)
    }
}

impl ChunkKeys {
    /// The name, below the array's directory, of the file with this number in a row-major grid of files.
    pub(in crate::dataset) fn name(self, file: u64, files: &[u64]) -> String {
        let mut name = String::new();
        if self.is_prefixed {
            name.push('c');
        }
        for coordinate in coordinates(file, files) {
            if !name.is_empty() {
                name.push(self.separator);
            }
            name += &coordinate.to_string();
        }
        if name.is_empty() { "0".to_owned() } else { name }
    }
}

impl ShardFormat {
    /// The number of bytes of an index.
    pub(in crate::dataset) fn index_bytes(&self) -> u64 {
        let chunks = self.per_shard.iter().fold(1u64, |product, length| product.saturating_mul(*length));
        chunks.saturating_mul(16).saturating_add(if self.has_checksum { 4 } else { 0 })
    }

    /// Where the index is stored in a shard of `size` bytes.
    ///
    /// # Errors
    /// A message if the shard is shorter than the index, which continues a sentence about the shard.
    pub(in crate::dataset) fn index_range(&self, size: u64) -> Result<Range<u64>, String> {
        let bytes = self.index_bytes();
        match size.checked_sub(bytes) {
            Some(_) if self.at_start => Ok(0..bytes),
            Some(start) => Ok(start..size),
            None => Err(format!("has {size} bytes, its index alone must have {bytes}: it is truncated")),
        }
    }

    /// The offset and the length of each chunk.
    fn rows(&self, index: &[u8]) -> Result<impl Iterator<Item = (u64, u64)>, String> {
        if index.len() as u64 != self.index_bytes() {
            return Err(format!("has an index of {} bytes, must have {}", index.len(), self.index_bytes()));
        }
        let mut rows = index;
        if self.has_checksum
            && let Some((covered, stored)) = index.split_last_chunk()
        {
            if base::crc::checksum(covered) != u32::from_le_bytes(*stored) {
                return Err("has a damaged index: its CRC-32C does not match".to_owned());
            }
            rows = covered;
        }
        let big_endian = self.big_endian;
        let number = move |bytes: [u8; 8]| {
            if big_endian { u64::from_be_bytes(bytes) } else { u64::from_le_bytes(bytes) }
        };
        let pairs = rows.as_chunks::<8>().0.as_chunks::<2>().0;
        Ok(pairs.iter().map(move |&[offset, length]| (number(offset), number(length))))
    }
}

/// What is in a directory.
pub(super) enum FoundNode {
    /// An array, with the name of its document.
    Array(&'static str),
    /// A group. If it has consolidated metadata, the documents of all arrays below it.
    Group(Option<Vec<String>>),
}

/// Refuses a name that a link leads out of the root.
pub(super) fn check_inside(source: &dyn DatasetSource, name: &[u8]) -> Result<()> {
    let real = |name: &[u8]| source.path(name).canonicalize().ok().filter(|_| !source.is_remote());
    match (real(&[]), real(name)) {
        (Some(root), Some(path)) if !path.starts_with(&root) => {
            Err(Error::dataset(source.path(name), "is a link that leads out of the dataset's directory"))
        }
        _ => Ok(()),
    }
}

pub(super) fn document(
    source: &dyn DatasetSource,
    name: &[u8],
    most: u64,
) -> Result<Option<(Vec<u8>, Stamp)>> {
    let Some(file) = open_optional(source, name)? else { return Ok(None) };
    check_inside(source, name)?;
    if file.bytes.size() > most {
        let message = format!("has {} bytes, but at most {most} can be read", file.bytes.size());
        return Err(Error::dataset(source.path(name), message));
    }
    Ok(Some((read_beginning(source, name, &file, most)?, file.stamp)))
}

/// Finds out whether a directory is an array or a group. Of documents of both versions, that of version 3 counts.
pub(super) fn zarr_node(source: &dyn DatasetSource, directory: &[u8]) -> Result<Option<FoundNode>> {
    let name = |of: &str| below(directory, of.as_bytes());
    let refused = |of: &str, why: String| Error::dataset(source.path(&name(of)), why);
    if let Some((text, _)) = document(source, &name(NODE), LARGEST_CONSOLIDATED)? {
        let node = match node_v3(&text) {
            Ok(ZarrNode::Group { consolidated }) => FoundNode::Group(consolidated.map(|nodes| {
                let is_group = |text: &[u8]| matches!(node_v3(text), Ok(ZarrNode::Group { .. }));
                let arrays = nodes.into_iter().filter(|(path, text)| !path.is_empty() && !is_group(text));
                arrays.map(|(path, _)| format!("{path}/{NODE}")).collect()
            })),
            // Other arrays can be read, even if this one cannot.
            Ok(ZarrNode::Array(_)) => FoundNode::Array(NODE),
            Err(why) if directory.is_empty() => return Err(refused(NODE, why)),
            Err(_) => FoundNode::Array(NODE),
        };
        return Ok(Some(node));
    }
    if let Some((text, _)) = document(source, &name(ARRAY), LARGEST_DOCUMENT)? {
        return match array_v2(&text, None).err().filter(|_| directory.is_empty()) {
            Some(why) => Err(refused(ARRAY, why)),
            None => Ok(Some(FoundNode::Array(ARRAY))),
        };
    }
    if directory.is_empty()
        && let Some((text, _)) = document(source, &name(CONSOLIDATED), LARGEST_CONSOLIDATED)?
    {
        let arrays = consolidated_v2(&text).map_err(|why| refused(CONSOLIDATED, why))?;
        return Ok(Some(FoundNode::Group(Some(arrays))));
    }
    let is_group = document(source, &name(GROUP), LARGEST_DOCUMENT)?.is_some();
    Ok(is_group.then_some(FoundNode::Group(None)))
}

/// Adds the documents of all arrays in and below a directory. Returns whether the directory is an array or a group.
pub(super) fn find_arrays(
    source: &dyn DatasetSource,
    directory: &[u8],
    depth: usize,
    found: &mut Vec<Vec<u8>>,
) -> Result<bool> {
    match zarr_node(source, directory)? {
        None => return Ok(false),
        Some(FoundNode::Array(document)) => found.push(below(directory, document.as_bytes())),
        Some(FoundNode::Group(Some(arrays))) => {
            found.extend(arrays.iter().map(|document| below(directory, document.as_bytes())));
        }
        Some(FoundNode::Group(None)) if depth == DEEPEST => {
            let message = format!("is more than {DEEPEST} groups deep: links in the dataset form a cycle");
            return Err(Error::dataset(source.path(directory), message));
        }
        Some(FoundNode::Group(None)) => {
            let listed = source.directory(directory).map_err(|error| match source.is_remote() {
                true if cannot_list(&error) => Error::dataset(
                    source.path(directory),
                    format!(
                        "is a zarr group that cannot be listed, without consolidated metadata ({error}): run \
                         zarr.consolidate_metadata, or open an array by its own URL"
                    ),
                ),
                _ => error,
            })?;
            let mut names = Vec::new();
            listed.entries(&mut |entry| {
                if entry.kind == EntryKind::Directory && !entry.name.starts_with(b".") {
                    names.push((below(directory, entry.name), entry.target.is_some()));
                }
                Ok(ControlFlow::Continue(()))
            })?;
            names.sort_unstable();
            for (name, is_link) in names {
                if is_link {
                    check_inside(source, &name)?;
                }
                find_arrays(source, &name, depth + 1, found)?;
            }
        }
    }
    Ok(true)
}

/// Whether an error of listing a directory on a server means that the server lists none.
pub(super) fn cannot_list(error: &Error) -> bool {
    match error {
        Error::Dataset { .. } => true,
        Error::Io { source, .. } => is_gone(source) || source.kind() == ErrorKind::PermissionDenied,
        _ => false,
    }
}

/// The coordinates of the element with this number in a row-major grid.
fn coordinates(number: u64, lengths: &[u64]) -> Vec<u64> {
    let mut rest = number;
    let mut found: Vec<u64> = lengths
        .iter()
        .rev()
        .map(|length| {
            let length = (*length).max(1);
            let coordinate = rest % length;
            rest /= length;
            coordinate
        })
        .collect();
    found.reverse();
    found
}

/// Moves to the next element of a row-major grid.
fn advance(coordinates: &mut [u64], lengths: &[u64]) {
    for (coordinate, length) in coordinates.iter_mut().zip(lengths).rev() {
        *coordinate += 1;
        if *coordinate < *length {
            return;
        }
        *coordinate = 0;
    }
}
