//! Where the repeats of a sample are: next to one another in the epoch's order, and far apart in a global batch.

use super::Order;

/// Maps *places* to positions of an epoch's order. A place is an index in the sequence of the epoch's global batches. A
/// global batch contains each of its samples once, then each a second time, and so on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RepeatSpread {
    repeats: u64,
    global_batch: u64,
    /// Number of positions of an epoch.
    positions: u64,
}

impl RepeatSpread {
    /// Makes the map for epochs with the length and the repeats of `order`. `global_batch` is the size of a global
    /// batch.
    pub fn new(order: &Order, global_batch: u64) -> Self {
        Self { repeats: order.repeats().into(), global_batch, positions: order.len() }
    }

    /// Returns the position, in the order, of the draw at this place.
    pub fn position(&self, place: u64) -> u64 {
        if self.repeats == 1 {
            return place;
        }
        let (start, each, longer) = self.classes(place);
        let in_longer = longer * (each + 1);
        let within = place - start;
        let (class, at) = match within.checked_sub(in_longer) {
            None => (within / (each + 1), within % (each + 1)),
            Some(behind) => (longer + behind / each, behind % each),
        };
        start + at * self.repeats + class
    }

    /// Returns the place of the draw at this position of the order: the inverse of [`RepeatSpread::position`].
    pub fn place(&self, position: u64) -> u64 {
        if self.repeats == 1 {
            return position;
        }
        let (start, each, longer) = self.classes(position);
        let within = position - start;
        let (class, at) = (within % self.repeats, within / self.repeats);
        start + class * each + class.min(longer) + at
    }

    /// Returns the first place of the global batch that contains `place`, the length of a short class, and the number
    /// of long classes.
    ///
    /// A class is the positions of the batch whose offsets are equal modulo `repeats`. The batch contains one class
    /// after another: first the long classes, which have one position more, then the short classes.
    fn classes(&self, place: u64) -> (u64, u64, u64) {
        let start = place - place % self.global_batch;
        let len = self.global_batch.min(self.positions - start);
        (start, len / self.repeats, len % self.repeats)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dataset::Fingerprint;

    #[test]
    fn each_position_has_its_place() {
        for (len, global_batch, repeats) in
            [(60, 12, 3), (61, 12, 5), (50, 16, 3), (7, 16, 3), (40, 8, 16), (9, 4, 1)]
        {
            let order = Order::shuffled(&Fingerprint([7; 32]), 3, 0, len).repeated(repeats);
            let spread = RepeatSpread::new(&order, global_batch);
            let case = format!("{len} positions in batches of {global_batch}, {repeats} repeats");
            let mut seen: Vec<u64> = (0..len).map(|place| spread.position(place)).collect();
            for (place, &position) in (0..).zip(&seen) {
                assert_eq!(position / global_batch, place / global_batch, "{case}");
                assert_eq!(spread.place(position), place, "{case}");
            }
            seen.sort_unstable();
            assert!(seen.into_iter().eq(0..len), "{case}");
        }
    }
}
