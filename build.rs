//! Tells the program which revision it was built from, for `foreload --version`, and Python's classes what the stub says of
//! them.

use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    let version = env!("CARGO_PKG_VERSION");
    let long = match revision() {
        Some(revision) => format!("{version} ({revision})"),
        // A source archive or an installed crate.
        None => version.to_owned(),
    };
    println!("cargo::rustc-env=FORELOAD_VERSION={long}");
    println!("cargo::rerun-if-changed=build.rs");
    write_docs();
}

/// Where the documentation of Python's classes stands, once, for editors and for `help()`.
const STUB: &str = "python/foreload/_core.pyi";

/// Writes what the stub says of each loader to a file that its class includes.
fn write_docs() {
    println!("cargo::rerun-if-changed={STUB}");
    let stub = std::fs::read_to_string(STUB).unwrap_or_else(|error| panic!("{STUB}: {error}"));
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let images = docstring(&stub, "ImageLoader");
    let docs =
        [("ImageLoader", images.clone()), ("FileLoader", expanded(&docstring(&stub, "FileLoader"), &images))];
    for (class, doc) in docs {
        std::fs::write(out.join(class), doc)
            .unwrap_or_else(|error| panic!("documentation of {class}: {error}"));
    }
}

/// The docstring of a class, without its indentation.
fn docstring(stub: &str, class: &str) -> String {
    let found = stub.split_once(&format!("\nclass {class}("));
    let doc = found.and_then(|(_, rest)| rest.split("\"\"\"").nth(1));
    let doc = doc.unwrap_or_else(|| panic!("{STUB}: class {class} has no docstring"));
    doc.lines().map(|line| line.strip_prefix("    ").unwrap_or(line)).collect::<Vec<_>>().join("\n")
}

/// `doc`, where a paragraph "a, b, c: As `ImageLoader`'s." becomes what `images` says of a, b and c.
fn expanded(doc: &str, images: &str) -> String {
    let theirs = paragraphs(images);
    let of = |name: &str| {
        let found = theirs.iter().find(|paragraph| paragraph.trim_start().starts_with(&format!("{name}: ")));
        found.unwrap_or_else(|| panic!("{STUB}: ImageLoader says nothing of {name}")).as_str()
    };
    let expand = |paragraph: String| match paragraph.split_once(':') {
        Some((names, text)) if text.split_whitespace().eq(["As", "`ImageLoader`'s."]) => {
            names.split(',').map(|name| of(name.trim())).collect::<Vec<_>>().join("\n")
        }
        _ => paragraph,
    };
    paragraphs(doc).into_iter().map(expand).collect::<Vec<_>>().join("\n")
}

/// A docstring in paragraphs: a line, and those behind it that are further indented.
fn paragraphs(doc: &str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for line in doc.lines() {
        match found.last_mut() {
            Some(last) if line.starts_with("        ") => *last += &format!("\n{line}"),
            _ => found.push(line.to_owned()),
        }
    }
    found
}

/// The short revision of the checkout whose top is this directory; asks to be run again when it moves.
fn revision() -> Option<String> {
    // A checkout's own `.git` (a file in a linked work tree): not that of a project which holds this one.
    if !Path::new(".git").exists() {
        println!("cargo::rerun-if-changed=.git");
        return None;
    }
    // `logs/HEAD` grows with every commit, checkout and rebase; without a log, the two that hold the revision.
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
