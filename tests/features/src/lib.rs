//! Empty: this package only has features, which Cargo.toml explains.
