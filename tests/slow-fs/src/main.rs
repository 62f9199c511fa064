//! `slow-fs DIR MOUNTPOINT RATES [one-by-one]`: shows DIR at MOUNTPOINT with the rates RATES
//! (`open=2ms,read=1ms,bandwidth=200MB`, the format of `foreload bench --emulate-pfs`). With `one-by-one`, io_uring's
//! reads are answered one after another.
//!
//! It prints `ready` after the mount, unmounts when its standard input ends, and prints the counters as JSON. The
//! program that starts it holds the other end of the pipe, so that the mount ends with that program, even if it is
//! killed.

use slow_fs::{SlowFs, UringReads, to_json};
use std::error::Error;
use std::path::Path;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<_> = std::env::args_os().skip(1).collect();
    let (source, mountpoint, rates, reads) = match &arguments[..] {
        [source, mountpoint, rates] => (source, mountpoint, rates, UringReads::AtOnce),
        [source, mountpoint, rates, last] if last == "one-by-one" => {
            (source, mountpoint, rates, UringReads::OneByOne)
        }
        _ => {
            return Err("usage: slow-fs DIR MOUNTPOINT open=2ms,read=1ms,bandwidth=200MB [one-by-one]".into());
        }
    };
    let rates = foreload::testing::config::parse_pfs("rates", &rates.to_string_lossy())?;
    let mounted = SlowFs::mount(Path::new(source), Path::new(mountpoint), rates, reads)?;
    println!("ready");
    std::io::copy(&mut std::io::stdin(), &mut std::io::sink())?;
    let stats = mounted.stats();
    drop(mounted);
    print!("{}", to_json(&stats));
    Ok(())
}
