//! Writer of the sections of an index file. Most sections are copied from the spill file, which holds the rows of the
//! groups.

use super::arrays::{CELL_ROW, SpilledArray};
use super::build::IndexFacts;
use super::cancel::Cancel;
use super::cells::{CellType, ColumnFacts};
use super::format::{HEADER, IndexHeader, Section, SectionEntry};
use super::member::{MEMBER_ROW, MemberRow};
use super::spill::{CLASS_OF_FILES, SpilledGroup};
use super::{Contents, Layout};
use sha2::{Digest, Sha256};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::ops::Range;
use std::os::unix::fs::FileExt;

const ROWS: u64 = 4096;

pub(super) struct SectionWriter<'a> {
    pub(super) file: BufWriter<&'a File>,
    at: u64,
    open: Option<(u64, Sha256)>,
    cancel: &'a Cancel,
}

impl<'a> SectionWriter<'a> {
    pub(super) fn new(file: &'a File, cancel: &'a Cancel) -> Self {
        Self { file: BufWriter::with_capacity(1 << 18, file), at: HEADER as u64, open: None, cancel }
    }

    pub(super) fn begin(&mut self) -> std::io::Result<()> {
        let padding = self.at.next_multiple_of(8) - self.at;
        self.file.write_all(&[0; 8][..padding as usize])?;
        self.at += padding;
        self.open = Some((self.at, Sha256::new()));
        Ok(())
    }

    pub(super) fn put(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.cancel.check_io()?;
        if let Some((_, hash)) = &mut self.open {
            hash.update(bytes);
        }
        self.at += bytes.len() as u64;
        self.file.write_all(bytes)
    }

    pub(super) fn copy(&mut self, from: &File, part: Range<u64>) -> std::io::Result<()> {
        let mut buffer = [0; 1 << 16];
        let Range { start: mut at, end } = part;
        while at < end {
            let part = &mut buffer[..(end - at).min(1 << 16) as usize];
            from.read_exact_at(part, at)?;
            at += part.len() as u64;
            self.put(part)?;
        }
        Ok(())
    }

    /// Copies the cells of an array, with the numbers that its files have in the whole index.
    pub(super) fn copy_cells(&mut self, from: &File, array: &SpilledArray) -> std::io::Result<()> {
        if array.base == 0 {
            return self.copy(from, array.cells.clone());
        }
        Self::each_row(from, array.cells.clone(), |row: &[u8; CELL_ROW]| self.put(&array.moved(row)))
    }

    fn each_row<const N: usize>(
        from: &File,
        part: Range<u64>,
        mut show: impl FnMut(&[u8; N]) -> std::io::Result<()>,
    ) -> std::io::Result<()> {
        let Range { start: mut at, end } = part;
        let mut buffer = vec![0; (ROWS * N as u64).min(end - at) as usize];
        while at < end {
            let part = &mut buffer[..(ROWS * N as u64).min(end - at) as usize];
            from.read_exact_at(part, at)?;
            at += part.len() as u64;
            part.as_chunks().0.iter().try_for_each(&mut show)?;
        }
        Ok(())
    }

    pub(super) fn copy_labels(
        &mut self,
        from: &File,
        group: &SpilledGroup,
        whole: &IndexFacts,
    ) -> std::io::Result<()> {
        let Some(classes) = &whole.labels else { return self.copy(from, group.labels()) };
        Self::each_row(from, group.labels(), |label: &[u8; 4]| {
            let class = classes.get(u32::from_le_bytes(*label) as usize).copied().unwrap_or(0);
            self.put(&class.to_le_bytes())
        })
    }

    /// Writes for each sample of a shard the total number of members up to and including this sample. `end` is the
    /// total before the shard, and then after it.
    pub(super) fn put_ends(
        &mut self,
        from: &File,
        group: &SpilledGroup,
        end: &mut u64,
    ) -> std::io::Result<()> {
        if group.keys.is_empty() {
            return (0..group.samples).try_for_each(|_| self.put(&end.to_le_bytes()));
        }
        Self::each_row(from, group.counts(), |count: &[u8; 4]| {
            *end += u64::from(u32::from_le_bytes(*count));
            self.put(&end.to_le_bytes())
        })
    }

    /// Copies the members of a shard's samples. Replaces the shard's own key numbers by indices into `keys`.
    pub(super) fn copy_members(
        &mut self,
        from: &File,
        group: &SpilledGroup,
        keys: &[&String],
    ) -> std::io::Result<()> {
        let whole: Vec<u32> =
            group.keys.iter().map(|key| keys.partition_point(|known| *known < key) as u32).collect();
        Self::each_row(from, group.members(), |row: &[u8; MEMBER_ROW]| {
            let row = MemberRow::from_bytes(row);
            self.put(&MemberRow { key: whole[row.key as usize], ..row }.to_bytes())
        })
    }

    /// Copies the values of a column from the shards that have the column. Writes missing values for the samples of
    /// other groups.
    pub(super) fn copy_column(
        &mut self,
        from: &File,
        groups: &[SpilledGroup],
        column: &ColumnFacts,
    ) -> std::io::Result<()> {
        if matches!(column.cells, CellType::Refused(_)) {
            return Ok(());
        }
        let has_ends = column.cells.has_ends();
        // Skip shards in which the column has no type, and so no values.
        let with_own = || {
            groups.iter().map(|group| {
                let own = group.column(&column.name);
                (group, own.filter(|own| !own.facts.cells.is_nothing()))
            })
        };
        for (group, own) in with_own() {
            match own {
                Some(own) => self.copy(from, own.present(group.samples))?,
                None => self.zeros(group.samples)?,
            }
        }
        let mut end = 0;
        for (group, own) in with_own() {
            match own {
                Some(own) if has_ends => {
                    Self::each_row(from, own.values(group.samples), |length: &[u8; 4]| {
                        end += u64::from(u32::from_le_bytes(*length));
                        self.put(&u64::to_le_bytes(end))
                    })?;
                }
                Some(own) => self.copy(from, own.values(group.samples))?,
                None if has_ends => (0..group.samples).try_for_each(|_| self.put(&u64::to_le_bytes(end)))?,
                None => self.zeros(column.cells.width() * group.samples)?,
            }
        }
        for (group, own) in with_own().filter(|_| has_ends) {
            own.map_or(Ok(()), |own| self.copy(from, own.texts(group.samples)))?;
        }
        Ok(())
    }

    fn zeros(&mut self, count: u64) -> std::io::Result<()> {
        let zeros = [0; 1 << 12];
        let mut left = count;
        while left > 0 {
            let now = left.min(zeros.len() as u64);
            self.put(&zeros[..now as usize])?;
            left -= now;
        }
        Ok(())
    }

    pub(super) fn end(&mut self) -> SectionEntry {
        let (offset, hash) = self.open.take().unwrap_or_default();
        SectionEntry { offset, length: self.at - offset, digest: hash.finalize().into() }
    }
}

/// Digest of the layout and the content sections. The content sections hold relative paths, extents and labels, but no
/// times or absolute paths. The files that belong to shards of arrays are left out: they depend on which arrays were
/// chosen, and on whether a server lists directories.
pub(super) fn fingerprint(
    header: &IndexHeader,
    table: &[SectionEntry; Section::COUNT],
    groups: &[SpilledGroup],
) -> [u8; 32] {
    // The identity of parallel directories is that of the images. It covers no files of other fields, so it also leaves
    // out their directories.
    let is_array = header.layout.is_array() || header.layout == Layout::Parallel;
    let is_hashed = |section: &Section| {
        section.is_content() && !(is_array && matches!(section, Section::Groups | Section::Paths))
    };
    let mut hash = Sha256::new();
    hash.update(match header.contents {
        Contents::Images => &b"foreload dataset 1"[..],
        Contents::Files => b"foreload files 1",
    });
    hash.update([header.layout as u8]);
    for section in Section::ALL.into_iter().filter(is_hashed) {
        hash.update(table[section as usize].digest);
    }
    for shard in groups.iter().filter(|group| is_array && group.class != CLASS_OF_FILES) {
        hash.update((shard.path.len() as u64).to_le_bytes());
        hash.update(&shard.path);
        hash.update(shard.samples.to_le_bytes());
        if header.layout == Layout::Parallel {
            shard.affixes.iter().for_each(|length| hash.update((*length as u64).to_le_bytes()));
        }
    }
    hash.finalize().into()
}
