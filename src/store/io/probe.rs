//! Examines which interfaces for reading this machine offers, for `foreload doctor`.

use super::open::{refusal, test_on_program, uring_suits};
use super::storage::{Storage, available_memory};
use super::uring::{RingMode, granted};
use super::{Direct, IoChoice};
use base::error::Result;
use base::slot::SlotPool;
use rustix::process::{Resource, getrlimit};
use std::path::Path;

/// The abilities of io_uring on this machine.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct UringReport {
    /// The best io_uring setup that the kernel grants; `None` if it grants none.
    pub mode: Option<RingMode>,
    /// The reason why io_uring cannot be used, and what to do about it; `None` if a test read succeeded.
    pub problem: Option<String>,
    /// The reason why buffers cannot be registered with io_uring; `None` if they can.
    pub unregistered: Option<String>,
}

/// The interfaces and limits of this machine that matter for reading.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct ProbeReport {
    /// The abilities of io_uring.
    pub io_uring: UringReport,
    /// RLIMIT_MEMLOCK in bytes; `None` if unlimited. Without the capability CAP_IPC_LOCK, it limits registered buffers.
    pub memlock_limit: Option<u64>,
    /// RLIMIT_NOFILE; `None` if unlimited. Each reader keeps at most a quarter of this number of shards open.
    pub open_files_limit: Option<u64>,
    /// The setting of transparent huge pages: `always`, `madvise` or `never`; `None` if the kernel does not support
    /// them.
    pub huge_pages: Option<String>,
    /// Bytes of memory that the page cache could use.
    pub available_memory: u64,
}

impl ProbeReport {
    /// Returns what `io="auto"` and `direct="auto"` choose for `bytes` of data at `path`, and the reasons.
    pub fn choice(&self, path: &Path, bytes: u64) -> Result<PathReport> {
        let storage = Storage::of(path)?;
        let (direct, why_direct) = storage.choose(Direct::Auto, bytes, self.available_memory)?;
        let why_threads = uring_suits(&storage).err().or_else(|| self.io_uring.problem.clone());
        let (io, why_io) = match why_threads {
            None => (IoChoice::Uring, "io_uring passed its test".to_owned()),
            Some(why) => (IoChoice::Pread, why),
        };
        Ok(PathReport { storage, io, why_io, direct, why_direct })
    }
}

/// What `io="auto"` and `direct="auto"` choose for a path.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct PathReport {
    /// The file system of the path.
    pub storage: Storage,
    /// Whether io_uring or pread is used.
    pub io: IoChoice,
    /// The reason for `io`.
    pub why_io: String,
    /// Whether files are read with O_DIRECT.
    pub direct: bool,
    /// The reason for `direct`.
    pub why_direct: String,
}

/// Probes the machine, which takes some milliseconds.
pub fn probe() -> ProbeReport {
    let io_uring = match SlotPool::new(16 << 20).map(|slots| granted(&slots)) {
        Ok(Ok((mode, unregistered))) => {
            UringReport { mode: Some(mode), problem: test_on_program().err(), unregistered }
        }
        Ok(Err(error)) => UringReport { mode: None, problem: Some(refusal(&error)), unregistered: None },
        Err(error) => UringReport { mode: None, problem: Some(error.to_string()), unregistered: None },
    };
    ProbeReport {
        io_uring,
        memlock_limit: getrlimit(Resource::Memlock).current,
        open_files_limit: getrlimit(Resource::Nofile).current,
        huge_pages: huge_pages(),
        available_memory: available_memory(),
    }
}

pub(super) fn huge_pages() -> Option<String> {
    let setting = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled").ok()?;
    let (_, chosen) = setting.split_once('[')?;
    Some(chosen.split_once(']')?.0.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_made_anywhere() {
        let report = probe();
        let io_uring = &report.io_uring;
        assert!(io_uring.mode.is_some() || io_uring.problem.is_some());
        assert!(report.available_memory > 0);
        let here = report.choice(Path::new(env!("CARGO_MANIFEST_DIR")), 1).unwrap();
        assert!(!here.direct, "a byte fits in memory: {}", here.why_direct);
        assert!(!here.why_io.is_empty());
        assert_eq!(serde_json::to_value(IoChoice::Uring).unwrap(), "io_uring");
        assert!(report.choice(Path::new("/nowhere/at/all"), 1).is_err());
    }
}
