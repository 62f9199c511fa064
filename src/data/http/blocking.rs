//! Requests by threads that block until the response has arrived: to list, inspect and read files without a reader.
//!
//! Each thread drives its request itself, on a runtime that it borrows for the duration of the request. So no other
//! thread has to be woken. Idle runtimes are kept with their connections, for later requests of any thread.

use super::client::{FileRequest, HttpClient, HttpTarget, OpenResponse, length_of};
use super::failure::{HttpFailure, NO_RANGES, RequestError};
use super::retry::Retries;
use super::url::HttpUrl;
use hyper::StatusCode;
use hyper::header::HeaderMap;
use serde::Serialize;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant};
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;

/// Maximum number of idle clients that are kept, because each of them holds file descriptors.
const MAX_IDLE_CLIENTS: usize = 4;

/// Maximum time until the headers of a response arrive, and until the next bytes of its body arrive.
const STEP_TIMEOUT: Duration = Duration::from_secs(10);

const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// An HTTP client that any number of threads can use at the same time.
#[derive(Default)]
pub struct BlockingHttp {
    idle: Mutex<Vec<PooledClient>>,
    request_counts: Mutex<RequestCounts>,
    watch: RwLock<Option<Arc<dyn WaitControl>>>,
}

/// Decides how long callers wait for requests, including retries.
pub trait WaitControl: Send + Sync {
    /// Whether to keep waiting after `waited`. Called several times a second until the response arrives.
    fn keep_waiting(&self, waited: Duration) -> bool;
}

/// Checks a response. The error says what is wrong, and whether the request is retried.
pub type ResponseCheck<'a> = &'a dyn Fn(&Fetched) -> Result<(), HttpFailure>;

/// Number of requests by kind, including retries, and of the bytes that were received.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct RequestCounts {
    /// Requests for a file's headers.
    pub heads: u64,
    /// Requests for files, or parts of them.
    pub gets: u64,
    /// Requests for pages of listings, if the server has a separate kind of request for them.
    pub lists: u64,
    /// Received bytes of files.
    pub bytes: u64,
}

impl RequestCounts {
    /// Returns the sums of both counts.
    pub fn with(self, other: Self) -> Self {
        Self {
            heads: self.heads + other.heads,
            gets: self.gets + other.gets,
            lists: self.lists + other.lists,
            bytes: self.bytes + other.bytes,
        }
    }
}

struct PooledClient {
    /// Id of the process that made this client. A forked child has the same sockets and must not use them.
    process: u32,
    /// An `Option`, so that `drop` can take the runtime and shut it down without waiting for its tasks.
    runtime: Option<Runtime>,
    client: Option<HttpClient>,
}

/// A complete response.
pub struct Fetched {
    /// The status.
    pub status: StatusCode,
    /// The headers.
    pub headers: HeaderMap,
    /// The URL that gave the response, after redirects.
    pub url: HttpUrl,
    /// The body, or the requested part of the body.
    pub bytes: Vec<u8>,
}

impl Fetched {
    /// Returns the body's length according to the headers.
    pub fn length(&self) -> Option<u64> {
        length_of(&self.headers)
    }
}

impl Drop for PooledClient {
    fn drop(&mut self) {
        if self.process != std::process::id() {
            // Closing the sockets here would disturb the parent, which uses them.
            std::mem::forget(self.client.take());
            std::mem::forget(self.runtime.take());
            return;
        }
        self.client = None;
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl BlockingHttp {
    /// Makes a request, with retries, and reads its response of up to `most` bytes.
    ///
    /// # Errors
    /// The last failure. Every status except success is a failure.
    pub fn fetch(&self, target: &HttpTarget, ask: FileRequest, most: u64) -> Result<Fetched, RequestError> {
        self.fetch_prepared(async || Ok(target.clone()), |failure, _, _| failure, ask, most, &|_| Ok(()))
    }

    /// Like [`BlockingHttp::fetch`], but `prepare` makes a new request for each try. `explain` interprets the headers
    /// and body of a refusal, or of a whole file that was sent in place of a range. A response that does not pass
    /// `check` counts as a failure and may be retried.
    ///
    /// # Errors
    /// The last failure, either of `prepare` or of the request.
    pub fn fetch_prepared(
        &self,
        prepare: impl AsyncFn() -> Result<HttpTarget, HttpFailure>,
        explain: impl Fn(HttpFailure, &HeaderMap, &[u8]) -> HttpFailure,
        ask: FileRequest,
        most: u64,
        check: ResponseCheck<'_>,
    ) -> Result<Fetched, RequestError> {
        let once = async |client: &HttpClient| {
            let target = prepare().await?;
            self.count(|request_counts| match ask {
                FileRequest::Head => request_counts.heads += 1,
                FileRequest::Whole | FileRequest::Range(..) => request_counts.gets += 1,
            });
            let fetched = fetch(client, &target, &explain, ask, most).await?;
            self.count(|request_counts| request_counts.bytes += fetched.bytes.len() as u64);
            check(&fetched)?;
            Ok(fetched)
        };
        let fetched = self.run(async |client| {
            let mut retries = Retries::new();
            loop {
                match once(client).await {
                    Ok(fetched) => return Ok(fetched),
                    Err(failure) => tokio::time::sleep(retries.after(failure)?).await,
                }
            }
        });
        fetched.map_err(|failure| RequestError { failure, tries: 1 })?
    }

    /// Sets or removes the watch that decides how long callers wait for requests.
    pub fn set_watch(&self, watch: Option<Arc<dyn WaitControl>>) {
        *self.watch.write().unwrap_or_else(PoisonError::into_inner) = watch;
    }

    /// Returns the counts of requests so far.
    pub fn request_counts(&self) -> RequestCounts {
        *self.request_counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls `count` to change the counts of requests.
    pub fn count(&self, count: impl FnOnce(&mut RequestCounts)) {
        count(&mut self.request_counts.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Runs `work`, which makes requests, with a client that only this thread uses until `work` ends.
    ///
    /// # Errors
    /// [`HttpFailure::Final`] if the system refuses resources for a client, or if the watch ends the wait.
    pub fn run<T>(&self, work: impl AsyncFnOnce(&HttpClient) -> T) -> Result<T, HttpFailure> {
        let pooled = self.pooled()?;
        let (Some(runtime), Some(client)) = (&pooled.runtime, &pooled.client) else {
            return Err(HttpFailure::Final("the connection is closed".to_owned()));
        };
        let watch = self.watch.read().unwrap_or_else(PoisonError::into_inner).clone();
        let done = match watch {
            None => runtime.block_on(work(client)),
            // An interrupted request is dropped together with its client.
            Some(watch) => runtime.block_on(watched(&*watch, work(client)))?,
        };
        let mut idle = self.idle();
        if idle.len() < MAX_IDLE_CLIENTS {
            idle.push(pooled);
        } else {
            drop(idle);
            drop(pooled);
        }
        Ok(done)
    }

    fn pooled(&self) -> Result<PooledClient, HttpFailure> {
        let process = std::process::id();
        loop {
            match self.idle().pop() {
                Some(pooled) if pooled.process == process => return Ok(pooled),
                Some(_) => {}
                None => break,
            }
        }
        let runtime = Builder::new_current_thread().enable_all().max_blocking_threads(1).build();
        let runtime =
            runtime.map_err(|error| HttpFailure::Final(format!("cannot start an HTTP client: {error}")))?;
        Ok(PooledClient { process, runtime: Some(runtime), client: Some(HttpClient::new()) })
    }

    fn idle(&self) -> std::sync::MutexGuard<'_, Vec<PooledClient>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn watched<T>(watch: &dyn WaitControl, work: impl Future<Output = T>) -> Result<T, HttpFailure> {
    let (mut work, begun) = (pin!(work), Instant::now());
    loop {
        match timeout(POLL_INTERVAL, work.as_mut()).await {
            Ok(done) => return Ok(done),
            Err(_) if watch.keep_waiting(begun.elapsed()) => {}
            Err(_) => return Err(HttpFailure::Final("the request was interrupted".to_owned())),
        }
    }
}

async fn fetch(
    client: &HttpClient,
    target: &HttpTarget,
    explain: &impl Fn(HttpFailure, &HeaderMap, &[u8]) -> HttpFailure,
    ask: FileRequest,
    most: u64,
) -> Result<Fetched, HttpFailure> {
    let answer = client.send(target, ask, STEP_TIMEOUT).await?;
    if !answer.status.is_success() {
        let (failure, headers) = (answer.failure(), answer.headers.clone());
        return Err(explain(failure, &headers, &answer.finish(STEP_TIMEOUT).await));
    }
    let (headers, is_whole_file) = (answer.headers.clone(), answer.status == StatusCode::OK);
    let read = read_answer(answer, if ask == FileRequest::Head { 0 } else { most }).await?;
    read.ok_or_else(|| match ask {
        // Several servers can share one host name, and some of them might not support ranges. So a retry can help.
        FileRequest::Range(..) if is_whole_file => {
            explain(HttpFailure::Broken(NO_RANGES.to_owned()), &headers, &[])
        }
        _ => too_long(most),
    })
}

fn too_long(most: u64) -> HttpFailure {
    HttpFailure::Final(format!("the answer is longer than the requested {most} bytes"))
}

/// Reads the whole response. Fails if it has more than `most` bytes.
#[cfg(feature = "objects")]
pub(super) async fn whole(answer: OpenResponse<'_>, most: u64) -> Result<Fetched, HttpFailure> {
    read_answer(answer, most).await?.ok_or_else(|| too_long(most))
}

/// Reads the whole response; `None` if it has more than `most` bytes.
async fn read_answer(mut answer: OpenResponse<'_>, most: u64) -> Result<Option<Fetched>, HttpFailure> {
    let mut bytes = Vec::new();
    if !answer.is_over() {
        if answer.length().is_some_and(|length| length > most) {
            return Ok(None);
        }
        while let Some(chunk) = answer.chunk(STEP_TIMEOUT).await? {
            if (bytes.len() + chunk.len()) as u64 > most {
                return Ok(None);
            }
            bytes.extend_from_slice(&chunk);
        }
    }
    let fetched =
        Fetched { status: answer.status, headers: answer.headers.clone(), url: answer.url.clone(), bytes };
    answer.keep();
    Ok(Some(fetched))
}
