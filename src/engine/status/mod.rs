//! What the loaders of this user on this node are doing, for whoever looks: `foreload top`.
//!
//! Each process with a loader that runs has one socket in the runtime directory, behind which a thread sleeps. It
//! answers each connection with a [`snapshot::ProcessSnapshot`] as JSON, and ends with the last loader ([`show`]).
//! Hardly anything is counted for that: a snapshot has the numbers that a loader has anyway, since its beginning, and
//! [`StatusWatch`] takes the differences.

mod rates;
mod server;
mod snapshot;
mod watch;

pub use rates::LoaderRates;
pub use server::{ShownLoader, StatusSource, show};
#[cfg(test)]
use snapshot::ProcessSnapshot;
pub use snapshot::{LoaderSnapshot, QueueNumbers, SharingNumbers, StageNumbers, StallNumbers, TierNumbers};
pub use watch::{ProcessState, SeenProcess, StatusWatch};

/// The purpose of the directory in which the sockets are.
const PURPOSE: &str = "top";

/// The version of what is answered. It is raised when a number changes its meaning, not when one is added.
const VERSION: u32 = 1;

/// The number of the process in the name of a socket: `PID-UNIQUE`; `None` for other names.
fn process_of(name: &str) -> Option<u32> {
    let (pid, unique) = name.split_once('-')?;
    let fits = !unique.is_empty() && unique.bytes().all(|byte| byte.is_ascii_hexdigit());
    pid.parse().ok().filter(|pid| *pid > 0 && fits)
}

/// Whether a process of that number is there. It may be another one by now.
fn exists(pid: u32) -> bool {
    std::path::Path::new("/proc").join(pid.to_string()).exists()
}

#[cfg(test)]
mod tests;
