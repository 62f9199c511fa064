//! A read-only view of a directory through FUSE, as slow as a parallel file system. What the program meets there is
//! real to its last system call, io_uring's way into the kernel's worker threads included.
//!
//! Opening a file and every read of it wait in the queues of one [`ParallelFsModel`]. Listing directories and asking
//! for attributes is free, and the page cache is passed by: each byte that a process asks for is counted and waited
//! for.

mod later;
mod tree;

use foreload::testing::io::{ParallelFsModel, ParallelFsRates, PfsStats};
use fuser::{BackgroundSession, Config, MountOption};
use std::io;
use std::path::Path;
use std::sync::Arc;

/// The name of a file below the mount point, which no listing shows, with the counters as JSON: `opens`, `reads`,
/// `bytes`, `busy_seconds`.
pub const COUNTERS: &str = ".slow-fs.json";

/// The largest number of requests that the kernel passes on at once.
const BACKGROUND: u16 = 256;

/// A mounted view, which is unmounted when dropped.
pub struct SlowFs {
    pfs: Arc<ParallelFsModel>,
    _session: BackgroundSession,
}

impl SlowFs {
    /// Shows `source` at `mountpoint`, an empty directory, as slow as `rates` say.
    ///
    /// # Errors
    /// The system's error when it refuses FUSE: without `/dev/fuse`, or to users who may not mount.
    pub fn mount(source: &Path, mountpoint: &Path, rates: ParallelFsRates) -> io::Result<Self> {
        let pfs = Arc::new(ParallelFsModel::new(rates));
        let tree = tree::Tree::new(source, pfs.clone())?;
        let mut config = Config::default();
        config.mount_options =
            vec![MountOption::RO, MountOption::FSName("slow-fs".into()), MountOption::Subtype("slow".into())];
        config.n_threads = Some(2);
        Ok(Self { pfs, _session: fuser::spawn_mount(tree, mountpoint, &config)? })
    }

    /// The counts of what was asked of it so far.
    pub fn stats(&self) -> PfsStats {
        self.pfs.stats()
    }
}

/// The counters as one line of JSON.
pub fn to_json(stats: &PfsStats) -> String {
    let PfsStats { reads, busy_seconds } = stats;
    format!(
        "{{\"opens\":{},\"reads\":{},\"bytes\":{},\"busy_seconds\":{busy_seconds}}}\n",
        reads.opens, reads.reads, reads.bytes
    )
}
