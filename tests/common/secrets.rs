//! What tests of credentials share: words that the program must neither show nor write.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Whether some bytes have a word in them.
pub fn contains(text: &[u8], word: &str) -> bool {
    text.windows(word.len()).any(|part| part == word.as_bytes())
}

/// Runs a program, and checks that it shows none of these words.
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

/// Checks that more than five files lie below a directory, and none has one of these words in its bytes or its name.
pub fn kept_without(directory: &Path, words: &[&str]) {
    let found = files(directory);
    assert!(found.len() > 5, "{found:?}");
    for file in found {
        let bytes = std::fs::read(&file).unwrap();
        for word in words {
            assert!(!contains(&bytes, word), "{word} in {}", file.display());
            assert!(!file.to_string_lossy().contains(word), "{word} in the name of {}", file.display());
        }
    }
}

/// All files below a directory.
fn files(directory: &Path) -> Vec<PathBuf> {
    let (mut files, mut left) = (Vec::new(), vec![directory.to_owned()]);
    while let Some(directory) = left.pop() {
        for entry in std::fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() { left.push(path) } else { files.push(path) }
        }
    }
    files
}
