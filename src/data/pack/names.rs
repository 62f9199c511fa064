//! Checks names for unpacking: they must stay below the directory that they are unpacked into.

use crate::dataset::Layout;
use base::error::{Error, Result};
use std::path::PathBuf;

/// Returns why a path is not safely below a directory; `None` if it is safe. In tar shards, `./` may stand for the
/// directory itself.
pub(super) fn fault(name: &[u8], in_tar: bool) -> Option<&'static str> {
    if name.is_empty() {
        return Some("is empty");
    }
    if name.starts_with(b"/") {
        return Some("is absolute");
    }
    if name.contains(&0) {
        return Some("contains a NUL byte");
    }
    name.split(|&byte| byte == b'/').find_map(|part| match part {
        b".." => Some("contains the component .."),
        b"" | b"." if !in_tar => Some("contains an empty component or ."),
        _ => None,
    })
}

/// Checks that the name of a sample's file can be unpacked. Records have no names.
///
/// # Errors
/// [`Error::Dataset`] for the file at `path`. The message contains the name.
pub(super) fn check(name: &[u8], layout: Layout, path: impl FnOnce() -> PathBuf) -> Result<()> {
    let fault = match layout {
        Layout::TfRecord => (!name.is_empty()).then_some("must be empty, because records have no names"),
        // Names of columns are not paths.
        layout if !layout.is_of_files() => None,
        layout => fault(name, layout == Layout::Tar),
    };
    fault.map_or(Ok(()), |fault| {
        let message = format!("has the name {:?}, which {fault}", String::from_utf8_lossy(name));
        Err(Error::dataset(path(), message))
    })
}

#[cfg(test)]
mod tests {
    use super::fault;

    #[test]
    fn names_lead_downwards() {
        for sound in [&b"a"[..], b"a/b.jpg", b"a b/\xff.JPEG", b"...", b"a..b/c"] {
            assert_eq!(fault(sound, false), None, "{sound:?}");
        }
        for bad in [&b""[..], b"/a", b"..", b"a/../b", b"a//b", b"./a", b"a/", b"a\0b"] {
            assert!(fault(bad, false).is_some(), "{bad:?}");
        }
        assert!(fault(b"./a/b", true).is_none() && fault(b"./../a", true).is_some());
    }
}
