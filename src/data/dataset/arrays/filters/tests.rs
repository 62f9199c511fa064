//! Chunks that numcodecs, h5py and hdf5plugin wrote (`tests/fixtures/writers/chunks.py`), whole and damaged.

use super::*;
use base::rng::{RandomKey, RandomStream, Use};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use flate2::read::GzDecoder;

const CHUNKS: &[u8] = include_bytes!("../../../../../tests/fixtures/chunks/filters.jsonl.gz");

#[derive(Deserialize)]
struct Golden {
    name: String,
    filters: Vec<ChunkFilter>,
    mask: u32,
    content: String,
    size: usize,
    count: usize,
    chunk: String,
}

impl Golden {
    fn all() -> Vec<Self> {
        let lines = serde_json::Deserializer::from_reader(GzDecoder::new(CHUNKS));
        lines.into_iter().map(Result::unwrap).collect()
    }

    fn chunk(&self) -> Vec<u8> {
        BASE64_STANDARD.decode(&self.chunk).unwrap()
    }

    /// What the chunk was made of; the same as in `chunks.py`.
    fn content(&self) -> Vec<u8> {
        let step = |i: u64| (i * i / 7 % 1000 + i / 3).to_le_bytes();
        let noise = |i: u64| ((i + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8;
        let padded = |bytes: [u8; 8]| bytes.into_iter().chain([0; 16]).take(self.size).collect::<Vec<_>>();
        match self.content.as_str() {
            "steps" => (0..self.count as u64).flat_map(|i| padded(step(i))).collect(),
            "ramps" => (0..self.count as u64).flat_map(|i| padded((i / 16 * 3).to_le_bytes())).collect(),
            "plateaus" => (0..self.count as u64).flat_map(|i| padded((i / 2048).to_le_bytes())).collect(),
            _ => (0..(self.size * self.count) as u64).map(noise).collect(),
        }
    }

    fn unpack(&self, chunk: &[u8], scratch: &mut ChunkScratch) -> Result<Vec<u8>, String> {
        unpack_chunk(&self.filters, self.mask, chunk, self.size * self.count, scratch).map(<[u8]>::to_vec)
    }

    /// Whether every damage must be an error.
    fn has_checksum(&self) -> bool {
        let last = (0..self.filters.len()).rev().find(|&number| !is_left_out(self.mask, number));
        let last = last.map(|number| &self.filters[number]);
        matches!(last, Some(ChunkFilter::Checksum { .. } | ChunkFilter::Zlib))
    }
}

#[test]
fn chunks_are_what_the_libraries_packed() {
    let mut scratch = ChunkScratch::default();
    let all = Golden::all();
    assert!(all.len() > 60, "{}", all.len());
    for golden in all.iter().chain(all.iter().rev()) {
        let (chunk, content) = (golden.chunk(), golden.content());
        let found =
            golden.unpack(&chunk, &mut scratch).unwrap_or_else(|error| panic!("{}: {error}", golden.name));
        assert!(found == content, "{}", golden.name);
        check_filters(&golden.filters, content.len() as u64).unwrap();
        assert!(chunk.len() as u64 <= most_packed(content.len() as u64), "{}", golden.name);
    }
}

#[test]
fn a_truncated_or_longer_chunk_is_an_error() {
    let mut scratch = ChunkScratch::default();
    for golden in Golden::all() {
        let chunk = golden.chunk();
        for length in 0..chunk.len() {
            assert!(golden.unpack(&chunk[..length], &mut scratch).is_err(), "{}: {length}", golden.name);
        }
        let longer = [&chunk[..], b"x"].concat();
        assert!(golden.unpack(&longer, &mut scratch).is_err(), "{}", golden.name);
        for expected in [0, 1, golden.size * golden.count - 1, golden.size * golden.count + 1] {
            let found = unpack_chunk(&golden.filters, golden.mask, &chunk, expected, &mut scratch);
            assert!(found.is_err(), "{}: {expected} bytes", golden.name);
        }
    }
}

/// Flips bits, sets bytes, cuts, extends or copies.
fn damage(bytes: &mut Vec<u8>, random: &mut RandomStream) {
    for _ in 0..=random.below(3) {
        let Some(last) = (bytes.len() as u64).checked_sub(1) else { return };
        // Headers are damaged as often as all else.
        let most = if random.below(2) == 0 { last.min(20) } else { last };
        let at = random.below(most + 1) as usize;
        match random.below(8) {
            0..3 => bytes[at] ^= 1 << random.below(8),
            3 => bytes[at] = [0, 1, 0x7f, 0x80, 0xff][random.below(5) as usize],
            4 => bytes[at] = random.below(256) as u8,
            5 => bytes.truncate(at),
            6 => bytes.extend((0..random.below(40)).map(|_| 0)),
            _ => {
                let end = bytes.len().min(at + random.below(9) as usize);
                bytes.copy_within(at..end, random.below(at as u64 + 1) as usize);
            }
        }
    }
}

#[test]
fn damaged_chunks_are_errors_or_have_the_size() {
    let seed = std::env::var("FORELOAD_FUZZ_SEED").map_or(1, |seed| seed.parse().unwrap());
    println!("FORELOAD_FUZZ_SEED={seed}");
    let mut random = RandomKey::new(&[], seed, 0, Use::Augment).stream(0);
    let mut scratch = ChunkScratch::default();
    for golden in Golden::all() {
        let (chunk, content) = (golden.chunk(), golden.content());
        // Long contents take long to decode.
        let rounds = if content.len() > 10_000 { 200 } else { 1000 };
        for _ in 0..rounds {
            let mut damaged = chunk.clone();
            damage(&mut damaged, &mut random);
            match golden.unpack(&damaged, &mut scratch) {
                Ok(found) if golden.has_checksum() => {
                    assert!(damaged == chunk || found == content, "{}: unnoticed damage", golden.name);
                }
                Ok(found) => assert_eq!(found.len(), content.len(), "{}", golden.name),
                Err(error) => assert!(error.starts_with("its "), "{}: {error}", golden.name),
            }
        }
        // Afterwards, the memory still serves.
        assert!(golden.unpack(&chunk, &mut scratch).unwrap() == content, "{}", golden.name);
    }
}

#[test]
fn any_filters_over_any_bytes_cause_no_panic() {
    let mut random = RandomKey::new(&[], 2, 0, Use::Augment).stream(0);
    let mut scratch = ChunkScratch::default();
    let known: Vec<ChunkFilter> = Golden::all().into_iter().flat_map(|golden| golden.filters).collect();
    for _ in 0..10_000 {
        let size = [0, 1, 2, 3, 4, 8, 255, u32::MAX][random.below(8) as usize];
        let filters: Vec<ChunkFilter> = (0..random.below(4))
            .map(|_| match random.below(8) {
                0 => ChunkFilter::Shuffle { size },
                1 => ChunkFilter::Bitshuffle { size, block: size, packing: BlockPacking::Plain },
                2 => ChunkFilter::Delta { size, big_endian: true },
                3 => ChunkFilter::Transpose { size, shape: vec![3, u64::from(size)], order: vec![1, size] },
                4 => ChunkFilter::Transpose { size, shape: vec![2, 3], order: vec![1, 0] },
                _ => known[random.below(known.len() as u64) as usize].clone(),
            })
            .collect();
        let mut bytes = vec![0; random.below(60) as usize];
        bytes.iter_mut().for_each(|byte| *byte = random.below(256) as u8);
        let (mask, expected) = (random.below(16) as u32, random.below(70) as usize);
        let _ = check_filters(&filters, expected as u64);
        let found = unpack_chunk(&filters, mask, &bytes, expected, &mut scratch);
        assert!(found.is_err() || found.is_ok_and(|found| found.len() == expected), "{filters:?}");
    }
}

#[test]
fn what_is_not_read_is_refused_by_name() {
    let refused = |filters: &[ChunkFilter], bytes| check_filters(filters, bytes).unwrap_err();
    assert!(refused(&[ChunkFilter::Zlib], LARGEST_BLOCK + 1).contains("the limit is 256 MiB: write smaller"));
    let twice = refused(&[ChunkFilter::Gzip, ChunkFilter::Blosc], 8);
    assert_eq!(twice, "is compressed twice, with gzip and blosc, which is not read: compress it once");
    assert!(refused(&[ChunkFilter::Shuffle { size: 0 }], 8).contains("of 0 bytes"));
    assert!(
        refused(&[ChunkFilter::Delta { size: 3, big_endian: false }], 9).contains("must be 1, 2, 4 or 8")
    );
    let order = ChunkFilter::Transpose { size: 2, shape: vec![2, 2], order: vec![0, 0] };
    assert!(refused(&[order], 8).contains("do not match"));
    let mut chunk = [0; 24];
    chunk[0] = 5;
    let mut scratch = ChunkScratch::default();
    let error = unpack_chunk(&[ChunkFilter::Blosc], 0, &chunk, 8, &mut scratch).unwrap_err();
    assert!(error.contains("version 5, only Blosc 1"), "{error}");
    assert_eq!(unpack_chunk(&[], 0, b"ab", 2, &mut scratch), Ok(&b"ab"[..]));
    assert!(unpack_chunk(&[], 0, b"ab", 3, &mut scratch).unwrap_err().starts_with("its size is wrong"));
}
