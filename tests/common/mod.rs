//! Small datasets for the tests, made of real JPEG files in a temporary directory.
#![allow(dead_code, unused_imports, reason = "each test program uses its part")]

mod child;
mod epochs;
pub mod fault;
mod files;
mod fuzz;
pub mod scene;
pub mod secrets;
mod seeds;
pub mod tables;
mod tars;
mod waits;

pub use child::{Killable, await_no_threads, await_steps, child, passes, report_step, succeeds, threads};
pub use epochs::{batches, failure, finished, ids, longs};
use fault::{FaultOptions, FaultReader};
pub use files::files_below;
use foreload::CacheChoice;
use foreload::testing::config::{LoaderConfig, LoaderOptions};
use foreload::testing::dataset::{Contents, DatasetIndex, IndexOptions};
use foreload::testing::decode::forms::{ConvertedFormat, FormatConverter};
use foreload::testing::pipeline::Pipeline;
use foreload::testing::rng::{RandomKey, RandomStream, Use};
use foreload::testing::schedule::LastBatch;
pub use fuzz::fuzz;
use jpeg_encoder::{ColorType, Encoder, SamplingFactor};
pub use seeds::{seeds, thorough};
use sha2::{Digest, Sha256};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::UNIX_EPOCH;
pub use tars::{labelled, tar, tar_of, tar_of_samples};
use tempfile::TempDir;
pub use waits::{Ending, tick, wait_for, wait_until};

/// These options, with changed cache settings.
pub fn with_cache(mut options: LoaderOptions, change: impl FnOnce(&mut CacheChoice)) -> LoaderOptions {
    change(&mut options.cache);
    options
}

/// The seed of a test's choices: `FORELOAD_SEED`, or else the time. Prints the seed.
pub fn printed_seed() -> u64 {
    let given = std::env::var("FORELOAD_SEED").ok().map(|seed| seed.parse().expect("a number"));
    let seed = given.unwrap_or_else(|| UNIX_EPOCH.elapsed().unwrap().as_micros() as u64);
    println!("FORELOAD_SEED={seed}");
    seed
}

/// One frame of zstd.
pub fn zstd(bytes: &[u8]) -> Vec<u8> {
    let mut packed = Vec::with_capacity(zstd_safe::compress_bound(bytes.len()));
    zstd_safe::compress(&mut packed, bytes, 1).unwrap();
    packed
}

/// Returns `length` bytes that look random: the words of SplitMix64 (Steele, Lea and Flood 2014). It is a fast
/// generator, because tests make many megabytes, without compiler optimisation.
pub fn random_bytes(random: &mut RandomStream, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    let mut state = random.next_u64();
    for piece in bytes.chunks_mut(8) {
        state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut word = (state ^ state >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        word = (word ^ word >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        piece.copy_from_slice(&(word ^ word >> 31).to_le_bytes()[..piece.len()]);
    }
    bytes
}

/// A dataset of three classes and its index, both in a temporary directory.
pub struct Dataset {
    directory: TempDir,
    paths: Vec<PathBuf>,
}

impl Dataset {
    /// Makes `samples` JPEG files of different sizes; sample i is `paths[i]`.
    pub fn folder(samples: usize) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let mut paths: Vec<_> = (0..samples)
            .map(|i| directory.path().join(format!("data/class{}/{:05}.jpg", 3 * i / samples, i)))
            .collect();
        paths.sort();
        for (i, path) in paths.iter().enumerate() {
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, jpeg(i as u64)).unwrap();
        }
        let dataset = Self { directory, paths };
        dataset.index();
        dataset
    }

    /// Makes `samples` files like [`Dataset::folder`], of photographs.
    pub fn photographs(samples: usize) -> Self {
        let dataset = Self::folder(samples);
        for (number, path) in (0..).zip(&dataset.paths) {
            std::fs::write(path, photograph(number, 92)).unwrap();
        }
        dataset.indexed_anew()
    }

    /// Makes `samples` JPEG files in tar shards of `each`, the last with the rest; sample i is the i-th file.
    pub fn shards(samples: usize, each: usize) -> Self {
        let directory = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(directory.path().join("data")).unwrap();
        let paths: Vec<_> =
            (0..samples).map(|i| directory.path().join(format!("data/shard-{:03}.tar", i / each))).collect();
        for (number, path) in (0..).zip((0..samples).step_by(each).map(|first| &paths[first])) {
            let numbers = number * each..samples.min((number + 1) * each);
            std::fs::write(path, tar_of_samples(numbers.map(labelled))).unwrap();
        }
        let dataset = Self { directory, paths };
        dataset.index();
        dataset
    }

    /// The index, which the first call builds and later ones load.
    pub fn index(&self) -> Arc<DatasetIndex> {
        self.open(false)
    }

    /// The same files with a new index, which records their current stamps.
    pub fn indexed_anew(self) -> Self {
        self.open(true);
        self
    }

    /// The same dataset in the same place, packed by the program.
    pub fn packed(self) -> Self {
        let (data, loose) = (self.beside("data"), self.beside("loose"));
        std::fs::rename(&data, &loose).unwrap();
        let mut program = Command::new(env!("CARGO_BIN_EXE_foreload"));
        program.arg("pack").args([&loose, &data]).env("FORELOAD_INDEX_DIR", self.beside("other"));
        succeeds(&mut program);
        self.indexed_anew()
    }

    fn open(&self, rebuild: bool) -> Arc<DatasetIndex> {
        let directory = Some(self.directory.path().join("index"));
        let options = IndexOptions { directory, rebuild, ..IndexOptions::default() };
        Arc::new(DatasetIndex::open(&self.directory.path().join("data"), &options).unwrap())
    }

    /// A pipeline with these options.
    pub fn pipeline(&self, options: &LoaderOptions) -> Pipeline {
        pipeline(self.index(), options)
    }

    /// A pipeline whose reads fail, are delayed and are reordered as `faults` says.
    pub fn faulty(&self, options: &LoaderOptions, faults: FaultOptions) -> Pipeline {
        let index = self.index();
        let config = options.check(&index).unwrap();
        let open = move |index: &_, slots: &_, config: &LoaderConfig| {
            let reader =
                foreload::testing::io::open(index, slots, config.io, config.direct, config.queue_depth)?;
            Ok(Box::new(FaultReader::new(reader, faults)) as _)
        };
        Pipeline::with_reader(index, config, Box::new(open))
    }

    /// These options, with a cache next to the data. Its size is `part` times the size of the data.
    pub fn cached(&self, part: f64, options: LoaderOptions) -> LoaderOptions {
        let size = (part * self.index().total_bytes() as f64) as u64;
        with_cache(options, |cache| {
            (cache.directory.path, cache.directory.size) = (Some(self.beside("cache")), Some(size));
        })
    }

    /// A path next to the data, for other files.
    pub fn beside(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// The file of a sample, or its shard.
    pub fn path(&self, sample: usize) -> PathBuf {
        self.paths[sample].clone()
    }

    /// Puts a marker into the middle of a sample's coded data, which ends it; the file keeps its length and its last
    /// bytes.
    pub fn damage(&self, sample: usize) {
        let mut bytes = std::fs::read(&self.paths[sample]).unwrap();
        let middle = bytes.len() * 3 / 5;
        bytes[middle..middle + 2].copy_from_slice(&[0xFF, 0xD9]);
        std::fs::write(&self.paths[sample], bytes).unwrap();
    }

    /// Replaces the file of a sample by its image in another storage format, and returns the new file.
    pub fn bring_to(&self, form: ConvertedFormat, sample: usize) -> Vec<u8> {
        let (file, mut made) = (std::fs::read(&self.paths[sample]).unwrap(), Vec::new());
        FormatConverter::default().make(form, &file, &mut made).unwrap();
        std::fs::write(&self.paths[sample], made).unwrap();
        file
    }

    /// Replaces the file of a sample by its packed image, and returns the new file.
    pub fn pack(&self, sample: usize) -> Vec<u8> {
        self.bring_to(ConvertedFormat::Packed, sample)
    }

    /// Overwrites a sample with the same number of bytes, which are no image.
    pub fn spoil(&self, sample: usize) {
        let length = std::fs::metadata(&self.paths[sample]).unwrap().len() as usize;
        let page = "<!DOCTYPE html> not found ".repeat(length);
        std::fs::write(&self.paths[sample], &page.as_bytes()[..length]).unwrap();
    }
}

/// A pipeline of the samples of an index.
pub fn pipeline(index: impl Into<Arc<DatasetIndex>>, options: &LoaderOptions) -> Pipeline {
    let index = index.into();
    let config = options.check(&index).unwrap();
    Pipeline::new(index, config)
}

/// A pipeline of the dataset at `root`, whose index is kept in `index_dir`.
pub fn open(
    root: &Path,
    index_dir: PathBuf,
    contents: Contents,
    options: &LoaderOptions,
) -> foreload::Result<Pipeline> {
    let options = LoaderOptions { index_dir: Some(index_dir), ..options.clone() };
    let checked = options.validate()?;
    let index = Arc::new(DatasetIndex::open(root, &checked.index_options(contents))?);
    Ok(Pipeline::new(index.clone(), checked.check(&index)?))
}

/// Options for small images on the CPU, of every sample in each epoch.
pub fn small_images() -> LoaderOptions {
    LoaderOptions {
        batch_size: 16,
        image_size: (32, 32),
        seed: 5,
        threads: Some(2),
        last_batch: Some(LastBatch::Partial),
        device: "cpu".into(),
        ..LoaderOptions::default()
    }
}

/// A JPEG file of gradients and noise, whose size and content are drawn from `number`.
pub fn jpeg(number: u64) -> Vec<u8> {
    let mut stream = RandomKey::new(b"test image", 0, 0, Use::Augment).stream(number);
    let (width, height) = (40 + stream.below(60) as u16, 40 + stream.below(60) as u16);
    let mut pixels = Vec::new();
    for y in 0..u32::from(height) {
        for x in 0..u32::from(width) {
            let noise = stream.next_u32() & 15;
            pixels.extend_from_slice(&[(2 * x + noise) as u8, (3 * y + noise) as u8, (x + y + noise) as u8]);
        }
    }
    let mut bytes = Vec::new();
    Encoder::new(&mut bytes, 85).encode(&pixels, width, height, ColorType::Rgb).unwrap();
    bytes
}

/// A JPEG file of this quality, large enough to be read in parts. Its size, sampling and content are drawn from
/// `number`.
pub fn photograph(number: u64, quality: u8) -> Vec<u8> {
    let mut stream = RandomKey::new(b"parts", 0, 0, Use::Augment).stream(number);
    let (width, height) = (250 + stream.below(200) as u16, 250 + stream.below(250) as u16);
    let pixels: Vec<u8> = (0..3 * usize::from(width) * usize::from(height))
        .map(|at| ((at / 500) as u8).wrapping_add(stream.below(60) as u8))
        .collect();
    let mut file = Vec::new();
    let mut encoder = Encoder::new(&mut file, quality);
    let factors = [SamplingFactor::F_2_2, SamplingFactor::F_1_1, SamplingFactor::F_2_1];
    encoder.set_sampling_factor(factors[number as usize % 3]);
    encoder.encode(&pixels, width, height, ColorType::Rgb).unwrap();
    file
}

/// A small PNG file.
pub fn png(level: u8) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut encoder = png::Encoder::new(&mut bytes, 50, 40);
    encoder.set_color(png::ColorType::Rgb);
    encoder.write_header().unwrap().write_image_data(&vec![level; 50 * 40 * 3]).unwrap();
    bytes
}

/// A gray WebP file of the same size as [`png`].
pub fn webp(level: u8) -> Vec<u8> {
    let mut bytes = Vec::new();
    let encoder = image_webp::WebPEncoder::new(&mut bytes);
    encoder.encode(&vec![level; 50 * 40], 50, 40, image_webp::ColorType::L8).unwrap();
    bytes
}

/// The SHA-256 of everything that a consumer of the whole epoch sees.
pub fn epoch_bytes(pipeline: &Pipeline, number: u64) -> [u8; 32] {
    let mut epoch = pipeline.epoch(number, 0, 1, 0).unwrap();
    let mut hash = Sha256::new();
    while let Some(batch) = epoch.next_batch().unwrap() {
        for tensor in [batch.images(), batch.labels(), batch.sample_ids(), batch.mask()] {
            hash.update(tensor.bytes());
        }
    }
    hash.finalize().into()
}
