//! Samples that share compressed chunks: over every reader, each chunk is decompressed once, and damage is an error of
//! the samples in the damaged chunk.

use super::recorded::{Recorded, asked, read_records};
use super::records::plain;
use super::world::{pool, random, stamp};
use flate2::Compression;
use flate2::write::ZlibEncoder;
use foreload::testing::dataset::arrays::{CHUNKS, ChunkCell, SampleRecord, SharedChunk};
use foreload::testing::dataset::{BlockCache, Extent, FileBlock, FileId, FileVersion, Stamp};
use foreload::testing::io::{Files, GatherReader, read_blocking, unpacking};
use std::io::Write;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// Samples, their bytes in a chunk, and the chunks with the same samples.
const SAMPLES: usize = 40;
const ROWS: usize = 8;
const ROW: usize = 3000;
const ACROSS: usize = 2;
const FILE: FileId = FileId(0);

/// A shard with an array whose chunks have the parts of eight samples each.
struct Chunked {
    directory: tempfile::TempDir,
    bytes: Mutex<Vec<u8>>,
    stamp: Mutex<Stamp>,
    version: AtomicU64,
    chunks: Vec<SharedChunk>,
    /// The decompressed bytes of the chunks.
    contents: Vec<Vec<u8>>,
    cache: BlockCache,
}

impl Chunked {
    fn new() -> Self {
        let facts = serde_json::json!({
            "name": "x", "stored": {"number": "float32", "swapped": false}, "order": "RowMajor",
            "filters": [{"Shuffle": {"size": 4}}, "Zlib"],
        });
        let facts = Arc::new(serde_json::from_value(facts).unwrap());
        let (mut bytes, mut chunks, mut contents) = (vec![7; 999], Vec::new(), Vec::new());
        for number in 0..SAMPLES / ROWS * ACROSS {
            let elements = (0..ROWS * ROW / 4).map(|at| 280.0 + ((at + 5000 * number) as f32 / 700.0).sin());
            let content: Vec<u8> = elements.flat_map(f32::to_le_bytes).collect();
            // The filters of one chunk were left out.
            let mask = if number == 3 { 3 } else { 0 };
            let planes = (0..4).flat_map(|byte| content.iter().skip(byte).step_by(4).copied());
            let mut encoder = ZlibEncoder::new(Vec::new(), Compression::fast());
            encoder.write_all(&planes.collect::<Vec<u8>>()).unwrap();
            let packed = if mask == 0 { encoder.finish().unwrap() } else { content.clone() };
            let (offset, length) = (bytes.len() as u64, packed.len() as u32);
            bytes.extend(packed);
            let cell = ChunkCell { offset, length, mask, file: 0, version: 0 };
            let start = CHUNKS + number as u64 * (1 << 20);
            chunks.push(SharedChunk { facts: Arc::clone(&facts), start, cell, bytes: content.len() as u32 });
            contents.push(content);
        }
        let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let (stamp, bytes, cache) = (Mutex::default(), Mutex::new(bytes), BlockCache::default());
        let chunked = Self { directory, bytes, stamp, version: AtomicU64::new(0), chunks, contents, cache };
        chunked.write();
        chunked
    }

    /// Writes the shard, which then has another version.
    fn write(&self) {
        std::fs::write(self.path(FILE), &*self.bytes.lock().unwrap()).unwrap();
        *self.stamp.lock().unwrap() = stamp(&self.path(FILE));
        self.version.fetch_add(1, Ordering::Relaxed);
    }

    /// The extents of a sample's parts, and their bytes.
    fn parts(&self, sample: usize) -> Vec<(Extent, &[u8])> {
        let start = sample % ROWS * ROW;
        let part = |number: usize| {
            let offset = self.chunks[number].start + start as u64;
            let extent = Extent { file: FILE, offset, length: ROW as u32 };
            (extent, &self.contents[number][start..start + ROW])
        };
        (sample / ROWS * ACROSS..(sample / ROWS + 1) * ACROSS).map(part).collect()
    }

    fn recorded(self: &Arc<Self>) -> Arc<Recorded> {
        // Some bytes before the chunks belong to every record.
        let plain = Extent { file: FILE, offset: 500, length: 300 };
        let record = |sample: usize| {
            let parts = self.parts(sample).into_iter().map(|(extent, _)| extent);
            SampleRecord::of(parts.chain([plain])).unwrap()
        };
        Recorded::new(self.clone(), (0..SAMPLES).map(record).collect())
    }

    fn expected(&self, sample: usize) -> Vec<u8> {
        let parts = self.parts(sample).into_iter().flat_map(|(_, bytes)| bytes.iter().copied());
        parts.chain([7; 300]).collect()
    }
}

impl Files for Chunked {
    fn path(&self, _: FileId) -> PathBuf {
        self.directory.path().join("shard")
    }
    fn stamp(&self, _: FileId) -> Option<Stamp> {
        Some(*self.stamp.lock().unwrap())
    }
    fn block(&self, extent: Extent) -> Option<FileBlock> {
        let version = Some(FileVersion(self.version.load(Ordering::Relaxed)));
        let block = |chunk: &SharedChunk| FileBlock::of_chunk(FILE, chunk.clone(), version);
        self.chunks.iter().map(block).find(|block| block.range(extent).is_some())
    }
    fn unpacked(&self) -> Option<&BlockCache> {
        Some(&self.cache)
    }
}

#[test]
fn each_chunk_is_decompressed_once_for_all_its_samples() {
    let seed = 90;
    let mut random = random(seed);
    let slots = pool();
    let chunked = Arc::new(Chunked::new());
    let recorded = chunked.recorded();
    let files: Arc<dyn Files> = chunked.clone();
    let mut decompressed = 0;
    for inner in plain(&files, &slots, 5) {
        let shown = format!("seed {seed}, {}", inner.describe());
        let inner = unpacking(files.clone(), inner, 6, false).unwrap();
        let mut reader = GatherReader::new(recorded.clone(), inner, 4096);
        let mut asked = asked(&recorded, &mut random);
        asked.sort_by_cached_key(|_| random.next_u64());
        let expected = |number: usize| chunked.expected(number);
        let errors = read_records(&mut reader, &slots, &recorded, 4096, &asked, &expected, &shown);
        assert!(errors.is_empty(), "{shown}: {errors:?}");
        assert_eq!((slots.usage().in_use, slots.usage().pieces), (0, 1), "{shown}");
        decompressed += chunked.chunks.len() as u64;
        assert_eq!(chunked.cache.stats().blocks, decompressed, "{shown}");
        for sample in 0..SAMPLES {
            assert!(read_blocking(&*recorded, recorded.extent(sample)).unwrap() == chunked.expected(sample));
        }
        assert_eq!(chunked.cache.stats().blocks, decompressed, "{shown}");
        // A shard that was written again is another version, whose chunks are not yet decompressed.
        chunked.write();
    }
}

#[test]
fn a_damaged_chunk_is_an_error_of_its_samples_or_has_the_right_bytes() {
    let seed = 91;
    let mut random = random(seed);
    let chunked = Arc::new(Chunked::new());
    let good = chunked.bytes.lock().unwrap().clone();
    let mut errors = 0;
    for round in 0..1000 {
        // The chunk whose filters were left out has no checksum.
        let number = [0, 1, 2, 4, 5, 6, 7, 8, 9][random.below(9) as usize];
        let ChunkCell { offset, length, .. } = chunked.chunks[number].cell;
        let mut bytes = good.clone();
        for _ in 0..=random.below(3) {
            let at = offset as usize + random.below(length.into()) as usize;
            bytes[at] = [bytes[at] ^ 1 << random.below(8), random.below(256) as u8][random.below(2) as usize];
        }
        *chunked.bytes.lock().unwrap() = bytes;
        chunked.write();
        let shown = format!("seed {seed}, round {round}, chunk {number}");
        let sample = number / ACROSS * ROWS + random.below(ROWS as u64) as usize;
        for (of, (extent, expected)) in (number / ACROSS * ACROSS..).zip(chunked.parts(sample)) {
            match read_blocking(&*chunked, extent) {
                Ok(found) => assert!(found == expected, "{shown}"),
                Err(error) => {
                    let told = error.to_string();
                    let place =
                        format!("at byte {offset}: a chunk of the array \"x\" cannot be read: its zlib");
                    assert!(of == number && told.contains(&place), "{shown}: {told}");
                    errors += 1;
                }
            }
        }
    }
    assert!(errors > 900, "{errors}");
}
