//! Splits that are directories of a root, such as `train/` and `val/`. Each directory is a separate dataset.
//!
//! A directory is a split if it has the name of a split and holds class directories, images or shards. The rules for
//! tables, whose files belong to splits by their own names or by a README, are in `splits.rs`.

use super::Contents;
use super::below::{DatasetSearch, is_sample, search_directories, shard_layout};
use super::ignored::ignored_entry;
use super::layouts::marked_directories;
use super::samples::text;
use super::splits::{directory_split, quoted};
use super::survey::below;
use crate::source::EntryKind;
use base::error::{Error, Result};
use std::ops::ControlFlow;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DirectoryContents {
    /// Samples without classes: images, or files that need not be images.
    Samples,
    /// Directories with samples.
    Classes,
    Shards,
}

/// Finds the directory of the dataset that is the split `asked`. Its name is either `asked` itself, or another name of
/// the same split, such as `val` for "validation". Returns `None` if there is no such directory.
///
/// # Errors
/// [`Error::Io`] for a directory that cannot be listed; [`Error::Config`] if several directories have such names.
pub(super) fn chosen(search: DatasetSearch<'_>, asked: &str) -> Result<Option<Vec<u8>>> {
    let source = search.source;
    // No known file system allows longer names.
    let is_name = !asked.is_empty() && asked.len() <= 255 && !asked.contains(['/', '\0']);
    if !is_name || asked == "." || asked == ".." {
        return Ok(None);
    }
    let own = asked.as_bytes().to_vec();
    if marked_directories(source, std::slice::from_ref(&own), search.contents)?.is_some() {
        return Ok(Some(own));
    }
    if source.manifest().is_some() || source.named_files().is_some() || !source.is_directory()? {
        return Ok(None);
    }
    let (directories, _) = list(search, &[], |_| false)?;
    // A number in a name distinguishes splits, such as `train2014` and `train2017`.
    let word = Some(&own).filter(|own| own.iter().all(u8::is_ascii_alphabetic));
    let meant = word.and_then(|word| directory_split(word));
    let has_own = directories.contains(&own);
    let is_meant = |name: &&Vec<u8>| {
        directory_split(name).is_some_and(|split| if has_own { **name == own } else { Some(split) == meant })
    };
    let mut found = Vec::new();
    for name in directories.iter().filter(is_meant) {
        if contents_of(search, name, |_| true)?.is_some() {
            found.push(name.clone());
        }
    }
    if found.len() > 1 {
        let root = source.path(&[]);
        let message =
            format!("is {}, but {} has {}: name one of them", quoted(asked), root.display(), listed(&found));
        return Err(Error::config("split", message));
    }
    Ok(found.pop())
}

/// Fails if `directories` are splits of the root and no split was chosen. `in_root` is a shard in the root itself. With
/// [`Contents::Files`], a directory that has the name of a split but no class directories is a class, not a split.
///
/// # Errors
/// [`Error::Config`] for splits that do not include `asked`; [`Error::Dataset`] if it is ambiguous whether directories
/// are splits or classes; [`Error::Io`] for a directory that cannot be listed.
pub(super) fn refuse(
    search: DatasetSearch<'_>,
    directories: &[Vec<u8>],
    in_root: Option<&[u8]>,
    asked: Option<&str>,
) -> Result<()> {
    let (called, others): (Vec<Vec<u8>>, Vec<Vec<u8>>) =
        directories.iter().cloned().partition(|name| directory_split(name).is_some());
    let mut splits = Vec::new();
    let mut are_datasets = false;
    for name in called {
        if let Some(held) = contents_of(search, &name, |held| held == DirectoryContents::Shards)? {
            are_datasets |= held != DirectoryContents::Samples;
            splits.push(name);
        }
    }
    let Some(first) = splits.first().map(|name| text(name)) else { return Ok(()) };
    let root = search.source.path(&[]);
    let path = root.join(&first);
    if search.contents == Contents::Files {
        let message = format!(
            "has {}, which have names of splits and hold directories: open one of them, such as {}, or several as a \
             list to read them as one dataset; if they are classes, rename them",
            listed(&splits),
            path.display()
        );
        return if are_datasets { Err(Error::dataset(root, message)) } else { Ok(()) };
    }
    let found = search_directories(search, &others)?;
    let elsewhere = in_root.or(found.sample.as_deref()).or(found.plain_shard()).map(text);
    let splits = listed(&splits);
    match (elsewhere, asked) {
        (Some(_), _) if !are_datasets => Ok(()),
        (Some(elsewhere), _) => {
            let message = format!(
                "is ambiguous: {splits} may be splits by name, or part of one dataset with {elsewhere}. To read a \
                 split, set split={first:?} or open {}; to read all as one dataset, rename the directories",
                path.display()
            );
            Err(Error::dataset(root, message))
        }
        (None, None) => {
            let classes = if are_datasets { "" } else { "; if they are classes, rename them" };
            let message = format!(
                "is not set, but {} has {splits} instead of one dataset: choose one, or open several of them as a list \
                 to read them as one dataset{classes}",
                root.display()
            );
            Err(Error::config("split", message))
        }
        (None, Some(asked)) => {
            let message = format!("is {}, but {} has {splits}", quoted(asked), root.display());
            Err(Error::config("split", message))
        }
    }
}

/// The number of class directories that are searched for splits. The dataset is refused only if each of these
/// directories has splits.
const CLASSES_SEEN: usize = 4;

/// Refuses class directories that contain splits with classes. Without this check, all samples of such a directory
/// would be one class.
///
/// # Errors
/// [`Error::Dataset`] for such directories; [`Error::Io`] for a directory that cannot be listed.
pub(super) fn refuse_in_classes(search: DatasetSearch<'_>, classes: &[Vec<u8>]) -> Result<()> {
    let mut found = Vec::new();
    for class in classes.iter().take(CLASSES_SEEN) {
        let (directories, _) = list(search, class, |_| true)?;
        let mut splits = Vec::new();
        for path in directories {
            let name = path.rsplit(|&byte| byte == b'/').next().unwrap_or(&path);
            let is_split = directory_split(name).is_some()
                && contents_of(search, &path, |held| held == DirectoryContents::Shards)?
                    == Some(DirectoryContents::Classes);
            if is_split {
                splits.push(path);
            }
        }
        if splits.is_empty() {
            return Ok(());
        }
        found.extend(splits);
    }
    let Some(first) = found.first().map(|path| text(path)) else { return Ok(()) };
    let root = search.source.path(&[]);
    let message = format!(
        "is ambiguous: {} may be splits by name, or directories in the classes {}. To read a split, open {}, or \
         several as a list to read them as one dataset; to read all as classes, rename the directories",
        listed(&found),
        classes.iter().take(CLASSES_SEEN).map(|name| text(name)).collect::<Vec<_>>().join(", "),
        root.join(&first).display()
    );
    Err(Error::dataset(root, message))
}

/// Determines what a directory contains; `None` if it is not a dataset. The search ends as soon as `enough` is true for
/// the result.
fn contents_of(
    search: DatasetSearch<'_>,
    directory: &[u8],
    enough: fn(DirectoryContents) -> bool,
) -> Result<Option<DirectoryContents>> {
    let (directories, own) = list(search, directory, enough)?;
    if own.is_some_and(enough) || search_directories(search, &directories)?.sample.is_none() {
        return Ok(own);
    }
    Ok(Some(DirectoryContents::Classes))
}

/// Lists a directory: the paths of its subdirectories, and the shards or samples that make it a dataset. The listing
/// ends as soon as `enough` is true.
fn list(
    search: DatasetSearch<'_>,
    directory: &[u8],
    enough: fn(DirectoryContents) -> bool,
) -> Result<(Vec<Vec<u8>>, Option<DirectoryContents>)> {
    let contents = search.contents;
    let (mut directories, mut own) = (Vec::new(), None);
    search.entries(directory, |entry| {
        match entry.kind {
            _ if ignored_entry(entry, contents).is_some() => {}
            EntryKind::Directory => directories.push(below(directory, entry.name)),
            EntryKind::File => match shard_layout(entry.name, contents).and_then(|layout| layout.shards()) {
                Some(layout_impl) if !layout_impl.has_splits() => own = Some(DirectoryContents::Shards),
                Some(_) => {}
                None if is_sample(entry.name, contents) => own = own.or(Some(DirectoryContents::Samples)),
                None => {}
            },
            _ => {}
        }
        Ok(if own.is_some_and(enough) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    })?;
    directories.sort_unstable();
    Ok((directories, own))
}

fn listed(names: &[Vec<u8>]) -> String {
    let names: Vec<String> = names.iter().map(|name| text(name)).collect();
    match &names[..] {
        [one] => format!("the directory {one}"),
        names => format!("the directories {}", names.join(", ")),
    }
}
