//! The URLs that a manifest names: what leads where, and which credentials go along.

use super::super::object_url::{ObjectUrl, StoreKind};
use super::super::url;
use crate::http::{HttpUrl, Reach, is_http};
use base::error::{Error, Result};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{PoisonError, RwLock};

/// What stands behind a URL that has a secret, which is left out: a query that is empty.
pub(super) const SECRET: char = '?';

/// Where a manifest lies, as far as that says what it may name.
enum ManifestPlace {
    /// On a file system: what it names was chosen by who uses this machine.
    Local,
    /// On a server.
    Server(HttpUrl),
    /// In an object store.
    Store(Option<ObjectUrl>),
}

/// The URLs that a manifest names.
pub(in crate::source) struct ManifestUrls {
    place: ManifestPlace,
    /// Those with secrets, by the names that they have without them.
    secret: RwLock<HashMap<Vec<u8>, HttpUrl>>,
}

impl ManifestUrls {
    /// Those of the manifest at `root`.
    pub(super) fn of(root: &Path) -> Self {
        let place = match url(root) {
            None => ManifestPlace::Local,
            Some(text) => match HttpUrl::parse(text) {
                Ok(url) => ManifestPlace::Server(url),
                Err(_) => ManifestPlace::Store(ObjectUrl::parse(text).and_then(Result::ok)),
            },
        };
        Self { place, secret: RwLock::default() }
    }

    /// Takes the URLs with secrets that the manifest has now.
    pub(super) fn learn(&self, secret: HashMap<Vec<u8>, HttpUrl>) {
        *self.secret.write().unwrap_or_else(PoisonError::into_inner) = secret;
    }

    /// Whether the manifest may name files by paths that are not below it.
    pub(super) fn may_name_any_path(&self) -> bool {
        matches!(self.place, ManifestPlace::Local)
    }

    /// The URL that a manifest's text is.
    ///
    /// # Errors
    /// Why it is not followed, in words that follow its name and show nothing secret of it.
    pub(super) fn parse(&self, text: &str) -> Result<HttpUrl, String> {
        match &self.place {
            // What proves to the manifest's own server who asks, goes to no other.
            ManifestPlace::Server(own) => own.join(text),
            _ => HttpUrl::parse(text),
        }
    }

    /// Where a URL of the manifest may lead.
    pub(in crate::source) fn reach(&self, url: &HttpUrl) -> Reach {
        match &self.place {
            ManifestPlace::Server(own) if own.is_of_host(url) => Reach::Anywhere,
            _ => self.elsewhere(),
        }
    }

    /// Where it may lead on other hosts than its own. What lies on a server leads to no address that this machine alone
    /// has, unless it lies at such a one itself.
    pub(in crate::source) fn elsewhere(&self) -> Reach {
        match &self.place {
            ManifestPlace::Local => Reach::NotNear,
            ManifestPlace::Server(own) if own.is_of_this_machine() => Reach::NotNear,
            ManifestPlace::Server(_) | ManifestPlace::Store(_) => Reach::NotOwn,
        }
    }

    /// Whether an object may be asked for. An account's host is a part of its URL, and is shown this machine's
    /// credentials, so that who writes a manifest elsewhere must not choose it.
    ///
    /// # Errors
    /// Why not, in words that follow its name.
    pub(super) fn check_object(&self, found: &ObjectUrl) -> Result<(), String> {
        let names_account = found.kind == StoreKind::Azure && found.bucket.contains(['@', '.']);
        let is_same = matches!(&self.place, ManifestPlace::Store(Some(own)) if own.kind == found.kind
            && account(&own.bucket) == account(&found.bucket));
        if !names_account || is_same || self.may_name_any_path() {
            return Ok(());
        }
        Err("names an account of its own, to which a manifest on a server must not lead credentials"
            .to_owned())
    }

    /// The URL by which a file is asked for.
    ///
    /// # Errors
    /// [`Error::Dataset`] for a name that the manifest does not have.
    pub(in crate::source) fn url(&self, name: &[u8]) -> Result<HttpUrl> {
        let text = String::from_utf8_lossy(name);
        let fail = |why: &str| Error::dataset(PathBuf::from(&*text), why);
        if !text.contains(SECRET) {
            return self.parse(&text).map_err(|why| fail(&why));
        }
        let secret = self.secret.read().unwrap_or_else(PoisonError::into_inner);
        secret.get(name).cloned().ok_or_else(|| fail("is named no more by the manifest"))
    }
}

/// What of a bucket is the account.
fn account(bucket: &str) -> &str {
    bucket.rsplit_once('@').map_or(bucket, |(_, account)| account)
}

/// Whether a text is a URL that is asked for by HTTP.
pub(super) fn is_of_http(text: &str) -> bool {
    is_http(text.as_bytes())
}
