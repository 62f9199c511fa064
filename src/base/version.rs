//! The version of the program, with the revision that it was built from: `0.1.0 (1a2b3c4d5)`.
//!
//! The crate that links the program sets the version, so a new revision does not recompile the other crates.

use std::sync::OnceLock;

static VERSION: OnceLock<&str> = OnceLock::new();

/// Sets the version. Only the first call has an effect.
pub fn set(version: &'static str) {
    VERSION.get_or_init(|| version);
}

/// The version, without the revision if it was not set.
pub fn get() -> &'static str {
    VERSION.get().copied().unwrap_or(env!("CARGO_PKG_VERSION"))
}
