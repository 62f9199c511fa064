//! Builder of index files, from directories and shards that arrive in any order. The memory of the builder does not
//! grow with the number of samples: rows are written to a spill file at once, and copied into the sections of the index
//! at the end.

use super::arrays::{ArrayFile, FactsTable, ShardArray};
use super::blocks::CompressedBlock;
use super::cancel::Cancel;
use super::cells::{CellType, ColumnFacts, spilled as spilled_cells};
use super::format::{GroupEnd, HEADER, IndexHeader, Section, SectionEntry};
use super::member::MemberRow;
use super::section_writer::{SectionWriter, fingerprint};
use super::spill::{CLASS_OF_FILES, SpilledColumn, SpilledGroup, affixes, number_array_files};
use super::table::TableColumn;
use super::{Contents, FieldKind, Fingerprint, Layout, Stamp, publish};
use base::error::{Error, Result};
use base::parts::RawHeaderSummary;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// A file of a directory that has a file per sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileRow {
    /// The offset of the file's name in the group's buffer of names.
    pub name: u32,
    /// The number of bytes of the name.
    pub name_length: u32,
    /// The number of bytes of the file.
    pub length: u32,
}

impl FileRow {
    pub(super) fn name_in<'n>(&self, names: &'n [u8]) -> &'n [u8] {
        let start = self.name as usize;
        names.get(start..start + self.name_length as usize).unwrap_or_default()
    }
}

/// A sample in a shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SampleRow {
    /// The offset of the image in the shard.
    pub offset: u64,
    /// The number of bytes of the image.
    pub length: u32,
    /// The class number.
    pub label: u32,
}

/// The samples of a shard and their members.
#[derive(Debug, Default)]
pub struct ShardRows {
    /// The samples, sorted by the offsets of their images except in tables. Unlabelled samples have label 0. The row of
    /// a sample without an image has the offset and the length of the sample's first member instead.
    pub samples: Vec<SampleRow>,
    /// The keys of all members, sorted.
    pub keys: Vec<String>,
    /// The kinds of the members, by key; empty if the keys determine the kinds.
    pub kinds: Vec<FieldKind>,
    /// The columns of small values that samples of tables have, sorted by name.
    pub columns: Vec<TableColumn>,
    /// The members of all samples, sample after sample. The members of each sample are sorted by key. There can be as
    /// many keys as members: some datasets put a running number after the first dot of a name.
    pub members: Vec<MemberRow>,
    /// The number of members of each sample; empty if there are no keys.
    pub counts: Vec<u32>,
    /// The header summary of each sample's packed image in packed shards; empty in other shards.
    pub header_summaries: Vec<RawHeaderSummary>,
    /// The compressed blocks that hold samples and members, sorted by address.
    pub blocks: Vec<CompressedBlock>,
    /// In layouts of arrays, the arrays of the shard, sorted by name. Then `samples` only gives labels, and is empty if
    /// there are none.
    pub arrays: Vec<ShardArray>,
    /// The number of samples in a layout of arrays.
    pub array_samples: u64,
    /// The files and directories on whose stamps the arrays depend in addition to the shard, sorted by path. In the
    /// index they are groups without samples, after all shards.
    pub files: Vec<ArrayFile>,
}

impl ShardRows {
    pub(super) fn by_sample(&self) -> impl Iterator<Item = &[MemberRow]> {
        let mut rest = &self.members[..];
        self.counts.iter().map(move |&count| {
            let (own, others) = rest.split_at(count as usize);
            rest = others;
            own
        })
    }
}

/// The samples of a directory or shard, in the order of the index.
#[derive(Debug)]
pub enum GroupRows {
    /// Loose files of one class.
    Files {
        /// The class number of all files.
        class: u32,
        /// The bytes of all file names. The names can be in any order, with gaps between them.
        names: Vec<u8>,
        /// The files, sorted by name.
        files: Vec<FileRow>,
    },
    /// Samples of a shard.
    Shard(ShardRows),
    /// A file or directory that belongs to the arrays of a shard.
    ArrayFile,
    /// Files that a manifest lists.
    Listed(ListedRows),
}

/// The files that a manifest lists, in its order.
#[derive(Debug, Default)]
pub struct ListedRows {
    /// The bytes of all file names. The names can be in any order, with gaps between them.
    pub names: Vec<u8>,
    /// The files. A file can occur several times.
    pub files: Vec<FileRow>,
    /// The labels of the samples, and the other columns of the manifest.
    pub table: ShardRows,
}

impl ListedRows {
    pub(super) fn files(&self) -> impl Iterator<Item = (&[u8], u32)> {
        self.files.iter().map(|file| (file.name_in(&self.names), file.length))
    }
}

/// A directory with its files, or a shard with its samples.
#[derive(Debug)]
pub struct IndexGroup {
    /// The path below the dataset's root; empty if the root itself is the shard.
    pub path: Vec<u8>,
    /// The stamp of the directory or shard, taken before its contents were read.
    pub stamp: Stamp,
    /// The samples of the group.
    pub rows: GroupRows,
}

/// Facts about the whole dataset that are known after all groups were read.
#[derive(Debug, Default)]
pub struct IndexFacts {
    /// The dataset's canonical path.
    pub root: PathBuf,
    /// The stamp of the root.
    pub root_stamp: Stamp,
    /// The class names by class number; empty if classes have no names.
    pub classes: Vec<Vec<u8>>,
    /// Maps each label in shards to its class number. Labels beyond the end of the list have class 0. `None` if labels
    /// are class numbers.
    pub labels: Option<Vec<u32>>,
    /// What was skipped, and what is wrong with the dataset.
    pub notes: super::Notes,
    /// The fingerprint of the source of a packed dataset; `None` for other datasets.
    pub fingerprint: Option<Fingerprint>,
}

/// Builder of an index. It takes groups in any order and sorts them as torchvision does: by class, then by path.
pub struct IndexBuilder {
    target: PathBuf,
    spill: BufWriter<File>,
    spilled: u64,
    groups: Vec<SpilledGroup>,
    arrays: FactsTable,
    header: IndexHeader,
    pub(super) cancel: Cancel,
    /// Whether the inodes of directories and shards are stored. Inodes are not stable on every file system.
    pub(super) inodes: bool,
}

impl IndexBuilder {
    /// Starts an index file at `target`, whose directory must exist.
    ///
    /// # Errors
    /// [`Error::Io`] if nothing can be written next to `target`.
    pub fn new(target: &Path, layout: Layout, contents: Contents) -> Result<Self> {
        let (spill, path) = publish::create(target, "spill")?;
        // Unlink the spill file now, so that it disappears when the process ends, even after a crash.
        std::fs::remove_file(&path).map_err(|error| Error::io("unlink", &path, error))?;
        Ok(Self {
            target: target.to_path_buf(),
            spill: BufWriter::with_capacity(1 << 18, spill),
            spilled: 0,
            groups: Vec::new(),
            arrays: FactsTable::default(),
            header: IndexHeader::new(layout, contents),
            cancel: Cancel::default(),
            inodes: true,
        })
    }

    fn known(&self, found: Stamp) -> Stamp {
        if self.inodes { found } else { found.without_inode() }
    }

    /// The number of samples that were added so far.
    pub fn samples(&self) -> u64 {
        self.header.samples
    }

    /// Adds a directory or shard, which can be without samples.
    ///
    /// # Errors
    /// [`Error::Io`] if the spill file cannot be written; [`Error::Dataset`] for more than 2^32 - 1 loose files.
    pub fn add(&mut self, group: &IndexGroup) -> Result<()> {
        let (class, samples) = match &group.rows {
            GroupRows::Files { class, files, .. } => (*class, files.len() as u64),
            GroupRows::Shard(rows) if self.header.layout.is_array() => (0, rows.array_samples),
            GroupRows::Shard(rows) => (0, rows.samples.len() as u64),
            GroupRows::ArrayFile => (CLASS_OF_FILES, 0),
            GroupRows::Listed(rows) => (0, rows.files.len() as u64),
        };
        let mut spilled = SpilledGroup {
            class,
            path: group.path.clone(),
            stamp: self.known(group.stamp),
            at: self.spilled,
            samples,
            ..SpilledGroup::default()
        };
        if let GroupRows::Shard(rows) = &group.rows {
            (spilled.keys, spilled.members) = (rows.keys.clone(), rows.members.len() as u64);
            spilled.header_summaries = rows.header_summaries.len() as u64;
            spilled.kinds.clone_from(&rows.kinds);
            spilled.blocks.clone_from(&rows.blocks);
        }
        let written = match &group.rows {
            GroupRows::Files { names, files, .. } => self.spill_files(&mut spilled, names, files),
            GroupRows::Listed(rows) => self.spill_listed(&mut spilled, rows),
            GroupRows::ArrayFile => Ok(()),
            GroupRows::Shard(rows) if self.header.layout.is_array() => self.spill_arrays(&mut spilled, rows),
            GroupRows::Shard(rows) => {
                self.spill_shard(rows).and_then(|()| self.spill_columns(&mut spilled, rows))
            }
        };
        written.map_err(|error| Error::io("write", &self.target, error))?;
        self.header.samples += samples;
        self.groups.push(spilled);
        if !self.header.layout.is_sharded() && self.header.samples > u64::from(u32::MAX) {
            let message = "more than 4 294 967 295 loose files: pack them into shards";
            return Err(Error::dataset(&self.target, message));
        }
        Ok(())
    }

    fn spill_files(
        &mut self,
        group: &mut SpilledGroup,
        names: &[u8],
        files: &[FileRow],
    ) -> std::io::Result<()> {
        let name = |file: &FileRow| file.name_in(names);
        let (prefix, suffix) = affixes(files.iter().map(name));
        let middle = |file| &name(file)[prefix.len()..name(file).len() - suffix.len()];
        group.path.extend(prefix);
        group.path.extend(suffix);
        group.affixes = [prefix.len(), suffix.len()];
        for file in files {
            self.count(file.length, group.class);
            self.put(&file.length.to_le_bytes())?;
        }
        for file in files {
            group.names += middle(file).len() as u64;
            // `names` has at most 2^32 bytes, because its offsets have 32 bits. So this can only fail if several files
            // share bytes of `names`.
            let end = u32::try_from(group.names).map_err(std::io::Error::other)?;
            self.put(&end.to_le_bytes())?;
        }
        files.iter().try_for_each(|file| self.put(middle(file)))
    }

    fn spill_listed(&mut self, group: &mut SpilledGroup, rows: &ListedRows) -> std::io::Result<()> {
        self.spill_files(group, &rows.names, &rows.files)?;
        for sample in &rows.table.samples {
            self.count_class(sample.label);
            self.put(&sample.label.to_le_bytes())?;
        }
        self.spill_columns(group, &rows.table)
    }

    fn spill_shard(&mut self, rows: &ShardRows) -> std::io::Result<()> {
        let ShardRows { samples, members, counts, header_summaries, .. } = rows;
        for sample in samples {
            self.count(sample.length, sample.label);
            self.put(&sample.length.to_le_bytes())?;
        }
        samples.iter().try_for_each(|sample| self.put(&sample.label.to_le_bytes()))?;
        samples.iter().try_for_each(|sample| self.put(&sample.offset.to_le_bytes()))?;
        self.put(header_summaries.as_flattened())?;
        counts.iter().try_for_each(|count| self.put(&count.to_le_bytes()))?;
        members.iter().try_for_each(|member| self.put(&member.to_bytes()))
    }

    fn spill_arrays(&mut self, group: &mut SpilledGroup, rows: &ShardRows) -> std::io::Result<()> {
        group.is_of_arrays = true;
        let labels = rows.samples.iter().map(|sample| sample.label).chain(std::iter::repeat(0));
        for label in labels.take(group.samples as usize) {
            self.count_class(label);
            self.put(&label.to_le_bytes())?;
        }
        for array in &rows.arrays {
            group.keys.push(array.facts.name.clone());
            group.kinds.push(FieldKind::Array);
            self.header.total_bytes = self.header.total_bytes.saturating_add(array.stored_bytes());
            let (spilled, cells) = self.arrays.add(array, self.spilled);
            group.arrays.push(spilled);
            self.put(&cells)?;
        }
        self.spill_columns(group, rows)
    }

    fn spill_columns(&mut self, group: &mut SpilledGroup, rows: &ShardRows) -> std::io::Result<()> {
        for column in &rows.columns {
            let Some(facts) = ColumnFacts::of(column) else { continue };
            group.columns.push(SpilledColumn { facts, at: self.spilled });
            self.put(&spilled_cells(&column.cells))?;
        }
        Ok(())
    }

    fn count(&mut self, length: u32, label: u32) {
        self.header.total_bytes += u64::from(length);
        self.header.largest = self.header.largest.max(length);
        self.count_class(label);
    }

    fn count_class(&mut self, label: u32) {
        self.header.classes = self.header.classes.max(label.saturating_add(1));
    }

    fn put(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.cancel.check_io()?;
        self.spilled += bytes.len() as u64;
        self.spill.write_all(bytes)
    }

    /// Writes the index and publishes it atomically.
    ///
    /// # Errors
    /// [`Error::Io`] if the index cannot be written.
    pub fn finish(mut self, whole: &IndexFacts) -> Result<()> {
        let target = self.target.clone();
        publish::publish(&target, |file| self.write(file, whole))
    }

    fn write(&mut self, mut file: &File, whole: &IndexFacts) -> std::io::Result<()> {
        self.spill.flush()?;
        self.groups.sort_unstable_by(|a, b| (a.class, a.own_path()).cmp(&(b.class, b.own_path())));
        number_array_files(&mut self.groups, &whole.notes);
        file.write_all(&[0; HEADER])?;
        let mut out = SectionWriter::new(file, &self.cancel);
        let spill = self.spill.get_ref();
        let groups = &self.groups;
        let keys: BTreeSet<&String> = groups.iter().flat_map(|group| &group.keys).collect();
        let keys: Vec<&String> = keys.into_iter().collect();
        let layout = self.header.layout;
        // An array with one number for each sample is also a column.
        let bytes = if layout.is_array() { &[] } else { &keys[..] };
        let (kinds, columns) = (kinds(groups, &keys), columns(groups, bytes));
        let sharded = layout.is_sharded();
        let arrays = || groups.iter().flat_map(|group| &group.arrays);
        let mut table = [SectionEntry::default(); Section::COUNT];
        let copy_each = |out: &mut SectionWriter<'_>, part: fn(&SpilledGroup) -> Range<u64>| {
            groups.iter().try_for_each(|group| out.copy(spill, part(group)))
        };
        for section in Section::ALL {
            out.begin()?;
            match section {
                Section::Root => out.put(whole.root.as_os_str().as_encoded_bytes())?,
                Section::Classes => {
                    for name in &whole.classes {
                        out.put(&(name.len() as u32).to_le_bytes())?;
                        out.put(name)?;
                    }
                }
                Section::Notes => out.put(&serde_json::to_vec(&whole.notes)?)?,
                Section::Groups => {
                    let mut ends = [0u64; 3];
                    for group in groups {
                        ends[GroupEnd::Samples as usize] += group.samples;
                        ends[GroupEnd::Paths as usize] += group.path.len() as u64;
                        ends[GroupEnd::Names as usize] += group.names;
                        ends.iter().try_for_each(|end| out.put(&end.to_le_bytes()))?;
                        for length in group.affixes {
                            out.put(&(length as u32).to_le_bytes())?;
                        }
                    }
                }
                Section::Paths => groups.iter().try_for_each(|group| out.put(&group.path))?,
                Section::Stamps => groups.iter().try_for_each(|group| out.put(&group.stamp.to_bytes()))?,
                Section::Labels if layout == Layout::Manifest => {
                    copy_each(&mut out, SpilledGroup::listed_labels)?;
                }
                Section::Labels if sharded => {
                    groups.iter().try_for_each(|group| out.copy_labels(spill, group, whole))?;
                }
                Section::Labels => {
                    for group in groups {
                        out.put(&group.class.to_le_bytes().repeat(group.samples as usize))?;
                    }
                }
                Section::Lengths => copy_each(&mut out, SpilledGroup::lengths)?,
                Section::Places if sharded => copy_each(&mut out, SpilledGroup::offsets)?,
                Section::Places => copy_each(&mut out, SpilledGroup::name_ends)?,
                Section::Names => copy_each(&mut out, SpilledGroup::names)?,
                Section::HeaderSummaries => copy_each(&mut out, SpilledGroup::header_summaries)?,
                Section::Blocks => {
                    for (number, group) in (0..).zip(groups) {
                        group.blocks.iter().try_for_each(|block| out.put(&block.to_bytes(number)))?;
                    }
                }
                Section::Keys => out.put(&serde_json::to_vec(&keys)?)?,
                Section::Kinds => out.put(&serde_json::to_vec(&kinds)?)?,
                Section::Columns => out.put(&serde_json::to_vec(&columns)?)?,
                Section::Arrays => out.put(self.arrays.json().as_bytes())?,
                Section::ArrayDims => arrays().try_for_each(|array| out.put(&array.dim_bytes()))?,
                Section::ArrayRows => {
                    let groups = groups.iter().map(|group| &group.arrays[..]);
                    out.put(self.arrays.rows(groups).as_flattened())?;
                }
                Section::ChunkCells => arrays().try_for_each(|array| out.copy_cells(spill, array))?,
                Section::MemberEnds => {
                    let mut end = 0;
                    for group in groups.iter().filter(|_| !keys.is_empty() && !layout.is_array()) {
                        out.put_ends(spill, group, &mut end)?;
                    }
                }
                Section::Members => {
                    groups.iter().try_for_each(|group| out.copy_members(spill, group, &keys))?;
                }
                Section::Cells => {
                    columns.iter().try_for_each(|column| out.copy_column(spill, groups, column))?;
                }
            }
            table[section as usize] = out.end();
        }
        out.file.flush()?;
        drop(out);
        self.header.groups = groups.len() as u64;
        self.header.classes = self.header.classes.max(whole.classes.len() as u32);
        self.header.root = self.known(whole.root_stamp);
        let own = || fingerprint(&self.header, &table, &self.groups);
        self.header.fingerprint = whole.fingerprint.map_or_else(own, |Fingerprint(of_source)| of_source);
        file.write_all_at(&self.header.encode(&table), 0)
    }
}

/// The kind of each key, if shards state kinds. If the kind of a key differs between shards, it becomes `Bytes`.
fn kinds(groups: &[SpilledGroup], keys: &[&String]) -> Vec<FieldKind> {
    if groups.iter().all(|group| group.kinds.is_empty()) {
        return Vec::new();
    }
    let mut kinds: Vec<Option<FieldKind>> = vec![None; keys.len()];
    for (key, kind) in groups.iter().flat_map(|group| group.keys.iter().zip(&group.kinds)) {
        let known = &mut kinds[keys.partition_point(|known| *known < key)];
        *known = Some(known.map_or(*kind, |known| if known == *kind { known } else { FieldKind::Bytes }));
    }
    kinds.into_iter().map(|kind| kind.unwrap_or(FieldKind::Bytes)).collect()
}

fn columns(groups: &[SpilledGroup], keys: &[&String]) -> Vec<ColumnFacts> {
    let mut columns: BTreeMap<&str, ColumnFacts> = BTreeMap::new();
    for column in groups.iter().flat_map(|group| &group.columns) {
        let name = column.facts.name.as_str();
        match columns.get_mut(name) {
            Some(known) => known.merge(&column.facts),
            None => drop(columns.insert(name, column.facts.clone())),
        }
    }
    columns.retain(|name, column| {
        let is_key = keys.binary_search_by(|key| key.as_str().cmp(name)).is_ok();
        !(is_key && column.cells.is_nothing())
    });
    for column in columns.values_mut() {
        if keys.binary_search(&&column.name).is_ok() && !matches!(column.cells, CellType::Refused(_)) {
            let words = column.cells.words();
            column.refuse(format!("holds {words} in some shards and bytes in others"));
        }
    }
    columns.into_values().collect()
}
