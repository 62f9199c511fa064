//! The specification of a stream as Python passes it in JSON, its checks, and its conversion to [`StreamOptions`].

mod sources;

pub use sources::SourceSpec;

use super::buffer::RehearsalOptions;
use super::mix::{MixOptions, WhenDry};
use super::reservoir::{Capacity, KeepBy};
use super::run::StreamOptions;
use super::share::RankShare;
use super::spill::SpillOptions;
use super::waiting::StreamPolicy;
use base::error::{Error, Result};
use base::names::NamedValue;
use base::notices::Notices;
use base::units::{parse_bytes, parse_duration};
use serde::Deserialize;
use std::path::PathBuf;

/// The assumed size of a usual sample in bytes. It sizes the first slot pools.
const USUAL_BYTES: u32 = 128 << 10;
/// The largest capacity of a rehearsal buffer in bytes.
const MAX_BYTES: u64 = 1 << 60;
/// The default directory quota is 1.5 times the capacity plus this many bytes, for snapshots and segments being
/// written.
const SPARE_BYTES: u64 = 256 << 20;

/// A stream as Python specifies it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StreamSpec {
    policy: String,
    rehearsal: Option<RehearsalSpec>,
    samples_per_insert: Option<(f64, f64)>,
    when_dry: String,
    dry_after: String,
    queue_size: String,
    spill_directory: Option<PathBuf>,
    spill_size: Option<String>,
    max_bytes: String,
    journal: Option<PathBuf>,
    replay: Option<PathBuf>,
    /// The names of the classes; empty if classes are numbers only.
    pub classes: Vec<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RehearsalSpec {
    capacity: CapacitySpec,
    share: (f64, f64),
    by: String,
    half_life: Option<f64>,
    directory: Option<PathBuf>,
    directory_size: Option<String>,
    memory: String,
    keep_states: usize,
}

/// A capacity: a number of samples, or a size such as "20GB".
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum CapacitySpec {
    Samples(u64),
    Bytes(String),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum KeepName {
    Uniform,
    Class,
    Recency,
    /// The user's own function.
    Score,
}

base::names::named!(
    KeepName: "uniform" => Uniform, "class" => Class, "recency" => Recency, "score" => Score
);

impl StreamSpec {
    /// Parses the JSON that Python passes.
    ///
    /// # Errors
    /// [`Error::Config`] if the JSON cannot be parsed.
    pub fn from_json(text: &str) -> Result<Self> {
        serde_json::from_str(text).map_err(|error| Error::config("StreamLoader", error.to_string()))
    }

    /// Checks the settings and returns the options of one rank. If `raises` is true, a sample that cannot be used ends
    /// the run. If `labeled` is true, a sample without a class cannot be used.
    ///
    /// # Errors
    /// [`Error::Config`], which names the setting.
    pub fn options(
        &self,
        batch_size: u32,
        seed: u64,
        raises: bool,
        labeled: bool,
        share: RankShare,
        notices: &Notices,
    ) -> Result<StreamOptions> {
        let max_bytes = self.max_bytes()?;
        let policy = StreamPolicy::parse("policy", &self.policy)?;
        let rehearsal = self.rehearsal.as_ref();
        Ok(StreamOptions {
            seed,
            mix: MixOptions {
                batch_size,
                share: rehearsal.map_or((0.0, 0.0), |rehearsal| rehearsal.share),
                samples_per_insert: self.samples_per_insert,
                when_dry: WhenDry::parse("when_dry", &self.when_dry)?,
                dry_after: parse_duration("dry_after", &self.dry_after)?,
            },
            policy,
            spill: self.spill(policy)?,
            share,
            votes: None,
            queue_bytes: parse_bytes("queue_size", &self.queue_size)?,
            sizes: (max_bytes, USUAL_BYTES.min(max_bytes)),
            labeled,
            raises,
            rehearsal: rehearsal.map(RehearsalSpec::options).transpose()?,
            score: None,
            journal: self.journal.as_deref().map(|path| share.path(path)),
            replay: self.replay.as_deref().map(|path| share.path(path)),
            notices: notices.clone(),
        })
    }

    fn spill(&self, policy: StreamPolicy) -> Result<Option<SpillOptions>> {
        let needs =
            |setting, what: &str| Err(Error::config(setting, format!("is not given, must be {what}")));
        match (policy, &self.spill_directory, &self.spill_size) {
            (StreamPolicy::Spill, None, _) => {
                needs("spill_directory", "a directory on local NVMe with policy=\"spill\"")
            }
            (StreamPolicy::Spill, Some(_), None) => {
                needs("spill_size", "bytes such as \"50GB\" with policy=\"spill\"")
            }
            (StreamPolicy::Spill, Some(directory), Some(size)) => Ok(Some(SpillOptions {
                directory: std::path::absolute(directory)
                    .map_err(|error| Error::io("resolve", directory, error))?,
                bytes: parse_bytes("spill_size", size)?,
            })),
            (_, None, None) => Ok(None),
            _ => Err(Error::config("spill_directory", "only applies to policy=\"spill\": remove it")),
        }
    }

    /// The size limit of a sample in bytes.
    ///
    /// # Errors
    /// [`Error::Config`] if it cannot be parsed or is 4 GiB or more.
    pub fn max_bytes(&self) -> Result<u32> {
        let most = parse_bytes("max_bytes", &self.max_bytes)?;
        u32::try_from(most).map_err(|_| Error::config("max_bytes", format!("is {most}, must be below 4 GiB")))
    }
}

impl RehearsalSpec {
    fn options(&self) -> Result<RehearsalOptions> {
        let by = match (KeepName::parse("rehearsal.by", &self.by)?, self.half_life) {
            (KeepName::Recency, Some(half_life)) => KeepBy::Recency { half_life },
            (KeepName::Recency, None) => {
                let message = "is not given, must be a number of samples with by=\"recency\": the weight of a kept \
                               sample halves each time this many newer samples have arrived";
                return Err(Error::config("rehearsal.half_life", message));
            }
            (_, Some(_)) => {
                return Err(Error::config(
                    "rehearsal.half_life",
                    "only applies to by=\"recency\": remove it",
                ));
            }
            (KeepName::Uniform, None) => KeepBy::Uniform,
            (KeepName::Class, None) => KeepBy::Class,
            (KeepName::Score, None) => KeepBy::Score,
        };
        let capacity = match &self.capacity {
            CapacitySpec::Samples(samples) => Capacity::Samples(*samples),
            CapacitySpec::Bytes(text) => Capacity::Bytes(parse_bytes("rehearsal.capacity", text)?),
        };
        if matches!(capacity, Capacity::Samples(0) | Capacity::Bytes(0)) {
            return Err(Error::config(
                "rehearsal.capacity",
                "is 0, must be samples or bytes such as \"20GB\"",
            ));
        }
        if let Capacity::Bytes(bytes) = capacity
            && bytes > MAX_BYTES
        {
            return Err(Error::config(
                "rehearsal.capacity",
                format!("is {bytes} bytes, must be at most 2^60"),
            ));
        }
        let directory = self.directory.as_ref();
        let directory = directory
            .map(|path| std::path::absolute(path).map_err(|error| Error::io("resolve", path, error)));
        let directory_bytes = match (&self.directory_size, &directory, capacity) {
            (Some(size), Some(_), _) => parse_bytes("rehearsal.directory_size", size)?,
            (Some(_), None, _) => {
                let message = "is set, but no directory: pass directory=PATH, or remove directory_size";
                return Err(Error::config("rehearsal.directory_size", message));
            }
            (None, Some(_), Capacity::Samples(_)) => {
                let message =
                    "is not given, must be bytes such as \"30GB\" if the capacity is a number of samples";
                return Err(Error::config("rehearsal.directory_size", message));
            }
            (None, _, Capacity::Bytes(bytes)) => bytes + bytes / 2 + SPARE_BYTES,
            (None, None, _) => 0,
        };
        if self.keep_states == 0 {
            return Err(Error::config("rehearsal.keep_states", "is 0, must be at least 1"));
        }
        if let (None, Capacity::Bytes(bytes)) = (&directory, capacity)
            && bytes > store::io::storage::memory_limit()
        {
            let message = format!(
                "is {bytes} bytes, but this machine has {} of memory: pass a directory on local NVMe",
                store::io::storage::memory_limit()
            );
            return Err(Error::config("rehearsal.capacity", message));
        }
        Ok(RehearsalOptions {
            by,
            capacity,
            directory: directory.transpose()?,
            directory_bytes,
            memory_bytes: parse_bytes("rehearsal.memory", &self.memory)?,
            keep_states: self.keep_states,
        })
    }
}
