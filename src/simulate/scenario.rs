//! What is simulated: nodes, caches, rates, dataset and epochs, from a TOML file or one of the built-in scenarios.

use base::error::{Error, Result};
use engine::config::parse_bytes;
use serde::{Deserialize, Deserializer};
use std::path::{Path, PathBuf};

/// The scenarios of Dryden et al. (SC'21), by the names of `--scenario`.
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
                let size = text.trim().strip_suffix("/s").unwrap_or(&text);
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

/// One training on one machine, with all that its time depends on. Rates are in bytes per second.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// The name in tables.
    pub name: String,
    /// The number of nodes, each with its own staging buffer and caches.
    pub nodes: u32,
    /// The number of ranks that share a node's threads and caches.
    #[serde(default = "one")]
    pub ranks_per_node: u32,
    /// The number of samples that a rank takes in a step.
    pub batch_size: u32,
    /// How many times each sample comes in a global batch, as the setting `repeats` of a loader.
    #[serde(default = "one")]
    pub repeats: u32,
    /// The number of epochs of the training.
    pub epochs: u32,
    /// The seed of the order.
    #[serde(default)]
    pub seed: u64,
    /// The rate at which the consumers of a node use samples.
    pub compute: Bytes,
    /// The rate at which one thread decodes and augments.
    pub preprocess: Bytes,
    /// The rate at which a node reads from the caches of others and, at the same time, gives to them; without it caches
    /// are private.
    #[serde(default)]
    pub network: Option<Bytes>,
    /// The samples of the dataset.
    pub dataset: DatasetSpec,
    /// The slow tier.
    pub slow: SlowTierSpec,
    /// The buffer in which samples wait for their step.
    pub staging: StagingSpec,
    /// The caches of a node, the preferred first.
    #[serde(default)]
    pub cache: Vec<CacheSpec>,
    /// Nodes whose caches have other sizes, from the first node on.
    #[serde(default)]
    pub group: Vec<NodeGroup>,
}

/// Some nodes whose caches have sizes of their own.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeGroup {
    /// The number of these nodes.
    pub nodes: u32,
    /// The size of each cache on each of them, in the order of the caches.
    pub capacity: Vec<Bytes>,
}

/// The samples of a dataset: their sizes are normally distributed, or those of a real dataset.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DatasetSpec {
    /// The number of samples; with an index, as many as it has.
    #[serde(default)]
    pub samples: u64,
    /// The mean size.
    #[serde(default)]
    pub mean: Bytes,
    /// The standard deviation of the sizes; no sample is smaller than a tenth of the mean.
    #[serde(default)]
    pub sigma: Bytes,
    /// The seed of the sizes.
    #[serde(default)]
    pub seed: u64,
    /// The dataset whose samples' sizes are taken instead.
    #[serde(default)]
    pub index: Option<PathBuf>,
}

/// The slow tier. One reading thread gets its share of it: `t(γ)/γ` with γ nodes reading.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SlowTierSpec {
    /// The highest rate that one reader gets.
    pub client: Bytes,
    /// t(γ), the rate that γ clients get together: linear between the given points, constant beyond them.
    pub rates: Vec<ClientRate>,
    /// The rate that all nodes get together at most, however many threads of each of them read.
    #[serde(default)]
    pub total: Option<Bytes>,
}

/// One point of t(γ).
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClientRate {
    /// The number of nodes that read.
    pub clients: u32,
    /// The rate that all of them get together.
    pub rate: Bytes,
}

/// The staging buffer and the threads that fill it.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StagingSpec {
    /// The size of the buffer: how far reading is ahead of the consumer at most.
    pub capacity: Bytes,
    /// The number of threads that fetch and preprocess.
    pub threads: u32,
}

/// One cache of a node.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CacheSpec {
    /// The name of the cache, such as "NVMe".
    pub name: String,
    /// The size of the cache on each node.
    pub capacity: Bytes,
    /// The number of threads that fill it ahead.
    pub threads: u32,
    /// r(p), the rate at which p threads read together.
    pub read: Vec<ThreadRate>,
    /// w(p), the rate at which p threads write together.
    pub write: Vec<ThreadRate>,
}

/// One point of r(p) or w(p).
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ThreadRate {
    /// The number of threads.
    pub threads: u32,
    /// The rate of all of them together.
    pub rate: Bytes,
}

fn one() -> u32 {
    1
}

impl Scenario {
    /// Loads the built-in scenario of this name, or else the one in the file at this path.
    ///
    /// # Errors
    /// [`Error::Io`] for a file that cannot be read, [`Error::Config`] for one that is no scenario, naming the key.
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
        // The path in a scenario is relative to the scenario's file.
        if let (Some(index), Some(parent)) = (&mut scenario.dataset.index, path.parent()) {
            *index = parent.join(&*index);
        }
        Ok(scenario)
    }

    /// Parses the scenario of a TOML text; `name` is what errors call it.
    ///
    /// # Errors
    /// [`Error::Config`] naming the key.
    pub fn parse(name: &str, text: &str) -> Result<Self> {
        let scenario: Self =
            toml::from_str(text).map_err(|error| Error::config("scenario", format!("{name}: {error}")))?;
        scenario.check()?;
        Ok(scenario)
    }

    /// Checks that all numbers make sense together.
    ///
    /// # Errors
    /// [`Error::Config`] naming the key.
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
                return bad(key, "is 0, must be more".into());
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
        if self.cache.len() > MOST_CACHES {
            return bad("cache", format!("has {} tables, must be at most {MOST_CACHES}", self.cache.len()));
        }
        let grouped: u64 = self.group.iter().map(|group| u64::from(group.nodes)).sum();
        if grouped > u64::from(self.nodes) {
            return bad(
                "group",
                format!("has {grouped} nodes of {}: take more nodes or smaller groups", self.nodes),
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
                bad("dataset.index", "is given beside samples or mean, must be alone".into())
            }
            None if *samples > u64::from(u32::MAX) => {
                bad("dataset.samples", format!("is {samples}, must be at most {}", u32::MAX))
            }
            None if *samples == 0 => bad("dataset.samples", "is missing or 0, must be at least 1".into()),
            None if mean.0 < 1.0 => bad("dataset.mean", "is missing or 0, must be at least 1".into()),
            _ => Ok(()),
        }
    }

    /// The size of each cache of a node, in bytes.
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

    /// The bytes that all caches of a node hold.
    pub fn node_cache(&self, node: u32) -> f64 {
        self.capacities(node).iter().sum()
    }

    /// The bytes that all caches of all nodes hold.
    pub fn all_caches(&self) -> f64 {
        (0..self.nodes).map(|node| self.node_cache(node)).sum()
    }

    /// In how many epochs a node uses a sample once, on average.
    pub fn epochs_between_uses(&self) -> u32 {
        self.nodes.max(self.repeats)
    }

    /// The number of samples of a global batch.
    pub fn global_batch(&self) -> u64 {
        u64::from(self.node_batch()) * u64::from(self.nodes)
    }

    /// The number of samples that a node takes in a step.
    pub fn node_batch(&self) -> u32 {
        self.ranks_per_node * self.batch_size
    }
}

/// The most caches of a node: a cache's number and a step fit into one word.
pub(super) const MOST_CACHES: usize = 7;

impl SlowTierSpec {
    /// The rate of one reader when `clients` nodes read: min(b_fs, t(γ)/γ).
    pub fn share(&self, clients: u32) -> f64 {
        let points: Vec<_> = self.rates.iter().map(|point| (point.clients, point.rate.0)).collect();
        (between(&points, clients) / f64::from(clients.max(1))).min(self.client.0)
    }
}

impl CacheSpec {
    /// The rate at which one of the cache's threads reads: r(p)/p.
    pub fn read_share(&self) -> f64 {
        between(&points(&self.read), self.threads) / f64::from(self.threads)
    }

    /// The rate at which one of the cache's threads writes: w(p)/p.
    pub fn write_share(&self) -> f64 {
        between(&points(&self.write), self.threads) / f64::from(self.threads)
    }
}

fn points(rates: &[ThreadRate]) -> Vec<(u32, f64)> {
    rates.iter().map(|point| (point.threads, point.rate.0)).collect()
}

/// The value at `x`: linear between points, constant beyond the last, in proportion below the first.
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
        return Err(format!("has {of} out of order, must begin at 1 or more and increase"));
    }
    match points.iter().find(|(_, rate)| *rate <= 0.0) {
        Some((at, _)) => Err(format!("has no rate at {of} = {at}, must be more than 0")),
        None => Ok(()),
    }
}
