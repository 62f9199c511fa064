//! Places that datasets are stored in. Their files can be listed, inspected and read in parts, by names below a root.
//!
//! [`DatasetSource`] is everything that indexing needs of a place. Only the function [`at`] knows all kinds of places:
//!
//! - file systems (`file_system.rs`),
//! - HTTP servers (`http/`),
//! - object stores (`objects/`, with the cargo feature `objects`): the crate `object_store` finds credentials, signs
//!   requests and parses listings,
//! - files that a name with braces lists, in one of these places (`listed.rs`, `braces.rs`),
//! - files that a manifest names, in any of these places (`manifest/`). Their names are the texts of the manifest,
//!   without secrets.
//!
//! To add a kind, implement the trait and extend [`at`]. Samples are read by `store::io`, whose readers copy bytes into
//! slots: by a file's path, or, if the place is also a [`RangeSource`], by requests.
//!
//! Places are read-only: the index and the cache are stored elsewhere (→ `tests/load/store/refusals.rs`). Changes are
//! found by the [`Stamp`]s of files and directories.

mod braces;
mod fields;
mod file_system;
mod http;
mod listed;
mod manifest;
mod object_url;
#[cfg(feature = "objects")]
mod objects;
mod pages;
mod ranges;
mod read_at;
mod remote_bytes;
mod shard_list;
mod stamp;

pub use fields::{ByteFields, ended_text};
use file_system::FileSystem;
pub use file_system::is_gone;
use http::HttpSource;
use listed::BraceFiles;
pub use manifest::{ManifestNames, ManifestSource, TableFormat};
use object_url::ObjectUrl;
pub use pages::Pages;
pub use ranges::{ContentRange, PreparedRequest, RangeSource};
pub use read_at::{Malformed, ReadAt, SizedFile, WINDOW, Window};
use remote_bytes::RemoteBytes;
pub use stamp::COARSE_TICK;
pub use stamp::{FileVersion, Stamp, TICK};

pub use crate::http::{RequestCounts, WaitControl};
use base::error::{Error, Result};
use std::borrow::Cow;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A place with the files of a dataset. A name is a path below the root, as bytes, with slashes between its parts. The
/// empty name is the root itself, which may be a single file.
pub trait DatasetSource: Send + Sync {
    /// Returns the path or URL of the file or directory `name`, for messages and readers.
    fn path(&self, name: &[u8]) -> PathBuf;

    /// Returns the canonical path or URL of the root, with links resolved. Indexes and caches are stored under this
    /// name.
    ///
    /// # Errors
    /// [`base::error::Error::Dataset`] if nothing is there; [`base::error::Error::Io`] if that cannot be determined.
    fn canonical(&self) -> Result<PathBuf>;

    /// Returns the same source with an absolute path, which stays valid if the process changes its working directory.
    ///
    /// # Errors
    /// [`base::error::Error::Io`] if the working directory no longer exists.
    fn with_absolute_path(&self) -> Result<Arc<dyn DatasetSource>>;

    /// Whether each query is a request to another machine, so that callers should make many queries at a time.
    fn is_remote(&self) -> bool {
        false
    }

    /// Whether inode numbers are permanent, so that they identify files.
    fn has_lasting_inodes(&self) -> bool {
        true
    }

    /// Whether the root is a directory, as opposed to a single file.
    ///
    /// # Errors
    /// [`base::error::Error::Io`] if the root cannot be inspected.
    fn is_directory(&self) -> Result<bool>;

    /// Returns the canonical name of the root. For a root with braces, returns the canonical name of each listed file.
    ///
    /// # Errors
    /// The errors of [`DatasetSource::canonical`].
    fn places(&self) -> Result<Vec<PathBuf>> {
        Ok(vec![self.canonical()?])
    }

    /// Returns the files that a root with braces lists, sorted; `None` if the root is an ordinary directory or file.
    fn named_files(&self) -> Option<&[Vec<u8>]> {
        None
    }

    /// Opens a directory to list it.
    ///
    /// # Errors
    /// [`base::error::Error::Io`] if it is no directory or cannot be listed.
    fn directory(&self, name: &[u8]) -> Result<Box<dyn SourceDirectory>>;

    /// Returns the identity of a directory, to detect cycles of links; `None` if this kind of source has no links.
    ///
    /// # Errors
    /// [`base::error::Error::Io`] if the directory cannot be inspected.
    fn identity(&self, _name: &[u8]) -> Result<Option<Identity>> {
        Ok(None)
    }

    /// Returns the current stamp of a file or directory, bypassing caches.
    ///
    /// # Errors
    /// [`base::error::Error::Io`] if the file or directory exists but cannot be inspected.
    fn stamp(&self, name: &[u8]) -> Result<EntryState>;

    /// Opens a file to read parts of it in any order.
    ///
    /// # Errors
    /// [`base::error::Error::Io`] if the file cannot be opened; [`base::error::Error::Dataset`] if it is not a file.
    fn open(&self, name: &[u8]) -> Result<OpenFile>;

    /// Returns the source that readers request byte ranges from; `None` if readers open the files by path.
    fn ranges(&self) -> Option<Arc<dyn RangeSource>> {
        None
    }

    /// Returns the source that readers request byte ranges of the file `name` from, and the file's name in that source;
    /// `None` if readers open the file by path.
    fn range_of(&self, name: &[u8]) -> Option<(Arc<dyn RangeSource>, Vec<u8>)> {
        Some((self.ranges()?, name.to_vec()))
    }

    /// Returns the size of the file `name` in bytes; `None` if there is no regular file.
    ///
    /// # Errors
    /// [`base::error::Error::Io`] if the file exists but cannot be inspected.
    fn size(&self, name: &[u8]) -> Result<Option<u64>> {
        Ok(self.stamp(name)?.stamp().map(|stamp| stamp.size))
    }

    /// Declares that the root is a single file, regardless of its name. Must be called before any query.
    fn is_file(&self) {}

    /// Returns this source as a manifest; `None` if it is of another kind.
    fn manifest(&self) -> Option<&ManifestSource> {
        None
    }

    /// Returns the number of requests so far for listing, inspecting and parsing; `None` if the source makes no
    /// requests.
    fn request_counts(&self) -> Option<RequestCounts> {
        None
    }

    /// Sets or removes the watch that decides how long callers wait for requests.
    fn set_watch(&self, _watch: Option<Arc<dyn WaitControl>>) {}

    /// Returns a warning for the user, based on the queries so far.
    fn warning(&self) -> Option<String> {
        None
    }
}

/// State of a file or directory of a dataset source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EntryState {
    /// The file or directory exists and has this stamp.
    Stamped(Stamp),
    /// The file or directory exists, but changes to it cannot be detected.
    Unstamped,
    /// The file or directory does not exist.
    Gone,
}

impl EntryState {
    /// Returns the stamp; `None` if nothing exists. For [`EntryState::Unstamped`], returns an empty stamp.
    pub fn stamp(self) -> Option<Stamp> {
        match self {
            Self::Stamped(stamp) => Some(stamp),
            Self::Unstamped => Some(Stamp::default()),
            Self::Gone => None,
        }
    }
}

/// Opens the dataset source that the user named `root`.
///
/// # Errors
/// [`Error::Dataset`] for a URL that cannot be parsed or has an unknown scheme.
pub fn at(root: &Path) -> Result<Arc<dyn DatasetSource>> {
    let refused = |why: String| Err(Error::dataset(shown(root).into_owned(), why));
    if let Some(why) = refused_webdataset_name(root) {
        return refused(why.to_owned());
    }
    if let Some(files) = BraceFiles::at(root)? {
        return Ok(Arc::new(files));
    }
    if let Some(manifest) = ManifestSource::at(root)? {
        return Ok(Arc::new(manifest));
    }
    place(root)
}

/// Opens a `root` on a file system, a server or an object store that is neither a list in braces nor a manifest.
fn place(root: &Path) -> Result<Arc<dyn DatasetSource>> {
    let refused = |why: String| Err(Error::dataset(shown(root).into_owned(), why));
    let Some(url) = url(root) else { return Ok(Arc::new(FileSystem::at(root))) };
    if crate::http::is_http(url.as_bytes()) {
        return Ok(Arc::new(HttpSource::at(url)?));
    }
    if let Some(found) = ObjectUrl::parse(url) {
        return found.map_or_else(refused, object_source);
    }
    match url.split_once("://") {
        Some((scheme, _)) => refused(format!(
            "has the unsupported URL scheme {scheme}://: give an http://, https://, s3://, gs:// or az:// URL, or a \
             path"
        )),
        None => refused(
            "is a URL with a missing slash (pathlib.Path removes it): pass the URL as a string".to_owned(),
        ),
    }
}

#[cfg(feature = "objects")]
fn object_source(url: ObjectUrl) -> Result<Arc<dyn DatasetSource>> {
    Ok(Arc::new(objects::ObjectSource::at(url)?))
}

#[cfg(not(feature = "objects"))]
fn object_source(url: ObjectUrl) -> Result<Arc<dyn DatasetSource>> {
    Err(Error::left_out(&format!("support for object stores, which {} needs", url.shown()), "objects"))
}

/// Prefix of names that WebDataset runs as commands.
const COMMAND: &str = "pipe:";

/// Returns why Foreload refuses a name that is valid in WebDataset; `None` if it accepts the name.
fn refused_webdataset_name(root: &Path) -> Option<&'static str> {
    let text = root.to_str()?;
    let exists = || url(root).is_none() && root.symlink_metadata().is_ok();
    if text.starts_with(COMMAND) && !exists() {
        return Some(
            "is a shell command (pipe:), which Foreload does not run: give a path or a URL, or write the command's \
             output to a file",
        );
    }
    // Search only the path for `::`, because a host that is an IPv6 address may contain two colons.
    let place = url(root).map_or(text, |url| url.split_once("://").map_or(url, |(_, rest)| rest));
    let path = if url(root).is_some() { place.find('/').map_or("", |slash| &place[slash..]) } else { place };
    let path = path.split('?').next().unwrap_or_default();
    (path.contains("::") && !exists()).then_some("joins several paths or URLs with `::`: pass them as a list")
}

/// Whether a path is a URL.
pub fn is_url(path: &Path) -> bool {
    url(path).is_some()
}

/// Returns a root as a URL; `None` if it is a path of a file system. Also recognises URLs that lost a slash when they
/// were converted to a path.
pub fn url(root: &Path) -> Option<&str> {
    let text = root.to_str()?;
    let (scheme, rest) = text.split_once(":/")?;
    let is_scheme = scheme.len() > 1
        && scheme.starts_with(|first: char| first.is_ascii_alphabetic())
        && scheme.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.'));
    let was_url = ["http", "https", "s3", "gs", "az"].iter().any(|known| scheme.eq_ignore_ascii_case(known));
    (is_scheme && (rest.starts_with('/') || was_url)).then_some(text)
}

/// Reads the file that a setting names by path or URL.
///
/// # Errors
/// Why the file cannot be read. The message shows no secrets of the file's URL.
pub fn read_named(file: &Path) -> Result<Vec<u8>, String> {
    let whole = || -> Result<Vec<u8>> {
        let place = place(file)?;
        place.is_file();
        read_whole(&*place, MAX_NAMED)
    };
    let mut text = match url(file) {
        None => std::fs::read(file).map_err(|error| error.to_string())?,
        Some(_) => whole().map_err(|error| error.to_string())?,
    };
    let mark = text.len() - without_mark(&text).len();
    text.drain(..mark);
    Ok(text)
}

/// Returns the text without a byte order mark. Spreadsheets and editors put one at the start.
pub fn without_mark(text: &[u8]) -> &[u8] {
    text.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(text)
}

/// Maximum size in bytes of a file that a setting names by URL.
const MAX_NAMED: u64 = 1 << 30;

/// Reads the file at `root`, which is a single file of at most `most` bytes.
///
/// # Errors
/// [`Error::Dataset`] if the file is larger; [`Error::Io`] if it cannot be read.
pub fn read_whole(root: &dyn DatasetSource, most: u64) -> Result<Vec<u8>> {
    let path = root.path(&[]);
    let OpenFile { bytes, .. } = root.open(&[])?;
    if bytes.size() > most {
        let message = format!("has {} bytes, but the limit for this file is {most}", bytes.size());
        return Err(Error::dataset(path, message));
    }
    let mut text = vec![0; bytes.size() as usize];
    let read = bytes.read_at(&mut text, 0).map_err(|error| Error::io("read", path, error))?;
    text.truncate(read);
    Ok(text)
}

fn shown_url(url: &str) -> String {
    object_url::shown(url).unwrap_or_else(|| http::shown(url))
}

/// Returns a root without its secrets: removes user, password and query from a URL, because they are credentials.
pub fn shown(root: &Path) -> Cow<'_, Path> {
    match url(root) {
        Some(url) if url.contains("::") => Cow::Owned(PathBuf::from(&*without_secrets(url))),
        // `%7B` and `%7D` are braces that list files, so show them as the user wrote them.
        Some(url) if url.contains('{') => {
            Cow::Owned(PathBuf::from(shown_url(url).replace("%7B", "{").replace("%7D", "}")))
        }
        Some(url) => Cow::Owned(PathBuf::from(shown_url(url))),
        // Show only the program of a command: its arguments may be secret.
        None if let Some(command) = root.to_str().and_then(|text| text.strip_prefix(COMMAND)) => {
            let name = command.trim_start().split(char::is_whitespace).next().unwrap_or_default();
            Cow::Owned(PathBuf::from(format!("{COMMAND}{}", without_secrets(name))))
        }
        None => match root.to_str().map(without_secrets) {
            Some(Cow::Owned(text)) => Cow::Owned(PathBuf::from(text)),
            _ => Cow::Borrowed(root),
        },
    }
}

/// Returns a text without the secrets of URLs anywhere in it.
pub fn without_secrets(text: &str) -> Cow<'_, str> {
    let Some(at) = text.find("://") else { return Cow::Borrowed(text) };
    let is_end = |end: char| end.is_whitespace() || matches!(end, '\'' | '"' | '`' | '<' | '>' | '|');
    let (before, rest) = text.split_at(at + 3);
    let (mut left, after) = rest.split_at(rest.find(is_end).unwrap_or(rest.len()));
    let mut shown = before.to_owned();
    // `::` joins several URLs. Search for it after an IPv6 address in brackets, which may also contain `::`.
    loop {
        let bracket = left.find(']').unwrap_or(0);
        let end = left[bracket..].find("::").map_or(left.len(), |joined| bracket + joined);
        shown += place_of_url(&left[..end]);
        left = &left[end..];
        let Some(next) = left.strip_prefix("::") else { break };
        let scheme = next.find("://").map_or(0, |scheme| scheme + 3);
        let scheme = if next[..scheme].contains("::") { 0 } else { scheme };
        shown += &left[..2 + scheme];
        left = &next[scheme..];
    }
    shown += &without_secrets(after);
    if shown == text { Cow::Borrowed(text) } else { Cow::Owned(shown) }
}

/// Returns the text after the scheme of a URL, without user, password and query.
fn place_of_url(url: &str) -> &str {
    let authority = &url[..url.find(['/', '?', '#']).unwrap_or(url.len())];
    let is_port = |port: &str| port.is_empty() || port.parse::<u16>().is_ok();
    let is_whole = authority.contains('@')
        || authority.ends_with(']')
        || authority.rsplit_once(':').is_none_or(|(_, port)| is_port(port));
    // If the authority cannot be parsed, drop everything that may belong to a user and password, including slashes.
    let place = match if is_whole { authority } else { url }.rfind('@') {
        Some(at) => &url[at + 1..],
        None => url,
    };
    place.split(['?', '#']).next().unwrap_or_default()
}

/// Returns the path or URL of the file `name` in the directory `root`. A URL keeps its query.
pub fn below(root: &Path, name: &str) -> PathBuf {
    let Some(url) = url(root) else { return root.join(name) };
    let (place, query) = url.split_at(url.find(['?', '#']).unwrap_or(url.len()));
    PathBuf::from(format!("{}/{name}{query}", place.trim_end_matches('/')))
}

/// Returns the absolute path of a root. For a URL, returns the URL without its secrets.
///
/// # Errors
/// [`Error::Io`] if the working directory no longer exists.
pub fn absolute(root: &Path) -> Result<PathBuf> {
    match url(root) {
        Some(_) => Ok(shown(root).into_owned()),
        None => std::path::absolute(root).map_err(|error| Error::io("resolve", root, error)),
    }
}

/// Device and inode of a directory.
pub type Identity = (u64, u64);

/// A file that was opened to parse it.
pub struct OpenFile {
    /// Bytes of the file.
    pub bytes: Box<dyn ReadAt + Send + Sync>,
    /// Stamp of the file, taken before the first read.
    pub stamp: Stamp,
}

/// A directory that can be listed.
pub trait SourceDirectory: Send + Sync {
    /// Returns the stamp that was taken before the names were read, so that an entry added during the listing counts as
    /// a change.
    fn stamp(&self) -> Stamp;

    /// Returns the directory's identity, to detect cycles of links; `None` if this kind of source has no links.
    ///
    /// # Errors
    /// [`base::error::Error::Io`] if the directory cannot be inspected.
    fn identity(&self) -> Result<Option<Identity>> {
        Ok(None)
    }

    /// Passes the entries to `show`, unordered, until `show` returns [`ControlFlow::Break`].
    ///
    /// # Errors
    /// [`base::error::Error::Io`] if listing fails, and the errors of `show`, which end the listing.
    fn entries(&self, show: &mut dyn FnMut(Entry<'_>) -> Result<ControlFlow<()>>) -> Result<()>;

    /// Returns the size of the file `name` in bytes; `None` if it no longer exists or is not a regular file.
    ///
    /// # Errors
    /// [`base::error::Error::Io`] if the file cannot be inspected.
    fn size(&self, name: &[u8]) -> Result<Option<u64>>;
}

/// An entry of a directory.
#[derive(Debug, Clone, Copy)]
pub struct Entry<'a> {
    /// Name in the directory.
    pub name: &'a [u8],
    /// Kind of the entry; for a link, the kind of its target.
    pub kind: EntryKind,
    /// Identity of the target, if the entry is a link.
    pub target: Option<Identity>,
    /// Size of a file in bytes, if the listing contains it.
    pub size: Option<u64>,
}

/// Kind of an [`Entry`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EntryKind {
    /// A directory.
    Directory,
    /// A file.
    File,
    /// A pipe, a socket or a device.
    Special,
    /// A link whose target does not exist, or that is part of a cycle.
    BrokenLink,
    /// An entry that cannot be inspected: [`SourceDirectory::size`] returns the error.
    Unseen,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_left_out_of_any_text() {
        for (text, expected) in [
            ("/data/a@b?c.tar", "/data/a@b?c.tar"),
            ("https://h/path@2x.jpg", "https://h/path@2x.jpg"),
            ("https://h:80/path@2x.jpg", "https://h:80/path@2x.jpg"),
            ("http://[::1]:80/a.tar?sig=geheim", "http://[::1]:80/a.tar"),
            ("http://u:geheim@[::1]/a.tar?sig=geheim#x", "http://[::1]/a.tar"),
            ("https://u:geheim@h/a::https://u:geheim@i/b?sig=geheim", "https://h/a::https://i/b"),
            ("http://h/a::b.tar?sig=geheim", "http://h/a::b.tar"),
            ("https://u:ge/heim@h/a", "https://h/a"),
            ("https://u:ge?heim@h/a", "https://h/a"),
            ("unexpected argument 'https://u:geheim@h/a?b' found", "unexpected argument 'https://h/a' found"),
            ("{'path': \"s3://u:geheim@b/k\", 2}", "{'path': \"s3://b/k\", 2}"),
        ] {
            assert_eq!(without_secrets(text), expected, "{text}");
        }
        for (root, expected) in [
            ("pipe:curl -u u:geheim https://h/a", "pipe:curl"),
            ("https://u:geheim@h/a::https://u:geheim@i/b", "https://h/a::https://i/b"),
        ] {
            assert_eq!(shown(Path::new(root)), Path::new(expected), "{root}");
        }
    }
}
