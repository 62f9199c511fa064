//! Requests of threads that wait for them: to list, look and read where no reader runs.
//!
//! A thread drives its request itself, on a runtime that it takes for that time, so that no other thread is woken for
//! it. Runtimes are kept with their connections for the next request of any thread.

use super::client::{Ask, HttpClient, HttpTarget};
use super::failure::{GaveUp, HttpFailure};
use super::retry::Retries;
use super::url::HttpUrl;
use hyper::StatusCode;
use hyper::header::HeaderMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};

/// How long a step of a request may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// A client for any number of threads.
#[derive(Default)]
pub(crate) struct BlockingHttp {
    lanes: Mutex<Vec<HttpLane>>,
}

/// What one request at a time runs on.
struct HttpLane {
    /// The process that made it: a forked child has the same sockets, and must not use them.
    process: u32,
    /// Behind an option, because it is dropped without waiting for what it still does.
    runtime: Option<Runtime>,
    client: Option<HttpClient>,
}

/// A whole answer.
pub(crate) struct Fetched {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    /// The URL that gave it, redirects followed.
    pub(crate) url: HttpUrl,
    pub(crate) bytes: Vec<u8>,
}

impl Drop for HttpLane {
    fn drop(&mut self) {
        if self.process != std::process::id() {
            // To close what the parent has would disturb it.
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
    /// Makes a request, as often as it takes, and reads its answer, which may have up to `most` bytes.
    ///
    /// # Errors
    /// The last failure; every status but that of success is one.
    pub(crate) fn fetch(&self, target: &HttpTarget, ask: Ask, most: u64) -> Result<Fetched, GaveUp> {
        let once = |failure| GaveUp { failure, tries: 1 };
        let lane = self.lane().map_err(once)?;
        let (Some(runtime), Some(client)) = (&lane.runtime, &lane.client) else {
            return Err(once(HttpFailure::Final("the connection is closed".to_owned())));
        };
        let fetched = runtime.block_on(async {
            let mut retries = Retries::new();
            loop {
                match fetch(client, target, ask, most).await {
                    Ok(fetched) => return Ok(fetched),
                    Err(failure) => tokio::time::sleep(retries.after(failure)?).await,
                }
            }
        });
        self.lanes().push(lane);
        fetched
    }

    fn lane(&self) -> Result<HttpLane, HttpFailure> {
        let process = std::process::id();
        loop {
            match self.lanes().pop() {
                Some(lane) if lane.process == process => return Ok(lane),
                Some(_) => {}
                None => break,
            }
        }
        let runtime = Builder::new_current_thread().enable_all().max_blocking_threads(1).build();
        let runtime =
            runtime.map_err(|error| HttpFailure::Final(format!("no connection can be made: {error}")))?;
        Ok(HttpLane { process, runtime: Some(runtime), client: Some(HttpClient::new()) })
    }

    fn lanes(&self) -> std::sync::MutexGuard<'_, Vec<HttpLane>> {
        self.lanes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn fetch(
    client: &HttpClient,
    target: &HttpTarget,
    ask: Ask,
    most: u64,
) -> Result<Fetched, HttpFailure> {
    let mut answer = client.send(target, ask, PATIENCE).await?;
    if !answer.status.is_success() {
        let failure = answer.failure();
        answer.finish(PATIENCE).await;
        return Err(failure);
    }
    let too_long =
        || HttpFailure::Final(format!("the answer has more than the {most} bytes that were asked for"));
    let mut bytes = Vec::new();
    if ask != Ask::Head {
        if answer.length().is_some_and(|length| length > most) {
            return Err(too_long());
        }
        while let Some(chunk) = answer.chunk(PATIENCE).await? {
            if (bytes.len() + chunk.len()) as u64 > most {
                return Err(too_long());
            }
            bytes.extend_from_slice(&chunk);
        }
    }
    let fetched =
        Fetched { status: answer.status, headers: answer.headers.clone(), url: answer.url.clone(), bytes };
    answer.keep();
    Ok(fetched)
}
