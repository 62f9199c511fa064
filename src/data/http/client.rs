//! A client for any HTTP server: keeps connections, uses proxies, follows redirects.

use super::connection::{HttpConnection, HttpRequest};
use super::failure::HttpFailure;
use super::tls;
use super::url::{AddressPolicy, HttpUrl, Origin, is_link_local_address};
use bytes::Bytes;
use http_body_util::{BodyExt, Empty, Full};
use hyper::body::{Body, Incoming};
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::{Method, Request, StatusCode};
use hyper_util::client::proxy::matcher::{Intercept, Matcher};
use hyper_util::rt::TokioIo;
use std::collections::HashMap;
use std::error::Error as _;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::rustls::Error as TlsError;
use tokio_rustls::rustls::pki_types::ServerName;

const REDIRECTS: usize = 5;
/// Longest body, in bytes, that is read only so that its connection can be kept.
const MAX_DRAINED_BODY: usize = 64 << 10;

/// The part of a file that a request asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileRequest {
    /// The headers without the file.
    Head,
    /// The whole file.
    Whole,
    /// A range of bytes: the first and the last, both included.
    Range(u64, u64),
}

/// A file on a server, and the credentials for it.
#[derive(Clone)]
pub struct HttpTarget {
    /// URL of the file.
    pub url: HttpUrl,
    /// Headers for this server only: tokens, signatures.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// Addresses that the request may connect to.
    pub address_policy: AddressPolicy,
    /// Addresses that redirects to other hosts may connect to. The stricter of this and `address_policy` applies.
    pub redirects: AddressPolicy,
}

impl HttpTarget {
    /// Makes the target of a URL that the user gave, without further credentials.
    pub fn of(url: HttpUrl) -> Self {
        Self {
            url,
            headers: Vec::new(),
            address_policy: AddressPolicy::Anywhere,
            redirects: AddressPolicy::NoLinkLocal,
        }
    }
}

/// A client for any number of servers, on one runtime.
pub struct HttpClient {
    proxies: Matcher,
    /// Idle connections. The most recently used connection is taken first, so that few stay open. Connections are never
    /// shared between different `AddressPolicy` values.
    idle: Mutex<IdleConnections>,
}

type IdleConnections = HashMap<(Arc<Origin>, AddressPolicy), Vec<OpenConnection>>;

/// An open connection. The form of requests on it depends on `proxy`.
pub(super) struct OpenConnection {
    http: HttpConnection,
    address_policy: AddressPolicy,
    /// `Some` if a proxy reads the requests, which then have absolute URLs. The inner value is the proxy's credentials.
    pub(super) proxy: Option<Option<HeaderValue>>,
}

/// A response whose headers have arrived. Dropping the response closes its connection.
pub struct OpenResponse<'a> {
    /// The status.
    pub status: StatusCode,
    /// The headers.
    pub headers: HeaderMap,
    /// The URL that gave the response, after redirects.
    pub url: HttpUrl,
    body: Incoming,
    connection: OpenConnection,
    client: &'a HttpClient,
}

impl HttpClient {
    /// Makes a client that uses the proxies in this process's environment.
    pub fn new() -> Self {
        Self { proxies: Matcher::from_env(), idle: Mutex::default() }
    }

    /// Sends a request and waits for the headers of the response. `patience` limits the wait for each request,
    /// including the requests after redirects.
    pub async fn send(
        &self,
        target: &HttpTarget,
        ask: FileRequest,
        patience: Duration,
    ) -> Result<OpenResponse<'_>, HttpFailure> {
        let mut url = target.url.clone();
        for _ in 0..=REDIRECTS {
            let headers = if url.is_of_origin(&target.url) { &target.headers[..] } else { &[] };
            // The user's own server may be at any address. A redirect to another host must not lead requests into this
            // machine's network.
            let address_policy = match url.is_of_host(&target.url) {
                true => target.address_policy,
                false => target.address_policy.max(target.redirects),
            };
            let make = |connection: &OpenConnection| request(&url, headers, ask, connection.proxy.as_ref());
            let answer = timeout(patience, self.send_once(&url, make, address_policy));
            let answer = answer.await.map_err(|_| HttpFailure::Stalled(patience))??;
            let location = answer.headers.get(header::LOCATION).and_then(|to| to.to_str().ok());
            let is_redirect = matches!(answer.status.as_u16(), 301 | 302 | 303 | 307 | 308);
            let Some(location) = location.filter(|_| is_redirect) else { return Ok(answer) };
            let next = url.redirected(location).map_err(|why| HttpFailure::Final(format!("{url} {why}")))?;
            answer.finish(patience).await;
            url = next;
        }
        Err(HttpFailure::Final(format!("the server redirects more than {REDIRECTS} times")))
    }

    /// Sends one request and waits for the headers of its response. `make` builds the request for the connection that
    /// is used. Follows no redirect.
    pub(super) async fn send_once(
        &self,
        url: &HttpUrl,
        make: impl Fn(&OpenConnection) -> Result<HttpRequest, HttpFailure>,
        address_policy: AddressPolicy,
    ) -> Result<OpenResponse<'_>, HttpFailure> {
        loop {
            let kept = self.idle().get_mut(&(url.origin.clone(), address_policy)).and_then(Vec::pop);
            let used = kept.is_some();
            let mut connection = match kept {
                Some(connection) => connection,
                None => self.connect(&url.origin, address_policy).await?,
            };
            // The server may have closed an idle connection. A request that fails on a reused connection is sent again.
            // If the server did receive the first request, the duplicate does no harm.
            if used && connection.http.ready().await.is_err() {
                continue;
            }
            match connection.http.send(make(&connection)?).await {
                Ok(response) => {
                    let (head, body) = response.into_parts();
                    let (status, headers) = (head.status, head.headers);
                    return Ok(OpenResponse {
                        status,
                        headers,
                        url: url.clone(),
                        body,
                        connection,
                        client: self,
                    });
                }
                Err(_) if used => {}
                Err(error) => return Err(broken(&error)),
            }
        }
    }

    async fn connect(
        &self,
        origin: &Origin,
        address_policy: AddressPolicy,
    ) -> Result<OpenConnection, HttpFailure> {
        let uri = origin
            .to_string()
            .parse()
            .map_err(|_| HttpFailure::Final(format!("{origin} is not a valid URL")))?;
        // A proxy cannot reach link-local addresses.
        let near = origin.bare_host().parse().is_ok_and(is_link_local_address);
        let proxy = if near { None } else { self.proxies.intercept(&uri) };
        let stream = match &proxy {
            None => connect_to(origin.bare_host(), origin.port, address_policy).await?,
            Some(proxy) => {
                if let Ok(address) = origin.bare_host().parse() {
                    check_address(address_policy, address)?;
                }
                connect_to_proxy(proxy).await?
            }
        };
        // Send the last bytes of a request without waiting for an acknowledgement. The connection also works if this
        // fails.
        let _ = stream.set_nodelay(true);
        match (origin.secure, proxy) {
            (false, None) => Self::begin(stream, None, address_policy).await,
            (false, Some(proxy)) => {
                Self::begin(stream, Some(proxy.basic_auth().cloned()), address_policy).await
            }
            (true, None) => Self::begin(encrypted(stream, origin).await?, None, address_policy).await,
            (true, Some(proxy)) => {
                let stream = tunnel(stream, origin, &proxy).await?;
                Self::begin(encrypted(stream, origin).await?, None, address_policy).await
            }
        }
    }

    async fn begin(
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        proxy: Option<Option<HeaderValue>>,
        address_policy: AddressPolicy,
    ) -> Result<OpenConnection, HttpFailure> {
        let http = HttpConnection::begin(stream).await.map_err(|error| broken(&error))?;
        Ok(OpenConnection { http, address_policy, proxy })
    }

    fn idle(&self) -> std::sync::MutexGuard<'_, IdleConnections> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl OpenResponse<'_> {
    /// Returns the next bytes of the body, waiting at most `patience`; `None` at its end.
    pub async fn chunk(&mut self, patience: Duration) -> Result<Option<Bytes>, HttpFailure> {
        loop {
            let frame =
                timeout(patience, self.body.frame()).await.map_err(|_| HttpFailure::Stalled(patience))?;
            match frame {
                None => return Ok(None),
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(bytes) if !bytes.is_empty() => return Ok(Some(bytes)),
                    _ => {}
                },
                Some(Err(error)) => return Err(broken(&error)),
            }
        }
    }

    /// Whether the body has ended. The response to a HEAD request has no body.
    pub fn is_over(&self) -> bool {
        self.body.is_end_stream()
    }

    /// Returns the body's length according to the headers.
    pub fn length(&self) -> Option<u64> {
        length_of(&self.headers)
    }

    /// Keeps the connection for the next request if the body was read to its end.
    pub fn keep(self) {
        if self.body.is_end_stream() {
            let of = (self.url.origin.clone(), self.connection.address_policy);
            self.client.idle().entry(of).or_default().push(self.connection);
        }
    }

    /// Reads and returns the remaining bytes of a short body, so that the connection can be kept.
    pub async fn finish(mut self, patience: Duration) -> Vec<u8> {
        let mut found = Vec::new();
        while !self.body.is_end_stream() {
            match self.chunk(patience).await {
                Ok(Some(bytes)) if found.len() + bytes.len() <= MAX_DRAINED_BODY => {
                    found.extend_from_slice(&bytes);
                }
                Ok(None) => break,
                _ => return found,
            }
        }
        self.keep();
        found
    }

    /// Whether the server refuses the request. Status 416 is no refusal: the file has no bytes in the range.
    pub fn is_refusal(&self) -> bool {
        !self.status.is_success() && self.status != StatusCode::RANGE_NOT_SATISFIABLE
    }

    /// Returns the status of this response as a failure.
    pub fn failure(&self) -> HttpFailure {
        HttpFailure::Status(self.status, retry_after(&self.headers))
    }
}

pub(super) fn length_of(headers: &HeaderMap) -> Option<u64> {
    headers.get(header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

/// Returns how long the server asks to wait before a retry. The header `Retry-After` contains seconds, or a date.
pub(super) fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let asked = headers.get(header::RETRY_AFTER)?.to_str().ok()?.trim();
    if let Ok(seconds) = asked.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let until = httpdate::parse_http_date(asked).ok()?;
    Some(until.duration_since(SystemTime::now()).unwrap_or_default())
}

/// Makes a request for a file. The form depends on the connection: direct, or through `proxy`.
pub(super) fn request(
    url: &HttpUrl,
    headers: &[(HeaderName, HeaderValue)],
    ask: FileRequest,
    proxy: Option<&Option<HeaderValue>>,
) -> Result<HttpRequest, HttpFailure> {
    let path = url.request_path();
    let uri = if proxy.is_some() { format!("{}{path}", url.origin) } else { path };
    let mut request = Request::new(Full::new(Bytes::new()));
    *request.uri_mut() =
        uri.parse().map_err(|_| HttpFailure::Final(format!("{url} is not a valid request target")))?;
    if ask == FileRequest::Head {
        *request.method_mut() = Method::HEAD;
    }
    let host = HeaderValue::try_from(url.origin.authority());
    let found = request.headers_mut();
    found
        .insert(header::HOST, host.map_err(|_| HttpFailure::Final(format!("{url} has no valid host name")))?);
    found.insert(
        header::USER_AGENT,
        HeaderValue::from_static(concat!("foreload/", env!("CARGO_PKG_VERSION"))),
    );
    // A compressed response would not consist of the file's own bytes.
    found.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    if let FileRequest::Range(first, last) = ask {
        found.insert(header::RANGE, HeaderValue::try_from(format!("bytes={first}-{last}")).expect("digits"));
    }
    if let Some(authorization) = &url.authorization {
        found.insert(header::AUTHORIZATION, authorization.clone());
    }
    if let Some(Some(authorization)) = proxy {
        found.insert(header::PROXY_AUTHORIZATION, authorization.clone());
    }
    headers.iter().for_each(|(name, value)| drop(found.insert(name, value.clone())));
    Ok(request)
}

/// Connects to the first address of a host that accepts a connection.
async fn connect_to(host: &str, port: u16, address_policy: AddressPolicy) -> Result<TcpStream, HttpFailure> {
    let addresses: Vec<SocketAddr> = match host.parse::<IpAddr>() {
        Ok(address) => vec![SocketAddr::new(address, port)],
        Err(_) => {
            tokio::net::lookup_host((host, port)).await.map_err(|error| unknown(host, &error))?.collect()
        }
    };
    addresses.iter().try_for_each(|address| check_address(address_policy, address.ip()))?;
    TcpStream::connect(&addresses[..]).await.map_err(|error| {
        let what = match error.kind() {
            std::io::ErrorKind::ConnectionRefused => {
                "refuses connections: check that the server is running".to_owned()
            }
            _ => format!("cannot be reached: {error}"),
        };
        HttpFailure::Broken(format!("{host}:{port} {what}"))
    })
}

fn unknown(host: &str, error: &std::io::Error) -> HttpFailure {
    let text = format!("the host {host} cannot be resolved: {error}");
    if error.to_string().contains("emporary") { HttpFailure::Broken(text) } else { HttpFailure::Final(text) }
}

async fn connect_to_proxy(proxy: &Intercept) -> Result<TcpStream, HttpFailure> {
    let uri = proxy.uri();
    let host = uri.host().unwrap_or_default();
    if uri.scheme_str() != Some("http") {
        let scheme = uri.scheme_str().unwrap_or_default();
        let why = format!("the proxy {host} uses {scheme}://, but only http:// proxies are supported");
        return Err(HttpFailure::Final(why));
    }
    let port = uri.port_u16().unwrap_or(80);
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    connect_to(bare, port, AddressPolicy::Anywhere).await.map_err(|failure| match failure {
        HttpFailure::Broken(why) => HttpFailure::Broken(format!("the proxy {why}")),
        HttpFailure::Final(why) => HttpFailure::Final(format!("the proxy: {why}")),
        other => other,
    })
}

/// Opens a tunnel (CONNECT) through a proxy to a server.
async fn tunnel(
    stream: TcpStream,
    origin: &Origin,
    proxy: &Intercept,
) -> Result<impl AsyncRead + AsyncWrite + Unpin + Send + 'static, HttpFailure> {
    let place = format!("{}:{}", origin.host, origin.port);
    let (mut sender, driver) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(|error| broken(&error))?;
    tokio::spawn(async move { drop(driver.with_upgrades().await) });
    let mut request = Request::new(Empty::<Bytes>::new());
    *request.method_mut() = Method::CONNECT;
    *request.uri_mut() =
        place.parse().map_err(|_| HttpFailure::Final(format!("{place} is not a valid host and port")))?;
    let host = HeaderValue::try_from(&place)
        .map_err(|_| HttpFailure::Final(format!("{place} is not a valid host and port")))?;
    request.headers_mut().insert(header::HOST, host);
    if let Some(authorization) = proxy.basic_auth() {
        request.headers_mut().insert(header::PROXY_AUTHORIZATION, authorization.clone());
    }
    let response = sender.send_request(request).await.map_err(|error| broken(&error))?;
    if !response.status().is_success() {
        let why = format!("the proxy did not connect to {place}: it answered {}", response.status());
        return Err(if response.status().is_server_error() {
            HttpFailure::Broken(why)
        } else {
            HttpFailure::Final(why)
        });
    }
    let upgraded = hyper::upgrade::on(response).await.map_err(|error| broken(&error))?;
    Ok(TokioIo::new(upgraded))
}

async fn encrypted<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    stream: S,
    origin: &Origin,
) -> Result<impl AsyncRead + AsyncWrite + Unpin + Send + 'static + use<S>, HttpFailure> {
    let host = origin.bare_host();
    let connector = tls::system_trust_connector().map_err(HttpFailure::Final)?;
    let name = ServerName::try_from(host.to_owned());
    let name = name.map_err(|_| HttpFailure::Final(format!("{host} is not a valid TLS server name")))?;
    connector.connect(name, stream).await.map_err(|error| {
        let known = error.get_ref().and_then(|inner| inner.downcast_ref::<TlsError>());
        match known {
            Some(TlsError::InvalidCertificate(why)) => HttpFailure::Final(format!(
                "the certificate of {host} is not trusted ({why}): if it is the right one, set SSL_CERT_FILE to a PEM \
                 file with its CA certificate"
            )),
            Some(_) => HttpFailure::Broken(format!("the TLS handshake with {host} failed: {error}")),
            None => HttpFailure::Broken(format!("the connection to {host} broke during the TLS handshake: {error}")),
        }
    })
}

fn check_address(address_policy: AddressPolicy, address: IpAddr) -> Result<(), HttpFailure> {
    let refused = |what| {
        let why = format!("leads to {address}, {what}, which redirects and manifests must not do");
        HttpFailure::Final(why)
    };
    address_policy.refusal(address).map_or(Ok(()), |what| Err(refused(what)))
}

fn broken(error: &hyper::Error) -> HttpFailure {
    let what = if error.is_incomplete_message() {
        "the connection broke in the middle of the answer".to_owned()
    } else if error.is_parse() {
        format!("the answer is not valid HTTP: {error}")
    } else {
        let cause = error.source().map_or_else(String::new, |source| format!(": {source}"));
        format!("the connection broke: {error}{cause}")
    };
    HttpFailure::Broken(what)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_the_own_network_are_known_in_every_form() {
        let refused = |address_policy, addresses: &[&str]| {
            Vec::from_iter(
                addresses
                    .iter()
                    .map(|address| check_address(address_policy, address.parse().unwrap()).is_err()),
            )
        };
        let near = ["169.254.169.254", "fe80::1", "::ffff:169.254.1.2"];
        let own = ["127.0.0.1", "127.8.8.8", "0.0.0.0", "::1", "::", "::ffff:127.0.0.1"];
        let far = ["10.0.0.1", "2001:db8::1", "::ffff:10.0.0.1"];
        for (address_policy, expected) in [
            (AddressPolicy::Anywhere, [false, false, false]),
            (AddressPolicy::NoLinkLocal, [true, false, false]),
            (AddressPolicy::NoLocalAddress, [true, true, false]),
        ] {
            for (addresses, expected) in [&near[..], &own, &far].into_iter().zip(expected) {
                assert_eq!(
                    refused(address_policy, addresses),
                    vec![expected; addresses.len()],
                    "{addresses:?}"
                );
            }
        }
    }

    #[test]
    fn a_time_to_wait_is_seconds_or_a_date() {
        let after = |text: &str| {
            retry_after(&HeaderMap::from_iter([(header::RETRY_AFTER, HeaderValue::from_str(text).unwrap())]))
        };
        assert_eq!(after("7"), Some(Duration::from_secs(7)));
        assert_eq!(after("Thu, 01 Jan 1970 00:00:00 GMT"), Some(Duration::ZERO));
        let later = httpdate::fmt_http_date(SystemTime::now() + Duration::from_secs(100));
        assert!(after(&later).is_some_and(|time| time > Duration::from_secs(90)));
        assert_eq!(after("soon"), None);
    }
}
