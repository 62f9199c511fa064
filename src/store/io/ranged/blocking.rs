//! Reads one sample from a server, on the calling thread.

use super::MAX_RESTARTS;
use super::attempt::{RangeFailure, Wanted};
use crate::io::files::{Files, RemoteFile};
use base::error::Result;
use data::dataset::Extent;
use data::http::{HttpFailure, Retries};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Reads the bytes of `extent`, which is in `file`. Adds the number of retries to `again`.
pub(in crate::io) fn read_blocking(
    files: &dyn Files,
    file: &RemoteFile,
    extent: Extent,
    again: &AtomicU64,
) -> Result<Vec<u8>> {
    let mut restarts = 0;
    let mut retries = Retries::new();
    loop {
        let wanted = Wanted { extent, stamp: files.stamp(extent.file) };
        if wanted.stamp.is_some() && extent.length == 0 {
            return Ok(Vec::new());
        }
        let failure = match read_once(file, wanted)? {
            Ok(bytes) => return Ok(bytes),
            Err(failure) => failure,
        };
        match failure {
            RangeFailure::VersionChanged(difference) if restarts < MAX_RESTARTS => {
                restarts += 1;
                files.accept(extent.file, difference)?;
            }
            RangeFailure::Transient(failure) => match retries.after(failure) {
                Ok(pause) => {
                    again.fetch_add(1, Relaxed);
                    std::thread::sleep(pause);
                }
                Err(gave_up) => {
                    return Err(
                        RangeFailure::RequestError(gave_up).into_error(&files.path(extent.file), extent)
                    );
                }
            },
            failure => return Err(failure.into_error(&files.path(extent.file), extent)),
        }
    }
}

/// Makes one request and checks the response. An outer error ends the read; an inner failure may allow another attempt.
fn read_once(file: &RemoteFile, wanted: Wanted) -> Result<Result<Vec<u8>, RangeFailure>> {
    let length = wanted.extent.length as usize;
    // Limit the response for a shard, because a server without support for ranges sends the whole shard. Read a whole
    // file to its end, so that the error can state its new size.
    let most = u64::from(if wanted.stamp.is_some() { wanted.extent.length } else { u32::MAX });
    let found = match file.ranges.fetch(&file.name, wanted.ask(), most, &|_| Ok(()))? {
        Ok(found) => found,
        Err(gave_up) if gave_up.failure.is_gone() => return Ok(Err(gave_up.failure.into())),
        Err(gave_up) => return Ok(Err(RangeFailure::RequestError(gave_up))),
    };
    let checked = wanted.check(found.status, &found.headers, || HttpFailure::Status(found.status, None));
    Ok(checked.and_then(|_| match found.bytes.len() {
        got if got == length => Ok(found.bytes),
        got if got > length && wanted.stamp.is_none() => {
            Err(RangeFailure::Changed(format!("is {got} bytes, was {length} when indexed")))
        }
        got => Err(HttpFailure::Broken(format!("the answer has {got} of {length} bytes")).into()),
    }))
}
