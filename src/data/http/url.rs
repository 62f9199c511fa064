//! URLs of HTTP servers, split into the parts that requests need. Their secret parts are never shown.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hyper::header::HeaderValue;
use hyper::http::uri::Authority;
use percent_encoding::{AsciiSet, CONTROLS, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

/// Characters to percent-encode in a URL that a person wrote: the characters that no URL may contain. `%` is not
/// encoded, because it begins an encoded byte.
const URL_ESCAPES: &AsciiSet = &CONTROLS
    .add(b' ')
    .add(b'"')
    .add(b'<')
    .add(b'>')
    .add(b'`')
    .add(b'{')
    .add(b'}')
    .add(b'|')
    .add(b'\\')
    .add(b'^');

const NAME_ESCAPES: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~').remove(b'=').remove(b',');

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Origin {
    pub(super) secure: bool,
    /// Host in lower case; an IPv6 address in brackets.
    pub(super) host: String,
    pub(super) port: u16,
}

impl Origin {
    fn scheme(&self) -> &'static str {
        if self.secure { "https" } else { "http" }
    }

    /// Returns the host, with the port unless it is the scheme's default.
    pub(super) fn authority(&self) -> String {
        let usual = if self.secure { 443 } else { 80 };
        if self.port == usual { self.host.clone() } else { format!("{}:{}", self.host, self.port) }
    }

    /// Returns the host as resolvers and certificates write it, without brackets.
    pub(super) fn bare_host(&self) -> &str {
        self.host.trim_start_matches('[').trim_end_matches(']')
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", self.scheme(), self.authority())
    }
}

/// A URL of an HTTP server. `Display` and `Debug` show it without user, password and query.
#[derive(Clone, PartialEq, Eq)]
pub struct HttpUrl {
    pub(super) origin: Arc<Origin>,
    /// The path, percent-encoded, with its leading slash.
    path: String,
    /// Text after the question mark, which may be a signature.
    query: Option<String>,
    /// `Authorization` header, made from user and password.
    pub(super) authorization: Option<HeaderValue>,
}

impl fmt::Display for HttpUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.origin, self.path)
    }
}

impl fmt::Debug for HttpUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Whether a text is a URL of an HTTP server.
pub fn is_http(text: &[u8]) -> bool {
    without_scheme(text).is_some()
}

/// Returns whether a URL is HTTPS, and the text after its scheme; `None` if the text is no HTTP URL.
fn without_scheme(text: &[u8]) -> Option<(bool, &[u8])> {
    let of = |scheme: &[u8]| {
        let (start, rest) = text.split_at_checked(scheme.len())?;
        start.eq_ignore_ascii_case(scheme).then_some(rest)
    };
    of(b"http://").map(|rest| (false, rest)).or_else(|| of(b"https://").map(|rest| (true, rest)))
}

impl HttpUrl {
    /// Parses a URL.
    ///
    /// # Errors
    /// What is wrong with the URL, as the end of a sentence that begins with the URL. The message contains no secrets.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (secure, rest) = without_scheme(text.as_bytes()).ok_or("is not an http:// or https:// URL")?;
        let rest = &text[text.len() - rest.len()..];
        let end = rest.find(['/', '?', '#', '\\']).unwrap_or(rest.len());
        let (authority, rest) = rest.split_at(end);
        let (user, place) = match authority.rsplit_once('@') {
            Some((user, place)) => (Some(user), place),
            None => (None, authority),
        };
        let known: Authority = place.parse().map_err(|_| "has no valid host and port".to_owned())?;
        let usual = if secure { 443 } else { 80 };
        let port = match place[known.host().len()..].strip_prefix(':') {
            None | Some("") => usual,
            Some(port) => {
                port.parse().map_err(|_| "has a port that is not a number below 65536".to_owned())?
            }
        };
        if known.host().is_empty() {
            return Err("has no host".to_owned());
        }
        let origin = Origin { secure, host: known.host().to_ascii_lowercase(), port };
        let (path, query) = path_and_query(rest);
        let path = if path.starts_with('/') { path } else { format!("/{path}") };
        Ok(Self { origin: Arc::new(origin), path, query, authorization: user.map(authorization) })
    }

    /// Returns the URL of the file `name` in this directory.
    pub fn child(&self, name: &[u8]) -> Self {
        let mut path = self.path.trim_end_matches('/').to_owned();
        for part in name.split(|&byte| byte == b'/') {
            path.push('/');
            path.extend(percent_encoding::percent_encode(part, NAME_ESCAPES));
        }
        Self { path, ..self.clone() }
    }

    /// Returns this URL with a slash at the end of its path, which makes it the URL of a directory.
    pub fn as_directory(&self) -> Self {
        let path = if self.is_directory() { self.path.clone() } else { format!("{}/", self.path) };
        Self { path, ..self.clone() }
    }

    /// Whether the path ends in a slash.
    pub fn is_directory(&self) -> bool {
        self.path.ends_with('/')
    }

    /// Returns the last part of the path, decoded.
    pub fn file_name(&self) -> Vec<u8> {
        let last = self.path.trim_end_matches('/').rsplit('/').next().unwrap_or_default();
        percent_decode_str(last).collect()
    }

    /// Resolves a reference that is in a document at this URL. Credentials are kept only for the same server.
    ///
    /// # Errors
    /// What is wrong with the reference, as in [`HttpUrl::parse`].
    pub fn join(&self, reference: &str) -> Result<Self, String> {
        let scheme = reference.find([':', '/', '?', '#']).filter(|&at| reference[at..].starts_with(':'));
        if scheme.is_some() || reference.starts_with("//") {
            let absolute = match scheme {
                Some(_) => reference.to_owned(),
                None => format!("{}:{reference}", self.origin.scheme()),
            };
            let found = Self::parse(&absolute)?;
            let same = found.origin == self.origin;
            let authorization = if same { self.authorization.clone() } else { None };
            return Ok(Self { path: without_dots(&found.path), authorization, ..found });
        }
        let (path, query) = path_and_query(reference);
        let path = if path.is_empty() {
            self.path.clone()
        } else if path.starts_with('/') {
            path
        } else {
            let directory = &self.path[..self.path.rfind('/').map_or(0, |slash| slash + 1)];
            format!("{directory}{path}")
        };
        Ok(Self { path: without_dots(&path), query, ..self.clone() })
    }

    /// Returns this URL. If it has no query, adds the query of `other`, which must be a URL of the same server.
    pub fn with_fallback_query(self, other: &Self) -> Self {
        let query = self.query.clone().or_else(|| other.query.clone());
        Self { query, ..self }
    }

    /// Whether this URL contains credentials: a user and password, or a query, which may be a signature.
    pub fn has_secrets(&self) -> bool {
        self.query.is_some() || self.authorization.is_some()
    }

    /// Whether the host is `localhost` or an address of this machine.
    pub fn is_of_this_machine(&self) -> bool {
        let host = self.origin.bare_host();
        host == "localhost" || host.parse().is_ok_and(is_local_address)
    }

    /// Whether both URLs have the same host, on any port.
    pub fn is_of_host(&self, other: &Self) -> bool {
        self.origin.host == other.origin.host
    }

    /// Whether both URLs have the same scheme, host and port.
    pub fn is_of_origin(&self, other: &Self) -> bool {
        self.origin == other.origin
    }

    /// Returns the target of a redirect from this URL to `location`.
    ///
    /// # Errors
    /// The reason why the redirect is not followed.
    pub(super) fn redirected(&self, location: &str) -> Result<Self, String> {
        let found = self.join(location).map_err(|why| format!("redirects to a location that {why}"))?;
        if self.origin.secure && !found.origin.secure {
            return Err(format!(
                "redirects from https to {}, but redirects to http are not followed",
                found.origin
            ));
        }
        Ok(found)
    }

    /// Returns the decoded path relative to `directory`; `None` if the URL is not below it.
    pub fn below(&self, directory: &Self) -> Option<Vec<u8>> {
        let path =
            (self.origin == directory.origin).then(|| self.path.strip_prefix(&directory.path)).flatten()?;
        Some(percent_decode_str(path).collect())
    }

    /// Returns the decoded path, with its leading slash.
    pub fn decoded_path(&self) -> Vec<u8> {
        percent_decode_str(&self.path).collect()
    }

    /// Returns the parts of the query that identify the file, for example an object's name or version. `None` if the
    /// query contains only signatures and tokens, which change from request to request. The result may still be secret.
    pub fn identifying_query(&self) -> Option<String> {
        let parts = self.query.as_deref().unwrap_or_default().split('&').filter(|part| !part.is_empty());
        let name = |part: &str| part.split('=').next().unwrap_or_default().to_ascii_lowercase();
        let is_azure = parts.clone().any(|part| name(part) == "sig");
        let mut naming: Vec<&str> =
            parts.filter(|part| !is_credential_parameter(&name(part), is_azure)).collect();
        naming.sort_unstable();
        (!naming.is_empty()).then(|| naming.join("&"))
    }

    pub(super) fn request_path(&self) -> String {
        match &self.query {
            Some(query) => format!("{}?{query}", self.path),
            None => self.path.clone(),
        }
    }
}

/// Parameters of Azure's signatures in addition to `sig`. On other servers, such short names can have other meanings.
const AZURE: &str = "sv ss srt sr sp st se sip spr si sdd ses skoid sktid skt ske sks skv saoid suoid scid";
/// Parameters of signatures and tokens of CloudFront, older stores and many others.
const CREDENTIAL_PARAMETERS: &str = "awsaccesskeyid googleaccessid signature expires policy key-pair-id \
                                     security-token sig token access_token auth_token auth auth_key api_key apikey jwt";

/// Whether a query parameter belongs to a signature or a token, or specifies how the response is sent.
fn is_credential_parameter(name: &str, is_azure: bool) -> bool {
    let is_of = |names: &str| names.split(' ').any(|known| known == name);
    let starts = ["x-amz-", "x-goog-", "response-", "hdn"];
    starts.iter().any(|start| name.starts_with(start))
        || is_of(CREDENTIAL_PARAMETERS)
        || is_azure && is_of(AZURE)
}

/// Addresses that a request may connect to. The order is from the least strict to the strictest.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum AddressPolicy {
    /// Any address: for URLs that the user gave.
    #[default]
    Anywhere,
    /// No link-local address: for URLs that the user did not give. Cloud metadata services give out credentials at such
    /// addresses.
    NoLinkLocal,
    /// Neither a link-local address nor an address of this machine: for URLs from sources on other machines.
    NoLocalAddress,
}

impl AddressPolicy {
    /// Returns why a request must not connect to an address; `None` if it may.
    pub(super) fn refusal(self, address: IpAddr) -> Option<&'static str> {
        match self {
            Self::NoLinkLocal | Self::NoLocalAddress if is_link_local_address(address) => {
                Some("a link-local address")
            }
            Self::NoLocalAddress if is_local_address(address) => Some("an address of this machine itself"),
            _ => None,
        }
    }
}

/// Whether an address is that of this machine. Connections to the unspecified address also reach this machine.
fn is_local_address(address: IpAddr) -> bool {
    let is = |address: IpAddr| address.is_loopback() || address.is_unspecified();
    match address {
        IpAddr::V4(_) => is(address),
        IpAddr::V6(v6) => is(address) || v6.to_ipv4_mapped().is_some_and(|address| is(address.into())),
    }
}

/// Whether an address is link-local. Cloud metadata services give out credentials at such addresses.
pub(super) fn is_link_local_address(address: IpAddr) -> bool {
    let is_near_v6 = |address: Ipv6Addr| {
        address.is_unicast_link_local()
            || address.to_ipv4_mapped().is_some_and(|address| address.is_link_local())
    };
    match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => is_near_v6(address),
    }
}

/// Drops the fragment and splits path and query. Encodes characters that no URL may contain.
fn path_and_query(text: &str) -> (String, Option<String>) {
    let text = text.split('#').next().unwrap_or_default();
    let (path, query) = match text.split_once('?') {
        Some((path, query)) => (path, Some(utf8_percent_encode(query, URL_ESCAPES).to_string())),
        None => (text, None),
    };
    (utf8_percent_encode(path, URL_ESCAPES).to_string(), query)
}

/// Removes the parts `.` and `..` from a path. A `..` at the root has no effect.
fn without_dots(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    let (mut last, all) = ("", path.trim_start_matches('/'));
    for part in all.split('/') {
        match part {
            "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
        last = part;
    }
    let slash = if matches!(last, "." | "..") && !parts.is_empty() { "/" } else { "" };
    format!("/{}{slash}", parts.join("/"))
}

/// Makes the header for a user and password as a URL contains them.
fn authorization(user: &str) -> HeaderValue {
    let (name, password) = user.split_once(':').unwrap_or((user, ""));
    let mut plain: Vec<u8> = percent_decode_str(name).collect();
    plain.push(b':');
    plain.extend(percent_decode_str(password));
    let mut value =
        HeaderValue::try_from(format!("Basic {}", STANDARD.encode(plain))).expect("base64 is text");
    value.set_sensitive(true);
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(text: &str) -> HttpUrl {
        HttpUrl::parse(text).unwrap()
    }

    #[test]
    fn nothing_secret_is_shown() {
        let parsed = url("HTTPS://anna:pass%40word@Host.example:8443/da ta/ä.tar?X-Sig=abc#part");
        assert_eq!(parsed.to_string(), "https://host.example:8443/da%20ta/%C3%A4.tar");
        assert_eq!(format!("{parsed:?}"), parsed.to_string());
        assert_eq!(parsed.request_path(), "/da%20ta/%C3%A4.tar?X-Sig=abc");
        assert_eq!(parsed.authorization.clone().unwrap(), "Basic YW5uYTpwYXNzQHdvcmQ=");
        assert!(!format!("{:?}", parsed.authorization).contains("YW5"));
        assert_eq!(parsed.file_name(), "ä.tar".as_bytes());
        assert_eq!(url("http://h:80").to_string(), "http://h/");
        assert_eq!(url("http://[::1]:8080/a").origin.bare_host(), "::1");
    }

    #[test]
    fn queries_name_what_is_no_signature() {
        let named = |query: &str| url(&format!("https://h/get.tar?{query}")).identifying_query();
        for signature in [
            "X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Signature=0123&X-Amz-Expires=60",
            "X-Goog-Signature=0123&response-content-type=a",
            "AWSAccessKeyId=a&Signature=b&Expires=1",
            "Expires=1&Signature=b&Key-Pair-Id=c",
            "sv=2024-11-04&sr=c&sp=rl&se=2030-01-01&sig=0123",
            "token=secret",
            "",
            "&",
        ] {
            assert_eq!(named(signature), None, "{signature}");
        }
        assert_eq!(named("v=1&file=a&X-Amz-Signature=0123").as_deref(), Some("file=a&v=1"));
        assert!(named("st=1").is_some() && named("versionId=1") != named("versionId=2"));
    }

    #[test]
    fn what_is_no_url_is_refused_without_its_secrets() {
        for text in [
            "http://",
            "http:///a",
            "http://h:99999/",
            "http://u:p@",
            "http://a b/",
            "file:///etc",
            "ftp://h",
        ] {
            let error = HttpUrl::parse(text).unwrap_err();
            assert!(!error.contains("u:p"), "{error}");
        }
    }

    #[test]
    fn references_are_resolved_as_in_documents() {
        let base = url("http://u:p@h/a/b/list.txt?k=1");
        for (reference, path) in [
            ("c.tar", "/a/b/c.tar"),
            ("../c.tar", "/a/c.tar"),
            ("../../../c.tar", "/c.tar"),
            ("./d/./e", "/a/b/d/e"),
            ("/x?y=2", "/x?y=2"),
            ("http://h/z", "/z"),
            ("..", "/a/"),
        ] {
            assert_eq!(base.join(reference).unwrap().request_path(), path, "{reference}");
        }
        assert!(base.join("http://h/z").unwrap().authorization.is_some());
        for elsewhere in ["http://other/z", "//other/z", "http://h:81/z", "https://h/z"] {
            assert!(base.join(elsewhere).unwrap().authorization.is_none(), "{elsewhere}");
        }
        assert!(base.join("file:///etc/passwd").is_err());
        assert!(url("https://h/").redirected("http://h/").is_err());
    }

    #[test]
    fn names_become_paths_and_paths_names() {
        let directory = url("http://h/data/");
        let child = directory.child("class a/50% #1+?.jpg".as_bytes());
        assert_eq!(child.request_path(), "/data/class%20a/50%25%20%231%2B%3F.jpg");
        assert_eq!(child.below(&directory).unwrap(), b"class a/50% #1+?.jpg");
        assert_eq!(directory.below(&child), None);
    }
}
