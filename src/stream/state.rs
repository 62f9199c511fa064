//! The state of a stream, for a checkpoint: how far its sources are settled, and which file has what is large.

use super::account::StreamAccount;
use super::source::SourcePosition;
use crate::error::{Error, Result};
use serde::{Deserialize, Serialize};

/// The version of states.
const VERSION: u32 = 1;

/// How far a stream has come. It is small: what grows with the stream lies in a snapshot, where there is a directory.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct StreamState {
    /// The version of the state.
    pub stream_state: u32,
    /// What the state must agree with.
    pub identity: StreamIdentity,
    /// The steps that were delivered.
    pub step: u64,
    /// The samples that were used in these, and those among them that were new.
    pub used: u64,
    pub taken: u64,
    pub account: StreamAccount,
    /// The sources, in order.
    pub sources: Vec<SourceState>,
    /// The samples that were withdrawn, by their ids.
    pub withdrawn: Vec<u64>,
    /// The failures so far.
    pub errors: u64,
    /// The file of the directory that has the rehearsal buffer's table and the positions of the sources.
    pub snapshot: Option<SnapshotRef>,
    /// The bytes of the journal that are of these steps.
    pub journal: Option<u64>,
}

/// What a stream is made of. A run that goes on must have the same.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct StreamIdentity {
    pub streams: Vec<String>,
    pub seed: u64,
    pub batch_size: u32,
    pub rank: u32,
    pub world_size: u32,
    /// What is rehearsed, in words; none where nothing is.
    pub rehearsal: Option<String>,
}

/// How far one source has come.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SourceState {
    /// The position; none where the snapshot has it.
    pub position: Option<SourcePosition>,
    /// The samples that had arrived and were not settled.
    pub unsettled: u64,
}

/// A file of the directory, as a state knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SnapshotRef {
    pub number: u64,
    pub bytes: u64,
    pub crc: u32,
}

impl StreamState {
    /// The state before the first step.
    pub(super) fn first(identity: StreamIdentity) -> Self {
        let source = SourceState { position: Some(SourcePosition::default()), unsettled: 0 };
        Self {
            stream_state: VERSION,
            step: 0,
            used: 0,
            taken: 0,
            account: StreamAccount::default(),
            sources: vec![source; identity.streams.len()],
            withdrawn: Vec::new(),
            errors: 0,
            snapshot: None,
            journal: None,
            identity,
        }
    }

    /// Reads a state that was saved as JSON.
    ///
    /// # Errors
    /// [`Error::Config`] for what is no state of a stream, or of another version.
    pub(crate) fn from_json(text: &str) -> Result<Self> {
        let wrong = |message: String| Error::config("state", message);
        let state: Self = serde_json::from_str(text).map_err(|error| {
            wrong(format!(
                "is not what StreamLoader.state_dict() gave ({error}): load the state of a StreamLoader"
            ))
        })?;
        if state.stream_state != VERSION {
            return Err(wrong(format!("is of version {}, must be of version {VERSION}", state.stream_state)));
        }
        Ok(state)
    }

    /// Whether the state is of a stream with this `identity`.
    ///
    /// # Errors
    /// [`Error::Config`] that names what differs.
    pub(super) fn check(&self, identity: &StreamIdentity) -> Result<()> {
        let (then, now) = (&self.identity, identity);
        let differs = |setting: &'static str, then: String, now: String| {
            Err(Error::config(setting, format!("is {now}, but the state was saved with {then}: set {then}")))
        };
        if then.streams != now.streams {
            return differs("source", format!("{:?}", then.streams), format!("{:?}", now.streams));
        }
        if then.seed != now.seed {
            return differs("seed", then.seed.to_string(), now.seed.to_string());
        }
        if then.batch_size != now.batch_size {
            return differs("batch_size", then.batch_size.to_string(), now.batch_size.to_string());
        }
        if (then.rank, then.world_size) != (now.rank, now.world_size) {
            let words = |of: &StreamIdentity| format!("rank {} of {}", of.rank, of.world_size);
            return differs("world_size", words(then), words(now));
        }
        if then.rehearsal != now.rehearsal {
            let words = |of: &Option<String>| of.clone().unwrap_or_else(|| "None".to_owned());
            return differs("rehearsal", words(&then.rehearsal), words(&now.rehearsal));
        }
        Ok(())
    }
}
