//! Names of a manifest's files: the text in each row, checked and without secrets.

use super::super::object_url::ObjectUrl;
use super::super::{Stamp, url};
use super::urls::{ManifestUrls, SECRET};
use crate::http::HttpUrl;
use std::collections::HashMap;
use std::path::Path;

/// Collects the names in the rows of a manifest.
pub struct ManifestNames<'a> {
    urls: &'a ManifestUrls,
    secret: HashMap<Vec<u8>, HttpUrl>,
    /// Text of a row that contains secrets → name of the file.
    known: HashMap<String, Vec<u8>>,
    /// For each URL without secrets: how many different texts so far differ from it only in their secrets.
    alike: HashMap<String, u32>,
}

impl<'a> ManifestNames<'a> {
    pub(super) fn of(urls: &'a ManifestUrls) -> Self {
        Self { urls, secret: HashMap::new(), known: HashMap::new(), alike: HashMap::new() }
    }

    /// Returns the file name for the `text` of a row: the text without its secrets.
    ///
    /// # Errors
    /// The reason why the text cannot name a file. The message contains no secrets.
    pub fn take(&mut self, text: &str) -> Result<Vec<u8>, String> {
        if text.contains(['\0', '\n', '\r']) {
            return Err("has a file name with a line break or a NUL byte".to_owned());
        }
        let Some(url) = url(Path::new(text)) else { return self.path(text) };
        let shown = super::super::shown_url(url);
        let refused = |why: &str| format!("names {shown}, which {why}");
        if crate::http::is_http(url.as_bytes()) {
            return self.url(text).map_err(|why| refused(&why));
        }
        match ObjectUrl::parse(url) {
            Some(Ok(found)) if found.is_directory => Err(refused("is a directory, not a file")),
            Some(Ok(found)) => match self.urls.check_object(&found) {
                Ok(()) => Ok(found.shown().into_bytes()),
                Err(why) => Err(refused(&why)),
            },
            Some(Err(why)) => Err(refused(&why)),
            None => Err(refused(
                "has an unsupported URL scheme: use a path, or an http://, https://, s3://, gs:// or az:// URL",
            )),
        }
    }

    fn path(&self, text: &str) -> Result<Vec<u8>, String> {
        if !self.urls.may_name_any_path() {
            let below = text.strip_prefix("./").unwrap_or(text);
            if below.split('/').any(|part| matches!(part, "" | "." | "..")) {
                let message = "has a path outside the manifest's directory, which is not allowed for a manifest on a \
                               server: give the whole URL";
                return Err(message.to_owned());
            }
        }
        Ok(text.as_bytes().to_vec())
    }

    /// Returns the name of a file on a server, without secrets. A digest replaces the part of the query that identifies
    /// the file. If several URLs are equal without their secrets, they are numbered in the order of the rows. So names
    /// stay the same if the manifest's URLs are signed again.
    fn url(&mut self, text: &str) -> Result<Vec<u8>, String> {
        if let Some(name) = self.known.get(text) {
            return Ok(name.clone());
        }
        let found = HttpUrl::parse(text)?;
        if !found.has_secrets() {
            return Ok(found.to_string().into_bytes());
        }
        let digest = found.identifying_query().map(|query| Stamp::of_text(query.as_bytes()).inode);
        let digest = digest.map_or(String::new(), |digest| format!("{digest:016x}"));
        let plain = format!("{found}{SECRET}{digest}");
        let count = self.alike.entry(plain.clone()).or_default();
        *count += 1;
        let number = if *count == 1 { String::new() } else { format!("#{count}") };
        let name = format!("{plain}{number}").into_bytes();
        self.secret.insert(name.clone(), self.urls.parse(text)?);
        self.known.insert(text.to_owned(), name.clone());
        Ok(name)
    }

    /// Whether any URL contains a secret, so that the manifest must be read at every start.
    pub fn has_secrets(&self) -> bool {
        !self.secret.is_empty()
    }

    /// Passes the collected URLs with secrets on, so that later requests use them.
    pub fn set_secret_urls(self) {
        self.urls.set_secret_urls(self.secret);
    }
}
