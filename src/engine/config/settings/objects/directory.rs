//! `foreload.Directory`: a tier of the cache, on a drive.

use super::ObjectRow;
use super::SettingsObject::Directory;
use crate::config::settings::forms::{ByteCount, Maybe, OneOf, OwnDirectory};
use crate::config::settings::table::settings;
use crate::config::settings::{Affects, Setting, Topic, ValueKind};
use base::error::{Error, Result};
use std::path::PathBuf;
use store::tier::{FillChoice, FormChoice, TierName, TierOptions};

pub(super) static ROW: ObjectRow = ObjectRow {
    keyword: "cache",
    is_usual: true,
    positional: 2,
    members: MEMBERS,
    summary: "A cache in a directory on local NVMe, for `cache=` of a loader.",
    story: "The next run uses the copies again, and other loaders, ranks, jobs and datasets may share the directory. \
            The dataset itself is never changed.",
    example: "cache=foreload.Directory(\"/nvme/foreload\", \"800GB\")",
};

settings! {
    /// The tier of `cache` in a directory: a `foreload.Directory`. The tier does not exist without a path.
    DirectoryChoice, |options| options.cache.directory;

    /// The members of `foreload.Directory`.
    MEMBERS;

    /// The directory, on local NVMe. It is created if it does not exist.
    path: Option<PathBuf> = None, Maybe(OwnDirectory), Cache, Nothing.only_in(Directory, "cache_dir").flag("cache");

    /// The bytes that the directory may take, or a text such as `"800GB"`.
    size: Option<u64> = None, Maybe(ByteCount), Cache, Nothing.only_in(Directory, "cache_size");

    /// How the cache is filled. `use`: with the samples that training reads. `ahead`: also with whole shards, in large
    /// sequential reads during training, in the order of their next use (if all ranks share one cache). `auto`: chosen
    /// by rates that are measured at the start.
    fill: FillChoice = FillChoice::Auto, OneOf::names(),
        Cache, Nothing.only_in(Directory, "cache_fill").flag_alias("fill");

    /// The bytes per second that filling ahead may read from the dataset's storage, for all ranks that share the cache
    /// together, or a text such as `"500MB"`. None: the bandwidth that is left by reads that training waits for.
    stage_bandwidth: Option<u64> = None, Maybe(ByteCount), Cache, Nothing.only_in(Directory, "stage_bandwidth");

    /// The storage format of copies. `packed`: JPEGs without their entropy coding, which take half to two thirds of the
    /// CPU time for the same pixels, and 1.2 times the space. `indexed`: JPEGs with an index of their rows, 1.01 times
    /// the space. `as-is`: as they are read. `auto`: packed if there is room for all samples in that format, else
    /// indexed if there is room for that. Samples are kept as they are read, and a thread of low priority converts them
    /// during training. Samples that are not JPEGs, have more than about 15 megapixels, or have several members stay as
    /// they are.
    form: FormChoice = FormChoice::Auto, OneOf::names(), Cache, Nothing.only_in(Directory, "cache_form");
}

impl DirectoryChoice {
    /// Returns the tier that the user requested, if any.
    ///
    /// # Errors
    /// [`Error::Config`] if a path or a size is missing; [`Error::Io`] if the working directory no longer exists.
    pub(super) fn tier(&self) -> Result<Option<TierOptions>> {
        match (&self.path, self.size) {
            (None, None) => Ok(None),
            (None, Some(_)) => Err(Error::config(
                "cache_dir",
                "is not given, but a size is: pass cache=foreload.Directory(path, size)",
            )),
            (Some(path), None) => {
                let message = format!(
                    "is not given: set how many bytes {} may take, such as size=\"800GB\"",
                    path.display()
                );
                Err(Error::config("cache_size", message))
            }
            (Some(path), Some(size)) => Ok(Some(TierOptions::Directory {
                name: TierName::NVME,
                // Make the path absolute now, because the working directory may change before the cache is opened.
                path: std::path::absolute(path).map_err(|error| Error::io("resolve", path, error))?,
                size,
                form: self.form,
            })),
        }
    }
}
