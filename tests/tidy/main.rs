//! The house rules, kept by a test: who imports whom, where foreign crates live, what every file must have.
//!
//! `ARCHITECTURE.md` gives the reasons and the table of who may know whom. A rule that is wrong is changed there or
//! here.

mod texts;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// The modules that may name a foreign crate. A crate of one purpose has one home; those of the last group may be used
/// anywhere.
const HOMES: &[(&str, &[&str])] = &[
    ("async-trait", &["source"]),
    ("base64", &["http"]),
    ("bytes", &["http", "peers"]),
    ("clap", &["cli"]),
    ("crc-fast", &["crc"]),
    ("csv", &["dataset"]),
    ("cudarc", &["gpu"]),
    ("flate2", &["dataset"]),
    ("font8x8", &["show"]),
    ("glob", &["dataset"]),
    ("half", &["augment", "dataset"]),
    ("http-body-util", &["http", "peers"]),
    ("httpdate", &["http", "source"]),
    ("hyper", &["http", "peers"]),
    ("hyper-util", &["http", "peers"]),
    ("image-webp", &["decode"]),
    ("io-uring", &["io"]),
    ("jpeg-encoder", &["cli"]),
    ("libm", &["augment", "stream"]),
    ("lz4_flex", &["dataset"]),
    ("memmap2", &["batch"]),
    ("nvjpeg-sys", &["decode"]),
    ("object_store", &["source"]),
    ("percent-encoding", &["http"]),
    ("plotters", &["cli"]),
    ("png", &["cli", "decode", "show"]),
    ("pyo3", &["python"]),
    ("rcgen", &["http"]),
    ("redis", &["stream"]),
    ("ruzstd", &["dataset"]),
    ("saphyr-parser", &["dataset"]),
    ("snap", &["dataset"]),
    ("subtle", &["http"]),
    ("tar", &["cli"]),
    ("rustls-native-certs", &["http"]),
    ("tokio", &["http", "io", "peers", "source", "stream"]),
    ("tokio-rustls", &["http", "peers", "stream"]),
    ("toml", &["simulate"]),
    ("unicode-width", &["cli"]),
    ("zeromq", &["stream"]),
    (
        "crossbeam-channel",
        &["cli", "dataset", "http", "io", "peers", "pipeline", "serve", "stream", "tier", "trace"],
    ),
    ("indicatif", &["cli", "dataset"]),
    ("libc", &["batch", "cli", "gpu", "io", "node", "sharing", "slot", "source", "tier"]),
    ("libloading", &["gpu"]),
    (
        "rustix",
        &[
            "batch", "cli", "dataset", "http", "io", "node", "pack", "peers", "pipeline", "sharing", "slot",
            "source", "status", "stream", "tier",
        ],
    ),
    (
        "serde",
        &[
            "augment",
            "batch",
            "cli",
            "config",
            "dataset",
            "error",
            "gpu",
            "io",
            "json",
            "names",
            "notices",
            "pack",
            "peers",
            "pipeline",
            "python",
            "sharing",
            "simulate",
            "state",
            "status",
            "stream",
            "tier",
            "tier_name",
            "trace",
        ],
    ),
    (
        "serde_json",
        &[
            "augment", "batch", "cli", "config", "dataset", "json", "pack", "pipeline", "python", "sharing",
            "show", "simulate", "state", "status", "stream", "tier", "trace",
        ],
    ),
    ("sha2", &["cli", "dataset", "http", "peers", "rng", "schedule", "sharing", "source", "stream", "tier"]),
    ("thiserror", &["error"]),
];

/// The modules without `unsafe`, whose logic gains nothing by it.
const SAFE: &[&str] = &["config", "error", "pipeline", "rng", "schedule", "simulate", "state", "trace"];

/// The exception: here a kernel is launched, and only the lane can vouch for its memory.
const LAUNCHES: &str = "src/pipeline/cuda/lane.rs";

const LONGEST: usize = 500;

/// The files that a command of the Makefile writes; of a folder, all in it.
const GENERATED: &[&str] = &["cuda/nvjpeg-sys/src/sys.rs", "benches/results/"];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The files below `places` whose names end in one of `extensions`, by path relative to the root, with their text.
fn files(places: &[&str], extensions: &[&str]) -> BTreeMap<PathBuf, String> {
    let mut left: Vec<PathBuf> = places.iter().map(|place| root().join(place)).collect();
    let mut files = BTreeMap::new();
    while let Some(path) = left.pop() {
        let name = path.file_name().and_then(|n| n.to_str()).unwrap_or("");
        if path.is_dir() {
            if !name.starts_with('.') && name != "__pycache__" {
                left.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
            }
        } else if extensions.iter().any(|extension| name.ends_with(extension)) {
            let text = fs::read_to_string(&path).unwrap();
            files.insert(path.strip_prefix(root()).unwrap().to_owned(), text);
        }
    }
    files
}

fn sources() -> BTreeMap<PathBuf, String> {
    let mut sources = files(&["src"], &[".rs"]);
    sources.retain(|path, _| !path.ends_with("tests.rs"));
    assert!(sources.len() > 20, "found only {} source files", sources.len());
    sources
}

/// The top-level module that a source file belongs to, and how many `super::` lead from it to the crate's root.
fn module(path: &Path) -> (String, usize) {
    let parts: Vec<&str> = path.components().skip(1).map(|part| part.as_os_str().to_str().unwrap()).collect();
    let top = parts[0].trim_end_matches(".rs").to_owned();
    let depth = parts.len() - usize::from(parts[parts.len() - 1] == "mod.rs");
    (top, depth)
}

/// The lines of code outside of tests, with their numbers: no comments, and no test module at the end of the file.
fn code(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let tests = text.find("\n#[cfg(test)]\nmod tests {").unwrap_or(text.len());
    let lines = text[..tests].lines().enumerate().map(|(number, line)| (number + 1, line));
    lines.filter(|(_, line)| !line.trim().starts_with("//"))
}

fn word(text: &str) -> &str {
    text.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or("")
}

/// The names directly behind `prefix` in a line: `crate::{a::B, c}` names `a` and `c` behind `crate::`.
fn names_behind<'a>(line: &'a str, prefix: &str) -> Vec<&'a str> {
    let mut names = Vec::new();
    for (at, _) in line.match_indices(prefix) {
        let rest = &line[at + prefix.len()..];
        let before = line[..at].chars().next_back();
        if before.is_some_and(|c| c.is_alphanumeric() || c == '_' || c == ':' || c == '$') {
            continue;
        }
        if let Some(group) = rest.strip_prefix('{') {
            let mut depth = 0;
            let mut start = 0;
            for (i, c) in group.char_indices() {
                match c {
                    '{' => depth += 1,
                    '}' if depth > 0 => depth -= 1,
                    ',' | '}' if depth == 0 => {
                        names.push(word(group[start..i].trim()));
                        start = i + 1;
                        if c == '}' {
                            break;
                        }
                    }
                    _ => {}
                }
            }
        } else {
            names.push(word(rest));
        }
    }
    names
}

fn report(broken: Vec<String>) {
    assert!(broken.is_empty(), "{} broken rules:\n{}", broken.len(), broken.join("\n"));
}

/// The modules of the crate that a module may know beside itself, and which of them its row names one by one.
#[derive(Default)]
struct Known {
    allowed: BTreeSet<String>,
    named: BTreeSet<String>,
}

/// What each module may know, by the table of ARCHITECTURE.md: the last column of a row is for each of its places in
/// `src/`, or has a part for each. Tests inside a file may know all.
fn may_know() -> BTreeMap<String, Known> {
    let text = fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let mut table = BTreeMap::<String, Known>::new();
    for row in text.lines().filter(|line| line.starts_with("| `src/")) {
        let columns: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        let &[places, _, known] = columns.as_slice() else { panic!("three columns: {row}") };
        let above: BTreeSet<String> = table.keys().cloned().collect();
        let parts: Vec<&str> = known.split("; ").collect();
        for (number, place) in places.split(", ").enumerate() {
            let place = place.trim_matches('`').trim_start_matches("src/");
            let place = place.trim_end_matches('/').trim_end_matches(".rs");
            let known = match *parts.get(number).unwrap_or(&parts[0]) {
                "–" => Known::default(),
                "all of the above" => Known { allowed: above.clone(), named: BTreeSet::new() },
                names => {
                    let named: BTreeSet<String> = names.split(", ").map(str::to_owned).collect();
                    Known { allowed: named.clone(), named }
                }
            };
            // A file and a folder beside it are one module.
            table.entry(place.to_owned()).or_insert(known);
        }
    }
    assert!(table.len() > 20, "{} modules in ARCHITECTURE.md's table", table.len());
    let unknown = table.values().flat_map(|known| &known.allowed).find(|name| !table.contains_key(*name));
    assert_eq!(unknown, None, "ARCHITECTURE.md's table has no row for it");
    table
}

#[test]
fn modules_know_only_what_they_may() {
    let table = may_know();
    let mut broken = Vec::new();
    let mut used = BTreeSet::new();
    for (path, text) in sources() {
        let (own, depth) = module(&path);
        let Some(Known { allowed, .. }) = table.get(&own) else {
            broken.push(format!("{}: module {own} is not in ARCHITECTURE.md's table", path.display()));
            continue;
        };
        let to_root = "super::".repeat(depth);
        for (number, line) in code(&text) {
            let mut known = names_behind(line, "crate::");
            known.extend(names_behind(line, "foreload::"));
            if depth > 0 {
                known.extend(names_behind(line, &to_root).into_iter().filter(|name| *name != "super"));
            }
            for name in known {
                let name = if matches!(name, "Error" | "Result") { "error" } else { name };
                used.insert((own.clone(), name.to_owned()));
                if name != own && table.contains_key(name) && !allowed.contains(name) {
                    broken.push(format!("{}:{number}: {own} may not know {name}", path.display()));
                }
            }
        }
    }
    // A row that allows what nobody does would let it in unseen.
    for (own, Known { named, .. }) in &table {
        for name in named.iter().filter(|name| !used.contains(&(own.clone(), (*name).clone()))) {
            broken.push(format!("ARCHITECTURE.md: {own} may know {name}, and does not"));
        }
    }
    report(broken);
}

#[test]
fn foreign_crates_stay_at_home() {
    let homes: BTreeMap<String, &[&str]> =
        HOMES.iter().map(|(name, homes)| (name.replace('-', "_"), *homes)).collect();
    let manifest = fs::read_to_string(root().join("Cargo.toml")).unwrap();
    let listed = manifest.split("\n[dependencies]\n").nth(1).unwrap().split("\n[").next().unwrap();
    let listed: BTreeSet<String> =
        listed.lines().filter_map(|line| Some(line.split_once(" = ")?.0.replace('-', "_"))).collect();
    assert_eq!(listed, homes.keys().cloned().collect(), "dependencies of Cargo.toml and HOMES");
    let mut broken = Vec::new();
    for (path, text) in sources() {
        let (own, _) = module(&path);
        for (number, line) in code(&text) {
            for (name, homes) in &homes {
                let used = line.match_indices(&format!("{name}::")).any(|(at, _)| {
                    !line[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_' || c == ':' || c == '"')
                });
                if used && !homes.contains(&own.as_str()) {
                    broken.push(format!(
                        "{}:{number}: {name} has its home in {}",
                        path.display(),
                        homes.join(", ")
                    ));
                }
            }
        }
    }
    report(broken);
}

#[test]
fn every_file_says_what_it_is_and_is_short() {
    let mut broken = Vec::new();
    let places = ["src", "cuda", "tests", "benches", "build.rs", "python", "examples"];
    for (path, text) in files(&places, &[".rs", ".py", ".pyi", ".cuh", ".cu", ".c"]) {
        let rust = !path.extension().is_some_and(|extension| extension == "py" || extension == "pyi");
        let opening = text.lines().find(|line| !line.starts_with("#!")).unwrap_or("");
        let says = if rust {
            opening.starts_with("//! ")
        } else {
            opening.trim_start_matches('r').starts_with("\"\"\"")
        };
        if !says {
            let wanted = if rust { "a `//!` line" } else { "a docstring" };
            broken.push(format!("{}: opens without {wanted}", path.display()));
        }
        let lines = text.lines().count();
        if lines > LONGEST && !GENERATED.iter().any(|generated| path.starts_with(generated)) {
            broken.push(format!(
                "{}: {lines} lines, at most {LONGEST}: split by what changes together",
                path.display()
            ));
        }
    }
    report(broken);
}

/// The type that a line defines. An associated type, whose trait names it, is indented.
fn defined_type(line: &str) -> Option<&str> {
    let item = line.trim_start();
    let item = match item.strip_prefix("pub").map(str::trim_start) {
        Some(rest) if rest.starts_with('(') => rest.split_once(')')?.1.trim_start(),
        Some(rest) => rest,
        None => item,
    };
    let (keyword, rest) = item.strip_prefix("unsafe ").unwrap_or(item).split_once(' ')?;
    let defines = matches!(keyword, "struct" | "enum" | "trait" | "union")
        || keyword == "type" && !line.starts_with(' ');
    Some(word(rest)).filter(|name| defines && name.starts_with(char::is_uppercase))
}

#[test]
fn type_names_are_unique() {
    let mut places = BTreeMap::<String, Vec<String>>::new();
    for (path, text) in sources() {
        // Tests may name their own things as they like.
        if path.ends_with("tests.rs") {
            continue;
        }
        for (number, line) in code(&text) {
            if let Some(name) = defined_type(line) {
                places.entry(name.to_owned()).or_default().push(format!("{}:{number}", path.display()));
            }
        }
    }
    let twice = places.into_iter().filter(|(_, places)| places.len() > 1);
    let broken = twice.map(|(name, places)| {
        let places = places.join(", ");
        format!("{places}: {name} names several types: give each a name that says what it is where it is read alone")
    });
    report(broken.collect());
}

#[test]
fn unsafe_has_a_reason_and_few_homes() {
    let mut broken = Vec::new();
    for (path, text) in sources() {
        let (own, _) = module(&path);
        let lines: Vec<&str> = text.lines().collect();
        for (index, line) in lines.iter().enumerate() {
            let trimmed = line.trim();
            if trimmed.starts_with("//") {
                continue;
            }
            let block = line.contains("unsafe {") || line.contains("unsafe impl");
            let function = line.contains("unsafe fn ") || line.contains("unsafe extern");
            if (block || function) && SAFE.contains(&own.as_str()) && path != Path::new(LAUNCHES) {
                broken.push(format!("{}:{}: {own} does without unsafe", path.display(), index + 1));
            }
            // The reason stands above the statement; the statement may begin a few lines above the block.
            let above = || lines[index.saturating_sub(8)..=index].iter().any(|line| line.contains("SAFETY:"));
            if block && !above() {
                broken.push(format!("{}:{}: unsafe without a SAFETY comment", path.display(), index + 1));
            }
        }
    }
    report(broken);
}

#[test]
fn the_rules_see_what_they_should() {
    assert_eq!(
        names_behind("use crate::{Error, io::{self, Reader}, slot};", "crate::"),
        ["Error", "io", "slot"]
    );
    assert_eq!(names_behind("fn f(x: crate::rng::Key) -> crate::Result<()>", "crate::"), ["rng", "Result"]);
    assert_eq!(names_behind("use super::super::simd;", "super::super::"), ["simd"]);
    assert_eq!(names_behind("pub(crate) mod x; mycrate::y", "crate::"), [""; 0]);
    assert_eq!(defined_type("pub(in crate::io) struct Ring<'a> {"), Some("Ring"));
    assert_eq!(defined_type("    pub unsafe trait Source: Send {"), Some("Source"));
    assert_eq!(defined_type("type Row = u32;"), Some("Row"));
    assert_eq!(defined_type("    type Target = [u8];"), None);
    assert_eq!(defined_type("let structure = 1;"), None);
    assert_eq!(module(Path::new("src/io/uring/ring.rs")), ("io".to_owned(), 3));
    assert_eq!(module(Path::new("src/io/mod.rs")), ("io".to_owned(), 1));
    assert_eq!(module(Path::new("src/rng.rs")), ("rng".to_owned(), 1));
    assert_eq!(code("a\n// b\n#[cfg(test)]\nmod tests {\nc").collect::<Vec<_>>(), [(1, "a")]);
}
