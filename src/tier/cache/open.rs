//! The tiers of a cache, opened as the user asked for them.

use super::super::copies::CacheTier;
use super::super::directory::Directory;
use super::super::ram::Ram;
use super::super::store::{Store, StoreOptions};
use super::CacheOptions;
use crate::dataset::DatasetIndex;
use crate::error::{Error, Result};
use crate::tier_name::TierName;
use crate::trace::Trace;
use std::path::PathBuf;
use std::sync::Arc;

/// A tier that the user asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TierOptions {
    /// Copies in memory.
    Ram {
        /// What statistics and logs call it.
        name: TierName,
        /// Bytes that it may take of the node's memory; each of the node's ranks has an equal part.
        size: u64,
    },
    /// Copies in a directory on a local drive.
    Directory {
        /// What statistics and logs call it.
        name: TierName,
        /// The directory.
        path: PathBuf,
        /// Bytes that it may take, shared by all jobs and datasets in the directory.
        size: u64,
    },
}

impl TierOptions {
    /// What statistics and logs call the tier.
    pub fn name(&self) -> TierName {
        match self {
            Self::Ram { name, .. } | Self::Directory { name, .. } => *name,
        }
    }
}

/// Opens the tiers of `options`, in their order, and loads what they hold of the dataset already. A directory that
/// cannot be used is left out, and a notice says why.
///
/// # Errors
/// The errors of [`Store::check`] and [`Ram::new`]; [`Error::Io`] where the working directory is gone.
pub(super) fn tiers(
    index: &Arc<DatasetIndex>,
    options: &CacheOptions,
    trace: &Trace,
) -> Result<Vec<Box<dyn CacheTier>>> {
    let mut tiers: Vec<Box<dyn CacheTier>> = Vec::new();
    for tier in &options.tiers {
        match tier {
            TierOptions::Ram { name, size } => {
                let ranks = u64::from(options.local_world_size.unwrap_or(1).max(1));
                tiers.push(Box::new(Ram::new(index, *name, *size, ranks)?));
            }
            TierOptions::Directory { name, path, size } => {
                // The working directory may change while the store is used.
                let path = std::path::absolute(path).map_err(|error| Error::io("resolve", path, error))?;
                tiers.extend(directory(index, options, *name, path, *size, trace)?);
            }
        }
    }
    Ok(tiers)
}

fn directory(
    index: &Arc<DatasetIndex>,
    options: &CacheOptions,
    name: TierName,
    path: PathBuf,
    size: u64,
    trace: &Trace,
) -> Result<Option<Box<dyn CacheTier>>> {
    let store = StoreOptions {
        name,
        trace: trace.clone(),
        verify: options.verify,
        ..StoreOptions::new(path.clone(), size)
    };
    Store::check(&store, index)?;
    match Store::open(&store, index) {
        Ok(store) => {
            let CacheOptions { io, direct, queue_depth, .. } = *options;
            Ok(Some(Box::new(Directory { name, path, size, store, io, direct, queue_depth })))
        }
        Err(error) => {
            let why = || {
                format!(
                    "the cache's directory is not used: {error}; what no other tier has is read from the dataset"
                )
            };
            index.notices().warn_once(("no cache", name.as_str()), why);
            Ok(None)
        }
    }
}
