//! Format of the index file: a header and sections, each with a digest, little-endian. Nothing in the file is trusted.
//!
//! The file is read whole into private memory, and every section is compared with its digest. So a run does not depend
//! on the file after loading: the file can be truncated, overwritten or removed, or its server can become unreachable.
//! A memory-mapped file would raise a signal or return other bytes in these cases (→ `tests/data/index_file.rs`). The
//! digests detect damage, not malice: all accessors stay within bounds even if a digest was forged.

use super::arrays::{ArrayFacts, ArrayTable};
use super::blocks::BLOCK_ROW;
use super::cells::ColumnFacts;
use super::kind::RULES;
use super::member::MEMBER_ROW;
use super::parallel::for_each;
use super::{Contents, Layout, Notes, Stamp};
use base::error::{Error, Result};
use base::parts::RawHeaderSummary;
use sha2::{Digest, Sha256};
use std::fs::File;
use std::io::{self, Read};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

pub(super) const MAGIC: [u8; 8] = *b"FORELOAD";
/// Version of the file format. An index of another version is rebuilt.
pub(super) const VERSION: u32 = 11;
pub(super) const HEADER: usize = SECTIONS_AT + Section::COUNT * SECTION_ROW + 32;
const SECTIONS_AT: usize = 112;
const SECTION_ROW: usize = 48;
/// Number of bytes for which it pays to start a thread that reads and digests the bytes: a few milliseconds of work.
const MIN_BYTES_PER_THREAD: usize = 4 << 20;
/// Number of bytes of a row of [`Section::Groups`]: a total (u64) for each [`GroupEnd`], then the lengths of the prefix
/// and the suffix that all names of the group share (u32 each, at [`GROUP_PREFIX`] and [`GROUP_SUFFIX`]). Prefix and
/// suffix are stored after the group's path.
pub(super) const GROUP_ROW: usize = 32;
pub(super) const GROUP_PREFIX: usize = 24;
pub(super) const GROUP_SUFFIX: usize = 28;
pub(super) const STAMP_ROW: usize = Stamp::BYTES;

/// The sections of the file, in file order. A *group* is a directory or a shard with samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Section {
    /// The dataset's canonical path.
    Root,
    /// The class names. For each name its length (u32) and its bytes.
    Classes,
    /// What was found while the dataset was listed ([`Notes`]), as JSON.
    Notes,
    /// A row of [`GROUP_ROW`] bytes for each group.
    Groups,
    /// The paths of the groups below the root, one after another. The shared prefix and suffix of the group's names
    /// follow each path.
    Paths,
    /// A row of [`STAMP_ROW`] bytes for each group.
    Stamps,
    /// The class number of each sample (u32).
    Labels,
    /// The number of bytes of each sample (u32).
    Lengths,
    /// The location of each sample. In a shard it is the sample's offset (u64). In a directory it is the offset at
    /// which the sample's file name ends within the directory's part of [`Section::Names`] (u32).
    Places,
    /// The names of files in directories, one after another, without the prefix and suffix of their directory. Most
    /// names in a directory are similar ("n01440764_10026.JPEG"), so only about a quarter of their bytes is stored.
    Names,
    /// For packed shards, the header summary of each sample's packed image ([`RawHeaderSummary`]).
    HeaderSummaries,
    /// The compressed blocks that hold samples, sorted by shard and address: rows of [`BLOCK_ROW`] bytes.
    Blocks,
    /// The keys of the members that samples in shards have, sorted, as JSON.
    Keys,
    /// The kinds of the members, in the order of the keys, as JSON; an empty list if the keys determine the kinds.
    Kinds,
    /// The columns of small values that samples of tables have ([`ColumnFacts`]), sorted by name, as JSON.
    Columns,
    /// The facts about arrays ([`ArrayFacts`]), without repetitions, as JSON.
    Arrays,
    /// The lengths of the dimensions of arrays, and of their chunks (u64).
    ArrayDims,
    /// The arrays of all groups in turn (`arrays/rows.rs`).
    ArrayRows,
    /// The chunks of arrays whose places cannot be computed (`arrays/rows.rs`).
    ChunkCells,
    /// For shards with members: for each sample, the number of members of this sample and all earlier samples (u64).
    /// This section and the following ones are loaded on demand, because only fields need them.
    MemberEnds,
    /// The members of all samples in turn, sorted by key number within each sample: rows of [`MEMBER_ROW`] bytes.
    Members,
    /// The values of the columns, one column after another (`cells.rs`). Like [`Section::MemberEnds`], loaded on
    /// demand.
    Cells,
}

/// The totals in a row of [`Section::Groups`], in the order of the row: the samples, the bytes of paths and the bytes
/// of names of this group and all groups before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum GroupEnd {
    Samples,
    Paths,
    Names,
}

impl Section {
    pub(super) const COUNT: usize = 22;
    pub(super) const ALL: [Self; Self::COUNT] = [
        Self::Root,
        Self::Classes,
        Self::Notes,
        Self::Groups,
        Self::Paths,
        Self::Stamps,
        Self::Labels,
        Self::Lengths,
        Self::Places,
        Self::Names,
        Self::HeaderSummaries,
        Self::Blocks,
        Self::Keys,
        Self::Kinds,
        Self::Columns,
        Self::Arrays,
        Self::ArrayDims,
        Self::ArrayRows,
        Self::ChunkCells,
        Self::MemberEnds,
        Self::Members,
        Self::Cells,
    ];

    /// Whether the section depends only on the data, not on where or when it is indexed. The fingerprint, and with it
    /// the dataset's order, is computed from these sections. Members other than images are not included, so that they
    /// can be rewritten without a change of the order. Nor are arrays, so that they can be rewritten with other chunks.
    pub(super) fn is_content(self) -> bool {
        let is_beside =
            matches!(self, Self::Root | Self::Notes | Self::Stamps | Self::HeaderSummaries | Self::Blocks);
        let is_of_arrays =
            matches!(self, Self::Arrays | Self::ArrayDims | Self::ArrayRows | Self::ChunkCells);
        let is_of_fields = matches!(self, Self::Keys | Self::Kinds | Self::Columns);
        !is_beside && !is_of_fields && !is_of_arrays && !self.is_of_members()
    }

    /// Whether the section holds the locations of members, or small values. These sections come last in the file.
    fn is_of_members(self) -> bool {
        matches!(self, Self::MemberEnds | Self::Members | Self::Cells)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct IndexHeader {
    pub(super) layout: Layout,
    pub(super) contents: Contents,
    pub(super) samples: u64,
    pub(super) groups: u64,
    pub(super) total_bytes: u64,
    pub(super) root: Stamp,
    pub(super) largest: u32,
    pub(super) classes: u32,
    pub(super) fingerprint: [u8; 32],
}

#[derive(Debug, Clone, Copy, Default)]
pub(super) struct SectionEntry {
    pub(super) offset: u64,
    pub(super) length: u64,
    pub(super) digest: [u8; 32],
}

impl IndexHeader {
    pub(super) fn new(layout: Layout, contents: Contents) -> Self {
        Self {
            layout,
            contents,
            samples: 0,
            groups: 0,
            total_bytes: 0,
            root: Stamp::default(),
            largest: 0,
            classes: 0,
            fingerprint: [0; 32],
        }
    }

    pub(super) fn encode(&self, sections: &[SectionEntry; Section::COUNT]) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEADER);
        bytes.extend(MAGIC);
        bytes.extend(VERSION.to_le_bytes());
        bytes.extend((self.layout as u32 | (self.contents as u32) << 8 | RULES << 16).to_le_bytes());
        for value in [self.samples, self.groups, self.total_bytes] {
            bytes.extend(value.to_le_bytes());
        }
        bytes.extend(self.root.to_bytes());
        bytes.extend(self.largest.to_le_bytes());
        bytes.extend(self.classes.to_le_bytes());
        bytes.extend(self.fingerprint);
        for entry in sections {
            bytes.extend(entry.offset.to_le_bytes());
            bytes.extend(entry.length.to_le_bytes());
            bytes.extend(entry.digest);
        }
        let digest: [u8; 32] = Sha256::digest(&bytes).into();
        bytes.extend(digest);
        bytes
    }

    /// Parses a header; `None` if this program does not support the layout, contents or listing rules in it.
    fn decode(bytes: &[u8]) -> Option<Self> {
        let kind = u32_at(bytes, 12);
        let contents = [Contents::Images, Contents::Files];
        if kind >> 16 != RULES {
            return None;
        }
        Some(Self {
            layout: *Layout::ALL.iter().find(|&&layout| layout as u32 == kind & 0xff)?,
            contents: contents.into_iter().find(|&contents| contents as u32 == kind >> 8 & 0xff)?,
            samples: u64_at(bytes, 16),
            groups: u64_at(bytes, 24),
            total_bytes: u64_at(bytes, 32),
            root: stamp_at(bytes, 40),
            largest: u32_at(bytes, 72),
            classes: u32_at(bytes, 76),
            fingerprint: digest_at(bytes, 80),
        })
    }
}

/// Reads the little-endian number at byte `at`. Returns 0 past the end, so that a damaged index cannot cause a panic.
pub(super) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..).and_then(<[u8]>::first_chunk).map_or(0, |bytes| u32::from_le_bytes(*bytes))
}

pub(super) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..).and_then(<[u8]>::first_chunk).map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

pub(super) fn stamp_at(bytes: &[u8], at: usize) -> Stamp {
    let field = |number: usize| u64_at(bytes, at + 8 * number);
    Stamp { size: field(0), mtime: field(1) as i64, ctime: field(2) as i64, inode: field(3) }
}

fn digest_at(bytes: &[u8], at: usize) -> [u8; 32] {
    bytes.get(at..).and_then(<[u8]>::first_chunk).copied().unwrap_or_default()
}

fn clear_member_sections(table: &mut [SectionEntry; Section::COUNT]) -> u64 {
    let offset = table[Section::MemberEnds as usize].offset;
    for section in Section::ALL.into_iter().filter(|section| section.is_of_members()) {
        table[section as usize] = SectionEntry { length: 0, digest: Sha256::digest([]).into(), offset };
    }
    offset
}

/// Which members and columns are loaded from an index file in addition to the samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LoadMembers {
    Nothing,
    /// Members and columns are loaded only for tables, and for packed datasets, because their source can be tables.
    TablesOnly,
    All,
}

pub(super) struct IndexFile {
    pub(super) path: PathBuf,
    bytes: Vec<u8>,
    pub(super) header: IndexHeader,
    table: [SectionEntry; Section::COUNT],
    pub(super) has_members: bool,
    pub(super) size: u64,
}

impl IndexFile {
    /// Reads and verifies the file at `path`, at about 1 GB/s per thread. Sections of members and columns, which can be
    /// as large as all other sections together, are loaded only if `members_to_load` says so.
    ///
    /// # Errors
    /// [`Error::Io`] if the file cannot be read; [`Error::Dataset`] if the file is not an index of this version, or is
    /// damaged.
    pub(super) fn load(path: &Path, members_to_load: LoadMembers) -> Result<Self> {
        let fail = |what| move |error| Error::io(what, path, error);
        let damaged = |what: &str| Error::dataset(path, format!("not a usable index file: {what}"));
        let mut file = File::open(path).map_err(fail("open index"))?;
        let size = file.metadata().map_err(fail("look at index"))?.len();
        let mut head = Vec::new();
        Read::by_ref(&mut file).take(HEADER as u64).read_to_end(&mut head).map_err(fail("read index"))?;
        if head.len() < HEADER || head[..8] != MAGIC {
            return Err(damaged("it does not begin with the signature of one"));
        }
        let version = u32_at(&head, 8);
        if version != VERSION {
            return Err(damaged(&format!("it has format {version}, this program reads {VERSION}")));
        }
        let (facts, digest) = head.split_at(HEADER - 32);
        if *digest != *Sha256::digest(facts) {
            return Err(damaged("its header is damaged"));
        }
        let header = IndexHeader::decode(facts)
            .ok_or_else(|| damaged("it was built by the rules of another version"))?;
        let has_members = match members_to_load {
            LoadMembers::Nothing => false,
            LoadMembers::TablesOnly => header.layout.is_table() || header.layout == Layout::Packed,
            LoadMembers::All => true,
        };
        let mut table = Section::ALL.map(|section| {
            let at = SECTIONS_AT + section as usize * SECTION_ROW;
            let (offset, length) = (u64_at(facts, at), u64_at(facts, at + 8));
            SectionEntry { offset, length, digest: digest_at(facts, at + 16) }
        });
        // The sections must follow one another, so that threads can fill disjoint parts of one buffer.
        let mut end = HEADER as u64;
        for entry in &table {
            let stop = entry.offset.checked_add(entry.length).filter(|_| entry.offset >= end);
            end = stop.ok_or_else(|| damaged("its sections overlap"))?;
        }
        if end > size {
            return Err(damaged("it is truncated"));
        }
        if !has_members {
            end = clear_member_sections(&mut table);
        }
        let mut bytes = vec![0; end as usize];
        bytes[..HEADER].copy_from_slice(&head);
        let mut index = Self { path: path.to_path_buf(), bytes, header, table, has_members, size };
        index.read_sections(&file)?;
        index.check_lengths().ok_or_else(|| damaged("its sections contradict its header"))?;
        index.check_groups().ok_or_else(|| damaged("its table of directories or shards is damaged"))?;
        Ok(index)
    }

    fn read_sections(&mut self, file: &File) -> Result<()> {
        let (path, table) = (&self.path, &self.table);
        let threads = std::thread::available_parallelism().map_or(1, |n| n.get().min(Section::COUNT));
        let threads = threads.min(self.bytes.len() / MIN_BYTES_PER_THREAD);
        let mut parts = Vec::with_capacity(Section::COUNT);
        let (mut rest, mut at) = (&mut self.bytes[..], 0);
        for entry in table {
            let (_, behind) = rest.split_at_mut(entry.offset as usize - at);
            let (part, behind) = behind.split_at_mut(entry.length as usize);
            (rest, at) = (behind, (entry.offset + entry.length) as usize);
            parts.push(Mutex::new(part));
        }
        for_each(threads, Section::COUNT, |i| {
            // The large sections come last in the file. Read them first, so that no thread still reads a large section
            // when all other threads are done.
            let section = Section::ALL[Section::COUNT - 1 - i];
            let entry = table[section as usize];
            let mut part = parts[section as usize].lock().unwrap_or_else(PoisonError::into_inner);
            match file.read_exact_at(&mut part, entry.offset) {
                Ok(()) if entry.digest == *Sha256::digest(&**part) => Ok(()),
                Ok(()) => {
                    Err(Error::dataset(path, format!("this index file is damaged (section {section:?})")))
                }
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                    Err(Error::dataset(path, "not a usable index file: it is truncated"))
                }
                Err(error) => Err(Error::io("read index", path, error)),
            }
        })
    }

    fn check_lengths(&self) -> Option<()> {
        let rows = |section, count: u64, row: u64| {
            (self.section(section).len() as u64 == count.checked_mul(row)?).then_some(())
        };
        let (samples, groups) = (self.header.samples, self.header.groups);
        rows(Section::Labels, samples, 4)?;
        let layout = self.header.layout;
        let in_files = if layout.is_array() { 0 } else { samples };
        rows(Section::Lengths, in_files, 4)?;
        rows(Section::Places, in_files, if layout.is_sharded() { 8 } else { 4 })?;
        let facts: Vec<ArrayFacts> = serde_json::from_slice(self.section(Section::Arrays)).ok()?;
        self.arrays().is_consistent(groups, &facts).then_some(())?;
        rows(
            Section::HeaderSummaries,
            if self.header.layout == Layout::Packed { samples } else { 0 },
            size_of::<RawHeaderSummary>() as u64,
        )?;
        if self.has_members {
            let keys: Vec<String> = serde_json::from_slice(self.section(Section::Keys)).ok()?;
            let with_members = if keys.is_empty() { 0 } else { in_files };
            rows(Section::MemberEnds, with_members, 8)?;
            let ends = self.section(Section::MemberEnds).as_chunks().0;
            let count = ends.last().map_or(0, |end| u64::from_le_bytes(*end));
            rows(Section::Members, count, MEMBER_ROW as u64)?;
            let columns: Vec<ColumnFacts> = serde_json::from_slice(self.section(Section::Columns)).ok()?;
            let bytes =
                columns.iter().try_fold(0u64, |sum, column| sum.checked_add(column.bytes(samples)))?;
            rows(Section::Cells, bytes, 1)?;
        }
        let blocks = self.section(Section::Blocks).len() as u64 / BLOCK_ROW as u64;
        rows(Section::Blocks, blocks, BLOCK_ROW as u64)?;
        rows(Section::Groups, groups, GROUP_ROW as u64)?;
        rows(Section::Stamps, groups, STAMP_ROW as u64)
    }

    /// Checks that all ends ascend and stay in bounds. Binary searches and slices rely on this.
    fn check_groups(&self) -> Option<()> {
        let mut last = [0; 3];
        for row in self.section(Section::Groups).chunks_exact(GROUP_ROW) {
            let ends = [u64_at(row, 0), u64_at(row, 8), u64_at(row, 16)];
            if ends.iter().zip(last).any(|(&end, last)| end < last) {
                return None;
            }
            last = ends;
        }
        let limits = [
            self.header.samples,
            self.section(Section::Paths).len() as u64,
            self.section(Section::Names).len() as u64,
        ];
        (last == limits).then_some(())
    }

    /// Drops the sections of members. Call this after the requested members were selected.
    pub(super) fn drop_members(&mut self) {
        let end = clear_member_sections(&mut self.table);
        self.bytes.truncate(end as usize);
        self.bytes.shrink_to_fit();
        self.has_members = false;
    }

    pub(super) fn section(&self, section: Section) -> &[u8] {
        &self.bytes[self.range(section)]
    }

    pub(super) fn arrays(&self) -> ArrayTable<'_> {
        ArrayTable {
            rows: self.section(Section::ArrayRows),
            dims: self.section(Section::ArrayDims),
            cells: self.section(Section::ChunkCells),
        }
    }

    fn range(&self, section: Section) -> Range<usize> {
        let entry = &self.table[section as usize];
        entry.offset as usize..(entry.offset + entry.length) as usize
    }

    pub(super) fn accept(&mut self, root: Stamp, groups: &[(usize, Stamp)]) {
        self.header.root = root;
        let range = self.range(Section::Stamps);
        let stamps = &mut self.bytes[range];
        for (group, stamp) in groups {
            stamps[STAMP_ROW * group..][..STAMP_ROW].copy_from_slice(&stamp.to_bytes());
        }
        self.table[Section::Stamps as usize].digest = Sha256::digest(stamps).into();
        self.encode_header();
    }

    pub(super) fn set_notes(&mut self, notes: &Notes) {
        let Ok(mut json) = serde_json::to_vec(notes) else { return };
        let (notes, next) = (Section::Notes as usize, Section::Notes as usize + 1);
        let (start, end) = (self.table[notes].offset as usize, self.table[next].offset as usize);
        let (length, digest) = (json.len() as u64, Sha256::digest(&json).into());
        json.resize((start + json.len()).next_multiple_of(8) - start, 0);
        let padded = json.len() as u64;
        self.bytes.splice(start..end, json);
        for entry in &mut self.table[next..] {
            entry.offset = entry.offset - end as u64 + start as u64 + padded;
        }
        self.table[notes] = SectionEntry { offset: start as u64, length, digest };
        self.size = self.bytes.len() as u64;
        self.encode_header();
    }

    fn encode_header(&mut self) {
        let head = self.header.encode(&self.table);
        self.bytes[..HEADER].copy_from_slice(&head);
    }

    pub(super) fn bytes(&self) -> &[u8] {
        debug_assert!(self.has_members, "a file is written whole");
        &self.bytes
    }
}
