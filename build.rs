//! Passes the version and the git revision of this build to `foreload --version`.

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

/// Returns the short revision of the checkout in this directory. Makes cargo run this script again when the revision
/// changes.
fn revision() -> Option<String> {
    // Do not use the `.git` of an enclosing project. In a linked work tree, `.git` is a file.
    if !Path::new(".git").exists() {
        println!("cargo::rerun-if-changed=.git");
        return None;
    }
    // `logs/HEAD` grows with every commit, checkout and rebase. In a repository without logs, the revision is in `HEAD`
    // or `packed-refs`.
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
