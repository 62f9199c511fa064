//! Delivers notices as Python's warnings, and lines of its log.

use base::notices::{Notice, NoticeKind, Notices};
use pyo3::prelude::*;

/// Delivers the notices that were not delivered yet.
///
/// # Errors
/// The warning itself, if the user's filter makes warnings errors; the notices behind it are delivered the next time.
/// So this is called where nothing that was taken could be lost: never between taking a batch and returning it.
pub(super) fn deliver(py: Python<'_>, notices: &Notices) -> PyResult<()> {
    while let Some(Notice { kind, message }) = notices.next() {
        let say = match kind {
            NoticeKind::Warning => "warn",
            NoticeKind::Information => "inform",
        };
        py.import("foreload._notices")?.call_method1(say, (message,))?;
    }
    Ok(())
}
