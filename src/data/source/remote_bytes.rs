//! Random access to a file on a server, for parsers.

use super::{ContentRange, RangeSource, ReadAt, Stamp};
use crate::http::{
    COMPRESSED, Fetched, FileRequest, HttpFailure, NO_CONTENT_RANGE, NO_RANGES, StatusCode, header,
};
use std::cell::Cell;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

const MIN_REQUEST: usize = 32 << 10;
/// Maximum number of bytes of a request if a parser reads the file sequentially. It is small because many parsers run
/// at a time.
const MAX_REQUEST: usize = 1 << 20;
/// Maximum gap in bytes between the end of the latest response and a read that still counts as sequential. Transferring
/// a gap of this size takes about as long as one more request, so a larger request covers the gap.
const MAX_GAP: u64 = 256 << 10;

/// Number of responses with another version, within one read, after which the file counts as changed.
const MAX_MOVES: u32 = 3;

pub(super) struct RemoteBytes {
    ranges: Arc<dyn RangeSource>,
    name: Vec<u8>,
    stamp: Stamp,
    last: Mutex<LastResponse>,
}

#[derive(Default)]
struct LastResponse {
    begin: u64,
    bytes: Vec<u8>,
    asked: usize,
}

impl LastResponse {
    fn get(&self, offset: u64, length: usize) -> Option<&[u8]> {
        let at = usize::try_from(offset.checked_sub(self.begin)?).ok()?;
        self.bytes.get(at..at.checked_add(length)?)
    }

    /// Returns how many bytes to request at `offset`: for a sequential read, twice the size of the latest request.
    fn request_size(&self, offset: u64) -> usize {
        let end = self.begin + self.bytes.len() as u64;
        let is_sequential = self.asked > 0 && (self.begin..=end + MAX_GAP).contains(&offset);
        if is_sequential { (2 * self.asked).min(MAX_REQUEST) } else { MIN_REQUEST }
    }
}

impl RemoteBytes {
    pub(super) fn new(ranges: Arc<dyn RangeSource>, name: &[u8], stamp: Stamp) -> Self {
        Self { ranges, name: name.to_vec(), stamp, last: Mutex::default() }
    }

    fn fetch(&self, offset: u64, length: u64) -> io::Result<Vec<u8>> {
        let ask = FileRequest::Range(offset, offset + length - 1);
        let moves = Cell::new(0);
        let check = |found: &Fetched| match self.check(found, offset, length) {
            Err(RemoteFault::OtherVersion(difference)) => {
                moves.set(moves.get() + 1);
                // Retry, because one of several servers may still have the older version. If the file has been
                // rewritten, the mismatch persists.
                let fault = format!("it {difference}: the file has changed");
                Err(if moves.get() < MAX_MOVES {
                    HttpFailure::Broken(fault)
                } else {
                    HttpFailure::Final(fault)
                })
            }
            Err(RemoteFault::Wrong(failure)) => Err(failure),
            Ok(()) => Ok(()),
        };
        let found = self.ranges.fetch(&self.name, ask, length, &check).map_err(io::Error::other)??;
        Ok(found.bytes)
    }

    /// Checks that a response contains the requested bytes of the file version that is being read. The readers of
    /// samples (`store::io`) apply the same rules.
    fn check(&self, found: &Fetched, offset: u64, length: u64) -> Result<(), RemoteFault> {
        let wrong = |why: &str| RemoteFault::Wrong(HttpFailure::Broken(why.to_owned()));
        if found.headers.get(header::CONTENT_ENCODING).is_some_and(|coding| coding != "identity") {
            return Err(RemoteFault::Wrong(HttpFailure::Final(COMPRESSED.to_owned())));
        }
        let total = if found.status == StatusCode::PARTIAL_CONTENT {
            let range = ContentRange::of(&found.headers).ok_or_else(|| wrong(NO_CONTENT_RANGE))?;
            if range.total == self.stamp.size && (range.first, range.last) != (offset, offset + length - 1) {
                return Err(wrong("the server sent another range than the requested one"));
            }
            range.total
        } else if offset == 0 && length == self.stamp.size {
            length
        } else {
            return Err(wrong(NO_RANGES));
        };
        if let Some(difference) = self.stamp.difference_of_object(&found.headers, total) {
            return Err(RemoteFault::OtherVersion(difference));
        }
        match found.bytes.len() as u64 {
            got if got == length => Ok(()),
            got => Err(wrong(&format!("the answer has {got} bytes instead of {length}"))),
        }
    }
}

enum RemoteFault {
    Wrong(HttpFailure),
    /// The response is of another version of the file. The text says how it differs, in words that follow "it", such as
    /// "has another ETag".
    OtherVersion(String),
}

impl ReadAt for RemoteBytes {
    fn size(&self) -> u64 {
        self.stamp.size
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let left = self.stamp.size.saturating_sub(offset);
        let wanted = (buffer.len() as u64).min(left) as usize;
        if wanted == 0 {
            return Ok(0);
        }
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = last.get(offset, wanted) {
            buffer[..wanted].copy_from_slice(found);
            return Ok(wanted);
        }
        let request_size = last.request_size(offset);
        let bytes = self.fetch(offset, (wanted.max(request_size) as u64).min(left))?;
        buffer[..wanted].copy_from_slice(&bytes[..wanted]);
        *last = LastResponse { begin: offset, bytes, asked: request_size };
        Ok(wanted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_is_asked_for_where_a_parser_goes_through_the_file() {
        let mut last = LastResponse::default();
        let mut asked = Vec::new();
        for offset in (0..64 << 20).step_by(200 << 10) {
            if last.get(offset, 512).is_none() {
                let request_size = last.request_size(offset);
                last = LastResponse { begin: offset, bytes: vec![0; request_size], asked: request_size };
                asked.push(request_size >> 10);
            }
        }
        assert_eq!(asked[..7], [32, 64, 128, 256, 512, 1024, 1024]);
        assert!(asked.len() < 80, "{asked:?}");
        assert_eq!(last.request_size(128 << 20), MIN_REQUEST);
        assert_eq!(last.request_size(0), MIN_REQUEST);
    }
}
