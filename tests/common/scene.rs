//! A dataset in a temporary directory, and helpers for tests of datasets.

use foreload::Result;
use foreload::testing::dataset::{DatasetIndex, Extent, FileId, IndexOptions, IndexSummary};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// A dataset directory and an index directory that are removed with the test.
pub struct Scene {
    _directory: TempDir,
    pub root: PathBuf,
    pub options: IndexOptions,
}

impl Scene {
    pub fn new() -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let root = directory.path().join("data");
        fs::create_dir(&root).expect("an empty dataset");
        let options =
            IndexOptions { directory: Some(directory.path().join("index")), ..IndexOptions::default() };
        Self { _directory: directory, root, options }
    }

    /// Writes a file below the root.
    pub fn write(&self, path: impl AsRef<Path>, bytes: &[u8]) -> PathBuf {
        let path = self.root.join(path);
        fs::create_dir_all(path.parent().expect("a parent")).expect("directories");
        fs::write(&path, bytes).expect("a file");
        path
    }

    pub fn open(&self) -> Result<DatasetIndex> {
        DatasetIndex::open(&self.root, &self.options)
    }

    /// The error of opening the dataset.
    pub fn error(&self) -> String {
        match self.open() {
            Ok(index) => panic!("opened, with {} samples", index.len()),
            Err(error) => error.to_string(),
        }
    }
}

/// The summary of the only dataset of `index`.
pub fn summary(index: &DatasetIndex) -> IndexSummary {
    index.summaries().next().expect("a dataset")
}

/// All data of an index about its samples.
pub fn all_of(index: &DatasetIndex) -> Vec<(PathBuf, u64, u32, u32)> {
    let of = |sample| {
        let extent = index.extent(sample);
        (index.path(extent.file), extent.offset, extent.length, index.label(sample))
    };
    (0..index.len()).map(of).collect()
}

/// The bytes of a sample, read without any of Foreload's readers.
pub fn bytes_of(index: &DatasetIndex, sample: u64) -> Vec<u8> {
    let extent = index.extent(sample);
    let mut bytes = vec![0; extent.length as usize];
    let file = File::open(index.path(extent.file)).expect("the sample's file");
    file.read_exact_at(&mut bytes, extent.offset).expect("the sample's bytes");
    bytes
}

/// Checks that every sample is found by its extent, and that nearby extents which are not a sample's find nothing.
pub fn samples_are_found_by_extent(index: &DatasetIndex) {
    for sample in 0..index.len() {
        let extent = index.extent(sample);
        assert_eq!(index.sample_of(extent), Some(sample), "{extent:?}");
        let longer = extent.length.wrapping_add(1);
        assert_eq!(index.sample_of(Extent { length: longer, ..extent }), None, "{extent:?}, longer");
        for offset in [extent.offset + 1, extent.offset.wrapping_sub(1), u64::MAX] {
            assert_eq!(index.sample_of(Extent { offset, ..extent }), None, "{extent:?} at {offset}");
        }
        for file in [extent.file.0.wrapping_sub(1), extent.file.0.wrapping_add(1), u32::MAX] {
            let found = index.sample_of(Extent { file: FileId(file), ..extent });
            assert!(found.is_none_or(|other| other != sample && index.extent(other).file.0 == file));
        }
    }
}

/// CRC-32C computed one bit at a time, as RFC 3720 defines it.
fn crc(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0u32, |crc, &byte| {
        (0..8).fold(crc ^ u32::from(byte), |crc, _| crc >> 1 ^ (0x82f6_3b78 & (crc & 1).wrapping_neg()))
    })
}

/// The masked CRC-32C of TFRecord files.
pub fn masked(bytes: &[u8]) -> [u8; 4] {
    let crc = crc(bytes);
    crc.rotate_right(15).wrapping_add(0xa282_ead8).to_le_bytes()
}

/// A TFRecord shard of these records.
pub fn tfrecord(payloads: &[&[u8]]) -> Vec<u8> {
    let record = |payload: &&[u8]| {
        let length = (payload.len() as u64).to_le_bytes();
        [&length[..], &masked(&length), payload, &masked(payload)].concat()
    };
    payloads.iter().flat_map(record).collect()
}

/// Python, if this machine has it.
pub fn python() -> Option<Command> {
    let found = Command::new("python3").arg("--version").output().is_ok_and(|output| output.status.success());
    if !found {
        eprintln!("skipped: no python3 to compare with");
    }
    found.then(|| Command::new("python3"))
}
