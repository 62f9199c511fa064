//! Tells the program which revision it was built from, for `foreload --version`.

use std::path::Path;
use std::process::Command;

fn main() {
    let version = env!("CARGO_PKG_VERSION");
    let long = match revision() {
        Some(revision) => format!("{version} ({revision})"),
        // This is a source archive or an installed crate.
        None => version.to_owned(),
    };
    println!("cargo::rustc-env=FORELOAD_VERSION={long}");
    println!("cargo::rerun-if-changed=build.rs");
}

/// The short revision of the checkout whose top is this directory. Asks to be run again when the revision changes.
fn revision() -> Option<String> {
    // Only the checkout's own `.git` counts (a file in a linked work tree), not that of a project which contains this
    // one.
    if !Path::new(".git").exists() {
        println!("cargo::rerun-if-changed=.git");
        return None;
    }
    // `logs/HEAD` grows with every commit, checkout and rebase. Without a log, the other two files hold the revision.
    for file in ["logs/HEAD", "HEAD", "packed-refs"] {
        let path = git(&["rev-parse", "--git-path", file])?;
        if Path::new(&path).exists() {
            println!("cargo::rerun-if-changed={path}");
        }
    }
    git(&["rev-parse", "--short=9", "HEAD"])
}

fn git(args: &[&str]) -> Option<String> {
    let answer = Command::new("git").args(args).output().ok()?;
    let text = String::from_utf8(answer.stdout).ok()?;
    (answer.status.success() && !text.trim().is_empty()).then(|| text.trim().to_owned())
}
