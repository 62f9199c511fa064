//! The house rules for prose, in code and in documents.

use super::{GENERATED, files, place, report, root};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;
use std::process::Command;

/// The most columns of a line.
const WIDEST: usize = 120;

/// The extensions of files whose lines are measured: those that people read and write.
const READ: &[&str] = &[".md", ".rs", ".py", ".pyi", ".toml", ".cu", ".cuh", ".c", ".sh", "Makefile"];

/// The numbers of the lines that end a doc comment in the middle of a sentence: with a comma, or with a colon that
/// nothing follows.
fn unfinished_docs(text: &str) -> Vec<usize> {
    let is_doc = |line: &str| line.starts_with("///") || line.starts_with("//!");
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let ends =
        (0..lines.len()).filter(|&i| is_doc(lines[i]) && !lines.get(i + 1).is_some_and(|next| is_doc(next)));
    ends.filter(|&i| lines[i].ends_with([':', ',', ';'])).map(|i| i + 1).collect()
}

#[test]
fn no_doc_comment_breaks_off() {
    let mut broken = Vec::new();
    for (path, text) in files(&["src", "cuda", "tests", "benches", "build.rs"], &[".rs"]) {
        for line in unfinished_docs(&text) {
            broken.push(format!("{}:{line}: the comment ends in the middle of a sentence", path.display()));
        }
    }
    report(broken);
}

#[test]
fn unfinished_docs_are_seen() {
    assert_eq!(unfinished_docs("//! From:\n\n/// The name:\n/// `a`.\n    /// Cut,\nfn f() {}"), [1, 5]);
}

/// The numbers of the lines at which a doc comment begins an example that rustdoc would compile.
fn examples(text: &str) -> Vec<usize> {
    let docs = text.lines().enumerate().map(|(number, line)| (number + 1, line.trim()));
    let fences = docs.filter(|(_, line)| line.starts_with("//! ```") || line.starts_with("/// ```"));
    let opening = fences.step_by(2);
    opening.filter(|(_, line)| !line.ends_with("```text")).map(|(number, _)| number).collect()
}

/// Only the examples of the crate `foreload` are compiled and run: rustdoc takes minutes for all crates.
#[test]
fn examples_are_where_they_run() {
    let mut broken = Vec::new();
    for (path, text) in files(&["src", "cuda", "tests", "benches"], &[".rs"]) {
        if path.starts_with("src") && place(&path).0 == "foreload" {
            continue;
        }
        for line in examples(&text) {
            broken.push(format!("{}:{line}: examples stand in the crate foreload", path.display()));
        }
    }
    report(broken);
    assert_eq!(examples("//! ```\n//! a();\n//! ```\n/// ```text\n/// b\n/// ```\n    /// ```\n"), [1, 7]);
}

#[test]
fn no_line_is_wider_than_it_can_be_read() {
    let mut broken = Vec::new();
    for (path, text) in texts() {
        let name = path.to_str().unwrap();
        let generated = GENERATED.iter().any(|place| name.starts_with(place));
        if generated || !READ.iter().any(|end| name.ends_with(end)) {
            continue;
        }
        for (number, line) in text.lines().enumerate() {
            let columns = line.chars().count();
            // An address cannot be broken into two lines.
            let address = line.split_whitespace().any(|word| word.contains("://") && word.len() > WIDEST / 2);
            if columns <= WIDEST || address {
                continue;
            }
            broken.push(format!("{name}:{}: {columns} columns, at most {WIDEST}", number + 1));
        }
    }
    report(broken);
}

/// The output of `git ls-files`, one entry per file of the repository; `None` without git or outside of a checkout.
fn tracked(arguments: &[&str]) -> Option<Vec<String>> {
    let output = Command::new("git").arg("-C").arg(root()).args(["ls-files", "-z"]).args(arguments).output();
    let output = output.ok().filter(|output| output.status.success())?;
    let entries = String::from_utf8(output.stdout).expect("names in UTF-8");
    let entries: Vec<String> = entries.split_terminator('\0').map(str::to_owned).collect();
    // A source archive that was unpacked inside of another repository is not tracked there.
    entries.iter().any(|entry| entry.ends_with("Cargo.toml")).then_some(entries)
}

/// All text files of the repository: those that git tracks, or all files of the folder if there is no git.
fn texts() -> BTreeMap<PathBuf, String> {
    let Some(tracked) = tracked(&[]) else {
        let places = [
            "src",
            "cuda",
            "docs",
            "tests",
            "benches",
            "examples",
            "python",
            "build.rs",
            "Makefile",
            "pyproject.toml",
            "Cargo.toml",
            "README.md",
            "CONTRIBUTING.md",
            "ARCHITECTURE.md",
            "CHANGELOG.md",
        ];
        return files(&places, &[READ, &[".txt"]].concat());
    };
    // Some files are not text, and some may have been removed without a commit.
    let read = |name: String| Some((PathBuf::from(&name), fs::read_to_string(root().join(&name)).ok()?));
    tracked.into_iter().filter_map(read).collect()
}

#[test]
fn no_symbolic_link_is_tracked() {
    let Some(staged) = tracked(&["--stage"]) else {
        println!("skipped: no git checkout");
        return;
    };
    let links = staged.iter().filter(|entry| entry.starts_with("120000 "));
    report(links.map(|entry| format!("a symbolic link is tracked: {entry}")).collect());
}

#[test]
fn no_file_knows_a_machine() {
    let mut broken = Vec::new();
    // The names are split, so that this file does not contain such a path either.
    let homes = ["tmp", "work", "home", "root", "Users", "mnt"].map(|name| format!("/{name}/"));
    for (path, text) in texts() {
        for (number, line) in text.lines().enumerate() {
            for home in &homes {
                let begins = |at: usize| {
                    // The path must be a word of its own, not the middle of another path or of a URL.
                    line[..at].chars().next_back().is_none_or(|c| " \"'`(=<>[:,".contains(c))
                };
                if line.match_indices(home.as_str()).any(|(at, _)| begins(at)) {
                    broken.push(format!(
                        "{}:{}: a path of one machine: {}",
                        path.display(),
                        number + 1,
                        line.trim()
                    ));
                }
            }
        }
    }
    report(broken);
}

#[test]
fn every_command_in_the_texts_exists() {
    let makefile = fs::read_to_string(root().join("Makefile")).unwrap();
    let targets: BTreeSet<&str> = makefile
        .lines()
        .filter(|line| !line.starts_with(['\t', '#', '$', '.', ' ']))
        .filter_map(|line| Some(line.split_once(':')?.0))
        .collect();
    assert!(targets.contains("test"), "{targets:?}");
    let mut broken = Vec::new();
    for (path, text) in
        files(&["README.md", "CONTRIBUTING.md", "ARCHITECTURE.md", "docs", ".ci/run"], &[".md", "run"])
    {
        for (number, line) in text.lines().enumerate() {
            // Commands stand in code: between backticks, or in an indented block.
            let in_code = line.split('`').enumerate().filter(|(i, _)| i % 2 == 1).map(|(_, code)| code);
            let whole = Some(line.trim()).filter(|_| line.starts_with("    ") || path.ends_with("run"));
            for told in in_code.chain(whole).filter_map(|code| code.strip_prefix("make ")) {
                let target = told.split([' ', '#']).find(|part| !part.is_empty() && !part.contains('='));
                if target.is_some_and(|target| !targets.contains(target)) {
                    broken.push(format!("{}:{}: there is no `make {told}`", path.display(), number + 1));
                }
            }
        }
    }
    report(broken);
}
