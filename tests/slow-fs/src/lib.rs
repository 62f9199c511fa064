//! A read-only view of a directory through FUSE, as slow as a parallel file system. For the program it is a real file
//! system, down to the last system call, including io_uring's way into the kernel's worker threads.
//!
//! Each open and each read of a file waits in the queues of one [`ParallelFsModel`]. Listing directories and reading
//! attributes cost no time. The page cache is bypassed, so that each byte that a process reads is counted and takes its
//! time.

mod later;
mod tree;

use foreload::testing::io::{ParallelFsModel, ParallelFsRates, PfsStats};
use fuser::{BackgroundSession, Config, MountOption};
use std::io;
use std::path::Path;
use std::sync::Arc;

/// The name of a file below the mount point that holds the counters as JSON: `opens`, `reads`, `bytes`, `busy_seconds`.
/// No listing shows it.
pub const COUNTERS: &str = ".slow-fs.json";

/// The largest number of requests that the kernel passes on at once.
const BACKGROUND: u16 = 256;

/// How the kernel answers reads by io_uring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UringReads {
    /// Many at once, as of a server that libfuse serves (FUSE_ASYNC_DIO).
    AtOnce,
    /// One after another, and at the end of a file with the file's first bytes once more (Linux 6.18).
    OneByOne,
}

/// A mounted view, which is unmounted when dropped.
pub struct SlowFs {
    pfs: Arc<ParallelFsModel>,
    _session: BackgroundSession,
}

impl SlowFs {
    /// Mounts `source` at `mountpoint`, an empty directory, with the given rates. `reads` says how io_uring's reads are
    /// answered.
    ///
    /// # Errors
    /// The system's error if it refuses FUSE: without `/dev/fuse`, or to users who may not mount.
    pub fn mount(
        source: &Path,
        mountpoint: &Path,
        rates: ParallelFsRates,
        reads: UringReads,
    ) -> io::Result<Self> {
        let pfs = Arc::new(ParallelFsModel::new(rates));
        let tree = tree::Tree::new(source, pfs.clone(), reads)?;
        let mut config = Config::default();
        config.mount_options =
            vec![MountOption::RO, MountOption::FSName("slow-fs".into()), MountOption::Subtype("slow".into())];
        config.n_threads = Some(2);
        Ok(Self { pfs, _session: fuser::spawn_mount(tree, mountpoint, &config)? })
    }

    /// The counts of all requests so far.
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
