//! URLs in a manifest: to which addresses the loader may connect for them, and with which credentials.

use super::super::object_url::{ObjectUrl, StoreKind};
use super::super::url;
use crate::http::{AddressPolicy, HttpUrl};
use base::error::{Error, Result};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{PoisonError, RwLock};

/// Marks a file name that was made from a URL with secrets. In the name, it replaces the query of the URL.
pub(super) const SECRET: char = '?';

/// Where a manifest is stored. The place limits which files the manifest may name.
enum ManifestPlace {
    /// On a file system: the user of this machine chose the files, so any path is valid.
    Local,
    Server(HttpUrl),
    Store(Option<ObjectUrl>),
}

/// Parses the URLs in a manifest, and decides which hosts the loader may contact for them.
pub(in crate::source) struct ManifestUrls {
    place: ManifestPlace,
    /// URLs with secrets. The keys are the file names without secrets.
    secret: RwLock<HashMap<Vec<u8>, HttpUrl>>,
}

impl ManifestUrls {
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

    pub(super) fn set_secret_urls(&self, secret: HashMap<Vec<u8>, HttpUrl>) {
        *self.secret.write().unwrap_or_else(PoisonError::into_inner) = secret;
    }

    pub(super) fn may_name_any_path(&self) -> bool {
        matches!(self.place, ManifestPlace::Local)
    }

    /// Parses a URL in the manifest's text.
    ///
    /// # Errors
    /// The reason why the URL is refused, as the end of a sentence that begins with the URL. The message contains no
    /// secrets.
    pub(super) fn parse(&self, text: &str) -> Result<HttpUrl, String> {
        match &self.place {
            // `join` keeps the credentials of the manifest's URL only for the manifest's own server.
            ManifestPlace::Server(own) => own.join(text),
            _ => HttpUrl::parse(text),
        }
    }

    pub(in crate::source) fn address_policy(&self, url: &HttpUrl) -> AddressPolicy {
        match &self.place {
            ManifestPlace::Server(own) if own.is_of_host(url) => AddressPolicy::Anywhere,
            _ => self.other_hosts_policy(),
        }
    }

    /// Returns the address policy for URLs on other hosts than the manifest's own. A manifest on a server must not name
    /// this machine's own addresses, except if that server is this machine.
    pub(in crate::source) fn other_hosts_policy(&self) -> AddressPolicy {
        match &self.place {
            ManifestPlace::Local => AddressPolicy::NoLinkLocal,
            ManifestPlace::Server(own) if own.is_of_this_machine() => AddressPolicy::NoLinkLocal,
            ManifestPlace::Server(_) | ManifestPlace::Store(_) => AddressPolicy::NoLocalAddress,
        }
    }

    /// Checks that an object may be requested. An Azure URL may name the account, and so the host to which this
    /// machine's credentials are sent. The author of a manifest on a server must not choose that host.
    ///
    /// # Errors
    /// The reason why the object must not be requested, as the end of a sentence that begins with its URL.
    pub(super) fn check_object(&self, found: &ObjectUrl) -> Result<(), String> {
        let names_account = found.kind == StoreKind::Azure && found.bucket.contains(['@', '.']);
        let is_same = matches!(&self.place, ManifestPlace::Store(Some(own)) if own.kind == found.kind
            && account(&own.bucket) == account(&found.bucket));
        if !names_account || is_same || self.may_name_any_path() {
            return Ok(());
        }
        Err("names an Azure account, to which a manifest on a server must not send credentials".to_owned())
    }

    /// Returns the URL for requests of the file `name`.
    ///
    /// # Errors
    /// [`Error::Dataset`] for a name that is not in the manifest.
    pub(in crate::source) fn url(&self, name: &[u8]) -> Result<HttpUrl> {
        let text = String::from_utf8_lossy(name);
        let fail = |why: &str| Error::dataset(PathBuf::from(&*text), why);
        if !text.contains(SECRET) {
            return self.parse(&text).map_err(|why| fail(&why));
        }
        let secret = self.secret.read().unwrap_or_else(PoisonError::into_inner);
        secret.get(name).cloned().ok_or_else(|| fail("is no longer in the manifest"))
    }
}

/// Returns the account of an Azure bucket name such as `container@account`.
fn account(bucket: &str) -> &str {
    bucket.rsplit_once('@').map_or(bucket, |(_, account)| account)
}
