//! The positions of the sources: saved in a state, and restored when a run begins.

use super::IngestQueue;
use crate::counters::StreamCounters;
use crate::source::SourcePosition;

#[derive(Debug, Clone)]
pub(crate) struct IngestPositions {
    pub counters: StreamCounters,
    /// For each source, its position and the number of its samples that arrived and are not settled.
    pub sources: Vec<(SourcePosition, u64)>,
    pub withdrawn: Vec<u64>,
}

impl IngestQueue {
    /// Makes an ordered source resume after the sample with this key.
    pub(crate) fn start_after(&self, source: usize, key: String) {
        self.lock().sources[source].start_after(key);
    }

    pub(crate) fn positions(&self) -> IngestPositions {
        let state = self.lock();
        let mut withdrawn: Vec<u64> = state.withdrawn.iter().copied().collect();
        withdrawn.sort_unstable();
        IngestPositions {
            counters: state.counters,
            sources: state
                .sources
                .iter()
                .map(|source_progress| (source_progress.position(), source_progress.unsettled()))
                .collect(),
            withdrawn,
        }
    }

    pub(crate) fn restore_withdrawn(&self, ids: &[u64]) {
        self.lock().withdrawn.extend(ids);
    }

    /// Removes the keys that were settled at `position`, because the source never gives these samples again.
    pub(crate) fn forget(&self, source: usize, position: &SourcePosition) {
        self.lock().sources[source].forget(position);
    }
}
