//! URLs of object stores: the store, the bucket, and the key or prefix. Keys are written as they are, not
//! percent-encoded.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StoreKind {
    /// Amazon S3, and all stores with its protocol.
    S3,
    Google,
    Azure,
}

const SCHEMES: [(&str, StoreKind); 7] = [
    ("s3", StoreKind::S3),
    ("s3a", StoreKind::S3),
    ("gs", StoreKind::Google),
    ("az", StoreKind::Azure),
    ("azure", StoreKind::Azure),
    ("abfs", StoreKind::Azure),
    ("abfss", StoreKind::Azure),
];

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ObjectUrl {
    pub(super) kind: StoreKind,
    pub(super) scheme: &'static str,
    /// Bucket or container, together with the account if the URL names it.
    pub(super) bucket: String,
    /// Key or key prefix, without slashes at its start and end; empty for the whole bucket.
    pub(super) key: String,
    pub(super) is_directory: bool,
}

/// Returns the URL without its secrets; `None` if `text` is not a URL of an object store.
pub(super) fn shown(text: &str) -> Option<String> {
    let (scheme, rest) = split(text)?;
    // A shared access signature in the query is a credential. URLs with one are refused, and messages show the refused
    // URL.
    let rest = if scheme.1 == StoreKind::Azure { rest.split('?').next().unwrap_or_default() } else { rest };
    let (authority, key) = rest.split_once('/').unwrap_or((rest, ""));
    let bucket = match authority.rsplit_once('@') {
        Some((user, host)) if scheme.1 != StoreKind::Azure || user.contains(':') => host,
        _ => authority,
    };
    Some(format!("{}://{bucket}/{key}", scheme.0).trim_end_matches('/').to_owned())
}

fn split(text: &str) -> Option<((&'static str, StoreKind), &str)> {
    let (scheme, rest) = text.split_once("://")?;
    let known = SCHEMES.iter().find(|(name, _)| scheme.eq_ignore_ascii_case(name))?;
    Some((*known, rest))
}

impl ObjectUrl {
    /// Parses a URL; `None` if `text` is not a URL of an object store.
    ///
    /// # Errors
    /// What is wrong with the URL, as the end of a sentence that begins with the URL. The message contains no secrets.
    pub(super) fn parse(text: &str) -> Option<Result<Self, String>> {
        let ((scheme, kind), rest) = split(text)?;
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let has_user = authority.contains('@') && (kind != StoreKind::Azure || authority.contains(':'));
        if has_user {
            return Some(Err(
                "contains credentials: put them into the environment or into the store's configuration files; \
                             docs/sources.md says where they are looked for"
                    .to_owned(),
            ));
        }
        if kind == StoreKind::Azure && rest.contains('?') {
            return Some(Err("has a query (a SAS token): set AZURE_STORAGE_SAS_TOKEN instead".to_owned()));
        }
        if authority.is_empty() {
            return Some(Err(format!("has no bucket: write {scheme}://bucket/prefix")));
        }
        let (key, is_directory) = match path.strip_suffix('/') {
            Some(key) => (key, true),
            None => (path, path.is_empty()),
        };
        if !key.is_empty() && key.split('/').any(|part| matches!(part, "" | "." | "..")) {
            return Some(Err(
                "has an empty path component, or one that is . or ..: write the exact key".to_owned()
            ));
        }
        let (bucket, key) = (authority.to_owned(), key.to_owned());
        Some(Ok(Self { kind, scheme, bucket, key, is_directory }))
    }

    /// Returns the URL for messages and storage. It contains no secrets.
    pub(super) fn shown(&self) -> String {
        let Self { scheme, bucket, key, .. } = self;
        format!("{scheme}://{bucket}/{key}").trim_end_matches('/').to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_taken_apart() {
        let parsed = |text| ObjectUrl::parse(text).unwrap().unwrap();
        let found = parsed("S3://bucket/a b/c?d#e%20");
        assert_eq!((found.kind, &*found.bucket, &*found.key), (StoreKind::S3, "bucket", "a b/c?d#e%20"));
        assert!(!found.is_directory && parsed("s3://b/a/").is_directory && parsed("gs://b").is_directory);
        assert_eq!(parsed("s3://b/a/").shown(), "s3://b/a");
        let azure = parsed("abfss://box@account.dfs.core.windows.net/a");
        assert_eq!((azure.kind, &*azure.bucket), (StoreKind::Azure, "box@account.dfs.core.windows.net"));
        assert_eq!(shown("abfss://box@account.dfs.core.windows.net/a").unwrap(), azure.shown());
        assert!(ObjectUrl::parse("http://h/a").is_none() && ObjectUrl::parse("/s3/a").is_none());
    }

    #[test]
    fn what_is_wrong_is_said_without_secrets() {
        for text in
            ["s3://", "s3:///a", "s3://b/a//c", "s3://b/../c", "s3://key:secret@b/a", "az://u:secret@h/a"]
        {
            let error = ObjectUrl::parse(text).unwrap().unwrap_err();
            assert!(!error.contains("secret"), "{error}");
            assert!(!shown(text).unwrap().contains("secret"), "{text}");
        }
    }
}
