//! Where a run begins: with an empty buffer, at this rank's saved state, or at this rank's share of the states of
//! former ranks.
//!
//! The number of ranks may differ from the run that saved the states. Then each source computes this rank's position
//! from the former positions. The rehearsal buffer copies its samples from the directories of all former ranks, which
//! it only reads.

use super::buffer::RehearsalBuffer;
use super::counters::StreamCounters;
use super::share::RankShare;
use super::source::{Replay, SourcePosition, StreamSource};
use super::state::{LoadedState, StreamState};
use base::error::{Error, Result};
use base::notices::Notices;
use std::collections::BTreeSet;

#[derive(Debug, Default)]
pub(super) struct StartPoint {
    pub step: u64,
    /// The number of samples that earlier steps used, and how many of these samples were new.
    pub counts: (u64, u64),
    pub counters: StreamCounters,
    pub positions: Vec<SourcePosition>,
    pub withdrawn: Vec<u64>,
    /// The length in bytes of the journal to resume.
    pub journal: Option<u64>,
}

impl StartPoint {
    /// Finds the start point of this rank, and restores the `buffer` to this point.
    ///
    /// # Errors
    /// The errors of the buffer and of [`StreamSource::redistribute`].
    pub(super) fn find(
        loaded: Option<&LoadedState>,
        share: RankShare,
        sources: &[Box<dyn StreamSource>],
        buffer: Option<&mut RehearsalBuffer>,
        notices: &Notices,
    ) -> Result<Self> {
        let begun = match loaded {
            None => {
                buffer.map_or(Ok(()), RehearsalBuffer::begin_empty)?;
                Self { positions: vec![SourcePosition::default(); sources.len()], ..Self::default() }
            }
            Some(LoadedState::Own(state)) => Self::with_own(state, sources, buffer)?,
            Some(LoadedState::Divided(states)) => Self::with_share(states, share, sources, buffer)?,
        };
        let lost_before = loaded.map_or(0, |loaded| loaded.states().map(|state| state.counters.lost).sum());
        let lost = begun.counters.lost.saturating_sub(lost_before);
        if lost > 0 {
            notices.warn_once("lost samples", || {
                format!(
                    "{lost} samples were received before the state was saved and not used; their source cannot send \
                     them again, so they are lost: see stats()[\"stream\"][\"lost\"]"
                )
            });
        }
        Ok(begun)
    }

    fn with_own(
        state: &StreamState,
        sources: &[Box<dyn StreamSource>],
        buffer: Option<&mut RehearsalBuffer>,
    ) -> Result<Self> {
        let found = match (state.snapshot, buffer) {
            (Some(snapshot), Some(buffer)) => Some(buffer.restore(&snapshot, &state.lineage)?),
            (None, Some(buffer)) => buffer.begin_empty().map(|()| None)?,
            _ => None,
        };
        let positions = (0..sources.len()).map(|number| state.position(number, found.as_deref()));
        Ok(Self {
            step: state.step,
            counts: (state.used, state.taken),
            counters: counters_after(state, sources),
            positions: positions.map(Option::unwrap_or_default).collect(),
            withdrawn: state.withdrawn.clone(),
            journal: state.journal,
        })
    }

    /// Finds the start point of this rank from the states of all former ranks. Rank 0 takes over the counters of all
    /// former ranks, so that the sum over all ranks stays the same.
    fn with_share(
        states: &[StreamState],
        share: RankShare,
        sources: &[Box<dyn StreamSource>],
        mut buffer: Option<&mut RehearsalBuffer>,
    ) -> Result<Self> {
        let snapshots: Vec<_> = states.iter().map(|state| state.snapshot).collect();
        let former = match &mut buffer {
            Some(buffer) if snapshots.iter().any(Option::is_some) => {
                Some(buffer.find_former_buffers(&snapshots)?)
            }
            _ => None,
        };
        let mut positions = Vec::new();
        for (number, source) in sources.iter().enumerate() {
            let of_rank = |(rank, state): (usize, &StreamState)| {
                let of_snapshot = former.as_ref().and_then(|former| former.positions(rank));
                state.position(number, of_snapshot).ok_or_else(|| {
                    Error::Unavailable(format!(
                        "the position of rank {rank} of {} in {} is in its snapshot, but its directory cannot be \
                         reached: copy the rehearsal buffers' directories of all former ranks to where each rank \
                         finds them",
                        states.len(),
                        source.describe()
                    ))
                })
            };
            let former = states.iter().enumerate().map(of_rank).collect::<Result<_>>()?;
            positions.push(source.redistribute(former)?);
        }
        let withdrawn: BTreeSet<u64> = states.iter().flat_map(|state| &state.withdrawn).copied().collect();
        match (buffer, former) {
            (Some(buffer), Some(former)) => {
                let lineage: BTreeSet<u32> =
                    states.iter().flat_map(|state| &state.lineage).copied().collect();
                // If this start is abandoned and the former ranks restart, the former rank `cleanup_owner` removes this
                // directory.
                let cleanup_owner = &states[share.rank as usize % states.len()];
                let runs = (cleanup_owner.lineage.first().copied(), lineage.into_iter().collect());
                buffer.restore_share(&former, runs, &withdrawn.iter().copied().collect())?;
            }
            (Some(buffer), None) => buffer.begin_empty()?,
            (None, _) => {}
        }
        let (rank, ranks) = (u64::from(share.rank), u64::from(share.world_size));
        let part = |all: u64| all * (rank + 1) / ranks - all * rank / ranks;
        Ok(Self {
            step: states[0].step,
            counts: (
                part(states.iter().map(|state| state.used).sum()),
                part(states.iter().map(|state| state.taken).sum()),
            ),
            counters: match rank {
                0 => states.iter().map(|state| counters_after(state, sources)).sum(),
                _ => StreamCounters::default(),
            },
            positions,
            withdrawn: withdrawn.into_iter().collect(),
            journal: None,
        })
    }
}

/// The counters with which a run begins. Unsettled samples that their source gives again are counted when they arrive
/// again. All other unsettled samples are lost.
fn counters_after(state: &StreamState, sources: &[Box<dyn StreamSource>]) -> StreamCounters {
    let mut counters = state.counters;
    (counters.queued, counters.spilled) = (0, 0);
    for (saved, source) in state.sources.iter().zip(sources) {
        match source.replay() {
            Replay::Never => counters.lost += saved.unsettled,
            Replay::Ordered | Replay::Unordered => counters.received -= saved.unsettled,
        }
    }
    counters
}
