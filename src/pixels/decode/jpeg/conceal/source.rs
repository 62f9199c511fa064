//! The bytes of a damaged file after its headers, read as libjpeg does: markers, restarts, bits and codes.
//!
//! A scan's bits end at the first marker of any kind; an endless sequence of zeros follows. The marker is examined when
//! the next restart interval begins or the scan ends.

use super::super::huffman::HuffmanCode;
use super::super::markers::{ScanHeader, read_scan};
use base::error::DecodeError;

#[derive(Debug)]
pub(super) enum Stop {
    /// The file ends before all needed data was read.
    Truncated,
    /// The file is invalid at this point, and libjpeg also refuses it.
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

pub(super) struct ScanSource<'a> {
    bytes: &'a [u8],
    at: usize,
    /// The code of a marker before byte `at` that is not yet handled. The bits of a scan end at this marker.
    marker: Option<u8>,
    restart: u8,
    /// The next bits, in the lowest `left` bits.
    window: u64,
    left: u32,
    /// Whether the data of this restart interval ended early, so that zeros replace its missing bits. libjpeg then
    /// leaves its blocks unchanged.
    pub(super) exhausted: bool,
}

/// libjpeg loads bytes until it has this many bits. The number matters at the end of the file: if a load runs past it,
/// the file counts as truncated.
const LOADED: u32 = 57;

/// libjpeg finds codes of at most this many bits with one table lookup, and loads at least this many bits before the
/// lookup.
const SHORT: u32 = 8;

impl<'a> ScanSource<'a> {
    pub(super) fn new(bytes: &'a [u8], at: usize) -> Self {
        Self { bytes, at, marker: None, restart: 0, window: 0, left: 0, exhausted: false }
    }

    fn byte(&mut self) -> Result<u8, Stop> {
        let byte = *self.bytes.get(self.at).ok_or(Stop::Truncated)?;
        self.at += 1;
        Ok(byte)
    }

    /// Takes the marker that ended the data, or finds the next marker.
    fn next_marker(&mut self) -> Result<u8, Stop> {
        if let Some(marker) = self.marker.take() {
            return Ok(marker);
        }
        loop {
            while self.byte()? != 0xFF {}
            let code = self.after_ff()?;
            if code != 0 {
                return Ok(code);
            }
        }
    }

    fn after_ff(&mut self) -> Result<u8, Stop> {
        loop {
            match self.byte()? {
                0xFF => {}
                code => return Ok(code),
            }
        }
    }

    /// Reads the length of a segment whose marker was just read, without the length's own two bytes. Returns `None` if
    /// the stated length is below two.
    fn length(&mut self) -> Result<Option<usize>, Stop> {
        let length = usize::from(self.byte()?) << 8 | usize::from(self.byte()?);
        Ok(length.checked_sub(2))
    }

    /// Reads the payload of a segment whose marker, at byte `at`, was just read. If the file ends inside the segment,
    /// the result is [`Stop::Refused`], not [`Stop::Truncated`]: the marker results from damage, and libjpeg would
    /// nearly always refuse the bytes before it reached the end.
    fn payload(&mut self, marker: u8, at: usize) -> Result<&'a [u8], Stop> {
        let Some(length) = self.length()? else {
            return refused(format!(
                "the segment with marker FF{marker:02X} at byte {at} has an invalid length"
            ));
        };
        let end = self.at + length;
        match self.bytes.get(self.at..end) {
            Some(payload) => {
                self.at = end;
                Ok(payload)
            }
            None => {
                refused(format!("the file ends inside the segment with marker FF{marker:02X} at byte {at}"))
            }
        }
    }

    /// Reads the headers of the next scan into `header`. Returns `false` if the image has no further scan.
    pub(super) fn next_scan(&mut self, header: &mut ScanHeader) -> Result<bool, Stop> {
        loop {
            let marker = self.next_marker()?;
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
                // These segments are only skipped; an impossible length counts as zero.
                0xCC | 0xDC | 0xE0..=0xEF | 0xFE => {
                    let length = self.length()?.unwrap_or(0);
                    self.at += length;
                }
                // These markers have no length: TEM and RST0 to RST7.
                0x01 | 0xD0..=0xD7 => {}
                _ => {
                    return refused(format!("unexpected marker FF{marker:02X} at byte {at}"));
                }
            }
        }
    }

    pub(super) fn begin_scan(&mut self) {
        (self.restart, self.left, self.exhausted) = (0, 0, false);
    }

    /// Advances to the next restart interval. If another marker comes than the expected one, follows libjpeg's
    /// `jpeg_resync_to_restart`: skips an earlier restart marker, and keeps a later one until it is expected.
    pub(super) fn restart(&mut self) -> Result<(), Stop> {
        self.left = 0;
        let mut found = self.next_marker()?;
        let expected = self.restart;
        if found != 0xD0 + expected {
            self.marker = loop {
                let ahead = found.wrapping_sub(0xD0 + expected) & 7;
                match (found, ahead) {
                    // An invalid marker, or one of the previous two restart markers: the expected marker comes later.
                    (..0xC0, _) | (0xD0..=0xD7, 6 | 7) => found = self.next_marker()?,
                    // One of the next two restart markers: this interval has no data, because its own marker is
                    // missing.
                    (0xD0..=0xD7, 1 | 2) => break Some(found),
                    // The data of this interval follows the marker: it is the expected marker (after skipped ones), or
                    // it is too far from the expected one to be trusted.
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

    /// Loads at least `needed` bits. After the end of the scan's data, zeros are loaded.
    fn load(&mut self, needed: u32) -> Result<(), Stop> {
        while self.marker.is_none() && self.left < LOADED {
            let mut byte = self.byte()?;
            if byte == 0xFF {
                match self.after_ff()? {
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

    /// Returns the next `count` bits, at most 17, which must be loaded.
    fn peek(&self, count: u32) -> u32 {
        (self.window >> (self.left - count)) as u32 & ((1 << count) - 1)
    }

    /// Reads the next `count` bits, at most 17.
    pub(super) fn take(&mut self, count: u32) -> Result<u32, Stop> {
        if self.left < count {
            self.load(count)?;
        }
        let bits = self.peek(count);
        self.left -= count;
        Ok(bits)
    }

    /// Reads a value of `size` bits, at most 15 (ITU T.81, F.2.2.1, EXTEND).
    pub(super) fn value(&mut self, size: u8) -> Result<i32, Stop> {
        let bits = self.take(size.into())? as i32;
        Ok(if size > 0 && bits >> (size - 1) == 0 { bits - (1 << size) + 1 } else { bits })
    }

    /// Reads the next symbol. Bits that form no code count as symbol 0, and 17 bits are consumed.
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
