//! The nvJPEG library of this process.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use nvjpeg_sys::{Search, Version};

use crate::gpu;
use base::error::{Error, Result};

/// The library that [`Library::load`] found, and the additional directories that it searches.
static FOUND: Mutex<(Option<Library>, Vec<PathBuf>)> = Mutex::new((None, Vec::new()));

/// The loaded nvJPEG library. Clones share it.
#[derive(Debug, Clone)]
pub struct Library(Arc<nvjpeg_sys::Library>);

impl Library {
    /// Loads nvJPEG, or returns the library that is already loaded.
    ///
    /// # Errors
    /// [`Error::Unavailable`], with a sentence that says what to install.
    pub fn load() -> Result<Self> {
        let mut found = FOUND.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(library) = &found.0 {
            return Ok(library.clone());
        }
        let newest = gpu::probe().driver.map(|version| version.major);
        let search = Search { packages: found.1.clone(), newest };
        let library = nvjpeg_sys::Library::load(&search).map(Self);
        let library = library.map_err(|error| Error::Unavailable(error.to_string()))?;
        found.0 = Some(library.clone());
        Ok(library)
    }

    /// Makes [`Library::load`] also search these directories of Python packages (`sys.path`).
    pub fn look_in(packages: Vec<PathBuf>) {
        FOUND.lock().unwrap_or_else(PoisonError::into_inner).1 = packages;
    }

    /// The library's version.
    pub fn version(&self) -> Version {
        self.0.version()
    }

    /// The library's file.
    pub fn path(&self) -> &std::path::Path {
        self.0.path()
    }

    pub(super) fn raw(&self) -> &Arc<nvjpeg_sys::Library> {
        &self.0
    }
}
