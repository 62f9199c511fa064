//! Turns a panic in a third-party decoder into an error of the file that it decoded.

use std::panic::{AssertUnwindSafe, catch_unwind};

use base::error::DecodeError;

/// Runs a third-party decoder. If it panics, the file counts as damaged, and nothing else is affected.
///
/// `run` must not modify outside state that a panic could leave half updated.
pub(super) fn guarded<T>(run: impl FnOnce() -> Result<T, DecodeError>) -> Result<T, DecodeError> {
    catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|panic| {
        let message = panic.downcast_ref::<&str>().copied();
        let message = message.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
        let message = message.unwrap_or("unknown panic");
        Err(DecodeError::Corrupt(format!("the decoder panicked: {message}")))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_of_a_foreign_decoder_is_an_error_of_its_file() {
        let message = |run: fn() -> Result<(), DecodeError>| guarded(run).unwrap_err().to_string();
        assert!(message(|| panic!("index {} of {}", 3, 2)).ends_with("panicked: index 3 of 2"));
        assert!(message(|| panic!("no plan")).ends_with("panicked: no plan"));
        assert_eq!(guarded(|| Ok(7)).unwrap(), 7);
    }
}
