//! Determines what the URL of a dataset in an object store names: an object, a directory, or a list of shards.

use super::listing::{ListedObject, ObjectListing};
use super::{ObjectDirectory, ObjectRoot};
use crate::http::FileRequest;
use crate::source::object_url::ObjectUrl;
use crate::source::{EntryKind, Stamp, shard_list};
use base::error::{Error, Result};
use std::collections::BTreeMap;
use std::sync::Arc;

const LONGEST_LIST: u64 = 256 << 20;

pub(super) enum ObjectRootKind {
    File,
    Directory,
    /// A list of shards: the key of each shard by its name, and the stamp of the list itself.
    List(BTreeMap<Vec<u8>, String>, Stamp),
}

pub(super) fn find(root: &ObjectRoot) -> Result<ObjectRootKind> {
    let ObjectUrl { key, is_directory, .. } = &root.url;
    if *is_directory {
        return Ok(ObjectRootKind::Directory);
    }
    let failed = |gave_up: crate::http::RequestError| {
        Error::dataset(&root.shown, format!("cannot be read: {gave_up}"))
    };
    if key.to_ascii_lowercase().ends_with(".txt") {
        let list = root.fetch(key, FileRequest::Whole, LONGEST_LIST).map_err(failed)?;
        let bad = |why| Error::dataset(&root.shown, format!("is not a valid list of shards: {why}"));
        let shards = shards(&root.url, &list.bytes).map_err(bad)?;
        return Ok(ObjectRootKind::List(shards, Stamp::of_text(&list.bytes)));
    }
    let has_below =
        || ObjectListing::read(root, &format!("{key}/"), true).map(|below| !below.entries.is_empty());
    // Usually the ending of a key shows the kind, so do not request an object if it looks like a directory. Stores on
    // top of file systems fail for such a request.
    let is_likely_object = key.rsplit('/').next().is_some_and(|last| last.contains('.'));
    if !is_likely_object && has_below().map_err(failed)? {
        return Ok(ObjectRootKind::Directory);
    }
    match root.inspect(key) {
        Ok(_) => Ok(ObjectRootKind::File),
        // If the user may not list keys, stores respond "forbidden" for a missing key.
        Err(gave_up) if gave_up.failure.is_gone() || gave_up.failure.is_denied() => {
            if is_likely_object && has_below().map_err(failed)? {
                return Ok(ObjectRootKind::Directory);
            }
            let why = "does not exist: there is no object with this key, and none below it";
            Err(Error::dataset(&root.shown, why))
        }
        Err(gave_up) => Err(failed(gave_up)),
    }
}

/// Parses the list of shards at `url`: one shard per line, relative to the list or as a whole URL of the same bucket.
/// The name of a shard is its key relative to the list's directory. For a shard outside this directory, it is the whole
/// key.
fn shards(url: &ObjectUrl, text: &[u8]) -> Result<BTreeMap<Vec<u8>, String>, String> {
    let directory = url.key.rfind('/').map_or("", |slash| &url.key[..=slash]);
    shard_list::parse(text, |line| {
        let key = match ObjectUrl::parse(line) {
            Some(Ok(found)) if found.kind == url.kind && found.bucket == url.bucket => found.key,
            Some(Ok(_)) => {
                return Err("names an object in another bucket: make one list for each bucket".to_owned());
            }
            Some(Err(why)) => return Err(why),
            None if line.contains("://") => return Err("is not an object store URL".to_owned()),
            None => format!("{directory}{}", line.trim_start_matches("./")),
        };
        if key.split('/').any(|part| matches!(part, "" | "." | "..")) {
            return Err("does not name an object".to_owned());
        }
        Ok((key.strip_prefix(directory).unwrap_or(&key).as_bytes().to_vec(), key))
    })
}

/// Makes a directory of the shards in a list. Their sizes are requested later.
pub(super) fn listed_directory(
    root: Arc<ObjectRoot>,
    shards: &BTreeMap<Vec<u8>, String>,
    stamp: Stamp,
) -> ObjectDirectory {
    let entry =
        |name: &Vec<u8>| ListedObject { name: name.clone(), kind: EntryKind::File, size: None, stamp: None };
    let listing = ObjectListing { entries: shards.keys().map(entry).collect() };
    ObjectDirectory { root, stamp, listing }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_name_objects_of_their_own_bucket() {
        let url = ObjectUrl::parse("s3://b/data/list.txt").unwrap().unwrap();
        let found = shards(&url, b"# train\na.tar\n\n ./sub/b c.tar \r\ns3://b/other/d.tar\n").unwrap();
        let names: Vec<_> =
            found.iter().map(|(name, key)| (std::str::from_utf8(name).unwrap(), &**key)).collect();
        assert_eq!(
            names,
            [("a.tar", "data/a.tar"), ("other/d.tar", "other/d.tar"), ("sub/b c.tar", "data/sub/b c.tar")]
        );
        for (text, said) in [
            ("", "no shard"),
            ("a.tar\na.tar", "line 2"),
            ("s3://other/a.tar", "another bucket"),
            ("http://h/a.tar", "not an object store URL"),
            ("../a.tar", "does not name an object"),
            ("dir/", "does not name an object"),
        ] {
            let error = shards(&url, text.as_bytes()).unwrap_err();
            assert!(error.contains(said), "{text}: {error}");
        }
    }
}
