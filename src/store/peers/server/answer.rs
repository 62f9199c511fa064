//! Makes the response to a request of a peer.

use super::connections::{ActiveResponse, ConnectionWatch};
use super::copies::ServeFailure;
use super::serving::Serving;
use crate::peers::bound::ReservedBytes;
use crate::peers::served_cache::{Accepted, CopyBytes, Found, ServedCache};
use crate::peers::wire::{self, RequestedRange, SharedDataset};
use base::counting::count;
use base::crc::{Checksum, checksum};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::header::{self, HeaderMap, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use std::cmp::Ordering;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

pub(super) type Answer = Response<Full<Bytes>>;

/// Answers a request. A response to a request without the token reveals nothing, not even whether the path is valid.
pub(super) async fn answer(
    serving: Arc<Serving>,
    watch: Arc<ConnectionWatch>,
    request: Request<Incoming>,
) -> Answer {
    let counters = &serving.counters;
    if !serving.token.is_in(request.headers()) {
        count(&counters.strangers, 1);
        let mut answer = plain(StatusCode::UNAUTHORIZED);
        answer.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
        return answer;
    }
    let active = watch.begin();
    let Some((dataset, sample)) = SharedDataset::parse(request.uri().path()) else {
        return refused(&counters.malformed, StatusCode::NOT_FOUND);
    };
    let Some(served_cache) = serving.served_cache(&dataset) else {
        return refused(&counters.other_datasets, StatusCode::CONFLICT);
    };
    match *request.method() {
        Method::GET => serve(&serving, &*served_cache, sample, request.headers(), active).await,
        Method::PUT => take(&serving, served_cache, sample, request).await,
        _ => refused(&counters.malformed, StatusCode::METHOD_NOT_ALLOWED),
    }
}

async fn serve(
    serving: &Serving,
    served_cache: &dyn ServedCache,
    sample: u64,
    headers: &HeaderMap,
    active: ActiveResponse,
) -> Answer {
    let counters = &serving.counters;
    let requested_version = wire::version_of(headers, header::IF_MATCH);
    let (copy, crc, version) = match served_cache.find(sample, requested_version) {
        Found::Copy { bytes, crc, version } => (bytes, crc, version),
        Found::Absent => return refused(&counters.absent, StatusCode::NOT_FOUND),
        Found::Stale => return refused(&counters.stale, StatusCode::PRECONDITION_FAILED),
        Found::Unconfirmed => return refused(&counters.unconfirmed, StatusCode::PRECONDITION_REQUIRED),
    };
    let length = match &copy {
        CopyBytes::Memory(bytes) => bytes.len() as u64,
        CopyBytes::File { length, .. } => u64::from(*length),
    };
    let (status, part) = match wire::range_of(headers, length) {
        RequestedRange::Whole => (StatusCode::OK, 0..length),
        RequestedRange::Part(part) => (StatusCode::PARTIAL_CONTENT, part),
        RequestedRange::Outside => {
            let mut answer = refused(&counters.malformed, StatusCode::RANGE_NOT_SATISFIABLE);
            answer.headers_mut().insert(header::CONTENT_RANGE, text(format!("bytes */{length}")));
            return answer;
        }
    };
    let served = part.end - part.start;
    let Some(reserved) = serving.byte_budget.reserve(served as usize) else { return busy(&counters.busy) };
    if !serving.wait_to_serve(served).await {
        return busy(&counters.busy);
    }
    let begun = serving.now();
    let bytes = match serving.copies.read(copy, part.clone()).await {
        Ok(bytes) => bytes,
        Err(ServeFailure::Busy) => return busy(&counters.busy),
        Err(ServeFailure::Unreadable) => {
            return refused(&counters.unreadable, StatusCode::NOT_FOUND);
        }
    };
    // The receiver would detect the damage as well, but it cannot remove the damaged copy.
    if status == StatusCode::OK && checksum(&bytes) != crc {
        served_cache.damaged(sample, crc);
        return refused(&counters.unreadable, StatusCode::NOT_FOUND);
    }
    serving.adjust_pace(begun);
    count(&counters.served, 1);
    count(&counters.served_bytes, served);
    let body = Bytes::from_owner(BodyBytes { bytes, _reserved: reserved, _active: active });
    let mut answer = Response::new(Full::new(body));
    *answer.status_mut() = status;
    let headers = answer.headers_mut();
    headers.insert(header::ETAG, wire::version_value(version));
    headers.insert(wire::CRC, wire::crc_value(sample, version, crc));
    if status == StatusCode::PARTIAL_CONTENT {
        let range = format!("bytes {}-{}/{length}", part.start, part.end - 1);
        headers.insert(header::CONTENT_RANGE, text(range));
    }
    answer
}

/// The bytes of a response, and their reservation in the byte budget, which lasts until the bytes are written.
struct BodyBytes {
    bytes: Bytes,
    _reserved: ReservedBytes,
    _active: ActiveResponse,
}

impl AsRef<[u8]> for BodyBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// Receives a sample that a peer pushes. If the body is not read to its end, the HTTP library closes the connection.
async fn take(
    serving: &Serving,
    served_cache: Arc<dyn ServedCache>,
    sample: u64,
    request: Request<Incoming>,
) -> Answer {
    let counters = &serving.counters;
    let damaged = |status| refused(&counters.pushes_damaged, status);
    let Some(expected) = served_cache.length(sample) else {
        return refused(&counters.malformed, StatusCode::NOT_FOUND);
    };
    let headers = request.headers();
    let version = wire::version_of(headers, wire::VERSION);
    let crc = version.and_then(|version| wire::crc_of(headers, sample, version));
    let (Some(announced), Some(crc), Some(version)) = (wire::length_of(headers), crc, version) else {
        return refused(&counters.malformed, StatusCode::BAD_REQUEST);
    };
    match announced.cmp(&u64::from(expected)) {
        Ordering::Less => return damaged(StatusCode::BAD_REQUEST),
        Ordering::Equal => {}
        Ordering::Greater => return damaged(StatusCode::PAYLOAD_TOO_LARGE),
    }
    let length = expected as usize;
    let buffer = serving.byte_budget.reserve(length).zip(serving.copies.push_buffer(length));
    let Some((_reserved, mut slot)) = buffer else { return busy(&counters.busy) };
    let (mut arrived, mut checksum) = (0, Checksum::new());
    let mut body = request.into_body();
    while let Some(frame) = body.frame().await {
        let Ok(frame) = frame else { return damaged(StatusCode::BAD_REQUEST) };
        let Some(payload) = frame.data_ref() else { continue };
        let Some(room) = slot.bytes_mut()[..length].get_mut(arrived..arrived + payload.len()) else {
            return damaged(StatusCode::PAYLOAD_TOO_LARGE);
        };
        room.copy_from_slice(payload);
        checksum.update(payload);
        arrived += payload.len();
    }
    if arrived != length || checksum.value() != crc {
        return damaged(StatusCode::UNPROCESSABLE_ENTITY);
    }
    let at_once = served_cache.accepts_at_once(sample);
    let accept = move || served_cache.accept(sample, version, crc, &slot.bytes()[..length]);
    let accepted = match at_once {
        true => accept(),
        // Freeing space takes a while, so accept on another thread while the server answers other requests.
        false => tokio::task::spawn_blocking(accept).await.unwrap_or(Accepted::Busy),
    };
    match accepted {
        Accepted::Taken => {
            count(&counters.pushes_taken, 1);
            count(&counters.pushed_bytes, length as u64);
            plain(StatusCode::CREATED)
        }
        Accepted::Present => refused(&counters.pushes_refused, StatusCode::NO_CONTENT),
        Accepted::Full => refused(&counters.pushes_refused, StatusCode::INSUFFICIENT_STORAGE),
        Accepted::Busy => busy(&counters.pushes_refused),
        Accepted::Off => refused(&counters.pushes_refused, StatusCode::FORBIDDEN),
    }
}

fn plain(status: StatusCode) -> Answer {
    let mut answer = Response::new(Full::new(Bytes::new()));
    *answer.status_mut() = status;
    answer
}

fn refused(counter: &AtomicU64, status: StatusCode) -> Answer {
    count(counter, 1);
    plain(status)
}

/// Answers with status 503. A Foreload client does not retry, but reads the source.
fn busy(counter: &AtomicU64) -> Answer {
    let mut answer = refused(counter, StatusCode::SERVICE_UNAVAILABLE);
    answer.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
    answer
}

fn text(value: String) -> HeaderValue {
    HeaderValue::try_from(value).expect("visible characters")
}
