//! The layouts of datasets, in one table. A layout is a file of this folder and a line of the table.
//!
//! Samples lie in files of their own, or in shards of some layout: [`ShardLayout`] says by which files such a dataset
//! is known, and its [`ShardParser`] finds the samples of one shard.

mod arrow;
mod mds;
mod packed;
mod parquet;
mod tar_of_tars;
mod tf_example;
pub(in crate::dataset) mod tfrecord;
mod webdataset;
mod wire;

pub use mds::mds_table;
pub(super) use packed::PackedShards;
pub use tar_of_tars::tar_of_tars;
pub(super) use tar_of_tars::{TarsOfClasses, is_tar_of_tars};
pub use tf_example::tf_examples;
pub(super) use tfrecord::RecordShards;
pub use tfrecord::masked;
pub use tfrecord::records;
pub(super) use webdataset::TarShards;

use super::Contents;
use super::dataset_card::CARD;
use super::label_column::LABELS;
use super::samples::ShardContents;
use crate::source::{DatasetSource, Malformed, OpenFile, ReadAt, is_gone};
use base::error::{Error, Result};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// How the shards of a dataset are read, as far as that is decided for all of them together.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct ShardReading {
    /// The columns whose texts are all kept in the index although they lie in the shard, because in other shards they
    /// do not lie as they are. A column is read in one way of all shards.
    pub(super) kept_texts: Vec<String>,
    /// The only column, member or key that may be the label; `None` where the usual names may be.
    pub(super) label: Option<String>,
    /// The columns that cannot be the label because of their values in some shard, and why.
    pub(super) not_labels: BTreeMap<String, String>,
}

/// Whether writers of tables leave a file of this name to themselves, such as one that is not finished.
fn is_left_to_others(name: &[u8]) -> bool {
    name.starts_with(b".") || name.starts_with(b"_")
}

/// What is known of a layout of shards.
pub(super) trait ShardLayout: Sync {
    /// The kind of samples for which such shards are looked for.
    fn samples(&self) -> Contents;

    /// Whether a file of this name is such a shard.
    fn is_shard(&self, name: &[u8]) -> bool;

    /// Whether a file of this name is a shard that is compressed, which is refused by name.
    fn is_compressed(&self, _name: &[u8]) -> bool {
        false
    }

    /// The file in the root by which a dataset of this layout is known, where names of shards say nothing.
    fn marker(&self) -> Option<&'static str> {
        None
    }

    /// Whether a file of this name is a shard of those that only the [`ShardLayout::marker`] makes a dataset.
    fn is_unlisted_shard(&self, _name: &[u8]) -> bool {
        false
    }

    /// The shards below `directory` that its [`ShardLayout::marker`] lists, sorted; `None` where the file is not there
    /// or is that of something else.
    ///
    /// # Errors
    /// [`Error::Dataset`] for a list that is damaged, or has what cannot be read.
    fn listed(&self, _source: &dyn DatasetSource, _directory: &[u8]) -> Result<Option<Vec<Vec<u8>>>> {
        Ok(None)
    }

    /// The files in the root that say what the dataset is, beside the names of others.
    fn descriptions(&self) -> Vec<&'static str> {
        self.marker().into_iter().chain(self.has_splits().then_some(CARD)).collect()
    }

    /// Whether such shards may lie in directories below the root, and be of several splits by their names.
    fn has_splits(&self) -> bool {
        false
    }

    /// The message where such shards hold no sample.
    fn nothing(&self) -> String;

    /// Whether samples are rows of tables, with columns as their fields. Then every row is a sample, with an image or
    /// without, and images may lie in any order.
    fn is_table(&self) -> bool {
        true
    }

    /// What parses the shards of the dataset in `source`. `every_stem` says whether samples need no image, where
    /// members that share a name are a sample.
    ///
    /// # Errors
    /// The errors of [`ShardLayout::listed`].
    fn parser(&self, source: &dyn DatasetSource, every_stem: bool) -> Result<Box<dyn ShardParser>>;
}

/// Finds the samples of shards.
pub(super) trait ShardParser: Send + Sync {
    /// Has all shards read from now on as `reading` says.
    fn read_by(&mut self, _reading: ShardReading) {}

    /// The samples of the shard with this name below the root, without reading what is read of them later.
    ///
    /// # Errors
    /// [`Malformed`] with the place where the shard is not what it should be.
    fn contents(&self, name: &[u8], bytes: &dyn ReadAt) -> Result<ShardContents, Malformed>;

    /// Compares a shard with the checksums that the layout keeps, reading all of it. What it cannot compare, and why,
    /// is returned.
    ///
    /// # Errors
    /// [`Malformed`] with the place of what differs.
    fn verify(&self, _name: &[u8], _bytes: &dyn ReadAt) -> Result<Option<String>, Malformed> {
        Ok(None)
    }
}

/// Makes the type of the layouts, each with its number in the index file, its title and what knows its shards.
macro_rules! layouts {
    ($($(#[$doc:meta])* $name:ident = $number:literal, $title:literal, $shards:expr;)+) => {
        /// How the samples are stored.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(rename_all = "lowercase")]
        pub enum Layout {
            $($(#[$doc])* $name = $number,)+
        }

        impl Layout {
            /// Every layout: an index file is read only if its layout is one of these.
            pub const ALL: &'static [Self] = &[$(Self::$name),+];

            /// What holds the samples, in words.
            pub fn title(self) -> &'static str {
                match self { $(Self::$name => $title,)+ }
            }

            /// What knows its shards; `None` where every sample is a file of its own.
            pub(super) fn shards(self) -> Option<&'static dyn ShardLayout> {
                match self { $(Self::$name => $shards,)+ }
            }
        }
    };
}

// The numbers stand in index files: none is ever given to another layout.
layouts! {
    /// Every sample is a file of its own: `root/class/…/image.jpg`, or any file below the root.
    Folder = 0, "loose files", None;
    /// Tar shards as WebDataset writes them, with many samples in a file.
    Tar = 1, "tar shards", Some(&webdataset::TarShards);
    /// TFRecord shards, with many records in a file.
    TfRecord = 2, "TFRecord shards", Some(&tfrecord::RecordShards);
    /// Shards that `foreload pack` made of a dataset of another layout.
    Packed = 3, "packed shards", Some(&packed::PackedShards);
    /// TFRecord shards whose records are `tf.Example`s, with images among their features.
    TfExample = 4, "TFRecord shards of tf.Example", Some(&tf_example::ExampleShards);
    /// Shards as MosaicML Streaming writes them, with an `index.json` beside them.
    Mds = 5, "MDS shards", Some(&mds::MdsShards);
    /// Parquet files, such as the Hugging Face hub has them.
    Parquet = 6, "Parquet files", Some(&parquet::ParquetShards);
    /// Arrow files and streams, as `datasets` keeps them on disk.
    Arrow = 7, "Arrow files", Some(&arrow::ArrowShards);
    /// A tar of tars, one for each class, as ImageNet's training images come.
    TarOfTars = 8, "tars of tars", Some(&tar_of_tars::TarsOfClasses);
    /// Files that a table lists, by paths and URLs.
    Manifest = 9, "files of a manifest", None;
}

impl Layout {
    /// What a group of samples is that lie together, in the plural.
    pub fn group_title(self) -> &'static str {
        match self {
            Self::Manifest => "manifest",
            _ if self.is_sharded() => "shards",
            _ => "directories",
        }
    }

    /// Whether a file holds many samples.
    pub fn is_sharded(self) -> bool {
        self.shards().is_some()
    }

    /// Whether samples are rows of tables, with columns as their fields.
    pub fn is_table(self) -> bool {
        self == Self::Manifest || self.shards().is_some_and(ShardLayout::is_table)
    }

    /// Whether every sample is a file by itself, by a name of its own.
    pub fn is_of_single_files(self) -> bool {
        matches!(self, Self::Folder | Self::Manifest)
    }

    /// Whether what samples were made of is files with names of their own, or records, which can be written again as
    /// they were.
    pub fn is_of_files(self) -> bool {
        matches!(self, Self::Folder | Self::Tar | Self::TfRecord)
    }

    /// The layouts of shards whose samples are of this kind, in the order in which they are looked for.
    pub(super) fn of_samples(contents: Contents) -> impl Iterator<Item = (Self, &'static dyn ShardLayout)> {
        let with_shards = |layout: &Self| layout.shards().map(|shards| (*layout, shards));
        Self::ALL.iter().filter_map(with_shards).filter(move |(_, shards)| shards.samples() == contents)
    }
}

/// The directories of these that hold a dataset of their own by a marker, such as the splits of a dataset.
pub(super) fn marked_directories(
    source: &dyn DatasetSource,
    directories: &[Vec<u8>],
    contents: Contents,
) -> Result<Option<(Layout, Vec<Vec<u8>>)>> {
    for (layout, shards) in Layout::of_samples(contents).filter(|(_, shards)| shards.marker().is_some()) {
        let mut marked = Vec::new();
        for directory in directories {
            if shards.listed(source, directory)?.is_some() {
                marked.push(directory.clone());
            }
        }
        if !marked.is_empty() {
            return Ok(Some((layout, marked)));
        }
    }
    Ok(None)
}

/// The bytes by which it is known whether a file lists shards.
const BEGINNING: u64 = 64 << 10;

/// Whether a text is the name of a file in a directory, and leads nowhere else.
fn is_name_beside(name: &str) -> bool {
    !name.is_empty() && !name.contains(['/', '\0', '\\']) && name != "." && name != ".."
}

/// Whether a text is the name of a file in a directory or in one below it, and leads nowhere else.
fn is_name_below(name: &str) -> bool {
    name.split('/').all(is_name_beside)
}

/// Reads a file that lists shards under `key`, of up to `most` bytes; `None` where there is none. Other programs have
/// files of the same names, too: of a large one only the beginning is read if the key is not there.
fn read_list(source: &dyn DatasetSource, name: &[u8], key: &str, most: u64) -> Result<Option<Vec<u8>>> {
    let Some(file) = open_beside(source, name)? else { return Ok(None) };
    let size = file.bytes.size();
    if size > BEGINNING {
        let (beginning, key) = (read_beginning(source, name, &file, BEGINNING)?, format!("\"{key}\""));
        if !beginning.windows(key.len()).any(|part| part == key.as_bytes()) {
            return Ok(None);
        }
    }
    if size > most {
        return Err(Error::dataset(
            source.path(name),
            format!("lists shards in {size} bytes, of which up to {most} are read: divide the dataset"),
        ));
    }
    read_beginning(source, name, &file, size).map(Some)
}

/// Opens a file that may say something of the dataset; `None` where there is no file of this name.
pub(super) fn open_beside(source: &dyn DatasetSource, name: &[u8]) -> Result<Option<OpenFile>> {
    match source.open(name) {
        Ok(file) => Ok(Some(file)),
        // A directory, or what else is no regular file, is something of other people's.
        Err(Error::Dataset { .. }) => Ok(None),
        Err(Error::Io { source, .. }) if is_gone(&source) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The first bytes of a file, up to `most`.
pub(super) fn read_beginning(
    source: &dyn DatasetSource,
    name: &[u8],
    file: &OpenFile,
    most: u64,
) -> Result<Vec<u8>> {
    let mut text = vec![0; file.bytes.size().min(most) as usize];
    let read = file.bytes.read_at(&mut text, 0);
    text.truncate(read.map_err(|error| Error::io("read", source.path(name), error))?);
    Ok(text)
}
