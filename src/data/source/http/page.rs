//! Parses a server's index page of a directory: the files and directories that it links to.

use super::EntryKind;
use crate::http::HttpUrl;
use std::collections::BTreeMap;

/// Returns the files and directories that the index `page` of `directory` links to. Links to anything but direct
/// children are skipped.
pub(super) fn entries(directory: &HttpUrl, page: &[u8]) -> Vec<(Vec<u8>, EntryKind)> {
    let text = String::from_utf8_lossy(page);
    let mut found = BTreeMap::new();
    for reference in references(&text) {
        let Ok(url) = directory.join(&plain(reference)) else { continue };
        let Some(path) = url.below(directory) else { continue };
        let (name, kind) = match path.strip_suffix(b"/") {
            Some(name) => (name.to_vec(), EntryKind::Directory),
            None => (path, EntryKind::File),
        };
        let is_name = !name.is_empty() && !name.iter().any(|byte| matches!(byte, 0 | b'/'));
        if is_name && name != b"." && name != b".." {
            found.insert(name, kind);
        }
    }
    found.into_iter().collect()
}

fn references(mut text: &str) -> impl Iterator<Item = &str> {
    std::iter::from_fn(move || {
        loop {
            let bytes = text.as_bytes();
            let at = bytes.windows(4).position(|word| word.eq_ignore_ascii_case(b"href"))?;
            text = text.get(at + 4..)?;
            let Some(rest) = text.trim_start().strip_prefix('=') else { continue };
            let rest = rest.trim_start();
            let (value, after) = match rest.chars().next()? {
                quote @ ('"' | '\'') => rest[1..].split_once(quote)?,
                _ => rest.split_at(rest.find(|c: char| c.is_whitespace() || c == '>')?),
            };
            text = after;
            return Some(value);
        }
    })
}

/// Replaces HTML entities, such as `&amp;`, by the characters that they stand for.
fn plain(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('&') {
        plain.push_str(&rest[..at]);
        rest = &rest[at..];
        let end = rest.find(';').filter(|&end| end <= 10);
        let known = end.and_then(|end| match &rest[1..end] {
            "amp" => Some('&'),
            "lt" => Some('<'),
            "gt" => Some('>'),
            "quot" => Some('"'),
            "apos" => Some('\''),
            number => {
                let number = number.strip_prefix('#')?;
                let value = match number.strip_prefix(['x', 'X']) {
                    Some(digits) => u32::from_str_radix(digits, 16),
                    None => number.parse(),
                };
                char::from_u32(value.ok()?)
            }
        });
        match (known, end) {
            (Some(known), Some(end)) => {
                plain.push(known);
                rest = &rest[end + 1..];
            }
            _ => {
                plain.push('&');
                rest = &rest[1..];
            }
        }
    }
    plain.push_str(rest);
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(page: &str) -> Vec<(String, EntryKind)> {
        let directory = HttpUrl::parse("http://h/data/train/").unwrap();
        let text = |name: Vec<u8>| String::from_utf8(name).unwrap();
        entries(&directory, page.as_bytes()).into_iter().map(|(name, kind)| (text(name), kind)).collect()
    }

    #[test]
    fn the_pages_of_the_usual_servers_are_understood() {
        use EntryKind::{Directory, File};
        let nginx = "<a href=\"../\">../</a>\n<a href=\"cat/\">cat/</a> 25-Nov-2026 -\n\
                     <a href=\"a%20b.tar\">a b..&gt;</a>";
        assert_eq!(names(nginx), [("a b.tar".into(), File), ("cat".into(), Directory)]);
        let apache = "<th><a href=\"?C=N;O=D\">Name</a></th><a href=\"/data/\">Parent Directory</a>\
                      <A HREF='a.tar'>a.tar</A><a href=b.tar>b</a><a href=\"/data/train/c.tar\">c</a>";
        assert_eq!(
            names(apache).into_iter().map(|(name, _)| name).collect::<Vec<_>>(),
            ["a.tar", "b.tar", "c.tar"]
        );
        let python = "<li><a href=\"a%26b%3Cc.jpg\">a&amp;b&lt;c.jpg</a></li><a href=\"d&amp;e.jpg\">d</a>";
        assert_eq!(names(python), [("a&b<c.jpg".into(), File), ("d&e.jpg".into(), File)]);
    }

    #[test]
    fn links_that_lead_elsewhere_are_no_files() {
        let page = "<a href=\"http://other/data/train/x\">x</a><a href=\"mailto:a@b\">m</a><a href=\"x/y\">y</a>\
                    <a href=\"..\">u</a><a href=\".\">s</a><a href=\"x%2Fy\">e</a><a href=\"javascript:void(0)\">j</a>\
                    <a href=\"#top\">t</a><a href=\"%00\">n</a><a href=\"";
        assert_eq!(names(page), []);
    }
}
