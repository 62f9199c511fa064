//! Finds out what kind of dataset a root holds: by the names in it, and by contents where the names are ambiguous.

mod named;

use super::cancel::Cancel;
use super::dataset_card::CARD;
use super::kind::{image_extensions, is_image_file};
use super::layouts::{RecordShards, ShardLayout, TarShards, marked_directories};
use super::left_out::LeftOut;
use super::packed::{self, PackedManifest};
use super::splits::{self, ChosenSplit};
use super::{Contents, Layout, Notes, numbered, shards};
use crate::error::{Error, Result};
use crate::source::{DatasetSource, EntryKind};
use named::{compressed, named, nested, single};
use std::collections::{BTreeSet, HashSet};
use std::ops::ControlFlow;

/// The directories or shards that must be indexed.
pub(super) struct Survey {
    pub(super) layout: Layout,
    /// The directories that are classes. Without any, all files below the root are of class 0.
    pub(super) classes: Vec<Vec<u8>>,
    /// The names of the shards; one empty name where the root itself is the shard.
    pub(super) shards: Vec<Vec<u8>>,
    pub(super) notes: Notes,
    /// The message when no sample is found.
    pub(super) nothing: String,
    /// The manifest, where the dataset is packed.
    pub(super) packed: Option<PackedManifest>,
    /// The split that the shards are.
    split: Option<String>,
}

/// What is in the root of a dataset.
#[derive(Default)]
struct RootListing {
    directories: Vec<Vec<u8>>,
    shards: Vec<Vec<u8>>,
    /// Tars that are compressed, which are no shards beside class directories.
    compressed: Vec<Vec<u8>>,
    /// Shards of images that are no tars, each with the place of its layout in the table.
    tables: Vec<(Layout, Vec<u8>)>,
    /// Files that may lie beside TFRecord shards without being shards.
    descriptions: Vec<Vec<u8>>,
    /// The first other file, by name.
    other: Option<Vec<u8>>,
    notes: Notes,
    /// The files that may say what the dataset is: READMEs, manifests, lists of shards.
    special: BTreeSet<Vec<u8>>,
    /// The first shard that only a list which is not there would make a dataset, and what the list is called.
    unlisted: Option<(Vec<u8>, Layout, &'static str)>,
}

/// Shards of a layout, and what knows them.
pub(super) type OtherShards = (Layout, &'static dyn ShardLayout, Vec<Vec<u8>>);

/// The endings of names of files that describe the TFRecord shards beside them.
const DESCRIPTIONS: [&str; 8] = [".json", ".txt", ".md", ".csv", ".pbtxt", ".idx", ".index", ".sha256"];

/// The files in which Hugging Face's `imagefolder` looks for labels, as far as `labels=` reads them.
const METADATA: [&[u8]; 2] = [b"metadata.csv", b"metadata.jsonl"];

/// Surveys the root of `source`, or what is the split of this name in it.
pub(super) fn survey(
    source: &dyn DatasetSource,
    contents: Contents,
    split: Option<&str>,
    cancel: &Cancel,
) -> Result<Survey> {
    let survey = whole(source, contents, split, cancel)?;
    if let Some((name, same)) = numbered::twice(&survey.shards) {
        let message =
            format!("seems to be {} unpacked, which lies beside it: remove one of the two", text(&same));
        return Err(Error::dataset(source.path(&name), message));
    }
    match split {
        Some(split) if survey.split.is_none() => {
            match marked_directories(source, &survey.classes, contents)? {
                Some((layout, others)) => Err(splits::are_directories(source, layout, &others, Some(split))),
                None => Err(splits::none_there(source, split)),
            }
        }
        _ => Ok(survey),
    }
}

fn whole(
    source: &dyn DatasetSource,
    contents: Contents,
    split: Option<&str>,
    cancel: &Cancel,
) -> Result<Survey> {
    if source.manifest().is_some() {
        return Ok(Survey {
            layout: Layout::Manifest,
            classes: Vec::new(),
            shards: Vec::new(),
            notes: Notes::default(),
            nothing: "lists no file".to_owned(),
            packed: None,
            split: None,
        });
    }
    if let Some(names) = source.named_files() {
        return named(source, names, contents, cancel);
    }
    if !source.is_directory()? {
        // A link has the kind of what it leads to.
        let path = if source.is_remote() { source.path(&[]) } else { source.canonical()? };
        return single(source, path.file_name().unwrap_or_default(), contents, cancel);
    }
    // To look for each file that may say what the dataset is costs a server's answer, so that a listing comes first.
    // Where the server shows none, they are found all the same.
    let listing = source.is_remote().then(|| list_root(source, contents, cancel));
    let may_have = |name: &str| match &listing {
        Some(Ok(found)) => found.special.contains(name.as_bytes()),
        _ => true,
    };
    if packed::NAMES.iter().any(|name| may_have(name))
        && let Some(manifest) = PackedManifest::find(source)?
    {
        return Ok(of_manifest(manifest));
    }
    for (layout, knows) in Layout::of_samples(contents) {
        if knows.marker().is_some_and(may_have)
            && let Some(shards) = knows.listed(source, &[])?
        {
            return Ok(Survey::of_shards(layout, knows, shards, Notes::default()));
        }
    }
    let found = listing.unwrap_or_else(|| list_root(source, contents, cancel))?;
    match contents {
        Contents::Images => images(source, found, split, cancel),
        Contents::Files => files(source, found),
    }
}

impl Survey {
    /// That of a dataset of these shards.
    fn of_shards(layout: Layout, knows: &dyn ShardLayout, shards: Vec<Vec<u8>>, notes: Notes) -> Self {
        Self {
            layout,
            classes: Vec::new(),
            shards,
            notes,
            nothing: knows.nothing(),
            packed: None,
            split: None,
        }
    }

    /// That of shards that were found by their names. Some may be missing, which is noted: a part may be meant.
    fn of_found(layout: Layout, knows: &dyn ShardLayout, shards: Vec<Vec<u8>>, mut notes: Notes) -> Self {
        notes.incomplete = numbered::incomplete(&shards);
        Self::of_shards(layout, knows, shards, notes)
    }

    /// That of a split.
    fn of_split(split: ChosenSplit, notes: Notes) -> Self {
        Self { split: split.name, ..Self::of_found(split.layout, split.knows, split.shards, notes) }
    }
}

fn of_manifest(manifest: PackedManifest) -> Survey {
    Survey {
        layout: Layout::Packed,
        classes: manifest.classes.iter().map(|name| name.bytes().to_vec()).collect(),
        shards: manifest.names().map(String::into_bytes).collect(),
        notes: Notes::default(),
        nothing: "the packed shards hold no sample".to_owned(),
        packed: Some(manifest),
        split: None,
    }
}

fn images(
    source: &dyn DatasetSource,
    mut found: RootListing,
    split: Option<&str>,
    cancel: &Cancel,
) -> Result<Survey> {
    if let Some((name, layout, list)) = &found.unlisted
        && found.has_only_files()
    {
        let name = text(name);
        let why = match found.special.contains(list.as_bytes()) {
            true => format!("{list} lists no shards: it is damaged, or of something else"),
            false => format!("there is no {list}"),
        };
        let message = format!(
            "holds {} such as {name}, and {why}; they are read by the {list} that was written with them: copy it",
            layout.title()
        );
        return Err(Error::dataset(source.path(&[]), message));
    }
    let other = found.other_shards(source, cancel)?;
    if other.is_none()
        && let Some(below) = found.splits_below(source, split, cancel)?
    {
        return Ok(below);
    }
    if other.is_none() && found.are_classes(source, cancel)? {
        return Ok(Survey {
            layout: Layout::Folder,
            classes: found.directories,
            shards: Vec::new(),
            notes: found.notes,
            nothing: format!("its directories hold no {} image", image_extensions()),
            packed: None,
            split: None,
        });
    }
    if let Some(name) = found.compressed.iter().find(|name| !TarShards.is_shard(name)) {
        let beside = if found.shards.is_empty() { "" } else { " beside plain ones" };
        return Err(Error::dataset(source.path(name), compressed(beside)));
    }
    if !found.compressed.is_empty() {
        found.shards.append(&mut found.compressed);
        found.shards.sort_unstable();
    }
    if let Some((layout, knows, shards)) = other {
        if knows.has_splits()
            && let Some(chosen) =
                splits::choose(source, Some((layout, knows, shards.clone())), split, cancel)?
        {
            return Ok(Survey::of_split(chosen, found.notes));
        }
        return Ok(Survey::of_found(layout, knows, shards, found.notes));
    }
    if found.shards.is_empty() {
        let what = "holds neither class directories (root/class/image.jpg) nor .tar shards";
        return Err(Error::dataset(source.path(&[]), found.notes.explain(what)));
    }
    let (layout, knows) = nested(source, (Layout::Tar, &TarShards), &found.shards[0], cancel)?;
    Ok(Survey::of_found(layout, knows, found.shards, found.notes))
}

fn files(source: &dyn DatasetSource, found: RootListing) -> Result<Survey> {
    let RootListing { directories, shards, descriptions, other, mut notes, .. } = found;
    if !shards.is_empty() && directories.is_empty() {
        if let Some(other) = other {
            let message = format!(
                "is no .tfrecord shard, as {} beside it: keep the shards in a directory of their own (names that end \
                 in {} are passed over)",
                text(&shards[0]),
                DESCRIPTIONS.join(", ")
            );
            return Err(Error::dataset(source.path(&other), message));
        }
        descriptions.iter().for_each(|name| notes.skip(LeftOut::BesideRecords, || text(name)));
        return Ok(Survey::of_found(Layout::TfRecord, &RecordShards, shards, notes));
    }
    // A file in the root is in no class, so the dataset has no classes.
    let has_files = other.is_some() || !shards.is_empty() || !descriptions.is_empty();
    let classes = if has_files { Vec::new() } else { directories };
    if classes.is_empty() {
        // The root is walked like any directory, and what is skipped in it is noted then.
        notes = Notes { unlabeled: true, ..Notes::default() };
    }
    let nothing = "holds no file".to_owned();
    Ok(Survey {
        layout: Layout::Folder,
        classes,
        shards: Vec::new(),
        notes,
        nothing,
        packed: None,
        split: None,
    })
}

/// The first image that is found in these directories, by its path below the root. The search ends with it.
fn first_image(
    source: &dyn DatasetSource,
    directories: &[Vec<u8>],
    cancel: &Cancel,
) -> Result<Option<Vec<u8>>> {
    let root = source.path(&[]);
    let mut waiting: Vec<Vec<u8>> = directories.iter().rev().cloned().collect();
    // Links may lead in circles, and to the root, whose own files are in no class.
    let mut seen = HashSet::from([source.identity(&[])?]);
    while let Some(directory) = waiting.pop() {
        let identity = source.identity(&directory)?;
        if identity.is_some() && !seen.insert(identity) {
            continue;
        }
        let mut image = None;
        source.directory(&directory)?.entries(&mut |entry| {
            cancel.check(&root)?;
            match entry.kind {
                EntryKind::Directory => waiting.push(below(&directory, entry.name)),
                EntryKind::File if is_image_file(entry.name) => {
                    image = Some(below(&directory, entry.name));
                    return Ok(ControlFlow::Break(()));
                }
                _ => {}
            }
            Ok(ControlFlow::Continue(()))
        })?;
        if image.is_some() {
            return Ok(image);
        }
    }
    Ok(None)
}

fn list_root(source: &dyn DatasetSource, contents: Contents, cancel: &Cancel) -> Result<RootListing> {
    let mut found = RootListing::default();
    let (root, own) = (source.path(&[]), source.identity(&[])?);
    source.directory(&[])?.entries(&mut |entry| {
        cancel.check(&root)?;
        if matches!(entry.kind, EntryKind::BrokenLink | EntryKind::Unseen) {
            found.notes.skip(LeftOut::BrokenLink, || text(entry.name));
        } else if entry.target.is_some() && entry.target == own {
            found.notes.skip(LeftOut::LinkAbove, || text(entry.name));
        } else {
            found.note_special(entry.name);
            found.add(entry.name.to_vec(), entry.kind == EntryKind::Directory, contents);
        }
        Ok(ControlFlow::Continue(()))
    })?;
    for names in [&mut found.directories, &mut found.shards, &mut found.compressed] {
        names.sort_unstable();
    }
    Ok(found)
}

impl RootListing {
    /// Whether the directories are classes. Where shards lie beside them, contents decide: whichever of the two holds
    /// no image is left out, with a note.
    fn are_classes(&mut self, source: &dyn DatasetSource, cancel: &Cancel) -> Result<bool> {
        if self.directories.is_empty() || (self.shards.is_empty() && self.compressed.is_empty()) {
            return Ok(!self.directories.is_empty());
        }
        let Some(image) = first_image(source, &self.directories, cancel)? else {
            for name in &self.directories {
                self.notes.skip(LeftOut::DirectoryWithoutImages, || text(name));
            }
            return Ok(false);
        };
        for shard in &self.shards {
            if let Some(packed) = shards::first_image(source, shard, cancel)? {
                let message = format!(
                    "holds images both in class directories ({}) and in shards ({packed} in {}), which cannot be one \
                     dataset as they lie: move the directories or the shards to a place of their own and name that; \
                     both places in a list are read as one",
                    text(&image),
                    text(shard)
                );
                return Err(Error::dataset(source.path(&[]), message));
            }
            self.notes.skip(LeftOut::ShardWithoutImages, || text(shard));
        }
        for name in &self.compressed {
            self.notes.skip(LeftOut::CompressedTar, || text(name));
        }
        Ok(true)
    }

    /// Whether nothing in it is a dataset by its name.
    fn has_only_files(&self) -> bool {
        let Self { directories, shards, compressed, tables, .. } = self;
        directories.is_empty() && shards.is_empty() && compressed.is_empty() && tables.is_empty()
    }

    /// The split that is chosen where shards lie in directories, and no images and no shards beside them.
    fn splits_below(
        &self,
        source: &dyn DatasetSource,
        split: Option<&str>,
        cancel: &Cancel,
    ) -> Result<Option<Survey>> {
        let has_shards = !self.shards.is_empty() || !self.compressed.is_empty();
        if has_shards
            || !splits::may_have_files(&self.directories, self.special.contains(CARD.as_bytes()))
            || first_image(source, &self.directories, cancel)?.is_some()
        {
            return Ok(None);
        }
        if let Some((layout, others)) = marked_directories(source, &self.directories, Contents::Images)? {
            return Err(splits::are_directories(source, layout, &others, split));
        }
        let chosen = splits::choose(source, None, split, cancel)?;
        Ok(chosen.map(|chosen| Survey::of_split(chosen, self.notes.clone())))
    }

    /// The shards that are no tars, where they are the dataset: beside tars, and beside directories with images, they
    /// are files in the root.
    fn other_shards(&mut self, source: &dyn DatasetSource, cancel: &Cancel) -> Result<Option<OtherShards>> {
        let tables = std::mem::take(&mut self.tables);
        let Some((layout, first)) = tables.iter().min_by_key(|(_, name)| name) else { return Ok(None) };
        let is_beside = !self.shards.is_empty()
            || !self.compressed.is_empty()
            || first_image(source, &self.directories, cancel)?.is_some();
        if is_beside {
            let names = tables.iter().map(|(_, name)| name);
            names.for_each(|name| self.notes.skip(LeftOut::FileInRoot, || text(name)));
            return Ok(None);
        }
        if let Some((other, name)) = tables.iter().find(|(other, _)| other != layout) {
            let message = format!(
                "is one of {}, and {} beside it one of {}: keep the datasets in directories of their own",
                other.title(),
                text(first),
                layout.title()
            );
            return Err(Error::dataset(source.path(name), message));
        }
        let Some(knows) = layout.shards() else { return Ok(None) };
        for name in &self.directories {
            self.notes.skip(LeftOut::DirectoryWithoutImages, || text(name));
        }
        let mut shards: Vec<Vec<u8>> = tables.iter().map(|(_, name)| name.clone()).collect();
        shards.sort_unstable();
        Ok(Some((*layout, knows, shards)))
    }

    /// Remembers what may say that the dataset is of a kind which its names alone do not tell.
    fn note_special(&mut self, name: &[u8]) {
        let mut lists = Layout::ALL.iter().filter_map(|layout| Some((*layout, layout.shards()?)));
        let is_list = |(_, shards): (Layout, &dyn ShardLayout)| {
            shards.marker().is_some_and(|marker| marker.as_bytes() == name)
        };
        let is_manifest = || packed::NAMES.iter().any(|manifest| manifest.as_bytes() == name);
        if name == CARD.as_bytes() || is_manifest() || lists.clone().any(is_list) {
            self.special.insert(name.to_vec());
        } else if let Some((layout, shards)) = lists.find(|(_, shards)| shards.is_unlisted_shard(name))
            && let Some(list) = shards.marker()
            && self.unlisted.as_ref().is_none_or(|(first, ..)| name < first.as_slice())
        {
            self.unlisted = Some((name.to_vec(), layout, list));
        }
    }

    fn add(&mut self, name: Vec<u8>, is_directory: bool, contents: Contents) {
        match contents {
            Contents::Files if is_hidden(&name) => self.notes.skip(LeftOut::Hidden, || text(&name)),
            _ if is_directory => self.directories.push(name),
            Contents::Images if name.ends_with(b".tar") => self.shards.push(name),
            Contents::Images if TarShards.is_shard(&name) || TarShards.is_compressed(&name) => {
                self.compressed.push(name)
            }
            Contents::Images => {
                match Layout::of_samples(contents).find(|(_, shards)| shards.is_shard(&name)) {
                    Some((layout, _)) => self.tables.push((layout, name)),
                    None if METADATA.contains(&&name[..]) => {
                        self.notes.skip(LeftOut::Metadata, || text(&name))
                    }
                    None if name == packed::TARS.as_bytes() => {}
                    None => self.notes.skip(LeftOut::FileInRoot, || text(&name)),
                }
            }
            Contents::Files if is_tfrecord(&name) => self.shards.push(name),
            Contents::Files if describes(&name) => self.descriptions.push(name),
            Contents::Files => {
                if self.other.as_ref().is_none_or(|first| name < *first) {
                    self.other = Some(name);
                }
            }
        }
    }
}

/// The path of `name` in `directory`, which may be the root.
pub(super) fn below(directory: &[u8], name: &[u8]) -> Vec<u8> {
    if directory.is_empty() { name.to_vec() } else { [directory, b"/", name].concat() }
}

/// Whether a file of this name is left out where files of any kind are taken.
pub(super) fn is_hidden(name: &[u8]) -> bool {
    name.starts_with(b".")
}

/// Whether a file's name says that it is a TFRecord shard: `x.tfrecord`, `x.tfrecord-00000-of-00010`, `x.tfrecords`.
pub(super) fn is_tfrecord(name: &[u8]) -> bool {
    name.windows(9).any(|part| part == b".tfrecord") && !describes(name)
}

fn describes(name: &[u8]) -> bool {
    DESCRIPTIONS.iter().any(|ending| name.ends_with(ending.as_bytes()))
}

fn text(name: &[u8]) -> String {
    String::from_utf8_lossy(name).into_owned()
}
