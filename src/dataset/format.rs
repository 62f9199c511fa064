//! The index file: a header, ten sections, each with a digest. Little-endian, memory-mapped, never trusted.
//!
//! Header and small sections are verified at every load; the columns (one row a sample) only by [`Map::verify`],
//! because hashing them would make the start as slow as the dataset is large. A damaged column can therefore give a
//! wrong answer, never one out of bounds.

use super::{Contents, Layout, Stamp};
use crate::error::{Error, Result};
use memmap2::Mmap;
use sha2::{Digest, Sha256};
use std::fs::File;
use std::ops::Range;
use std::path::{Path, PathBuf};

pub(super) const MAGIC: [u8; 8] = *b"FORELOAD";
/// Version of the file format; another one is built anew.
pub(super) const VERSION: u32 = 2;
/// Bytes of the header, its digest included.
pub(super) const HEADER: usize = SECTIONS_AT + Section::COUNT * SECTION_ROW + 32;
const SECTIONS_AT: usize = 112;
const SECTION_ROW: usize = 48;
/// Bytes of a row of [`Section::Groups`]: ends (exclusive) of its samples, of its path and of its names (u64 each),
/// lengths of the prefix and of the suffix that all its names share (u32 each), which stand behind its path.
pub(super) const GROUP_ROW: usize = 32;
/// Bytes of a row of [`Section::Stamps`]: a [`Stamp`].
pub(super) const STAMP_ROW: usize = Stamp::BYTES;

/// Parts of the file, in the order they stand in it. A *group* is what holds samples: a directory or a shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Section {
    /// The dataset's canonical path.
    Root,
    /// Class names: length (u32) and bytes of each.
    Classes,
    /// What else was noticed, as JSON.
    Notes,
    /// Rows of [`GROUP_ROW`] bytes, one a group.
    Groups,
    /// Paths of the groups below the root, each with the prefix and the suffix of its names, one after the other.
    Paths,
    /// Rows of [`STAMP_ROW`] bytes, one a group.
    Stamps,
    /// Class number of each sample (u32).
    Labels,
    /// Bytes of each sample (u32).
    Lengths,
    /// Shards: offset of each sample (u64). Directories: end of its name among its directory's names (u32).
    Places,
    /// File names of loose samples without the prefix and suffix of their directory, one after the other. Names in a
    /// directory are mostly alike ("n01440764_10026.JPEG"): this leaves a quarter of them.
    Names,
}

impl Section {
    pub(super) const COUNT: usize = 10;
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
    ];

    /// Whether it has one row a sample, and so is too large to verify at every load.
    fn is_column(self) -> bool {
        matches!(self, Self::Labels | Self::Lengths | Self::Places | Self::Names)
    }

    /// Whether it is the same wherever and whenever the same data is indexed.
    pub(super) fn is_content(self) -> bool {
        !matches!(self, Self::Root | Self::Notes | Self::Stamps)
    }
}

/// What the header says, the section table aside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Header {
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

/// Where a section is and what it hashes to.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Entry {
    pub(super) offset: u64,
    pub(super) length: u64,
    pub(super) digest: [u8; 32],
}

impl Header {
    /// That of an index without samples.
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

    pub(super) fn encode(&self, sections: &[Entry; Section::COUNT]) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEADER);
        bytes.extend(MAGIC);
        bytes.extend(VERSION.to_le_bytes());
        bytes.extend((self.layout as u32 | (self.contents as u32) << 8).to_le_bytes());
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

    /// `None` for a layout or contents that this program does not know.
    fn decode(bytes: &[u8]) -> Option<Self> {
        let kind = u32_at(bytes, 12);
        let layouts = [Layout::Folder, Layout::Tar, Layout::TfRecord];
        let contents = [Contents::Images, Contents::Files];
        Some(Self {
            layout: layouts.into_iter().find(|&layout| layout as u32 == kind & 0xff)?,
            contents: contents.into_iter().find(|&contents| contents as u32 == kind >> 8)?,
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

/// The little-endian number at byte `at`; 0 past the end, so that a damaged index cannot cause a panic.
pub(super) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..).and_then(<[u8]>::first_chunk).map_or(0, |bytes| u32::from_le_bytes(*bytes))
}

/// As [`u32_at`], of 64 bits.
pub(super) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..).and_then(<[u8]>::first_chunk).map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

/// As [`u32_at`], a [`Stamp`].
pub(super) fn stamp_at(bytes: &[u8], at: usize) -> Stamp {
    let field = |number: usize| u64_at(bytes, at + 8 * number);
    Stamp { size: field(0), mtime: field(1) as i64, ctime: field(2) as i64, inode: field(3) }
}

fn digest_at(bytes: &[u8], at: usize) -> [u8; 32] {
    bytes.get(at..).and_then(<[u8]>::first_chunk).copied().unwrap_or_default()
}

/// An index file in memory, its header and small sections verified.
pub(super) struct Map {
    path: PathBuf,
    bytes: Mmap,
    header: Header,
    sections: [Range<usize>; Section::COUNT],
    digests: [[u8; 32]; Section::COUNT],
}

impl Map {
    /// Maps and checks the file at `path`.
    ///
    /// # Errors
    /// [`Error::Io`] when it cannot be opened; [`Error::Dataset`] when it is not an index of this version, or damaged.
    pub(super) fn load(path: &Path) -> Result<Self> {
        let damaged = |what: &str| Error::dataset(path, format!("not a usable index file: {what}"));
        let file = File::open(path).map_err(|error| Error::io("open index", path, error))?;
        // SAFETY: index files are written under another name and renamed into place when complete; nothing writes to
        // or shortens one afterwards (a rebuild renames a new file over it, and this mapping keeps the old one), so
        // the bytes under the returned slice do not change. It is read as plain bytes, any value of which is valid.
        let bytes = unsafe { Mmap::map(&file) }.map_err(|error| Error::io("map index", path, error))?;
        if bytes.len() < HEADER || bytes[..8] != MAGIC {
            return Err(damaged("it does not begin as one"));
        }
        let version = u32_at(&bytes, 8);
        if version != VERSION {
            return Err(damaged(&format!("it has format {version}, this program reads {VERSION}")));
        }
        let (head, digest) = bytes[..HEADER].split_at(HEADER - 32);
        if *digest != *Sha256::digest(head) {
            return Err(damaged("its header is damaged"));
        }
        let header = Header::decode(head).ok_or_else(|| damaged("its layout is unknown"))?;
        let mut sections: [Range<usize>; Section::COUNT] = Default::default();
        let mut digests = [[0; 32]; Section::COUNT];
        for section in Section::ALL {
            let i = section as usize;
            let at = SECTIONS_AT + i * SECTION_ROW;
            let (offset, length) = (u64_at(head, at), u64_at(head, at + 8));
            let end = offset.checked_add(length).filter(|&end| end <= bytes.len() as u64);
            let Some(end) = end else { return Err(damaged("it is truncated")) };
            sections[i] = offset as usize..end as usize;
            digests[i] = digest_at(head, at + 16);
        }
        let map = Self { path: path.to_path_buf(), bytes, header, sections, digests };
        map.check_lengths().ok_or_else(|| damaged("its sections contradict its header"))?;
        map.verify_sections(|section| !section.is_column())?;
        map.check_groups().ok_or_else(|| damaged("its table of directories or shards is damaged"))?;
        Ok(map)
    }

    fn check_lengths(&self) -> Option<()> {
        let rows = |section, count: u64, row: u64| {
            (self.section(section).len() as u64 == count.checked_mul(row)?).then_some(())
        };
        let (samples, groups) = (self.header.samples, self.header.groups);
        rows(Section::Labels, samples, 4)?;
        rows(Section::Lengths, samples, 4)?;
        rows(Section::Places, samples, if self.header.layout.is_sharded() { 8 } else { 4 })?;
        rows(Section::Groups, groups, GROUP_ROW as u64)?;
        rows(Section::Stamps, groups, STAMP_ROW as u64)
    }

    /// Ends must ascend and stay inside: the binary search and the slices rest on it.
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

    /// Compares every section with its digest: reads the whole file.
    ///
    /// # Errors
    /// [`Error::Dataset`] naming the first section that differs.
    pub(super) fn verify(&self) -> Result<()> {
        self.verify_sections(|_| true)
    }

    fn verify_sections(&self, which: impl Fn(Section) -> bool) -> Result<()> {
        for section in Section::ALL.into_iter().filter(|&section| which(section)) {
            if self.digests[section as usize] != *Sha256::digest(self.section(section)) {
                let message = format!(
                    "this index file is damaged (section {section:?}): run `foreload index --rebuild` on the dataset"
                );
                return Err(Error::dataset(&self.path, message));
            }
        }
        Ok(())
    }

    pub(super) fn header(&self) -> &Header {
        &self.header
    }

    /// SHA-256 of a section; compared with its bytes when the index was loaded, unless it is a column.
    pub(super) fn digest(&self, section: Section) -> [u8; 32] {
        self.digests[section as usize]
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn len(&self) -> u64 {
        self.bytes.len() as u64
    }

    pub(super) fn section(&self, section: Section) -> &[u8] {
        &self.bytes[self.sections[section as usize].clone()]
    }
}
