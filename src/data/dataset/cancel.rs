//! Cancellation of index building from another thread, and a warning if a server is slow.

use super::IndexOptions;
use crate::source::{DatasetSource, WaitControl, shown};
use base::error::{Error, Result};
use base::notices::Notices;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Time that one request may take, with all retries, before the user is warned.
const SLOW_REQUEST: Duration = Duration::from_secs(5);
/// Time that a whole opening may take before the user is warned. It is checked while a request waits.
const SLOW_OPENING: Duration = Duration::from_secs(30);

/// Flag that requests cancellation. Reading it is cheap enough for every entry of a directory.
#[derive(Debug, Clone, Default)]
pub(super) struct Cancel(Option<Arc<AtomicBool>>);

impl Cancel {
    /// A flag that is set once `flag` is. The default flag is never set.
    pub(super) fn by(flag: &Arc<AtomicBool>) -> Self {
        Self(Some(flag.clone()))
    }

    pub(super) fn is_requested(&self) -> bool {
        self.0.as_ref().is_some_and(|flag| flag.load(Ordering::Relaxed))
    }

    /// Fails if cancellation was requested. The error ends the indexing of `root`.
    pub(super) fn check(&self, root: &Path) -> Result<()> {
        if self.is_requested() {
            let message = "indexing was interrupted; the next start indexes the dataset from the beginning";
            return Err(Error::dataset(root, message));
        }
        Ok(())
    }

    /// Like [`Cancel::check`], with an I/O error. Its kind is not `Interrupted`, because callers would retry that.
    pub(super) fn check_io(&self) -> std::io::Result<()> {
        if self.is_requested() { Err(std::io::Error::other("indexing was interrupted")) } else { Ok(()) }
    }
}

/// Supervision of the requests that opening a dataset makes, until it is dropped. Cancellation ends the requests. If
/// they take long, one warning says why the start waits.
pub(super) struct OpeningWatch<'a>(&'a dyn DatasetSource);

impl<'a> OpeningWatch<'a> {
    /// Watches the requests of `source`. The user named it `root`.
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
    fn goes_on(&self, waited: Duration) -> bool {
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
