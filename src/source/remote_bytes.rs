//! A file on a server as a parser sees it.

use super::{ContentRange, RangeSource, ReadAt, Stamp};
use crate::http::{Ask, StatusCode};
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

/// The fewest bytes that are asked for at a time: to send so many takes about as long as to ask.
const AHEAD: usize = 32 << 10;

/// A file on a server, of one version.
pub(super) struct RemoteBytes {
    ranges: Arc<dyn RangeSource>,
    name: Vec<u8>,
    stamp: Stamp,
    /// What was read last, and where it begins.
    last: Mutex<(u64, Vec<u8>)>,
}

impl RemoteBytes {
    pub(super) fn new(ranges: Arc<dyn RangeSource>, name: &[u8], stamp: Stamp) -> Self {
        Self { ranges, name: name.to_vec(), stamp, last: Mutex::default() }
    }

    fn fetch(&self, offset: u64, length: u64) -> io::Result<Vec<u8>> {
        let ask = Ask::Range(offset, offset + length - 1);
        let found = self.ranges.fetch(&self.name, ask, length).map_err(io::Error::other)??;
        let other = |what: String| io::Error::other(what);
        let is_all = offset == 0 && length == self.stamp.size;
        if found.status == StatusCode::PARTIAL_CONTENT {
            let range = ContentRange::of(&found.headers);
            let range =
                range.ok_or_else(|| other("the server does not say which bytes it sends".to_owned()))?;
            if range.total != self.stamp.size {
                return Err(other("it has another size than a moment ago: it is written to".to_owned()));
            }
            if (range.first, range.last) != (offset, offset + length - 1) {
                return Err(other("the server sends other bytes than those that were asked for".to_owned()));
            }
        } else if !is_all {
            return Err(other(
                "the server gives no ranges (206 Partial Content), which are needed".to_owned(),
            ));
        }
        if let Some(difference) = self.stamp.difference_of_object(&found.headers, self.stamp.size) {
            return Err(other(format!("it {difference}")));
        }
        if found.bytes.len() as u64 != length {
            return Err(other("the server sends fewer bytes than it says".to_owned()));
        }
        Ok(found.bytes)
    }
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
        let (begin, bytes) = &*last;
        let known = offset.checked_sub(*begin).and_then(|at| usize::try_from(at).ok());
        if let Some(found) = known.and_then(|at| bytes.get(at..at.checked_add(wanted)?)) {
            buffer[..wanted].copy_from_slice(found);
            return Ok(wanted);
        }
        let bytes = self.fetch(offset, (wanted.max(AHEAD) as u64).min(left))?;
        buffer[..wanted].copy_from_slice(&bytes[..wanted]);
        *last = (offset, bytes);
        Ok(wanted)
    }
}
