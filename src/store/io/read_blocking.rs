//! Reads one sample with plain blocking calls.

use super::blocks::read_in_block;
use super::files::{Files, MAX_RESTARTS, OpenMode, OpenShard, ReadAttempt, ReadFailure, open_file};
use super::gather::RecordStamps;
use super::ranged;
use base::error::{Error, Result};
use data::dataset::Extent;
use data::dataset::arrays::record::SampleRecord;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::atomic::AtomicU64;

/// Reads the bytes of `extent` with plain blocking calls. Used only for a sample that replaces a failed sample, which
/// is rare.
///
/// # Errors
/// [`Error::Io`] if the system or the server refuses the read, [`Error::DatasetChanged`] if the file has changed.
pub fn read_blocking(files: &dyn Files, extent: Extent) -> Result<Vec<u8>> {
    match files.record(extent) {
        Some(record) => read_record(files, &record),
        None => read_in_one_place(files, extent),
    }
}

/// Reads at least the first `length` bytes of `extent`, or all if it has fewer, with plain blocking calls. A file on a
/// server that is a sample of its own is read whole.
///
/// # Errors
/// The errors of [`read_blocking`].
pub fn read_beginning(files: &dyn Files, extent: Extent, length: u32) -> Result<Vec<u8>> {
    let is_whole_file =
        files.stamp(extent.file).is_none() && files.record(extent).is_none() && files.block(extent).is_none();
    if length >= extent.length || is_whole_file && files.remote(extent.file).is_some() {
        return read_blocking(files, extent);
    }
    if !is_whole_file {
        return read_blocking(files, Extent { length, ..extent });
    }
    let path = files.path(extent.file);
    let read = || -> Result<Vec<u8>, ReadFailure> {
        let fd = open_file(&path, OpenMode { direct: false, noatime: false })?;
        let found = rustix::fs::fstat(&fd).map_err(ReadFailure::Read)?.st_size;
        if found != i64::from(extent.length) {
            return Err(changed(&path, format!("is {found} bytes, was {} when indexed", extent.length)));
        }
        read_up_to(&fd, extent.offset, length as usize)
    };
    read().map_err(|failure| failure.into_error(&path, extent))
}

/// Reads all pieces of a record, again if they may be of two versions.
fn read_record(files: &dyn Files, record: &SampleRecord) -> Result<Vec<u8>> {
    let extents = record.pieces.iter().map(|piece| piece.extent);
    let mut restarts = 0;
    loop {
        let stamps = RecordStamps::of(files, extents.clone());
        let mut bytes = Vec::with_capacity(record.length as usize);
        for extent in extents.clone() {
            bytes.extend(read_in_one_place(files, extent)?);
        }
        match stamps.check(files) {
            Ok(()) => return Ok(bytes),
            Err(error) if restarts == MAX_RESTARTS => return Err(error),
            Err(_) => restarts += 1,
        }
    }
}

fn read_in_one_place(files: &dyn Files, extent: Extent) -> Result<Vec<u8>> {
    match files.block(extent) {
        Some(block) => read_in_block(files, &block, extent),
        None => read_in_file(files, extent, &AtomicU64::new(0)),
    }
}

pub(super) fn read_in_file(files: &dyn Files, extent: Extent, again: &AtomicU64) -> Result<Vec<u8>> {
    if let Some(file) = files.remote(extent.file) {
        return ranged::read_blocking(files, &file, extent, again);
    }
    let path = files.path(extent.file);
    let mut result = read_once(files, extent, &path, 0);
    for former in 1..=MAX_RESTARTS {
        match result {
            Err(ReadFailure::VersionChanged(difference)) => files.accept(extent.file, difference)?,
            Err(ReadFailure::WrittenDuringRead) => {}
            _ => break,
        }
        result = read_once(files, extent, &path, former);
    }
    result.map_err(|failure| failure.into_error(&path, extent))
}

fn read_once(files: &dyn Files, extent: Extent, path: &Path, former: u8) -> Result<Vec<u8>, ReadFailure> {
    let stamp = files.stamp(extent.file);
    let mode = OpenMode { direct: false, noatime: false };
    let Some(stamp) = stamp else {
        // Read one byte more than expected, to detect that the file has grown.
        let fd = open_file(path, mode)?;
        let attempt = ReadAttempt::of_open(&fd, former);
        let bytes = read_up_to(&fd, extent.offset, extent.length as usize + 1)?;
        attempt.check_open(&fd)?;
        return match bytes.len() {
            length if length == extent.length as usize => Ok(bytes),
            length if length > extent.length as usize => {
                Err(changed(path, format!("is longer than the {} bytes it was when indexed", extent.length)))
            }
            length => Err(changed(path, format!("is {length} bytes, was {} when indexed", extent.length))),
        };
    };
    let shard = OpenShard::open(path, stamp, mode)?;
    let bytes = read_up_to(&shard.fd, extent.offset, extent.length as usize)?;
    if !files.never_change() {
        shard.check_again()?;
    }
    if bytes.len() < extent.length as usize {
        return Err(changed(path, format!("ends before the sample at {}+{}", extent.offset, extent.length)));
    }
    Ok(bytes)
}

fn read_up_to(fd: &OwnedFd, offset: u64, length: usize) -> Result<Vec<u8>, ReadFailure> {
    let mut bytes = vec![0; length];
    let mut done = 0;
    while done < length {
        let rest = &mut bytes[done..];
        match rustix::io::retry_on_intr(|| rustix::io::pread(fd, &mut *rest, offset + done as u64)) {
            Ok(0) => break,
            Ok(arrived) => done += arrived,
            Err(error) => return Err(ReadFailure::Read(error)),
        }
    }
    bytes.truncate(done);
    Ok(bytes)
}

fn changed(path: &Path, message: String) -> ReadFailure {
    ReadFailure::Other(Error::DatasetChanged { path: path.to_owned(), message })
}
