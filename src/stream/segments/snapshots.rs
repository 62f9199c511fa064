//! Snapshots: complete files with a checksum, stored with the segments.
//!
//! ```text
//! bytes              the bytes of the snapshot
//! trailer, 40 bytes  the trailer of an empty segment, with the CRC-32C of the bytes in place of the number of rows
//! ```

use super::SegmentStore;
use super::directory::SNAPSHOT;
use super::format::VERSION;
use base::crc::checksum;
use base::error::{Error, Result};
use std::fs::{self, File};
use std::path::Path;
use store::segments::footer::{SegmentFormat, SegmentTrailer};
use store::segments::pages;

const FORMAT: SegmentFormat<0, 0> = SegmentFormat { magic: *b"FLSNAPSH", version: VERSION };
const TRAILER: usize = SegmentFormat::<0, 0>::TRAILER;

fn trailer(number: u64, bytes: &[u8]) -> SegmentTrailer<0> {
    SegmentTrailer { rows: checksum(bytes), more: [], number, payload: bytes.len() as u64, crc: 0 }
}

impl SegmentStore {
    /// Writes snapshot `number`, and replaces a former snapshot with this number. Afterwards the snapshot and all
    /// published segments are on the drive. So sources may release the samples that the snapshot covers.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if the quota has too little free space, [`Error::Io`] if the drive fails. Then all former
    /// files are kept.
    pub fn write_snapshot(&mut self, number: u64, bytes: &[u8]) -> Result<()> {
        self.sync_segments()?;
        let wanted = pages((bytes.len() + TRAILER) as u64);
        let spare = self.spare();
        self.directory.reserve(wanted, spare)?;
        if let Err(error) = self.write_whole(number, bytes) {
            self.directory.release(wanted);
            return Err(error);
        }
        if let Some(before) = self.snapshots.insert(number, wanted) {
            self.directory.release(before);
        }
        self.directory.sync()
    }

    fn write_whole(&mut self, number: u64, bytes: &[u8]) -> Result<()> {
        let mut file = self.directory.create(number, SNAPSHOT)?;
        let trailer = FORMAT.encode_trailer(&trailer(number, bytes));
        let written = self
            .directory
            .write(&file, bytes, 0)
            .and_then(|()| self.directory.write(&file, &trailer, bytes.len() as u64))
            .and_then(|()| self.directory.publish(&mut file, true));
        if written.is_err() {
            self.directory.discard(file);
        }
        written
    }

    /// The bytes of snapshot `number`.
    ///
    /// # Errors
    /// [`Error::Io`] if it is missing or cannot be read, [`Error::Unavailable`] if it is damaged. Both errors name the
    /// file.
    pub fn read_snapshot(&self, number: u64) -> Result<Vec<u8>> {
        read(&self.directory.path_of(number, SNAPSHOT), number)
    }

    /// Removes snapshot `number`, if it exists.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn remove_snapshot(&mut self, number: u64) -> Result<()> {
        self.directory.remove(number, SNAPSHOT)?;
        if let Some(pages) = self.snapshots.remove(&number) {
            self.directory.release(pages);
        }
        Ok(())
    }

    /// The numbers of the snapshots, in ascending order.
    pub fn snapshots(&self) -> Vec<u64> {
        self.snapshots.keys().copied().collect()
    }

    /// Syncs to the drive all segments that were published since the last call.
    fn sync_segments(&mut self) -> Result<()> {
        if self.unsynced.is_empty() {
            return Ok(());
        }
        for &number in &self.unsynced {
            let path = self.segment_path(number);
            let synced = File::open(&path).and_then(|file| file.sync_all());
            synced.map_err(|error| Error::io("sync", path, error))?;
        }
        self.directory.sync()?;
        self.unsynced.clear();
        Ok(())
    }
}

pub(super) fn read(path: &Path, number: u64) -> Result<Vec<u8>> {
    let mut bytes = fs::read(path).map_err(|error| Error::io("read", path, error))?;
    let damaged = |what: &str| {
        let message = format!("{} {what}: resume from another checkpoint", path.display());
        Err(Error::Unavailable(message))
    };
    let Some(payload) = bytes.len().checked_sub(TRAILER) else { return damaged("is cut short") };
    match FORMAT.decode_trailer(&bytes[payload..], number) {
        Ok(found) if found == trailer(number, &bytes[..payload]) => {}
        Ok(_) => return damaged("is damaged"),
        Err(what) => return damaged(&format!("is not a valid snapshot ({what})")),
    }
    bytes.truncate(payload);
    Ok(bytes)
}
