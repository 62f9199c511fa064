//! The command line program; see `foreload --help`.
fn main() {}
