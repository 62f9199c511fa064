//! The README.md of a Hugging Face repository. YAML at the head of this file can say which files belong to which split.
//!
//! Of the YAML, only the key `configs` is read. Only files below the directory of the README are accepted. Aliases are
//! not followed.

use crate::source::without_mark;
use glob::{MatchOptions, Pattern};
use saphyr_parser::{Event, Parser};

pub(super) const CARD: &str = "README.md";
/// The maximum number of bytes that are read from a README. If its YAML head is longer, this is an error.
pub(super) const LARGEST_CARD: u64 = LONGEST_HEAD as u64 + (1 << 12);
/// Maximum values: size of the head in bytes, depth of nested lists, size of a pattern in bytes, and stars in a
/// pattern.
const LONGEST_HEAD: usize = 1 << 20;
const DEEPEST: usize = 32;
const LONGEST_PATTERN: usize = 1024;
const MAX_STARS: usize = 16;
/// The split that files belong to if the README names no split for them.
const USUAL_SPLIT: &str = "train";

/// A configuration of the repository. Each configuration is a dataset of its own.
#[derive(Debug, PartialEq)]
pub(super) struct CardConfig {
    pub(super) name: String,
    pub(super) is_default: bool,
    pub(super) directory: String,
    /// Patterns for the file names of each split; empty if the split follows from the file names themselves.
    pub(super) splits: Vec<(String, Vec<FilePattern>)>,
}

impl CardConfig {
    /// Whether the configuration names the files of a split one by one, not by patterns that match several files.
    pub(super) fn lists_files_of(&self, split: &str) -> bool {
        let mut own = self.splits.iter().filter(|(name, _)| name == split).flat_map(|(_, patterns)| patterns);
        own.all(|pattern| !pattern.text().contains(['*', '?', '[']))
    }
}

#[derive(Debug, PartialEq)]
pub(super) struct FilePattern(Pattern);

impl FilePattern {
    fn new(directory: &str, text: &str) -> Result<Self, String> {
        let text = below(text)?;
        let text = if directory.is_empty() { text.to_owned() } else { format!("{directory}/{text}") };
        if text.len() > LONGEST_PATTERN || text.matches('*').count() > MAX_STARS {
            return Err(format!(
                "has a pattern of {} bytes, which is too long or has too many stars",
                text.len()
            ));
        }
        Pattern::new(&text).map(Self).map_err(|error| format!("has the pattern {text:?}: {error}"))
    }

    pub(super) fn text(&self) -> &str {
        self.0.as_str()
    }

    pub(super) fn matches(&self, name: &str) -> bool {
        let options = MatchOptions {
            case_sensitive: true,
            require_literal_separator: true,
            require_literal_leading_dot: true,
        };
        self.0.matches_with(name, options)
    }
}

/// The file name relative to the README. Names outside the README's directory are refused.
fn below(text: &str) -> Result<&str, String> {
    let below = text.strip_prefix("./").unwrap_or(text);
    let leads_out = below.starts_with('/') || below.contains("://") || below.contains('\\');
    if leads_out || below.split('/').any(|part| part == "..") {
        return Err(format!(
            "names {text:?}, which is outside its directory: only files below its directory are read"
        ));
    }
    Ok(below.trim_end_matches('/'))
}

/// The configurations in a README; empty if it defines none.
///
/// # Errors
/// What is wrong with the README: a phrase that follows its name in the message.
pub(super) fn configs(readme: &[u8]) -> Result<Vec<CardConfig>, String> {
    let Some(head) = head(readme)? else { return Ok(Vec::new()) };
    let document = parse(&head)?;
    let Some(configs) = document.as_ref().and_then(|document| document.get("configs")) else {
        return Ok(Vec::new());
    };
    let configs = match configs {
        Yaml::List(configs) => &configs[..],
        one => std::slice::from_ref(one),
    };
    configs.iter().map(config).collect()
}

/// The head of a README, between two lines of three dashes; `None` if it has no head.
fn head(readme: &[u8]) -> Result<Option<String>, String> {
    let mut lines = without_mark(readme).split_inclusive(|&byte| byte == b'\n');
    if lines.next().is_none_or(|first| first.trim_ascii_end() != b"---") {
        return Ok(None);
    }
    let mut head = Vec::new();
    for line in lines {
        if line.trim_ascii_end() == b"---" {
            return String::from_utf8(head).map(Some).map_err(|_| "is not UTF-8".to_owned());
        }
        if head.len() + line.len() > LONGEST_HEAD {
            return Err(format!("has a head of more than {LONGEST_HEAD} bytes"));
        }
        head.extend_from_slice(line);
    }
    Ok(None)
}

fn config(config: &Yaml) -> Result<CardConfig, String> {
    let text = |key: &str| config.get(key).and_then(Yaml::text);
    let directory = below(text("data_dir").unwrap_or_default())?;
    let files = |files: &Yaml| -> Result<Vec<FilePattern>, String> {
        files.texts().ok_or_else(unclear)?.iter().map(|text| FilePattern::new(directory, text)).collect()
    };
    let splits = match config.get("data_files") {
        None => Vec::new(),
        Some(Yaml::Map(splits)) => {
            let of = |(name, of): &(String, Yaml)| Ok((name.clone(), files(of)?));
            splits.iter().map(of).collect::<Result<_, String>>()?
        }
        Some(Yaml::List(splits)) if splits.iter().any(|split| matches!(split, Yaml::Map(_))) => {
            let of = |split: &Yaml| {
                let name = split.get("split").map_or(Some(USUAL_SPLIT), Yaml::text).ok_or_else(unclear)?;
                Ok((name.to_owned(), files(split.get("path").ok_or_else(unclear)?)?))
            };
            splits.iter().map(of).collect::<Result<_, String>>()?
        }
        Some(all) => vec![(USUAL_SPLIT.to_owned(), files(all)?)],
    };
    let name = text("config_name").unwrap_or("default").to_owned();
    let is_default =
        name == "default" || text("default").is_some_and(|text| text.eq_ignore_ascii_case("true"));
    Ok(CardConfig { name, is_default, directory: directory.to_owned(), splits })
}

fn unclear() -> String {
    "has an entry under configs that cannot be parsed: data_files must be a list of split and path".to_owned()
}

#[derive(Debug, PartialEq)]
enum Yaml {
    Text(String),
    List(Vec<Self>),
    /// A mapping. While the mapping is parsed, the value of its last key can be missing.
    Map(Vec<(String, Self)>),
    Alias,
}

impl Yaml {
    fn get(&self, key: &str) -> Option<&Self> {
        let Self::Map(pairs) = self else { return None };
        pairs.iter().find(|(name, _)| name == key).map(|(_, value)| value)
    }

    fn text(&self) -> Option<&str> {
        if let Self::Text(text) = self { Some(text) } else { None }
    }

    fn texts(&self) -> Option<Vec<&str>> {
        match self {
            Self::List(texts) => texts.iter().map(Self::text).collect(),
            one => one.text().map(|text| vec![text]),
        }
    }
}

fn parse(text: &str) -> Result<Option<Yaml>, String> {
    // The lists and mappings that are not closed yet. Each mapping is stored with the key whose value comes next.
    let mut open: Vec<(Yaml, Option<String>)> = Vec::new();
    for event in Parser::new_from_str(text) {
        let (event, _) = event.map_err(|error| format!("has a head that is not YAML: {error}"))?;
        let mut value = match event {
            Event::Scalar(text, ..) => Yaml::Text(text.into_owned()),
            Event::Alias(_) => Yaml::Alias,
            Event::SequenceStart(..) | Event::MappingStart(..) => {
                let is_list = matches!(event, Event::SequenceStart(..));
                open.push((if is_list { Yaml::List(Vec::new()) } else { Yaml::Map(Vec::new()) }, None));
                if open.len() > DEEPEST {
                    return Err("nests lists too deeply (at most 32 levels)".to_owned());
                }
                continue;
            }
            Event::SequenceEnd | Event::MappingEnd => match open.pop() {
                Some((value, _)) => value,
                None => continue,
            },
            _ => continue,
        };
        match open.last_mut() {
            None => return Ok(Some(value)),
            Some((Yaml::List(values), _)) => values.push(value),
            Some((Yaml::Map(pairs), key)) => match key.take() {
                Some(key) => pairs.push((key, value)),
                // Ignore keys that are not strings.
                None => {
                    *key = Some(if let Yaml::Text(text) = &mut value {
                        std::mem::take(text)
                    } else {
                        String::new()
                    })
                }
            },
            Some(_) => {}
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(head: &str) -> Result<Vec<CardConfig>, String> {
        configs(format!("---\nlicense: mit\n{head}\n---\n# A dataset\n").as_bytes())
    }

    fn splits(head: &str) -> Vec<(String, Vec<String>)> {
        let configs = read(head).unwrap();
        let text = |patterns: &[FilePattern]| patterns.iter().map(|each| each.text().to_owned()).collect();
        configs[0].splits.iter().map(|(name, patterns)| (name.clone(), text(patterns))).collect()
    }

    #[test]
    fn data_files_are_told_in_several_ways() {
        let of = |name: &str, patterns: &[&str]| {
            (name.to_owned(), patterns.iter().map(|&text| text.to_owned()).collect::<Vec<_>>())
        };
        let listed = "configs:\n- config_name: a\n  data_files:\n  - split: train\n    path: data/train-*\n  - \
                      split: test\n    \
                      path: [x.parquet, './y.parquet']";
        assert_eq!(splits(listed), [of("train", &["data/train-*"]), of("test", &["x.parquet", "y.parquet"])]);
        assert_eq!(splits("configs:\n- data_files: '*.parquet'"), [of("train", &["*.parquet"])]);
        assert_eq!(splits("configs: {data_files: [a, b], data_dir: d/}"), [of("train", &["d/a", "d/b"])]);
        assert_eq!(splits("configs: [{data_files: {dev: a}}]"), [of("dev", &["a"])]);
        assert_eq!(splits("configs: [{config_name: x}]"), []);
        let two = read("configs: [{config_name: x}, {config_name: y, default: true}]").unwrap();
        assert_eq!(two.iter().map(|config| config.is_default).collect::<Vec<_>>(), [false, true]);
        for nothing in
            [&b"# No head"[..], b"", b"---\nconfigs: [{}]", b"---\nlicense: mit\n---\n", b"---\n---\n"]
        {
            assert_eq!(configs(nothing), Ok(Vec::new()));
        }
    }

    #[test]
    fn patterns_stay_within_directories() {
        let matches = |pattern: &str, name: &str| FilePattern::new("", pattern).unwrap().matches(name);
        assert!(
            matches("data/train-*", "data/train-00000.parquet") && !matches("data/*", "data/a/b.parquet")
        );
        assert!(matches("**/*.parquet", "a/b/c.parquet") && !matches("*", ".hidden"));
    }

    #[test]
    fn what_leads_out_or_is_no_yaml_is_an_error() {
        for out in ["../a", "/etc/passwd", "a/../../b", "hf://datasets/x/y", "a\\\\b"] {
            let error = read(&format!("configs: [{{data_files: \"{out}\"}}]")).unwrap_err();
            assert!(error.contains("is outside its directory"), "{error}");
            assert!(read(&format!("configs: [{{data_dir: \"{out}\", data_files: a}}]")).is_err());
        }
        let deep = format!("configs: {}{}", "[".repeat(100_000), "]".repeat(100_000));
        let told = read(&deep).unwrap_err();
        assert!(told.starts_with("has a head that is not YAML: recursion limit exceeded"), "{told}");
        let deeper = format!("configs: {}{}", "[".repeat(DEEPEST), "]".repeat(DEEPEST));
        assert_eq!(read(&deeper), Err("nests lists too deeply (at most 32 levels)".to_owned()));
        let allowed = format!("x: {}{}", "[".repeat(DEEPEST - 1), "]".repeat(DEEPEST - 1));
        assert_eq!(read(&allowed), Ok(Vec::new()));
        let stars = format!("configs: [{{data_files: \"{}\"}}]", "*a".repeat(100));
        assert!(read(&stars).unwrap_err().contains("stars"));
        for wrong in
            ["configs: [{data_files: [[a]]}]", "configs: {data_files: *x}", "configs: [a", "\tconfigs: }"]
        {
            assert!(read(wrong).is_err(), "{wrong}");
        }
        // An alias is not followed, because a short text with aliases could expand to a huge one.
        assert!(read("x: &x train\nconfigs: [{data_files: [*x]}]").is_err());
    }
}
