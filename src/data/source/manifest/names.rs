//! The names of a manifest's files: what its rows say, checked, and without what is secret.

use super::super::object_url::ObjectUrl;
use super::super::{Stamp, url};
use super::urls::{ManifestUrls, SECRET, is_of_http};
use crate::http::HttpUrl;
use std::collections::HashMap;
use std::path::Path;

/// Takes what the rows of a manifest name.
pub struct ManifestNames<'a> {
    urls: &'a ManifestUrls,
    /// The URLs with secrets, by their names.
    secret: HashMap<Vec<u8>, HttpUrl>,
    /// The names of the texts that have secrets.
    known: HashMap<String, Vec<u8>>,
    /// How many texts are the same but for their secrets.
    alike: HashMap<String, u32>,
}

impl<'a> ManifestNames<'a> {
    pub(super) fn of(urls: &'a ManifestUrls) -> Self {
        Self { urls, secret: HashMap::new(), known: HashMap::new(), alike: HashMap::new() }
    }

    /// The name of the file that a row names by `text`.
    ///
    /// # Errors
    /// Why there is none, in words that show nothing secret of it.
    pub fn take(&mut self, text: &str) -> Result<Vec<u8>, String> {
        if text.contains(['\0', '\n', '\r']) {
            return Err("names a file by more than one line, or with a NUL".to_owned());
        }
        let Some(url) = url(Path::new(text)) else { return self.path(text) };
        let shown = super::super::shown_url(url);
        let refused = |why: &str| format!("names {shown}, which {why}");
        if is_of_http(url) {
            return self.url(text).map_err(|why| refused(&why));
        }
        match ObjectUrl::parse(url) {
            Some(Ok(found)) if found.is_directory => Err(refused("is no file")),
            Some(Ok(found)) => match self.urls.check_object(&found) {
                Ok(()) => Ok(found.shown().into_bytes()),
                Err(why) => Err(refused(&why)),
            },
            Some(Err(why)) => Err(refused(&why)),
            None => Err(refused(
                "a manifest may not name: files are named by paths and by URLs of http://, https://, s3://, gs:// or \
                 az://",
            )),
        }
    }

    /// The name of a file that is named by its path.
    fn path(&self, text: &str) -> Result<Vec<u8>, String> {
        if !self.urls.may_name_any_path() {
            let below = text.strip_prefix("./").unwrap_or(text);
            if below.split('/').any(|part| matches!(part, "" | "." | "..")) {
                let message = "names a path that does not lie below its directory, as on a server it must: give the \
                               whole URL";
                return Err(message.to_owned());
            }
        }
        Ok(text.as_bytes().to_vec())
    }

    /// The name of a file on a server. What a query names beside secrets is in it as a digest. What is the same without
    /// its secrets is counted, in the order of the rows, so that the names stay when the manifest is signed anew.
    fn url(&mut self, text: &str) -> Result<Vec<u8>, String> {
        if let Some(name) = self.known.get(text) {
            return Ok(name.clone());
        }
        let found = HttpUrl::parse(text)?;
        if !found.has_secrets() {
            return Ok(found.to_string().into_bytes());
        }
        let digest = found.naming_query().map(|query| Stamp::of_text(query.as_bytes()).inode);
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

    /// Whether any file has a URL with a secret, so that the manifest must be read at every start.
    pub fn has_secrets(&self) -> bool {
        !self.secret.is_empty()
    }

    /// Has the manifest's files asked for by the URLs that were taken.
    pub fn learn(self) {
        self.urls.learn(self.secret);
    }
}
