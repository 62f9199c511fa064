//! The version of the program, with the revision that it was built from: `0.1.0 (1a2b3c4d5)`.
//!
//! The crate that links the program sets it, so that a new revision compiles none of the other crates anew.

use std::sync::OnceLock;

static VERSION: OnceLock<&str> = OnceLock::new();

/// Says what the version is. The first call counts.
pub fn set(version: &'static str) {
    VERSION.get_or_init(|| version);
}

/// The version; without the revision where nobody has set it.
pub fn get() -> &'static str {
    VERSION.get().copied().unwrap_or(env!("CARGO_PKG_VERSION"))
}
