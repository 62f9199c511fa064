//! The served files: the validators that distinguish their versions, and the conditions of requests on these.

use crate::request::Request;
use crate::{EtagKind, Options};
use rustix::fs::OFlags;
use std::ffi::OsStr;
use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// The file or directory at a path.
pub(crate) enum Found {
    File(File, Metadata),
    Directory(PathBuf),
}

/// Opens the entry below `root` at a decoded path. An entry that is neither a file nor a directory counts as missing.
pub(crate) fn find(root: &Path, decoded: &[u8]) -> io::Result<Found> {
    let inside = decoded.iter().position(|byte| *byte != b'/').map_or(&[][..], |at| &decoded[at..]);
    let path = root.join(OsStr::from_bytes(inside));
    // Without this flag, opening a pipe would wait.
    let file = OpenOptions::new().read(true).custom_flags(OFlags::NONBLOCK.bits() as i32).open(&path)?;
    let metadata = file.metadata()?;
    if metadata.is_dir() {
        Ok(Found::Directory(path))
    } else if metadata.is_file() {
        Ok(Found::File(file, metadata))
    } else {
        Err(io::ErrorKind::NotFound.into())
    }
}

/// The validators of an object's version.
pub(crate) struct Version {
    pub size: u64,
    pub tag: Option<String>,
    pub modified: Option<SystemTime>,
}

impl Version {
    /// The version of a file; `changed` makes it a different one.
    pub fn of(metadata: &Metadata, options: &Options, changed: bool) -> Self {
        let suffix = if changed { "-changed" } else { "" };
        let tag = format!(
            "\"{:x}-{:x}.{:x}-{:x}{suffix}\"",
            metadata.size(),
            metadata.mtime(),
            metadata.mtime_nsec(),
            metadata.ino()
        );
        let tag = match options.etag {
            EtagKind::Strong => Some(tag),
            EtagKind::Weak => Some(format!("W/{tag}")),
            EtagKind::Off => None,
        };
        let seconds = metadata.mtime().max(0) as u64 + u64::from(changed);
        let modified = options.last_modified.then(|| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds));
        Self { size: metadata.size(), tag, modified }
    }

    /// The status that the request's conditions demand, if it differs from that of a request without conditions (RFC
    /// 9110, 13.2.2).
    pub fn judge(&self, request: &Request) -> Option<u16> {
        if let Some(wanted) = request.field("if-match") {
            if !self.among(wanted, true) {
                return Some(412);
            }
        } else if let (Some(wanted), Some(modified)) = (date(request, "if-unmodified-since"), self.modified)
            && modified > wanted
        {
            return Some(412);
        }
        if let Some(known) = request.field("if-none-match") {
            if self.among(known, false) {
                return Some(304);
            }
        } else if let (Some(known), Some(modified)) = (date(request, "if-modified-since"), self.modified)
            && modified <= known
        {
            return Some(304);
        }
        None
    }

    /// Whether `If-Range`, if present, permits the range.
    pub fn allows_range(&self, request: &Request) -> bool {
        match request.field("if-range") {
            None => true,
            Some(wanted) if wanted.contains('"') => self.among(wanted, true),
            Some(_) => self.modified.is_some() && date(request, "if-range") == self.modified,
        }
    }

    /// Whether a list of tags contains this version. In a strong comparison, a weak tag never matches.
    fn among(&self, list: &str, strong: bool) -> bool {
        if list.trim() == "*" {
            return true;
        }
        let Some(own) = &self.tag else { return false };
        if strong && own.starts_with("W/") {
            return false;
        }
        let bare = |tag: &str| tag.strip_prefix("W/").map(str::to_owned);
        let own = bare(own).unwrap_or_else(|| own.clone());
        list.split(',').map(str::trim).any(|tag| match bare(tag) {
            Some(tag) => !strong && tag == own,
            None => tag == own,
        })
    }
}

fn date(request: &Request, name: &str) -> Option<SystemTime> {
    httpdate::parse_http_date(request.field(name)?).ok()
}
