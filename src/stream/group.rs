//! What the ranks that divide a stream agree on before each step, so that all of them take equally many.

use super::mix::MixDecision;
use crate::error::{Error, Result};
use crossbeam_channel::{Sender, bounded};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};
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

/// The ranks of a stream, as one of them knows them.
///
/// They are asked on a thread of its own. The one that plans also finishes reads, and for those of a step that is
/// agreed on another rank may be waiting before it asks.
pub(super) struct RankGroup {
    mine: Sender<u8>,
    round: Arc<Mutex<Round>>,
    /// The first step that is not agreed on. A rank that plans earlier ones anew asks nobody.
    next: u64,
    /// The number of steps, once it is agreed that no more come.
    end: Option<u64>,
}

/// How far the ranks are with what comes next.
#[derive(Debug)]
enum Round {
    /// Nobody was asked.
    Open,
    Asked,
    Answered(Result<Vec<u8>>),
}

impl RankGroup {
    /// The ranks behind `votes`, before step `next`; `wake` is called when they have answered.
    ///
    /// # Errors
    /// [`Error::Unavailable`] when a thread cannot be started.
    pub(super) fn start(
        votes: Arc<dyn RankVotes>,
        next: u64,
        wake: impl Fn() + Send + 'static,
    ) -> Result<Self> {
        let (mine, asked) = bounded(1);
        let round = Arc::new(Mutex::new(Round::Open));
        let answered = round.clone();
        let work = move || {
            for vote in asked {
                let outcome = catch_unwind(AssertUnwindSafe(|| votes.gather(vote)));
                let outcome = outcome.unwrap_or_else(|panic| Err(Error::panicked("asking ranks", &*panic)));
                *answered.lock().unwrap_or_else(PoisonError::into_inner) = Round::Answered(outcome);
                wake();
            }
        };
        let started = std::thread::Builder::new().name("foreload-ranks".into()).spawn(work);
        started.map_err(|error| Error::Unavailable(format!("cannot start a thread: {error}")))?;
        Ok(Self { mine, round, next, end: None })
    }

    /// What this rank does in `step`, which could do what it has `decided`: as long as one waits all do; then all make
    /// a batch, of which those that have ended make one of up to `rehearsed` samples that are rehearsed, or of none;
    /// and the stream ends when it has for all.
    ///
    /// # Errors
    /// Those of [`RankVotes::gather`].
    pub(super) fn agree(&mut self, step: u64, decided: MixDecision, rehearsed: u32) -> Result<MixDecision> {
        if self.end.is_some_and(|end| step >= end) {
            return Ok(MixDecision::End);
        }
        if step >= self.next {
            let mut round = self.round.lock().unwrap_or_else(PoisonError::into_inner);
            let answers = match std::mem::replace(&mut *round, Round::Asked) {
                Round::Asked => return Ok(MixDecision::Wait(None)),
                Round::Open => {
                    let mine = match decided {
                        MixDecision::Wait(_) => WAITS,
                        MixDecision::Batch { .. } => HAS_A_BATCH,
                        MixDecision::End => HAS_ENDED,
                    };
                    let gone = |_| Error::Internal("the thread that asks the ranks has ended".into());
                    self.mine.send(mine).map_err(gone)?;
                    return Ok(MixDecision::Wait(None));
                }
                Round::Answered(answers) => answers,
            };
            *round = Round::Open;
            let all = answers?;
            if let Some(other) = all.iter().find(|vote| **vote > HAS_ENDED) {
                return Err(Error::Internal(format!("a rank of a stream gave {other}, which means nothing")));
            }
            if all.contains(&WAITS) {
                return Ok(MixDecision::Wait(Some(Instant::now() + ASK_AGAIN)));
            }
            if all.iter().all(|&vote| vote == HAS_ENDED) {
                self.end = Some(step);
                return Ok(MixDecision::End);
            }
            self.next = step + 1;
        }
        Ok(match decided {
            MixDecision::End => MixDecision::Batch { new: 0, rehearsed },
            decided => decided,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The other ranks, whose bytes are these.
    struct Fixed(Vec<u8>);

    impl RankVotes for Fixed {
        fn gather(&self, mine: u8) -> Result<Vec<u8>> {
            Ok(self.0.iter().copied().chain([mine]).collect())
        }
    }

    /// What is agreed for steps 5, 6 and so on, of which this rank has decided these, and how often others were asked.
    fn agreed(others: &[u8], decisions: &[(u64, MixDecision)]) -> (Vec<Result<MixDecision>>, usize) {
        let (answered, answers) = bounded(1);
        let wake = move || answered.send(()).unwrap();
        let mut group = RankGroup::start(Arc::new(Fixed(others.to_vec())), 5, wake).unwrap();
        let mut asked = 0;
        let mut agree = |&(step, decided)| match group.agree(step, decided, 2) {
            Ok(MixDecision::Wait(None)) if matches!(*group.round.lock().unwrap(), Round::Asked) => {
                answers.recv().unwrap();
                asked += 1;
                group.agree(step, decided, 2)
            }
            outcome => outcome,
        };
        (decisions.iter().map(&mut agree).collect(), asked)
    }

    fn agreed_once(others: &[u8], decided: MixDecision) -> Result<MixDecision> {
        agreed(others, &[(5, decided)]).0.pop().unwrap()
    }

    const BATCH: MixDecision = MixDecision::Batch { new: 3, rehearsed: 1 };
    const ENDED: MixDecision = MixDecision::Batch { new: 0, rehearsed: 2 };

    #[test]
    fn ranks_wait_for_one_another_and_end_together() {
        assert_eq!(agreed_once(&[HAS_A_BATCH, HAS_ENDED], BATCH).unwrap(), BATCH);
        assert_eq!(agreed_once(&[HAS_A_BATCH], MixDecision::End).unwrap(), ENDED);
        assert_eq!(agreed_once(&[HAS_ENDED], MixDecision::End).unwrap(), MixDecision::End);
        assert!(matches!(agreed_once(&[WAITS], BATCH), Ok(MixDecision::Wait(Some(_)))));
        assert!(matches!(
            agreed_once(&[HAS_A_BATCH], MixDecision::Wait(None)),
            Ok(MixDecision::Wait(Some(_)))
        ));
        assert!(agreed_once(&[9], BATCH).is_err());
    }

    #[test]
    fn nobody_is_asked_twice_for_a_step() {
        let (outcomes, asked) = agreed(&[HAS_A_BATCH], &[(5, BATCH), (6, BATCH), (5, MixDecision::End)]);
        let outcomes: Vec<MixDecision> = outcomes.into_iter().map(Result::unwrap).collect();
        assert_eq!((&outcomes[..], asked), (&[BATCH, BATCH, ENDED][..], 2));
        let (outcomes, asked) =
            agreed(&[HAS_ENDED], &[(5, MixDecision::End), (5, MixDecision::End), (6, BATCH)]);
        assert!(outcomes.into_iter().all(|outcome| outcome.unwrap() == MixDecision::End));
        assert_eq!(asked, 1);
    }
}
