//! How the crate of the object stores reaches the network: by our client, so that proxies, trust and deadlines are
//! those of all other requests.
//!
//! Requests for objects are not sent by it at all: the crate makes and signs them, and whoever asked takes them from
//! here. So each store's way of naming and signing is the crate's alone, and each byte of a sample is read by our own
//! reader.

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

/// How long a step of a request may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// The same for what lies on this machine's own network, where mostly there is nothing.
const NEAR_PATIENCE: Duration = Duration::from_secs(1);
/// The most bytes of an answer: a page of a listing, or a token.
const LARGEST_ANSWER: u64 = 64 << 20;

/// Where a request is put instead of being sent. It travels with the request, as an extension.
#[derive(Clone, Default)]
pub(super) struct TakenRequest(Arc<Mutex<Option<HttpRequest>>>);

impl TakenRequest {
    /// The request, once it was made.
    pub(super) fn take(&self) -> Option<HttpRequest> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// Says, as an extension of a request, that it is for a page of a listing: whoever asked tries again, and wants to know
/// what the server said, and whether it was asked at all or no credentials were had before.
#[derive(Clone, Default)]
pub(super) struct ListingPage(Arc<AtomicBool>);

impl ListingPage {
    /// Whether the request was made.
    pub(super) fn was_asked(&self) -> bool {
        self.0.load(Relaxed)
    }
}

/// What became of a request.
#[derive(Debug)]
pub(super) enum StoreFailure {
    /// It was taken, and not sent.
    Taken,
    /// There is no answer.
    Unanswered(HttpFailure),
    /// The server refuses it, and says why in its headers and in the body.
    Refused(HttpFailure, HeaderMap, Vec<u8>),
}

impl fmt::Display for StoreFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Taken => f.write_str("the request was taken"),
            Self::Unanswered(failure) | Self::Refused(failure, ..) => failure.fmt(f),
        }
    }
}

impl std::error::Error for StoreFailure {}

/// The door of the crate to our client.
#[derive(Clone)]
pub(super) struct StoreConnector {
    http: Arc<BlockingHttp>,
    /// Whether anybody who gives out credentials has answered. From then on one who does not is out of order, while
    /// before that there may be nobody.
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
        if let Some(place) = request.extensions_mut().remove::<TakenRequest>() {
            *place.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(request);
            return Err(HttpError::new(HttpErrorKind::Unknown, StoreFailure::Taken));
        }
        let page = request.extensions_mut().remove::<ListingPage>();
        page.iter().for_each(|page| page.0.store(true, Relaxed));
        let is_page = page.is_some();
        // Whoever wants a page tries again itself.
        let fetched =
            if is_page { self.exchange(request).await } else { self.exchange_again(&request).await };
        let fetched = fetched.map_err(|failure| {
            // Where nobody has answered yet, the crate asks once more.
            let again = !is_page && failure.is_passing() && !self.has_answered.load(Relaxed);
            let kind = if again { HttpErrorKind::Connect } else { HttpErrorKind::Unknown };
            HttpError::new(kind, StoreFailure::Unanswered(failure))
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

    /// Sends a request of one that looks for credentials, as often as other requests are made.
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

    /// Sends a request and waits for its whole answer, on a thread that may wait.
    async fn exchange(&self, request: HttpRequest) -> Result<Fetched, HttpFailure> {
        let (parts, body) = request.into_parts();
        let url = HttpUrl::parse(&parts.uri.to_string())
            .map_err(|why| HttpFailure::Final(format!("the address of the store {why}")))?;
        let patience = if url.is_near() { NEAR_PATIENCE } else { PATIENCE };
        let body = body.as_bytes().cloned().unwrap_or_default();
        let plain = PlainRequest { method: parts.method, url, headers: parts.headers, body };
        let http = self.http.clone();
        let asked =
            tokio::task::spawn_blocking(move || http.exchange(&plain, patience, LARGEST_ANSWER)).await;
        asked.map_err(|_| HttpFailure::Final("the request of a listing died".to_owned()))?
    }
}
