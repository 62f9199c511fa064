//! A cursor over the bytes of a binary structure, for parsers.

use super::Malformed;

/// Reads numbers and texts one after the other. Numbers are little-endian.
pub struct ByteFields<'a> {
    rest: &'a [u8],
    at: u64,
}

impl<'a> ByteFields<'a> {
    /// Starts at the first byte, which is at the offset `at` of the file.
    pub fn new(bytes: &'a [u8], at: u64) -> Self {
        Self { rest: bytes, at }
    }

    /// Returns the offset in the file of the next byte.
    pub fn position(&self) -> u64 {
        self.at
    }

    /// Returns the bytes that were not read.
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// Returns an error about the next byte.
    pub fn damaged(&self, what: &str) -> Malformed {
        Malformed { offset: self.at, message: format!("{what}: the file is damaged") }
    }

    /// Reads `count` bytes.
    ///
    /// # Errors
    /// [`Malformed`] if there are fewer, as for all functions that read.
    pub fn take(&mut self, count: u64) -> Result<&'a [u8], Malformed> {
        let found = usize::try_from(count).ok().and_then(|count| self.rest.split_at_checked(count));
        let (taken, rest) = found.ok_or_else(|| self.damaged("a structure is shorter than its contents"))?;
        (self.rest, self.at) = (rest, self.at.saturating_add(count));
        Ok(taken)
    }

    /// Reads a number of `size` bytes, at most 8.
    pub fn uint(&mut self, size: u64) -> Result<u64, Malformed> {
        Ok(self.take(size)?.iter().rev().fold(0, |all, &byte| all << 8 | u64::from(byte)))
    }

    /// Reads `count` numbers of `size` bytes each.
    pub fn uints(&mut self, count: u64, size: u64) -> Result<Vec<u64>, Malformed> {
        (0..count).map(|_| self.uint(size)).collect()
    }

    /// Reads a byte.
    pub fn u8(&mut self) -> Result<u8, Malformed> {
        Ok(self.uint(1)? as u8)
    }

    /// Reads a number of 4 bytes.
    pub fn u32(&mut self) -> Result<u32, Malformed> {
        Ok(self.uint(4)? as u32)
    }

    /// Reads a number of `size` bytes, 1 to 8, which is `None` if all bits are set.
    pub fn optional(&mut self, size: u64) -> Result<Option<u64>, Malformed> {
        let number = self.uint(size)?;
        Ok(Some(number).filter(|&number| number != u64::MAX >> (64 - 8 * size)))
    }

    /// Reads such a number that must not be `None`.
    pub fn defined(&mut self, size: u64) -> Result<u64, Malformed> {
        self.optional(size)?.ok_or_else(|| self.damaged("an address is undefined"))
    }

    /// Reads a version, which must be one of these.
    pub fn version(&mut self, known: &[u8]) -> Result<u8, Malformed> {
        let wrong = self.damaged("a structure has an unknown version");
        let version = self.u8()?;
        if known.contains(&version) { Ok(version) } else { Err(wrong) }
    }

    /// Reads a text of `size` bytes, which ends before its first zero.
    pub fn text(&mut self, size: u64) -> Result<String, Malformed> {
        Ok(ended_text(self.take(size)?))
    }
}

/// Returns the text before the first zero of the bytes.
pub fn ended_text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(bytes.get(..end).unwrap_or_default()).into_owned()
}
