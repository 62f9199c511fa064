//! What the ranks that divide a stream agree on before each step, so that all of them take equally many.

use super::mix::MixDecision;
use crate::error::{Error, Result};
use std::time::{Duration, Instant};

/// After how long ranks ask one another again, where one of them waits for samples.
const ASK_AGAIN: Duration = Duration::from_millis(10);

/// Gives a rank's byte to all ranks, and theirs to it. Every rank asks as often as all others.
pub(crate) trait RankVotes: Send + Sync {
    /// What each rank gave, by rank.
    ///
    /// # Errors
    /// [`Error::Unavailable`] where some do not answer.
    fn gather(&self, mine: u8) -> Result<Vec<u8>>;
}

/// What a rank could do.
const WAITS: u8 = 0;
const HAS_A_BATCH: u8 = 1;
const HAS_ENDED: u8 = 2;

/// What this rank does, which could do what it has `decided`: as long as one waits all do; then all make a batch, of
/// which those that have ended make one of up to `rehearsed` samples that are rehearsed, or of none; and the stream
/// ends when it has for all.
///
/// # Errors
/// Those of `votes`.
pub(super) fn agree(votes: &dyn RankVotes, decided: MixDecision, rehearsed: u32) -> Result<MixDecision> {
    let mine = match decided {
        MixDecision::Wait(_) => WAITS,
        MixDecision::Batch { .. } => HAS_A_BATCH,
        MixDecision::End => HAS_ENDED,
    };
    let all = votes.gather(mine)?;
    if let Some(other) = all.iter().find(|vote| **vote > HAS_ENDED) {
        return Err(Error::Internal(format!("a rank of a stream gave {other}, which means nothing")));
    }
    if all.contains(&WAITS) {
        return Ok(MixDecision::Wait(Some(Instant::now() + ASK_AGAIN)));
    }
    if all.iter().all(|&vote| vote == HAS_ENDED) {
        return Ok(MixDecision::End);
    }
    Ok(match decided {
        MixDecision::End => MixDecision::Batch { new: 0, rehearsed },
        decided => decided,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Fixed(Vec<u8>);

    impl RankVotes for Fixed {
        fn gather(&self, mine: u8) -> Result<Vec<u8>> {
            Ok(self.0.iter().copied().chain([mine]).collect())
        }
    }

    #[test]
    fn ranks_wait_for_one_another_and_end_together() {
        let batch = MixDecision::Batch { new: 3, rehearsed: 1 };
        let agreed = |others: &[u8], mine| agree(&Fixed(others.to_vec()), mine, 2).unwrap();
        assert_eq!(agreed(&[HAS_A_BATCH, HAS_ENDED], batch), batch);
        assert_eq!(agreed(&[HAS_A_BATCH], MixDecision::End), MixDecision::Batch { new: 0, rehearsed: 2 });
        assert_eq!(agreed(&[HAS_ENDED], MixDecision::End), MixDecision::End);
        assert!(matches!(agreed(&[WAITS], batch), MixDecision::Wait(Some(_))));
        assert!(matches!(agreed(&[HAS_A_BATCH], MixDecision::Wait(None)), MixDecision::Wait(Some(_))));
        assert!(agree(&Fixed(vec![9]), batch, 0).is_err());
    }
}
