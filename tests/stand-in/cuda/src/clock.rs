//! Vector clocks, which show what certainly happened before what.

/// The actor of the host. The driver cannot see how the host's threads are ordered, so they count as one.
pub const HOST: usize = 0;

/// The progress of each actor (the host, and each stream), as known to the owner of the clock.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Clock(Vec<u64>);

/// One step of one actor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp {
    pub actor: usize,
    pub count: u64,
}

impl Clock {
    /// Whether the owner of this clock comes after the step.
    pub fn after(&self, step: Stamp) -> bool {
        self.0.get(step.actor).is_some_and(|count| *count >= step.count)
    }

    /// Merges the knowledge of `other` into this clock.
    pub fn join(&mut self, other: &Self) {
        self.reach(other.0.len());
        for (own, count) in self.0.iter_mut().zip(&other.0) {
            *own = (*own).max(*count);
        }
    }

    /// Makes the actor's next step.
    pub fn step(&mut self, actor: usize) -> Stamp {
        self.reach(actor + 1);
        self.0[actor] += 1;
        Stamp { actor, count: self.0[actor] }
    }

    fn reach(&mut self, actors: usize) {
        if self.0.len() < actors {
            self.0.resize(actors, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_joined_is_ordered() {
        let (mut a, mut b) = (Clock::default(), Clock::default());
        let first = a.step(1);
        assert!(!b.after(first));
        b.join(&a);
        let second = a.step(1);
        let other = b.step(2);
        assert!(b.after(first) && !b.after(second) && !a.after(other));
        a.join(&b);
        assert!(a.after(other) && a.after(second));
    }
}
