//! Detects the kind of dataset at a root by the names of files and directories, and by contents if names are ambiguous.

mod named;
mod pairs;
mod root;

use super::below::{DatasetSearch, FirstFound};
use super::dataset_card::CARD;
use super::kind::image_extensions;
use super::layouts::{ShardLayout, TarShards, marked_directories};
use super::left_out::SkipReason;
use super::packed::{self, PackedManifest};
use super::samples::text;
use super::splits::{self, ChosenSplit};
use super::{Contents, Layout, Notes, numbered, shards, split_directories};
use crate::source::DatasetSource;
use base::error::{Error, Result};
use named::{compressed, named, nested, single};
pub(super) use pairs::{MASKS, is_called, without_mask_suffix};
use root::{RootListing, list_root};

/// The result of the detection: the layout of a dataset, and the directories or shards to index.
pub(super) struct Survey {
    pub(super) layout: Layout,
    /// The class directories. If there are no classes, all files below the root have class 0.
    pub(super) classes: Vec<Vec<u8>>,
    /// The names of the shards; one empty name if the root itself is the shard.
    pub(super) shards: Vec<Vec<u8>>,
    pub(super) notes: Notes,
    pub(super) empty_message: String,
    pub(super) packed: Option<PackedManifest>,
    split: Option<String>,
}

pub(super) type DetectedShards = (Layout, Vec<Vec<u8>>);

const NO_DATASET: &str = "\
    holds no dataset: no class directories (root/class/image.jpg), no images, no shards (.tar, .tar.gz, .tar.zst, \
    .tfrecord, .parquet, .arrow), no arrays (.npy, .npz, .h5, .nc, zarr), no index.json of MDS, no state.json of \
    save_to_disk, and nothing that foreload pack made; to open a table that lists files, such as train.csv, give the \
    path of the table";

/// Suffixes of files that describe shards.
const DESCRIPTIONS: &[&str] = &[
    ".json", ".txt", ".md", ".csv", ".pbtxt", ".idx", ".index", ".yaml", ".yml", ".log", ".md5", ".sha1",
    ".sha256", ".sha512", ".crc32c",
];
/// Suffixes of shards that are compressed as a whole.
const COMPRESSED: &[&str] = &[".gz", ".zst", ".zstd", ".zlib", ".bz2", ".xz", ".lz4", ".sz", ".snappy", ".Z"];

pub(super) fn survey(search: DatasetSearch<'_>, split: Option<&str>) -> Result<Survey> {
    let source = search.source;
    let survey = whole(search, split)?;
    if let Some((name, same)) = numbered::same_file_twice(&survey.shards) {
        let message =
            format!("seems to be {} decompressed, which is next to it: remove one of the two", text(&same));
        return Err(Error::dataset(source.path(&name), message));
    }
    match split {
        Some(split) if survey.split.is_none() => {
            match marked_directories(source, &survey.classes, search.contents)? {
                Some((layout, others)) => {
                    Err(splits::directories_error(source, layout, &others, Some(split)))
                }
                None => Err(splits::no_splits_error(source, split)),
            }
        }
        _ => Ok(survey),
    }
}

fn whole(search: DatasetSearch<'_>, split: Option<&str>) -> Result<Survey> {
    let DatasetSearch { source, contents, .. } = search;
    if source.manifest().is_some() {
        return Ok(Survey::new(Layout::Manifest, "lists no file".to_owned()));
    }
    if let Some(names) = source.named_files() {
        return named(search, names);
    }
    if !source.is_directory()? {
        // For a link, use the file name of its target.
        let path = if source.is_remote() { source.path(&[]) } else { source.canonical()? };
        return single(search, path.file_name().unwrap_or_default());
    }
    // On a server, the search for each of these files costs a request, so list the root first. If the server has no
    // listing, search for each file.
    let listing = source.is_remote().then(|| list_root(search));
    let may_have = |name: &str| match &listing {
        Some(Ok(found)) => found.special.contains(name.as_bytes()),
        _ => true,
    };
    if packed::NAMES.iter().any(|name| may_have(name))
        && let Some(manifest) = PackedManifest::find(source)?
    {
        return Ok(of_manifest(manifest));
    }
    for (layout, layout_impl) in Layout::of_samples(contents) {
        if layout_impl.marker_files().iter().any(|name| may_have(name))
            && let Some(shards) = layout_impl.listed_shards(source, &[])?
        {
            return Ok(Survey::of_shards(layout, shards, Notes::default()));
        }
    }
    let found = listing.unwrap_or_else(|| list_root(search))?;
    match contents {
        Contents::Images => images(search, found, split),
        Contents::Files => files(search, found, split),
    }
}

/// The survey of directories that the fields of a loader name.
///
/// # Errors
/// [`Error::Config`] for a split, which such directories do not have.
pub(super) fn parallel(search: DatasetSearch<'_>, split: Option<&str>) -> Result<Survey> {
    match split {
        Some(split) => Err(splits::no_splits_error(search.source, split)),
        None => Ok(Survey::new(Layout::Parallel, "the first of its fields has no image".to_owned())),
    }
}

impl Survey {
    fn new(layout: Layout, empty_message: String) -> Self {
        Self {
            layout,
            classes: Vec::new(),
            shards: Vec::new(),
            notes: Notes::default(),
            empty_message,
            packed: None,
            split: None,
        }
    }

    fn of_shards(layout: Layout, shards: Vec<Vec<u8>>, notes: Notes) -> Self {
        let empty_message = layout.shards().map(ShardLayout::empty_message).unwrap_or_default();
        Self { shards, notes, ..Self::new(layout, empty_message) }
    }

    /// Makes the survey of shards that were found by listing. Missing shards are only recorded, because a user can
    /// select a part of the dataset on purpose.
    fn of_found(layout: Layout, shards: Vec<Vec<u8>>, mut notes: Notes) -> Self {
        notes.incomplete = numbered::missing_parts(&shards);
        Self::of_shards(layout, shards, notes)
    }

    fn of_split(split: ChosenSplit, mut notes: Notes) -> Self {
        notes.absorb(split.notes);
        Self { split: split.name, ..Self::of_found(split.layout, split.shards, notes) }
    }
}

fn of_manifest(manifest: PackedManifest) -> Survey {
    Survey {
        classes: manifest.classes.iter().map(|name| name.bytes().to_vec()).collect(),
        shards: manifest.names().map(String::into_bytes).collect(),
        packed: Some(manifest),
        ..Survey::new(Layout::Packed, "the packed shards hold no sample".to_owned())
    }
}

fn images(search: DatasetSearch<'_>, mut found: RootListing, split: Option<&str>) -> Result<Survey> {
    let source = search.source;
    if let Some((name, layout, list)) = &found.unlisted
        && found.has_only_files()
    {
        let name = text(name);
        let why = match found.special.contains(list.as_bytes()) {
            true => format!("{list} lists no shards: it is damaged, or belongs to something else"),
            false => format!("there is no {list}"),
        };
        let message = format!(
            "holds {} such as {name}, but {why}: copy the {list} that was written with them",
            layout.title()
        );
        return Err(Error::dataset(source.path(&[]), message));
    }
    let (directories, in_root) = (&found.directories, found.first_shard());
    split_directories::refuse(search, directories, in_root, split)?;
    let below = found.search_directories(search)?;
    if let Some(other) = found.other_shards(source, &below)? {
        return other_shards(search, other, found, &below, split);
    }
    if let Some(below) = found.splits_below(search, &below, split)? {
        return Ok(below);
    }
    if below.sample.is_none()
        && let Some(arrays) = found.take_arrays(source)?
    {
        return Ok(arrays);
    }
    found.note_arrays();
    if found.directories_are_classes(search, &below)? {
        split_directories::refuse_in_classes(search, &found.directories)?;
        pairs::refuse(search, &found.directories)?;
        found.note_images();
        return Ok(Survey {
            classes: found.directories,
            notes: found.notes,
            ..Survey::new(Layout::Folder, format!("its directories hold no {} image", image_extensions()))
        });
    }
    if let Some(name) = found.compressed.iter().find(|name| !TarShards.is_shard(name)) {
        let beside = if found.shards.is_empty() { "" } else { " next to plain ones" };
        return Err(Error::dataset(source.path(name), compressed(beside)));
    }
    found.shards.append(&mut found.compressed);
    found.shards.sort_unstable();
    let Some(first) = found.shards.first() else {
        return match found.images.count {
            0 => Err(Error::dataset(source.path(&[]), found.notes.explain(NO_DATASET))),
            // The root is walked later like any directory. That walk records the skipped files.
            _ => Ok(Survey {
                notes: Notes { unlabeled: true, ..Notes::default() },
                ..Survey::new(Layout::Folder, format!("holds no {} image", image_extensions()))
            }),
        };
    };
    refuse_places(source, first, &below)?;
    let layout = nested(search, Layout::Tar, &found.shards)?;
    found.note_images();
    Ok(Survey::of_found(layout, found.shards, found.notes))
}

fn other_shards(
    search: DatasetSearch<'_>,
    (layout, shards): DetectedShards,
    mut found: RootListing,
    below: &FirstFound,
    split: Option<&str>,
) -> Result<Survey> {
    found.note_images();
    if !layout.shards().is_some_and(ShardLayout::has_splits) {
        refuse_places(search.source, &shards[0], below)?;
        return Ok(Survey::of_found(layout, shards, found.notes));
    }
    // Shards in directories are an error, unless a README can define which shards belong to the dataset.
    if let Some(shard) = below.plain_shard().filter(|_| !found.special.contains(CARD.as_bytes())) {
        return Err(in_places(search.source, &shards[0], shard));
    }
    // If some shards are in directories, search all directories, because paths of shards determine splits.
    let flat = below.shards.is_empty().then(|| (layout, shards.clone()));
    match splits::choose(search, flat, split)? {
        Some(chosen) => Ok(Survey::of_split(chosen, found.notes)),
        None => Ok(Survey::of_found(layout, shards, found.notes)),
    }
}

/// Refuses shards in directories if the root itself has shards. `first` is a shard in the root.
fn refuse_places(source: &dyn DatasetSource, first: &[u8], below: &FirstFound) -> Result<()> {
    below.shards.first().map_or(Ok(()), |(_, shard)| Err(in_places(source, first, shard)))
}

fn in_places(source: &dyn DatasetSource, first: &[u8], below: &[u8]) -> Error {
    let message = format!(
        "holds shards both directly ({}) and in directories ({}), which is ambiguous: open one of these places, name \
         the files by braces, or open several places as a list to read them as one dataset",
        text(first),
        text(below)
    );
    Error::dataset(source.path(&[]), message)
}

fn files(search: DatasetSearch<'_>, found: RootListing, split: Option<&str>) -> Result<Survey> {
    let RootListing { directories, shards, descriptions, other, mut notes, .. } = found;
    if !shards.is_empty() && directories.is_empty() {
        if let Some(other) = other {
            let message = format!(
                "is not a .tfrecord shard, unlike {} next to it: keep the shards in a directory of their own (files \
                 that end in {} are ignored)",
                text(&shards[0]),
                DESCRIPTIONS.join(", ")
            );
            return Err(Error::dataset(search.source.path(&other), message));
        }
        descriptions.iter().for_each(|name| notes.skip(SkipReason::FileNextToRecords, || text(name)));
        return Ok(Survey::of_found(Layout::TfRecord, shards, notes));
    }
    // A file in the root belongs to no class. If there is one, the dataset has no classes.
    let has_files = other.is_some() || !shards.is_empty() || !descriptions.is_empty();
    let classes = if has_files { Vec::new() } else { directories };
    split_directories::refuse(search, &classes, None, split)?;
    if classes.is_empty() {
        // Discard the notes: the root is walked later like any directory, and that walk notes the skipped files.
        notes = Notes { unlabeled: true, ..Notes::default() };
    }
    Ok(Survey { classes, notes, ..Survey::new(Layout::Folder, "holds no file".to_owned()) })
}

impl RootListing {
    /// Whether the directories in the root are classes. If the root also has shards, this depends on where images are:
    /// directories or shards without images are skipped. Images in both are an error.
    fn directories_are_classes(&mut self, search: DatasetSearch<'_>, below: &FirstFound) -> Result<bool> {
        let has_shards = !self.shards.is_empty() || !self.compressed.is_empty();
        if self.directories.is_empty() || !(has_shards || self.images.count > 0) {
            return Ok(!self.directories.is_empty());
        }
        let Some(image) = &below.sample else {
            for name in &self.directories {
                self.notes.skip(SkipReason::DirectoryWithoutImages, || text(name));
            }
            return Ok(false);
        };
        for shard in &self.shards {
            if let Some(packed) = shards::first_image(search.source, shard, search.cancel)?.found? {
                let message = format!(
                    "holds images both in class directories ({}) and in shards ({packed} in {}), which is ambiguous: \
                     move the directories or the shards to another directory, and open one of the two, or both as a \
                     list to read them as one dataset",
                    text(image),
                    text(shard)
                );
                return Err(Error::dataset(search.source.path(&[]), message));
            }
            self.notes.skip(SkipReason::ShardWithoutImages, || text(shard));
        }
        for name in &self.compressed {
            self.notes.skip(SkipReason::CompressedTar, || text(name));
        }
        Ok(true)
    }

    /// Returns the chosen split, if all shards are in directories and these directories hold no images.
    fn splits_below(
        &mut self,
        search: DatasetSearch<'_>,
        below: &FirstFound,
        split: Option<&str>,
    ) -> Result<Option<Survey>> {
        let has_shards = !self.shards.is_empty() || !self.compressed.is_empty();
        if has_shards
            || below.sample.is_some()
            || !splits::may_have_files(&self.directories, self.special.contains(CARD.as_bytes()))
        {
            return Ok(None);
        }
        if let Some((layout, others)) =
            marked_directories(search.source, &self.directories, Contents::Images)?
        {
            return Err(splits::directories_error(search.source, layout, &others, split));
        }
        let Some(chosen) = splits::choose(search, None, split)? else { return Ok(None) };
        self.note_images();
        Ok(Some(Survey::of_split(chosen, self.notes.clone())))
    }

    /// Returns the arrays in the root, if there are any.
    fn take_arrays(&mut self, source: &dyn DatasetSource) -> Result<Option<Survey>> {
        let arrays = std::mem::take(&mut self.arrays);
        let Some(first) = arrays.first() else { return Ok(None) };
        check_one_layout(source, &arrays, first)?;
        let layout = first.0;
        for name in &self.directories {
            self.notes.skip(SkipReason::DirectoryWithoutImages, || text(name));
        }
        let arrays = arrays.into_iter().map(|(_, name)| name).collect();
        Ok(Some(Survey::of_shards(layout, arrays, self.notes.clone())))
    }

    /// Returns the shards in the root that are not tars, if they are the dataset. If the root also has tars, or images
    /// in directories, these shards are skipped.
    fn other_shards(
        &mut self,
        source: &dyn DatasetSource,
        below: &FirstFound,
    ) -> Result<Option<DetectedShards>> {
        let tables = std::mem::take(&mut self.tables);
        let Some(first) = tables.iter().min_by_key(|(_, name)| name) else { return Ok(None) };
        if !self.shards.is_empty() || !self.compressed.is_empty() || below.sample.is_some() {
            let names = tables.iter().map(|(_, name)| name);
            names.for_each(|name| self.notes.skip(SkipReason::ShardInRoot, || text(name)));
            return Ok(None);
        }
        check_one_layout(source, &tables, first)?;
        for name in self.directories.iter().filter(|_| below.shards.is_empty()) {
            self.notes.skip(SkipReason::DirectoryWithoutImages, || text(name));
        }
        let mut shards: Vec<Vec<u8>> = tables.iter().map(|(_, name)| name.clone()).collect();
        shards.sort_unstable();
        Ok(Some((first.0, shards)))
    }
}

/// Refuses a directory with shards of several layouts. `first` is the shard whose layout the others must have.
fn check_one_layout(
    source: &dyn DatasetSource,
    shards: &[(Layout, Vec<u8>)],
    (layout, first): &(Layout, Vec<u8>),
) -> Result<()> {
    let Some((other, name)) = shards.iter().find(|(other, _)| other != layout) else { return Ok(()) };
    let message = format!(
        "is one of {}, but {} next to it is one of {}: keep each dataset in a directory of its own",
        other.title(),
        text(first),
        layout.title()
    );
    Err(Error::dataset(source.path(name), message))
}

/// The path of `name` in `directory`, which can be the root.
pub(super) fn below(directory: &[u8], name: &[u8]) -> Vec<u8> {
    if directory.is_empty() { name.to_vec() } else { [directory, b"/", name].concat() }
}

/// Whether a file name is that of a TFRecord shard: `x.tfrecord`, `x.tfrecord-00000-of-00010`, `x.tfrecords.gz`.
pub(super) fn is_tfrecord(name: &[u8]) -> bool {
    const ENDING: &[u8] = b".tfrecord";
    let Some(at) = name.windows(ENDING.len()).rposition(|part| part == ENDING) else { return false };
    let rest = &name[at + ENDING.len()..];
    let rest = rest.strip_prefix(b"s").unwrap_or(rest);
    let rest = COMPRESSED.iter().find_map(|ending| rest.strip_suffix(ending.as_bytes())).unwrap_or(rest);
    let is_separator = |byte: &u8| matches!(byte, b'-' | b'_' | b'.');
    let is_number = |part: &[u8]| !part.is_empty() && part.iter().all(u8::is_ascii_digit);
    let mut parts = rest.split(is_separator);
    // After the ending there is nothing, or only numbers and `of`, each after a separator.
    parts.next().is_some_and(<[u8]>::is_empty) && parts.all(|part| part == b"of" || is_number(part))
}

/// Whether a file name says that the file describes shards, or is derived from a shard.
pub(super) fn describes(name: &[u8]) -> bool {
    DESCRIPTIONS.iter().any(|ending| name.ends_with(ending.as_bytes()))
}
