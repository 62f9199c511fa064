//! Empty: Cargo.toml explains why this package has build dependencies.

fn main() {}
