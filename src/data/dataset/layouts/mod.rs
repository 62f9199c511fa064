//! The layouts of datasets, in one table. A new layout needs a file in this folder and a line in the table.
//!
//! A dataset has a file per sample, or shards of one layout. A [`ShardLayout`] defines the files by which a dataset of
//! such shards is recognised. The [`ShardParser`] of the layout finds the samples of one shard.

mod arrow;
mod hdf5;
mod mds;
mod npy;
mod npz;
mod packed;
mod parquet;
mod tar_of_tars;
mod tf_example;
pub(in crate::dataset) mod tfrecord;
mod webdataset;
mod wire;
mod zarr;

pub use mds::mds_table;
pub(super) use packed::PackedShards;
pub(super) use tar_of_tars::is_tar_of_tars;
pub use tar_of_tars::tar_of_tars;
pub use tf_example::tf_examples;
pub use tfrecord::masked;
pub use tfrecord::records;
pub(super) use webdataset::TarShards;
pub(super) use zarr::is_zarr_file;

use super::dataset_card::CARD;
use super::label_column::LABELS;
use super::rows_of_table;
use super::samples::ShardContents;
use super::table::ShardTable;
use super::{Contents, SampleAxis};
use crate::source::{DatasetSource, Malformed, OpenFile, ReadAt, is_gone};
use base::error::{Error, Result};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The options for parsing shards. All shards of a dataset must be parsed with the same options.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct ShardReadOptions {
    /// The columns from which the index keeps all strings. Some shards do not store the strings of such a column
    /// verbatim, and a column must be read in the same way from all shards.
    pub(super) kept_texts: Vec<String>,
    /// In layouts that group files with a common stem into samples: whether a sample needs no image.
    pub(super) every_stem: bool,
    /// The column, tar member or JSON key that the user chose as the label. With `None`, usual names such as "label"
    /// are tried.
    pub(super) label: Option<String>,
    /// The columns that cannot be the label because of their values in some shard. Maps names to reasons.
    pub(super) not_labels: BTreeMap<String, String>,
    /// In layouts of arrays, what one sample is.
    pub(super) sample_axis: SampleAxis,
    /// In layouts of arrays, the fields that the user chose; `None` for all arrays with as many rows as the largest.
    pub(super) arrays: Option<Vec<String>>,
    /// Those of [`ShardReadOptions::arrays`] that shards may lack.
    pub(super) optional: Vec<String>,
    /// The directory of the images of COCO annotations, as the user named it.
    pub(super) images: Option<String>,
    /// Without chosen fields, the array whose rows are the samples of all shards. With `None`, the largest of a shard.
    pub(super) largest_array: Option<String>,
}

/// Whether the name is that of a temporary or internal file of a program that writes tables.
fn is_internal_name(name: &[u8]) -> bool {
    name.starts_with(b".") || name.starts_with(b"_")
}

pub(super) trait ShardLayout: Sync {
    fn samples(&self) -> Contents {
        Contents::Images
    }

    /// Whether a file with this name is a shard. Never for layouts whose shards are found by a list or by contents.
    fn is_shard(&self, _name: &[u8]) -> bool {
        false
    }

    /// Whether a file with this name is a shard of this layout with an unsupported compression.
    fn is_compressed(&self, _name: &[u8]) -> bool {
        false
    }

    /// Each of these files identifies a dataset of this layout by its presence in the root. Without any, the names of
    /// shards identify the dataset.
    fn marker_files(&self) -> &'static [&'static str] {
        &[]
    }

    /// Whether a file with this name is a shard that can be read only if a [`ShardLayout::marker_files`] lists it.
    fn is_unlisted_shard(&self, _name: &[u8]) -> bool {
        false
    }

    /// The shards below `directory` that the layout's [`ShardLayout::marker_files`] lists, sorted. `None` if the marker
    /// file does not exist or is of another program.
    ///
    /// # Errors
    /// [`Error::Dataset`] for a list that is damaged, or that lists an unreadable shard.
    fn listed_shards(&self, _source: &dyn DatasetSource, _directory: &[u8]) -> Result<Option<Vec<Vec<u8>>>> {
        Ok(None)
    }

    /// The files in the root that describe the dataset: the marker file, and the dataset card if the layout has splits.
    fn description_files(&self) -> Vec<&'static str> {
        self.marker_files().iter().copied().chain(self.has_splits().then_some(CARD)).collect()
    }

    /// Whether shards can also be in directories below the root, and have names that say to which split they belong.
    fn has_splits(&self) -> bool {
        false
    }

    fn empty_message(&self) -> String;

    /// Whether samples are rows of tables, with columns as fields. If so, every row is a sample, with or without an
    /// image, and images can be stored in any order.
    fn is_table(&self) -> bool {
        true
    }

    /// Whether shards hold arrays, of which a sample is a part. If so, parsers return the arrays
    /// ([`arrays::contents`](super::arrays::contents)).
    fn is_array(&self) -> bool {
        false
    }

    /// Whether each shard has some of the arrays of all samples, if rows are samples. Otherwise each shard has all
    /// arrays of some samples.
    fn has_arrays_apart(&self) -> bool {
        false
    }

    /// Whether a group of the index with this path is not a shard, but a file or directory that belongs to one
    /// ([`ShardRows::files`](super::build::ShardRows::files)).
    fn is_part(&self, _path: &[u8]) -> bool {
        false
    }

    /// Whether parsers return only the arrays that the user chose, if the user chose any, because finding the places of
    /// others takes long.
    fn reads_chosen_arrays(&self) -> bool {
        false
    }

    /// Creates the parser of the shards of the dataset in `source`.
    ///
    /// # Errors
    /// The errors of [`ShardLayout::listed_shards`].
    fn parser(&self, source: &dyn DatasetSource, reading: &ShardReadOptions) -> Result<Box<dyn ShardParser>>;
}

pub(super) trait ShardParser: Send + Sync {
    /// Lists the samples of the shard at the path `name` below the root. Does not read the contents of samples.
    ///
    /// # Errors
    /// [`Malformed`] with the offset at which the shard is wrong.
    fn contents(&self, name: &[u8], bytes: &dyn ReadAt) -> Result<ShardContents, Malformed>;

    /// Reads a whole shard and compares it with the checksums that the layout stores. If something cannot be compared,
    /// returns a description of it with the reason.
    ///
    /// # Errors
    /// [`Malformed`] with the offset of the difference.
    fn verify(&self, _name: &[u8], _bytes: &dyn ReadAt) -> Result<Option<String>, Malformed> {
        Ok(None)
    }
}

/// The parser of shards that are one table each.
struct TableParser {
    table: fn(&dyn ReadAt, &[String]) -> Result<ShardTable, Malformed>,
    reading: ShardReadOptions,
}

impl ShardParser for TableParser {
    fn contents(&self, _: &[u8], bytes: &dyn ReadAt) -> Result<ShardContents, Malformed> {
        let table = (self.table)(bytes, &self.reading.kept_texts)?;
        rows_of_table::contents(table, bytes, &LABELS, &self.reading)
    }
}

/// Defines the type of the layouts. Each layout has its number in the index file, its title, and the implementation for
/// its shards.
macro_rules! layouts {
    ($($(#[$doc:meta])* $name:ident = $number:literal, $title:literal, $shards:expr;)+) => {
        /// How the samples are stored.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(rename_all = "lowercase")]
        pub enum Layout {
            $($(#[$doc])* $name = $number,)+
        }

        impl Layout {
            /// Every layout. An index file is read only if its layout is in this list.
            pub const ALL: &'static [Self] = &[$(Self::$name),+];

            /// A phrase for messages that says in which kind of files the samples are stored.
            pub fn title(self) -> &'static str {
                match self { $(Self::$name => $title,)+ }
            }

            /// The implementation for the shards of this layout; `None` if every sample is a loose file.
            pub(super) fn shards(self) -> Option<&'static dyn ShardLayout> {
                match self { $(Self::$name => $shards,)+ }
            }
        }
    };
}

// These numbers are stored in index files: never assign the number of one layout to another.
layouts! {
    /// Every sample is a file of its own: `root/class/…/image.jpg`, or any file below the root.
    Folder = 0, "loose files", None;
    /// Tar shards as WebDataset writes them, with many samples in each file.
    Tar = 1, "tar shards", Some(&webdataset::TarShards);
    /// TFRecord shards, with many records in each file.
    TfRecord = 2, "TFRecord shards", Some(&tfrecord::RecordShards);
    /// Shards that `foreload pack` made of a dataset of another layout.
    Packed = 3, "packed shards", Some(&packed::PackedShards);
    /// TFRecord shards whose records are `tf.Example`s, with images among their features.
    TfExample = 4, "TFRecord shards of tf.Example", Some(&tf_example::ExampleShards);
    /// Shards as MosaicML Streaming writes them, with an `index.json` in the same directory.
    Mds = 5, "MDS shards", Some(&mds::MdsShards);
    /// Parquet files, as on the Hugging Face hub.
    Parquet = 6, "Parquet files", Some(&parquet::ParquetShards);
    /// Arrow files and streams, as `datasets` stores them on disk.
    Arrow = 7, "Arrow files", Some(&arrow::ArrowShards);
    /// A tar that contains a tar of images for each class, as ImageNet's training images are distributed.
    TarOfTars = 8, "tars of tars", Some(&tar_of_tars::TarsOfClasses);
    /// Files that a table lists, by paths and URLs.
    Manifest = 9, "files of a manifest", None;
    /// Arrays as zarr stores them, in versions 2 and 3: a directory with metadata and chunks for each array.
    Zarr = 10, "zarr arrays", Some(&zarr::ZarrArrays);
    /// NumPy's `.npy` files, with one array each.
    Npy = 11, "npy files", Some(&npy::NpyFiles);
    /// Archives as `numpy.savez` writes them, with several arrays each.
    Npz = 12, "npz archives", Some(&npz::NpzFiles);
    /// HDF5 and NetCDF-4 files, whose datasets are arrays.
    Hdf5 = 13, "HDF5 files", Some(&hdf5::Hdf5Files);
    /// Directories whose files belong together by their names: `images/a.jpg` and `masks/a.png`.
    Parallel = 14, "parallel directories", None;
}

impl Layout {
    /// The noun for the groups in which samples are stored: shards, directories, or the manifest.
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

    /// Whether samples are rows of tables, with columns as fields.
    pub fn is_table(self) -> bool {
        self.names_files() || self.shards().is_some_and(ShardLayout::is_table)
    }

    /// Whether samples are parts of arrays.
    pub(super) fn is_array(self) -> bool {
        self.shards().is_some_and(ShardLayout::is_array)
    }

    /// Whether each shard has some of the arrays of all samples.
    pub(super) fn is_joined(self, axis: SampleAxis) -> bool {
        axis == SampleAxis::Axis0 && self.shards().is_some_and(ShardLayout::has_arrays_apart)
    }

    /// Whether every sample is a separate file with its own name.
    pub fn is_of_single_files(self) -> bool {
        self == Self::Folder || self.names_files()
    }

    /// Whether columns of texts can name further files of the samples.
    pub(super) fn names_files(self) -> bool {
        matches!(self, Self::Manifest | Self::Parallel)
    }

    /// Whether samples consist of named files or of records, which can be written to another dataset unchanged.
    pub fn is_of_files(self) -> bool {
        matches!(self, Self::Folder | Self::Tar | Self::TfRecord)
    }

    /// The sharded layouts for this kind of samples, in the order in which a dataset is tested for them.
    pub(super) fn of_samples(contents: Contents) -> impl Iterator<Item = (Self, &'static dyn ShardLayout)> {
        let with_shards = |layout: &Self| layout.shards().map(|shards| (*layout, shards));
        Self::ALL.iter().filter_map(with_shards).filter(move |(_, shards)| shards.samples() == contents)
    }
}

/// Returns the directories among `directories` that are separate datasets, such as splits, because they contain a
/// marker file. All of them have the layout that is returned with them.
pub(super) fn marked_directories(
    source: &dyn DatasetSource,
    directories: &[Vec<u8>],
    contents: Contents,
) -> Result<Option<(Layout, Vec<Vec<u8>>)>> {
    for (layout, shards) in
        Layout::of_samples(contents).filter(|(_, shards)| !shards.marker_files().is_empty())
    {
        let mut marked = Vec::new();
        for directory in directories {
            if shards.listed_shards(source, directory)?.is_some() {
                marked.push(directory.clone());
            }
        }
        if !marked.is_empty() {
            return Ok(Some((layout, marked)));
        }
    }
    Ok(None)
}

/// The number of bytes at the beginning of a file that are searched for the key of a list of shards.
const BEGINNING: u64 = 64 << 10;

fn is_file_name(name: &str) -> bool {
    !name.is_empty() && !name.contains(['/', '\0', '\\']) && name != "." && name != ".."
}

/// Whether a string is a relative path to a file that does not lead out of its directory.
pub(super) fn is_relative_path(name: &str) -> bool {
    name.split('/').all(is_file_name)
}

/// Reads the file `name`, which lists shards under `key` and has at most `most` bytes; `None` if there is no such file.
/// Other programs also write files with these names, so a large file is read to its end only if its beginning contains
/// the key.
fn read_list(source: &dyn DatasetSource, name: &[u8], key: &str, most: u64) -> Result<Option<Vec<u8>>> {
    let Some(file) = open_optional(source, name)? else { return Ok(None) };
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
            format!("has {size} bytes, but a list of shards may have at most {most}: split the dataset"),
        ));
    }
    read_beginning(source, name, &file, size).map(Some)
}

/// Opens a file that describes the dataset, if it exists; `None` if there is no regular file with this name.
pub(super) fn open_optional(source: &dyn DatasetSource, name: &[u8]) -> Result<Option<OpenFile>> {
    match source.open(name) {
        Ok(file) => Ok(Some(file)),
        // A directory or a special file with this name belongs to another program.
        Err(Error::Dataset { .. }) => Ok(None),
        Err(Error::Io { source, .. }) if is_gone(&source) => Ok(None),
        Err(error) => Err(error),
    }
}

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
