//! Reservoirs as tables, for snapshots, and several of them as one.

use super::{Capacity, KeepBy, KeptSample, NEVER, Reservoir, ReservoirEntry, ReservoirPart, StepChange};
use base::error::Result;

impl Reservoir {
    /// The samples that are kept, in their order: by part, then by key.
    pub fn entries(&self) -> impl Iterator<Item = &KeptSample> {
        self.entries.iter().map(|entry| &entry.kept)
    }

    /// The parts that were seen, in order.
    pub fn parts(&self) -> impl Iterator<Item = ReservoirPart> {
        self.parts.iter().map(|(&part, found)| ReservoirPart {
            part,
            threshold: Some(found.threshold).filter(|&threshold| threshold != NEVER),
        })
    }

    /// The reservoir with these parts and entries, as [`Reservoir::parts`] and [`Reservoir::entries`] gave them, and
    /// what had to give way because the capacity is smaller than it was.
    ///
    /// # Errors
    /// What is wrong, in words: entries that no such reservoir could have.
    pub fn restore(
        (seed, by, capacity): (u64, KeepBy, Capacity),
        parts: impl IntoIterator<Item = ReservoirPart>,
        entries: impl IntoIterator<Item = KeptSample>,
    ) -> Result<(Self, Vec<KeptSample>), String> {
        let mut made = Self::new(seed, by, capacity).map_err(|error| error.to_string())?;
        for ReservoirPart { part, threshold } in parts {
            if by != KeepBy::Class && part != 0 || !made.see_part(part) {
                return Err(format!("it has a part {part} that it cannot have"));
            }
            made.parts.get_mut(&part).expect("made just now").threshold = threshold.unwrap_or(NEVER);
        }
        for kept in entries {
            let part = made.part_of(kept.class);
            let below = made.parts.get(&part).is_some_and(|part| (kept.order, kept.id) < part.threshold);
            if !below || made.contains(kept.id) {
                return Err(format!("its sample {} cannot be there", kept.id));
            }
            made.insert(ReservoirEntry { part, kept });
        }
        let mut evicted = Vec::new();
        made.shrink(&mut StepChange::default(), &mut evicted);
        Ok((made, evicted))
    }

    /// Takes over another reservoir, so that this one is as if it had been offered the samples of both. Returns those
    /// of both that are no longer kept. No step may be left to be undone.
    ///
    /// # Errors
    /// [`base::error::Error::Unavailable`] where the two keep samples by other keys, so that there is no such
    /// reservoir.
    pub fn merge(&mut self, other: Self) -> Result<Vec<KeptSample>> {
        if (self.rehearse, self.by) != (other.rehearse, other.by) {
            let message = "rehearsal buffers with another seed or another `by` cannot become one";
            return Err(base::error::Error::Unavailable(message.to_owned()));
        }
        let mut gone = Vec::new();
        // What lies at or above either threshold is none of the union's, for it was not of either.
        for (&number, theirs) in &other.parts {
            self.see_part(number);
            let part = self.parts.get_mut(&number).expect("seen just now");
            part.threshold = part.threshold.min(theirs.threshold);
            let threshold = part.threshold;
            while let Some(&last) = self.entries.last_of(number)
                && (last.kept.order, last.kept.id) >= threshold
            {
                self.remove(last.kept.id);
                gone.push(last.kept);
            }
        }
        for entry in other.entries.iter() {
            let ReservoirEntry { part, mut kept } = *entry;
            if (kept.order, kept.id) >= self.parts[&part].threshold {
                gone.push(kept);
                continue;
            }
            // A sample that both have stays once, by the smaller of its keys.
            if let Some(own) = self.remove(kept.id) {
                let uses = own.kept.uses.saturating_add(kept.uses);
                kept = if own.kept.order <= kept.order { own.kept } else { kept };
                kept.uses = uses;
            }
            self.insert(ReservoirEntry { part: self.part_of(kept.class), kept });
        }
        self.shrink(&mut StepChange::default(), &mut gone);
        // A sample that only one of them gives up is still there.
        gone.retain(|kept| !self.contains(kept.id));
        Ok(gone)
    }
}
