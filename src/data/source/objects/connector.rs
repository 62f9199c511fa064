//! Connects the crate `object_store` to the network through our HTTP client, so that proxies, trust and deadlines are
//! the same as for all other requests.
//!
//! The crate makes and signs the requests for objects, but this connector does not send them. It stores such a request
//! in a [`CapturedRequest`], and our own reader sends the request, because that reader reads all bytes of samples.

use crate::http::{BlockingHttp, Fetched, HeaderMap, HttpFailure, HttpUrl, PlainRequest, Retries};
use async_trait::async_trait;
use object_store::ClientOptions;
use object_store::client::{
    HttpClient as StoreClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse,
    HttpService,
};
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

const STEP_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum duration of one step of a request to a link-local address. Such addresses usually do not respond.
const LINK_LOCAL_TIMEOUT: Duration = Duration::from_secs(1);
const MAX_RESPONSE: u64 = 64 << 20;

/// Receives a signed request that must not be sent. Callers attach it to the request as an extension.
#[derive(Clone, Default)]
pub(super) struct CapturedRequest(Arc<Mutex<Option<HttpRequest>>>);

impl CapturedRequest {
    pub(super) fn take(&self) -> Option<HttpRequest> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// Extension that marks a request for a page of a listing. The connector does not retry such a request, because the
/// caller does. The flag says whether the request was sent: without credentials, a request fails before that.
#[derive(Clone, Default)]
pub(super) struct ListingPage(Arc<AtomicBool>);

impl ListingPage {
    pub(super) fn was_sent(&self) -> bool {
        self.0.load(Relaxed)
    }
}

#[derive(Debug)]
pub(super) enum StoreFailure {
    Captured,
    NoResponse(HttpFailure),
    /// The server refused the request: the failure, and the headers and body of its response.
    Refused(HttpFailure, HeaderMap, Vec<u8>),
}

impl fmt::Display for StoreFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Captured => f.write_str("the request was captured"),
            Self::NoResponse(failure) | Self::Refused(failure, ..) => failure.fmt(f),
        }
    }
}

impl std::error::Error for StoreFailure {}

#[derive(Clone)]
pub(super) struct StoreConnector {
    http: Arc<BlockingHttp>,
    /// Whether a credential service has responded at least once. Until then, there may be no such service. Afterwards,
    /// a service that does not respond is out of order.
    has_answered: Arc<AtomicBool>,
}

impl fmt::Debug for StoreConnector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StoreConnector")
    }
}

impl HttpConnector for StoreConnector {
    fn connect(&self, _: &ClientOptions) -> object_store::Result<StoreClient> {
        Ok(StoreClient::new(self.clone()))
    }
}

#[async_trait]
impl HttpService for StoreConnector {
    async fn call(&self, mut request: HttpRequest) -> Result<HttpResponse, HttpError> {
        if let Some(place) = request.extensions_mut().remove::<CapturedRequest>() {
            *place.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(request);
            return Err(HttpError::new(HttpErrorKind::Unknown, StoreFailure::Captured));
        }
        let page = request.extensions_mut().remove::<ListingPage>();
        page.iter().for_each(|page| page.0.store(true, Relaxed));
        let is_page = page.is_some();
        let fetched =
            if is_page { self.exchange(request).await } else { self.exchange_again(&request).await };
        let fetched = fetched.map_err(|failure| {
            // Until a credential service has responded, let the crate retry once.
            let again = !is_page && failure.may_succeed_later() && !self.has_answered.load(Relaxed);
            let kind = if again { HttpErrorKind::Connect } else { HttpErrorKind::Unknown };
            HttpError::new(kind, StoreFailure::NoResponse(failure))
        })?;
        if is_page && !fetched.status.is_success() {
            let failure = fetched.failure();
            let refused = StoreFailure::Refused(failure, fetched.headers, fetched.bytes);
            return Err(HttpError::new(HttpErrorKind::Unknown, refused));
        }
        let mut response = HttpResponse::new(fetched.bytes.into());
        *response.status_mut() = fetched.status;
        *response.headers_mut() = fetched.headers;
        Ok(response)
    }
}

impl StoreConnector {
    pub(super) fn new(http: Arc<BlockingHttp>) -> Self {
        Self { http, has_answered: Arc::default() }
    }

    async fn exchange_again(&self, request: &HttpRequest) -> Result<Fetched, HttpFailure> {
        let mut retries = Retries::new();
        loop {
            let answer = self.exchange(request.clone()).await;
            let failure = match &answer {
                Ok(fetched) if fetched.status.is_success() => {
                    self.has_answered.store(true, Relaxed);
                    return answer;
                }
                Ok(fetched) => fetched.failure(),
                Err(failure) if self.has_answered.load(Relaxed) => failure.clone(),
                Err(_) => return answer,
            };
            match retries.after(failure) {
                Ok(pause) => tokio::time::sleep(pause).await,
                Err(_) => return answer,
            }
        }
    }

    /// Sends a request and waits for its complete response, on a thread that may block.
    async fn exchange(&self, request: HttpRequest) -> Result<Fetched, HttpFailure> {
        let (parts, body) = request.into_parts();
        let url = HttpUrl::parse(&parts.uri.to_string())
            .map_err(|why| HttpFailure::Final(format!("the address of the store {why}")))?;
        let patience = if url.is_link_local_address() { LINK_LOCAL_TIMEOUT } else { STEP_TIMEOUT };
        let body = body.as_bytes().cloned().unwrap_or_default();
        let plain = PlainRequest { method: parts.method, url, headers: parts.headers, body };
        let http = self.http.clone();
        let asked = tokio::task::spawn_blocking(move || http.exchange(&plain, patience, MAX_RESPONSE)).await;
        asked.map_err(|_| HttpFailure::Final("the thread of a listing request failed".to_owned()))?
    }
}
