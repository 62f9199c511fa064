//! The state of a stream for a checkpoint: the positions of its sources, and the snapshot file with the rehearsal
//! buffer.
//!
//! A state describes the stream after the last delivered step. If the rehearsal buffer has a directory, the state names
//! a snapshot file. The snapshot has the table of the reservoir and the positions of the sources. The snapshot and all
//! bytes that the snapshot needs stay until a later state is acknowledged. The state also lists the runs that this run
//! continues. So a directory of another run is not mistaken for the directory of a former rank.

use super::counters::StreamCounters;
use super::source::SourcePosition;
use base::crc::checksum;
use base::error::{Error, Result};
use serde::{Deserialize, Serialize};
use std::path::Path;

const VERSION: u32 = 1;
/// The largest count in a state, 2^53: every JSON parser reads integers exactly up to this value.
const MAX_COUNTED: u64 = 1 << 53;

/// The progress of a stream. It is small: if there is a directory, the data that grows with the stream is in a
/// snapshot.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StreamState {
    /// The version of the state's format.
    pub stream_state: u32,
    /// The settings that a resuming run must share.
    pub identity: StreamIdentity,
    /// The number of delivered steps.
    pub step: u64,
    /// The number of samples that the delivered steps used.
    pub used: u64,
    /// How many of the `used` samples were new.
    pub taken: u64,
    #[serde(rename = "account")]
    pub counters: StreamCounters,
    /// The progress of each source, in order.
    pub sources: Vec<SourceState>,
    /// The ids of the samples that were withdrawn.
    pub withdrawn: Vec<u64>,
    /// The number of failures so far.
    pub errors: u64,
    /// The snapshot file with the table of the rehearsal buffer and the positions of the sources.
    pub snapshot: Option<SnapshotRef>,
    /// The length of the journal in bytes, up to the last delivered step.
    pub journal: Option<u64>,
    /// The runs that this run continues. Rehearsal directories of these runs belong to this run.
    #[serde(default)]
    pub lineage: Vec<u32>,
}

/// The settings that identify a stream. A run that resumes must have the same settings.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StreamIdentity {
    pub streams: Vec<String>,
    pub seed: u64,
    pub batch_size: u32,
    pub rank: u32,
    pub world_size: u32,
    /// The rehearsal settings as text, if there is a rehearsal buffer.
    pub rehearsal: Option<String>,
}

/// The progress of one source.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SourceState {
    /// The position in the source; `None` if it is stored in the snapshot instead.
    pub position: Option<SourcePosition>,
    /// The number of samples that had arrived and were not settled.
    pub unsettled: u64,
}

/// A reference to a snapshot file in the directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SnapshotRef {
    pub number: u64,
    pub bytes: u64,
    pub crc: u32,
}

impl SnapshotRef {
    pub(super) fn is_other(&self, directory: &Path, what: &str) -> Error {
        Error::Unavailable(format!(
            "snapshot {} in {} {what}: the state belongs to another directory; load a state of this directory, or \
             restore the directory of the state",
            self.number,
            directory.display()
        ))
    }
}

/// The saved states that a run resumes from: the state of this rank, or the states of all ranks of a former run.
#[derive(Debug, Clone)]
pub struct SavedStates(Vec<StreamState>);

impl SavedStates {
    /// Parses one state or a list of states from JSON.
    ///
    /// # Errors
    /// [`Error::Config`] if the text is not a state of a stream, or has another version.
    pub fn from_json(text: &str) -> Result<Self> {
        let wrong = |message: String| Error::config("state", message);
        let not_a_state = |error: serde_json::Error| {
            wrong(format!(
                "is not a state from StreamLoader.state_dict() ({error}): load such a state, or the list of those of \
                 all ranks"
            ))
        };
        let states: Vec<StreamState> = match text.trim_start().starts_with('[') {
            true => serde_json::from_str(text).map_err(not_a_state)?,
            false => vec![serde_json::from_str(text).map_err(not_a_state)?],
        };
        if let Some(state) = states.iter().find(|state| state.stream_state != VERSION) {
            return Err(wrong(format!("is of version {}, must be of version {VERSION}", state.stream_state)));
        }
        Ok(Self(states))
    }

    /// Returns the state or states that a rank resumes from.
    ///
    /// # Errors
    /// [`Error::Config`], which names what differs or is missing.
    pub(super) fn for_rank(mut self, identity: &StreamIdentity) -> Result<LoadedState> {
        let wrong = |message: String| Err(Error::config("state", message));
        self.0.sort_by_key(|state| state.identity.rank);
        let Some(first) = self.0.first() else {
            return wrong("is an empty list, must have the states of all ranks".into());
        };
        let former = first.identity.world_size;
        if former == identity.world_size && self.0.len() == 1 {
            first.check(identity)?;
            return Ok(LoadedState::Own(Box::new(self.0.remove(0))));
        }
        let places = self.0.iter().map(|state| state.identity.place());
        if !places.eq((0..former).map(|rank| (rank, former))) {
            let found: Vec<String> = self.0.iter().map(|state| state.identity.words()).collect();
            return wrong(format!(
                "is the state of {}, but this is {}: after a change of the number of ranks, load on each rank the list \
                 of the states of all {former} former ranks",
                found.join(", "),
                identity.words()
            ));
        }
        if let Some(other) = self.0.iter().find(|state| state.step != first.step) {
            return wrong(format!(
                "is of step {} for {} and of step {} for {}: load the states of one checkpoint",
                first.step,
                first.identity.words(),
                other.step,
                other.identity.words()
            ));
        }
        if former == identity.world_size {
            let own = self.0.swap_remove(identity.rank as usize);
            own.check(identity)?;
            return Ok(LoadedState::Own(Box::new(own)));
        }
        for state in &self.0 {
            let StreamIdentity { rank, world_size, batch_size, .. } = state.identity;
            // The batch size per rank may change, so that the global batch can stay the same.
            state.check(&StreamIdentity { rank, world_size, batch_size, ..identity.clone() })?;
        }
        Ok(LoadedState::Divided(self.0))
    }
}

#[derive(Debug, Clone)]
pub(super) enum LoadedState {
    Own(Box<StreamState>),
    /// The states of all former ranks, in order of rank. The number of former ranks differs from the number of ranks
    /// now.
    Divided(Vec<StreamState>),
}

impl LoadedState {
    /// The checksum of the states of all former ranks, which must be equal on all ranks; 0 for this rank's own state.
    pub(super) fn checksum(&self) -> u32 {
        match self {
            Self::Own(_) => 0,
            Self::Divided(states) => checksum(&serde_json::to_vec(states).unwrap_or_default()),
        }
    }

    pub(super) fn states(&self) -> impl Iterator<Item = &StreamState> {
        match self {
            Self::Own(state) => std::slice::from_ref(&**state),
            Self::Divided(states) => &states[..],
        }
        .iter()
    }
}

impl StreamIdentity {
    fn place(&self) -> (u32, u32) {
        (self.rank, self.world_size)
    }

    fn words(&self) -> String {
        format!("rank {} of {}", self.rank, self.world_size)
    }
}

impl StreamState {
    pub(super) fn first(identity: StreamIdentity) -> Self {
        let source = SourceState { position: Some(SourcePosition::default()), unsettled: 0 };
        Self {
            stream_state: VERSION,
            step: 0,
            used: 0,
            taken: 0,
            counters: StreamCounters::default(),
            sources: vec![source; identity.streams.len()],
            withdrawn: Vec::new(),
            errors: 0,
            snapshot: None,
            journal: None,
            lineage: Vec::new(),
            identity,
        }
    }

    /// The position of a source: from this state, or from `of_snapshot`, the positions in the snapshot.
    pub(super) fn position(
        &self,
        source: usize,
        of_snapshot: Option<&[SourcePosition]>,
    ) -> Option<SourcePosition> {
        let own = self.sources.get(source)?.position.clone();
        own.or_else(|| of_snapshot?.get(source).cloned())
    }

    /// Checks that the counters and counts of this state add up. They add up in every state that was saved.
    fn check_sums(&self) -> Result<()> {
        let counted = self.counters.by_name().map(|(_, count)| count);
        let unsettled = self.sources.iter().map(|source| source.unsettled);
        let all = counted.chain(unsettled.clone()).chain([self.step, self.used, self.taken, self.errors]);
        let wrong = if all.max() > Some(MAX_COUNTED) {
            "has a count above 2^53"
        } else if !self.counters.balances()
            || unsettled.sum::<u64>() != self.counters.queued + self.counters.spilled
        {
            "has counters that do not add up"
        } else if self.sources.len() != self.identity.streams.len() {
            "has a different number of sources and streams"
        } else if self.snapshot.is_none() && self.sources.iter().any(|source| source.position.is_none()) {
            "has no position for one of its sources, and names no snapshot"
        } else {
            return Ok(());
        };
        Err(Error::config("state", format!("{wrong}: it was changed or damaged; load it as it was saved")))
    }

    /// Checks that the state is of a stream with this `identity`.
    ///
    /// # Errors
    /// [`Error::Config`], which names what differs.
    pub(super) fn check(&self, identity: &StreamIdentity) -> Result<()> {
        self.check_sums()?;
        let settings = |of: &StreamIdentity| {
            [
                ("source", format!("{:?}", of.streams)),
                ("seed", of.seed.to_string()),
                ("batch_size", of.batch_size.to_string()),
                ("world_size", of.words()),
                ("rehearsal", of.rehearsal.clone().unwrap_or_else(|| "None".to_owned())),
            ]
        };
        for ((setting, then), (_, now)) in settings(&self.identity).into_iter().zip(settings(identity)) {
            if then != now {
                let message = format!("is {now}, but the state was saved with {then}: set {then}");
                return Err(Error::config(setting, message));
            }
        }
        Ok(())
    }
}
