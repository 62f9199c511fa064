//! How copies are verified to match the source, and the current versions of the source's files.

use base::names::named;
use data::dataset::{DatasetIndex, Extent, FileVersion};
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// The proof that a copy matches the source, when a run uses it for the first time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Verify {
    /// The stamp of the source's file shows that the copy is of the current version.
    #[default]
    Stamp,
    /// The source's bytes are read once a run and compared with the copy's checksum.
    Checksum,
    /// Nothing is compared, because the user states that files never change.
    Never,
}

impl Verify {
    /// Whether each epoch compares copies again: arrays in local files are often rewritten in place.
    pub(in crate::tier) fn compares_in_each_epoch(self, index: &DatasetIndex) -> bool {
        self == Self::Stamp && index.has_arrays() && !index.has_remote()
    }
}

// `Verify::Never` has no name, because the setting `immutable` stands for it.
named!(Verify: "stamp" => Stamp, "checksum" => Checksum);

/// The number of files for which another thread is worth starting.
const FILES_PER_THREAD: usize = 32;
/// The maximum number of threads. It may exceed the number of processors, because the threads wait for a file system
/// that answers many queries at once.
const MAX_THREADS: usize = 16;

/// Returns the current versions of `files` ([`DatasetIndex::versioned`]), without those that cannot be queried.
pub(super) fn versions_now(index: &DatasetIndex, files: &[Extent]) -> HashMap<Extent, FileVersion> {
    let next = AtomicUsize::new(0);
    let look = || {
        let mut found = Vec::new();
        while let Some(&file) = files.get(next.fetch_add(1, Relaxed)) {
            found.extend(index.current_version(file).ok().map(|version| (file, version)));
        }
        found
    };
    std::thread::scope(|scope| {
        let more = (files.len() / FILES_PER_THREAD).min(MAX_THREADS - 1);
        // A thread that cannot be started leaves its work to the others.
        let spawn = |_| std::thread::Builder::new().spawn_scoped(scope, look).ok();
        let threads: Vec<_> = (0..more).filter_map(spawn).collect();
        let mut found: HashMap<_, _> = look().into_iter().collect();
        for thread in threads {
            found.extend(thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        }
        found
    })
}
