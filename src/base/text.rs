//! Line wrapping for docstrings, stubs and documents.

/// Wraps a text into lines of at most `width` columns. The first line begins with `first`, the following lines with
/// `other`.
pub fn wrapped(text: &str, first: &str, other: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    let mut line = first.to_owned();
    let mut empty = true;
    for word in text.split_whitespace() {
        if !empty && line.chars().count() + 1 + word.chars().count() > width {
            lines.push(std::mem::replace(&mut line, other.to_owned()));
            empty = true;
        }
        if !std::mem::replace(&mut empty, false) {
            line.push(' ');
        }
        line += word;
    }
    lines.push(line);
    lines
}
