//! Delivers Foreload's warnings and log lines (notices) to Python, as warnings and log records.

use base::notices::{Notice, NoticeKind, Notices};
use pyo3::prelude::*;

/// Delivers all pending notices.
///
/// # Errors
/// The warning itself, if the user's filter turns warnings into errors; later notices are delivered by the next call.
/// Call this only if an error loses nothing: never between taking a batch and returning it.
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
