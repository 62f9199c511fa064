//! The command-line program; see `foreload --help`.

fn main() {
    std::process::exit(foreload::cli::main(std::env::args_os().collect(), None));
}
