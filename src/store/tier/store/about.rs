//! The file that names the dataset of a directory in the cache, for people and for `foreload cache show`.

use crate::segments::{nameless, remove};
use data::dataset::DatasetIndex;
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::{fs, io};

const NAME: &str = "dataset.json";

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct DatasetInfo {
    pub fingerprint: String,
    /// The paths and URLs of the dataset when it was last used. The same dataset may also be at other paths.
    pub roots: Vec<String>,
}

impl DatasetInfo {
    pub(super) fn of(index: &DatasetIndex) -> Self {
        // A URL is not a path: keep it as it is.
        let whole = |root: &Path| root.canonicalize().unwrap_or_else(|_| root.to_path_buf());
        let roots = index.parts().map(|(root, _)| whole(root).to_string_lossy().into_owned()).collect();
        Self { fingerprint: index.fingerprint().to_string(), roots }
    }

    /// Reads the file in the directory `own`; `None` if there is no file, as in a directory that an older program
    /// filled.
    pub(super) fn read(own: &Path) -> Option<Self> {
        serde_json::from_slice(&fs::read(own.join(NAME)).ok()?).ok()
    }

    /// Writes the file into the directory `own`. Errors such as a full drive are ignored, because nothing depends on
    /// the file.
    pub(super) fn write(&self, own: &Path) {
        if Self::read(own).as_ref() != Some(self) {
            // A process that is killed here leaves no half-written file.
            let _ = self.replace(own);
        }
    }

    fn replace(&self, own: &Path) -> io::Result<()> {
        let mut file = nameless::create(own)?;
        serde_json::to_writer(&mut file, self)?;
        let path = own.join(NAME);
        remove(&path)?;
        nameless::link(&file, &path)
    }
}

/// Removes the directory of a dataset that is not in use and has no segments any more.
pub(super) fn forget(own: &Path) -> io::Result<()> {
    for name in ["used", NAME] {
        remove(&own.join(name))?;
    }
    fs::remove_dir(own)
}
