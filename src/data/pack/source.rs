//! Reads the files of samples from the dataset to pack, each once and in order.

use super::blocks::{ColumnBlocks, NO_COLUMN};
use super::packed_reader::PackedReader;
use crate::dataset::layouts::masked;
use crate::dataset::packed::{PackingFacts, PackingMember, TarMemberIndex};
use crate::dataset::{COARSE_TICK, DatasetIndex, Extent, FileId, Layout, ReadAt, SizedFile, Stamp};
use crate::source::OpenFile;
use base::crc::checksum;
use base::error::{Error, Result};
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

const WINDOW: usize = 4 << 20;
const MAX_WINDOWS: usize = 8;

/// A file of a sample. The bytes of the file are in [`SampleFiles::bytes`].
pub(super) struct SampleFile {
    /// Name: a path below the root, or a member's name; empty for a record.
    pub(super) name: Vec<u8>,
    /// The index of the file among the members, rows or records of its source shard.
    pub(super) order: u32,
    at: usize,
    length: usize,
}

/// The files of one sample. The first file is the image, or the file that takes the image's place.
#[derive(Default)]
pub(super) struct SampleFiles {
    pub(super) files: Vec<SampleFile>,
    /// Stamp of the loose file or of the shard, taken when the sample was read.
    pub(super) stamp: Stamp,
    /// Stamps of the further files of a sample of parallel directories.
    partners: Vec<(FileId, Stamp)>,
    bytes: Vec<u8>,
}

impl SampleFiles {
    pub(super) fn bytes(&self, file: &SampleFile) -> &[u8] {
        &self.bytes[file.at..][..file.length]
    }

    /// The stamps of the sample's file or shard, which is `first`, and of its further files.
    pub(super) fn stamps(&self, first: FileId) -> impl Iterator<Item = (FileId, Stamp)> {
        std::iter::once((first, self.stamp)).chain(self.partners.iter().copied())
    }

    pub(super) fn push(&mut self, name: &[u8], order: u32, bytes: &[u8]) {
        let (at, length) = (self.bytes.len(), bytes.len());
        self.bytes.extend_from_slice(bytes);
        self.files.push(SampleFile { name: name.to_vec(), order, at, length });
    }
}

/// The members of a tar shard; `None` until a thread has listed them.
type ListingSlot = Arc<Mutex<Option<Arc<TarMemberIndex>>>>;

pub(super) struct PackSource<'a> {
    index: &'a DatasetIndex,
    pub(super) facts: &'a PackingFacts,
    /// The members of the tar shards that are being read, and of a few earlier shards.
    listings: Mutex<Vec<(FileId, ListingSlot)>>,
    threads: usize,
}

impl<'a> PackSource<'a> {
    pub(super) fn new(index: &'a DatasetIndex, facts: &'a PackingFacts, threads: usize) -> Self {
        Self { index, facts, listings: Mutex::default(), threads }
    }

    /// Returns the members of a tar shard. The first thread lists them, and other threads that need them wait.
    fn listing(&self, shard: &mut SourceShard) -> Result<Arc<TarMemberIndex>> {
        let file = shard.file;
        let slot = {
            let mut listings = self.listings.lock().unwrap_or_else(PoisonError::into_inner);
            let slot = match listings.iter().position(|(known, _)| *known == file) {
                Some(at) => listings.remove(at).1,
                None => Arc::default(),
            };
            listings.push((file, slot.clone()));
            if listings.len() > self.threads + 1 {
                listings.remove(0);
            }
            slot
        };
        let mut slot = slot.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(listing) = &*slot {
            return Ok(listing.clone());
        }
        let listing = Arc::new(shard.list(self.index)?);
        shard.check(self.index)?;
        Ok(slot.insert(listing).clone())
    }
}

struct SourceShard {
    file: FileId,
    source: ShardBytes,
    /// The windows that were read last, the latest at the end. Several windows are kept, because values of different
    /// columns are far apart.
    windows: Vec<ShardWindow>,
    blocks: ColumnBlocks,
}

#[derive(Default)]
struct ShardWindow {
    at: u64,
    bytes: Vec<u8>,
}

impl ShardWindow {
    fn find(&self, offset: u64, length: usize) -> Option<Range<usize>> {
        let from = usize::try_from(offset.checked_sub(self.at)?).ok()?;
        let end = from.checked_add(length)?;
        (end <= self.bytes.len()).then_some(from..end)
    }

    /// Whether `offset` is in the window or shortly after it, as in sequential reading.
    fn leads_to(&self, offset: u64) -> bool {
        let end = self.at + self.bytes.len() as u64;
        (self.at..=end + WINDOW as u64 / 8).contains(&offset)
    }
}

/// An open shard: a local file, or a file on a server. For a server, the version of each response is checked.
pub(super) enum ShardBytes {
    File(SizedFile),
    Remote(OpenFile),
}

impl ReadAt for ShardBytes {
    fn size(&self) -> u64 {
        match self {
            Self::File(file) => file.size(),
            Self::Remote(open) => open.bytes.size(),
        }
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> std::io::Result<usize> {
        match self {
            Self::File(file) => file.read_at(buffer, offset),
            Self::Remote(open) => open.bytes.read_at(buffer, offset),
        }
    }
}

impl SourceShard {
    fn open(index: &DatasetIndex, file: FileId) -> Result<Self> {
        let source = match index.open_remote(file)? {
            Some(open) => ShardBytes::Remote(open),
            None => {
                let path = index.path(file);
                ShardBytes::File(SizedFile::open(&path).map_err(|error| Error::io("open", &path, error))?)
            }
        };
        let shard = Self { file, source, windows: Vec::new(), blocks: ColumnBlocks::default() };
        shard.check(index)?;
        Ok(shard)
    }

    /// Checks that the shard still has the version that was indexed.
    fn check(&self, index: &DatasetIndex) -> Result<()> {
        let path = index.path(self.file);
        let found = match &self.source {
            ShardBytes::File(SizedFile { file, .. }) => {
                let metadata = file.metadata().map_err(|error| Error::io("look at", &path, error))?;
                index.known(self.file, Stamp::of(&metadata))
            }
            ShardBytes::Remote(open) => open.stamp,
        };
        let difference = index.shard_stamp(self.file).and_then(|stamp| stamp.difference(found));
        difference.map_or(Ok(()), |message| Err(Error::DatasetChanged { path, message }))
    }

    fn list(&mut self, index: &DatasetIndex) -> Result<TarMemberIndex> {
        let listed = match index.whole_block(self.file) {
            Some(block) => {
                let bytes = self.blocks.take(index, NO_COLUMN, &block, &self.source)?;
                TarMemberIndex::read(&bytes[..], block.addresses().start)
            }
            None => TarMemberIndex::read(&self.source, 0),
        };
        listed.map_err(|error| Error::dataset(index.path(self.file), error.message))
    }

    /// Appends `length` bytes at `offset` to `bytes`. If they are in a compressed block, decompresses the block.
    /// `column` is the column of the bytes, or [`NO_COLUMN`].
    fn read(
        &mut self,
        index: &DatasetIndex,
        column: u32,
        offset: u64,
        length: usize,
        bytes: &mut Vec<u8>,
    ) -> Result<()> {
        if length == 0 {
            return Ok(());
        }
        let Ok(short) = u32::try_from(length) else { return self.read_plain(index, offset, length, bytes) };
        let extent = Extent { file: self.file, offset, length: short };
        if self.blocks.read(column, extent, bytes) {
            return Ok(());
        }
        let Some(block) = index.block(extent) else {
            return self.read_plain(index, offset, length, bytes);
        };
        self.blocks.take(index, column, &block, &self.source)?;
        if self.blocks.read(column, extent, bytes) {
            return Ok(());
        }
        let place = block.extent().offset;
        let message = format!("its index has a sample beyond the compressed block at byte {place}");
        Err(Error::dataset(index.path(self.file), message))
    }

    fn read_plain(
        &mut self,
        index: &DatasetIndex,
        offset: u64,
        length: usize,
        bytes: &mut Vec<u8>,
    ) -> Result<()> {
        let known = self.windows.iter().position(|window| window.find(offset, length).is_some());
        let window = match known {
            Some(at) => self.windows.remove(at),
            None => {
                let before = self.windows.iter().position(|window| window.leads_to(offset));
                let wanted = if before.is_some() || self.windows.is_empty() { WINDOW } else { WINDOW / 8 };
                // Reuse the memory of the window before this read, which sequential reading no longer needs, or of
                // the oldest window.
                let full = self.windows.len() >= MAX_WINDOWS;
                let free = before.or(full.then_some(0)).map(|at| self.windows.remove(at));
                let mut window = free.unwrap_or_default();
                window.bytes.resize(length.max(wanted), 0);
                let got = self.source.read_at(&mut window.bytes, offset);
                let got = got.map_err(|error| Error::io("read", index.path(self.file), error))?;
                window.bytes.truncate(got);
                window.at = offset;
                window
            }
        };
        let found = window.find(offset, length).ok_or_else(|| Error::DatasetChanged {
            path: index.path(self.file),
            message: "is shorter than when it was indexed".to_owned(),
        })?;
        bytes.extend_from_slice(&window.bytes[found]);
        self.windows.push(window);
        Ok(())
    }
}

pub(super) struct SampleReader<'a> {
    source: &'a PackSource<'a>,
    open: Option<SourceShard>,
    packed: PackedReader,
}

impl<'a> SampleReader<'a> {
    pub(super) fn new(source: &'a PackSource<'a>) -> Self {
        Self { source, open: None, packed: PackedReader::default() }
    }

    /// Reads all files of a sample into `found`, and replaces the previous contents of `found`.
    ///
    /// # Errors
    /// [`Error::DatasetChanged`] if a file has changed since it was indexed, [`Error::Io`] if it cannot be read,
    /// [`Error::Dataset`] for a record with a wrong checksum.
    pub(super) fn read(&mut self, sample: u64, found: &mut SampleFiles) -> Result<()> {
        found.files.clear();
        found.bytes.clear();
        found.partners.clear();
        match self.source.facts.layout {
            layout if layout.is_of_single_files() => return self.read_file(sample, found),
            Layout::TfRecord => self.read_record(sample, found)?,
            Layout::Tar => self.read_members(sample, found)?,
            Layout::Packed => self.packed.read(self.source.index, sample, found)?,
            _ => self.read_row(sample, found)?,
        }
        // A shard's stamp is checked before and after reading, so the stamp in the index is current.
        let indexed = self.source.index.shard_stamp(self.source.index.extent(sample).file);
        found.stamp = indexed.unwrap_or_default();
        Ok(())
    }

    #[cfg(test)]
    pub(super) fn held(&self) -> u64 {
        self.open.as_ref().map_or(0, |shard| shard.blocks.bytes())
    }

    pub(super) fn listing(&mut self, file: FileId) -> Result<Arc<TarMemberIndex>> {
        let source = self.source;
        source.listing(self.shard(file)?)
    }

    /// Closes the open shard. Fails if the shard has changed since it was opened.
    pub(super) fn finish(&mut self) -> Result<()> {
        self.open.take().map_or(Ok(()), |shard| shard.check(self.source.index))
    }

    fn shard(&mut self, file: FileId) -> Result<&mut SourceShard> {
        if self.open.as_ref().is_none_or(|shard| shard.file != file) {
            self.finish()?;
            self.open = None;
        }
        match &mut self.open {
            Some(shard) => Ok(shard),
            none => Ok(none.insert(SourceShard::open(self.source.index, file)?)),
        }
    }

    fn read_file(&mut self, sample: u64, found: &mut SampleFiles) -> Result<()> {
        let index = self.source.index;
        let extent = index.extent(sample);
        found.stamp = Self::read_whole_file(index, &index.packing_name(extent.file), extent, found)?;
        for (field, extent) in index.packing_partners(sample) {
            let stamp = Self::read_whole_file(index, field.as_bytes(), extent, found)?;
            found.partners.push((extent.file, stamp));
        }
        Ok(())
    }

    fn read_whole_file(
        index: &DatasetIndex,
        name: &[u8],
        extent: Extent,
        found: &mut SampleFiles,
    ) -> Result<Stamp> {
        let path = index.path(extent.file);
        let mut bytes = Vec::new();
        let stamp = match index.open_remote(extent.file)? {
            Some(open) => read_whole_remote(&path, open, extent.length, &mut bytes)?,
            None => index.known(extent.file, read_whole(&path, extent.length, &mut bytes)?),
        };
        found.push(name, 0, &bytes);
        Ok(stamp)
    }

    fn read_record(&mut self, sample: u64, found: &mut SampleFiles) -> Result<()> {
        let index = self.source.index;
        let extent = index.extent(sample);
        let order = (sample - index.samples_of(extent.file).start) as u32;
        let length = extent.length as usize;
        // Verify the checksum, which follows the payload in the file. The payload is stored without it, and unpacking
        // computes it again.
        let shard = self.shard(extent.file)?;
        shard.read(index, NO_COLUMN, extent.offset, length + 4, &mut found.bytes)?;
        let masked = masked(checksum(&found.bytes[..length]));
        if found.bytes[length..] != masked.to_le_bytes() {
            let message = format!("the record at byte {} is damaged: its checksum is wrong", extent.offset);
            return Err(Error::dataset(index.path(extent.file), message));
        }
        found.bytes.truncate(length);
        found.files.push(SampleFile { name: Vec::new(), order, at: 0, length });
        Ok(())
    }

    /// Reads the values of a row as files that have the names of the columns.
    fn read_row(&mut self, sample: u64, found: &mut SampleFiles) -> Result<()> {
        let index = self.source.index;
        let file = index.extent(sample).file;
        let order = (sample - index.samples_of(file).start) as u32;
        let table = &self.source.facts.table;
        for PackingMember { key, offset, length } in index.packing_members(sample, table) {
            let name = table.keys.get(key as usize).map_or(&b""[..], |key| key.as_bytes()).to_vec();
            let (at, length) = (found.bytes.len(), length as usize);
            self.shard(file)?.read(index, key, offset, length, &mut found.bytes)?;
            found.files.push(SampleFile { name, order, at, length });
        }
        Ok(())
    }

    fn read_members(&mut self, sample: u64, found: &mut SampleFiles) -> Result<()> {
        let index = self.source.index;
        let extent = index.extent(sample);
        let listing = self.listing(extent.file)?;
        let parts = listing.sample(extent.offset).ok_or_else(|| Error::DatasetChanged {
            path: index.path(extent.file),
            message: format!("has no member at byte {} any more", extent.offset),
        })?;
        // Read members in the order of their offsets, but return the image first.
        let mut order: Vec<usize> = (0..parts.len()).collect();
        order.sort_by_key(|&number| parts[number].offset);
        let mut places = vec![0; parts.len()];
        let shard = self.shard(extent.file)?;
        for number in order {
            places[number] = found.bytes.len();
            let part = parts[number];
            shard.read(index, NO_COLUMN, part.offset, part.length as usize, &mut found.bytes)?;
        }
        found.files.extend(parts.iter().zip(places).map(|(part, at)| SampleFile {
            name: part.name.clone(),
            order: part.order,
            at,
            length: part.length as usize,
        }));
        Ok(())
    }
}

/// Reads a loose file, which must have `length` bytes and must not change during the read. Returns its stamp. Every
/// later write alters this stamp.
fn read_whole(path: &Path, length: u32, bytes: &mut Vec<u8>) -> Result<Stamp> {
    let fail = |error| Error::io("read", path, error);
    let changed = |message: String| Error::DatasetChanged { path: path.to_path_buf(), message };
    let file = File::open(path).map_err(fail)?;
    let look = || file.metadata().map(|metadata| Stamp::of(&metadata)).map_err(fail);
    let stamp = Stamp::stable(COARSE_TICK, look)?;
    if stamp.size != u64::from(length) {
        return Err(changed(format!("is {} bytes, was {length} when indexed", stamp.size)));
    }
    bytes.resize(length as usize, 0);
    file.read_exact_at(bytes, 0).map_err(fail)?;
    if look()? != stamp {
        return Err(changed("changed while it was packed".to_owned()));
    }
    Ok(stamp)
}

/// Reads a file on a server. The source checks the version of each response.
fn read_whole_remote(path: &Path, open: OpenFile, length: u32, bytes: &mut Vec<u8>) -> Result<Stamp> {
    if open.stamp.size != u64::from(length) {
        let message = format!("is {} bytes, was {length} when indexed", open.stamp.size);
        return Err(Error::DatasetChanged { path: path.to_path_buf(), message });
    }
    bytes.resize(length as usize, 0);
    let got = open.bytes.read_at(bytes, 0).map_err(|error| Error::io("read", path, error))?;
    bytes.truncate(got);
    Ok(open.stamp)
}
