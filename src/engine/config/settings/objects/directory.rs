//! `foreload.Directory`: a tier of the cache, on a drive.

use super::ObjectRow;
use super::SettingsObject::Directory;
use crate::config::settings::forms::{ByteCount, Maybe, OneOf, OwnDirectory};
use crate::config::settings::table::settings;
use crate::config::settings::{Affects, Description, Form, Setting, Topic};
use base::error::{Error, Result};
use std::path::PathBuf;
use store::tier::{FillChoice, FormChoice, TierName, TierOptions};

pub(super) static ROW: ObjectRow = ObjectRow {
    keyword: "cache",
    is_usual: true,
    positional: 2,
    members: MEMBERS,
    summary: "A cache in a directory on local NVMe, for `cache=` of a loader.",
    story: "What is there is used again by the next run, and other loaders, ranks, jobs and datasets may share it. The \
            dataset itself is never touched.",
    example: "cache=foreload.Directory(\"/nvme/foreload\", \"800GB\")",
};

settings! {
    /// The tier of `cache` in a directory: a `foreload.Directory`. The tier does not exist without a path.
    DirectoryChoice, |options| options.cache.directory;

    /// The members of `foreload.Directory`.
    MEMBERS;

    /// A directory on local NVMe, made where it is missing.
    path: Option<PathBuf> = None, Maybe(OwnDirectory), Cache, Nothing.only_in(Directory, "cache_dir").flag("cache");

    /// Bytes the directory may take, or a text such as `"800GB"`.
    size: Option<u64> = None, Maybe(ByteCount), Cache, Nothing.only_in(Directory, "cache_size");

    /// How the cache is filled. `use`: with what is read anyway. `ahead`: also by whole shards in large sequential
    /// reads beside training, in the order of their next use (where all ranks share one cache). `auto`: by rates
    /// measured at the start.
    fill: FillChoice = FillChoice::Auto, OneOf::names(),
        Cache, Nothing.only_in(Directory, "cache_fill").flag_alias("fill");

    /// Bytes per second that filling ahead may take of the dataset's storage, of all ranks that share the cache
    /// together, or a text such as `"500MB"`. None: whatever the reads that training waits for leave.
    stage_bandwidth: Option<u64> = None, Maybe(ByteCount), Cache, Nothing.only_in(Directory, "stage_bandwidth");

    /// The form in which copies are kept. `packed`: JPEGs without their entropy coder, which take half to two thirds of
    /// the CPU time for the same pixels and 1.2 times the room. `indexed`: JPEGs with an index of their rows, 1.01
    /// times. `as-is`: as they are read. `auto`: packed where there is room for all samples in that form, else indexed
    /// where there is room for that. Samples are kept as they are read and brought to the form during training, by a
    /// thread of low priority; what is no JPEG, is one of more than about 15 megapixels, or has several members, stays
    /// as it is.
    form: FormChoice = FormChoice::Auto, OneOf::names(), Cache, Nothing.only_in(Directory, "cache_form");
}

impl DirectoryChoice {
    /// Returns the requested tier, if any.
    ///
    /// # Errors
    /// [`Error::Config`] if a path or a size is missing; [`Error::Io`] if the working directory no longer exists.
    pub(super) fn tier(&self) -> Result<Option<TierOptions>> {
        match (&self.path, self.size) {
            (None, None) => Ok(None),
            (None, Some(_)) => {
                Err(Error::config("cache_dir", "is not given, but its size is: where shall the cache be?"))
            }
            (Some(path), None) => {
                let message = format!("is not given: how many bytes may {} take?", path.display());
                Err(Error::config("cache_size", message))
            }
            (Some(path), Some(size)) => Ok(Some(TierOptions::Directory {
                name: TierName::NVME,
                // The path is made absolute now, because the working directory may change before the cache is opened.
                path: std::path::absolute(path).map_err(|error| Error::io("resolve", path, error))?,
                size,
                form: self.form,
            })),
        }
    }
}
