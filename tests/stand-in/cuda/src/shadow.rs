//! For each byte, the operations that wrote and read it last. Each access is checked against them.

use crate::clock::{Clock, Stamp};
use std::collections::BTreeMap;
use std::sync::Arc;

/// An operation, for messages.
#[derive(Debug)]
pub struct Operation {
    /// Its text in messages, such as "cuMemcpyHtoDAsync_v2 (call 12) on stream 1".
    pub text: String,
}

/// An access of an operation.
#[derive(Debug, Clone)]
pub struct Mark {
    pub stamp: Stamp,
    pub operation: Arc<Operation>,
}

/// The kind of an access.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// All of the bytes are read.
    Read,
    /// Some of the bytes are read; others may never have been written.
    ReadSome,
    /// All of the bytes are written.
    Write,
}

/// The bytes `start..end` that an operation touches.
#[derive(Debug, Clone, Copy)]
pub struct Access {
    pub kind: Kind,
    pub start: u64,
    pub end: u64,
}

/// Two unordered operations on the same bytes, or a read of bytes that were never written.
#[derive(Debug)]
pub struct Clash {
    pub start: u64,
    pub end: u64,
    /// The earlier access, if there is one.
    pub earlier: Option<(&'static str, Arc<Operation>)>,
}

#[derive(Debug, Clone, Default)]
struct Piece {
    end: u64,
    write: Option<Mark>,
    reads: Vec<Mark>,
}

/// All accesses that must be ordered before later ones.
#[derive(Default)]
pub struct Shadow {
    pieces: BTreeMap<u64, Piece>,
}

impl Shadow {
    /// Records an access; returns the access that it clashes with. `fresh` bytes must have been written before they are
    /// read.
    pub fn access(&mut self, access: Access, mark: &Mark, clock: &Clock, fresh: bool) -> Option<Clash> {
        let Access { kind, start, end } = access;
        self.cover(start, end);
        let mut clash = None;
        for (&from, piece) in self.pieces.range_mut(start..end) {
            let unordered = |mark: &&Mark| !clock.after(mark.stamp);
            let found = match (&piece.write, kind) {
                (Some(write), _) if unordered(&write) => Some(Some(("written", write.operation.clone()))),
                (None, Kind::Read) if fresh => Some(None),
                (_, Kind::Write) => {
                    let read = piece.reads.iter().find(unordered);
                    read.map(|read| Some(("read", read.operation.clone())))
                }
                _ => None,
            };
            if let Some(earlier) = found {
                clash.get_or_insert(Clash { start: from, end: piece.end, earlier });
            }
            if kind != Kind::Write {
                piece.reads.retain(|read| read.stamp.actor != mark.stamp.actor);
                piece.reads.push(mark.clone());
            }
        }
        if kind == Kind::Write {
            self.remove(start, end);
            self.pieces.insert(start, Piece { end, write: Some(mark.clone()), reads: Vec::new() });
        }
        clash
    }

    /// Removes `start..end`; returns an access that is not ordered before the owner of `clock`.
    pub fn end(&mut self, start: u64, end: u64, clock: &Clock) -> Option<Clash> {
        self.cover(start, end);
        let clash = self.pieces.range(start..end).find_map(|(&from, piece)| {
            let written = piece.write.iter().map(|mark| ("written", mark));
            let mut marks = written.chain(piece.reads.iter().map(|mark| ("read", mark)));
            let (how, mark) = marks.find(|(_, mark)| !clock.after(mark.stamp))?;
            Some(Clash { start: from, end: piece.end, earlier: Some((how, mark.operation.clone())) })
        });
        self.remove(start, end);
        clash
    }

    fn remove(&mut self, start: u64, end: u64) {
        let covered: Vec<u64> = self.pieces.range(start..end).map(|(from, _)| *from).collect();
        for from in covered {
            self.pieces.remove(&from);
        }
    }

    /// Splits ranges at `start` and `end` and fills the gaps between.
    fn cover(&mut self, start: u64, end: u64) {
        for at in [start, end] {
            if let Some((_, piece)) = self.pieces.range_mut(..at).next_back()
                && piece.end > at
            {
                let rest = piece.clone();
                piece.end = at;
                self.pieces.insert(at, rest);
            }
        }
        let mut gaps = Vec::new();
        let mut at = start;
        for (&from, piece) in self.pieces.range(start..end) {
            if from > at {
                gaps.push((at, from));
            }
            at = piece.end;
        }
        if at < end {
            gaps.push((at, end));
        }
        for (from, end) in gaps {
            self.pieces.insert(from, Piece { end, ..Piece::default() });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mark(clock: &mut Clock, actor: usize) -> Mark {
        Mark { stamp: clock.step(actor), operation: Arc::new(Operation { text: format!("of {actor}") }) }
    }

    fn touch(kind: Kind, start: u64, end: u64) -> Access {
        Access { kind, start, end }
    }

    #[test]
    fn order_makes_the_difference() {
        let mut shadow = Shadow::default();
        let (mut a, mut b) = (Clock::default(), Clock::default());
        let write = mark(&mut a, 1);
        assert!(shadow.access(touch(Kind::Write, 0, 100), &write, &a, true).is_none());
        let read = mark(&mut b, 2);
        let clash = shadow.access(touch(Kind::Read, 50, 60), &read, &b, true).unwrap();
        assert_eq!((clash.start, clash.end), (50, 60));
        assert_eq!(clash.earlier.unwrap().0, "written");
        b.join(&a);
        let read = mark(&mut b, 2);
        assert!(shadow.access(touch(Kind::Read, 50, 60), &read, &b, true).is_none());
        // The first stream may write next to the bytes that the second reads, but not these bytes.
        let write = mark(&mut a, 1);
        assert!(shadow.access(touch(Kind::Write, 0, 50), &write, &a, true).is_none());
        let clash = shadow.access(touch(Kind::Write, 40, 70), &write, &a, true).unwrap();
        assert_eq!(clash.earlier.unwrap().0, "read");
    }

    #[test]
    fn nobody_reads_what_nobody_wrote() {
        let mut shadow = Shadow::default();
        let mut clock = Clock::default();
        let own = mark(&mut clock, 1);
        assert!(shadow.access(touch(Kind::Write, 10, 20), &own, &clock, true).is_none());
        let clash = shadow.access(touch(Kind::Read, 10, 21), &own, &clock, true).unwrap();
        assert!(clash.earlier.is_none() && clash.start == 20);
        assert!(shadow.access(touch(Kind::ReadSome, 0, 40), &own, &clock, true).is_none());
        assert!(shadow.access(touch(Kind::Read, 100, 140), &own, &clock, false).is_none());
    }

    #[test]
    fn the_end_comes_after_every_access() {
        let mut shadow = Shadow::default();
        let (mut a, mut b) = (Clock::default(), Clock::default());
        let write = mark(&mut a, 1);
        shadow.access(touch(Kind::Write, 0, 100), &write, &a, true);
        assert!(shadow.end(200, 300, &b).is_none());
        let clash = shadow.end(0, 100, &b).unwrap();
        assert_eq!(clash.earlier.unwrap().0, "written");
        let write = mark(&mut a, 1);
        shadow.access(touch(Kind::Write, 0, 100), &write, &a, true);
        b.join(&a);
        assert!(shadow.end(0, 100, &b).is_none());
    }
}
