//! Requests to any server: connections are kept, proxies asked, redirects followed.

use super::connection::{HttpConnection, HttpRequest};
use super::failure::HttpFailure;
use super::tls;
use super::url::{HttpUrl, Origin, Reach, is_near};
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

/// The most redirects that are followed.
const REDIRECTS: usize = 5;

/// The longest body of an answer that is read only to keep its connection.
const WORTH_READING: usize = 64 << 10;

/// What is asked of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ask {
    /// What it says of the file, without the file.
    Head,
    /// The whole file.
    Whole,
    /// The bytes from the first to the last, which is one of them.
    Range(u64, u64),
}

/// A file on a server, and what proves that the caller may have it.
#[derive(Clone)]
pub struct HttpTarget {
    /// Where the request goes.
    pub url: HttpUrl,
    /// Headers that go to this server alone: tokens, signatures.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// Where the request may lead.
    pub reach: Reach,
    /// Where redirects to other hosts may lead, unless that is further.
    pub redirects: Reach,
}

impl HttpTarget {
    /// What the user named, which needs no other proof than its URL has.
    pub fn of(url: HttpUrl) -> Self {
        Self { url, headers: Vec::new(), reach: Reach::Anywhere, redirects: Reach::NotNear }
    }
}

/// A client of any number of servers, on one runtime.
pub struct HttpClient {
    proxies: Matcher,
    /// Those without a request. The last one that was used is taken first, so that no more are open than it takes.
    /// Whoever may not be led everywhere has connections of its own.
    idle: Mutex<IdleConnections>,
}

type IdleConnections = HashMap<(Arc<Origin>, Reach), Vec<OpenConnection>>;

/// A connection, and how requests on it name what they ask for.
pub(super) struct OpenConnection {
    http: HttpConnection,
    reach: Reach,
    /// Whether a proxy reads the requests, which then have whole URLs, and what proves to it who asks.
    pub(super) proxy: Option<Option<HeaderValue>>,
}

/// An answer that has begun. Dropping it closes its connection.
pub struct HttpAnswer<'a> {
    /// The status.
    pub status: StatusCode,
    /// The headers.
    pub headers: HeaderMap,
    /// The URL that gave it, redirects followed.
    pub url: HttpUrl,
    body: Incoming,
    connection: OpenConnection,
    client: &'a HttpClient,
}

impl HttpClient {
    /// A client that goes by the proxies in this process's environment.
    pub fn new() -> Self {
        Self { proxies: Matcher::from_env(), idle: Mutex::default() }
    }

    /// Sends a request, and waits until its answer begins: each of its steps for `patience`.
    pub async fn send(
        &self,
        target: &HttpTarget,
        ask: Ask,
        patience: Duration,
    ) -> Result<HttpAnswer<'_>, HttpFailure> {
        let mut url = target.url.clone();
        for _ in 0..=REDIRECTS {
            let headers = if url.is_of_origin(&target.url) { &target.headers[..] } else { &[] };
            // The user's own place may be anywhere, but nobody else leads a request into this machine's network.
            let reach = match url.is_of_host(&target.url) {
                true => target.reach,
                false => target.reach.max(target.redirects),
            };
            let make = |connection: &OpenConnection| request(&url, headers, ask, connection.proxy.as_ref());
            let answer = timeout(patience, self.send_once(&url, make, reach));
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

    /// Sends a request that is made for the connection it goes over, and waits until its answer begins. No redirect is
    /// followed.
    pub(super) async fn send_once(
        &self,
        url: &HttpUrl,
        make: impl Fn(&OpenConnection) -> Result<HttpRequest, HttpFailure>,
        reach: Reach,
    ) -> Result<HttpAnswer<'_>, HttpFailure> {
        loop {
            let kept = self.idle().get_mut(&(url.origin.clone(), reach)).and_then(Vec::pop);
            let used = kept.is_some();
            let mut connection = match kept {
                Some(connection) => connection,
                None => self.connect(&url.origin, reach).await?,
            };
            // The server may have closed a connection while it was not used. A request that failed for that is made
            // once more: nothing is lost when it came through after all.
            if used && connection.http.ready().await.is_err() {
                continue;
            }
            match connection.http.send(make(&connection)?).await {
                Ok(response) => {
                    let (head, body) = response.into_parts();
                    let (status, headers) = (head.status, head.headers);
                    return Ok(HttpAnswer {
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

    async fn connect(&self, origin: &Origin, reach: Reach) -> Result<OpenConnection, HttpFailure> {
        let uri =
            origin.to_string().parse().map_err(|_| HttpFailure::Final(format!("{origin} is no URL")))?;
        // What only this machine's own network has, no proxy reaches.
        let near = origin.bare_host().parse().is_ok_and(is_near);
        let proxy = if near { None } else { self.proxies.intercept(&uri) };
        let stream = match &proxy {
            None => connect_to(origin.bare_host(), origin.port, reach).await?,
            Some(proxy) => {
                if let Ok(address) = origin.bare_host().parse() {
                    refuse_beyond(reach, address)?;
                }
                connect_to_proxy(proxy).await?
            }
        };
        // Without it a request's last bytes would wait for an acknowledgement; the connection works without.
        let _ = stream.set_nodelay(true);
        match (origin.secure, proxy) {
            (false, None) => Self::begin(stream, None, reach).await,
            (false, Some(proxy)) => Self::begin(stream, Some(proxy.basic_auth().cloned()), reach).await,
            (true, None) => Self::begin(encrypted(stream, origin).await?, None, reach).await,
            (true, Some(proxy)) => {
                let stream = tunnel(stream, origin, &proxy).await?;
                Self::begin(encrypted(stream, origin).await?, None, reach).await
            }
        }
    }

    async fn begin(
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        proxy: Option<Option<HeaderValue>>,
        reach: Reach,
    ) -> Result<OpenConnection, HttpFailure> {
        let http = HttpConnection::begin(stream).await.map_err(|error| broken(&error))?;
        Ok(OpenConnection { http, reach, proxy })
    }

    fn idle(&self) -> std::sync::MutexGuard<'_, IdleConnections> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl HttpAnswer<'_> {
    /// The next bytes of the body, which are waited for no longer than `patience`; `None` at its end.
    pub async fn chunk(&mut self, patience: Duration) -> Result<Option<Bytes>, HttpFailure> {
        loop {
            let frame =
                timeout(patience, self.body.frame()).await.map_err(|_| HttpFailure::Stalled(patience))?;
            match frame {
                None => return Ok(None),
                // Trailers have nothing to say.
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(bytes) if !bytes.is_empty() => return Ok(Some(bytes)),
                    _ => {}
                },
                Some(Err(error)) => return Err(broken(&error)),
            }
        }
    }

    /// Whether there are no more bytes of the body, as those of a head.
    pub fn is_over(&self) -> bool {
        self.body.is_end_stream()
    }

    /// What the headers say of the body's length.
    pub fn length(&self) -> Option<u64> {
        length_of(&self.headers)
    }

    /// Keeps the connection for the next request, if the body was read to its end.
    pub fn keep(self) {
        if self.body.is_end_stream() {
            let of = (self.url.origin.clone(), self.connection.reach);
            self.client.idle().entry(of).or_default().push(self.connection);
        }
    }

    /// Reads what is left of a short body, so that the connection can be kept, and returns it.
    pub async fn finish(mut self, patience: Duration) -> Vec<u8> {
        let mut found = Vec::new();
        while !self.body.is_end_stream() {
            match self.chunk(patience).await {
                Ok(Some(bytes)) if found.len() + bytes.len() <= WORTH_READING => {
                    found.extend_from_slice(&bytes);
                }
                Ok(None) => break,
                _ => return found,
            }
        }
        self.keep();
        found
    }

    /// Whether the server does not do what it was asked for. It may lack the bytes, and yet have the file.
    pub fn is_refusal(&self) -> bool {
        !self.status.is_success() && self.status != StatusCode::RANGE_NOT_SATISFIABLE
    }

    /// The failure that an answer of this status is.
    pub fn failure(&self) -> HttpFailure {
        HttpFailure::Status(self.status, retry_after(&self.headers))
    }
}

/// The length that headers promise of a body.
pub(super) fn length_of(headers: &HeaderMap) -> Option<u64> {
    headers.get(header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

/// After which time the server wants to be asked again: so many seconds, or until a date.
pub(super) fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let asked = headers.get(header::RETRY_AFTER)?.to_str().ok()?.trim();
    if let Ok(seconds) = asked.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let until = httpdate::parse_http_date(asked).ok()?;
    Some(until.duration_since(SystemTime::now()).unwrap_or_default())
}

/// A request for a file over a connection by such a proxy.
pub(super) fn request(
    url: &HttpUrl,
    headers: &[(HeaderName, HeaderValue)],
    ask: Ask,
    proxy: Option<&Option<HeaderValue>>,
) -> Result<HttpRequest, HttpFailure> {
    let path = url.request_path();
    let uri = if proxy.is_some() { format!("{}{path}", url.origin) } else { path };
    let mut request = Request::new(Full::new(Bytes::new()));
    *request.uri_mut() = uri.parse().map_err(|_| HttpFailure::Final(format!("{url} cannot be asked for")))?;
    if ask == Ask::Head {
        *request.method_mut() = Method::HEAD;
    }
    let host = HeaderValue::try_from(url.origin.authority());
    let found = request.headers_mut();
    found.insert(header::HOST, host.map_err(|_| HttpFailure::Final(format!("{url} has no usable host")))?);
    found.insert(
        header::USER_AGENT,
        HeaderValue::from_static(concat!("foreload/", env!("CARGO_PKG_VERSION"))),
    );
    // A server that compresses would give other bytes than those of the file.
    found.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    if let Ask::Range(first, last) = ask {
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

/// Connects to the first address of a host that answers.
async fn connect_to(host: &str, port: u16, reach: Reach) -> Result<TcpStream, HttpFailure> {
    let addresses: Vec<SocketAddr> = match host.parse::<IpAddr>() {
        Ok(address) => vec![SocketAddr::new(address, port)],
        Err(_) => {
            tokio::net::lookup_host((host, port)).await.map_err(|error| unknown(host, &error))?.collect()
        }
    };
    addresses.iter().try_for_each(|address| refuse_beyond(reach, address.ip()))?;
    TcpStream::connect(&addresses[..]).await.map_err(|error| {
        let what = match error.kind() {
            std::io::ErrorKind::ConnectionRefused => {
                "refuses connections: does the server run there?".to_owned()
            }
            _ => format!("cannot be reached: {error}"),
        };
        HttpFailure::Broken(format!("{host}:{port} {what}"))
    })
}

/// The failure of looking a host up.
fn unknown(host: &str, error: &std::io::Error) -> HttpFailure {
    let text = format!("the host {host} cannot be found: {error}");
    if error.to_string().contains("emporary") { HttpFailure::Broken(text) } else { HttpFailure::Final(text) }
}

async fn connect_to_proxy(proxy: &Intercept) -> Result<TcpStream, HttpFailure> {
    let uri = proxy.uri();
    let host = uri.host().unwrap_or_default();
    if uri.scheme_str() != Some("http") {
        let scheme = uri.scheme_str().unwrap_or_default();
        let why = format!("the proxy {host} is of {scheme}://, and only proxies of http:// are known");
        return Err(HttpFailure::Final(why));
    }
    let port = uri.port_u16().unwrap_or(80);
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    connect_to(bare, port, Reach::Anywhere).await.map_err(|failure| match failure {
        HttpFailure::Broken(why) => HttpFailure::Broken(format!("the proxy {why}")),
        HttpFailure::Final(why) => HttpFailure::Final(format!("the proxy: {why}")),
        other => other,
    })
}

/// Lets a proxy connect to a server, whose bytes it then passes on unread.
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
    *request.uri_mut() = place.parse().map_err(|_| HttpFailure::Final(format!("{place} is no host")))?;
    let host =
        HeaderValue::try_from(&place).map_err(|_| HttpFailure::Final(format!("{place} is no host")))?;
    request.headers_mut().insert(header::HOST, host);
    if let Some(authorization) = proxy.basic_auth() {
        request.headers_mut().insert(header::PROXY_AUTHORIZATION, authorization.clone());
    }
    let response = sender.send_request(request).await.map_err(|error| broken(&error))?;
    if !response.status().is_success() {
        let why = format!("the proxy does not connect to {place}: it answers {}", response.status());
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
    let connector = tls::trusting_the_system().map_err(HttpFailure::Final)?;
    let name = ServerName::try_from(host.to_owned());
    let name =
        name.map_err(|_| HttpFailure::Final(format!("{host} is no name that a certificate could have")))?;
    connector.connect(name, stream).await.map_err(|error| {
        let known = error.get_ref().and_then(|inner| inner.downcast_ref::<TlsError>());
        match known {
            Some(TlsError::InvalidCertificate(why)) => HttpFailure::Final(format!(
                "the certificate of {host} is not trusted ({why}): if it is right, let SSL_CERT_FILE name a PEM file \
                 with the certificate of its authority"
            )),
            Some(_) => HttpFailure::Broken(format!("{host} speaks no TLS that is understood: {error}")),
            None => HttpFailure::Broken(format!("the connection to {host} broke while it was encrypted: {error}")),
        }
    })
}

/// Refuses an address that a request must not lead to.
fn refuse_beyond(reach: Reach, address: IpAddr) -> Result<(), HttpFailure> {
    let refused = |what| HttpFailure::Final(format!("leads to {address}, {what}, which is not followed"));
    reach.refusal(address).map_or(Ok(()), |what| Err(refused(what)))
}

/// The failure that the HTTP library met.
fn broken(error: &hyper::Error) -> HttpFailure {
    let what = if error.is_incomplete_message() {
        "the connection broke in the middle of the answer".to_owned()
    } else if error.is_parse() {
        format!("the answer is no HTTP that is understood: {error}")
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
        let refused = |reach, addresses: &[&str]| {
            Vec::from_iter(
                addresses.iter().map(|address| refuse_beyond(reach, address.parse().unwrap()).is_err()),
            )
        };
        let near = ["169.254.169.254", "fe80::1", "::ffff:169.254.1.2"];
        let own = ["127.0.0.1", "127.8.8.8", "0.0.0.0", "::1", "::", "::ffff:127.0.0.1"];
        let far = ["10.0.0.1", "2001:db8::1", "::ffff:10.0.0.1"];
        for (reach, expected) in [
            (Reach::Anywhere, [false, false, false]),
            (Reach::NotNear, [true, false, false]),
            (Reach::NotOwn, [true, true, false]),
        ] {
            for (addresses, expected) in [&near[..], &own, &far].into_iter().zip(expected) {
                assert_eq!(refused(reach, addresses), vec![expected; addresses.len()], "{addresses:?}");
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
