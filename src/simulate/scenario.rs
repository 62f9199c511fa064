//! The input of a simulation: nodes, caches, rates, dataset and epochs, from a TOML file or a built-in scenario.

use base::error::{Error, Result};
use engine::config::parse_bytes;
use serde::{Deserialize, Deserializer};
use std::path::{Path, PathBuf};

/// Scenarios of Dryden et al. (SC'21): pairs of a name for `--scenario` and TOML text.
pub const BUILT_IN: &[(&str, &str)] = &[
    ("nopfs-1", include_str!("scenarios/nopfs-1.toml")),
    ("nopfs-2", include_str!("scenarios/nopfs-2.toml")),
    ("nopfs-3", include_str!("scenarios/nopfs-3.toml")),
    ("nopfs-4", include_str!("scenarios/nopfs-4.toml")),
];

/// A number of bytes, or of bytes per second: `4096`, `"200MB"`, `"1.5GB/s"`.
#[derive(Debug, Clone, Copy, Default, PartialEq, PartialOrd)]
pub struct Bytes(pub f64);

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged, expecting = "a number of bytes, or a text such as \"300MB\" or \"1.5GB/s\"")]
        enum BytesText {
            Number(f64),
            Text(String),
        }
        match BytesText::deserialize(deserializer)? {
            BytesText::Number(number) if number >= 0.0 && number.is_finite() => Ok(Self(number)),
            BytesText::Number(number) => {
                Err(serde::de::Error::custom(format!("is {number}, must be 0 or more bytes")))
            }
            BytesText::Text(text) => {
                let text = text.trim();
                let size = text.strip_suffix("/s").unwrap_or(text);
                let bytes = parse_bytes("scenario", size).map_err(|_| {
                    let message =
                        format!("is {text:?}, must be a size such as 300MB or a rate such as 1.5GB/s");
                    serde::de::Error::custom(message)
                })?;
                Ok(Self(bytes as f64))
            }
        }
    }
}

/// One training job on one machine, with everything that its duration depends on. Rates are in bytes per second.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// Name of the scenario in tables.
    pub name: String,
    /// Number of nodes. Each has its own staging buffer and caches.
    pub nodes: u32,
    /// Number of ranks that share a node's threads and caches.
    #[serde(default = "one")]
    pub ranks_per_node: u32,
    /// Number of samples that a rank takes in a step.
    pub batch_size: u32,
    /// How many times each sample occurs in a global batch, like a loader's setting `repeats`.
    #[serde(default = "one")]
    pub repeats: u32,
    /// Number of epochs of the training.
    pub epochs: u32,
    /// Seed of the sample order.
    #[serde(default)]
    pub seed: u64,
    /// Rate at which a node's consumers use samples, in bytes per second.
    pub compute: Bytes,
    /// Rate at which one thread decodes and augments, in bytes per second.
    pub preprocess: Bytes,
    /// Rate at which a node reads from the caches of other nodes. The node can serve other nodes at the same rate at
    /// the same time. `None`: nodes read only their own caches.
    #[serde(default)]
    pub network: Option<Bytes>,
    /// The samples of the dataset.
    pub dataset: DatasetSpec,
    /// The storage that holds the dataset, slower than the caches.
    pub slow: SlowTierSpec,
    /// The buffer in which prepared samples wait for their step.
    pub staging: StagingSpec,
    /// Caches of a node, the preferred cache first.
    #[serde(default)]
    pub cache: Vec<CacheSpec>,
    /// Groups of nodes with cache sizes that differ from `cache`. The first group begins with the first node.
    #[serde(default)]
    pub group: Vec<NodeGroup>,
}

/// A group of nodes with cache sizes that differ from those of the scenario.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeGroup {
    /// Number of nodes in the group.
    pub nodes: u32,
    /// Size of each cache on each of these nodes, in the order of the caches.
    pub capacity: Vec<Bytes>,
}

/// The samples of a dataset. Their sizes are normally distributed, or taken from a real dataset.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DatasetSpec {
    /// Number of samples. Must be absent if `index` is given, because the index has its own number.
    #[serde(default)]
    pub samples: u64,
    /// Mean size.
    #[serde(default)]
    pub mean: Bytes,
    /// Standard deviation of the sizes. No sample is smaller than a tenth of the mean.
    #[serde(default)]
    pub sigma: Bytes,
    /// Seed of the sizes.
    #[serde(default)]
    pub seed: u64,
    /// Dataset whose sample sizes are used instead of random sizes.
    #[serde(default)]
    pub index: Option<PathBuf>,
}

/// The storage that holds the dataset. If γ nodes read, a reading thread gets the rate `t(γ)/γ`.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SlowTierSpec {
    /// Maximum rate that one reading thread gets, in bytes per second.
    pub client: Bytes,
    /// t(γ), the total rate of γ reading nodes: linear between the given points, constant above the last point,
    /// proportional to γ below the first.
    pub rates: Vec<ClientRate>,
    /// Maximum total rate of all nodes, however many threads read.
    #[serde(default)]
    pub total: Option<Bytes>,
}

/// One point of t(γ).
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClientRate {
    /// Number of nodes that read.
    pub clients: u32,
    /// Total rate of these nodes.
    pub rate: Bytes,
}

/// The staging buffer and the threads that fill it.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StagingSpec {
    /// Size of the buffer in bytes, which limits how far reading runs ahead of the consumer.
    pub capacity: Bytes,
    /// Number of threads that fetch and preprocess.
    pub threads: u32,
}

/// One cache of a node.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CacheSpec {
    /// Name of the cache, for example "NVMe".
    pub name: String,
    /// Size of the cache on each node.
    pub capacity: Bytes,
    /// Number of threads that prefetch into the cache.
    pub threads: u32,
    /// r(p), the total read rate of p threads, as points.
    pub read: Vec<ThreadRate>,
    /// w(p), the total write rate of p threads, as points.
    pub write: Vec<ThreadRate>,
}

/// One point of r(p) or w(p).
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ThreadRate {
    /// Number of threads.
    pub threads: u32,
    /// Total rate of these threads.
    pub rate: Bytes,
}

fn one() -> u32 {
    1
}

impl Scenario {
    /// Loads the built-in scenario `name`. If there is none, loads the file at the path `name`.
    ///
    /// # Errors
    /// [`Error::Io`] for a file that cannot be read. [`Error::Config`] for an invalid scenario; the message names the
    /// key.
    pub fn load(name: &str) -> Result<Self> {
        if let Some((_, text)) = BUILT_IN.iter().find(|(built_in, _)| *built_in == name) {
            return Self::parse(name, text);
        }
        let path = Path::new(name);
        if !path.exists() && !name.contains(['/', '.']) {
            let known: Vec<_> = BUILT_IN.iter().map(|(name, _)| *name).collect();
            let message = format!("is {name:?}, must be one of {} or a TOML file", known.join(", "));
            return Err(Error::config("scenario", message));
        }
        let text = std::fs::read_to_string(path).map_err(|error| Error::io("read", path, error))?;
        let mut scenario = Self::parse(name, &text)?;
        if let (Some(index), Some(parent)) = (&mut scenario.dataset.index, path.parent()) {
            *index = parent.join(&*index);
        }
        Ok(scenario)
    }

    /// Parses a scenario from TOML text. `name` is for error messages.
    ///
    /// # Errors
    /// [`Error::Config`] for an invalid scenario; the message names the key.
    pub fn parse(name: &str, text: &str) -> Result<Self> {
        let scenario: Self =
            toml::from_str(text).map_err(|error| Error::config("scenario", format!("{name}: {error}")))?;
        scenario.check()?;
        Ok(scenario)
    }

    /// Checks that all numbers are valid and consistent.
    ///
    /// # Errors
    /// [`Error::Config`] for an invalid value; the message names the key.
    pub fn check(&self) -> Result<()> {
        let bad = |key: &str, message: String| {
            Err(Error::config("scenario", format!("{}: {key}: {message}", self.name)))
        };
        let counts = [
            ("nodes", self.nodes),
            ("ranks_per_node", self.ranks_per_node),
            ("batch_size", self.batch_size),
            ("repeats", self.repeats),
            ("epochs", self.epochs),
            ("staging.threads", self.staging.threads),
        ];
        for (key, count) in counts {
            if count == 0 {
                return bad(key, "is 0, must be at least 1".into());
            }
        }
        let rates = [
            ("compute", self.compute),
            ("preprocess", self.preprocess),
            ("network", self.network.unwrap_or(Bytes(1.0))),
            ("slow.client", self.slow.client),
            ("slow.total", self.slow.total.unwrap_or(Bytes(1.0))),
            ("staging.capacity", self.staging.capacity),
        ];
        for (key, rate) in rates {
            if rate.0 <= 0.0 {
                return bad(key, "is 0, must be more than 0".into());
            }
        }
        let slow: Vec<_> = self.slow.rates.iter().map(|point| (point.clients, point.rate.0)).collect();
        if let Err(message) = increasing(&slow, "clients") {
            return bad("slow.rates", message);
        }
        for cache in &self.cache {
            for (key, rates) in [("read", &cache.read), ("write", &cache.write)] {
                if let Err(message) = increasing(&points(rates), "threads") {
                    return bad(&format!("cache {}: {key}", cache.name), message);
                }
            }
            if cache.threads == 0 {
                return bad(&format!("cache {}: threads", cache.name), "is 0, must be at least 1".into());
            }
        }
        if self.cache.len() > MAX_CACHES {
            return bad("cache", format!("has {} tables, must be at most {MAX_CACHES}", self.cache.len()));
        }
        let grouped: u64 = self.group.iter().map(|group| u64::from(group.nodes)).sum();
        if grouped > u64::from(self.nodes) {
            return bad(
                "group",
                format!(
                    "has {grouped} nodes, but the scenario has only {}: raise nodes, or shrink the groups",
                    self.nodes
                ),
            );
        }
        if let Some(group) = self.group.iter().find(|group| group.capacity.len() != self.cache.len()) {
            let (sizes, caches) = (group.capacity.len(), self.cache.len());
            return bad(
                "group.capacity",
                format!("has {sizes} sizes, must have one for each of {caches} caches"),
            );
        }
        let DatasetSpec { samples, mean, index, .. } = &self.dataset;
        match index {
            Some(_) if *samples > 0 || mean.0 > 0.0 => {
                bad("dataset.index", "cannot be combined with samples or mean".into())
            }
            None if *samples > u64::from(u32::MAX) => {
                bad("dataset.samples", format!("is {samples}, must be at most {}", u32::MAX))
            }
            None if *samples == 0 => bad("dataset.samples", "is missing or 0, must be at least 1".into()),
            None if mean.0 < 1.0 => bad("dataset.mean", "is missing or 0, must be at least 1".into()),
            _ => Ok(()),
        }
    }

    /// Returns the size of each cache of a node, in bytes.
    pub fn capacities(&self, node: u32) -> Vec<f64> {
        let mut before = 0;
        let group = self.group.iter().find(|group| {
            before += group.nodes;
            node < before
        });
        match group {
            Some(group) => group.capacity.iter().map(|capacity| capacity.0).collect(),
            None => self.cache.iter().map(|cache| cache.capacity.0).collect(),
        }
    }

    /// Returns the total size of all caches of a node, in bytes.
    pub fn node_cache(&self, node: u32) -> f64 {
        self.capacities(node).iter().sum()
    }

    /// Returns the total size of all caches of all nodes, in bytes.
    pub fn all_caches(&self) -> f64 {
        (0..self.nodes).map(|node| self.node_cache(node)).sum()
    }

    /// Returns the average number of epochs between two uses of a sample on the same node.
    pub fn epochs_between_uses(&self) -> u32 {
        self.nodes.max(self.repeats)
    }

    /// Returns the number of samples of a global batch.
    pub fn global_batch(&self) -> u64 {
        u64::from(self.node_batch()) * u64::from(self.nodes)
    }

    /// Returns the number of samples that a node takes in a step.
    pub fn node_batch(&self) -> u32 {
        self.ranks_per_node * self.batch_size
    }
}

/// Maximum number of caches of a node: [`super::access::PublishedCopies`] stores the index of a cache in 3 bits.
pub(super) const MAX_CACHES: usize = 7;

impl SlowTierSpec {
    /// Returns the rate of one reader when `clients` nodes read: min(b_fs, t(γ)/γ).
    pub fn share(&self, clients: u32) -> f64 {
        let points: Vec<_> = self.rates.iter().map(|point| (point.clients, point.rate.0)).collect();
        (between(&points, clients) / f64::from(clients.max(1))).min(self.client.0)
    }
}

impl CacheSpec {
    /// Returns the rate at which one of the cache's threads reads: r(p)/p.
    pub fn read_share(&self) -> f64 {
        between(&points(&self.read), self.threads) / f64::from(self.threads)
    }

    /// Returns the rate at which one of the cache's threads writes: w(p)/p.
    pub fn write_share(&self) -> f64 {
        between(&points(&self.write), self.threads) / f64::from(self.threads)
    }
}

fn points(rates: &[ThreadRate]) -> Vec<(u32, f64)> {
    rates.iter().map(|point| (point.threads, point.rate.0)).collect()
}

/// Interpolates at `x`: linear between points, constant above the last point, proportional to `x` below the first.
fn between(points: &[(u32, f64)], x: u32) -> f64 {
    let after = points.partition_point(|(at, _)| *at < x);
    match (after.checked_sub(1).map(|before| points[before]), points.get(after)) {
        (None, Some(&(at, value))) => value * f64::from(x) / f64::from(at.max(1)),
        (Some((a, low)), Some(&(b, high))) => low + (high - low) * f64::from(x - a) / f64::from(b - a),
        (Some((_, value)), None) => value,
        (None, None) => 0.0,
    }
}

fn increasing(points: &[(u32, f64)], of: &str) -> Result<(), String> {
    if points.is_empty() {
        return Err("is empty, must have at least one rate".into());
    }
    if points[0].0 == 0 || points.windows(2).any(|pair| pair[0].0 >= pair[1].0) {
        return Err(format!("has {of} out of order, must start at 1 or more and increase"));
    }
    match points.iter().find(|(_, rate)| *rate <= 0.0) {
        Some((at, _)) => Err(format!("has a rate of 0 at {of} = {at}, must be more than 0")),
        None => Ok(()),
    }
}
