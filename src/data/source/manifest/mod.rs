//! A manifest: a table with one file per row, named by path or URL, or COCO annotations, which list images. The files
//! may be in several places.
//!
//! A path is relative to the manifest's directory. The name of a file in the dataset is the text in the manifest
//! without secrets, so that names stay the same when URLs are signed again (`names.rs`). A manifest on a server must
//! not make this machine read local files, or send its credentials to other servers (`urls.rs`).

mod names;
mod urls;

pub use names::ManifestNames;
pub(super) use urls::ManifestUrls;

use super::object_url::ObjectUrl;
use super::{
    DatasetSource, EntryState, FileSystem, HttpSource, OpenFile, RangeSource, RequestCounts, SourceDirectory,
    WaitControl, place, url,
};
use base::error::{Error, Result};
use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// Format of a manifest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TableFormat {
    /// Comma-separated values.
    Commas,
    /// Tab-separated values.
    Tabulators,
    /// One JSON object per line.
    JsonLines,
    /// COCO annotations: one JSON document, which is no table but lists files, too.
    Coco,
}

impl TableFormat {
    const ENDINGS: [(&'static str, Self); 5] = [
        ("csv", Self::Commas),
        ("tsv", Self::Tabulators),
        ("jsonl", Self::JsonLines),
        ("ndjson", Self::JsonLines),
        ("json", Self::Coco),
    ];

    /// Returns the format of a file from its path or URL; `None` if the ending is not that of a manifest.
    pub fn of(path: &Path) -> Option<Self> {
        let file = match url(path) {
            Some(url) => Path::new(url.split(['?', '#']).next().unwrap_or_default()),
            None => path,
        };
        if file.as_os_str().as_bytes().ends_with(b"/") {
            return None;
        }
        let ending = file.extension()?.to_str()?.to_ascii_lowercase();
        Self::ENDINGS.iter().find(|(known, _)| *known == ending).map(|(_, format)| *format)
    }

    /// Lists the endings of tables for messages.
    pub fn endings() -> String {
        let tables = Self::ENDINGS.iter().filter(|(_, format)| *format != Self::Coco);
        tables.map(|(ending, _)| format!(".{ending}")).collect::<Vec<_>>().join(", ")
    }
}

/// A manifest and the files that it names. The name of a file is the text in the manifest without secrets.
#[derive(Clone)]
pub struct ManifestSource {
    file: Arc<dyn DatasetSource>,
    directory: Arc<dyn DatasetSource>,
    urls: Arc<ManifestUrls>,
    /// Files that the manifest names by HTTP URLs. Their names are these URLs.
    by_url: Arc<HttpSource>,
    buckets: Arc<Mutex<BTreeMap<String, Arc<dyn DatasetSource>>>>,
    /// Decides how long callers wait for requests. A bucket that is opened later gets this watch as well.
    watch: Arc<Mutex<Option<Arc<dyn WaitControl>>>>,
}

impl ManifestSource {
    /// Opens the manifest at `root`; `None` if the ending of `root` is not that of a manifest, or if `root` is a
    /// directory.
    ///
    /// # Errors
    /// [`Error::Dataset`] for a URL that cannot be parsed.
    pub(super) fn at(root: &Path) -> Result<Option<Self>> {
        if TableFormat::of(root).is_none() || url(root).is_none() && root.is_dir() {
            return Ok(None);
        }
        let directory: Arc<dyn DatasetSource> = match url(root) {
            Some(text) => place(Path::new(&above(text)))?,
            None => {
                let parent = root.parent().filter(|parent| !parent.as_os_str().is_empty());
                Arc::new(FileSystem::at(parent.unwrap_or(Path::new("."))))
            }
        };
        let urls = Arc::new(ManifestUrls::of(root));
        Ok(Some(Self {
            file: place(root)?,
            directory,
            by_url: Arc::new(HttpSource::of_urls(urls.clone())?),
            urls,
            buckets: Arc::default(),
            watch: Arc::default(),
        }))
    }

    /// Returns the format of the manifest.
    pub fn format(&self) -> Option<TableFormat> {
        TableFormat::of(&self.file.path(&[]))
    }

    /// Starts to collect the names in the manifest's rows.
    pub fn names(&self) -> ManifestNames<'_> {
        ManifestNames::of(&self.urls)
    }

    /// Whether the file `name` is read by requests to a server. The manifest itself may be stored elsewhere.
    pub fn is_on_server(&self, name: &[u8]) -> bool {
        self.directory.is_remote() || Self::is_url(name)
    }

    /// Whether a name is a URL, as opposed to a path.
    pub fn is_url(name: &[u8]) -> bool {
        named_url(name).is_some()
    }

    /// Returns the source that stores a file, and the file's name in that source.
    fn place_of<'a>(&self, name: &'a [u8]) -> Result<(Arc<dyn DatasetSource>, &'a [u8])> {
        let Some(text) = named_url(name) else {
            return Ok(match name {
                b"" => (self.file.clone(), name),
                _ => (self.directory.clone(), name.strip_prefix(b"./").unwrap_or(name)),
            });
        };
        let refused = |why: String| Error::dataset(PathBuf::from(text), why);
        let Some(found) = ObjectUrl::parse(text) else { return Ok((self.by_url.clone(), name)) };
        let found = found.map_err(refused)?;
        let key = &name[name.len() - found.key.len()..];
        let bucket = ObjectUrl { key: String::new(), is_directory: true, ..found };
        let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        let place = match buckets.get(&bucket.shown()) {
            Some(place) => place.clone(),
            None => {
                let shown = bucket.shown();
                let place = super::object_source(bucket)?;
                place.set_watch(self.watch.lock().unwrap_or_else(PoisonError::into_inner).clone());
                buckets.insert(shown, place.clone());
                place
            }
        };
        Ok((place, key))
    }

    fn places_asked(&self) -> Vec<Arc<dyn DatasetSource>> {
        let buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        let own: [Arc<dyn DatasetSource>; 3] =
            [self.file.clone(), self.directory.clone(), self.by_url.clone()];
        own.into_iter().chain(buckets.values().cloned()).collect()
    }
}

fn named_url(name: &[u8]) -> Option<&str> {
    let text = std::str::from_utf8(name).ok()?;
    url(Path::new(text))
}

/// Returns the URL of the directory that contains a file, with the query of the file's URL.
fn above(text: &str) -> String {
    let (place, query) = text.split_at(text.find(['?', '#']).unwrap_or(text.len()));
    // In keys of object stores, `?` does not begin a query.
    let (place, query) = if crate::http::is_http(text.as_bytes()) { (place, query) } else { (text, "") };
    format!("{}{query}", &place[..place.rfind('/').map_or(place.len(), |slash| slash + 1)])
}

impl DatasetSource for ManifestSource {
    fn path(&self, name: &[u8]) -> PathBuf {
        match self.place_of(name) {
            Ok((place, name)) => place.path(name),
            Err(_) => PathBuf::from(String::from_utf8_lossy(name).into_owned()),
        }
    }

    /// Does not resolve a link to a manifest: relative names refer to the directory that contains the link.
    fn canonical(&self) -> Result<PathBuf> {
        let target = self.file.canonical()?;
        let own = self.file.path(&[]);
        match own.file_name().filter(|_| !self.file.is_remote()) {
            Some(name) => Ok(self.directory.canonical()?.join(name)),
            None => Ok(target),
        }
    }

    fn with_absolute_path(&self) -> Result<Arc<dyn DatasetSource>> {
        let (file, directory) = (self.file.with_absolute_path()?, self.directory.with_absolute_path()?);
        Ok(Arc::new(Self { file, directory, ..self.clone() }))
    }

    fn is_remote(&self) -> bool {
        self.file.is_remote()
    }

    fn has_lasting_inodes(&self) -> bool {
        self.file.has_lasting_inodes()
    }

    fn is_directory(&self) -> Result<bool> {
        Ok(false)
    }

    fn directory(&self, name: &[u8]) -> Result<Box<dyn SourceDirectory>> {
        Err(Error::dataset(self.path(name), "is a manifest, not a directory"))
    }

    fn stamp(&self, name: &[u8]) -> Result<EntryState> {
        let (place, name) = self.place_of(name)?;
        place.stamp(name)
    }

    fn size(&self, name: &[u8]) -> Result<Option<u64>> {
        let (place, name) = self.place_of(name)?;
        place.size(name)
    }

    fn open(&self, name: &[u8]) -> Result<OpenFile> {
        let (place, name) = self.place_of(name)?;
        place.open(name)
    }

    fn range_of(&self, name: &[u8]) -> Option<(Arc<dyn RangeSource>, Vec<u8>)> {
        let (place, name) = self.place_of(name).ok()?;
        place.range_of(name)
    }

    fn manifest(&self) -> Option<&ManifestSource> {
        Some(self)
    }

    fn request_counts(&self) -> Option<RequestCounts> {
        let all = self.places_asked();
        let counts = all.iter().filter_map(|place| place.request_counts());
        counts
            .filter(|request_counts| *request_counts != RequestCounts::default())
            .reduce(RequestCounts::with)
    }

    fn set_watch(&self, watch: Option<Arc<dyn WaitControl>>) {
        *self.watch.lock().unwrap_or_else(PoisonError::into_inner) = watch.clone();
        self.places_asked().iter().for_each(|place| place.set_watch(watch.clone()));
    }

    fn warning(&self) -> Option<String> {
        self.places_asked().iter().find_map(|place| place.warning())
    }
}
