//! How far the sources are: what a state says of them, and what it begins with.

use super::Inlet;
use crate::account::StreamAccount;
use crate::source::SourcePosition;

/// How far the samples of a stream are settled.
#[derive(Debug, Clone)]
pub(crate) struct InletPositions {
    pub account: StreamAccount,
    /// Of each source, its position and the number of samples that it gave and that are not settled.
    pub sources: Vec<(SourcePosition, u64)>,
    /// The samples that were withdrawn, by their ids.
    pub withdrawn: Vec<u64>,
}

impl Inlet {
    /// Notes where an ordered source begins.
    pub(crate) fn begin_behind(&self, source: usize, key: String) {
        self.lock().sources[source].begin_behind(key);
    }

    /// The account, how far the samples of each source are settled, and what was withdrawn, at one instant.
    pub(crate) fn positions(&self) -> InletPositions {
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
    pub(crate) fn restore_withdrawn(&self, ids: &[u64]) {
        self.lock().withdrawn.extend(ids);
    }

    /// Forgets what was settled at `position`, because the source never gives it again.
    pub(crate) fn forget(&self, source: usize, position: &SourcePosition) {
        self.lock().sources[source].forget(position);
    }
}
