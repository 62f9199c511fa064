//! A file on a server as a parser sees it.

use super::{ContentRange, RangeSource, ReadAt, Stamp};
use crate::http::{Ask, StatusCode};
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

/// The fewest bytes that are asked for at a time.
const LEAST: usize = 32 << 10;
/// The most bytes that are asked for at a time where a parser goes through the file; many do at a time.
const MOST: usize = 1 << 20;
/// Where no more bytes lie between two places, they are read with these: to send so many takes about as long as to
/// answer another request.
const NEAR: u64 = 256 << 10;

/// A file on a server, of one version.
pub(super) struct RemoteBytes {
    ranges: Arc<dyn RangeSource>,
    name: Vec<u8>,
    stamp: Stamp,
    last: Mutex<LastAnswer>,
}

/// What was read last.
#[derive(Default)]
struct LastAnswer {
    /// The offset of its first byte.
    begin: u64,
    bytes: Vec<u8>,
    /// How many bytes were asked for.
    asked: usize,
}

impl LastAnswer {
    /// The `length` bytes at `offset`, if all of them were read.
    fn get(&self, offset: u64, length: usize) -> Option<&[u8]> {
        let at = usize::try_from(offset.checked_sub(self.begin)?).ok()?;
        self.bytes.get(at..at.checked_add(length)?)
    }

    /// How many bytes to ask for at `offset`: twice as many as last where this is a little further on, as when a parser
    /// goes from sample to sample.
    fn ahead(&self, offset: u64) -> usize {
        let end = self.begin + self.bytes.len() as u64;
        let goes_on = self.asked > 0 && (self.begin..=end + NEAR).contains(&offset);
        if goes_on { (2 * self.asked).min(MOST) } else { LEAST }
    }
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
        if let Some(found) = last.get(offset, wanted) {
            buffer[..wanted].copy_from_slice(found);
            return Ok(wanted);
        }
        let ahead = last.ahead(offset);
        let bytes = self.fetch(offset, (wanted.max(ahead) as u64).min(left))?;
        buffer[..wanted].copy_from_slice(&bytes[..wanted]);
        *last = LastAnswer { begin: offset, bytes, asked: ahead };
        Ok(wanted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_is_asked_for_where_a_parser_goes_through_the_file() {
        let mut last = LastAnswer::default();
        let mut asked = Vec::new();
        for offset in (0..64 << 20).step_by(200 << 10) {
            if last.get(offset, 512).is_none() {
                let ahead = last.ahead(offset);
                last = LastAnswer { begin: offset, bytes: vec![0; ahead], asked: ahead };
                asked.push(ahead >> 10);
            }
        }
        assert_eq!(asked[..7], [32, 64, 128, 256, 512, 1024, 1024]);
        assert!(asked.len() < 80, "{asked:?}");
        // Far on, and back, it begins anew.
        assert_eq!(last.ahead(128 << 20), LEAST);
        assert_eq!(last.ahead(0), LEAST);
    }
}
