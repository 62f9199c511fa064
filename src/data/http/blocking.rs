//! Requests of threads that wait for them: to list, look and read where no reader runs.
//!
//! A thread drives its request itself, on a runtime that it takes for that time, so that no other thread is woken for
//! it. Runtimes are kept with their connections for the next request of any thread.

use super::client::{Ask, HttpAnswer, HttpClient, HttpTarget, length_of};
use super::failure::{GaveUp, HttpFailure, NO_RANGES};
use super::retry::Retries;
use super::url::HttpUrl;
use hyper::StatusCode;
use hyper::header::HeaderMap;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant};
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;

/// The clients that are kept for later requests. Each keeps file descriptors, of which many threads would need many.
const KEPT_LANES: usize = 4;

/// How long a step of a request may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// How often it is looked whether to go on waiting.
const LOOK: Duration = Duration::from_millis(100);

/// A client for any number of threads.
#[derive(Default)]
pub struct BlockingHttp {
    lanes: Mutex<Vec<HttpLane>>,
    asked: Mutex<AskedCounts>,
    watch: RwLock<Option<Arc<dyn WaitWatch>>>,
}

/// Who decides how long requests are waited for, with all their tries.
pub trait WaitWatch: Send + Sync {
    /// Whether to go on after having waited for so long. It is asked several times a second, while there is no answer.
    fn goes_on(&self, waited: Duration) -> bool;
}

/// Whether an answer is what was wanted; else why not, and with that whether it is asked for again.
pub type AnswerCheck<'a> = &'a dyn Fn(&Fetched) -> Result<(), HttpFailure>;

/// How many requests were made, by what they asked for, with each that was made again; and what they brought.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AskedCounts {
    /// For what a server says of files.
    pub heads: u64,
    /// For files, or parts of them.
    pub gets: u64,
    /// For pages of listings, where these are another kind of requests.
    pub lists: u64,
    /// The bytes of files.
    pub bytes: u64,
}

impl AskedCounts {
    /// These and others, as those of one.
    pub fn with(self, other: Self) -> Self {
        Self {
            heads: self.heads + other.heads,
            gets: self.gets + other.gets,
            lists: self.lists + other.lists,
            bytes: self.bytes + other.bytes,
        }
    }
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
pub struct Fetched {
    /// The status.
    pub status: StatusCode,
    /// The headers.
    pub headers: HeaderMap,
    /// The URL that gave it, redirects followed.
    pub url: HttpUrl,
    /// The body, or as much of it as was asked for.
    pub bytes: Vec<u8>,
}

impl Fetched {
    /// What the headers say of the body's length.
    pub fn length(&self) -> Option<u64> {
        length_of(&self.headers)
    }
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
    pub fn fetch(&self, target: &HttpTarget, ask: Ask, most: u64) -> Result<Fetched, GaveUp> {
        self.fetch_prepared(async || Ok(target.clone()), |failure, _, _| failure, ask, most, &|_| Ok(()))
    }

    /// Does the same with requests that `prepare` makes anew for each try; `explain` says what a refusal, or a whole
    /// file in place of a range, means by its headers and its body. What does not pass `check` is a failure like
    /// others.
    ///
    /// # Errors
    /// The last failure, be it of preparing or of asking.
    pub fn fetch_prepared(
        &self,
        prepare: impl AsyncFn() -> Result<HttpTarget, HttpFailure>,
        explain: impl Fn(HttpFailure, &HeaderMap, &[u8]) -> HttpFailure,
        ask: Ask,
        most: u64,
        check: AnswerCheck<'_>,
    ) -> Result<Fetched, GaveUp> {
        let once = async |client: &HttpClient| {
            let target = prepare().await?;
            self.count(|asked| match ask {
                Ask::Head => asked.heads += 1,
                Ask::Whole | Ask::Range(..) => asked.gets += 1,
            });
            let fetched = fetch(client, &target, &explain, ask, most).await?;
            self.count(|asked| asked.bytes += fetched.bytes.len() as u64);
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
        fetched.map_err(|failure| GaveUp { failure, tries: 1 })?
    }

    /// Has requests watched from now on while they are waited for, or no longer.
    pub fn set_watch(&self, watch: Option<Arc<dyn WaitWatch>>) {
        *self.watch.write().unwrap_or_else(PoisonError::into_inner) = watch;
    }

    /// What was asked for so far.
    pub fn asked(&self) -> AskedCounts {
        *self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a request, or what it brought.
    pub fn count(&self, count: impl FnOnce(&mut AskedCounts)) {
        count(&mut self.asked.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Runs what makes requests, on a client that is this thread's for that time.
    ///
    /// # Errors
    /// [`HttpFailure::Final`] where the system refuses what a client needs, or who watches does not go on.
    pub fn run<T>(&self, work: impl AsyncFnOnce(&HttpClient) -> T) -> Result<T, HttpFailure> {
        let lane = self.lane()?;
        let (Some(runtime), Some(client)) = (&lane.runtime, &lane.client) else {
            return Err(HttpFailure::Final("the connection is closed".to_owned()));
        };
        let watch = self.watch.read().unwrap_or_else(PoisonError::into_inner).clone();
        let done = match watch {
            None => runtime.block_on(work(client)),
            // What was broken off is dropped with its lane.
            Some(watch) => runtime.block_on(watched(&*watch, work(client)))?,
        };
        let mut lanes = self.lanes();
        if lanes.len() < KEPT_LANES {
            lanes.push(lane);
        } else {
            drop(lanes);
            drop(lane);
        }
        Ok(done)
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

/// Waits for `work` as long as who watches wants that.
async fn watched<T>(watch: &dyn WaitWatch, work: impl Future<Output = T>) -> Result<T, HttpFailure> {
    let (mut work, begun) = (pin!(work), Instant::now());
    loop {
        match timeout(LOOK, work.as_mut()).await {
            Ok(done) => return Ok(done),
            Err(_) if watch.goes_on(begun.elapsed()) => {}
            Err(_) => return Err(HttpFailure::Final("waiting for it was interrupted".to_owned())),
        }
    }
}

async fn fetch(
    client: &HttpClient,
    target: &HttpTarget,
    explain: &impl Fn(HttpFailure, &HeaderMap, &[u8]) -> HttpFailure,
    ask: Ask,
    most: u64,
) -> Result<Fetched, HttpFailure> {
    let answer = client.send(target, ask, PATIENCE).await?;
    if !answer.status.is_success() {
        let (failure, headers) = (answer.failure(), answer.headers.clone());
        return Err(explain(failure, &headers, &answer.finish(PATIENCE).await));
    }
    let (headers, is_whole_file) = (answer.headers.clone(), answer.status == StatusCode::OK);
    let read = read_answer(answer, if ask == Ask::Head { 0 } else { most }).await?;
    read.ok_or_else(|| match ask {
        // Some of several servers behind one name may not know ranges.
        Ask::Range(..) if is_whole_file => explain(HttpFailure::Broken(NO_RANGES.to_owned()), &headers, &[]),
        _ => too_long(most),
    })
}

fn too_long(most: u64) -> HttpFailure {
    HttpFailure::Final(format!("the answer has more than the {most} bytes that were asked for"))
}

/// The whole answer, which may have up to `most` bytes.
#[cfg(feature = "objects")]
pub(super) async fn whole(answer: HttpAnswer<'_>, most: u64) -> Result<Fetched, HttpFailure> {
    read_answer(answer, most).await?.ok_or_else(|| too_long(most))
}

/// The whole answer; `None` where it has more than `most` bytes.
async fn read_answer(mut answer: HttpAnswer<'_>, most: u64) -> Result<Option<Fetched>, HttpFailure> {
    let mut bytes = Vec::new();
    if !answer.is_over() {
        if answer.length().is_some_and(|length| length > most) {
            return Ok(None);
        }
        while let Some(chunk) = answer.chunk(PATIENCE).await? {
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
