//! Lists the root of a dataset and sorts its entries by their names.

use super::super::below::{DatasetSearch, FirstFound, search_directories, shard_layout};
use super::super::dataset_card::CARD;
use super::super::ignored::ignored_entry;
use super::super::kind::is_image_file;
use super::super::layouts::{ShardLayout, TarShards, is_zarr_file};
use super::super::left_out::SkipReason;
use super::super::{Contents, Layout, Notes, packed, splits};
use super::{describes, is_tfrecord, text};
use crate::source::EntryKind;
use base::error::Result;
use std::collections::BTreeSet;
use std::ops::ControlFlow;

#[derive(Default)]
pub(super) struct RootListing {
    pub(super) directories: Vec<Vec<u8>>,
    pub(super) shards: Vec<Vec<u8>>,
    /// Compressed tars. These tars are skipped if class directories are the dataset.
    pub(super) compressed: Vec<Vec<u8>>,
    /// Shards of images that are not tars, each with its layout.
    pub(super) tables: Vec<(Layout, Vec<u8>)>,
    /// Files of arrays, each with its layout, sorted. They are the dataset only if nothing else can be one.
    pub(super) arrays: Vec<(Layout, Vec<u8>)>,
    pub(super) descriptions: Vec<Vec<u8>>,
    /// The images in the root itself. These images are the dataset if there are neither classes nor shards.
    pub(super) images: RootImages,
    /// With [`Contents::Files`], the first file in sorted order that is neither a TFRecord shard nor a description of
    /// one.
    pub(super) other: Option<Vec<u8>>,
    pub(super) notes: Notes,
    /// The files that can define the dataset: READMEs, manifests, lists of shards.
    pub(super) special: BTreeSet<Vec<u8>>,
    /// The first shard that can be read only with a list file: its name, its layout, and the name of the list file.
    pub(super) unlisted: Option<(Vec<u8>, Layout, &'static str)>,
}

#[derive(Default)]
pub(super) struct RootImages {
    pub(super) count: u64,
    pub(super) first: Vec<u8>,
}

impl RootImages {
    fn add(&mut self, name: Vec<u8>) {
        if self.count == 0 || name < self.first {
            self.first = name;
        }
        self.count += 1;
    }
}

/// Files in which Hugging Face's `imagefolder` looks for labels, and which `labels=` can read.
const METADATA: [&[u8]; 2] = [b"metadata.csv", b"metadata.jsonl"];

pub(super) fn list_root(search: DatasetSearch<'_>) -> Result<RootListing> {
    let (mut found, contents) = (RootListing::default(), search.contents);
    let own = search.source.identity(&[])?;
    search.entries(&[], |entry| {
        // Zarr's own files are hidden, so they must be found before hidden files are skipped.
        if is_zarr_file(entry.name) {
            found.special.insert(entry.name.to_vec());
        } else if let Some(why) = ignored_entry(entry, contents) {
            found.notes.skip(why, || text(entry.name));
        } else if matches!(entry.kind, EntryKind::BrokenLink | EntryKind::Unseen) {
            found.notes.skip(SkipReason::BrokenLink, || text(entry.name));
        } else if entry.target.is_some() && entry.target == own {
            found.notes.skip(SkipReason::LinkToParent, || text(entry.name));
        } else {
            found.record_marker_files(entry.name);
            found.add(entry.name.to_vec(), entry.kind == EntryKind::Directory, contents);
        }
        Ok(ControlFlow::Continue(()))
    })?;
    for names in [&mut found.directories, &mut found.shards, &mut found.compressed] {
        names.sort_unstable();
    }
    found.arrays.sort_unstable_by(|(_, one), (_, other)| one.cmp(other));
    if found.first_shard().is_some() || found.images.count > 0 {
        found.note_arrays();
    }
    Ok(found)
}

impl RootListing {
    pub(super) fn has_only_files(&self) -> bool {
        let Self { directories, shards, compressed, tables, .. } = self;
        directories.is_empty() && shards.is_empty() && compressed.is_empty() && tables.is_empty()
    }

    /// Searches the directories below the root. Returns an empty result without a search if the root has no shards,
    /// images and arrays, and cannot be a Hugging Face repository.
    pub(super) fn search_directories(&self, search: DatasetSearch<'_>) -> Result<FirstFound> {
        let is_repository = splits::may_have_files(&self.directories, self.special.contains(CARD.as_bytes()));
        let has_files = self.images.count > 0 || !self.arrays.is_empty();
        match self.first_shard().is_some() || has_files || is_repository {
            true => search_directories(search, &self.directories),
            false => Ok(FirstFound::default()),
        }
    }

    pub(super) fn first_shard(&self) -> Option<&[u8]> {
        let tars = self.shards.first().or(self.compressed.first());
        tars.or_else(|| self.tables.iter().map(|(_, name)| name).min()).map(Vec::as_slice)
    }

    /// Records the images in the root as skipped, because the dataset consists of shards or class directories.
    pub(super) fn note_images(&mut self) {
        let RootImages { count, first } = &self.images;
        self.notes.skip_all(SkipReason::ImageInRoot, *count, || text(first));
    }

    /// Records the arrays in the root as skipped, because the dataset consists of other files.
    pub(super) fn note_arrays(&mut self) {
        for (_, name) in self.arrays.drain(..) {
            self.notes.skip(SkipReason::FileInRoot, || text(&name));
        }
    }

    /// Records a README, a manifest or a list of shards in `special`. Records in `unlisted` a shard that needs such a
    /// list.
    fn record_marker_files(&mut self, name: &[u8]) {
        let mut lists = Layout::ALL.iter().filter_map(|layout| Some((*layout, layout.shards()?)));
        let is_list = |(_, shards): (Layout, &dyn ShardLayout)| {
            shards.marker_files().iter().any(|marker_file| marker_file.as_bytes() == name)
        };
        let is_manifest = || packed::NAMES.iter().any(|manifest| manifest.as_bytes() == name);
        if name == CARD.as_bytes() || is_manifest() || lists.clone().any(is_list) {
            self.special.insert(name.to_vec());
        } else if let Some((layout, shards)) = lists.find(|(_, shards)| shards.is_unlisted_shard(name))
            && let Some(list) = shards.marker_files().first()
            && self.unlisted.as_ref().is_none_or(|(first, ..)| name < first.as_slice())
        {
            self.unlisted = Some((name.to_vec(), layout, list));
        }
    }

    fn add(&mut self, name: Vec<u8>, is_directory: bool, contents: Contents) {
        match contents {
            _ if is_directory => self.directories.push(name),
            Contents::Images if name.ends_with(b".tar") => self.shards.push(name),
            Contents::Images if TarShards.is_shard(&name) || TarShards.is_compressed(&name) => {
                self.compressed.push(name)
            }
            Contents::Images => {
                match Layout::of_samples(contents).find(|(_, shards)| shards.is_shard(&name)) {
                    Some((layout, shards)) if shards.is_array() => self.arrays.push((layout, name)),
                    Some((layout, _)) => self.tables.push((layout, name)),
                    None if METADATA.contains(&&name[..]) => {
                        self.notes.skip(SkipReason::Metadata, || text(&name))
                    }
                    None if name == packed::TARS_MARKER_FILE.as_bytes() => {}
                    None if is_image_file(&name) || SkipReason::other_image(&name).is_some() => {
                        self.images.add(name)
                    }
                    None if shard_layout(&name.to_ascii_lowercase(), contents).is_some() => {
                        self.notes.skip(SkipReason::UpperCaseShard, || text(&name))
                    }
                    None => self.notes.skip(SkipReason::FileInRoot, || text(&name)),
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
