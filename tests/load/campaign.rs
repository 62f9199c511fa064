//! Many short runs over datasets and caches that are changed and damaged before, during and between runs: every byte
//! that is delivered is the source's. A failure prints its seed; `FORELOAD_FAULT_RUNS` sets more runs in `make
//! thorough`.

use super::store::world::on_tmpfs;
use crate::common::fault::{FaultOptions, FaultReader};
use crate::common::{Dataset, Killable, await_steps, child, ids, report_step, seeds};
use foreload::testing::config::{LoaderOptions, OnError};
use foreload::testing::io::IoChoice;
use foreload::testing::pipeline::Pipeline;
use foreload::testing::rng::{RandomKey, RandomStream, Use};
use foreload::testing::tier::{FillChoice, Verify};
use foreload::{CacheChoice, DirectoryChoice, Shuffling};
use std::collections::{BTreeMap, HashSet};
use std::fs::{self, File};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;

const SAMPLES: usize = 30;
/// The number of runs over one dataset and its cache.
const RUNS_OF_A_WORLD: u64 = 100;

/// How often each event happened, and each result was found.
type Tally = BTreeMap<&'static str, u64>;

struct Scene<'a> {
    dataset: Dataset,
    cache: PathBuf,
    random: RandomStream,
    tally: &'a mut Tally,
}

impl Scene<'_> {
    fn count(&mut self, what: &'static str, times: u64) {
        *self.tally.entry(what).or_default() += times;
    }

    fn chance(&mut self, percent: u64) -> bool {
        self.random.below(100) < percent
    }

    /// The bytes of the source, sample by sample.
    fn truth(&self) -> Vec<Vec<u8>> {
        let index = self.dataset.index();
        let read = |sample| {
            let extent = index.extent(sample);
            let mut bytes = vec![0; extent.length as usize];
            File::open(index.path(extent.file)).unwrap().read_exact_at(&mut bytes, extent.offset).unwrap();
            bytes
        };
        (0..SAMPLES as u64).map(read).collect()
    }

    /// Replaces some samples by others of the same size: in place or by another file, with the time set back or not.
    /// Returns the state of the source after each change, because a run may read it at that moment.
    fn change_samples(&mut self) -> Vec<Vec<Vec<u8>>> {
        let mut versions = Vec::new();
        for _ in 0..1 + self.random.below(4) {
            let index = self.dataset.index();
            let extent = index.extent(self.random.below(SAMPLES as u64));
            let path = index.path(extent.file);
            let modified = fs::metadata(&path).unwrap().modified().unwrap();
            let mut bytes = fs::read(&path).unwrap();
            let sample = &mut bytes[extent.offset as usize..][..extent.length as usize];
            // The place is after the bytes that identify the file as an image.
            let at = 20 + self.random.below(sample.len() as u64 - 40) as usize;
            sample[at..at + 8]
                .iter_mut()
                .for_each(|byte| *byte = byte.wrapping_add(1 + self.random.below(255) as u8));
            if self.chance(50) {
                fs::write(&path, &bytes).unwrap();
                self.count("overwritten", 1);
            } else {
                let new = self.dataset.beside("new");
                fs::write(&new, &bytes).unwrap();
                fs::rename(&new, &path).unwrap();
                self.count("replaced", 1);
            }
            if self.chance(50) {
                File::options().write(true).open(&path).unwrap().set_modified(modified).unwrap();
            }
            versions.push(self.truth());
        }
        versions
    }

    fn files(directory: &Path, suffix: &str) -> Vec<PathBuf> {
        let mut found = Vec::new();
        let mut left = vec![directory.to_path_buf()];
        while let Some(directory) = left.pop() {
            for path in fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path()) {
                if path.is_dir() {
                    left.push(path);
                } else if path.to_str().is_some_and(|name| name.ends_with(suffix)) {
                    found.push(path);
                }
            }
        }
        found.sort();
        found
    }

    /// Flips bytes of a file, truncates it, empties it or removes it.
    fn damage(&mut self, path: &Path) {
        let mut bytes = fs::read(path).unwrap_or_default();
        match self.random.below(5) {
            0 | 1 if !bytes.is_empty() => {
                for _ in 0..1 + self.random.below(20) {
                    let at = self.random.below(bytes.len() as u64) as usize;
                    bytes[at] ^= 1 << self.random.below(8);
                }
                let _ = fs::write(path, &bytes);
            }
            2 => {
                bytes.truncate(self.random.below(bytes.len() as u64 + 1) as usize);
                let _ = fs::write(path, &bytes);
            }
            3 => drop(fs::write(path, [])),
            _ => drop(fs::remove_file(path)),
        }
    }

    /// Changes or damages the dataset, the index or the cache.
    fn trouble(&mut self) {
        match self.random.below(7) {
            0 | 1 => drop(self.change_samples()),
            2 => {
                for path in Self::files(&self.dataset.beside("index"), ".index") {
                    self.damage(&path);
                }
                self.count("index damaged", 1);
            }
            3 | 4 => {
                for path in Self::files(&self.cache, ".seg") {
                    if self.chance(40) {
                        self.damage(&path);
                        self.count("segments damaged", 1);
                    }
                }
            }
            5 => {
                let segments = Self::files(&self.cache, ".seg");
                if let [first, .., last] = &segments[..] {
                    let aside = first.with_extension("aside");
                    let _ = fs::rename(first, &aside).and_then(|()| fs::rename(last, first));
                    let _ = fs::rename(aside, last);
                    self.count("segments swapped", 1);
                }
            }
            _ => {
                self.damage(&self.cache.join("lock"));
                self.count("lock damaged", 1);
                if fs::metadata(self.cache.join("lock")).is_ok_and(|found| ![0, 32].contains(&found.len())) {
                    // A damaged lock file might belong to another program, so Foreload leaves it, and the user removes
                    // it.
                    let _ = fs::remove_file(self.cache.join("lock"));
                }
            }
        }
    }

    fn options(&mut self) -> LoaderOptions {
        let size = [20_000, 60_000, 400_000, 8 << 20][self.random.below(4) as usize];
        let fill = [FillChoice::Use, FillChoice::Ahead][self.random.below(2) as usize];
        let verify = if self.chance(20) { Verify::Checksum } else { Verify::Stamp };
        LoaderOptions {
            batch_size: 1 + self.random.below(8) as u32,
            seed: self.random.below(1 << 40),
            threads: Some(1),
            decoded: false,
            train: Some(self.chance(50)),
            shuffle: Some(Shuffling::On),
            last_batch: Some(foreload::testing::schedule::LastBatch::Partial),
            device: "cpu".into(),
            memory: Some(24 << 20),
            io: if self.chance(50) { IoChoice::Pread } else { IoChoice::Auto },
            queue_depth: Some(2 + self.random.below(8) as u32),
            cache: CacheChoice {
                directory: DirectoryChoice {
                    path: Some(self.cache.clone()),
                    size: Some(size),
                    fill,
                    ..Default::default()
                },
                ..Default::default()
            },
            verify,
            on_error: OnError::Zero,
            max_errors: Some(SAMPLES as u64),
            ..LoaderOptions::default()
        }
    }

    /// Does a run of one to three epochs, and compares it with the source, or, if the source changed during the run,
    /// with any state that it had.
    fn run(&mut self, what: &str) {
        while self.chance(60) {
            self.trouble();
        }
        let options = self.options();
        let index = self.dataset.index();
        let config = options.check(&index).unwrap();
        let faults = self.chance(40).then(|| FaultOptions {
            errors: 5,
            cancelled: 5,
            ..FaultOptions::everything(options.seed)
        });
        self.count("runs with failing reads", u64::from(faults.is_some()));
        let open = move |index: &_, slots: &_, config: &foreload::testing::config::LoaderConfig| {
            let reader =
                foreload::testing::io::open(index, slots, config.io, config.direct, config.queue_depth)?;
            Ok(match faults {
                Some(faults) => Box::new(FaultReader::new(reader, faults)),
                None => reader,
            })
        };
        let pipeline = Pipeline::with_reader(index, config, Box::new(open));
        let mut versions = vec![self.truth()];
        let mut changed = false;
        for number in 0..1 + self.random.below(3) {
            if number > 0 && self.chance(30) {
                versions.extend(self.change_samples());
                changed = true;
            }
            let mut epoch = pipeline.epoch(number, 0, 1, 0).unwrap();
            let mut delivered = 0;
            while let Some(batch) =
                epoch.next_batch().unwrap_or_else(|error| panic!("{what}, epoch {number}: {error}"))
            {
                let ids = ids(&batch).into_iter().map(|id| id as u64);
                let failed: HashSet<u64> =
                    epoch.failures().lock().unwrap().iter().map(|failure| failure.sample).collect();
                for (id, file) in ids.zip(batch.encoded()) {
                    if failed.contains(&id) && file.bytes().is_empty() {
                        assert!(
                            faults.is_some() || changed,
                            "{what}: sample {id} failed: {:?}",
                            epoch.failures()
                        );
                        continue;
                    }
                    let right = versions.iter().any(|version| version[id as usize] == file.bytes());
                    assert!(
                        right,
                        "{what}, epoch {number}: sample {id} has bytes that it never had in this run"
                    );
                    if number == 0 {
                        assert!(
                            versions[0][id as usize] == file.bytes(),
                            "{what}: sample {id} has old bytes"
                        );
                    }
                    delivered += 1;
                }
            }
            self.count("samples delivered", delivered);
        }
        if let Some(cache) = pipeline.cache() {
            let stats = cache.stats();
            self.count("from the cache", stats.all().hits);
            self.count("stale copies refused", stats.all().stale);
            self.count("damage found", stats.all().damaged + stats.all().fallbacks);
            self.count("failed writes", stats.all().write_errors);
        } else {
            self.count("runs without a cache", 1);
        }
    }
}

/// Does `runs` over one dataset, with one cache in `base`.
fn campaign(base: &Path, runs: Range<u64>, tally: &mut Tally) {
    let mut dataset = match is_folder(runs.start) {
        true => Dataset::folder(SAMPLES),
        false => Dataset::shards(SAMPLES, 8),
    };
    let cache = base.join("cache");
    for run in runs {
        let random = RandomKey::new(b"campaign", run, 0, Use::Order).stream(0);
        let mut scene = Scene { dataset, cache: cache.clone(), random, tally };
        if scene.chance(4) {
            kill_one(&mut scene);
        }
        scene.run(&format!("FORELOAD_SEED={run}"));
        scene.count("runs", 1);
        dataset = scene.dataset;
    }
}

/// Whether the dataset of a run is a folder; otherwise it is shards.
fn is_folder(run: u64) -> bool {
    (run / RUNS_OF_A_WORLD).is_multiple_of(2)
}

/// Whether the drive of a run's cache is full before the quota is reached; otherwise it has enough space. Two
/// consecutive worlds have one of each, and four have all combinations with the dataset's kind.
fn is_drive_small(run: u64) -> bool {
    let world = run / RUNS_OF_A_WORLD;
    (world + world / 2).is_multiple_of(2)
}

/// Kills a process that fills the cache, at a random moment.
fn kill_one(scene: &mut Scene<'_>) {
    let variables = [
        ("CAMPAIGN_DATA", scene.dataset.beside("data")),
        ("CAMPAIGN_INDEX", scene.dataset.beside("index")),
        ("CAMPAIGN_CACHE", scene.cache.clone()),
    ];
    let mut command = child(fills_until_killed);
    let mut process = Killable::start(command.envs(variables).stdout(Stdio::piped()).stderr(Stdio::null()));
    // A step is a batch. The process ends early if it notices a change that the campaign has made.
    let steps = 6 + scene.random.below(60);
    let is_there = await_steps(process.0.stdout.as_mut().unwrap(), steps, || {});
    process.kill();
    scene.count(if is_there { "processes killed" } else { "processes ended" }, 1);
}

#[test]
#[ignore = "run and killed by the test below, in a process of its own"]
fn fills_until_killed() {
    let told = |name| PathBuf::from(std::env::var_os(name).expect("set by the test that runs this one"));
    let options = foreload::testing::dataset::IndexOptions {
        directory: Some(told("CAMPAIGN_INDEX")),
        ..foreload::testing::dataset::IndexOptions::default()
    };
    let index = foreload::testing::dataset::DatasetIndex::open(&told("CAMPAIGN_DATA"), &options).unwrap();
    let asked = LoaderOptions {
        batch_size: 2,
        threads: Some(1),
        decoded: false,
        device: "cpu".into(),
        memory: Some(24 << 20),
        cache: CacheChoice::in_directory(told("CAMPAIGN_CACHE"), 100_000),
        ..LoaderOptions::default()
    };
    let config = asked.check(&index).unwrap();
    let pipeline = Pipeline::new(index.into(), config);
    for number in 0.. {
        let mut epoch = pipeline.epoch(number, 0, 1, 0).unwrap();
        while epoch.next_batch().unwrap().is_some() {
            report_step();
        }
    }
}

#[test]
fn no_byte_is_wrong_whatever_happens() {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().expect("a number"));
    let chosen = match number("FORELOAD_SEED") {
        Some(seed) => {
            let first = seed / RUNS_OF_A_WORLD * RUNS_OF_A_WORLD;
            first..first + RUNS_OF_A_WORLD
        }
        None => seeds(number("FORELOAD_FAULT_RUNS").unwrap_or(2000)),
    };
    let mut tally = Tally::new();
    let mut next = chosen.start;
    while next < chosen.end {
        let runs = next..(next + 1).next_multiple_of(RUNS_OF_A_WORLD).min(chosen.end);
        next = runs.end;
        let is_small = is_drive_small(runs.start);
        if !(is_small && on_tmpfs(300 << 10, |path| campaign(path, runs.clone(), &mut tally))) {
            campaign(tempfile::tempdir().unwrap().path(), runs, &mut tally);
        }
    }
    println!("seeds {chosen:?}: {tally:#?}");
    assert!(
        tally["from the cache"] > 0 && tally["samples delivered"] > 10 * tally["runs"],
        "nothing was shown: {tally:?}"
    );
}
