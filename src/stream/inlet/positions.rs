//! How far the sources are: what a state says of them, and what it begins with.

use super::Inlet;
use crate::stream::account::StreamAccount;
use crate::stream::source::SourcePosition;

/// How far the samples of a stream are settled.
#[derive(Debug, Clone)]
pub(in crate::stream) struct InletPositions {
    pub account: StreamAccount,
    /// Of each source, its position and the number of samples that it gave and that are not settled.
    pub sources: Vec<(SourcePosition, u64)>,
    /// The samples that were withdrawn, by their ids.
    pub withdrawn: Vec<u64>,
}

impl Inlet {
    /// Notes where an ordered source begins.
    pub(in crate::stream) fn begin_behind(&self, source: usize, key: String) {
        self.lock().sources[source].begin_behind(key);
    }

    /// The account, how far the samples of each source are settled, and what was withdrawn, at one instant.
    pub(in crate::stream) fn positions(&self) -> InletPositions {
        let state = self.lock();
        let mut withdrawn: Vec<u64> = state.withdrawn.iter().copied().collect();
        withdrawn.sort_unstable();
        InletPositions {
            account: state.account,
            sources: state.sources.iter().map(|ledger| (ledger.position(), ledger.unsettled())).collect(),
            withdrawn,
        }
    }

    /// Goes on without the samples that a former run withdrew.
    pub(in crate::stream) fn restore_withdrawn(&self, ids: &[u64]) {
        self.lock().withdrawn.extend(ids);
    }

    /// Forgets what was settled at `position`, because the source never gives it again.
    pub(in crate::stream) fn forget(&self, source: usize, position: &SourcePosition) {
        self.lock().sources[source].forget(position);
    }
}
