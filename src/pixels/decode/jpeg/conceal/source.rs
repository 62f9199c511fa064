//! The bytes of a damaged file behind its headers, as libjpeg reads them: markers, restarts, bits and codes.
//!
//! A scan's bits end at the first marker, whatever it is; zeros without end follow. The marker is looked at when the
//! next restart interval begins or the scan ends.

use super::super::huffman::HuffmanCode;
use super::super::markers::{ScanHeader, read_scan};
use base::error::DecodeError;

/// The reason why nothing more can be read.
#[derive(Debug)]
pub(super) enum Stop {
    /// The file ends where more of it is needed.
    Truncated,
    /// libjpeg gives up here, too.
    Refused(DecodeError),
}

impl From<DecodeError> for Stop {
    fn from(error: DecodeError) -> Self {
        Self::Refused(error)
    }
}

fn refused<T>(what: String) -> Result<T, Stop> {
    Err(Stop::Refused(DecodeError::Corrupt(what)))
}

/// A damaged file, and how far it is read.
pub(super) struct ScanSource<'a> {
    bytes: &'a [u8],
    /// The offset of the next byte.
    at: usize,
    /// A marker before that byte which is still to be acted on: a scan is not read beyond it.
    marker: Option<u8>,
    /// The number of the next restart marker, 0..=7.
    restart: u8,
    /// The bits to come, in the lowest `left` bits.
    window: u64,
    left: u32,
    /// Whether zeros were made up for bits of this restart interval.
    exhausted: bool,
}

/// libjpeg loads bytes until it has this many bits. What it loads matters at the end of the file, where it waits for
/// more.
const LOADED: u32 = 57;

/// Codes of up to this many bits are looked up together; this many bits are loaded before that.
const SHORT: u32 = 8;

impl<'a> ScanSource<'a> {
    /// Makes the source of a file whose first scan begins at byte `at`.
    pub(super) fn new(bytes: &'a [u8], at: usize) -> Self {
        Self { bytes, at, marker: None, restart: 0, window: 0, left: 0, exhausted: false }
    }

    fn byte(&mut self) -> Result<u8, Stop> {
        let byte = *self.bytes.get(self.at).ok_or(Stop::Truncated)?;
        self.at += 1;
        Ok(byte)
    }

    /// Steps over everything before the next marker and over its code, which is returned.
    fn next_marker(&mut self) -> Result<u8, Stop> {
        loop {
            while self.byte()? != 0xFF {}
            let code = self.behind_ff()?;
            if code != 0 {
                return Ok(code);
            }
        }
    }

    /// Returns what follows an 0xFF and further ones that only fill.
    fn behind_ff(&mut self) -> Result<u8, Stop> {
        loop {
            match self.byte()? {
                0xFF => {}
                code => return Ok(code),
            }
        }
    }

    /// Reads the length of a segment whose marker was just read, without the length's own two bytes; `None` if it is
    /// said to be less than these.
    fn length(&mut self) -> Result<Option<usize>, Stop> {
        let length = usize::from(self.byte()?) << 8 | usize::from(self.byte()?);
        Ok(length.checked_sub(2))
    }

    /// Reads the payload of a segment whose marker, which stands at byte `at`, was just read. If the file ends amid the
    /// segment, damage has made the marker: what stands there nearly never makes sense to libjpeg up to the end.
    fn payload(&mut self, marker: u8, at: usize) -> Result<&'a [u8], Stop> {
        let Some(length) = self.length()? else {
            return refused(format!(
                "the segment with marker FF{marker:02X} at byte {at} has an impossible length"
            ));
        };
        let end = self.at + length;
        match self.bytes.get(self.at..end) {
            Some(payload) => {
                self.at = end;
                Ok(payload)
            }
            None => {
                refused(format!("the file ends amid the segment with marker FF{marker:02X} at byte {at}"))
            }
        }
    }

    /// Goes on to the next scan; `false` if the image ends instead.
    pub(super) fn next_scan(&mut self, header: &mut ScanHeader) -> Result<bool, Stop> {
        loop {
            let marker = match self.marker.take() {
                Some(marker) => marker,
                None => self.next_marker()?,
            };
            let at = self.at - 2;
            match marker {
                0xC4 | 0xDB | 0xDD => header.tables.read(marker, at, self.payload(marker, at)?)?,
                0xDA => {
                    (header.scan, header.progression) =
                        read_scan(self.payload(marker, at)?, &header.frame)
                            .or_else(|what| refused(format!("SOS segment at byte {at} {what}")))?;
                    return Ok(true);
                }
                0xD9 => return Ok(false),
                // These are only stepped over; an impossible length is taken for none.
                0xCC | 0xDC | 0xE0..=0xEF | 0xFE => {
                    let length = self.length()?.unwrap_or(0);
                    self.at += length;
                }
                // Markers without a length.
                0x01 | 0xD0..=0xD7 => {}
                _ => {
                    return refused(format!("marker FF{marker:02X} at byte {at}, where none such can stand"));
                }
            }
        }
    }

    /// Begins the entropy-coded data of a scan.
    pub(super) fn begin_scan(&mut self) {
        (self.restart, self.left, self.exhausted) = (0, 0, false);
    }

    /// Goes on to the next restart interval. If another marker stands there than should, the rules of libjpeg's
    /// `jpeg_resync_to_restart` decide: an older one is stepped over, a later one is left for its turn.
    pub(super) fn restart(&mut self) -> Result<(), Stop> {
        self.left = 0;
        let mut found = match self.marker.take() {
            Some(marker) => marker,
            None => self.next_marker()?,
        };
        let expected = self.restart;
        if found != 0xD0 + expected {
            self.marker = loop {
                let ahead = found.wrapping_sub(0xD0 + expected) & 7;
                match (found, ahead) {
                    // This is no marker that is used, or one of the last two restarts: the right one lies ahead.
                    (..0xC0, _) | (0xD0..=0xD7, 6 | 7) => found = self.next_marker()?,
                    // The interval is empty: its marker, or the rest of the scan, is missing.
                    (0xD0..=0xD7, 1 | 2) => break Some(found),
                    // This is the expected marker after all, or one from nowhere.
                    (0xD0..=0xD7, _) => break None,
                    _ => break Some(found),
                }
            };
        }
        self.restart = (expected + 1) % 8;
        if self.marker.is_none() {
            self.exhausted = false;
        }
        Ok(())
    }

    /// Whether the restart interval has no more data; libjpeg then leaves its blocks as they are.
    pub(super) fn exhausted(&self) -> bool {
        self.exhausted
    }

    /// Loads at least `needed` bits; they are made up if the data ends before.
    fn load(&mut self, needed: u32) -> Result<(), Stop> {
        while self.marker.is_none() && self.left < LOADED {
            let mut byte = self.byte()?;
            if byte == 0xFF {
                match self.behind_ff()? {
                    0 => byte = 0xFF,
                    marker => {
                        self.marker = Some(marker);
                        break;
                    }
                }
            }
            self.window = self.window << 8 | u64::from(byte);
            self.left += 8;
        }
        if self.left < needed {
            self.exhausted = true;
            self.window <<= LOADED - self.left;
            self.left = LOADED;
        }
        Ok(())
    }

    /// Returns the next `count` bits, which are loaded; at most 17.
    fn peek(&self, count: u32) -> u32 {
        (self.window >> (self.left - count)) as u32 & ((1 << count) - 1)
    }

    /// Takes the next `count` bits; at most 17.
    pub(super) fn take(&mut self, count: u32) -> Result<u32, Stop> {
        if self.left < count {
            self.load(count)?;
        }
        let bits = self.peek(count);
        self.left -= count;
        Ok(bits)
    }

    /// Takes a value of `size` bits, at most 15 (ITU T.81, F.2.2.1, EXTEND).
    pub(super) fn value(&mut self, size: u8) -> Result<i32, Stop> {
        let bits = self.take(size.into())? as i32;
        Ok(if size > 0 && bits >> (size - 1) == 0 { bits - (1 << size) + 1 } else { bits })
    }

    /// Takes the next symbol. Bits that no code begins with stand for symbol 0, and 17 of them are taken.
    pub(super) fn symbol(&mut self, codes: &HuffmanCode) -> Result<u8, Stop> {
        if self.left < SHORT {
            self.load(0)?;
        }
        let mut length = 1;
        if self.left >= SHORT {
            while length <= SHORT {
                if let Some(symbol) = codes.symbol(self.peek(length), length) {
                    self.left -= length;
                    return Ok(symbol);
                }
                length += 1;
            }
        }
        let mut code = self.take(length)?;
        while length <= 16 {
            if let Some(symbol) = codes.symbol(code, length) {
                return Ok(symbol);
            }
            code = code << 1 | self.take(1)?;
            length += 1;
        }
        Ok(0)
    }
}
