//! A dataset whose name lists its files by braces, such as `train-{000..099}.tar`. The files are in one directory, on a
//! file system, a server or an object store.

use super::file_system::FileSystem;
use super::{
    DatasetSource, EntryState, OpenFile, RangeSource, RequestCounts, SourceDirectory, Stamp, WaitControl,
    braces, is_gone, shown, url,
};
use crate::http::HttpUrl;
use base::error::{Error, Result};
use sha2::{Digest, Sha256};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Files in one directory whose names are known from braces. The directory itself is never listed.
pub(super) struct BraceFiles {
    directory: Arc<dyn DatasetSource>,
    shown: PathBuf,
    pattern: String,
    /// Names of the files below the directory, sorted.
    names: Arc<Vec<Vec<u8>>>,
}

struct Parts<'a> {
    /// The beginning of the name. Braces in it are literal.
    fixed: &'a str,
    /// The rest of the name, up to the query. Braces in it are expanded.
    pattern: &'a str,
    query: &'a str,
}

impl BraceFiles {
    /// Returns the files that `root` lists by braces; `None` if `root` contains no braces to expand, or if a file or
    /// directory has exactly this name.
    ///
    /// # Errors
    /// [`Error::Dataset`] for braces that cannot list the files of one dataset.
    pub(super) fn at(root: &Path) -> Result<Option<Self>> {
        let Some(text) = root.to_str().filter(|text| text.contains('{')) else { return Ok(None) };
        let refused = |why: String| Error::dataset(shown(root).into_owned(), why);
        let is_url = url(root).is_some();
        let Parts { fixed, pattern, query } = match is_url {
            true => Parts::of_url(text),
            false if root.symlink_metadata().is_ok() => return Ok(None),
            false => Parts::of_path(root, text),
        };
        let Some(files) = braces::expand(pattern).map_err(refused)? else { return Ok(None) };
        let before = pattern.find('{').unwrap_or(pattern.len());
        let (directory, pattern) =
            pattern.split_at(pattern[..before].rfind('/').map_or(0, |slash| slash + 1));
        let directory = format!("{fixed}{directory}");
        let names: Result<Vec<Vec<u8>>, String> = if crate::http::is_http(text.as_bytes()) {
            let base = HttpUrl::parse(&directory).map_err(refused)?;
            let name = |file: &String| {
                let url = HttpUrl::parse(&format!("{fixed}{file}"))?;
                url.below(&base).ok_or_else(|| format!("expands to {url}, which is in another directory"))
            };
            files.iter().map(name).collect()
        } else {
            let below = directory.len() - fixed.len();
            Ok(files.iter().map(|file| file.as_bytes()[below..].to_vec()).collect())
        };
        let directory: Arc<dyn DatasetSource> = match is_url {
            true => super::at(Path::new(&format!("{directory}{query}")))?,
            false => Arc::new(FileSystem::at(Path::new(if directory.is_empty() { "." } else { &directory }))),
        };
        let names = checked(names.map_err(refused)?).map_err(refused)?;
        let (shown, pattern) = (shown(root).into_owned(), pattern.to_owned());
        Ok(Some(Self { directory, shown, pattern, names: Arc::new(names) }))
    }

    fn has(&self, name: &[u8]) -> bool {
        self.names.binary_search_by(|known| known.as_slice().cmp(name)).is_ok()
    }

    fn missing(&self, name: &[u8]) -> Error {
        let message = format!("does not exist, but {} expands to it", self.shown.display());
        Error::dataset(self.path(name), message)
    }
}

impl<'a> Parts<'a> {
    /// Splits a URL. Braces in its server and query are literal.
    fn of_url(text: &'a str) -> Self {
        let path = text.find("://").map_or(0, |at| at + 3);
        let path = text[path..].find(['/', '?', '#']).map_or(text.len(), |at| path + at);
        let query = text[path..].find(['?', '#']).map_or(text.len(), |at| path + at);
        Self { fixed: &text[..path], pattern: &text[path..query], query: &text[query..] }
    }

    /// Splits a path. Braces in the names of existing directories are literal.
    fn of_path(root: &Path, text: &'a str) -> Self {
        let exists = |path: &&Path| path.to_str().is_some_and(|path| path.contains('{')) && path.exists();
        let known = root.ancestors().find(exists).map_or(0, |path| path.as_os_str().len());
        let (fixed, pattern) = text.split_at_checked(known).unwrap_or(("", text));
        Self { fixed, pattern, query: "" }
    }
}

fn checked(mut names: Vec<Vec<u8>>) -> Result<Vec<Vec<u8>>, String> {
    names.sort_unstable();
    if let Some(pair) = names.windows(2).find(|pair| pair[0] == pair[1]) {
        return Err(format!("expands to {} twice", String::from_utf8_lossy(&pair[0])));
    }
    let is_odd = |part: &[u8]| matches!(part, b"" | b"." | b"..") || part.contains(&0);
    match names.iter().find(|name| name.split(|&byte| byte == b'/').any(is_odd)) {
        None => Ok(names),
        Some(name) => Err(format!(
            "expands to {:?}, which is not a valid file name below a directory",
            String::from_utf8_lossy(name)
        )),
    }
}

impl DatasetSource for BraceFiles {
    fn path(&self, name: &[u8]) -> PathBuf {
        if name.is_empty() { self.shown.clone() } else { self.directory.path(name) }
    }

    fn canonical(&self) -> Result<PathBuf> {
        Ok(self.directory.canonical()?.join(&self.pattern))
    }

    fn places(&self) -> Result<Vec<PathBuf>> {
        let directory = self.directory.canonical()?;
        Ok(self.names.iter().map(|name| directory.join(OsStr::from_bytes(name))).collect())
    }

    fn with_absolute_path(&self) -> Result<Arc<dyn DatasetSource>> {
        let (shown, pattern) = (super::absolute(&self.shown)?, self.pattern.clone());
        let directory = self.directory.with_absolute_path()?;
        Ok(Arc::new(Self { directory, shown, pattern, names: self.names.clone() }))
    }

    fn is_remote(&self) -> bool {
        self.directory.is_remote()
    }

    fn has_lasting_inodes(&self) -> bool {
        self.directory.has_lasting_inodes()
    }

    fn is_directory(&self) -> Result<bool> {
        Ok(true)
    }

    fn named_files(&self) -> Option<&[Vec<u8>]> {
        Some(&self.names)
    }

    fn directory(&self, name: &[u8]) -> Result<Box<dyn SourceDirectory>> {
        Err(Error::dataset(self.path(name), "is not a directory: brace patterns list shards"))
    }

    /// The root's stamp is a digest of its canonical name and of the names of the files.
    fn stamp(&self, name: &[u8]) -> Result<EntryState> {
        if name.is_empty() {
            let hash = Sha256::new_with_prefix(self.canonical()?.as_os_str().as_encoded_bytes());
            let hash = self.names.iter().fold(hash, |hash, name| hash.chain_update(name));
            return Ok(EntryState::Stamped(Stamp::of_digest(hash)));
        }
        if self.has(name) { self.directory.stamp(name) } else { Ok(EntryState::Gone) }
    }

    fn open(&self, name: &[u8]) -> Result<OpenFile> {
        if !self.has(name) {
            return Err(self.missing(name));
        }
        self.directory.open(name).map_err(|error| match error {
            Error::Io { source, .. } if is_gone(&source) => self.missing(name),
            error => error,
        })
    }

    fn request_counts(&self) -> Option<RequestCounts> {
        self.directory.request_counts()
    }

    fn ranges(&self) -> Option<Arc<dyn RangeSource>> {
        self.directory.ranges()
    }

    fn set_watch(&self, watch: Option<Arc<dyn WaitControl>>) {
        self.directory.set_watch(watch);
    }

    fn warning(&self) -> Option<String> {
        self.directory.warning()
    }
}
