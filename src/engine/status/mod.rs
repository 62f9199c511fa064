//! The state of this user's running loaders on this node, for `foreload top`.
//!
//! Each process with a running loader has one socket in the runtime directory, and one thread that waits for
//! connections ([`register`]). The thread answers each connection with a [`snapshot::ProcessSnapshot`] as JSON, and
//! ends when the last loader ends. It asks the loaders ([`StatusSource`]) only when a connection comes, so the state
//! costs nearly nothing: a snapshot has counters that a loader keeps anyway, from its beginning. The reader,
//! [`StatusWatch`], computes the differences.
//!
//! To show something else that feeds a consumer, write another [`StatusSource`]. To show something that only some
//! loaders have, add an `Option` to [`LoaderSnapshot`], fill it in `pipeline/status.rs`, and add a line to `details` in
//! `src/cli/top/view.rs`. The limiting stage is found by the same code as for reports (`trace/limit.rs`).

mod rates;
mod server;
mod snapshot;
mod watch;

pub use rates::LoaderRates;
pub use server::{StatusRegistration, StatusSource, register};
#[cfg(test)]
use snapshot::ProcessSnapshot;
pub use snapshot::{LoaderSnapshot, QueueNumbers, SharingNumbers, StageNumbers, StallNumbers, TierNumbers};
pub use watch::{ProcessState, ProcessStatus, StatusWatch};

/// Name of this user's runtime directory that holds the sockets, below `foreload/`.
const PURPOSE: &str = "top";

/// Version of the snapshots. Raise it when the meaning of a number changes, not when a number is added.
const VERSION: u32 = 1;

/// Returns the process id in the name of a socket, `PID-UNIQUE`; `None` for other names.
fn process_of(name: &str) -> Option<u32> {
    let (pid, unique) = name.split_once('-')?;
    let fits = !unique.is_empty() && unique.bytes().all(|byte| byte.is_ascii_hexdigit());
    pid.parse().ok().filter(|pid| *pid > 0 && fits)
}

/// Returns whether a process with this id exists. The id may belong to a different process by now.
fn exists(pid: u32) -> bool {
    std::path::Path::new("/proc").join(pid.to_string()).exists()
}

#[cfg(test)]
mod tests;
