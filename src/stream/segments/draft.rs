//! A segment that is being written.

use super::RecordPlace;
use super::directory::{RecordDirectory, SEGMENT, UnnamedFile};
use super::format::{encode_footer, file_bytes};
use super::rows::{RecordRow, RecordRows};
use base::error::{Error, Result};
use data::dataset::Stamp;
use std::os::unix::fs::FileExt;
use store::segments::pages;

const WRITE_BUFFER: usize = 1 << 20;

/// A segment without a name: some of its samples are in the file, the later samples are buffered.
pub(super) struct SegmentDraft {
    pub number: u64,
    pub rows: RecordRows,
    file: UnnamedFile,
    /// The number of bytes in the file. The following bytes are in `buffer`.
    written: u64,
    buffer: Vec<u8>,
    most: usize,
}

impl SegmentDraft {
    /// An empty segment of about `bytes` bytes. The caller reserves the pages of samples that it adds.
    pub(super) fn new(directory: &RecordDirectory, number: u64, bytes: u64) -> Result<Self> {
        let file = directory.create(number, SEGMENT)?;
        let most = WRITE_BUFFER.min(bytes as usize / 8);
        Ok(Self { number, rows: RecordRows::default(), file, written: 0, buffer: Vec::new(), most })
    }

    /// The pages of the segment with one more sample of `length` bytes.
    pub(super) fn pages_with(&self, length: usize) -> u64 {
        pages(file_bytes(self.rows.payload() + length as u64, self.rows.len() + 1))
    }

    /// The pages of the segment; 0 if it is empty, because then nothing is written.
    pub(super) fn pages(&self) -> u64 {
        if self.rows.len() == 0 { 0 } else { pages(file_bytes(self.rows.payload(), self.rows.len())) }
    }

    /// Adds a sample.
    ///
    /// # Errors
    /// An I/O error when the buffer is written. Then the sample is not added, and all earlier samples are kept.
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

    /// Reads a sample. The caller compares the bytes with the checksum.
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

    /// Writes the buffered samples and the table, and gives the segment its name. Returns the stamp of the file.
    ///
    /// # Errors
    /// I/O errors of the drive. All samples are kept, and the call may be repeated.
    pub(super) fn publish(&mut self, directory: &mut RecordDirectory, safe: bool) -> Result<Stamp> {
        self.flush(directory)?;
        directory.write(&self.file, &encode_footer(self.number, &self.rows), self.written)?;
        let found = self.file.file.metadata();
        let stamp = Stamp::of(&found.map_err(|error| Error::io("look at", &self.file.path, error))?);
        directory.publish(&mut self.file, safe)?;
        Ok(stamp)
    }

    pub(super) fn discard(self, directory: &mut RecordDirectory) {
        let pages = self.pages();
        directory.discard(self.file);
        directory.release(pages);
    }
}
