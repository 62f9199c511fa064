//! The result of a call: success, or an error that names the call and says what its status means.

use std::fmt;

use crate::sys::nvjpegStatus_t;

/// A result whose error is [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A call that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Error {
    /// The name of the function.
    pub call: &'static str,
    /// The status that it returned; `None` if the library does not have the function.
    pub status: Option<nvjpegStatus_t>,
}

impl Error {
    /// The status in words.
    pub fn meaning(&self) -> &'static str {
        match self.status {
            None => "this nvJPEG is too old to have it",
            Some(nvjpegStatus_t::NVJPEG_STATUS_NOT_INITIALIZED) => "not initialised",
            Some(nvjpegStatus_t::NVJPEG_STATUS_INVALID_PARAMETER) => "invalid parameter",
            Some(nvjpegStatus_t::NVJPEG_STATUS_BAD_JPEG) => "the JPEG is damaged",
            Some(nvjpegStatus_t::NVJPEG_STATUS_JPEG_NOT_SUPPORTED) => "this kind of JPEG is not supported",
            Some(nvjpegStatus_t::NVJPEG_STATUS_ALLOCATOR_FAILURE) => "no memory",
            Some(nvjpegStatus_t::NVJPEG_STATUS_EXECUTION_FAILED) => "the GPU failed to execute it",
            Some(nvjpegStatus_t::NVJPEG_STATUS_ARCH_MISMATCH) => "this GPU cannot do it",
            Some(nvjpegStatus_t::NVJPEG_STATUS_INTERNAL_ERROR) => "an internal error",
            Some(nvjpegStatus_t::NVJPEG_STATUS_IMPLEMENTATION_NOT_SUPPORTED) => "not implemented",
            Some(nvjpegStatus_t::NVJPEG_STATUS_INCOMPLETE_BITSTREAM) => "the JPEG is incomplete",
            Some(_) => "an unknown status",
        }
    }

    /// Whether the cause is the file, and not the library or the GPU.
    pub fn is_of_the_file(&self) -> bool {
        matches!(
            self.status,
            Some(
                nvjpegStatus_t::NVJPEG_STATUS_BAD_JPEG
                    | nvjpegStatus_t::NVJPEG_STATUS_JPEG_NOT_SUPPORTED
                    | nvjpegStatus_t::NVJPEG_STATUS_INCOMPLETE_BITSTREAM
            )
        )
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.call, self.meaning())?;
        self.status.map_or(Ok(()), |status| write!(f, " (status {})", status.0))
    }
}

impl std::error::Error for Error {}

/// Calls a function of the library: `call!(library, nvjpegDestroy(handle))`. If the library lacks the function, the
/// result is an error. The call is as unsafe as the function.
#[macro_export]
macro_rules! call {
    ($library:expr, $function:ident ( $($argument:expr),* $(,)? )) => {
        match &$library.sys().$function {
            Ok(function) => $crate::result::checked(stringify!($function), function($($argument),*)),
            Err(_) => Err($crate::result::Error { call: stringify!($function), status: None }),
        }
    };
}

/// Turns the `status` that `call` returned into a [`Result`]; for [`call!`](crate::call).
///
/// # Errors
/// Any status but success.
pub fn checked(call: &'static str, status: nvjpegStatus_t) -> Result<()> {
    if status == nvjpegStatus_t::NVJPEG_STATUS_SUCCESS {
        Ok(())
    } else {
        Err(Error { call, status: Some(status) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_name_the_call_and_its_answer() {
        let error = checked("nvjpegDecodeBatchedEx", nvjpegStatus_t::NVJPEG_STATUS_BAD_JPEG).unwrap_err();
        assert_eq!(error.to_string(), "nvjpegDecodeBatchedEx: the JPEG is damaged (status 3)");
        assert!(error.is_of_the_file());
        let missing = Error { call: "nvjpegCreateExV2", status: None };
        assert_eq!(missing.to_string(), "nvjpegCreateExV2: this nvJPEG is too old to have it");
        let newer = checked("nvjpegDestroy", nvjpegStatus_t(77)).unwrap_err();
        assert_eq!(newer.to_string(), "nvjpegDestroy: an unknown status (status 77)");
        assert!(checked("nvjpegDestroy", nvjpegStatus_t::NVJPEG_STATUS_SUCCESS).is_ok());
    }
}
