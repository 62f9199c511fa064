//! The house rules that the compiler cannot check: what every file must have, names, dependencies and unused items. The
//! manifests of the crates say which crate may depend on which.

mod prose;
mod texts;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// The modules and crates that must not have `unsafe`, because it would not improve their logic.
const SAFE: &[&str] = &["config", "error", "pipeline", "rng", "schedule", "simulate", "state", "trace"];

/// The exception: this file launches a kernel, and only the lane can guarantee that its memory is valid.
const LAUNCHES: &str = "src/engine/pipeline/cuda/lane.rs";

const LONGEST: usize = 500;

/// The files, or folders of files, that a command of the Makefile writes.
const GENERATED: &[&str] =
    &["cuda/nvjpeg-sys/src/sys.rs", "benches/results/", "python/foreload/transforms/_made.pyi"];

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

/// The folders of `src` that are crates of their own: those with a manifest.
fn crates() -> Vec<String> {
    let folders = fs::read_dir(root().join("src")).unwrap().map(|entry| entry.unwrap().path());
    let crates = folders.filter(|path| path.join("Cargo.toml").exists());
    crates.map(|path| path.file_name().unwrap().to_str().unwrap().to_owned()).collect()
}

/// The crate and the module in it that a source file belongs to: `store` and `io` of `src/store/io/uring/ring.rs`.
fn place(path: &Path) -> (String, String) {
    let parts = path.components().skip(1).map(|part| part.as_os_str().to_str().unwrap().to_owned());
    let mut parts = parts.peekable();
    let own = parts.next_if(|part| crates().contains(part)).unwrap_or_else(|| "foreload".into());
    let module = parts.next().unwrap_or_default().trim_end_matches(".rs").to_owned();
    (own, module)
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

fn report(broken: Vec<String>) {
    assert!(broken.is_empty(), "{} broken rules:\n{}", broken.len(), broken.join("\n"));
}

/// The dependencies that a manifest lists, as code names them.
fn dependencies(manifest: &Path) -> Vec<String> {
    let manifest = fs::read_to_string(manifest).unwrap();
    let listed = manifest.split("\n[dependencies]\n").nth(1).unwrap().split("\n[").next().unwrap();
    let name = |line: &str| line.split_once([' ', '.']).map(|(name, _)| name.replace('-', "_"));
    listed.lines().filter(|line| line.contains('=') && !line.starts_with('#')).filter_map(name).collect()
}

#[test]
fn a_crate_depends_on_what_it_uses() {
    let sources = sources();
    let mut broken = Vec::new();
    for own in crates() {
        let texts: Vec<&String> =
            sources.iter().filter(|(path, _)| place(path).0 == own).map(|(_, text)| text).collect();
        for name in dependencies(&root().join("src").join(&own).join("Cargo.toml")) {
            let used = texts.iter().any(|text| {
                code(text)
                    .any(|(_, line)| words(line).any(|(word, rest)| word == name && rest.starts_with("::")))
            });
            if !used {
                broken.push(format!("src/{own}/Cargo.toml: nothing uses {name}"));
            }
        }
    }
    report(broken);
}

/// The words of a line, each with the text that follows it.
fn words(line: &str) -> impl Iterator<Item = (&str, &str)> {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    let mut left = line;
    std::iter::from_fn(move || {
        left = &left[left.find(is_part)?..];
        let end = left.find(|c| !is_part(c)).unwrap_or(left.len());
        let (word, rest) = left.split_at(end);
        left = rest;
        Some((word, rest))
    })
}

/// The name of the item that a line makes public, if it does.
fn public_item(line: &str) -> Option<&str> {
    let mut words = words(line.trim_start().strip_prefix("pub ")?).map(|(word, _)| word);
    let mut keyword = words.next()?;
    while matches!(keyword, "unsafe" | "async" | "extern" | "C" | "const") {
        let next = words.next()?;
        if keyword == "const" && next != "fn" && next != "unsafe" {
            return Some(next);
        }
        keyword = next;
    }
    matches!(keyword, "fn" | "struct" | "enum" | "trait" | "type" | "static").then(|| words.next()).flatten()
}

/// Within a crate, the compiler reports unused items. But it takes public items of a crate for used. Here a name counts
/// as used if it appears anywhere else except in a `pub use`. So unused items with common names are not found.
#[test]
fn what_is_public_is_used() {
    let sources = sources();
    let others = files(&["tests", "benches"], &[".rs"]);
    let mut counts = BTreeMap::<&str, usize>::new();
    for text in sources.values().chain(others.values()) {
        let lines = code(text).filter(|(_, line)| !line.trim_start().starts_with("pub use "));
        for (word, _) in lines.flat_map(|(_, line)| words(line)) {
            *counts.entry(word).or_default() += 1;
        }
    }
    let mut broken = Vec::new();
    for (path, text) in &sources {
        let shown = place(path).0 != "foreload";
        for (number, line) in code(text).filter(|_| shown) {
            if let Some(name) = public_item(line).filter(|name| counts[name] == 1) {
                broken.push(format!("{}:{number}: {name} is not used", path.display()));
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

/// The type that a line defines. A line that defines an associated type is indented, and does not count.
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
        let (of, own) = place(&path);
        let lines: Vec<&str> = text.lines().collect();
        for (index, line) in lines.iter().enumerate() {
            let trimmed = line.trim();
            if trimmed.starts_with("//") {
                continue;
            }
            let block = line.contains("unsafe {") || line.contains("unsafe impl");
            let function = line.contains("unsafe fn ") || line.contains("unsafe extern");
            if (block || function)
                && [&of, &own].iter().any(|name| SAFE.contains(&name.as_str()))
                && path != Path::new(LAUNCHES)
            {
                broken.push(format!("{}:{}: {own} does without unsafe", path.display(), index + 1));
            }
            // The reason is above the statement, and the statement may begin a few lines above the block.
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
    let found: Vec<_> = words("use x::y_2;").collect();
    assert_eq!(found, [("use", " x::y_2;"), ("x", "::y_2;"), ("y_2", ";")]);
    assert_eq!(public_item("    pub const fn of(x: u8) -> Self {"), Some("of"));
    assert_eq!(public_item("pub const LONGEST: usize = 1;"), Some("LONGEST"));
    assert_eq!(public_item("pub mod x;"), None);
    assert_eq!(public_item("pub(super) fn f() {"), None);
    assert_eq!(defined_type("pub(in crate::io) struct Ring<'a> {"), Some("Ring"));
    assert_eq!(defined_type("    pub unsafe trait Source: Send {"), Some("Source"));
    assert_eq!(defined_type("type Row = u32;"), Some("Row"));
    assert_eq!(defined_type("    type Target = [u8];"), None);
    assert_eq!(defined_type("let structure = 1;"), None);
    let of = |path: &str| place(Path::new(path));
    assert_eq!(of("src/store/io/uring/ring.rs"), ("store".to_owned(), "io".to_owned()));
    assert_eq!(of("src/base/rng.rs"), ("base".to_owned(), "rng".to_owned()));
    assert_eq!(of("src/python/mod.rs"), ("foreload".to_owned(), "python".to_owned()));
    assert_eq!(code("a\n// b\n#[cfg(test)]\nmod tests {\nc").collect::<Vec<_>>(), [(1, "a")]);
}
