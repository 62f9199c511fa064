//! Determines what the URL of a dataset on an HTTP server names: a file, a directory, or a list of shards.

use super::{Error, FileRequest, HttpRoot, LARGEST_PAGE, ROOT_KINDS, Result, Stamp, is_list};
use crate::http::HttpUrl;
use crate::source::manifest::ManifestUrls;
use crate::source::shard_list;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::sync::Arc;

pub(super) enum HttpRootKind {
    File,
    Directory,
    /// A list of shards: the URL of each shard by its name, and the stamp of the list itself.
    List(BTreeMap<Vec<u8>, HttpUrl>, Stamp),
    /// The files of a manifest, which may be on several servers. The name of each file is its URL.
    Urls(Arc<ManifestUrls>),
}

pub(super) fn find(root: &HttpRoot) -> Result<HttpRootKind> {
    if root.url.is_directory() {
        return Ok(HttpRootKind::Directory);
    }
    let name = root.url.file_name();
    let path = PathBuf::from(OsString::from_vec(name.clone()));
    if is_list(&path) {
        let list = root.fetch(&root.url, FileRequest::Whole, LARGEST_PAGE);
        let list =
            list.map_err(|gave_up| Error::dataset(&root.shown, format!("cannot be read: {gave_up}")))?;
        let bad = |why| Error::dataset(&root.shown, format!("is not a valid list of shards: {why}"));
        let shards = shards(&root.url, &list.bytes).map_err(bad)?;
        return Ok(HttpRootKind::List(shards, Stamp::of_text(&list.bytes)));
    }
    match root.inspect(&root.url) {
        Ok(found) if found.url.is_directory() || found.is_page => Ok(HttpRootKind::Directory),
        Ok(_) => Ok(HttpRootKind::File),
        // The server may have no page for the directory of a packed dataset or of a zarr store, but files in it show
        // that it exists.
        Err(gave_up)
            if (!name.contains(&b'.') || name.ends_with(b".zarr"))
                && (gave_up.failure.is_gone() || gave_up.failure.is_denied()) =>
        {
            Ok(HttpRootKind::Directory)
        }
        Err(gave_up) if gave_up.failure.is_gone() => {
            Err(Error::dataset(&root.shown, format!("does not exist ({gave_up}): {ROOT_KINDS}")))
        }
        Err(gave_up) => Err(root.failed("open dataset", &[], gave_up)),
    }
}

/// Parses the list of shards at `url`: one shard per line, relative to the list or as an absolute URL of the same
/// server. The name of a shard is its path relative to the list's directory. For a shard elsewhere on the server, it is
/// the path from the server's root.
fn shards(url: &HttpUrl, text: &[u8]) -> Result<BTreeMap<Vec<u8>, HttpUrl>, String> {
    let directory = url.join(".")?.as_directory();
    shard_list::parse(text, |line| {
        // A line may contain a signature, so messages do not show it.
        let found = url.join(line)?;
        if !found.is_of_origin(url) {
            return Err("names a file on another server: make one list for each server".to_owned());
        }
        let name = found.below(&directory).unwrap_or_else(|| found.decoded_path()[1..].to_vec());
        if name.is_empty() || name.ends_with(b"/") || name.contains(&0) {
            return Err("does not name a file".to_owned());
        }
        Ok((name, found.with_fallback_query(url)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_name_shards_of_their_own_server() {
        let url = HttpUrl::parse("http://h:1/data/list.txt?sig=s").unwrap();
        let found = shards(
            &url,
            b"\xEF\xBB\xBF# train\na.tar\n\n  sub/b%20c.tar \r\nhttp://h:1/other/d.tar?sig=own\n",
        )
        .unwrap();
        let names: Vec<_> = found.keys().map(|name| String::from_utf8_lossy(name).into_owned()).collect();
        assert_eq!(names, ["a.tar", "other/d.tar", "sub/b c.tar"]);
        for (text, said) in [
            ("", "no shard"),
            ("# nothing", "no shard"),
            ("a.tar\na.tar", "line 2"),
            ("http://other/a.tar", "another server"),
            ("file:///etc/passwd", "line 1"),
            ("dir/", "does not name a file"),
        ] {
            let error = shards(&url, text.as_bytes()).unwrap_err();
            assert!(error.contains(said), "{text}: {error}");
        }
        let error = shards(&url, b"ftp://u:secret@h/?token").unwrap_err();
        assert!(!error.contains("secret") && !error.contains("token"), "{error}");
    }
}
