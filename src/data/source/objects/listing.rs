//! Lists the direct children of a key, page by page.

use super::ObjectRoot;
use super::connector::{ListingPage, StoreFailure};
use super::stores::{failure_within, root_cause};
use crate::http::{HttpFailure, RequestError, Retries};
use crate::source::{EntryKind, Stamp};
use object_store::ListResult;
use object_store::list::PaginatedListOptions;
use sha2::{Digest, Sha256};
use std::time::SystemTime;

/// The direct children of a key, sorted by name.
pub(super) struct ObjectListing {
    pub(super) entries: Vec<ListedObject>,
}

/// An object, or a directory. A directory is a key prefix that ends before a slash and that several objects share.
pub(super) struct ListedObject {
    pub(super) name: Vec<u8>,
    pub(super) kind: EntryKind,
    pub(super) size: Option<u64>,
    /// Stamp of an object, if the listing contains its ETag. When the object is read, responses are compared with it.
    pub(super) stamp: Option<Stamp>,
}

impl ObjectListing {
    /// Lists the direct children of `prefix`, which is empty or ends in a slash. With `one`, stops after the first page
    /// that has an entry.
    pub(super) fn read(root: &ObjectRoot, prefix: &str, one: bool) -> Result<Self, RequestError> {
        let once = |failure| RequestError { failure, tries: 1 };
        let mut entries = Vec::new();
        let read = root.http.run(async |_| {
            let mut token = None;
            loop {
                let (found, next) = page(root, prefix, token, one).await?;
                take(found, prefix, &mut entries);
                token = next;
                if token.is_none() || one && !entries.is_empty() {
                    return Ok(());
                }
            }
        });
        read.map_err(once)??;
        // If an object and a directory have the same name, keep the directory.
        let order = |entry: &ListedObject| entry.kind != EntryKind::Directory;
        entries.sort_unstable_by(|a, b| a.name.cmp(&b.name).then(order(a).cmp(&order(b))));
        entries.dedup_by(|a, b| a.name == b.name);
        Ok(Self { entries })
    }

    /// Returns a stamp of the listing: a digest of its names and sizes.
    pub(super) fn stamp(&self) -> Stamp {
        let mut digest = Sha256::new();
        for ListedObject { name, size, .. } in &self.entries {
            digest.update((name.len() as u64).to_le_bytes());
            digest.update(name);
            digest.update(size.map_or(u64::MAX, |size| size).to_le_bytes());
        }
        Stamp::of_digest(digest)
    }

    pub(super) fn get(&self, name: &[u8]) -> Option<&ListedObject> {
        let at = self.entries.binary_search_by(|entry| entry.name.as_slice().cmp(name)).ok()?;
        self.entries.get(at)
    }
}

/// Requests a page of the listing. Returns the page and the token of the next page. Each retry is signed again.
async fn page(
    root: &ObjectRoot,
    prefix: &str,
    token: Option<String>,
    one: bool,
) -> Result<(ListResult, Option<String>), RequestError> {
    let mut retries = Retries::new();
    loop {
        let store = root.store();
        let mut options = PaginatedListOptions {
            delimiter: Some("/".into()),
            page_token: token.clone(),
            max_keys: one.then_some(2),
            ..PaginatedListOptions::default()
        };
        let asked = ListingPage::default();
        options.extensions.insert(asked.clone());
        let prefix = Some(prefix).filter(|prefix| !prefix.is_empty());
        root.http.count(|asked| asked.lists += 1);
        let error = match store.pages.list_paginated(prefix, options).await {
            Ok(page) => return Ok((page.result, page.page_token)),
            Err(error) => error,
        };
        let failure = match failure_within(&error).filter(|_| asked.was_sent()) {
            Some(StoreFailure::Refused(failure, headers, body)) => {
                root.explained(failure.clone(), headers, body)
            }
            Some(StoreFailure::NoResponse(failure)) => failure.clone(),
            _ if asked.was_sent() => {
                HttpFailure::Final(format!("the listing cannot be read: {}", root_cause(&error)))
            }
            _ => store.signing_failure(root.url.kind, &error),
        };
        let pause = retries.after(failure)?;
        tokio::time::sleep(pause).await;
    }
}

fn take(page: ListResult, prefix: &str, entries: &mut Vec<ListedObject>) {
    for directory in page.common_prefixes {
        let name = below(directory.as_ref(), prefix);
        entries.extend(name.map(|name| ListedObject {
            name,
            kind: EntryKind::Directory,
            size: None,
            stamp: None,
        }));
    }
    for object in page.objects {
        // Skip the empty placeholder object that has the directory's own key.
        let Some(name) = below(object.location.as_ref(), prefix) else { continue };
        let modified = SystemTime::from(object.last_modified);
        let etag = object.e_tag.as_ref().filter(|etag| !etag.is_empty());
        let stamp = etag.map(|etag| Stamp::of_described(object.size, Some(etag.as_bytes()), Some(modified)));
        entries.push(ListedObject { name, kind: EntryKind::File, size: Some(object.size), stamp });
    }
}

/// Returns the name of a direct child of `prefix`; `None` if `key` is not a direct child.
fn below(key: &str, prefix: &str) -> Option<Vec<u8>> {
    let name = key.strip_prefix(prefix)?;
    (!name.is_empty() && !name.contains('/')).then(|| name.as_bytes().to_vec())
}
