//! A small dataset whose bytes are known, and a driver that reads extents of it.

use crate::common::{random_bytes, tick};
use foreload::Result;
use foreload::testing::dataset::{Extent, FileId, Stamp};
use foreload::testing::io::{Files, ReadRequest, Reader};
use foreload::testing::rng::{RandomKey, RandomStream, Use};
use foreload::testing::slot::SlotPool;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The random numbers of a test.
pub fn random(seed: u64) -> RandomStream {
    RandomKey::new(b"io tests", seed, 0, Use::Order).stream(0)
}

/// Files on disk, and their contents.
pub struct World {
    pub dir: tempfile::TempDir,
    pub files: Vec<File>,
}

pub struct File {
    pub path: PathBuf,
    pub stamp: Option<Stamp>,
    pub bytes: Vec<u8>,
}

impl Files for World {
    fn path(&self, file: FileId) -> PathBuf {
        self.files[file.0 as usize].path.clone()
    }
    fn stamp(&self, file: FileId) -> Option<Stamp> {
        self.files[file.0 as usize].stamp
    }
}

impl World {
    /// Makes files of awkward and of usual sizes, then three shards.
    pub fn new(seed: u64) -> Self {
        let mut world = Self::empty();
        let mut random = random(seed);
        let mut sizes = vec![0, 1, 511, 4095, 4096, 4097, 8192, 65_536, 3_000_001];
        sizes.extend((0..40).map(|_| 10_000 + random.below(140_000) as usize));
        for size in sizes {
            world.add(size, false, &mut random);
        }
        for size in [6_000_000, 5_000_011, 4096] {
            world.add(size, true, &mut random);
        }
        // Recently written files are read twice. No test may depend on their age.
        tick();
        world
    }

    /// Makes a world without files.
    pub fn empty() -> Self {
        // The files are on the build's file system, not in /tmp: O_DIRECT must be tested where it works.
        let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        Self { dir, files: Vec::new() }
    }

    fn add(&mut self, size: usize, shard: bool, random: &mut RandomStream) {
        let path = self.dir.path().join(format!("file-{}", self.files.len()));
        let bytes = random_bytes(random, size);
        std::fs::write(&path, &bytes).unwrap();
        let stamp = shard.then(|| stamp(&path));
        self.files.push(File { path, stamp, bytes });
    }

    /// The extents of all files that are one sample each.
    pub fn loose(&self) -> Vec<Extent> {
        let whole = |(number, file): (usize, &File)| Extent {
            file: FileId(number as u32),
            offset: 0,
            length: file.bytes.len() as u32,
        };
        self.files.iter().enumerate().filter(|(_, file)| file.stamp.is_none()).map(whole).collect()
    }

    /// The indices of the shards.
    pub fn shards(&self) -> Vec<u32> {
        (0..self.files.len() as u32).filter(|&file| self.files[file as usize].stamp.is_some()).collect()
    }

    /// An extent inside a shard: at any place, from a byte to some megabytes, often at the very end.
    pub fn random_extent(&self, random: &mut RandomStream) -> Extent {
        let shards = self.shards();
        let file = shards[random.below(shards.len() as u64) as usize];
        let size = self.files[file as usize].bytes.len() as u64;
        let length = match random.below(10) {
            0 => 1,
            1 => 1 + random.below(4_000_000),
            2 => 4096,
            _ => 10_000 + random.below(140_000),
        }
        .min(size);
        let offset = match random.below(6) {
            0 => size - length,
            1 => (size - length) / 4096 * 4096,
            _ => random.below(size - length + 1),
        };
        Extent { file: FileId(file), offset, length: length as u32 }
    }

    /// The path of a file.
    pub fn path_of(&self, file: FileId) -> PathBuf {
        self.files[file.0 as usize].path.clone()
    }

    /// The bytes that an extent must have.
    pub fn expected(&self, extent: Extent) -> &[u8] {
        let start = extent.offset as usize;
        &self.files[extent.file.0 as usize].bytes[start..start + extent.length as usize]
    }
}

/// The stamp that an index stores of a shard.
pub fn stamp(path: &Path) -> Stamp {
    Stamp::at(path).unwrap()
}

/// An arena with room for a few dozen samples.
pub fn pool() -> SlotPool {
    SlotPool::new(32 << 20).unwrap()
}

/// Reads all `extents`, as many at a time as the reader and the pool allow.
///
/// Returns the results in the order of `extents`, with copies of the bytes. Panics if an extent is not answered exactly
/// once.
pub fn read_all(reader: &mut dyn Reader, slots: &SlotPool, extents: &[Extent]) -> Vec<Result<Vec<u8>>> {
    let mut answers: HashMap<u64, Result<Vec<u8>>> = HashMap::new();
    let mut out = Vec::new();
    let mut next = 0;
    while answers.len() < extents.len() {
        while next < extents.len() && reader.room() > 0 {
            let extent = extents[next];
            let Some(slot) = slots.try_take(extent.length as usize) else { break };
            reader.submit(ReadRequest::new(next as u64, extent, slot));
            next += 1;
        }
        assert_eq!(reader.in_flight(), next - answers.len());
        reader.wait(&mut out).unwrap();
        for completion in out.drain(..) {
            let bytes = completion.result.map(|filled| filled.to_vec());
            assert!(answers.insert(completion.token, bytes).is_none(), "{} answered twice", completion.token);
        }
    }
    assert_eq!(reader.in_flight(), 0);
    (0..extents.len()).map(|token| answers.remove(&(token as u64)).unwrap()).collect()
}

/// A shared world for tests that do not change it.
pub fn shared(seed: u64) -> (Arc<World>, SlotPool) {
    (Arc::new(World::new(seed)), pool())
}
