//! Reading one sample with plain blocking calls.

use super::files::{Failure, Files, OpenMode, OpenShard, open_file};
use crate::dataset::Extent;
use crate::error::{Error, Result};
use std::os::fd::AsFd;

/// Reads the bytes of `extent` with plain blocking calls: for the rare substitute of a failed sample.
///
/// # Errors
/// As any reader: [`Error::Io`], [`Error::DatasetChanged`].
pub fn read_blocking(files: &dyn Files, extent: Extent) -> Result<Vec<u8>> {
    let path = files.path(extent.file);
    let stamp = files.stamp(extent.file);
    let mode = OpenMode { direct: false, noatime: false };
    let opened = match stamp {
        Some(stamp) => OpenShard::open(&path, stamp, mode).map(|shard| shard.fd),
        None => open_file(&path, mode),
    };
    let fd = opened.map_err(|failure| failure.into_error(&path, extent))?;
    // One byte more shows that a loose file has grown.
    let mut bytes = vec![0; extent.length as usize + usize::from(stamp.is_none())];
    let mut done = 0;
    while done < bytes.len() {
        let rest = &mut bytes[done..];
        let arrived = rustix::io::retry_on_intr(|| {
            rustix::io::pread(fd.as_fd(), &mut *rest, extent.offset + done as u64)
        });
        match arrived.map_err(|error| Failure::Read(error).into_error(&path, extent))? {
            0 => break,
            arrived => done += arrived,
        }
    }
    if done != extent.length as usize {
        let message = match stamp {
            None if done > extent.length as usize => {
                format!("is longer than the {} bytes it was when indexed", extent.length)
            }
            None => format!("is {done} bytes, was {} when indexed", extent.length),
            Some(_) => format!("ends before the sample at {}+{}", extent.offset, extent.length),
        };
        return Err(Error::DatasetChanged { path, message });
    }
    bytes.truncate(done);
    Ok(bytes)
}
