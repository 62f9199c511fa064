//! Cancels the building of an index from another thread.

use crate::error::{Error, Result};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A flag that asks to stop. Reading it is cheap enough for every entry of a directory.
#[derive(Debug, Clone, Default)]
pub(super) struct Cancel(Option<Arc<AtomicBool>>);

impl Cancel {
    /// Stops when `flag` is set; the default never stops.
    pub(super) fn by(flag: &Arc<AtomicBool>) -> Self {
        Self(Some(flag.clone()))
    }

    pub(super) fn is_asked(&self) -> bool {
        self.0.as_ref().is_some_and(|flag| flag.load(Ordering::Relaxed))
    }

    /// The error that ends the indexing of `root`.
    pub(super) fn check(&self, root: &Path) -> Result<()> {
        if self.is_asked() {
            return Err(Error::dataset(root, "indexing was interrupted; the next start begins it anew"));
        }
        Ok(())
    }

    /// The error that ends the indexing, like [`Cancel::check`], where errors are the system's. Its kind is not
    /// `Interrupted`, which would mean to try again.
    pub(super) fn check_io(&self) -> std::io::Result<()> {
        if self.is_asked() { Err(std::io::Error::other("indexing was interrupted")) } else { Ok(()) }
    }
}
