//! When a rung that fails is left alone, and for how long.
//!
//! An engine that hangs or that another process has taken, and memory that is not there, fail every call, and each costs its
//! halves, and theirs, in every batch. But what went may come back. So after a few failures in a row come pauses that
//! double: they soon cost nothing, and end by themselves. What a file is to blame for is none of this.

use super::Outcome;
use crate::error::Error;

/// Calls in a row that may fail before the first pause: what lacks for a moment shall keep no image from its decoder.
const TOLERATED: u32 = 3;

/// Most calls of a pause, so that a trial costs next to nothing.
pub const LONGEST_PAUSE: u32 = 1024;

/// How one rung of a decoder has fared of late.
#[derive(Debug, Default)]
pub(super) struct Pause {
    /// Calls in a row in which nothing was decoded.
    failures: u32,
    /// Calls to come that are refused.
    left: u32,
    /// What the last failure was.
    why: String,
}

impl Pause {
    /// Whether the next call is refused, and why. To be asked once a call.
    pub(super) fn refuses(&mut self) -> Option<&str> {
        self.left = self.left.checked_sub(1)?;
        Some(&self.why)
    }

    /// Learns from what became of a call's images; whether a pause begins.
    pub(super) fn learn(&mut self, outcomes: &[Outcome]) -> Option<&str> {
        if outcomes.iter().any(Result::is_ok) {
            *self = Self::default();
            return None;
        }
        let of_the_rung = |outcome: &Outcome| match outcome {
            Err(Error::Unavailable(why)) => Some(why.clone()),
            _ => None,
        };
        self.why = outcomes.iter().find_map(of_the_rung)?;
        self.failures = self.failures.saturating_add(1);
        let doublings = self.failures.checked_sub(TOLERATED)?;
        self.left = 1u32.checked_shl(doublings).map_or(LONGEST_PAUSE, |calls| calls.min(LONGEST_PAUSE));
        Some(&self.why)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::DecodeError;

    fn failed() -> [Outcome; 2] {
        [Err(DecodeError::Corrupt("its codes".into()).into()), Err(Error::Unavailable("no memory".into()))]
    }

    /// Calls that are refused from now on.
    fn refused(pause: &mut Pause) -> u32 {
        (0..).take_while(|_| pause.refuses().is_some()).count() as u32
    }

    #[test]
    fn pauses_double_and_end_with_a_success() {
        let mut pause = Pause::default();
        for _ in 0..2 {
            assert_eq!(pause.learn(&failed()), None);
            assert_eq!(refused(&mut pause), 0);
        }
        let mut pauses = Vec::new();
        for _ in 0..40 {
            assert_eq!(pause.learn(&failed()), Some("no memory"));
            pauses.push(refused(&mut pause));
        }
        assert_eq!(pauses[..12], [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 1024]);
        assert!(pauses[12..].iter().all(|calls| *calls == LONGEST_PAUSE));
        pause.learn(&[Err(Error::Unavailable("one of two".into())), Ok(())]);
        for _ in 0..2 {
            assert_eq!(pause.learn(&failed()), None, "all is forgotten");
        }
    }

    #[test]
    fn what_files_are_to_blame_for_counts_neither_way() {
        let mut pause = Pause::default();
        let damaged = || [Err(DecodeError::Corrupt("its codes".into()).into())];
        for _ in 0..3 {
            assert_eq!(pause.learn(&damaged()), None);
            assert_eq!(pause.learn(&[]), None);
        }
        assert!(pause.learn(&failed()).is_none() && pause.learn(&failed()).is_none());
        assert_eq!(pause.learn(&damaged()), None);
        assert_eq!(pause.learn(&failed()), Some("no memory"));
    }
}
