//! Where datasets lie: a place with files that can be listed, looked at and read in parts, by their names below a root.
//!
//! [`DatasetSource`] is all that indexing asks of such a place, and [`at`] the only function that knows which kinds of
//! places there are: for another kind, implement the trait and name it there. Samples are read by `store::io`, whose
//! readers take bytes into slots: by the path of a file, or, where the place is a [`RangeSource`] too, by requests.

mod braces;
mod file_system;
mod http;
mod listed;
mod manifest;
mod object_url;
#[cfg(feature = "objects")]
mod objects;
mod ranges;
mod read_at;
mod remote_bytes;
mod stamp;

use file_system::FileSystem;
pub use file_system::is_gone;
use http::HttpSource;
use listed::ListedFiles;
pub use manifest::{ManifestNames, ManifestSource, TableFormat};
use object_url::ObjectUrl;
pub use ranges::{ContentRange, PreparedRequest, RangeSource};
pub use read_at::{Malformed, ReadAt, SizedFile, WINDOW, Window};
use remote_bytes::RemoteBytes;
pub use stamp::COARSE_TICK;
pub use stamp::{FileVersion, Stamp, TICK};

pub use crate::http::{AskedCounts, WaitWatch};
use base::error::{Error, Result};
use std::borrow::Cow;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A place where the files of a dataset are. Names are paths below its root, of bytes, with slashes between their
/// parts; the empty name is the root itself, which may be a single file.
pub trait DatasetSource: Send + Sync {
    /// The path or URL of what has this name, for messages and for readers.
    fn path(&self, name: &[u8]) -> PathBuf;

    /// What the place is called for good, whichever links led to it: what is kept of a dataset is kept under this name.
    ///
    /// # Errors
    /// [`base::error::Error::Dataset`] where there is nothing; [`base::error::Error::Io`] where that cannot be told.
    fn canonical(&self) -> Result<PathBuf>;

    /// The same place by a name that lasts, whatever becomes of this process's working directory.
    ///
    /// # Errors
    /// [`base::error::Error::Io`] where there is no working directory any more.
    fn settled(&self) -> Result<Arc<dyn DatasetSource>>;

    /// Whether each question to it is a request to another machine, of which many are best made at a time.
    fn is_remote(&self) -> bool {
        false
    }

    /// Whether inode numbers last, so that they tell one file from another.
    fn has_lasting_inodes(&self) -> bool;

    /// Whether the root is a directory, and not a single file.
    ///
    /// # Errors
    /// [`base::error::Error::Io`] where it cannot be looked at.
    fn is_directory(&self) -> Result<bool>;

    /// The canonical names of what it is: its own, or those of the files that its name lists.
    ///
    /// # Errors
    /// The errors of [`DatasetSource::canonical`].
    fn places(&self) -> Result<Vec<PathBuf>> {
        Ok(vec![self.canonical()?])
    }

    /// The names of the files that its own name lists, sorted, where it is no directory that has others too.
    fn named_files(&self) -> Option<&[Vec<u8>]> {
        None
    }

    /// Opens a directory to list it.
    ///
    /// # Errors
    /// [`base::error::Error::Io`] for what is no directory or cannot be listed.
    fn directory(&self, name: &[u8]) -> Result<Box<dyn SourceDirectory>>;

    /// What tells a directory from all others, where links may lead to one in circles; else `None`.
    ///
    /// # Errors
    /// [`base::error::Error::Io`] where it cannot be looked at.
    fn identity(&self, name: &[u8]) -> Result<Option<Identity>>;

    /// The stamp that a file or directory has now, and not what was remembered of it.
    ///
    /// # Errors
    /// [`base::error::Error::Io`] for what exists and cannot be looked at.
    fn stamp(&self, name: &[u8]) -> Result<Seen>;

    /// Opens a file to read parts of it in any order.
    ///
    /// # Errors
    /// [`base::error::Error::Io`] for what cannot be opened; [`base::error::Error::Dataset`] for what is no regular
    /// file.
    fn open(&self, name: &[u8]) -> Result<OpenFile>;

    /// The same place for readers, where its files are read by requests; `None` where they are read by their paths.
    fn ranges(&self) -> Option<Arc<dyn RangeSource>> {
        None
    }

    /// Who gives the bytes of the file with this name by requests, and its name there; `None` where it is read by its
    /// path.
    fn range_of(&self, name: &[u8]) -> Option<(Arc<dyn RangeSource>, Vec<u8>)> {
        Some((self.ranges()?, name.to_vec()))
    }

    /// The number of bytes of the file with this name; `None` where there is no regular file.
    ///
    /// # Errors
    /// [`base::error::Error::Io`] for what exists and cannot be looked at.
    fn size(&self, name: &[u8]) -> Result<Option<u64>> {
        Ok(self.stamp(name)?.stamp().map(|stamp| stamp.size))
    }

    /// Has the root taken for a single file, whatever its name says, before anything else is asked of it.
    fn is_file(&self) {}

    /// The place as that of a manifest, if it is one.
    fn manifest(&self) -> Option<&ManifestSource> {
        None
    }

    /// The requests so far that listed, looked and parsed; `None` where there are none to make.
    fn asked(&self) -> Option<AskedCounts> {
        None
    }

    /// Has requests watched while they are waited for, or no longer.
    fn set_watch(&self, _watch: Option<Arc<dyn WaitWatch>>) {}

    /// What the user should know of the place, as far as it was seen.
    fn warning(&self) -> Option<String> {
        None
    }
}

/// What a place says of a file or directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seen {
    /// It has this stamp.
    As(Stamp),
    /// It is there, and nothing shows whether it has changed.
    Unstamped,
    /// There is nothing.
    Gone,
}

impl Seen {
    /// The stamp of what is there; `None` for nothing. What has no stamp has one that says nothing.
    pub fn stamp(self) -> Option<Stamp> {
        match self {
            Self::As(stamp) => Some(stamp),
            Self::Unstamped => Some(Stamp::default()),
            Self::Gone => None,
        }
    }
}

/// The place that the user named `root`.
///
/// # Errors
/// [`Error::Dataset`] for a URL that cannot be read, or of a kind that is not known.
pub fn at(root: &Path) -> Result<Arc<dyn DatasetSource>> {
    let refused = |why: String| Err(Error::dataset(shown(root).into_owned(), why));
    if let Some(why) = foreign(root) {
        return refused(why.to_owned());
    }
    if let Some(files) = ListedFiles::at(root)? {
        return Ok(Arc::new(files));
    }
    if let Some(manifest) = ManifestSource::at(root)? {
        return Ok(Arc::new(manifest));
    }
    place(root)
}

/// The place at `root`, whose name lists no others.
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
            "is a URL of {scheme}://, which cannot be read: give one of http://, https://, s3://, gs:// or az://, or a \
             path"
        )),
        None => refused(
            "is a URL that has lost a slash, as pathlib.Path makes it of one: give the URL as a string"
                .to_owned(),
        ),
    }
}

#[cfg(feature = "objects")]
fn object_source(url: ObjectUrl) -> Result<Arc<dyn DatasetSource>> {
    Ok(Arc::new(objects::ObjectSource::at(url)?))
}

#[cfg(not(feature = "objects"))]
fn object_source(url: ObjectUrl) -> Result<Arc<dyn DatasetSource>> {
    Err(Error::left_out(&format!("object stores, to read {}", url.shown()), "objects"))
}

/// What WebDataset takes for a command begins so.
const COMMAND: &str = "pipe:";

/// Why a name that WebDataset would take is refused.
fn foreign(root: &Path) -> Option<&'static str> {
    let text = root.to_str()?;
    let exists = || url(root).is_none() && root.symlink_metadata().is_ok();
    if text.starts_with(COMMAND) && !exists() {
        return Some("is a command, which is not run: name a path or a URL, or write its output to a file");
    }
    // An IPv6 address has two colons, too.
    let place = url(root).map_or(text, |url| url.split_once("://").map_or(url, |(_, rest)| rest));
    let path = if url(root).is_some() { place.find('/').map_or("", |slash| &place[slash..]) } else { place };
    let path = path.split('?').next().unwrap_or_default();
    (path.contains("::") && !exists()).then_some("joins places by `::`: give them as a list")
}

/// Whether a path is a URL, and none of a file system.
pub fn is_url(path: &Path) -> bool {
    url(path).is_some()
}

/// The URL that a root is; `None` for a path of a file system. Also what was a URL before it was taken for a path.
pub fn url(root: &Path) -> Option<&str> {
    let text = root.to_str()?;
    let (scheme, rest) = text.split_once(":/")?;
    let is_scheme = scheme.len() > 1
        && scheme.starts_with(|first: char| first.is_ascii_alphabetic())
        && scheme.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.'));
    let was_url = ["http", "https", "s3", "gs", "az"].iter().any(|known| scheme.eq_ignore_ascii_case(known));
    (is_scheme && (rest.starts_with('/') || was_url)).then_some(text)
}

/// The bytes of the file that a setting names by a path or a URL.
///
/// # Errors
/// Why it cannot be read; its name is not said, or as it may be shown.
pub fn read_named(file: &Path) -> Result<Vec<u8>, String> {
    if url(file).is_none() {
        return std::fs::read(file).map(from_text).map_err(|error| error.to_string());
    }
    let whole = || -> Result<Vec<u8>> {
        let place = place(file)?;
        place.is_file();
        read_whole(&*place, MOST_NAMED)
    };
    whole().map(from_text).map_err(|error| error.to_string())
}

/// The text without the byte order mark that spreadsheets and editors put before it, and that is no part of it.
pub fn without_mark(text: &[u8]) -> &[u8] {
    text.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(text)
}

/// The bytes of a file of text, without a byte order mark.
fn from_text(mut bytes: Vec<u8>) -> Vec<u8> {
    let mark = bytes.len() - without_mark(&bytes).len();
    bytes.drain(..mark);
    bytes
}

/// The most bytes of a file that a setting names by a URL.
const MOST_NAMED: u64 = 1 << 30;

/// The bytes of the single file that a root is, of which it may have up to `most`.
///
/// # Errors
/// [`Error::Dataset`] where there are more; [`Error::Io`] where they cannot be read.
pub fn read_whole(root: &dyn DatasetSource, most: u64) -> Result<Vec<u8>> {
    let path = root.path(&[]);
    let OpenFile { bytes, .. } = root.open(&[])?;
    if bytes.size() > most {
        let message = format!("has {} bytes, more than such a file may have ({most})", bytes.size());
        return Err(Error::dataset(path, message));
    }
    let mut text = vec![0; bytes.size() as usize];
    let mut read = 0;
    while read < text.len() {
        match bytes.read_at(&mut text[read..], read as u64) {
            Ok(0) => break,
            Ok(count) => read += count,
            Err(error) => return Err(Error::io("read", path, error)),
        }
    }
    text.truncate(read);
    Ok(text)
}

/// A URL as it may be shown and kept.
fn shown_url(url: &str) -> String {
    object_url::shown(url).unwrap_or_else(|| http::shown(url))
}

/// A root as it may be shown and kept: of a URL without user, password and query, which are credentials.
pub fn shown(root: &Path) -> Cow<'_, Path> {
    match url(root) {
        Some(url) if url.contains("::") => Cow::Owned(PathBuf::from(&*without_secrets(url))),
        // Braces are shown as they are written, since they list files.
        Some(url) if url.contains('{') => {
            Cow::Owned(PathBuf::from(shown_url(url).replace("%7B", "{").replace("%7D", "}")))
        }
        Some(url) => Cow::Owned(PathBuf::from(shown_url(url))),
        // Of a command nothing is shown but its name.
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

/// A text without what is secret in URLs within it, wherever they stand.
pub fn without_secrets(text: &str) -> Cow<'_, str> {
    let Some(at) = text.find("://") else { return Cow::Borrowed(text) };
    let is_end = |end: char| end.is_whitespace() || matches!(end, '\'' | '"' | '`' | '<' | '>' | '|');
    let (before, rest) = text.split_at(at + 3);
    let (mut left, after) = rest.split_at(rest.find(is_end).unwrap_or(rest.len()));
    let mut shown = before.to_owned();
    // Of several that are joined by `::`, each has its own. An IPv6 address has two colons, too.
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

/// What stands behind the scheme of a URL, but for user, password and query.
fn place_of_url(url: &str) -> &str {
    let authority = &url[..url.find(['/', '?', '#']).unwrap_or(url.len())];
    let is_port = |port: &str| port.is_empty() || port.parse::<u16>().is_ok();
    let is_whole = authority.contains('@')
        || authority.ends_with(']')
        || authority.rsplit_once(':').is_none_or(|(_, port)| is_port(port));
    // Of what cannot be taken apart, all that may belong to a user and a password is left out, slashes included.
    let place = match if is_whole { authority } else { url }.rfind('@') {
        Some(at) => &url[at + 1..],
        None => url,
    };
    place.split(['?', '#']).next().unwrap_or_default()
}

/// The root that has this name in the directory `root`. What a URL has behind its path stays.
pub fn below(root: &Path, name: &str) -> PathBuf {
    let Some(url) = url(root) else { return root.join(name) };
    let (place, query) = url.split_at(url.find(['?', '#']).unwrap_or(url.len()));
    PathBuf::from(format!("{}/{name}{query}", place.trim_end_matches('/')))
}

/// The path of a root that does not go by the working directory; a URL as it may be shown.
///
/// # Errors
/// [`Error::Io`] where there is no working directory any more.
pub fn absolute(root: &Path) -> Result<PathBuf> {
    match url(root) {
        Some(_) => Ok(shown(root).into_owned()),
        None => std::path::absolute(root).map_err(|error| Error::io("resolve", root, error)),
    }
}

/// The device and the inode of a directory.
pub type Identity = (u64, u64);

/// A file that is open for its parsers.
pub struct OpenFile {
    /// Its bytes.
    pub bytes: Box<dyn ReadAt + Send + Sync>,
    /// Its stamp from before anything of it was read.
    pub stamp: Stamp,
}

/// A directory that can be listed.
pub trait SourceDirectory: Send + Sync {
    /// Its stamp from before its names are read, so that what is added meanwhile shows as a change.
    fn stamp(&self) -> Stamp;

    /// What tells it from all other directories, where links may lead to one in circles; else `None`.
    ///
    /// # Errors
    /// [`base::error::Error::Io`] where it cannot be looked at.
    fn identity(&self) -> Result<Option<Identity>>;

    /// Shows the entries, in no order, until `show` breaks it off.
    ///
    /// # Errors
    /// [`base::error::Error::Io`] where listing fails, and the errors of `show`, which end it.
    fn entries(&self, show: &mut dyn FnMut(Entry<'_>) -> Result<ControlFlow<()>>) -> Result<()>;

    /// The number of bytes of the file with this name; `None` where there is no regular file any more.
    ///
    /// # Errors
    /// [`base::error::Error::Io`] where it cannot be looked at.
    fn size(&self, name: &[u8]) -> Result<Option<u64>>;
}

/// What a directory has.
#[derive(Debug, Clone, Copy)]
pub struct Entry<'a> {
    /// Its name in the directory.
    pub name: &'a [u8],
    /// What it is, links followed.
    pub kind: EntryKind,
    /// What it leads to, if it is a link.
    pub target: Option<Identity>,
    /// The number of bytes of a file, where the listing tells.
    pub size: Option<u64>,
}

/// What an [`Entry`] is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EntryKind {
    /// A directory.
    Directory,
    /// A file.
    File,
    /// A pipe, a socket or a device.
    Special,
    /// A link that leads to nothing, or in a circle.
    BrokenLink,
    /// What cannot be looked at: [`SourceDirectory::size`] says why.
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
