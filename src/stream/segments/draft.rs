//! A segment that is being written.

use super::RecordPlace;
use super::directory::{RecordDirectory, SEGMENT, UnnamedFile};
use super::format::{encode_footer, file_bytes};
use super::rows::{RecordRow, RecordRows};
use base::error::{Error, Result};
use data::dataset::Stamp;
use std::os::unix::fs::FileExt;
use store::segments::pages;

/// How many bytes wait at most before they are written.
const WRITE_BUFFER: usize = 1 << 20;

/// A segment without its name: a part of its samples is in the file, the rest waits to be written.
pub(super) struct SegmentDraft {
    pub number: u64,
    pub rows: RecordRows,
    file: UnnamedFile,
    /// The bytes in the file; what lies behind them is in `buffer`.
    written: u64,
    buffer: Vec<u8>,
    /// How many bytes may wait there.
    most: usize,
}

impl SegmentDraft {
    /// An empty segment, which is to have about so many bytes. Its pages are reserved by whoever adds to it.
    pub(super) fn new(directory: &RecordDirectory, number: u64, bytes: u64) -> Result<Self> {
        let file = directory.create(number, SEGMENT)?;
        let most = WRITE_BUFFER.min(bytes as usize / 8);
        Ok(Self { number, rows: RecordRows::default(), file, written: 0, buffer: Vec::new(), most })
    }

    /// The pages that it takes with one more sample of so many bytes.
    pub(super) fn pages_with(&self, length: usize) -> u64 {
        pages(file_bytes(self.rows.payload() + length as u64, self.rows.len() + 1))
    }

    /// The pages that it takes: of an empty segment nothing is written.
    pub(super) fn pages(&self) -> u64 {
        if self.rows.len() == 0 { 0 } else { pages(file_bytes(self.rows.payload(), self.rows.len())) }
    }

    /// Adds a sample.
    ///
    /// # Errors
    /// What waited before could not be written; then the sample is not added, and all that was is still there.
    pub(super) fn push(
        &mut self,
        directory: &mut RecordDirectory,
        (id, label, crc): (u64, u32, u32),
        bytes: &[u8],
    ) -> Result<RecordPlace> {
        if !self.buffer.is_empty() && self.buffer.len() + bytes.len() > self.most {
            self.flush(directory)?;
        }
        let row = RecordRow::new(id, self.rows.payload(), bytes.len() as u32, crc, label);
        self.buffer.extend_from_slice(bytes);
        self.rows.push(row);
        Ok(row.place(self.number))
    }

    fn flush(&mut self, directory: &mut RecordDirectory) -> Result<()> {
        directory.write(&self.file, &self.buffer, self.written)?;
        self.written += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }

    /// The bytes of a sample, which are not checked.
    pub(super) fn read(&self, row: &RecordRow) -> Result<Vec<u8>> {
        let length = row.length as usize;
        if let Some(start) = row.offset.checked_sub(self.written) {
            return Ok(self.buffer[start as usize..][..length].to_vec());
        }
        let mut bytes = vec![0; length];
        let read = self.file.file.read_exact_at(&mut bytes, row.offset);
        read.map_err(|error| Error::io("read", &self.file.path, error))?;
        Ok(bytes)
    }

    /// Writes all that is missing, and gives the segment its name. Returns its stamp.
    ///
    /// # Errors
    /// Those of the drive. All samples are still there, and it may be tried again.
    pub(super) fn publish(&mut self, directory: &mut RecordDirectory, safe: bool) -> Result<Stamp> {
        self.flush(directory)?;
        directory.write(&self.file, &encode_footer(self.number, &self.rows), self.written)?;
        let found = self.file.file.metadata();
        let stamp = Stamp::of(&found.map_err(|error| Error::io("look at", &self.file.path, error))?);
        directory.publish(&mut self.file, safe)?;
        Ok(stamp)
    }

    /// Gives it up, whose pages are counted.
    pub(super) fn discard(self, directory: &mut RecordDirectory) {
        let pages = self.pages();
        directory.discard(self.file);
        directory.release(pages);
    }
}
