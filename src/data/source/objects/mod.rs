//! Datasets in object stores: Amazon S3 and stores with its protocol, Google Cloud Storage, Azure Blob Storage.
//!
//! The crate `object_store` finds and refreshes credentials, makes and signs requests, and parses listings. But it does
//! not transfer the bytes of samples: [`RangeSource`] passes its signed requests to the reader that all HTTP sources
//! share.

mod connector;
mod listing;
mod prepared;
mod profile;
mod refusal;
mod root_kind;
mod stores;

use super::object_url::{ObjectUrl, StoreKind};
use super::{
    DatasetSource, Entry, EntryKind, EntryState, OpenFile, PreparedRequest, RangeSource, RemoteBytes,
    SourceDirectory, Stamp,
};
use crate::http::{
    BlockingHttp, Fetched, FileRequest, HeaderMap, HttpFailure, HttpTarget, HttpUrl, RequestCounts,
    RequestError, ResponseCheck, StatusCode, WaitControl,
};
use base::error::{Error, Result};
use connector::CapturedRequest;
use listing::ObjectListing;
use object_store::GetOptions;
use object_store::path::Path as ObjectPath;
use prepared::SignedRequests;
use root_kind::ObjectRootKind;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::io::ErrorKind;
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};
use std::time::{Duration, Instant};
use stores::OpenStore;
use tokio::time::timeout;

/// Maximum age at which a stamp from a listing may be used instead of a request for the object.
const LISTING_MAX_AGE: Duration = Duration::from_secs(30);
const MAX_REMEMBERED: usize = 100_000;
const RENEWAL_INTERVAL: Duration = Duration::from_secs(60);
const LONGEST_SIGNING: Duration = Duration::from_secs(20);
/// Time after a renewal during which responses to requests with the old credentials may still arrive.
const RENEWAL_GRACE: Duration = Duration::from_secs(5);

pub(super) struct ObjectSource(Arc<ObjectRoot>);

struct ObjectRoot {
    url: ObjectUrl,
    shown: PathBuf,
    http: Arc<BlockingHttp>,
    store: RwLock<Arc<OpenStore>>,
    renewed: Mutex<Option<Instant>>,
    signed: SignedRequests,
    root_kind: OnceLock<ObjectRootKind>,
    /// Stamps of objects from recent listings, by key, with the time of the listing.
    remembered: Mutex<HashMap<String, (Instant, Stamp)>>,
}

impl ObjectSource {
    pub(super) fn at(url: ObjectUrl) -> Result<Self> {
        let shown = PathBuf::from(url.shown());
        let http = Arc::<BlockingHttp>::default();
        let store = stores::open(&url, &http).map_err(|why| Error::dataset(&shown, why))?;
        let root_kind = OnceLock::new();
        if url.is_directory {
            root_kind.get_or_init(|| ObjectRootKind::Directory);
        }
        Ok(Self(Arc::new(ObjectRoot {
            url,
            shown,
            http,
            store: RwLock::new(Arc::new(store)),
            renewed: Mutex::default(),
            signed: SignedRequests::default(),
            root_kind,
            remembered: Mutex::default(),
        })))
    }
}

impl ObjectRoot {
    fn store(&self) -> Arc<OpenStore> {
        self.store.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn root_kind(&self) -> Result<&ObjectRootKind> {
        if let Some(root_kind) = self.root_kind.get() {
            return Ok(root_kind);
        }
        let root_kind = root_kind::find(self)?;
        Ok(self.root_kind.get_or_init(|| root_kind))
    }

    fn key(&self, name: &[u8]) -> Result<Option<String>> {
        let Ok(name) = std::str::from_utf8(name) else { return Ok(None) };
        Ok(match self.root_kind()? {
            _ if name.is_empty() => Some(self.url.key.clone()),
            ObjectRootKind::File => None,
            ObjectRootKind::Directory if self.url.key.is_empty() => Some(name.to_owned()),
            ObjectRootKind::Directory => Some(format!("{}/{name}", self.url.key)),
            ObjectRootKind::List(shards, _) => shards.get(name.as_bytes()).cloned(),
        })
    }

    fn path(&self, name: &[u8]) -> PathBuf {
        if let Some(ObjectRootKind::List(shards, _)) = self.root_kind.get()
            && let Some(key) = shards.get(name)
        {
            let ObjectUrl { scheme, bucket, .. } = &self.url;
            return PathBuf::from(format!("{scheme}://{bucket}/{key}"));
        }
        if name.is_empty() { self.shown.clone() } else { self.shown.join(OsStr::from_bytes(name)) }
    }

    fn failed(&self, what: &str, name: &[u8], gave_up: RequestError) -> Error {
        Error::io(what, self.path(name), gave_up.into())
    }

    fn gone(&self, what: &str, name: &[u8]) -> Error {
        Error::io(what, self.path(name), ErrorKind::NotFound.into())
    }

    async fn signed(&self, key: &str, ask: FileRequest) -> Result<HttpTarget, HttpFailure> {
        // Azure also requires the range to be signed.
        if self.url.kind == StoreKind::Azure || !matches!(ask, FileRequest::Range(..)) {
            return self.sign(key, ask).await;
        }
        if let Some(target) = self.signed.get(key) {
            return Ok(target);
        }
        let generation = self.signed.generation();
        let target = self.sign(key, FileRequest::Whole).await?;
        self.signed.keep(key, &target, generation);
        Ok(target)
    }

    /// Lets the crate make and sign a request, and takes the request before it is sent. The crate may have to request
    /// credentials first, while other callers wait for the same credentials. So signing has a time limit, after which
    /// another caller may try.
    async fn sign(&self, key: &str, ask: FileRequest) -> Result<HttpTarget, HttpFailure> {
        let signed = timeout(LONGEST_SIGNING, self.sign_once(key, ask)).await;
        let late = |_| {
            let (whose, limit) = (self.store().credentials.clone(), LONGEST_SIGNING.as_secs());
            HttpFailure::Broken(format!(
                "{whose} could not be obtained within {limit} s from the credential service"
            ))
        };
        signed.unwrap_or_else(|over| Err(late(over)))
    }

    async fn sign_once(&self, key: &str, ask: FileRequest) -> Result<HttpTarget, HttpFailure> {
        let store = self.store();
        let path = ObjectPath::parse(key)
            .map_err(|_| HttpFailure::Final("the object's key is not valid in this store".to_owned()))?;
        let taken = CapturedRequest::default();
        let range = match ask {
            FileRequest::Range(first, last) => Some((first..last.saturating_add(1)).into()),
            FileRequest::Head | FileRequest::Whole => None,
        };
        let mut options = GetOptions { head: ask == FileRequest::Head, range, ..GetOptions::default() };
        options.extensions.insert(taken.clone());
        let asked = store.objects.get_opts(&path, options).await;
        let Some(request) = taken.take() else {
            return Err(match asked {
                Err(error) => store.signing_failure(self.url.kind, &error),
                Ok(_) => {
                    HttpFailure::Final("internal error: object_store sent the request itself".to_owned())
                }
            });
        };
        let (parts, _) = request.into_parts();
        let url = HttpUrl::parse(&parts.uri.to_string());
        let url = url.map_err(|why| HttpFailure::Final(format!("the address of the store {why}")))?;
        let headers = parts.headers.iter().map(|(name, value)| (name.clone(), value.clone())).collect();
        Ok(HttpTarget { headers, ..HttpTarget::of(url) })
    }

    /// Returns the failure for a refused request. If the credentials have expired, looks for new ones, at most once in
    /// [`RENEWAL_INTERVAL`].
    fn explained(&self, failure: HttpFailure, headers: &HeaderMap, body: &[u8]) -> HttpFailure {
        let refusal = refusal::explain(&self.store(), &self.url.bucket, failure, headers, body);
        if !refusal.expired {
            return refusal.failure;
        }
        let mut renewed = self.renewed.lock().unwrap_or_else(PoisonError::into_inner);
        let since = renewed.map(|at| at.elapsed());
        if since.is_none_or(|since| since > RENEWAL_INTERVAL) {
            let Ok(store) = stores::open(&self.url, &self.http) else { return refusal.failure };
            *self.store.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(store);
            self.signed.clear();
            *renewed = Some(Instant::now());
        } else if since.is_some_and(|since| since > RENEWAL_GRACE) {
            return refusal.failure;
        }
        // Return a transient failure, so that the request is tried again, signed with the new credentials.
        HttpFailure::Broken(refusal.failure.to_string())
    }

    fn fetch(&self, key: &str, ask: FileRequest, most: u64) -> Result<Fetched, RequestError> {
        self.fetch_checked(key, ask, most, &|_| Ok(()))
    }

    fn fetch_checked(
        &self,
        key: &str,
        ask: FileRequest,
        most: u64,
        check: ResponseCheck<'_>,
    ) -> Result<Fetched, RequestError> {
        let explain = |failure, headers: &HeaderMap, body: &[u8]| self.explained(failure, headers, body);
        self.http.fetch_prepared(async || self.signed(key, ask).await, explain, ask, most, check)
    }

    fn inspect(&self, key: &str) -> Result<Stamp, RequestError> {
        if let Some((at, stamp)) = self.remembered().remove(key)
            && at.elapsed() < LISTING_MAX_AGE
        {
            return Ok(stamp);
        }
        let looked = match self.fetch(key, FileRequest::Head, 0) {
            // The response to HEAD has no body. Request one byte, to get a body with the reason of the refusal.
            Err(RequestError { failure, .. }) if failure.status().is_some() && !failure.is_gone() => {
                self.fetch(key, FileRequest::Range(0, 0), 1)?
            }
            looked => looked?,
        };
        let size = match looked.status {
            StatusCode::PARTIAL_CONTENT => super::ContentRange::of(&looked.headers).map(|range| range.total),
            _ => looked.length(),
        };
        let unsized_ = || HttpFailure::Final("the store does not report the object's size".to_owned());
        let size = size.ok_or_else(|| RequestError { failure: unsized_(), tries: 1 })?;
        Ok(Stamp::of_object(size, &looked.headers))
    }

    fn list(&self, key: &str) -> Result<ObjectListing, RequestError> {
        let prefix = if key.is_empty() { String::new() } else { format!("{key}/") };
        let listing = ObjectListing::read(self, &prefix, false)?;
        let (mut remembered, now) = (self.remembered(), Instant::now());
        if remembered.len() + listing.entries.len() > MAX_REMEMBERED {
            remembered.clear();
        }
        for entry in listing.entries.iter().take(MAX_REMEMBERED) {
            if let (Some(stamp), Ok(name)) = (entry.stamp, std::str::from_utf8(&entry.name)) {
                remembered.insert(format!("{prefix}{name}"), (now, stamp));
            }
        }
        Ok(listing)
    }

    fn remembered(&self) -> std::sync::MutexGuard<'_, HashMap<String, (Instant, Stamp)>> {
        self.remembered.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the state of a directory. A directory without entries does not exist.
    fn inspect_directory(&self, name: &[u8], key: &str) -> Result<EntryState> {
        match self.list(key) {
            Ok(listing) if listing.entries.is_empty() => Ok(EntryState::Gone),
            Ok(listing) => Ok(EntryState::Stamped(listing.stamp())),
            // Even a user who may not list keys may read objects, for example the shards of a packed dataset.
            Err(gave_up) if name.is_empty() && gave_up.failure.is_denied() => Ok(EntryState::Unstamped),
            Err(gave_up) => Err(self.failed("list", name, gave_up)),
        }
    }

    fn inspect_object(&self, name: &[u8], key: &str) -> Result<EntryState> {
        match self.inspect(key) {
            Ok(stamp) => Ok(EntryState::Stamped(stamp)),
            Err(gave_up) if gave_up.failure.is_gone() => Ok(EntryState::Gone),
            Err(gave_up) => Err(self.failed("look at", name, gave_up)),
        }
    }
}

impl DatasetSource for ObjectSource {
    fn path(&self, name: &[u8]) -> PathBuf {
        self.0.path(name)
    }

    fn canonical(&self) -> Result<PathBuf> {
        self.0.root_kind()?;
        Ok(self.0.shown.clone())
    }

    fn with_absolute_path(&self) -> Result<Arc<dyn DatasetSource>> {
        Ok(Arc::new(Self(self.0.clone())))
    }

    fn is_remote(&self) -> bool {
        true
    }

    fn is_file(&self) {
        let _ = self.0.root_kind.set(ObjectRootKind::File);
    }

    fn is_directory(&self) -> Result<bool> {
        Ok(!matches!(self.0.root_kind()?, ObjectRootKind::File))
    }

    fn directory(&self, name: &[u8]) -> Result<Box<dyn SourceDirectory>> {
        let root = &self.0;
        let key = root.key(name)?.ok_or_else(|| root.gone("list", name))?;
        if let ObjectRootKind::List(shards, stamp) = root.root_kind()?
            && name.is_empty()
        {
            return Ok(Box::new(root_kind::listed_directory(root.clone(), shards, *stamp)));
        }
        let listing = root.list(&key).map_err(|gave_up| match name.is_empty() {
            true => Error::dataset(root.path(name), format!("cannot be listed: {gave_up}")),
            false => root.failed("list", name, gave_up),
        })?;
        if listing.entries.is_empty() {
            return Err(root.gone("list", name));
        }
        let stamp = listing.stamp();
        Ok(Box::new(ObjectDirectory { root: root.clone(), stamp, listing }))
    }

    fn stamp(&self, name: &[u8]) -> Result<EntryState> {
        let root = &*self.0;
        let Some(key) = root.key(name)? else { return Ok(EntryState::Gone) };
        match root.root_kind()? {
            ObjectRootKind::Directory if name.is_empty() => return root.inspect_directory(name, &key),
            ObjectRootKind::Directory => {}
            // A run reads the files that this version of the list names. A newer version of the list takes effect at
            // the next start.
            ObjectRootKind::List(_, stamp) if name.is_empty() => return Ok(EntryState::Stamped(*stamp)),
            ObjectRootKind::File | ObjectRootKind::List(..) => return root.inspect_object(name, &key),
        }
        // The name may be an object or a directory. Usually the ending shows the kind, so try the more likely kind
        // first.
        let last = name.rsplit(|&byte| byte == b'/').next().unwrap_or_default();
        if last.contains(&b'.') {
            match root.inspect_object(name, &key)? {
                EntryState::Gone => root.inspect_directory(name, &key),
                seen => Ok(seen),
            }
        } else {
            match root.inspect_directory(name, &key)? {
                EntryState::Gone => root.inspect_object(name, &key),
                seen => Ok(seen),
            }
        }
    }

    fn open(&self, name: &[u8]) -> Result<OpenFile> {
        let root = &self.0;
        let key = root.key(name)?.ok_or_else(|| root.gone("open", name))?;
        let stamp = root.inspect(&key).map_err(|gave_up| root.failed("open", name, gave_up))?;
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
}

impl RangeSource for ObjectRoot {
    fn charges(&self) -> bool {
        true
    }

    fn prepare<'a>(&'a self, name: &'a [u8], ask: FileRequest) -> PreparedRequest<'a> {
        Box::pin(async move {
            // The thread that drives a reader must not block on the request that determines the root's kind.
            if self.root_kind.get().is_none() {
                return Err(Error::Internal(format!(
                    "the kind of {} was not determined first",
                    self.shown.display()
                )));
            }
            let key = self.key(name)?.ok_or_else(|| self.gone("open", name))?;
            Ok(self.signed(&key, ask).await)
        })
    }

    fn explain(&self, failure: HttpFailure, headers: &HeaderMap, body: &[u8]) -> HttpFailure {
        self.explained(failure, headers, body)
    }

    fn fetch(
        &self,
        name: &[u8],
        ask: FileRequest,
        most: u64,
        check: ResponseCheck<'_>,
    ) -> Result<Result<Fetched, RequestError>> {
        let key = self.key(name)?.ok_or_else(|| self.gone("open", name))?;
        Ok(self.fetch_checked(&key, ask, most, check))
    }
}

struct ObjectDirectory {
    root: Arc<ObjectRoot>,
    stamp: Stamp,
    listing: ObjectListing,
}

impl SourceDirectory for ObjectDirectory {
    fn stamp(&self) -> Stamp {
        self.stamp
    }

    fn entries(&self, show: &mut dyn FnMut(Entry<'_>) -> Result<ControlFlow<()>>) -> Result<()> {
        for entry in &self.listing.entries {
            let listing::ListedObject { name, kind, size, .. } = entry;
            if show(Entry { name, kind: *kind, target: None, size: *size })?.is_break() {
                break;
            }
        }
        Ok(())
    }

    fn size(&self, name: &[u8]) -> Result<Option<u64>> {
        let Some(entry) = self.listing.get(name).filter(|entry| entry.kind == EntryKind::File) else {
            return Ok(None);
        };
        if entry.size.is_some() {
            return Ok(entry.size);
        }
        let Some(key) = self.root.key(name)? else { return Ok(None) };
        match self.root.inspect(&key) {
            Ok(stamp) => Ok(Some(stamp.size)),
            Err(gave_up) if gave_up.failure.is_gone() => Ok(None),
            Err(gave_up) => Err(self.root.failed("look at", name, gave_up)),
        }
    }
}
