//! Splits of datasets of tables: which files belong to which split, by their names or by the README of a repository.
//!
//! The rules for names are those of Hugging Face's `datasets` (`data_files.py`), except that files that `datasets`
//! would skip silently are an error.

use super::below::DatasetSearch;
use super::dataset_card::{self, CARD, CardConfig};
use super::ignored::ignored_entry;
use super::layouts::{open_optional, read_beginning};
use super::samples::text;
use super::survey::{DetectedShards, below};
use super::{Contents, Layout, Notes, numbered};
use crate::source::{DatasetSource, EntryKind};
use base::error::{Error, Result};
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::ops::ControlFlow;

/// Maps words in the names of directories and files to the split that they denote.
const WORDS: &[(&str, &str)] = &[
    ("train", "train"),
    ("training", "train"),
    ("validation", "validation"),
    ("valid", "validation"),
    ("dev", "validation"),
    ("val", "validation"),
    ("test", "test"),
    ("testing", "test"),
    ("eval", "test"),
    ("evaluation", "test"),
];
/// Words that directory names can have in addition to a word of a split: `training_set`, `val_images`, `seg_test`.
const NEUTRAL: &[&str] = &["data", "dataset", "image", "images", "img", "imgs", "seg", "set", "split"];
/// The directory in which repositories store their files.
const DATA: &str = "data";
/// The directories in a cache of the Hugging Face hub. The cache holds whole repositories with all their versions.
const HUB_CACHE: [&[u8]; 2] = [b"blobs", b"snapshots"];

pub(super) struct ChosenSplit {
    pub(super) layout: Layout,
    pub(super) name: Option<String>,
    /// The names of the shards, sorted.
    pub(super) shards: Vec<Vec<u8>>,
    pub(super) notes: Notes,
}

/// The files of each split. Files without a split name form the whole dataset.
type FilesBySplit = BTreeMap<Option<String>, Vec<Vec<u8>>>;

/// Whether these directories can hold the files of a Hugging Face repository, with or without a README.
pub(super) fn may_have_files(directories: &[Vec<u8>], has_card: bool) -> bool {
    let is_of_split = |name: &Vec<u8>| {
        let name = String::from_utf8_lossy(name);
        name == DATA || split_word(&name).is_some()
    };
    has_card || directories.iter().any(is_of_split)
}

/// The shards of the split `asked`, or of the only split; `None` if there are no shards. `flat` has the shards in the
/// root, all of one layout. Without `flat`, all directories below the root are searched.
pub(super) fn choose(
    search: DatasetSearch<'_>,
    flat: Option<DetectedShards>,
    asked: Option<&str>,
) -> Result<Option<ChosenSplit>> {
    let source = search.source;
    let (config, mut notes) = (chosen_config(source)?, Notes::default());
    let (layout, files) = match flat {
        Some(found) if config.is_none() => found,
        _ => {
            let all = files_below(search, &mut notes)?;
            match (of_one_layout(source, all, config.as_ref())?, &config) {
                (Some(found), _) => found,
                // No shard exists, but the README defines splits: report the missing files as an error of the README.
                (None, Some(config)) if !config.splits.is_empty() => {
                    by_patterns(source, config, Vec::new())?;
                    return Ok(None);
                }
                (None, _) => return Ok(None),
            }
        }
    };
    let config = config.filter(|config| !config.splits.is_empty());
    let files = match &config {
        Some(config) => by_patterns(source, config, files)?,
        None => by_names(source, files)?,
    };
    let (name, mut shards) = select_split(source, files, asked)?;
    shards.sort_unstable();
    shards.dedup();
    // A README that lists files one by one can select a part of the dataset on purpose.
    let is_listed =
        config.is_some_and(|config| name.as_ref().is_some_and(|name| config.lists_files_of(name)));
    if let Some(name) = name.as_ref().filter(|_| !is_listed)
        && let Some(why) = numbered::missing_parts(&shards)
    {
        return Err(Error::dataset(source.path(&[]), format!("its split {name} {why}")));
    }
    Ok(Some(ChosenSplit { layout, name, shards, notes }))
}

fn select_split(
    source: &dyn DatasetSource,
    mut files: FilesBySplit,
    asked: Option<&str>,
) -> Result<(Option<String>, Vec<Vec<u8>>)> {
    let names: Vec<String> = files.keys().flatten().cloned().collect();
    let root = source.path(&[]);
    let root = root.display();
    match (asked, files.len()) {
        (None, 1) => Ok(files.pop_first().unwrap_or_default()),
        (Some(asked), _) if names.is_empty() => Err(no_splits_error(source, asked)),
        (Some(asked), _) => match files.remove_entry(&Some(asked.to_owned())) {
            Some(found) => Ok(found),
            None => {
                let message = format!("is {}, but {root} has {}", quoted(asked), listed(&names));
                Err(Error::config("split", message))
            }
        },
        (None, _) => {
            let message = format!("is not set, but {root} has {}: choose one", listed(&names));
            Err(Error::config("split", message))
        }
    }
}

pub(super) fn quoted(asked: &str) -> String {
    let (start, more): (String, _) = (asked.chars().take(80).collect(), asked.chars().nth(80).is_some());
    format!("{start:?}{}", if more { "..." } else { "" })
}

pub(super) fn no_splits_error(source: &dyn DatasetSource, asked: &str) -> Error {
    let root = source.path(&[]);
    let message = format!("is {}, but {} has no splits: omit split", quoted(asked), root.display());
    Error::config("split", message)
}

pub(super) fn directories_error(
    source: &dyn DatasetSource,
    layout: Layout,
    splits: &[Vec<u8>],
    asked: Option<&str>,
) -> Error {
    let names: Vec<String> = splits.iter().map(|name| String::from_utf8_lossy(name).into_owned()).collect();
    let root = source.path(&[]);
    let (asked, then) = match asked {
        None => (
            "not set".to_owned(),
            ": choose one, or open several of them as a list to read them as one dataset",
        ),
        Some(asked) => (quoted(asked), ""),
    };
    let message = format!(
        "is {asked}, but {} is not a dataset itself: it holds datasets of {} in {}{then}",
        root.display(),
        layout.title(),
        names.join(", ")
    );
    Error::config("split", message)
}

fn listed(names: &[String]) -> String {
    match names {
        [one] => format!("the split {one} alone"),
        names => format!("the splits {}", names.join(", ")),
    }
}

/// The configuration in the README, or the default one if the README has several.
fn chosen_config(source: &dyn DatasetSource) -> Result<Option<CardConfig>> {
    let Some(file) = open_optional(source, CARD.as_bytes())? else { return Ok(None) };
    let readme = read_beginning(source, CARD.as_bytes(), &file, dataset_card::LARGEST_CARD)?;
    let fail = |message: String| Error::dataset(source.path(CARD.as_bytes()), message);
    let mut configs = dataset_card::configs(&readme).map_err(fail)?;
    let at = configs.iter().position(|config| config.is_default);
    match (at, configs.len()) {
        (_, 0) => Ok(None),
        (Some(at), _) => Ok(Some(configs.swap_remove(at))),
        (None, 1) => Ok(configs.pop()),
        (None, _) => {
            let names: Vec<String> = configs.into_iter().map(|config| config.name).collect();
            Err(fail(format!(
                "has the configurations {}, but none is the default: open the directory with the files of one",
                names.join(", ")
            )))
        }
    }
}

/// All files below the root, sorted, without the files that every dataset skips. Records skipped files in directories.
/// The root was listed before, so its skipped files are not recorded.
fn files_below(search: DatasetSearch<'_>, notes: &mut Notes) -> Result<Vec<Vec<u8>>> {
    let source = search.source;
    let (mut waiting, mut files, mut seen) = (vec![Vec::new()], Vec::new(), HashSet::new());
    while let Some(directory) = waiting.pop() {
        let identity = source.identity(&directory)?;
        // Symbolic links can form cycles.
        if identity.is_some() && !seen.insert(identity) {
            continue;
        }
        let mut hub = HashSet::<&[u8]>::new();
        search.entries(&directory, |entry| {
            if let Some(why) = ignored_entry(entry, Contents::Images) {
                if !directory.is_empty() {
                    notes.skip(why, || text(&below(&directory, entry.name)));
                }
                return Ok(ControlFlow::Continue(()));
            }
            match entry.kind {
                EntryKind::Directory => {
                    hub.extend(HUB_CACHE.into_iter().filter(|name| *name == entry.name));
                    waiting.push(below(&directory, entry.name));
                }
                EntryKind::File => files.push(below(&directory, entry.name)),
                _ => {}
            }
            Ok(ControlFlow::Continue(()))
        })?;
        if hub.len() == HUB_CACHE.len() {
            let message = "is the cache of a repository with all its versions: open one of the directories in \
                           snapshots";
            return Err(Error::dataset(source.path(&directory), message));
        }
    }
    files.sort_unstable();
    Ok(files)
}

/// The shards in `files`, with their layout, which must be one that can have splits; `None` if there are no such
/// shards.
fn of_one_layout(
    source: &dyn DatasetSource,
    files: Vec<Vec<u8>>,
    config: Option<&CardConfig>,
) -> Result<Option<DetectedShards>> {
    let is_wanted = |name: &&Vec<u8>| {
        let Some(config) = config else { return true };
        let name = String::from_utf8_lossy(name);
        let is_below = config.directory.is_empty() || name.starts_with(&format!("{}/", config.directory));
        let mut patterns = config.splits.iter().flat_map(|(_, patterns)| patterns);
        is_below && (config.splits.is_empty() || patterns.any(|pattern| pattern.matches(&name)))
    };
    let wanted: Vec<&Vec<u8>> = files.iter().filter(is_wanted).collect();
    let mut found: Option<DetectedShards> = None;
    let with_splits =
        Layout::of_samples(Contents::Images).filter(|(_, layout_impl)| layout_impl.has_splits());
    for (layout, layout_impl) in with_splits {
        let is_shard =
            |name: &&&Vec<u8>| layout_impl.is_shard(name.rsplit(|&byte| byte == b'/').next().unwrap_or(name));
        let shards: Vec<Vec<u8>> = wanted.iter().filter(is_shard).map(|name| (*name).clone()).collect();
        let Some(first) = shards.first() else { continue };
        if let Some((other, others)) = &found {
            let message = format!(
                "is one of {}, but {} below the same root is one of {}: keep each dataset in a directory of its own",
                layout.title(),
                String::from_utf8_lossy(&others[0]),
                other.title()
            );
            return Err(Error::dataset(source.path(first), message));
        }
        found = Some((layout, shards));
    }
    Ok(found)
}

fn by_patterns(source: &dyn DatasetSource, config: &CardConfig, files: Vec<Vec<u8>>) -> Result<FilesBySplit> {
    let mut splits = FilesBySplit::new();
    for (split, patterns) in &config.splits {
        let own = splits.entry(Some(split.clone())).or_default();
        for pattern in patterns {
            let matches = files.iter().filter(|name| pattern.matches(&String::from_utf8_lossy(name)));
            let before = own.len();
            own.extend(matches.cloned());
            if own.len() == before {
                let message = format!(
                    "names {:?} for the split {split}, but there are no such Parquet or Arrow files below its \
                     directory",
                    pattern.text()
                );
                return Err(Error::dataset(source.path(CARD.as_bytes()), message));
            }
        }
    }
    Ok(splits)
}

fn by_names(source: &dyn DatasetSource, files: Vec<Vec<u8>>) -> Result<FilesBySplit> {
    let mut splits = FilesBySplit::new();
    let mut parents: BTreeMap<Option<String>, BTreeSet<String>> = BTreeMap::new();
    for name in files {
        let path = String::from_utf8_lossy(&name).into_owned();
        let split = split_of_path(&path);
        parents.entry(split.clone()).or_default().insert(common_directory(&path));
        splits.entry(split).or_default().push(name);
    }
    if let (2.., Some(unnamed)) = (splits.len(), splits.get(&None)) {
        let message = "has no split in its name, but files next to it have one: move it to a directory of its own, or \
                       list the files of the splits in README.md (configs, data_files)";
        return Err(Error::dataset(source.path(&unnamed[0]), message));
    }
    if let Some(parents) = parents.values().find(|parents| parents.len() > 1) {
        let shown: Vec<String> = parents.iter().take(5).map(|parent| format!("{parent:?}")).collect();
        let more = if parents.len() > shown.len() { ", ..." } else { "" };
        let message = format!(
            "has files of one split in several directories ({}{more}): open one of them, or several as a list to read \
             them as one dataset",
            shown.join(", ")
        );
        return Err(Error::dataset(source.path(&[]), message));
    }
    Ok(splits)
}

/// Returns the split that a path denotes: by the name of a directory, by `data/SPLIT-00000-of-00002`, or by a word in
/// the file name.
fn split_of_path(path: &str) -> Option<String> {
    let (directories, file) = path.rsplit_once('/').unwrap_or(("", path));
    let by_directory = directories.split('/').find_map(split_word).map(str::to_owned);
    let sharded = || {
        let is_data = directories.rsplit('/').next() == Some(DATA);
        let (split, rest) = file.split_once('-').filter(|_| is_data)?;
        let is_number = |text: &str| text.len() == 5 && text.bytes().all(|byte| byte.is_ascii_digit());
        let is_sharded = rest.get(..5).is_some_and(is_number)
            && rest.get(5..9) == Some("-of-")
            && rest.get(9..14).is_some_and(is_number);
        (is_sharded && !split.is_empty()).then(|| split.to_owned())
    };
    by_directory.or_else(sharded).or_else(|| split_word(file).map(str::to_owned))
}

/// Returns the directory of a file without the components that denote a split. It must be the same for all files of a
/// split.
fn common_directory(path: &str) -> String {
    let (directories, _) = path.rsplit_once('/').unwrap_or(("", path));
    let parts: Vec<&str> = directories.split('/').filter(|part| split_word(part).is_none()).collect();
    parts.join("/")
}

/// The split that a directory name denotes, in upper or lower case and with or without a number: `Train`, `val2017`,
/// `test_set`.
pub(super) fn directory_split(name: &[u8]) -> Option<&'static str> {
    let name = String::from_utf8_lossy(name).to_lowercase();
    let mut parts = parts(&name).filter(|part| !part.is_empty() && !NEUTRAL.contains(part));
    let split = split_word(parts.next()?)?;
    parts.next().is_none().then_some(split)
}

/// Whether a split is for evaluation, judged by the first word in its name that denotes a split.
pub fn is_for_evaluation(split: &str) -> bool {
    split_word(&split.to_ascii_lowercase()).is_some_and(|split| split != "train")
}

fn parts(name: &str) -> impl Iterator<Item = &str> {
    name.split(|c: char| matches!(c, '-' | '.' | '_' | ' ') || c.is_ascii_digit())
}

fn split_word(name: &str) -> Option<&'static str> {
    parts(name).find_map(|part| WORDS.iter().find(|(word, _)| *word == part).map(|(_, split)| *split))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn splits_for_evaluation_are_known_by_their_names() {
        for split in
            ["validation", "val", "test", "Test", "dev", "val2017", "validation_matched", "test-clean"]
        {
            assert!(is_for_evaluation(split), "{split}");
        }
        for split in ["train", "train_val", "unlabeled", "constraint", "latest", ""] {
            assert!(!is_for_evaluation(split), "{split}");
        }
    }

    #[test]
    fn paths_say_splits() {
        let said = [
            ("data/train-00000-of-00002.parquet", Some("train")),
            ("data/unlabeled-00000-of-00002-0123abcd.parquet", Some("unlabeled")),
            ("unlabeled-00000-of-00002.parquet", None),
            ("x/val/part.parquet", Some("validation")),
            ("train/test_1.parquet", Some("train")),
            ("my_test_file.parquet", Some("test")),
            ("cifar10-train.arrow", Some("train")),
            ("training.parquet", Some("train")),
            ("constraint.parquet", None),
            ("0000.parquet", None),
        ];
        for (path, split) in said {
            assert_eq!(split_of_path(path).as_deref(), split, "{path}");
        }
        for (name, split) in [
            ("val2017", Some("validation")),
            ("Training", Some("train")),
            ("test_tubes", None),
            ("1", None),
            ("seg_test", Some("test")),
            ("images", None),
        ] {
            assert_eq!(directory_split(name.as_bytes()), split, "{name}");
        }
        let paths = ["train/a.parquet", "data/train-1.parquet", "x/test/y.parquet", "a.parquet"];
        assert_eq!(paths.map(common_directory), ["", "data", "x", ""]);
    }
}
