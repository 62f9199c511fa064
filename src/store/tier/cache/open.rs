//! Opens the tiers of a cache as the user configured them.

use super::super::convert::FormChoice;
use super::super::copies::CacheTier;
use super::super::directory::{Directory, ServedFiles};
use super::super::peers::{OtherNodes, PeerNetwork, SharedJob};
use super::super::ram::Ram;
use super::super::store::{Store, StoreOptions};
use super::CacheOptions;
use base::error::{Error, Result};
use base::names::NamedValue;
use base::tier_name::TierName;
use base::trace::Trace;
use data::dataset::DatasetIndex;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A cache tier in the user's configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TierOptions {
    /// Copies in memory.
    Ram {
        /// The tier's name in statistics and logs.
        name: TierName,
        /// Maximum number of bytes of memory for the tier on each node. The node's ranks share them equally.
        size: u64,
        /// The storage format of the tier's copies.
        form: FormChoice,
    },
    /// Copies in a directory on a local drive.
    Directory {
        /// The tier's name in statistics and logs.
        name: TierName,
        /// The directory.
        path: PathBuf,
        /// Maximum number of bytes of the directory, shared by all jobs and datasets that use it.
        size: u64,
        /// The storage format of the tier's copies.
        form: FormChoice,
    },
}

impl fmt::Display for TierOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ram { size, .. } => write!(f, "{size} bytes of memory")?,
            Self::Directory { path, size, .. } => write!(f, "{size} bytes in {}", path.display())?,
        }
        match self.form() {
            FormChoice::Auto => Ok(()),
            form => write!(f, ", {}", form.name()),
        }
    }
}

impl TierOptions {
    /// Returns the tier's name in statistics and logs.
    pub fn name(&self) -> TierName {
        match self {
            Self::Ram { name, .. } | Self::Directory { name, .. } => *name,
        }
    }

    /// Returns the maximum size of the tier in bytes.
    pub fn size(&self) -> u64 {
        match self {
            Self::Ram { size, .. } | Self::Directory { size, .. } => *size,
        }
    }

    /// Returns the directory of the tier's copies; `None` if they are in memory.
    pub fn directory(&self) -> Option<&Path> {
        match self {
            Self::Directory { path, .. } => Some(path),
            Self::Ram { .. } => None,
        }
    }

    /// Returns the storage format of the tier's copies.
    pub fn form(&self) -> FormChoice {
        match self {
            Self::Ram { form, .. } | Self::Directory { form, .. } => *form,
        }
    }
}

pub(super) struct OpenedTiers {
    pub(super) tiers: Vec<(Box<dyn CacheTier>, FormChoice)>,
    /// Set if the job's nodes share their caches. The last tier then represents the caches of the other nodes.
    pub(super) network: Option<Arc<PeerNetwork>>,
}

/// Opens the tiers of `options` in their order, and loads the dataset's copies that they already have. A directory that
/// cannot be used is left out with a warning. If nodes share their caches, waits for the other ranks and exchanges
/// addresses with them.
///
/// # Errors
/// The errors of [`Store::check`], [`Ram::new`] and [`PeerNetwork::meet`]; [`Error::Io`] if the working directory was
/// removed.
pub(super) fn tiers(
    index: &Arc<DatasetIndex>,
    options: &CacheOptions,
    trace: &Trace,
    job: &SharedJob<'_>,
) -> Result<OpenedTiers> {
    // Open directories before the exchange with the other ranks, which reports their contents. Allocate memory after
    // the exchange, because its size depends on the other ranks of this node.
    let mut directories = Vec::new();
    for tier in &options.tiers {
        directories.push(match tier {
            TierOptions::Directory { name, path, size, .. } => {
                // The working directory may change later, so make the path absolute.
                let path = std::path::absolute(path).map_err(|error| Error::io("resolve", path, error))?;
                directory(index, options, *name, path, *size, trace)?
            }
            TierOptions::Ram { .. } => None,
        });
    }
    let network = match &options.peers {
        Some(peers) if job.place.world_size > 1 => {
            let opened: Vec<&dyn CacheTier> = directories.iter().flatten().map(|tier| &**tier).collect();
            for (name, size) in options.memory() {
                // If this rank cannot get the memory, fail before the other ranks wait for this rank.
                Ram::new(index, name, size, 1)?;
            }
            PeerNetwork::meet(peers, index, options, &opened, job)?.map(Arc::new)
        }
        _ => None,
    };
    let mut tiers: Vec<(Box<dyn CacheTier>, FormChoice)> = Vec::new();
    for (tier, directory) in options.tiers.iter().zip(directories) {
        match (tier, &network) {
            (TierOptions::Directory { form, .. }, _) => tiers.extend(directory.map(|tier| (tier, *form))),
            (TierOptions::Ram { name, size, form }, None) => {
                let ranks = u64::from(options.local_world_size.unwrap_or(1).max(1));
                tiers.push((Box::new(Ram::new(index, *name, *size, ranks)?), *form));
            }
            // Only one process of a node has the memory. The other processes use it through the node's server.
            (TierOptions::Ram { name, size, form }, Some(network)) if network.is_first => {
                tiers.push((Box::new(Ram::new(index, *name, *size, 1)?), *form));
            }
            (TierOptions::Ram { .. }, Some(_)) => {}
        }
    }
    if let Some(network) = &network {
        let others = OtherNodes::new(index, network.clone(), options.verify, options.queue_depth);
        tiers.push((Box::new(others), FormChoice::AsIs));
    }
    Ok(OpenedTiers { tiers, network })
}

impl CacheOptions {
    /// The tiers in memory, and their sizes.
    pub(in crate::tier) fn memory(&self) -> impl Iterator<Item = (TierName, u64)> {
        let in_memory = self.tiers.iter().filter(|tier| tier.directory().is_none());
        in_memory.map(|tier| (tier.name(), tier.size()))
    }
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
            let served = ServedFiles::default();
            Ok(Some(Box::new(Directory { name, path, size, store, io, direct, queue_depth, served })))
        }
        Err(error) => {
            let why = || {
                format!(
                    "the cache directory cannot be used: {error}. Samples that no other tier has are read from the \
                     dataset"
                )
            };
            index.notices().warn_once(("no cache", name.as_str()), why);
            Ok(None)
        }
    }
}
