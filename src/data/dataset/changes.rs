//! Checks at every start, before anything is read, whether a dataset still matches its index.
//!
//! The check reads the stamps of the root, of every directory and of every shard, with one `stat` each. Only
//! directories and shards with a new stamp are listed or parsed again. Many events change a stamp but no sample: a
//! temporary file, `chmod`, `touch`, a restored backup. If the contents still match the index, the current stamp is
//! accepted. Overwriting a file does not change the stamp of its directory. Such a change is detected when the file is
//! read, by the size of the file, and also by the file's stamp if a cache has a copy. → `tests/data/changes.rs`

use super::arrays::ArrayFile;
use super::bad_shards::fingerprint_without;
use super::below::DatasetSearch;
use super::build::{FileRow, GroupRows, ShardRows};
use super::cancel::Cancel;
use super::layouts::{Layout, ShardLayout, ShardParser};
use super::manifest::{self, ManifestRows};
use super::member::MemberRow;
use super::names_stamp::{NamesStamp, stamp_of_names};
use super::open::{self, IndexProgress};
use super::packed::PackedManifest;
use super::parallel::for_each;
use super::part::DatasetPart;
use super::places::{ROOT_SURVEY, SkippedByReason};
use super::shards::{ReadShard, ShardContents};
use super::{IndexOptions, Stamp, folder, pairs, shards, survey};
use crate::source::is_gone;
use base::error::{Error, Result};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock, PoisonError};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Change {
    pub(super) path: PathBuf,
    /// A description of the difference: a phrase that follows the path in the message.
    pub(super) message: String,
}

#[derive(Default)]
pub(super) struct ChangedStamps {
    root: bool,
    groups: Vec<usize>,
}

#[derive(Default)]
pub(super) struct Comparison {
    /// The stamp of the root, if the root matches the index.
    pub(super) root: Option<Stamp>,
    pub(super) same: Vec<(usize, Stamp)>,
    /// The differences that were found. Differences of the root come first.
    pub(super) changes: Vec<Change>,
    pub(super) different: Vec<usize>,
    /// The files that are skipped in the root and in each directory that was listed.
    pub(super) left_out: Vec<(Vec<u8>, SkippedByReason)>,
}

impl ChangedStamps {
    /// Finds the stamps that changed since `index` was made.
    ///
    /// # Errors
    /// [`Error::Io`] for a file or directory that exists but cannot be checked.
    pub(super) fn since(index: &DatasetPart) -> Result<Self> {
        // Read the root first: its listing can include the stamps of shards, so that they need no requests.
        let names = stamp_of_root(index)?;
        let root = names.is_none_or(|names| index.differs(index.root_stamp(), names.seen()));
        let groups: Vec<usize> = (0..index.groups()).collect();
        let mut groups = index.owners(index.moved(&groups, |group| index.group_stamp(group))?);
        let is_described =
            index.layout().shards().is_some_and(|layout_impl| !layout_impl.description_files().is_empty());
        let same_descriptions = |names: NamesStamp| names.same_descriptions(index.root_stamp());
        let is_other = is_described && !names.is_some_and(same_descriptions);
        if is_other || root && index.layout() == Layout::Zarr {
            // The contents of any shard might be interpreted differently, or an array may have other chunks.
            groups = (0..index.shards()).collect();
        }
        Ok(Self { root, groups })
    }

    pub(super) fn all(index: &DatasetPart) -> Self {
        Self { root: true, groups: (0..index.shards()).collect() }
    }

    pub(super) fn is_empty(&self) -> bool {
        !self.root && self.groups.is_empty()
    }

    /// Lists the directories and parses the shards whose stamps changed, and compares them with the index. Without
    /// `all`, stops soon after the first difference, because one difference is enough to cause a rebuild.
    ///
    /// # Errors
    /// [`Error::Io`] for a file or directory that exists but cannot be read; [`Error::Dataset`] after cancellation.
    pub(super) fn compare(
        self,
        index: &DatasetPart,
        threads: usize,
        all: bool,
        cancel: &Cancel,
    ) -> Result<Comparison> {
        let mut seen = Comparison::default();
        // If the names of shards differ, the change of the root already names the missing shards.
        let mut gone_are_told = false;
        if self.root {
            let names = stamp_of_root(index)?;
            let compared = compare_root(index, &mut seen.left_out, cancel);
            gone_are_told = index.layout().is_sharded() && matches!(compared, Ok(Some(_)));
            seen.changes.extend(changed(&index.base, compared)?);
            seen.root = names.map(|names| index.known(names.stamp)).filter(|_| seen.changes.is_empty());
        } else {
            seen.root = Some(index.root_stamp());
        }
        let below = index.below();
        let look = GroupLook { index, below: &below, parser: OnceLock::new(), cancel };
        let seen = Mutex::new(seen);
        let lock = || seen.lock().unwrap_or_else(PoisonError::into_inner);
        for_each(threads, self.groups.len(), |i| {
            cancel.check(&index.root)?;
            if !lock().changes.is_empty() && !all {
                return Ok(());
            }
            let group = self.groups[i];
            let (mut stamp, mut left_out, mut files) = (None, None, Vec::new());
            let compared = look.compare(group).map(|found| {
                (stamp, left_out, files) = (Some(found.stamp), found.left_out, found.files);
                found.change
            });
            let is_told =
                gone_are_told && matches!(&compared, Err(Error::Io { source, .. }) if is_gone(source));
            let change = changed(&index.directory_or_shard(group), compared)?.filter(|_| !is_told);
            let mut seen = lock();
            seen.left_out.extend(left_out.map(|skipped| (index.group_path(group).to_vec(), skipped)));
            match (change, stamp) {
                (None, Some(stamp)) => seen.same.extend(index.known_stamps(group, stamp, files)),
                (change, _) => {
                    seen.different.push(group);
                    seen.changes.extend(change);
                }
            }
            Ok(())
        })?;
        Ok(seen.into_inner().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Checks all shards that can be read and that matter to the loader, and the files and directories that belong to them,
/// like [`accept_shard`]. On servers, only shards are checked, because each check is a request.
///
/// # Errors
/// The errors of [`accept_shard`].
pub(super) fn accept_shards(index: &DatasetPart) -> Result<()> {
    let is_read = |&group: &usize| index.notes.bad_shard(index.group_path(group)).is_none();
    let count = if index.is_remote() { index.shards() } else { index.groups() };
    let groups = index.read_groups().into_iter().filter(|&group| group < count).filter(is_read);
    let groups: Vec<usize> = groups.collect();
    let moved = index.moved(&groups, |group| index.stamp_within(group))?;
    moved.into_iter().try_for_each(|group| accept_shard(index, group))
}

/// Checks a shard whose stamp changed during a run. If the shard still holds the samples in the index, the shard's
/// current stamp is accepted from now on.
///
/// # Errors
/// [`Error::DatasetChanged`] if the shard holds other samples; [`Error::Io`] if the shard cannot be read.
pub(super) fn accept_shard(index: &DatasetPart, group: usize) -> Result<()> {
    // Only one thread at a time checks shards. The next thread then finds the shard accepted and does not parse it
    // again.
    let _alone = index.accepting.lock().unwrap_or_else(PoisonError::into_inner);
    let found = index.source.stamp(index.group_path(group))?;
    if !index.differs(index.stamp_within(group), found) {
        return Ok(());
    }
    let (mut stamp, mut files) = (None, Vec::new());
    let Some(&group) = index.owners(vec![group]).first() else { return Ok(()) };
    let (below, cancel) = (HashMap::new(), Cancel::default());
    let look = GroupLook { index, below: &below, parser: OnceLock::new(), cancel: &cancel };
    let compared = look.compare(group).map(|found| {
        (stamp, files) = (Some(found.stamp), found.files);
        found.change
    });
    match (changed(&index.directory_or_shard(group), compared)?, stamp) {
        (Some(Change { path, message }), _) => Err(Error::DatasetChanged { path, message }),
        (None, Some(stamp)) => {
            let stamps = index.known_stamps(group, stamp, files);
            stamps.for_each(|(group, stamp)| index.accept_stamp(group, stamp));
            Ok(())
        }
        (None, None) => Ok(()),
    }
}

/// The stamp that changes when names in the dataset of `index` change; `None` if the root does not exist.
fn stamp_of_root(index: &DatasetPart) -> Result<Option<NamesStamp>> {
    let groups = 0..if index.layout().is_sharded() { index.shards() } else { 0 };
    let described = index.layout().shards().map(ShardLayout::description_files).unwrap_or_default();
    let shards = groups.map(|group| index.group_path(group));
    stamp_of_names(&*index.source, shards, &described, index.inodes)
}

/// The difference in `compared`. An error that means that `path` cannot match the index also becomes a difference.
fn changed(path: &Path, compared: Result<Option<Change>>) -> Result<Option<Change>> {
    match compared {
        Ok(change) => Ok(change),
        Err(Error::Dataset { path, message }) => Ok(Some(Change { path, message })),
        Err(Error::Io { source, .. }) if is_gone(&source) => {
            Ok(Some(Change { path: path.to_path_buf(), message: "no longer exists".to_owned() }))
        }
        Err(error) => Err(error),
    }
}

fn compare_root(
    index: &DatasetPart,
    left_out: &mut Vec<(Vec<u8>, SkippedByReason)>,
    cancel: &Cancel,
) -> Result<Option<Change>> {
    if index.layout() == Layout::Parallel {
        // All directories are compared as one group.
        return Ok(None);
    }
    let found = survey::survey(index.search(cancel), index.split.as_deref())?;
    let change = |message: String| Ok(Some(Change { path: index.base.clone(), message }));
    if found.layout != index.layout() {
        let (now, then) = (found.layout.title(), index.layout().title());
        return change(format!("holds {now}, but held {then} when it was indexed"));
    }
    if found.layout == Layout::Manifest {
        // The only group of a manifest is compared instead of the root.
        return Ok(None);
    }
    left_out.push((ROOT_SURVEY.to_vec(), found.notes.skipped));
    let whole =
        |manifest: &PackedManifest| fingerprint_without(manifest.fingerprint(), &index.notes.bad_shards);
    if found.packed.is_some_and(|manifest| whole(&manifest) != index.fingerprint()) {
        return change("was packed from another dataset than when it was indexed".to_owned());
    }
    let (found, known, kind): (_, Vec<&[u8]>, _) = if index.layout().is_sharded() {
        (found.shards, (0..index.shards()).map(|group| index.group_path(group)).collect(), "shard")
    } else {
        (found.classes, index.class_names(), "class")
    };
    let found: Vec<&[u8]> = found.iter().map(Vec::as_slice).collect();
    difference(&known, &found, kind).map_or(Ok(None), change)
}

struct GroupLook<'a> {
    index: &'a DatasetPart,
    below: &'a HashMap<&'a [u8], Vec<&'a [u8]>>,
    /// Created when the first shard is parsed, because creating it reads the files that describe shards.
    parser: OnceLock<Box<dyn ShardParser>>,
    cancel: &'a Cancel,
}

struct GroupSeen {
    stamp: Stamp,
    change: Option<Change>,
    left_out: Option<SkippedByReason>,
    /// The files that belong to a shard.
    files: Vec<ArrayFile>,
}

impl GroupLook<'_> {
    fn parser(&self, layout_impl: &dyn ShardLayout) -> Result<&dyn ShardParser> {
        if let Some(parser) = self.parser.get() {
            return Ok(&**parser);
        }
        let parser = layout_impl.parser(&*self.index.source, &self.index.reading())?;
        Ok(&**self.parser.get_or_init(|| parser))
    }

    fn compare(&self, group: usize) -> Result<GroupSeen> {
        let &Self { index, below, cancel, .. } = self;
        let path = index.group_path(group);
        let full = index.directory_or_shard(group);
        let (mut left_out, mut files) = (None, Vec::new());
        let (found, message) = if let Some(manifest) = index.source.manifest() {
            let threads = open::threads(&IndexOptions::default(), manifest, index.layout());
            let (reading, progress) = (index.reading(), IndexProgress::new(false));
            let found =
                manifest::read(manifest, index.file.header.contents, &reading, threads, &progress, cancel)?;
            (found.group.stamp, compare_manifest(index, group, &found))
        } else if index.layout() == Layout::Parallel {
            let (found, message) = pairs::compare(index, index.search(cancel))?;
            (left_out, files) = (Some(found.notes.skipped), found.directories);
            (found.group.stamp, message)
        } else if let Some(layout_impl) = index.layout().shards() {
            let parser = self.parser(layout_impl)?;
            let ReadShard { stamp, found } = shards::read(&*index.source, path, parser, cancel)?;
            if index.notes.bad_shard(path).is_some() {
                let message = "can be read now, but could not be read when it was indexed".to_owned();
                let change = found.is_ok().then_some(Change { path: full, message });
                return Ok(GroupSeen { stamp, change, left_out, files });
            }
            let ShardContents { mut rows, mut findings } = found?;
            let changed = |message: String| {
                let change = Some(Change { path: full.clone(), message });
                Ok(GroupSeen { stamp, change, left_out: None, files: Vec::new() })
            };
            if let Some((footer, identity)) = &findings.packed
                && let Some(manifest) = PackedManifest::find(&*index.source)?
                && let Err(message) =
                    manifest.check_shard(group, manifest.samples_of(group).start, footer, identity)
            {
                return changed(message);
            }
            let known = (!index.notes.unlabeled).then(|| index.class_names());
            if let Some(unknown) = findings.take_classes(&mut rows.samples, known) {
                return changed(format!(
                    "has the class {unknown:?}, which no sample had when it was indexed"
                ));
            }
            let classes: Vec<&[u8]> = findings.classes.iter().map(String::as_bytes).collect();
            if !index.notes.unlabeled && !classes.is_empty() && classes != index.class_names() {
                return changed("has other class names than when it was indexed".to_owned());
            }
            if index.layout().is_array() {
                let change =
                    index.different_array(group, &rows).map(|message| Change { path: full, message });
                return Ok(GroupSeen { stamp, change, left_out, files: rows.files });
            }
            // In a dataset without faults, either all samples have labels or no sample has one.
            let at_fault = findings.unlabeled.as_ref().or(findings.unusable.as_ref());
            let odd = match &index.notes.label_fault {
                None if index.notes.unlabeled => findings.labeled.or(findings.unusable),
                None => at_fault.cloned(),
                Some(fault) if fault.is_of(path) && at_fault.is_none() => findings.labeled,
                Some(_) => None,
            };
            (stamp, compare_shard(index, group, &rows, odd))
        } else {
            let (found, directories, notes) = folder::list_again(index.search(cancel), path)?;
            left_out = Some(notes.skipped);
            let directories: Vec<&[u8]> = directories.iter().map(Vec::as_slice).collect();
            let known = below.get(path).map(Vec::as_slice).unwrap_or_default();
            let message = difference(known, &directories, "directory").or_else(|| {
                let GroupRows::Files { names, files, .. } = &found.rows else { return None };
                different_files(index, group, (names, files))
            });
            (found.stamp, message)
        };
        let change = message.map(|message| Change { path: full, message });
        Ok(GroupSeen { stamp: found, change, left_out, files })
    }
}

fn compare_manifest(index: &DatasetPart, group: usize, found: &ManifestRows) -> Option<String> {
    let GroupRows::Listed(rows) = &found.group.rows else {
        return Some("is not a manifest any more".to_owned());
    };
    let (known, samples) = (index.files_of(group), index.samples_of_group(group));
    let (then, now) = (samples.end - samples.start, rows.files.len() as u64);
    if now != then {
        return Some(format!("lists {now} files, but listed {then} when it was indexed"));
    }
    for ((name, then), (own, now)) in known.zip(rows.files()) {
        let text = |name: &[u8]| String::from_utf8_lossy(name).into_owned();
        if name != own {
            return Some(format!(
                "lists {} in place of {}, which it listed when it was indexed",
                text(own),
                text(&name)
            ));
        }
        if then != now {
            return Some(format!(
                "lists {}, which has {now} bytes, but had {then} when it was indexed",
                text(own)
            ));
        }
    }
    let labels = samples.clone().zip(&rows.table.samples);
    let classes: Vec<&[u8]> = found.classes.iter().map(Vec::as_slice).collect();
    if classes != index.class_names() || found.notes.unlabeled != index.notes.unlabeled {
        return Some("has other classes than when it was indexed".to_owned());
    }
    if let Some((sample, row)) = labels.into_iter().find(|(sample, row)| index.label(*sample) != row.label) {
        let then = index.label(sample);
        return Some(format!(
            "has label {} for its sample {sample}, but had {then} when it was indexed",
            row.label
        ));
    }
    let column = index.different_column(samples.start, &rows.table)?;
    Some(format!("has other values in its column {column:?} than when it was indexed"))
}

/// Compares the files of a directory, given with the buffer of their names.
pub(super) fn different_files(
    index: &DatasetPart,
    group: usize,
    (names, files): (&[u8], &[FileRow]),
) -> Option<String> {
    let known: Vec<(Vec<u8>, u32)> = index.files_of(group).collect();
    let then: Vec<&[u8]> = known.iter().map(|(name, _)| name.as_slice()).collect();
    let now: Vec<&[u8]> = files.iter().map(|file| file.name_in(names)).collect();
    difference(&then, &now, "file").or_else(|| {
        let (file, (name, then)) = files.iter().zip(&known).find(|(file, (_, then))| file.length != *then)?;
        let name = String::from_utf8_lossy(name);
        Some(format!("holds {name}, which has {} bytes, but had {then} when it was indexed", file.length))
    })
}

fn compare_shard(
    index: &DatasetPart,
    group: usize,
    found: &ShardRows,
    odd: Option<String>,
) -> Option<String> {
    let known = index.samples_of_group(group);
    let (then, now) = (known.end - known.start, found.samples.len() as u64);
    let keys = index.keys();
    if now != then {
        return Some(format!("holds {now} samples, but held {then} when it was indexed"));
    }
    for (sample, packed) in known.clone().zip(&found.samples) {
        let extent = index.image(sample);
        if (extent.offset, extent.length) != (packed.offset, packed.length) {
            return Some(format!("has another sample at byte {} than when it was indexed", extent.offset));
        }
        let label = index.label(sample);
        if label != packed.label {
            let (at, now) = (extent.offset, packed.label);
            return Some(format!(
                "has label {now} for its sample at byte {at}, but had {label} when it was indexed"
            ));
        }
    }
    let layout_impl =
        |(at, sample): (usize, u64)| index.stored_header_summary(sample) == found.header_summaries.get(at);
    if let Some((_, sample)) = (0..).zip(known.clone()).find(|&seen| !layout_impl(seen)) {
        let at = index.image(sample).offset;
        return Some(format!("has another packed image at byte {at} than when it was indexed"));
    }
    if !index.blocks().of_group(group as u32).eq(found.blocks.iter().copied()) {
        return Some("has other compressed blocks than when it was indexed".to_owned());
    }
    let (now, then) = if index.notes.unlabeled { ("a", "none") } else { ("no", "one") };
    if let Some(sample) = odd {
        return Some(format!(
            "has {now} label for its sample {sample:?}, but had {then} when it was indexed"
        ));
    }
    if let Some(column) = index.different_column(known.start, found) {
        return Some(format!("has other values in its column {column:?} than when it was indexed"));
    }
    // Compare members last: a change of members does not matter to a run that reads only images.
    let moved =
        |(sample, rows): &(u64, &[MemberRow])| index.has_other_members(*sample, &keys, rows, &found.keys);
    let (sample, _) = known.zip(found.by_sample()).find(moved)?;
    let at = index.image(sample).offset;
    Some(format!("has other members for its sample at byte {at} than when it was indexed"))
}

fn difference(then: &[&[u8]], now: &[&[u8]], kind: &str) -> Option<String> {
    if then == now {
        return None;
    }
    let at = then.iter().zip(now).take_while(|(then, now)| then == now).count();
    let text = |name: &[u8]| String::from_utf8_lossy(name).into_owned();
    let counts = match (then.len(), now.len()) {
        (then, now) if then == now => String::new(),
        (then, now) => format!(" ({now} now, {then} when it was indexed)"),
    };
    match (then.get(at), now.get(at)) {
        (Some(then), Some(now)) if now < then => Some(format!("has a new {kind} {}{counts}", text(now))),
        (None, Some(now)) => Some(format!("has a new {kind} {}{counts}", text(now))),
        (Some(then), _) => Some(format!("has no {kind} {} any more{counts}", text(then))),
        (None, None) => None,
    }
}

impl DatasetPart {
    fn search<'a>(&'a self, cancel: &'a Cancel) -> DatasetSearch<'a> {
        DatasetSearch { source: &*self.source, contents: self.file.header.contents, cancel }
    }

    fn directory_or_shard(&self, group: usize) -> PathBuf {
        self.source.path(self.group_path(group))
    }

    fn below(&self) -> HashMap<&[u8], Vec<&[u8]>> {
        let mut below: HashMap<&[u8], Vec<&[u8]>> = HashMap::new();
        if self.layout().is_sharded() {
            return below;
        }
        for path in (0..self.groups()).map(|group| self.group_path(group)).filter(|path| !path.is_empty()) {
            let (above, name) = match path.iter().rposition(|&byte| byte == b'/') {
                Some(slash) => (&path[..slash], &path[slash + 1..]),
                None => (&[][..], path),
            };
            below.entry(above).or_default().push(name);
        }
        below.values_mut().for_each(|names| names.sort_unstable());
        below
    }
}
