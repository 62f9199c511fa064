//! Builds an index file from directories and shards that arrive in any order, in memory that does not grow with the
//! number of samples: rows go to a spill file at once and are copied into their columns at the end.

use super::format::{Entry, HEADER, Header, Section};
use super::{Layout, Stamp};
use crate::error::{Error, Result};
use sha2::{Digest, Sha256};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// A loose file in its directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Loose {
    /// Where its name begins in the group's names.
    pub name: u32,
    /// Bytes of its name.
    pub name_length: u32,
    /// Bytes of the file.
    pub length: u32,
}

/// A sample in a shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Packed {
    /// First byte of its image in the shard.
    pub offset: u64,
    /// Bytes of its image.
    pub length: u32,
    /// Class number.
    pub label: u32,
}

/// The samples of a directory or shard, in their order.
#[derive(Debug)]
pub enum Rows {
    /// Loose files of one class.
    Files {
        /// Class number of all of them.
        class: u32,
        /// Their names, in any order and with gaps.
        names: Vec<u8>,
        /// The files, by name.
        files: Vec<Loose>,
    },
    /// Samples of a shard.
    Shard(Vec<Packed>),
}

/// A directory with its files, or a shard with its samples.
#[derive(Debug)]
pub struct Group {
    /// Path below the dataset's root; empty where the root is the shard.
    pub path: Vec<u8>,
    /// Size and time when it was read.
    pub stamp: Stamp,
    /// Its samples.
    pub rows: Rows,
}

/// Facts about the whole dataset, known when everything was read.
#[derive(Debug, Default)]
pub struct Whole {
    /// The dataset's canonical path.
    pub root: PathBuf,
    /// The root's size (of a single shard) and time.
    pub root_stamp: Stamp,
    /// Class names by number; empty where there are only numbers.
    pub classes: Vec<Vec<u8>>,
    /// What else was noticed.
    pub notes: super::Notes,
}

/// Takes groups in any order; the finished index has them sorted as torchvision sorts: by class, then by path.
pub struct Builder {
    target: PathBuf,
    layout: Layout,
    spill: BufWriter<File>,
    spilled: u64,
    groups: Vec<Spilled>,
    header: Header,
    row: Vec<u8>,
}

/// A group whose rows are in the spill file: lengths, then labels and offsets, or ends of names and names.
struct Spilled {
    class: u32,
    path: Vec<u8>,
    stamp: Stamp,
    at: u64,
    samples: u64,
    names: u64,
}

impl Builder {
    /// An index file at `target`; its directory must exist.
    ///
    /// # Errors
    /// [`Error::Io`] when nothing can be written beside `target`.
    pub fn new(target: &Path, layout: Layout) -> Result<Self> {
        let path = temporary(target, "spill");
        let spill = File::options().read(true).write(true).create(true).truncate(true).open(&path);
        let spill = spill.map_err(|error| Error::io("create", &path, error))?;
        // Nameless from here on: it goes with the process, however that ends.
        std::fs::remove_file(&path).map_err(|error| Error::io("unlink", &path, error))?;
        Ok(Self {
            target: target.to_path_buf(),
            layout,
            spill: BufWriter::with_capacity(1 << 18, spill),
            spilled: 0,
            groups: Vec::new(),
            header: Header { tar: layout == Layout::Tar, ..Header::default() },
            row: Vec::new(),
        })
    }

    /// Number of samples so far.
    pub fn samples(&self) -> u64 {
        self.header.samples
    }

    /// Takes a directory or shard, also one without samples.
    ///
    /// # Errors
    /// [`Error::Io`] when the spill file cannot be written; [`Error::Dataset`] for more loose files than 2^32 - 1.
    pub fn add(&mut self, group: &Group) -> Result<()> {
        let at = self.spilled;
        self.row.clear();
        let row = &mut self.row;
        let (class, samples, names) = match &group.rows {
            Rows::Files { class, names, files } => {
                let name = |file: &Loose| {
                    let start = file.name as usize;
                    names.get(start..start + file.name_length as usize).unwrap_or_default()
                };
                row.extend(files.iter().flat_map(|file| file.length.to_le_bytes()));
                let mut end = 0u32;
                for file in files {
                    end = end.checked_add(file.name_length).ok_or_else(|| {
                        let path = PathBuf::from(String::from_utf8_lossy(&group.path).into_owned());
                        Error::dataset(path, "holds more than 4 GiB of file names: split the directory")
                    })?;
                    row.extend(end.to_le_bytes());
                }
                files.iter().for_each(|file| row.extend(name(file)));
                self.header.classes = self.header.classes.max(class + 1);
                (*class, files.len(), u64::from(end))
            }
            Rows::Shard(samples) => {
                row.extend(samples.iter().flat_map(|sample| sample.length.to_le_bytes()));
                row.extend(samples.iter().flat_map(|sample| sample.label.to_le_bytes()));
                row.extend(samples.iter().flat_map(|sample| sample.offset.to_le_bytes()));
                let classes = samples.iter().map(|sample| sample.label.saturating_add(1)).max().unwrap_or(0);
                self.header.classes = self.header.classes.max(classes);
                (0, samples.len(), 0)
            }
        };
        let lengths = row.chunks_exact(4).take(samples).map(|length| super::format::u32_at(length, 0));
        for length in lengths {
            self.header.total_bytes += u64::from(length);
            self.header.largest = self.header.largest.max(length);
        }
        self.header.samples += samples as u64;
        if self.layout == Layout::Folder && self.header.samples > u64::from(u32::MAX) {
            return Err(Error::dataset(
                &self.target,
                "more than 4 294 967 295 loose files: pack them into shards",
            ));
        }
        self.spill.write_all(row).map_err(|error| Error::io("write", &self.target, error))?;
        self.spilled += row.len() as u64;
        self.row.shrink_to(1 << 22);
        let (path, stamp, samples) = (group.path.clone(), group.stamp, samples as u64);
        self.groups.push(Spilled { class, path, stamp, at, samples, names });
        Ok(())
    }

    /// Writes the index and puts it in its place, whole or not at all.
    ///
    /// # Errors
    /// [`Error::Io`] when it cannot be written.
    pub fn finish(mut self, whole: &Whole) -> Result<()> {
        let path = temporary(&self.target, "new");
        let result = self.write(&path, whole).map_err(|error| Error::io("write", &path, error));
        let result = result.and_then(|()| {
            std::fs::rename(&path, &self.target).map_err(|error| Error::io("rename into place", &path, error))
        });
        if result.is_err() {
            // The cause is reported; a leftover that cannot be removed either is overwritten by the next build.
            let _ = std::fs::remove_file(&path);
        }
        result
    }

    fn write(&mut self, path: &Path, whole: &Whole) -> std::io::Result<()> {
        self.spill.flush()?;
        self.groups.sort_unstable_by(|a, b| (a.class, &a.path).cmp(&(b.class, &b.path)));
        let mut file = File::create(path)?;
        file.write_all(&[0; HEADER])?;
        let mut out =
            Columns { file: BufWriter::with_capacity(1 << 18, &file), at: HEADER as u64, open: None };
        let spill = self.spill.get_ref();
        let groups = &self.groups;
        let tar = self.header.tar;
        let mut table = [Entry::default(); Section::COUNT];
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
                        ends[0] += group.samples;
                        ends[1] += group.path.len() as u64;
                        ends[2] += group.names;
                        ends.iter().try_for_each(|end| out.put(&end.to_le_bytes()))?;
                    }
                }
                Section::Paths => groups.iter().try_for_each(|group| out.put(&group.path))?,
                Section::Stamps => {
                    for group in groups {
                        out.put(&group.stamp.size.to_le_bytes())?;
                        out.put(&group.stamp.mtime.to_le_bytes())?;
                    }
                }
                Section::Labels if tar => {
                    groups.iter().try_for_each(|g| out.copy(spill, g.at + 4 * g.samples, 4 * g.samples))?;
                }
                Section::Labels => {
                    for group in groups {
                        (0..group.samples).try_for_each(|_| out.put(&group.class.to_le_bytes()))?;
                    }
                }
                Section::Lengths => groups.iter().try_for_each(|g| out.copy(spill, g.at, 4 * g.samples))?,
                Section::Places if tar => {
                    groups.iter().try_for_each(|g| out.copy(spill, g.at + 8 * g.samples, 8 * g.samples))?;
                }
                Section::Places => {
                    groups.iter().try_for_each(|g| out.copy(spill, g.at + 4 * g.samples, 4 * g.samples))?;
                }
                Section::Names => {
                    groups.iter().try_for_each(|g| out.copy(spill, g.at + 8 * g.samples, g.names))?;
                }
            }
            table[section as usize] = out.end();
        }
        out.file.flush()?;
        drop(out);
        self.header.groups = groups.len() as u64;
        self.header.classes = self.header.classes.max(whole.classes.len() as u32);
        (self.header.root_size, self.header.root_mtime) = (whole.root_stamp.size, whole.root_stamp.mtime);
        self.header.fingerprint = fingerprint(self.layout, &table);
        file.write_all_at(&self.header.encode(&table), 0)?;
        // A power failure after the rename must not leave an index whose columns were never written.
        file.sync_data()
    }
}

/// Of layout and content sections, which hold relative paths, extents and labels, and no time or place.
fn fingerprint(layout: Layout, table: &[Entry; Section::COUNT]) -> [u8; 32] {
    let mut hash = Sha256::new();
    hash.update(b"foreload dataset 1");
    hash.update([layout as u8]);
    for section in Section::ALL.into_iter().filter(|section| section.is_content()) {
        hash.update(table[section as usize].digest);
    }
    hash.finalize().into()
}

/// Where a file that is to become `target` is written.
fn temporary(target: &Path, kind: &str) -> PathBuf {
    target.with_extension(format!("{}.{kind}", std::process::id()))
}

/// Removes what builders of `target` that were killed left behind. Only while no other builder runs.
pub(super) fn remove_leftovers(target: &Path) {
    let (Some(directory), Some(stem)) = (target.parent(), target.file_stem()) else { return };
    let stem = [stem.as_encoded_bytes(), b"."].concat();
    for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let name = name.as_encoded_bytes();
        if name.starts_with(&stem) && (name.ends_with(b".new") || name.ends_with(b".spill")) {
            // Best effort: a leftover costs space, not correctness.
            let _ = std::fs::remove_file(entry.path());
        }
    }
}

/// Writes sections one after the other and digests them on the way.
struct Columns<'a> {
    file: BufWriter<&'a File>,
    at: u64,
    open: Option<(u64, Sha256)>,
}

impl Columns<'_> {
    fn begin(&mut self) -> std::io::Result<()> {
        let padding = self.at.next_multiple_of(8) - self.at;
        self.file.write_all(&[0; 8][..padding as usize])?;
        self.at += padding;
        self.open = Some((self.at, Sha256::new()));
        Ok(())
    }

    fn put(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        if let Some((_, hash)) = &mut self.open {
            hash.update(bytes);
        }
        self.at += bytes.len() as u64;
        self.file.write_all(bytes)
    }

    fn copy(&mut self, from: &File, mut at: u64, length: u64) -> std::io::Result<()> {
        let mut buffer = [0; 1 << 16];
        let end = at + length;
        while at < end {
            let part = &mut buffer[..(end - at).min(1 << 16) as usize];
            from.read_exact_at(part, at)?;
            at += part.len() as u64;
            self.put(part)?;
        }
        Ok(())
    }

    fn end(&mut self) -> Entry {
        let (offset, hash) = self.open.take().unwrap_or_default();
        Entry { offset, length: self.at - offset, digest: hash.finalize().into() }
    }
}
