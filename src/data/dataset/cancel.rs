//! Cancellation of index building from another thread, and a warning if a server is slow.

use super::IndexOptions;
use crate::source::{DatasetSource, WaitControl, shown};
use base::error::{Error, Result};
use base::notices::Notices;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Time that one request can take, with all retries, before the user is warned.
const SLOW_REQUEST: Duration = Duration::from_secs(5);
/// Time that a whole opening can take before the user is warned. The time is checked while a request waits.
const SLOW_OPENING: Duration = Duration::from_secs(30);

/// Flag that requests cancellation. Checking the flag is cheap enough to do it for every entry of a directory.
#[derive(Debug, Clone, Default)]
pub(super) struct Cancel(Option<Arc<AtomicBool>>);

impl Cancel {
    pub(super) fn by(flag: &Arc<AtomicBool>) -> Self {
        Self(Some(flag.clone()))
    }

    pub(super) fn is_requested(&self) -> bool {
        self.0.as_ref().is_some_and(|flag| flag.load(Ordering::Relaxed))
    }

    pub(super) fn check(&self, root: &Path) -> Result<()> {
        if self.is_requested() {
            let message = "indexing was interrupted; the next start indexes the dataset from the beginning";
            return Err(Error::dataset(root, message));
        }
        Ok(())
    }

    /// Like [`Cancel::check`], for an interruption while image headers are read.
    pub(super) fn check_sizes(&self, root: &Path) -> Result<()> {
        if self.is_requested() {
            let message =
                "reading the sizes of images was interrupted; the next start resumes where it stopped";
            return Err(Error::dataset(root, message));
        }
        Ok(())
    }

    /// Like [`Cancel::check`], but returns an I/O error. The kind of the error is not `Interrupted`, because callers
    /// retry after an interruption.
    pub(super) fn check_io(&self) -> std::io::Result<()> {
        if self.is_requested() { Err(std::io::Error::other("indexing was interrupted")) } else { Ok(()) }
    }
}

/// Supervises the requests that opening a dataset makes, until this value is dropped. Cancellation ends the requests.
/// If the requests take long, one warning says why the start waits.
pub(super) struct OpeningWatch<'a>(&'a dyn DatasetSource);

impl<'a> OpeningWatch<'a> {
    pub(super) fn new(
        source: &'a dyn DatasetSource,
        root: &Path,
        cancel: &Cancel,
        options: &IndexOptions,
    ) -> Self {
        source.set_watch(Some(Arc::new(OpeningMonitor {
            root: shown(root).into_owned(),
            cancel: cancel.clone(),
            notices: options.notices.clone(),
            begun: Instant::now(),
            told: AtomicBool::default(),
        })));
        Self(source)
    }
}

impl Drop for OpeningWatch<'_> {
    fn drop(&mut self) {
        self.0.set_watch(None);
    }
}

struct OpeningMonitor {
    root: PathBuf,
    cancel: Cancel,
    notices: Notices,
    begun: Instant,
    told: AtomicBool,
}

impl WaitControl for OpeningMonitor {
    fn keep_waiting(&self, waited: Duration) -> bool {
        if self.cancel.is_requested() {
            return false;
        }
        let (root, all) = (self.root.display(), self.begun.elapsed());
        let what = if waited >= SLOW_REQUEST {
            format!("its server has not answered a request for {} s", waited.as_secs())
        } else if all >= SLOW_OPENING {
            format!("its server responds slowly (opening has taken {} s so far)", all.as_secs())
        } else {
            return true;
        };
        if !self.told.swap(true, Ordering::Relaxed) {
            let message = format!(
                "{root}: the start waits, because {what}: check the server, the network and the proxy; a failing \
                 request is tried up to eight times before it is an error"
            );
            self.notices.warn_at_once(message);
        }
        true
    }
}
