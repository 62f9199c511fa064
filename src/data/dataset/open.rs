//! Finds, loads or builds the index of a dataset. An existing index file is loaded and compared with the stamps of the
//! dataset. If nothing changed, no lock is needed. Otherwise one process at a time revalidates or rebuilds the index
//! and publishes it, while the other processes wait.

use super::bad_shards::{self, UnreadShards, fingerprint_without};
use super::below::DatasetSearch;
use super::build::{IndexBuilder, IndexFacts};
use super::cancel::{Cancel, OpeningWatch};
use super::changes::{Change, ChangedStamps};
use super::checks::check_array_names;
use super::directory::{self, IndexDirectory};
use super::format::{IndexFile, LoadMembers, Section};
use super::layouts::{ShardLayout, ShardReadOptions};
use super::names_stamp::stamp_of_names;
use super::packed::PackedManifest;
use super::parallel::for_each;
use super::part::DatasetPart;
use super::places::ROOT_SURVEY;
use super::shards::DatasetShards;
use super::survey::{self, Survey};
use super::{
    COARSE_TICK, Changed, Fingerprint, IndexOptions, IndexOrigin, Layout, Stamp, folder, kind, layouts,
    manifest, packed, pairs, publish, shards, split_directories, splits,
};
use crate::source::{self, DatasetSource};
use base::error::{Error, Result};
use base::names::NamedValue;
use base::notices::{NoticeKind, Notices};
use indicatif::{ProgressBar, ProgressStyle};
use std::collections::BTreeSet;
use std::io::{ErrorKind, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

const REMOTE_THREADS: usize = 64;
/// Smaller than [`REMOTE_THREADS`], because each thread holds the columns of a table in memory.
const REMOTE_TABLE_THREADS: usize = 16;
/// The least number of threads that index files of arrays, because threads that parse headers mostly wait for reads.
const ARRAY_THREADS: usize = 16;

pub(super) fn open(root: &Path, options: &IndexOptions, cancel: &Cancel) -> Result<DatasetPart> {
    let opened = opened(root, options, cancel);
    // Report the cancellation: the error of the interrupted step has less information.
    opened.map_err(|error| cancel.check(&source::shown(root)).err().unwrap_or(error))
}

fn opened(root: &Path, options: &IndexOptions, cancel: &Cancel) -> Result<DatasetPart> {
    let start = Instant::now();
    let source = source::at(root)?;
    let _watch = OpeningWatch::new(&*source, root, cancel, options);
    let search = DatasetSearch { source: &*source, contents: options.contents, cancel };
    if let Some(split) = &options.split
        && let Some(directory) = split_directories::chosen(search, split)?
    {
        // Open the directory of the split as a separate dataset, so that a user who opens this directory by its path
        // uses the same index.
        let directory = String::from_utf8_lossy(&directory);
        return open(
            &source::below(root, &directory),
            &IndexOptions { split: None, ..options.clone() },
            cancel,
        );
    }
    let root = &*source::shown(root);
    let canonical = source.canonical()?;
    manifest::check_images(&*source, options)?;
    let options = &pairs::chosen(search, options)?;
    let inodes = source.has_lasting_inodes();
    let opening = IndexOpening { root, source: source.clone(), canonical, options, cancel, inodes };
    let mut index = match IndexDirectory::of(options)? {
        None => opening.open_in_temporary("HOME is not set"),
        Some(directory) => match opening.open_in(&directory) {
            Err(error) if !directory.named && directory.is_why(&error) => {
                opening.open_in_temporary(&error.to_string())
            }
            opened => opened,
        },
    }?;
    if let Some(manifest) = source.manifest().filter(|_| index.notes.secrets) {
        manifest::set_secret_urls(manifest, &index.reading(), index.files_of(0).map(|(name, _)| name))?;
    }
    if let Some(warning) = source.warning() {
        options.notices.warn_once("versions", || warning);
    }
    index.seconds = start.elapsed().as_secs_f64();
    bad_shards::report(&index, options)?;
    if index.notes.label_fault.is_none() {
        index.check_label(options.label.as_deref())?;
    }
    if index.notes.imageless && index.is_table() && options.members.is_none() {
        return Err(Error::dataset(root, index.without_images()));
    }
    if index.notes.imageless && !options.every_stem && options.members.is_none() {
        let keys = Vec::from_iter(index.keys().iter().map(|key| format!("{key:?}"))).join(", ");
        let message = format!(
            "the shards hold no {} image; select other members with fields=: {keys}",
            kind::image_extensions()
        );
        return Err(Error::dataset(root, message));
    }
    Ok(index)
}

struct IndexOpening<'a> {
    root: &'a Path,
    source: Arc<dyn DatasetSource>,
    canonical: PathBuf,
    options: &'a IndexOptions,
    cancel: &'a Cancel,
    inodes: bool,
}

impl IndexOpening<'_> {
    /// Returns the index in `directory`. Builds the index if none exists, or if the dataset no longer matches it.
    fn open_in(&self, directory: &IndexDirectory) -> Result<DatasetPart> {
        let index = self.open_file(&directory.file(&self.canonical, self.options, None)?)?;
        let arrays = self.options.chosen_arrays();
        if !self.options.parallel.is_empty() || index.has_arrays(arrays.as_deref(), &self.options.optional) {
            return Ok(index);
        }
        // The number of samples depends on the arrays that are chosen, so another choice has an index of its own.
        self.open_file(&directory.file(&self.canonical, self.options, Some(&arrays.unwrap_or_default()))?)
    }

    fn open_file(&self, file: &Path) -> Result<DatasetPart> {
        let find = || {
            if self.options.rebuild {
                return Ok(FoundIndex::Missing("a rebuild was requested".to_owned()));
            }
            self.find(file)
        };
        if let FoundIndex::Same(index) = find()? {
            return Ok(index);
        }
        let lock = directory::lock(file, self.root, self.cancel);
        self.cancel.check(self.root)?;
        // Another process might have built or revalidated the index while this process waited.
        let (because, change) = match find()? {
            FoundIndex::Same(index) => return Ok(index),
            FoundIndex::Missing(because) => (because, None),
            FoundIndex::Stale(index, moved) => match self.revalidate(index, moved, lock.is_ok())? {
                Revalidated::Index(index) => return Ok(*index),
                Revalidated::Changed(change, was) => ("the dataset changed".to_owned(), Some((change, was))),
            },
        };
        let _lock = lock?;
        self.build(file)?;
        let mut built = self.load(file, self.members_to_load())?;
        built.origin = IndexOrigin::Built(because);
        if let Some((change, was)) = change {
            let then = match was == built.fingerprint() {
                true => "its index was rebuilt; orders are unchanged, and saved states remain valid",
                false => {
                    "its index was rebuilt; orders have changed, and states that were saved before are not valid any \
                     more"
                }
            };
            self.notify(&change, then);
        }
        Ok(built)
    }

    /// Compares `index` with the directories and shards whose stamps changed. Returns `index` if the dataset still
    /// matches it, or if the user keeps the index anyway. If `may_write`, stores the new stamps, so that the next start
    /// does not compare again.
    fn revalidate(
        &self,
        mut index: DatasetPart,
        moved: ChangedStamps,
        may_write: bool,
    ) -> Result<Revalidated> {
        // If the options refuse the unreadable shards of the index, the index must be rebuilt.
        let changed = match self.options.changed {
            Changed::Warn if self.options.refuses(&index.notes.bad_shards) => Changed::Rebuild,
            changed => changed,
        };
        let all = changed != Changed::Rebuild;
        let threads = threads(self.options, &*self.source, index.layout());
        let mut seen = moved.compare(&index, threads, all, self.cancel)?;
        // Newly skipped files change the warning about skipped files, but are no reason to rebuild the index.
        let mut is_new = false;
        for (place, skipped) in std::mem::take(&mut seen.left_out) {
            is_new |= index.notes.replace_skipped(&place, skipped);
        }
        if is_new {
            index.file.set_notes(&index.notes);
        }
        let Some(change) = seen.changes.first() else {
            index.file.accept(seen.root.unwrap_or(index.root_stamp()), &seen.same);
            if may_write {
                // Best effort: if this fails, the next start compares again.
                let _ = publish::publish(&index.file.path, |mut file| file.write_all(index.file.bytes()));
            }
            return Ok(Revalidated::Index(Box::new(index)));
        };
        match changed {
            Changed::Rebuild => return Ok(Revalidated::Changed(change.clone(), index.fingerprint())),
            Changed::Refuse => return Err(refusal(self.root, seen.changes)),
            Changed::Warn => {}
        }
        index.file.accept(seen.root.unwrap_or(index.root_stamp()), &seen.same);
        index.changed_shards.extend(seen.different);
        let then = "the old index stays in use; samples that are missing or do not match it cause an error when \
                    they are read";
        self.notify(change, then);
        Ok(Revalidated::Index(Box::new(index)))
    }

    fn notify(&self, Change { path, message }: &Change, then: &str) {
        let message = format!(
            "the dataset {} has changed since it was indexed: {} {message}: {then} (changed={:?})",
            self.root.display(),
            path.display(),
            self.options.changed.name(),
        );
        self.options.notices.notify(NoticeKind::Warning, message);
    }

    /// Like `open_in`, but in a temporary directory that can disappear with the container or at the next boot.
    fn open_in_temporary(&self, because: &str) -> Result<DatasetPart> {
        let directory = IndexDirectory::temporary()?;
        let index = self.open_in(&directory)?;
        self.options.notices.warn_once("index directory", || {
            format!(
                "the index is stored in {}, where it may be deleted ({because}): set index_dir or FORELOAD_INDEX_DIR \
                 to a writable directory, so that the dataset is not listed again at every start",
                directory.path.display()
            )
        });
        Ok(index)
    }

    fn find(&self, file: &Path) -> Result<FoundIndex> {
        match self.load(file, self.members_to_load()) {
            Ok(index) => {
                let moved = ChangedStamps::since(&index)?;
                if moved.is_empty() {
                    return Ok(FoundIndex::Same(index));
                }
                if index.file.has_members {
                    return Ok(FoundIndex::Stale(index, moved));
                }
                // Load all members, because changed shards are compared with all their members.
                match self.load(file, LoadMembers::All) {
                    Ok(index) => Ok(FoundIndex::Stale(index, moved)),
                    Err(error) => Ok(FoundIndex::Missing(error.to_string())),
                }
            }
            Err(Error::Io { source, .. }) if source.kind() == ErrorKind::NotFound => {
                Ok(FoundIndex::Missing("there was no index yet".to_owned()))
            }
            // A damaged index is not an error, because it can be built again.
            Err(error) => Ok(FoundIndex::Missing(error.to_string())),
        }
    }

    fn members_to_load(&self) -> LoadMembers {
        match (&self.options.members, self.options.label_column || !self.options.columns.is_empty()) {
            (Some(_), _) => LoadMembers::All,
            (None, true) => LoadMembers::TablesOnly,
            (None, false) => LoadMembers::Nothing,
        }
    }

    fn load(&self, file: &Path, members_to_load: LoadMembers) -> Result<DatasetPart> {
        let mut index = DatasetPart::new(self.root, &*self.source, IndexFile::load(file, members_to_load)?)?;
        index.inodes = self.inodes;
        index.split.clone_from(&self.options.split);
        index.label_asked.clone_from(&self.options.label);
        index.images_asked.clone_from(&self.options.images);
        index.bad_shards = self.options.bad_shards;
        let same_root = index.file.section(Section::Root) == self.canonical.as_os_str().as_bytes();
        if !same_root || index.file.header.contents != self.options.contents {
            return Err(Error::dataset(file, "is the index of another dataset"));
        }
        Ok(index)
    }

    fn build(&self, file: &Path) -> Result<()> {
        let Self { root, source, canonical, options, cancel, inodes } = self;
        let source = &**source;
        cancel.check(root)?;
        let progress = IndexProgress::new(options.progress);
        // Take the stamp before reading the names, so that names that are added later are detected as a change.
        let gone = || Error::io("open dataset", *root, ErrorKind::NotFound.into());
        let look = |shards: &[Vec<u8>], described: &[&str]| {
            let shards = shards.iter().map(Vec::as_slice);
            let names = || stamp_of_names(source, shards.clone(), described, *inodes)?.ok_or_else(gone);
            Stamp::stable(COARSE_TICK, || names().map(|names| names.stamp))
        };
        let search = DatasetSearch { source, contents: options.contents, cancel };
        let survey = || match options.parallel.is_empty() {
            true => survey::survey(search, options.split.as_deref()),
            false => survey::parallel(search, options.split.as_deref()),
        };
        let (mut stamp, mut found) = (look(&[], &[])?, survey()?);
        let described = found.layout.shards().map(ShardLayout::description_files).unwrap_or_default();
        if !described.is_empty() {
            stamp = look(&found.shards, &described)?;
            found = survey()?;
        }
        let Survey { layout, mut classes, shards, notes, mut empty_message, packed, .. } = found;
        let mut notes = notes.assigned_to(ROOT_SURVEY);
        if let Some(manifest) = &packed {
            manifest.check_asked(root, options.contents, options.every_stem)?;
        }
        let threads = threads(options, source, layout);
        let new = || -> Result<IndexBuilder> {
            let mut builder = IndexBuilder::new(file, layout, options.contents)?;
            builder.cancel = (*cancel).clone();
            builder.inodes = *inodes;
            Ok(builder)
        };
        let mut builder = new()?;
        // For a loader of images, shards without images have no samples. A loader of other members uses these shards,
        // because the members can be images with other extensions.
        let any_image = || -> Result<Option<String>> {
            let first = |shard| shards::first_image(source, shard, cancel);
            let mut read = shards.iter().map(|shard| Ok(first(shard)?.found.unwrap_or_default()));
            read.find_map(Result::transpose).transpose()
        };
        let every_stem = layout == Layout::Tar
            && (options.every_stem || options.members.is_some() && any_image()?.is_none());
        if every_stem {
            empty_message = "the shards hold no sample".to_owned();
        }
        let reading = ShardReadOptions {
            every_stem,
            label: options.label.clone(),
            images: options.images.clone(),
            sample_axis: options.sample_axis,
            arrays: options.chosen_arrays(),
            optional: options.optional_arrays(),
            ..Default::default()
        };
        let (mut labels, mut unread) = (None, UnreadShards::default());
        let more = match &packed {
            Some(manifest) => {
                packed::index(source, manifest, &mut builder, &mut unread, threads, &progress, cancel)?
            }
            None if layout.is_sharded() => {
                let mut all = DatasetShards { source, layout, names: &shards, reading };
                let found = loop {
                    let found = shards::index(&all, &mut builder, threads, &progress, cancel)?;
                    let Some(reading) = found.read_again else { break found };
                    all.reading = reading;
                    builder = new()?;
                };
                (classes, labels, unread) = (found.classes, found.labels, found.unread);
                found.notes
            }
            None if let Some(manifest) = source.manifest() => {
                let found = manifest::read(manifest, options.contents, &reading, threads, &progress, cancel)?;
                builder.add(&found.group)?;
                classes = found.classes;
                found.notes
            }
            None if layout == Layout::Parallel => {
                pairs::index(search, &options.parallel, &mut builder, threads, &progress)?
            }
            None => folder::index(search, &classes, &mut builder, threads, &progress)?,
        };
        notes.absorb(more);
        if layout.is_array() {
            (notes.sample_axis, notes.chosen_arrays) = (options.sample_axis, options.chosen_arrays());
            notes.optional_arrays = options.optional_arrays();
        }
        unread.record((*root, source), options, (shards.len(), builder.samples()), &mut notes)?;
        if builder.samples() == 0
            && let Some((layout, splits)) = layouts::marked_directories(source, &classes, options.contents)?
        {
            return Err(splits::directories_error(source, layout, &splits, None));
        }
        if builder.samples() == 0 {
            if layout == Layout::Zarr {
                check_array_names(root, &shards, &options.chosen_arrays().unwrap_or_default())?;
            }
            return Err(Error::dataset(*root, notes.explain(&empty_message)));
        }
        let without =
            |manifest: PackedManifest| fingerprint_without(manifest.fingerprint(), &notes.bad_shards);
        let fingerprint = packed.map(without);
        builder.finish(&IndexFacts {
            root: canonical.clone(),
            root_stamp: stamp,
            classes,
            labels,
            notes,
            fingerprint,
        })
    }
}

enum FoundIndex {
    Same(DatasetPart),
    Stale(DatasetPart, ChangedStamps),
    /// No usable index, with the reason.
    Missing(String),
}

enum Revalidated {
    Index(Box<DatasetPart>),
    /// The index must be rebuilt because of this change. The fingerprint is that of the old index.
    Changed(Change, Fingerprint),
}

fn refusal(root: &Path, changes: Vec<Change>) -> Error {
    let faults = changes.into_iter().map(|Change { path, message }| (path, message)).collect();
    let (path, message) = bad_shards::join_faults(root, faults).unwrap_or_default();
    Error::DatasetChanged { path, message }
}

/// Compares all files and directories below the root with `index`, and shards with the checksums that their layout
/// stores. Warns of checksums that cannot be compared.
pub(super) fn verify(index: &DatasetPart, notices: &Notices) -> Result<()> {
    let threads = threads(&IndexOptions::default(), &*index.source, index.layout());
    let cancel = Cancel::default();
    let changes = ChangedStamps::all(index).compare(index, threads, true, &cancel)?.changes;
    if !changes.is_empty() {
        return Err(refusal(&index.root, changes));
    }
    let Some(layout_impl) = index.layout().shards() else { return Ok(()) };
    let parser = layout_impl.parser(&*index.source, &index.reading())?;
    let (not_compared, faults) = (Mutex::new(BTreeSet::new()), Mutex::new(Vec::new()));
    for_each(threads, index.shards(), |group| {
        let shard = index.group_path(group);
        if index.notes.bad_shard(shard).is_some() {
            return Ok(());
        }
        match shards::verify(&*index.source, shard, &*parser, &cancel) {
            Ok(unknown) => not_compared.lock().unwrap_or_else(PoisonError::into_inner).extend(unknown),
            Err(Error::Dataset { path, message }) => {
                faults.lock().unwrap_or_else(PoisonError::into_inner).push((path, message));
            }
            Err(error) => return Err(error),
        }
        Ok(())
    })?;
    let faults = faults.into_inner().unwrap_or_else(PoisonError::into_inner);
    if let Some((path, message)) = bad_shards::join_faults(&index.root, faults) {
        return Err(Error::dataset(path, message));
    }
    for why in not_compared.into_inner().unwrap_or_else(PoisonError::into_inner) {
        notices.notify(NoticeKind::Warning, format!("{}: {why}", index.root.display()));
    }
    Ok(())
}

/// Threads that index a dataset on a server mostly wait for responses, so their number does not depend on the
/// processors.
pub(super) fn threads(options: &IndexOptions, source: &dyn DatasetSource, layout: Layout) -> usize {
    match options.threads {
        0 if source.is_remote() && layout.is_table() => REMOTE_TABLE_THREADS,
        0 if source.is_remote() => REMOTE_THREADS,
        0 => {
            let least = if layout.is_array() { ARRAY_THREADS } else { 4 };
            std::thread::available_parallelism().map_or(least, |n| n.get().max(least))
        }
        threads => threads,
    }
}

pub(super) struct IndexProgress(ProgressBar);

impl IndexProgress {
    pub(super) fn new(visible: bool) -> Self {
        Self(if visible { ProgressBar::new_spinner() } else { ProgressBar::hidden() })
    }

    /// Sets the number of items, or 0 if the number is unknown. `what` is the plural noun for the items.
    pub(super) fn expect(&self, total: u64, what: &str) {
        let template = if total > 0 {
            "{spinner} indexing [{bar:40}] {human_pos}/{human_len} {msg} ({per_sec}, {eta} left)"
        } else {
            "{spinner} indexing {human_pos} {msg} ({per_sec})"
        };
        if total > 0 {
            self.0.set_length(total);
        }
        if let Ok(style) = ProgressStyle::with_template(template) {
            self.0.set_style(style);
        }
        self.0.set_message(what.to_owned());
        self.0.enable_steady_tick(Duration::from_millis(200));
    }

    pub(super) fn step(&self, count: u64) {
        self.0.inc(count);
    }
}

impl Drop for IndexProgress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
