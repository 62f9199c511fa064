//! The loaders of this user on this node: which of them may change something now, and how many share the processors.
//!
//! They lock bytes of one file: one each while an epoch runs under a budget, and one for the turn to try something, so
//! that nobody measures what another's trial does. Locks end with their process, and with those that it has forked.
//!
//! A turn also ends a few seconds after it was used last, because who has it may be stopped, or paused by its consumer:
//! time is cut in pieces, each has a byte of its own, and whoever has the turn locks those of this piece and the next.

use base::error::Result;
use base::node::{LockKind, RangeLocks, RuntimeDirectory};
use rustix::time::ClockId;
use std::ops::Range;

/// The directory, and the file in it.
const PURPOSE: &str = "tuner";
const FILE: &str = "turns";

/// The bytes for the loaders that share a budget, and for the turn. None of these is next to one of those: the kernel
/// makes one lock of neighbours.
const SEATS: Range<u64> = 0..1 << 16;
const TURNS: Range<u64> = 1 << 17..1 << 62;

/// The seconds of a piece of time. A turn that is not used ends after one to two of them.
const PIECE: u64 = 4;

/// A loader's place among those of the node.
#[derive(Default)]
pub(super) struct NodePlace {
    /// The locks, once they were needed; none where there is no directory for them.
    locks: Option<Option<RangeLocks>>,
    /// The last piece of time for which this one has the turn.
    turn_until: Option<u64>,
    seat: Option<Range<u64>>,
}

impl NodePlace {
    /// The locks. `unavailable` is told why there are none.
    fn locks(&mut self, unavailable: &dyn Fn(&str)) -> Option<&RangeLocks> {
        let open = || -> Result<RangeLocks> { RuntimeDirectory::open(PURPOSE)?.locks(FILE) };
        let opened = self.locks.get_or_insert_with(|| match open() {
            Ok(locks) => Some(locks),
            Err(error) => {
                unavailable(&error.to_string());
                None
            }
        });
        opened.as_ref()
    }

    /// Takes the turn to try something, or keeps it, until [`NodePlace::end_turn`], or until this was not called for a
    /// few seconds. Returns `false` while another loader of the node has it. Where nothing can be locked, everybody has
    /// it.
    pub(super) fn take_turn(&mut self, unavailable: &dyn Fn(&str)) -> bool {
        self.take_turn_at(rustix::time::clock_gettime(ClockId::Monotonic).tv_sec as u64 / PIECE, unavailable)
    }

    fn take_turn_at(&mut self, piece: u64, unavailable: &dyn Fn(&str)) -> bool {
        if self.turn_until > Some(piece) {
            return true;
        }
        let first = TURNS.start + piece;
        let Some(locks) = self.locks(unavailable) else { return true };
        let has_it = locks.try_lock(first..first + 2, LockKind::Exclusive).unwrap_or(true);
        let _ = locks.unlock(TURNS.start..first);
        self.turn_until = has_it.then_some(piece + 1);
        has_it
    }

    /// Gives the turn to others.
    pub(super) fn end_turn(&mut self) {
        if self.turn_until.take().is_some()
            && let Some(Some(locks)) = &self.locks
        {
            let _ = locks.unlock(TURNS);
        }
    }

    /// Joins those that share the node's budget. Returns how many they are, with this one.
    pub(super) fn share(&mut self, unavailable: &dyn Fn(&str)) -> u32 {
        let mut seat = self.seat.take();
        let Some(locks) = self.locks(unavailable) else { return 1 };
        let Ok(mut others) = locks.of_others(SEATS) else { return 1 };
        if seat.is_none() {
            others.sort_by_key(|range| range.start);
            let taken = |at: u64| others.iter().any(|range| range.contains(&at));
            let mut free = SEATS.filter(|at| !taken(*at)).map(|at| at..at + 1);
            // Another one may be faster.
            seat = free.find(|seat| locks.try_lock(seat.clone(), LockKind::Exclusive).unwrap_or(false));
            others = locks.of_others(SEATS).unwrap_or(others);
        }
        self.seat = seat;
        let seats: u64 = others.iter().map(|range| range.end - range.start).sum();
        u32::try_from(seats).unwrap_or(u32::MAX).saturating_add(1)
    }

    /// Leaves those that share the budget.
    pub(super) fn leave(&mut self) {
        if let (Some(seat), Some(Some(locks))) = (self.seat.take(), &self.locks) {
            let _ = locks.unlock(seat);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::path::Path;

    fn place(path: &Path) -> NodePlace {
        let file = File::options().read(true).write(true).create(true).truncate(false).open(path);
        NodePlace { locks: Some(Some(RangeLocks::new(file.unwrap()))), ..NodePlace::default() }
    }

    #[test]
    fn one_has_the_turn_and_all_are_counted() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(FILE);
        let (mut one, mut two, mut three) = (place(&path), place(&path), place(&path));
        let never = |why: &str| panic!("{why}");
        assert!(one.take_turn(&never) && one.take_turn(&never));
        assert!(!two.take_turn(&never));
        one.end_turn();
        assert!(two.take_turn(&never) && !one.take_turn(&never));
        assert_eq!((one.share(&never), two.share(&never), three.share(&never)), (1, 2, 3));
        assert_eq!((one.share(&never), two.share(&never)), (3, 3));
        one.leave();
        assert_eq!((two.share(&never), three.share(&never)), (2, 2));
        drop(two);
        assert!(one.take_turn(&never), "a turn ends with who has it");
        assert_eq!((three.share(&never), one.share(&never), three.share(&never)), (1, 2, 2));
    }

    #[test]
    fn a_turn_that_is_not_used_ends() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(FILE);
        let (mut one, mut two) = (place(&path), place(&path));
        let never = |why: &str| panic!("{why}");
        for piece in 7..20 {
            assert!(one.take_turn_at(piece, &never) && !two.take_turn_at(piece, &never));
            assert!(!two.take_turn_at(piece + 1, &never), "nobody comes between");
        }
        assert!(two.take_turn_at(21, &never) && !one.take_turn_at(21, &never));
        assert!(!one.take_turn_at(22, &never), "it was paused, and another has the turn");
        assert!(one.take_turn_at(23, &never) && !two.take_turn_at(23, &never));
        one.end_turn();
        assert!(two.take_turn_at(23, &never));
    }

    #[test]
    fn who_can_lock_nothing_is_alone() {
        let mut place = NodePlace { locks: Some(None), ..NodePlace::default() };
        assert!(place.take_turn(&|_| {}));
        assert_eq!(place.share(&|_| {}), 1);
        place.end_turn();
        place.leave();
    }
}
