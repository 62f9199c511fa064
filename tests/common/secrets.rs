//! Helpers for tests of credentials: secret words that the program must neither print nor write.

use super::files_below;
use std::path::Path;
use std::process::{Command, Output};

/// Whether `text` contains a word.
pub fn contains(text: &[u8], word: &str) -> bool {
    text.windows(word.len()).any(|part| part == word.as_bytes())
}

/// Runs a program, and checks that its output contains none of these words.
pub fn run_without(program: &mut Command, words: &[&str]) -> Output {
    let output = program.output().unwrap();
    for (what, text) in [("stdout", &output.stdout), ("stderr", &output.stderr)] {
        for word in words {
            let all = String::from_utf8_lossy(text);
            assert!(!contains(text, word), "{word} in {what} of {program:?}: {all}");
        }
    }
    output
}

/// Checks that a directory has more than five files below it, and that no content or name of a file has one of these
/// words.
pub fn kept_without(directory: &Path, words: &[&str]) {
    let found = files_below(directory);
    assert!(found.len() > 5, "{found:?}");
    for file in found {
        let bytes = std::fs::read(&file).unwrap();
        for word in words {
            assert!(!contains(&bytes, word), "{word} in {}", file.display());
            assert!(!file.to_string_lossy().contains(word), "{word} in the name of {}", file.display());
        }
    }
}
