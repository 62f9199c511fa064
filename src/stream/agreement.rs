//! The agreement of the ranks that divide a stream: before each step they vote, so that all ranks make the same number
//! of steps.
//!
//! Each rank gives one byte per step. While one rank has no batch, all ranks wait. All ranks end at the same step.

use super::mix::MixDecision;
use base::error::{Error, Result};
use base::locks::lock;
use base::threads::{caught, start_thread};
use crossbeam_channel::{Sender, bounded};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// How long ranks pause before they vote again, if one of them waits for samples.
const ASK_AGAIN: Duration = Duration::from_millis(10);

/// Exchanges bytes among all ranks. Every rank calls `gather` the same number of times, with the same number of bytes.
pub trait RankVotes: Send + Sync {
    /// Sends this rank's bytes to all ranks, and returns the bytes of each rank, in order of rank.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if some ranks do not respond.
    fn gather(&self, mine: &[u8]) -> Result<Vec<Vec<u8>>>;
}

/// Where a rank begins. All ranks must begin at the same point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct GroupStart {
    pub step: u64,
    /// The checksum of the loaded states, if all ranks load the states of all former ranks; otherwise 0.
    pub states: u32,
}

/// The bytes that a rank sends instead of its start point if it cannot start.
const START_FAILED: [u8; 12] = [u8::MAX; 12];
/// How long a rank that cannot start waits until it has reported its failure to the other ranks.
const REPORT_WAIT: Duration = Duration::from_secs(2);

/// Reports to the other ranks that this rank cannot start, so that they do not wait for this rank.
pub(super) fn report_start_failure(votes: &Arc<dyn RankVotes>) {
    let (votes, (told, heard)) = (votes.clone(), bounded::<()>(0));
    let tell = move || {
        let _ = caught("asking ranks", || votes.gather(&START_FAILED));
        drop(told);
    };
    if start_thread("foreload-ranks", "a thread", tell).is_ok() {
        let _ = heard.recv_timeout(REPORT_WAIT);
    }
}

impl GroupStart {
    fn agree(self, votes: &dyn RankVotes) -> Result<()> {
        let mine = [&self.step.to_le_bytes()[..], &self.states.to_le_bytes()].concat();
        let all = votes.gather(&mine)?;
        if let Some(rank) = all.iter().position(|other| **other == START_FAILED) {
            let message = format!("rank {rank} of the stream failed to start: see the error that it raises");
            return Err(Error::Unavailable(message));
        }
        let Some((rank, other)) = (0..).zip(&all).find(|(_, other)| **other != mine) else { return Ok(()) };
        let step = other.first_chunk().map_or(0, |step| u64::from_le_bytes(*step));
        let message = match step == self.step {
            true => format!("differs between rank {rank} and this rank"),
            false => format!("is of step {step} for rank {rank} and of step {} for this rank", self.step),
        };
        Err(Error::config("state", format!("{message}: load the states of one checkpoint on all ranks")))
    }
}

const WAITS: u8 = 0;
const HAS_A_BATCH: u8 = 1;
const HAS_ENDED: u8 = 2;

/// The agreement of this rank with the other ranks of a stream.
///
/// Votes are exchanged on a separate thread, so that the planning thread can finish the reads of agreed steps during a
/// vote. Otherwise another rank that waits for such a step would never vote.
pub(super) struct StepAgreement {
    mine: Sender<u8>,
    round: Arc<Mutex<Round>>,
    /// The first step on which the ranks have not agreed yet. Earlier steps that are planned again need no vote.
    next: u64,
    /// The total number of steps; `None` until the ranks have agreed that no more steps come.
    end: Option<u64>,
}

#[derive(Debug)]
enum Round {
    Open,
    Asked,
    Answered(Result<Vec<u8>>),
}

impl StepAgreement {
    /// Starts the thread that exchanges votes. `start_point` is where this rank begins. `wake` is called when a vote is
    /// complete.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if a thread cannot be started.
    pub(super) fn start(
        votes: Arc<dyn RankVotes>,
        start_point: GroupStart,
        wake: impl Fn() + Send + 'static,
    ) -> Result<Self> {
        let (mine, asked) = bounded(1);
        let round = Arc::new(Mutex::new(Round::Open));
        let answered = round.clone();
        let work = move || {
            let mut begun = caught("asking ranks", || start_point.agree(&*votes));
            for vote in asked {
                let outcome = std::mem::replace(&mut begun, Ok(()))
                    .and_then(|()| caught("asking ranks", || one_byte_each(votes.gather(&[vote])?)));
                *lock(&answered) = Round::Answered(outcome);
                wake();
            }
        };
        start_thread("foreload-ranks", "a thread", work)?;
        Ok(Self { mine, round, next: start_point.step, end: None })
    }

    /// Returns what this rank does in `step`, for which its mixer has `decided`. While one rank waits, all ranks wait.
    /// Otherwise every rank makes a batch. On a rank whose stream has ended, the batch has up to `rehearsed` rehearsed
    /// samples, and may be empty. The stream ends when it has ended on all ranks.
    ///
    /// # Errors
    /// The errors of [`RankVotes::gather`].
    pub(super) fn agree(&mut self, step: u64, decided: MixDecision, rehearsed: u32) -> Result<MixDecision> {
        if self.end.is_some_and(|end| step >= end) {
            return Ok(MixDecision::End);
        }
        if step >= self.next {
            let mut round = lock(&self.round);
            let answers = match std::mem::replace(&mut *round, Round::Asked) {
                Round::Asked => return Ok(MixDecision::Wait(None)),
                Round::Open => {
                    let mine = match decided {
                        MixDecision::Wait(_) => WAITS,
                        MixDecision::Batch { .. } => HAS_A_BATCH,
                        MixDecision::End => HAS_ENDED,
                    };
                    let gone = |_| Error::Internal("the thread that exchanges votes has ended".into());
                    self.mine.send(mine).map_err(gone)?;
                    return Ok(MixDecision::Wait(None));
                }
                Round::Answered(answers) => answers,
            };
            *round = Round::Open;
            let all = answers?;
            if let Some(other) = all.iter().find(|vote| **vote > HAS_ENDED) {
                return Err(Error::Internal(format!("a rank of the stream sent the unknown vote {other}")));
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

fn one_byte_each(votes: Vec<Vec<u8>>) -> Result<Vec<u8>> {
    let byte = |vote: Vec<u8>| match vote[..] {
        [byte] => Ok(byte),
        _ => Err(Error::Unavailable(format!("a rank sent {} bytes instead of one", vote.len()))),
    };
    votes.into_iter().map(byte).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Fixed(Vec<u8>, Option<GroupStart>);

    impl RankVotes for Fixed {
        fn gather(&self, mine: &[u8]) -> Result<Vec<Vec<u8>>> {
            let others = self.0.iter().map(|&vote| match (mine.len(), self.1) {
                (1, _) => vec![vote],
                (_, None) => mine.to_vec(),
                (_, Some(GroupStart { step, states })) => {
                    [&step.to_le_bytes()[..], &states.to_le_bytes()].concat()
                }
            });
            Ok(others.chain([mine.to_vec()]).collect())
        }
    }

    const BEGINNING: GroupStart = GroupStart { step: 5, states: 7 };

    /// Returns what the ranks agree for each (step, decision) of this rank, and how often votes were exchanged.
    fn agreed(others: &[u8], decisions: &[(u64, MixDecision)]) -> (Vec<Result<MixDecision>>, usize) {
        let (answered, answers) = bounded(1);
        let wake = move || answered.send(()).unwrap();
        let mut group =
            StepAgreement::start(Arc::new(Fixed(others.to_vec(), None)), BEGINNING, wake).unwrap();
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
    fn ranks_that_begin_elsewhere_are_told() {
        let others = [(4, 7, "is of step 4 for rank 0 and of step 5"), (5, 8, "differs between rank 0")];
        for (step, states, said) in others {
            let other = Fixed(vec![HAS_A_BATCH], Some(GroupStart { step, states }));
            let (answered, answers) = bounded(1);
            let mut group =
                StepAgreement::start(Arc::new(other), BEGINNING, move || answered.send(()).unwrap()).unwrap();
            assert_eq!(group.agree(5, BATCH, 2).unwrap(), MixDecision::Wait(None));
            answers.recv().unwrap();
            assert!(group.agree(5, BATCH, 2).unwrap_err().to_string().contains(said));
        }
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
