//! A dataset in one shard whose bytes are known, caches for it, and processes that fill them.

use crate::common::{files_below, random_bytes, tar_of_samples, wait_until};
use foreload::testing::dataset::{DatasetIndex, FileId, FileVersion, IndexOptions, Stamp};
use foreload::testing::rng::{RandomKey, RandomStream, Use};
use foreload::testing::tier::store::{Offer, Store, StoreOptions, checksum};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tempfile::TempDir;

/// The random numbers of a test.
pub fn random(seed: u64) -> RandomStream {
    RandomKey::new(b"store tests", seed, 0, Use::Order).stream(0)
}

/// The numbers below `count` in a random order.
pub fn shuffled(count: u64, random: &mut RandomStream) -> Vec<u64> {
    let mut order: Vec<u64> = (0..count).collect();
    for i in (1..order.len()).rev() {
        order.swap(i, random.below(i as u64 + 1) as usize);
    }
    order
}

/// A quota that holds all samples of a test.
pub const PLENTY: u64 = 64 << 20;

/// A dataset and the bytes of its only shard.
pub struct World {
    pub index: Arc<DatasetIndex>,
    shard: Vec<u8>,
    /// The directory of all files of the test. The process that made it removes it.
    pub base: PathBuf,
    _directory: Option<TempDir>,
}

impl World {
    /// Makes `samples` samples of up to `largest` bytes, one of them of exactly that many.
    pub fn new(seed: u64, samples: u64, largest: u64) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let base = directory.path().to_path_buf();
        write_dataset(&base.join("data"), seed, samples, largest);
        Self { _directory: Some(directory), ..Self::at(&base) }
    }

    /// The world that another process made.
    pub fn at(base: &Path) -> Self {
        let options = IndexOptions { directory: Some(base.join("index")), ..IndexOptions::default() };
        let index = DatasetIndex::open(&base.join("data"), &options).expect("an index");
        let shard = fs::read(base.join("data/all.tar")).expect("the shard");
        Self { index: Arc::new(index), shard, base: base.to_path_buf(), _directory: None }
    }

    pub fn bytes(&self, sample: u64) -> &[u8] {
        let extent = self.index.extent(sample);
        &self.shard[extent.offset as usize..][..extent.length as usize]
    }

    /// The version of the shard, and so of all samples.
    pub fn version(&self) -> FileVersion {
        self.index.shard_version(FileId(0)).expect("a shard")
    }

    /// The bytes of all samples.
    pub fn total(&self) -> u64 {
        self.index.total_bytes()
    }

    pub fn cache(&self) -> PathBuf {
        self.base.join("cache")
    }

    /// Options for small segments and batches, so that there are many.
    pub fn options(&self, quota: u64) -> StoreOptions {
        small(self.cache(), quota)
    }

    pub fn open(&self, quota: u64) -> Arc<Store> {
        self.open_with(&self.options(quota))
    }

    pub fn open_with(&self, options: &StoreOptions) -> Arc<Store> {
        Store::open(options, &self.index).expect("a store")
    }

    /// Offers samples until all are accepted or finally refused, and waits for the writer if necessary.
    pub fn offer_all(&self, store: &Store, samples: impl IntoIterator<Item = u64>) {
        for sample in samples {
            while store.offer(0, sample, self.version(), self.bytes(sample)) == Offer::Busy {
                std::thread::yield_now();
            }
        }
    }

    /// Offers samples like [`World::offer_all`], and waits until they are published.
    pub fn store_all(&self, store: &Store, samples: impl IntoIterator<Item = u64>) {
        self.offer_all(store, samples);
        store.flush();
    }

    /// Reads all located samples and checks their bytes. Returns their number.
    pub fn check(&self, store: &Store, what: &str) -> u64 {
        let found = (0..self.index.len()).filter(|&sample| self.read(store, sample, what) == Some(true));
        found.count() as u64
    }

    /// Whether a located sample has the right bytes; `None` if it is not located, or was evicted.
    pub fn read(&self, store: &Store, sample: u64, what: &str) -> Option<bool> {
        let location = store.locate(sample)?;
        assert_eq!(location.extent.length, self.index.extent(sample).length, "{what}: sample {sample}");
        let path = store.files().path(location.extent.file);
        let file = File::open(&path).unwrap_or_else(|error| panic!("{what}: {}: {error}", path.display()));
        let mut bytes = vec![0; location.extent.length as usize];
        file.read_exact_at(&mut bytes, location.extent.offset).expect("the located bytes");
        let metadata = file.metadata().expect("metadata");
        let stamp = store.files().stamp(location.extent.file).expect("segments are shards");
        let difference = stamp.difference(Stamp::of(&metadata));
        assert_eq!(difference, None, "{what}: {}", path.display());
        assert_eq!(Some(checksum(&bytes)), location.crc, "{what}: checksum of sample {sample}");
        assert!(bytes == self.bytes(sample), "{what}: wrong bytes of sample {sample}");
        Some(true)
    }

    /// The paths of all segments.
    pub fn segments(&self) -> Vec<PathBuf> {
        segments(&self.cache())
    }
}

/// Options for a small cache with small segments and batches.
pub fn small(directory: impl Into<PathBuf>, quota: u64) -> StoreOptions {
    let options = StoreOptions::new(directory, quota);
    StoreOptions { segment_bytes: Some(96 << 10), write_buffers: 128 << 10, ..options }
}

/// Writes a shard of random samples.
pub fn write_dataset(root: &Path, seed: u64, samples: u64, largest: u64) {
    fs::create_dir_all(root).expect("a directory");
    let mut random = random(seed);
    let tar = tar_of_samples((0..samples).map(|sample| {
        let length = if sample == 0 { largest } else { 1 + random.below(largest) };
        let bytes = random_bytes(&mut random, length as usize);
        (format!("{sample:06}"), [("cls", b"0".to_vec()), ("jpg", bytes)])
    }));
    fs::write(root.join("all.tar"), tar).expect("a shard");
}

/// The paths of all segments of all datasets in a cache.
pub fn segments(cache: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(cache).expect("the cache") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            let Ok(entries) = fs::read_dir(path) else { continue };
            found.extend(entries.map(|entry| entry.expect("an entry").path()));
        }
    }
    found.retain(|path| path.extension().is_some_and(|extension| extension == "seg"));
    found.sort();
    found
}

/// The bytes of all segments, in pages of 4 KiB, at one instant; `None` if the cache changed during the sum.
pub fn linked(cache: &Path) -> Option<u64> {
    let generation = || {
        let mut bytes = [0; 8];
        File::open(cache.join("lock")).ok()?.read_exact_at(&mut bytes, 24).ok()?;
        Some(bytes)
    };
    let before = generation()?;
    let mut sum = 0;
    for path in segments(cache) {
        sum += fs::metadata(path).ok()?.len().next_multiple_of(4096);
    }
    (generation()? == before).then_some(sum)
}

/// All files of a cache that are neither segments nor permanent.
pub fn leftovers(cache: &Path) -> Vec<PathBuf> {
    let is_known = |path: &PathBuf| {
        ["lock", "CACHEDIR.TAG", "used", "dataset.json"].iter().any(|name| path.ends_with(name))
            || path.extension().is_some_and(|extension| extension == "seg")
    };
    files_below(cache).into_iter().filter(|path| !is_known(path)).collect()
}

/// The value of a variable that was set for a child.
pub fn told(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| panic!("{name} is set by the test that runs this one"))
}

/// Runs `work` on a tmpfs of `bytes` bytes that only its thread and child processes can see. Returns whether that was
/// possible.
pub fn on_tmpfs(bytes: u64, work: impl FnOnce(&Path) + Send) -> bool {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path();
    std::thread::scope(|scope| {
        let thread = scope.spawn(move || match mount(path, bytes) {
            Ok(()) => {
                work(path);
                true
            }
            Err(error) => {
                eprintln!("skipped: no tmpfs can be mounted here: {error}");
                false
            }
        });
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

fn mount(path: &Path, bytes: u64) -> std::io::Result<()> {
    let text = |text: &str| std::ffi::CString::new(text).expect("no zero bytes");
    let (target, options) = (text(path.to_str().expect("UTF-8")), text(&format!("size={bytes}")));
    let (tmpfs, root) = (text("tmpfs"), text("/"));
    let null = std::ptr::null();
    // SAFETY: the strings live as long as the calls; a null source or type is allowed if only flags change.
    let failed = unsafe {
        libc::unshare(libc::CLONE_NEWNS) != 0
            || libc::mount(null, root.as_ptr(), null, libc::MS_REC | libc::MS_PRIVATE, null.cast()) != 0
            || libc::mount(tmpfs.as_ptr(), target.as_ptr(), tmpfs.as_ptr(), 0, options.as_ptr().cast()) != 0
    };
    if failed { Err(std::io::Error::last_os_error()) } else { Ok(()) }
}

/// Makes the file system at `path` read-only.
pub fn make_read_only(path: &Path) {
    let target = std::ffi::CString::new(path.to_str().unwrap()).unwrap();
    let (flags, null) = (libc::MS_REMOUNT | libc::MS_RDONLY, std::ptr::null());
    // A process that another test is starting shares our descriptors for a moment.
    wait_until("no process writes there", || {
        // SAFETY: the string lives as long as the call; a remount ignores source and type.
        let failed = unsafe { libc::mount(null, target.as_ptr(), null, flags, null.cast()) } != 0;
        assert!(!failed || std::io::Error::last_os_error().raw_os_error() == Some(libc::EBUSY));
        !failed
    });
}

/// The used bytes of a file system, including files without a name.
pub fn taken(path: &Path) -> u64 {
    let found = rustix::fs::statvfs(path).expect("a file system");
    (found.f_blocks - found.f_bfree) * found.f_frsize
}
