//! Nothing: this package is its features, which Cargo.toml explains.
