//! Counts phrases, sentences and paragraphs that are hard to read, by folder. The counts in `prose.txt` may only fall.

use super::{files, report, root};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::Path;

/// Phrases that readers had to decode, in lower case. Code between backticks is not searched.
const PHRASES: &[&str] = &[
    "amid",
    "anew",
    "are no more",
    "are told",
    "as ever",
    "beside",
    "by itself alone",
    "comes of it",
    "forsaken",
    "go on",
    "goes on",
    "gone on",
    "hears of",
    "is had",
    "is let alone",
    "is no more",
    "is told",
    "let alone",
    "lie in",
    "lies in",
    "nobody",
    "of which each",
    "so that nobody",
    "stand in the",
    "stands in the",
    "takes nobody",
    "that which",
    "went on",
    "what is too",
    "whichever",
    "who has",
    "who holds",
    "who reads",
    "who takes",
    "who waits",
    "whoever",
];

/// The most words of a sentence, and of a paragraph.
const SENTENCE: usize = 40;
const PARAGRAPH: usize = 120;

/// The folders and files that are counted each for itself. A file counts for the longest of them that its path begins
/// with.
const FOLDERS: &[&str] = &[
    "ARCHITECTURE.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "README.md",
    "benches",
    "cuda",
    "docs",
    "examples",
    "python",
    "src",
    "src/base",
    "src/cli",
    "src/data",
    "src/engine",
    "src/pixels",
    "src/python",
    "src/simulate",
    "src/store",
    "src/stream",
    "tests",
];

/// Tables of results and this rule itself.
const LEFT_OUT: &[&str] = &["benches/results", "tests/tidy/prose.rs", "tests/fixtures"];

const TABLE: &str = "tests/tidy/prose.txt";

/// A paragraph without code, with the number of its first line.
type Paragraph = (usize, String);

/// The text of a line of a file that people read as prose: of code, its comment. `None` for code.
fn prose<'a>(name: &str, line: &'a str, in_docstring: &mut bool) -> Option<&'a str> {
    let line = line.trim();
    if name.ends_with(".md") {
        return Some(line);
    }
    if name.ends_with(".rs") || name.ends_with(".cuh") {
        return line.strip_prefix("//").map(|text| text.trim_start_matches(['/', '!']).trim());
    }
    let inside = *in_docstring;
    if line.matches("\"\"\"").count() == 1 {
        *in_docstring = !inside;
    }
    if inside || line.starts_with("\"\"\"") { Some(line.trim_matches('"')) } else { line.strip_prefix('#') }
}

/// A line without the code between its backticks.
fn without_code(line: &str) -> String {
    line.split('`').step_by(2).collect::<Vec<_>>().join("CODE")
}

fn paragraphs(name: &str, text: &str) -> Vec<Paragraph> {
    let (mut found, mut open): (Vec<Paragraph>, bool) = (Vec::new(), false);
    let (mut fenced, mut in_docstring) = (false, false);
    for (number, line) in text.lines().enumerate() {
        let line = prose(name, line, &mut in_docstring).unwrap_or("");
        if line.starts_with("```") {
            fenced = !fenced;
            open = false;
            continue;
        }
        let begins_item = line.starts_with("- ")
            || line.split_once(". ").is_some_and(|(item, _)| item.parse::<u32>().is_ok());
        if fenced || line.is_empty() || line.starts_with(['|', '#']) {
            open = false;
        } else if open && !begins_item {
            let (_, last) = found.last_mut().expect("an open paragraph");
            *last += " ";
            *last += &without_code(line);
        } else {
            found.push((number + 1, without_code(line)));
            open = true;
        }
    }
    found
}

/// The numbers of words of a paragraph's sentences.
fn sentences(paragraph: &str) -> impl Iterator<Item = usize> {
    let ends = |text: &&str| !text.trim().is_empty();
    paragraph
        .split_inclusive(['.', '?', '!'])
        .fold(vec![String::new()], |mut sentences, part| {
            // A point inside of a number or name ends nothing.
            let goes_on = part.starts_with(|c: char| !c.is_whitespace());
            match sentences.last_mut() {
                Some(last) if goes_on || last.is_empty() => *last += part,
                _ => sentences.push(part.to_owned()),
            }
            sentences
        })
        .into_iter()
        .filter(move |sentence| ends(&sentence.as_str()))
        .map(|sentence| sentence.split_whitespace().count())
}

/// Where a paragraph has a phrase as whole words.
fn phrases(paragraph: &str) -> Vec<&'static str> {
    let text = paragraph.to_lowercase();
    let bounded = |at: usize, phrase: &str| {
        let before = text[..at].chars().next_back();
        let after = text[at + phrase.len()..].chars().next();
        ![before, after].into_iter().flatten().any(|c| c.is_alphanumeric() || c == '_' || c == '-')
    };
    let mut found = Vec::new();
    for phrase in PHRASES {
        found.extend(text.match_indices(phrase).filter(|(at, _)| bounded(*at, phrase)).map(|_| *phrase));
    }
    found
}

/// What is hard to read in a folder: phrases, long sentences, long paragraphs; with the places of each.
#[derive(Default)]
struct Counts([Vec<String>; 3]);

fn counted() -> BTreeMap<&'static str, Counts> {
    let mut counts: BTreeMap<_, _> = FOLDERS.iter().map(|folder| (*folder, Counts::default())).collect();
    for (path, text) in files(FOLDERS, &[".md", ".rs", ".py", ".pyi", ".cuh"]) {
        let name = path.to_str().expect("a name in UTF-8");
        if LEFT_OUT.iter().any(|place| name.starts_with(place)) {
            continue;
        }
        let of = FOLDERS.iter().filter(|folder| path.starts_with(Path::new(folder)));
        let folder = of.max_by_key(|folder| folder.len()).expect("a folder of the list");
        let Counts([hard, long, longer]) = counts.get_mut(folder).expect("a folder of the list");
        for (line, paragraph) in paragraphs(name, &text) {
            let place = |what: &str| format!("{name}:{line}: {what}");
            hard.extend(phrases(&paragraph).into_iter().map(place));
            let words = |words: usize| place(&format!("{words} words"));
            long.extend(sentences(&paragraph).filter(|count| *count > SENTENCE).map(words));
            longer.extend(Some(paragraph.split_whitespace().count()).filter(|c| *c > PARAGRAPH).map(words));
        }
    }
    counts
}

#[test]
fn words_become_plainer() {
    let counts = counted();
    let mut table = String::from("# folder: phrases, long sentences, long paragraphs (see prose.rs)\n");
    for (folder, Counts(places)) in &counts {
        let [hard, long, longer] = places.each_ref().map(Vec::len);
        writeln!(table, "{folder}: {hard}, {long}, {longer}").expect("memory");
    }
    if std::env::var_os("FORELOAD_WRITE_PROSE").is_some() {
        fs::write(root().join(TABLE), &table).expect("tests/tidy/prose.txt is written");
        return;
    }
    let allowed = fs::read_to_string(root().join(TABLE)).expect("tests/tidy/prose.txt");
    let mut broken = Vec::new();
    for ((was, is), Counts(places)) in allowed.lines().zip(table.lines()).skip(1).zip(counts.values()) {
        let numbers = |line: &str| -> Vec<usize> {
            let numbers = line.rsplit(": ").next().expect("one part").split(", ");
            numbers.map(|number| number.parse().expect("a number")).collect()
        };
        if numbers(was).iter().zip(numbers(is)).any(|(was, is)| is > *was) {
            let places = places.iter().zip(numbers(was)).filter(|(places, was)| places.len() > *was);
            broken.extend(places.flat_map(|(places, _)| places.clone()));
        }
        if was != is {
            broken.push(format!("{was:?} is {is:?} now"));
        }
    }
    if !broken.is_empty() {
        broken.push(format!(
            "write plainer words; where counts fell, write them: FORELOAD_WRITE_PROSE=1, {TABLE}"
        ));
    }
    report(broken);
}

#[test]
fn what_is_hard_to_read_is_found() {
    let long = format!("//! {} end. Beside `beside`, go\n//! on.\n", "word ".repeat(40));
    let found = paragraphs("a.rs", &format!("{long}fn beside() {{}}\n/// - besides\n"));
    assert_eq!(found.iter().map(|(line, _)| *line).collect::<Vec<_>>(), [1, 4]);
    assert_eq!(phrases(&found[0].1), ["beside", "go on"]);
    assert_eq!(phrases(&found[1].1), [""; 0]);
    assert_eq!(sentences(&found[0].1).collect::<Vec<_>>(), [41, 4]);
    assert_eq!(sentences("Version 1.5 is new. Is it?").collect::<Vec<_>>(), [4, 2]);
    let docs = paragraphs("a.py", "x = 1\n\"\"\"One\ntwo.\n\n\"\"\"\n# three\ny = 2\n");
    assert_eq!(docs, [(2, "One two.".to_owned()), (6, " three".to_owned())]);
}
