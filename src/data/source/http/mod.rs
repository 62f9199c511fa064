//! Datasets on an HTTP server that supports range requests.

mod page;
mod root_kind;

use super::manifest::ManifestUrls;
use super::{
    DatasetSource, Entry, EntryKind, EntryState, OpenFile, PreparedRequest, RangeSource, RemoteBytes,
    SourceDirectory, Stamp,
};
use crate::http::{
    BlockingHttp, Fetched, FileRequest, HeaderMap, HttpFailure, HttpTarget, HttpUrl, RequestCounts,
    RequestError, ResponseCheck, StatusCode, WaitControl, header,
};
use base::error::{Error, Result};
use root_kind::HttpRootKind;
use std::ffi::OsStr;
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

const LARGEST_PAGE: u64 = 256 << 20;

/// Maximum depth of directories. On a server, a link to a parent directory looks like a subdirectory, so cycles are
/// possible.
const DEEPEST: usize = 32;

const ROOT_KINDS: &str = "give a shard, a list of shards (a .txt with one name a line), the directory of a \
                          packed dataset, or a directory with an index page";

pub(super) struct HttpSource(Arc<HttpRoot>);

struct HttpRoot {
    url: HttpUrl,
    /// URL without its secrets and without a slash at its end.
    shown: PathBuf,
    http: BlockingHttp,
    /// Kind of the root; empty until a request has determined it.
    root_kind: OnceLock<HttpRootKind>,
    /// Whether the server has sent a file without any version information.
    unversioned: AtomicBool,
}

impl HttpSource {
    /// Makes the source for a URL.
    ///
    /// # Errors
    /// [`Error::Dataset`] for an invalid URL. The message shows none of the URL's secrets.
    pub(super) fn at(text: &str) -> Result<Self> {
        let url = HttpUrl::parse(text).map_err(|why| Error::dataset(shown(text), why))?;
        let place = url.to_string();
        let shown = PathBuf::from(place.trim_end_matches('/'));
        let (http, root_kind, unversioned) =
            (BlockingHttp::default(), OnceLock::new(), AtomicBool::new(false));
        Ok(Self(Arc::new(HttpRoot { url, shown, http, root_kind, unversioned })))
    }

    /// Makes the source for files that a manifest names by URLs. The URLs are the files' names.
    ///
    /// # Errors
    /// The errors of [`HttpSource::at`], none of which occurs for the valid placeholder URL that is used.
    pub(super) fn of_urls(urls: Arc<ManifestUrls>) -> Result<Self> {
        let found = Self::at("http://urls.invalid/")?;
        let _ = found.0.root_kind.set(HttpRootKind::Urls(urls));
        Ok(found)
    }
}

/// Returns `text`, which begins like a URL, without the secrets of the URL.
pub(super) fn shown(text: &str) -> String {
    if let Ok(url) = HttpUrl::parse(text) {
        let place = url.to_string();
        return place.trim_end_matches('/').to_owned();
    }
    // If the text cannot be parsed, drop everything that may belong to a user and password, including slashes.
    let (scheme, rest) = text.split_once(":/").unwrap_or(("", text));
    // In `file:///x`, the third slash begins a path.
    let root = if rest.starts_with("//") && !rest.contains('@') { "/" } else { "" };
    let rest = rest.trim_start_matches('/');
    let rest = rest.rsplit_once('@').map_or(rest, |(_, place)| place);
    let rest = rest.split(['?', '#']).next().unwrap_or_default();
    format!("{scheme}://{root}{rest}")
}

impl HttpRoot {
    /// Returns the kind of the root. The first call makes a request.
    fn root_kind(&self) -> Result<&HttpRootKind> {
        if let Some(root_kind) = self.root_kind.get() {
            return Ok(root_kind);
        }
        let root_kind = root_kind::find(self)?;
        Ok(self.root_kind.get_or_init(|| root_kind))
    }

    /// Returns the URL of the file or directory `name`; `None` if the root cannot contain that name.
    fn url(&self, name: &[u8]) -> Result<Option<HttpUrl>> {
        Ok(match self.root_kind()? {
            _ if name.is_empty() => Some(self.url.clone()),
            HttpRootKind::File => None,
            HttpRootKind::Directory => Some(self.url.child(name)),
            HttpRootKind::List(shards, _) => shards.get(name).cloned(),
            HttpRootKind::Urls(urls) => Some(urls.url(name)?),
        })
    }

    /// Returns the request target for a URL, with its limits on addresses.
    fn target(&self, url: HttpUrl) -> HttpTarget {
        let Some(urls) = self.urls() else { return HttpTarget::of(url) };
        HttpTarget {
            address_policy: urls.address_policy(&url),
            redirects: urls.other_hosts_policy(),
            ..HttpTarget::of(url)
        }
    }

    /// Returns the URLs of a manifest, if the files' names are URLs.
    fn urls(&self) -> Option<&ManifestUrls> {
        if let Some(HttpRootKind::Urls(urls)) = self.root_kind.get() { Some(urls) } else { None }
    }

    fn path(&self, name: &[u8]) -> PathBuf {
        let listed = match self.root_kind.get() {
            Some(HttpRootKind::List(shards, _)) => shards.get(name),
            _ => None,
        };
        match listed {
            Some(url) => PathBuf::from(url.to_string()),
            None if name.is_empty() => self.shown.clone(),
            None if self.urls().is_some() => PathBuf::from(OsStr::from_bytes(name)),
            None => self.shown.join(OsStr::from_bytes(name)),
        }
    }

    fn fetch(&self, url: &HttpUrl, ask: FileRequest, most: u64) -> Result<Fetched, RequestError> {
        self.http.fetch(&self.target(url.clone()), ask, most)
    }

    /// Asks the server for a file's size and version.
    fn inspect(&self, url: &HttpUrl) -> Result<RemoteFileInfo, RequestError> {
        match self.fetch(url, FileRequest::Head, 0) {
            Ok(head) => match head.length() {
                Some(size) => return Ok(self.file_info(head, size)),
                None if head.url.is_directory() || is_page(&head.headers) => {
                    return Ok(self.file_info(head, 0));
                }
                None => {}
            },
            // Signed URLs are often valid for one method only, and some servers support only GET.
            Err(gave_up) if !may_know_only_get(&gave_up.failure) => return Err(gave_up),
            Err(_) => {}
        }
        let first = self.first_byte(url)?;
        let size = match first.status {
            StatusCode::PARTIAL_CONTENT => total(&first.headers),
            _ => first.length(),
        };
        let unsized_ = || HttpFailure::Final("the server does not report the size of the file".to_owned());
        let size = size.ok_or_else(|| RequestError { failure: unsized_(), tries: 1 })?;
        Ok(self.file_info(first, size))
    }

    /// Requests the first byte of a file, from a server that does not support `HEAD`. A server that ignores ranges is
    /// not asked again, unless its response advertises ranges. In that case the host name stands for several servers,
    /// and another of them may support ranges.
    fn first_byte(&self, url: &HttpUrl) -> Result<Fetched, RequestError> {
        let target = self.target(url.clone());
        let explain = |failure, headers: &HeaderMap, _: &[u8]| match failure {
            HttpFailure::Broken(why)
                if headers.get(header::ACCEPT_RANGES).is_none_or(|kind| kind != "bytes") =>
            {
                HttpFailure::Final(why)
            }
            other => other,
        };
        let prepare = async || Ok(target.clone());
        self.http.fetch_prepared(prepare, explain, FileRequest::Range(0, 0), 1, &|_| Ok(()))
    }

    fn file_info(&self, Fetched { headers, url, .. }: Fetched, size: u64) -> RemoteFileInfo {
        let stamp = Stamp::of_object(size, &headers);
        if !stamp.has_version() && !url.is_directory() {
            self.unversioned.store(true, Relaxed);
        }
        RemoteFileInfo { stamp, is_page: is_page(&headers), url }
    }

    fn page(&self, directory: &HttpUrl) -> Result<Fetched, RequestError> {
        self.fetch(&directory.as_directory(), FileRequest::Whole, LARGEST_PAGE)
    }

    fn failed(&self, what: &str, name: &[u8], gave_up: RequestError) -> Error {
        Error::io(what, self.path(name), gave_up.into())
    }

    fn gone(&self, what: &str, name: &[u8]) -> Error {
        Error::io(what, self.path(name), std::io::ErrorKind::NotFound.into())
    }

    /// Returns the stamp of a directory, which is a digest of its index page. Other changes of the page also change the
    /// stamp.
    fn stamp_of_directory(&self, name: &[u8], url: &HttpUrl) -> Result<EntryState> {
        match self.page(url) {
            Ok(page) => Ok(EntryState::Stamped(Stamp::of_text(&page.bytes))),
            // Even if a directory cannot be listed, it may contain files, for example those of a packed dataset.
            Err(RequestError { failure, .. })
                if name.is_empty() && (failure.is_gone() || failure.is_denied()) =>
            {
                Ok(EntryState::Unstamped)
            }
            Err(gave_up) if gave_up.failure.is_gone() => Ok(EntryState::Gone),
            Err(gave_up) => Err(self.failed("look at", name, gave_up)),
        }
    }
}

struct RemoteFileInfo {
    stamp: Stamp,
    /// Whether the file is an HTML page.
    is_page: bool,
    /// The URL that gave the response, after redirects.
    url: HttpUrl,
}

fn may_know_only_get(failure: &HttpFailure) -> bool {
    failure.is_denied()
        || matches!(failure, HttpFailure::Status(status, _) if matches!(status.as_u16(), 400 | 405 | 501))
}

fn is_page(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    kind.trim_start().to_ascii_lowercase().starts_with("text/html")
}

/// Returns the size of the whole file, from the headers of a response to a range request.
fn total(headers: &HeaderMap) -> Option<u64> {
    super::ContentRange::of(headers).map(|range| range.total)
}

impl DatasetSource for HttpSource {
    fn path(&self, name: &[u8]) -> PathBuf {
        self.0.path(name)
    }

    fn canonical(&self) -> Result<PathBuf> {
        self.0.root_kind()?;
        let root = &*self.0;
        // With another query, the URL may name another file. The query may be secret, so only its digest is stored.
        Ok(match root.url.identifying_query() {
            Some(query) => {
                let digest = Stamp::of_text(query.as_bytes()).inode;
                PathBuf::from(format!("{}?{digest:016x}", root.shown.display()))
            }
            None => root.shown.clone(),
        })
    }

    fn with_absolute_path(&self) -> Result<Arc<dyn DatasetSource>> {
        Ok(Arc::new(Self(self.0.clone())))
    }

    fn is_remote(&self) -> bool {
        true
    }

    fn is_directory(&self) -> Result<bool> {
        Ok(!matches!(self.0.root_kind()?, HttpRootKind::File))
    }

    fn directory(&self, name: &[u8]) -> Result<Box<dyn SourceDirectory>> {
        let root = self.0.clone();
        if let &HttpRootKind::List(ref shards, stamp) = root.root_kind()?
            && name.is_empty()
        {
            let entries = shards.keys().map(|shard| (shard.clone(), EntryKind::File)).collect();
            return Ok(Box::new(RemoteDirectory { root, name: Vec::new(), stamp, entries }));
        }
        if name.iter().filter(|&&byte| byte == b'/').count() > DEEPEST {
            let message = format!("is more than {DEEPEST} directories deep: the server's links form a cycle");
            return Err(Error::dataset(root.path(name), message));
        }
        let url = root.url(name)?.ok_or_else(|| root.gone("list", name))?;
        let page = root.page(&url).map_err(|gave_up| {
            match name.is_empty() && !gave_up.failure.may_succeed_later() {
                true => Error::dataset(root.path(name), format!("cannot be listed: {gave_up}; {ROOT_KINDS}")),
                false => root.failed("list", name, gave_up),
            }
        })?;
        if !is_page(&page.headers) {
            return Err(Error::dataset(root.path(name), format!("has no HTML index page; {ROOT_KINDS}")));
        }
        let entries = page::entries(&page.url.as_directory(), &page.bytes);
        let stamp = Stamp::of_text(&page.bytes);
        Ok(Box::new(RemoteDirectory { root, name: name.to_vec(), stamp, entries }))
    }

    fn is_file(&self) {
        let _ = self.0.root_kind.set(HttpRootKind::File);
    }

    fn stamp(&self, name: &[u8]) -> Result<EntryState> {
        let root = &*self.0;
        let Some(url) = root.url(name)? else { return Ok(EntryState::Gone) };
        if let (HttpRootKind::List(_, stamp), true) = (root.root_kind()?, name.is_empty()) {
            // A run reads the files that this version of the list names. A newer version of the list takes effect at
            // the next start.
            return Ok(EntryState::Stamped(*stamp));
        }
        if root.urls().is_some() {
            // A URL of a manifest is always a file, even with a slash at its end.
            return match root.inspect(&url) {
                Ok(found) => Ok(EntryState::Stamped(found.stamp)),
                Err(gave_up) if gave_up.failure.is_gone() => Ok(EntryState::Gone),
                Err(gave_up) => Err(root.failed("look at", name, gave_up)),
            };
        }
        if url.is_directory() || name.is_empty() && matches!(root.root_kind()?, HttpRootKind::Directory) {
            return root.stamp_of_directory(name, &url);
        }
        match root.inspect(&url) {
            Ok(found) if found.url.is_directory() => root.stamp_of_directory(name, &url),
            Ok(found) => Ok(EntryState::Stamped(found.stamp)),
            Err(gave_up)
                if gave_up.failure.is_gone() && matches!(root.root_kind()?, HttpRootKind::Directory) =>
            {
                // Some servers only recognise a directory if its URL ends in a slash.
                root.stamp_of_directory(name, &url)
            }
            Err(gave_up) if gave_up.failure.is_gone() => Ok(EntryState::Gone),
            Err(gave_up) => Err(root.failed("look at", name, gave_up)),
        }
    }

    fn open(&self, name: &[u8]) -> Result<OpenFile> {
        let root = &self.0;
        let url = root.url(name)?.ok_or_else(|| root.gone("open", name))?;
        let found = root.inspect(&url).map_err(|gave_up| root.failed("open", name, gave_up))?;
        if found.url.is_directory() && root.urls().is_none() {
            return Err(Error::dataset(root.path(name), "is not a regular file"));
        }
        let stamp = found.stamp;
        Ok(OpenFile { bytes: Box::new(RemoteBytes::new(root.clone(), name, stamp)), stamp })
    }

    fn ranges(&self) -> Option<Arc<dyn RangeSource>> {
        Some(self.0.clone())
    }

    fn request_counts(&self) -> Option<RequestCounts> {
        Some(self.0.http.request_counts())
    }

    fn set_watch(&self, watch: Option<Arc<dyn WaitControl>>) {
        self.0.http.set_watch(watch);
    }

    fn warning(&self) -> Option<String> {
        self.0.unversioned.load(Relaxed).then(|| {
            let server = match self.0.urls() {
                Some(_) => "a server of the manifest's files".to_owned(),
                None => format!("the server of {}", self.0.shown.display()),
            };
            format!(
                "{server} sends neither ETag nor Last-Modified: if a file is replaced by another one of the same size, \
                 neither its readers nor a cache detect it"
            )
        })
    }
}

impl RangeSource for HttpRoot {
    fn prepare<'a>(&'a self, name: &'a [u8], _: FileRequest) -> PreparedRequest<'a> {
        // If the root's kind is not known yet, this call blocks for a request. Indexing the dataset determines the
        // kind.
        let url = self.url(name).and_then(|url| url.ok_or_else(|| self.gone("open", name)));
        Box::pin(std::future::ready(url.map(|url| Ok(self.target(url)))))
    }

    fn fetch(
        &self,
        name: &[u8],
        ask: FileRequest,
        most: u64,
        check: ResponseCheck<'_>,
    ) -> Result<Result<Fetched, RequestError>> {
        let target = self.target(self.url(name)?.ok_or_else(|| self.gone("open", name))?);
        let prepare = async || Ok(target.clone());
        Ok(self.http.fetch_prepared(prepare, |failure, _, _| failure, ask, most, check))
    }
}

struct RemoteDirectory {
    root: Arc<HttpRoot>,
    name: Vec<u8>,
    stamp: Stamp,
    entries: Vec<(Vec<u8>, EntryKind)>,
}

impl SourceDirectory for RemoteDirectory {
    fn stamp(&self) -> Stamp {
        self.stamp
    }

    fn entries(&self, show: &mut dyn FnMut(Entry<'_>) -> Result<ControlFlow<()>>) -> Result<()> {
        for (name, kind) in &self.entries {
            if show(Entry { name, kind: *kind, target: None, size: None })?.is_break() {
                break;
            }
        }
        Ok(())
    }

    fn size(&self, name: &[u8]) -> Result<Option<u64>> {
        let path = if self.name.is_empty() { name.to_vec() } else { [&self.name, &b"/"[..], name].concat() };
        let Some(url) = self.root.url(&path)? else { return Ok(None) };
        match self.root.inspect(&url) {
            Ok(found) => Ok(Some(found.stamp.size)),
            Err(gave_up) if gave_up.failure.is_gone() => Ok(None),
            Err(gave_up) => Err(self.root.failed("look at", &path, gave_up)),
        }
    }
}

/// Whether a path is a list of shards, judging by its ending.
fn is_list(path: &Path) -> bool {
    path.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("txt"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_url_is_shown_without_its_secrets_too() {
        for (text, expected) in [
            ("https:/anna:secret@h/a.tar", "https://h/a.tar"),
            ("https://anna:se/cret@h/a.tar", "https://h/a.tar"),
            ("http://anna:se?cret@h/a.tar", "http://h/a.tar"),
            ("http:/h/a.tar?token=secret", "http://h/a.tar"),
            ("file:///etc/a.tar?token=secret", "file:///etc/a.tar"),
            ("http:///anna:secret@h/a.tar", "http://h/a.tar"),
        ] {
            assert_eq!(shown(text), expected, "{text}");
        }
    }
}
