//! One request for the bytes of a sample, and the check that the response matches the index.

use super::{RangedShared, SILENCE};
use crate::io::files::RemoteFile;
use base::error::Error;
use data::dataset::{Extent, Stamp};
use data::http::{
    COMPRESSED, FileRequest, HttpFailure, NO_CONTENT_RANGE, NO_RANGES, OpenResponse, RequestError,
    StatusCode, header,
};
use data::source::ContentRange;
use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

#[derive(Debug, Clone, Copy)]
pub(super) struct Wanted {
    pub(super) extent: Extent,
    /// The stamp that the shard must have; `None` if the extent is a whole file.
    pub(super) stamp: Option<Stamp>,
}

#[derive(Debug)]
pub(super) enum RangeFailure {
    /// A failure after which the same request may succeed later.
    Transient(HttpFailure),
    /// All retries are used up, or the request can never succeed.
    RequestError(RequestError),
    /// The shard's version differs from the version in the index; the text describes how.
    VersionChanged(String),
    /// The file was removed, or its size differs from the index; the text describes the change.
    Changed(String),
    Other(Error),
}

impl From<HttpFailure> for RangeFailure {
    fn from(failure: HttpFailure) -> Self {
        match failure {
            failure if failure.is_gone() => Self::Changed(format!("is no longer on the server: {failure}")),
            failure if failure.may_succeed_later() => Self::Transient(failure),
            failure => Self::RequestError(RequestError { failure, tries: 1 }),
        }
    }
}

impl RangeFailure {
    pub(super) fn late(allowed: Duration) -> Self {
        Self::Transient(HttpFailure::Late(allowed))
    }

    pub(super) fn is_late(&self) -> bool {
        matches!(self, Self::Transient(HttpFailure::Late(_) | HttpFailure::Stalled(_)))
    }

    pub(super) fn into_error(self, path: &Path, extent: Extent) -> Error {
        let read = || format!("read {} bytes at {} of", extent.length, extent.offset);
        match self {
            Self::VersionChanged(message) | Self::Changed(message) => {
                Error::DatasetChanged { path: path.to_path_buf(), message }
            }
            Self::Transient(failure) => Error::io(read(), path, RequestError { failure, tries: 1 }.into()),
            Self::RequestError(gave_up) => Error::io(read(), path, gave_up.into()),
            Self::Other(error) => error,
        }
    }
}

impl Wanted {
    pub(super) fn ask(&self) -> FileRequest {
        let Extent { offset, length, .. } = self.extent;
        match self.stamp {
            Some(_) => FileRequest::Range(offset, offset + u64::from(length.max(1)) - 1),
            None => FileRequest::Whole,
        }
    }

    /// Checks the status and headers of a response, before its body is read. If the request is for a whole file,
    /// returns the file's stamp.
    pub(super) fn check(
        &self,
        status: StatusCode,
        headers: &data::http::HeaderMap,
        failure: impl FnOnce() -> HttpFailure,
    ) -> Result<Option<Stamp>, RangeFailure> {
        let length = u64::from(self.extent.length);
        if headers.get(header::CONTENT_ENCODING).is_some_and(|coding| coding != "identity") {
            return Err(HttpFailure::Final(COMPRESSED.to_owned()).into());
        }
        let body =
            headers.get(header::CONTENT_LENGTH).and_then(|text| text.to_str().ok()?.trim().parse().ok());
        match (self.stamp, status) {
            (None, StatusCode::OK) => {
                if let Some(now) = body.filter(|now: &u64| *now != length) {
                    return Err(RangeFailure::Changed(format!("is {now} bytes, was {length} when indexed")));
                }
                Ok(Some(Stamp::of_object(length, headers)))
            }
            (Some(stamp), StatusCode::PARTIAL_CONTENT) => {
                let range = ContentRange::of(headers);
                let range = range.ok_or_else(|| HttpFailure::Broken(NO_CONTENT_RANGE.to_owned()))?;
                if let Some(difference) = stamp.difference_of_object(headers, range.total) {
                    return Err(RangeFailure::VersionChanged(difference));
                }
                let last = self.extent.offset + length - 1;
                if (range.first, range.last) != (self.extent.offset, last) {
                    let ContentRange { first, last: end, .. } = range;
                    let asked = self.extent.offset;
                    let why = format!(
                        "the server sends the bytes {first}-{end} where {asked}-{last} were asked for"
                    );
                    return Err(HttpFailure::Broken(why).into());
                }
                Ok(None)
            }
            (Some(stamp), StatusCode::OK) => {
                let size = body.unwrap_or(stamp.size);
                if let Some(difference) = stamp.difference_of_object(headers, size) {
                    return Err(RangeFailure::VersionChanged(difference));
                }
                if self.extent.offset == 0 && length == stamp.size {
                    return Ok(None);
                }
                Err(HttpFailure::Broken(NO_RANGES.to_owned()).into())
            }
            (Some(_), StatusCode::RANGE_NOT_SATISFIABLE) => {
                Err(RangeFailure::VersionChanged("ends before a sample that was indexed in it".to_owned()))
            }
            (_, status) if status.is_success() => {
                Err(HttpFailure::Final(format!("the server answers {status}, without the file's bytes"))
                    .into())
            }
            _ => Err(failure().into()),
        }
    }
}

impl RangedShared {
    /// Makes one request, and reads the body of the response into the buffer `room`. If the request is for a whole
    /// file, returns the file's stamp.
    pub(super) async fn attempt(
        &self,
        file: &RemoteFile,
        wanted: Wanted,
        room: &mut [u8],
    ) -> Result<Option<Stamp>, RangeFailure> {
        let target = file.ranges.prepare(&file.name, wanted.ask()).await.map_err(RangeFailure::Other)??;
        self.counters.requests.fetch_add(1, Relaxed);
        let mut answer = self.client.send(&target, wanted.ask(), SILENCE).await?;
        match wanted.check(answer.status, &answer.headers, || answer.failure()) {
            Ok(found) => {
                self.take(&mut answer, wanted, room).await?;
                answer.keep();
                Ok(found)
            }
            Err(_) if answer.is_refusal() => {
                let (failure, headers) = (answer.failure(), answer.headers.clone());
                Err(file.ranges.explain(failure, &headers, &answer.finish(SILENCE).await).into())
            }
            Err(failure) => Err(failure),
        }
    }

    async fn take(
        &self,
        answer: &mut OpenResponse<'_>,
        wanted: Wanted,
        room: &mut [u8],
    ) -> Result<(), RangeFailure> {
        let length = room.len();
        let mut arrived = 0;
        while let Some(bytes) = answer.chunk(SILENCE).await? {
            let Some(place) = room.get_mut(arrived..arrived + bytes.len()) else {
                return Err(match wanted.stamp {
                    None => RangeFailure::Changed(format!(
                        "is longer than the {length} bytes it was when indexed"
                    )),
                    Some(_) => {
                        HttpFailure::Broken("the server sends more bytes than it announced".to_owned()).into()
                    }
                });
            };
            place.copy_from_slice(&bytes);
            arrived += bytes.len();
        }
        self.counters.bytes.fetch_add(arrived as u64, Relaxed);
        if arrived < length {
            let why = format!("the answer ended after {arrived} of {length} bytes");
            return Err(HttpFailure::Broken(why).into());
        }
        Ok(())
    }
}
