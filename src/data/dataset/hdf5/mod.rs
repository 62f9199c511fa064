//! HDF5 and NetCDF-4 files: where their datasets are stored, and in which form. Values are never read.
//!
//! The format is that of the HDF Group's "HDF5 File Format Specification", version 3.0; where it is silent, of its
//! library's sources. Existing reader crates return values but not their locations, so the structure is parsed here.
//!
//! - This file reads the superblock and object headers, and finds objects by their paths.
//! - `messages.rs` decodes the messages of object headers: types, shapes, layouts, filters, links, attributes.
//! - `trees.rs` reads groups, dense links and attributes, and heaps.
//! - `chunks.rs` reads the indexes of chunks, and the rows of variable length.
//!
//! Files may be damaged. Every structure with a checksum is verified before its fields are used. Numbers in the file
//! never determine how much is allocated; only bytes that were read do. Trees have a level that must fall by one with
//! each step, and [`Pages`] limits how much is read in all, so that loops end.

mod chunks;
mod messages;
#[cfg(test)]
mod tests;
mod trees;

use crate::source::{ByteFields, Malformed, Pages, ReadAt};
use base::lookup3::lookup3;
use messages::{HeaderMessage, LinkTarget, Widths, kinds};
use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap, HashSet};

/// A dataset of an HDF5 file: the facts of all its values, and where they are stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::dataset) struct Hdf5Array {
    /// The current shape, with the dimensions of array types at its end. Empty for a scalar.
    pub(in crate::dataset) shape: Vec<u64>,
    /// The type of the values.
    pub(in crate::dataset) element: Hdf5Element,
    /// The value of elements that were never written, as stored: one element.
    pub(in crate::dataset) fill: Vec<u8>,
    /// The filters of chunks, in the order in which the writer applied them.
    pub(in crate::dataset) filters: Vec<Hdf5Filter>,
    /// Where the values are stored.
    pub(in crate::dataset) storage: Hdf5Storage,
}

/// The type of stored values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::dataset) struct Hdf5Element {
    /// What the bytes of a value mean.
    pub(in crate::dataset) kind: Hdf5Kind,
    /// The size of a value in bytes; for strings of variable length 1.
    pub(in crate::dataset) size: u32,
    /// Whether the first byte is the most significant one.
    pub(in crate::dataset) big_endian: bool,
}

/// What the bytes of a value mean.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::dataset) enum Hdf5Kind {
    /// 0 or 1, as h5py stores it.
    Bool,
    /// A signed integer of 1, 2, 4 or 8 bytes.
    Signed,
    /// An unsigned integer or bit field of 1, 2, 4 or 8 bytes.
    Unsigned,
    /// An IEEE float of 2, 4 or 8 bytes.
    Float,
    /// A bfloat16.
    BFloat,
    /// A string of a fixed number of bytes, or of any number in [`Hdf5Storage::Rows`].
    Text,
}

/// A filter of chunks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::dataset) struct Hdf5Filter {
    /// The number under which the filter is registered.
    pub(in crate::dataset) id: u16,
    /// The filter's name, for messages.
    pub(in crate::dataset) name: String,
    /// The filter's parameters.
    pub(in crate::dataset) values: Vec<u32>,
}

/// Where the values of a dataset are stored. Offsets are in bytes from the start of the file. All ranges are in the
/// file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::dataset) enum Hdf5Storage {
    /// Nowhere: all values are the fill value, or there are none.
    Absent,
    /// One range from this offset, without filters.
    Run(u64),
    /// Chunks of equal size. Those at the end of a dimension are stored whole, too.
    Chunks {
        /// The shape of a chunk.
        edges: Vec<u64>,
        /// The chunks that are stored, by ascending number. All others have the fill value.
        places: Vec<Hdf5Chunk>,
    },
    /// For each value of variable length, offset and length in bytes.
    Rows(Vec<(u64, u32)>),
}

/// A stored chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::dataset) struct Hdf5Chunk {
    /// The chunk's number in the row-major grid of the current shape.
    pub(in crate::dataset) number: u64,
    /// Where it is stored.
    pub(in crate::dataset) offset: u64,
    /// How many bytes are stored.
    pub(in crate::dataset) length: u32,
    /// Which filters were not applied to this chunk: bit n for `filters[n]`.
    pub(in crate::dataset) mask: u32,
}

/// An attribute of a dataset or group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::dataset) struct Hdf5Attribute {
    /// The shape. Empty for a scalar.
    pub(in crate::dataset) shape: Vec<u64>,
    /// The values, row-major.
    pub(in crate::dataset) values: Hdf5Values,
}

/// The values of an attribute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::dataset) enum Hdf5Values {
    /// Numbers, as stored.
    Numbers(Hdf5Element, Vec<u8>),
    /// Strings.
    Texts(Vec<String>),
}

/// Why a dataset cannot be read. Texts are complete sentences without the file's name, or, of [`Hdf5File::array`] and
/// [`Hdf5File::attributes`], reasons of refusals that follow the dataset's name.
#[derive(Debug)]
pub(in crate::dataset) enum Hdf5Fault {
    /// The file has no dataset of this name. The text lists others.
    Missing(String),
    /// The dataset or file has a feature that is not read, which the text names.
    Refused(String),
    /// The file is damaged.
    Damaged(Malformed),
}

impl From<Malformed> for Hdf5Fault {
    fn from(malformed: Malformed) -> Self {
        Self::Damaged(malformed)
    }
}

fn refused<T>(why: impl Into<String>) -> Result<T, Hdf5Fault> {
    Err(Hdf5Fault::Refused(why.into()))
}

fn damaged(offset: u64, what: &str) -> Malformed {
    Malformed { offset, message: format!("{what}: the file is damaged") }
}

const SIGNATURE: &[u8] = b"\x89HDF\r\n\x1a\n";
/// Maximum depth of groups in groups.
const MAX_DEPTH: usize = 64;
/// Maximum number of bytes of a path.
const MAX_PATH: usize = 4096;
/// Maximum number of soft links that lead to one dataset.
const MAX_SOFT_LINKS: u32 = 16;

/// An open HDF5 file.
pub(in crate::dataset) struct Hdf5File<'a> {
    pages: Pages<'a>,
    /// Added to all addresses: the size of a block of the user's own before the file's contents.
    base: u64,
    widths: Widths,
    root: u64,
    /// Half of the maximum number of entries of a node of B-trees, version 1, of chunks.
    chunk_k: u64,
    /// The same of groups.
    group_k: u64,
    /// Half of the maximum number of symbols in a leaf of a group.
    leaf_k: u64,
    /// The links by name of all groups that paths led through, by the address of the group.
    groups: RefCell<HashMap<u64, BTreeMap<String, LinkTarget>>>,
}

struct ObjectHeader {
    at: u64,
    messages: Vec<HeaderMessage>,
}

impl ObjectHeader {
    /// The first message of a kind, which is the one that HDF5 reads.
    fn find(&self, kind: u16) -> Option<&HeaderMessage> {
        self.messages.iter().find(|message| message.kind == kind)
    }
}

impl<'a> Hdf5File<'a> {
    /// Opens a file: reads its superblock.
    ///
    /// # Errors
    /// [`Hdf5Fault::Damaged`] if this is not HDF5, or truncated. [`Hdf5Fault::Refused`] for a file that is still being
    /// written, or one of several files that belong together.
    pub(in crate::dataset) fn open(source: &'a dyn ReadAt) -> Result<Self, Hdf5Fault> {
        let pages = Pages::new(source);
        let mut base = 0_u64;
        loop {
            let length = SIGNATURE.len() as u64;
            if base.saturating_add(length) > pages.size() || base > 1 << 30 {
                return Err(damaged(0, "this is not an HDF5 file, or its superblock is missing").into());
            }
            if pages.read(base, length)?.starts_with(SIGNATURE) {
                break;
            }
            base = if base == 0 { 512 } else { base * 2 };
        }
        let widths = Widths { offsets: 8, lengths: 8 };
        let groups = RefCell::default();
        let mut file = Self { pages, base, widths, root: 0, chunk_k: 32, group_k: 16, leaf_k: 4, groups };
        let version = file.block(8, 1, &[])?.first().copied();
        match version {
            Some(0 | 1) => file.read_first_superblock(version == Some(1))?,
            Some(2 | 3) => file.read_superblock()?,
            _ => return refused("this file has a superblock of an unknown version"),
        }
        Ok(file)
    }

    /// Returns the bytes of the file, to read values from the cache that has the metadata around them.
    pub(in crate::dataset) fn bytes(&self) -> &dyn ReadAt {
        &self.pages
    }

    fn set_widths(&mut self, offsets: u8, lengths: u8) -> Result<(), Hdf5Fault> {
        if ![4, 8].contains(&offsets) || ![4, 8].contains(&lengths) {
            return refused(format!("addresses of {offsets} bytes or lengths of {lengths} are not read"));
        }
        self.widths = Widths { offsets: offsets.into(), lengths: lengths.into() };
        Ok(())
    }

    /// Reads the superblock of versions 0 and 1.
    fn read_first_superblock(&mut self, has_chunk_k: bool) -> Result<(), Hdf5Fault> {
        let start = self.block(0, 24 + if has_chunk_k { 4 } else { 0 }, SIGNATURE)?;
        let mut fields = self.fields(0, &start);
        fields.take(5)?;
        let (offsets, lengths) = (fields.u8()?, fields.u8()?);
        self.set_widths(offsets, lengths)?;
        fields.take(1)?;
        (self.leaf_k, self.group_k) = (fields.uint(2)?, fields.uint(2)?);
        fields.take(4)?;
        if has_chunk_k {
            self.chunk_k = fields.uint(2)?;
        }
        // Four addresses, then the root group's symbol: the offset of its name, its address, and a cache.
        let at = (SIGNATURE.len() + start.len()) as u64;
        let rest = self.block(at, 6 * self.widths.offsets, &[])?;
        let mut fields = self.fields(at, &rest);
        let stated_base = fields.uint(self.widths.offsets)?;
        fields.optional(self.widths.offsets)?;
        let end = fields.uint(self.widths.offsets)?;
        let driver = fields.optional(self.widths.offsets)?;
        fields.optional(self.widths.offsets)?;
        let root = fields.optional(self.widths.offsets)?;
        self.finish(stated_base, end, root)?;
        if driver.is_some() {
            return refused("this is one of several files that belong together (family or multi driver)");
        }
        Ok(())
    }

    /// Reads the superblock of versions 2 and 3.
    fn read_superblock(&mut self) -> Result<(), Hdf5Fault> {
        let start = self.block(8, 4, &[])?;
        let mut fields = self.fields(8, &start);
        let (version, offsets, lengths, flags) = (fields.u8()?, fields.u8()?, fields.u8()?, fields.u8()?);
        self.set_widths(offsets, lengths)?;
        let bytes = self.checked(0, 16 + 4 * self.widths.offsets, SIGNATURE)?;
        let mut fields = self.fields(0, &bytes);
        fields.take(4)?;
        let stated_base = fields.uint(self.widths.offsets)?;
        let extension = fields.optional(self.widths.offsets)?;
        let end = fields.uint(self.widths.offsets)?;
        let root = fields.optional(self.widths.offsets)?;
        self.finish(stated_base, end, root)?;
        if version == 3 && flags & 5 != 0 {
            return refused("this file is open for writing, or its writer died: run `h5clear -s` on it");
        }
        let Some(extension) = extension else { return Ok(()) };
        let extension = self.header(extension)?;
        if extension.find(kinds::DRIVER).is_some() {
            return refused("this is one of several files that belong together (family or multi driver)");
        }
        if extension.find(kinds::CACHE_IMAGE).is_some() {
            return refused("this file has a metadata cache image: rewrite it with h5repack");
        }
        if let Some(message) = extension.find(kinds::BTREE_K) {
            let mut fields = message.fields();
            fields.version(&[0])?;
            (self.chunk_k, self.group_k, self.leaf_k) = (fields.uint(2)?, fields.uint(2)?, fields.uint(2)?);
        }
        Ok(())
    }

    /// Sets the address of the root group, after checking that the file is complete.
    fn finish(&mut self, stated_base: u64, end: u64, root: Option<u64>) -> Result<(), Malformed> {
        // HDF5 reads files whose beginning was cut off or prepended later: the signature's offset is the base.
        let stated = end.checked_sub(stated_base).and_then(|content| self.base.checked_add(content));
        if stated.is_none_or(|stated| stated > self.pages.size()) {
            return Err(damaged(self.base, "the file is shorter than it states"));
        }
        self.root = root.ok_or_else(|| damaged(self.base, "there is no root group"))?;
        Ok(())
    }

    /// Reads a structure at an address. Its signature is checked, and not in the result.
    fn block(&self, address: u64, length: u64, signature: &[u8]) -> Result<Vec<u8>, Malformed> {
        let at = self.base.saturating_add(address);
        let mut bytes = self.pages.read(at, length)?;
        if !bytes.starts_with(signature) {
            return Err(damaged(at, "a structure is not of the expected kind or version"));
        }
        bytes.drain(..signature.len());
        Ok(bytes)
    }

    /// Reads a structure that ends in its checksum, which is not in the result either.
    fn checked(&self, address: u64, length: u64, signature: &[u8]) -> Result<Vec<u8>, Malformed> {
        let mut bytes = self.block(address, length, &[])?;
        let at = bytes.len().saturating_sub(4);
        let stored = bytes.split_off(at);
        if stored != lookup3(&bytes).to_le_bytes() || !bytes.starts_with(signature) {
            return Err(damaged(self.base.saturating_add(address), "a checksum or signature is wrong"));
        }
        bytes.drain(..signature.len());
        Ok(bytes)
    }

    /// A cursor over bytes that were read at an address.
    fn fields<'b>(&self, address: u64, bytes: &'b [u8]) -> ByteFields<'b> {
        ByteFields::new(bytes, self.base.saturating_add(address))
    }

    /// Returns the offset in the file of a range of data at an address.
    fn data(&self, address: u64, length: u64) -> Result<u64, Malformed> {
        let offset = self.base.checked_add(address);
        let end = offset.and_then(|offset| offset.checked_add(length));
        let at = self.base.saturating_add(address).min(self.pages.size());
        let outside = || damaged(at, "data is outside of the file");
        offset.filter(|_| end.is_some_and(|end| end <= self.pages.size())).ok_or_else(outside)
    }

    /// Reads the header of an object.
    fn header(&self, address: u64) -> Result<ObjectHeader, Hdf5Fault> {
        let at = self.base.saturating_add(address);
        let left = self.pages.size().saturating_sub(at);
        let start = self.block(address, left.min(34), &[])?;
        let mut fields = self.fields(address, &start);
        let mut header = ObjectHeader { at, messages: Vec::new() };
        let mut blocks = Vec::new();
        let mut order = 0;
        let is_checked = start.starts_with(b"OHDR");
        if is_checked {
            fields.take(4)?;
            fields.version(&[2])?;
            let flags = fields.u8()?;
            fields.take(if flags & 0x20 == 0 { 0 } else { 16 })?;
            fields.take(if flags & 0x10 == 0 { 0 } else { 4 })?;
            let length = fields.uint(1 << (flags & 3))?;
            order = if flags & 4 == 0 { 0 } else { 2 };
            let prefix = fields.position() - at;
            let bytes = self.checked(address, length.saturating_add(prefix + 4), &[])?;
            let content = bytes.get(prefix as usize..).unwrap_or_default();
            header.add(self.fields(address + prefix, content), Some(order), self.widths, &mut blocks)?;
        } else {
            fields.version(&[1])?;
            fields.take(7)?;
            let length = fields.uint(4)?;
            let bytes = self.block(address.saturating_add(16), length, &[])?;
            header.add(self.fields(address + 16, &bytes), None, self.widths, &mut blocks)?;
        }
        let (mut read, mut seen) = (0, HashSet::new());
        while let Some(&(address, length)) = blocks.get(read) {
            if !seen.insert(address) {
                return Err(damaged(at, "an object header continues in itself").into());
            }
            read += 1;
            if is_checked {
                let bytes = self.checked(address, length, b"OCHK")?;
                header.add(self.fields(address + 4, &bytes), Some(order), self.widths, &mut blocks)?;
            } else {
                let bytes = self.block(address, length, &[])?;
                header.add(self.fields(address, &bytes), None, self.widths, &mut blocks)?;
            }
        }
        Ok(header)
    }

    /// Finds an object by its path, from the root group.
    pub(in crate::dataset) fn find(&self, path: &str) -> Result<Option<u64>, Hdf5Fault> {
        self.pages.begin();
        let parts = |path: &str| -> Vec<String> {
            let parts = path.split('/').rev().filter(|part| !part.is_empty() && *part != ".");
            parts.map(str::to_owned).collect()
        };
        let (mut at, mut left, mut soft) = (self.root, parts(path), 0);
        while let Some(part) = left.pop() {
            match self.target(at, &part)? {
                None => return Ok(None),
                Some(LinkTarget::Object(address)) => at = address,
                Some(LinkTarget::Soft(target)) => {
                    soft += 1;
                    if soft > MAX_SOFT_LINKS {
                        return refused(format!("leads over more than {MAX_SOFT_LINKS} soft links"));
                    }
                    if target.starts_with('/') {
                        at = self.root;
                    }
                    left.extend(parts(&target));
                }
                Some(LinkTarget::Outside) => {
                    return refused("is a link to another file, which is not followed");
                }
            }
        }
        Ok(Some(at))
    }

    /// Returns where a link of a group leads; `None` if the group has no such link.
    fn target(&self, group: u64, name: &str) -> Result<Option<LinkTarget>, Hdf5Fault> {
        if !self.groups.borrow().contains_key(&group) {
            let mut targets = BTreeMap::new();
            for link in self.links(&self.header(group)?)? {
                targets.entry(link.name).or_insert(link.target);
            }
            self.groups.borrow_mut().insert(group, targets);
        }
        Ok(self.groups.borrow().get(&group).and_then(|targets| targets.get(name).cloned()))
    }

    /// Finds a dataset or group by its path, and reads its header.
    fn object(&self, path: &str) -> Result<ObjectHeader, Hdf5Fault> {
        if let Some(address) = self.find(path)? {
            return self.header(address);
        }
        let known = super::checks::nearest_names(path, &self.list()?);
        Err(Hdf5Fault::Missing(format!("it has no dataset {path:?}; there are {known}")))
    }

    /// Lists the paths of all datasets, each once. Links to other files and soft links are left out.
    ///
    /// # Errors
    /// [`Hdf5Fault`] if the file is damaged, or a group has a feature that is not read.
    pub(in crate::dataset) fn list(&self) -> Result<Vec<String>, Hdf5Fault> {
        self.pages.begin();
        let (mut found, mut seen) = (Vec::new(), HashSet::new());
        let mut left = vec![(String::new(), self.root, 0)];
        while let Some((path, object, depth)) = left.pop() {
            if !seen.insert(object) {
                continue;
            }
            let header = self.header(object)?;
            if header.find(kinds::LAYOUT).is_some() {
                found.push(path);
            } else if depth == MAX_DEPTH {
                return refused(format!("{path:?} is in more than {MAX_DEPTH} groups"));
            } else {
                for link in self.links(&header)? {
                    if path.len() + link.name.len() >= MAX_PATH {
                        return refused(format!("a path has more than {MAX_PATH} bytes, which is not read"));
                    }
                    if let LinkTarget::Object(address) = link.target {
                        left.push((format!("{path}/{}", link.name), address, depth + 1));
                    }
                }
            }
        }
        found.sort_unstable();
        Ok(found)
    }

    /// Returns the shape, type and storage of a dataset.
    ///
    /// # Errors
    /// [`Hdf5Fault`] if there is no such dataset, or it has a feature that is not read, or the file is damaged.
    pub(in crate::dataset) fn array(&self, path: &str) -> Result<Hdf5Array, Hdf5Fault> {
        chunks::array(self, &self.object(path)?)
    }

    /// Returns the attributes of these names of a dataset or group, `None` for each that it lacks.
    ///
    /// # Errors
    /// [`Hdf5Fault`] if there is no such object, an attribute has a type that is not read, or the file is damaged.
    pub(in crate::dataset) fn attributes(
        &self,
        path: &str,
        names: &[&str],
    ) -> Result<Vec<Option<Hdf5Attribute>>, Hdf5Fault> {
        self.attributes_of(&self.object(path)?, names).map_err(|fault| match fault {
            Hdf5Fault::Refused(why) => Hdf5Fault::Refused(format!("has an attribute that {why}")),
            other => other,
        })
    }
}
