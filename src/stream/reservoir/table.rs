//! Conversion of reservoirs to and from the tables of snapshots, and merging of reservoirs.

use super::{Capacity, KeepBy, KeptSample, NEVER, Reservoir, ReservoirEntry, ReservoirPart, StepChange};
use base::error::Result;

impl Reservoir {
    /// The kept samples in order: by part, then by key.
    pub fn entries(&self) -> impl Iterator<Item = &KeptSample> {
        self.entries.iter().map(|entry| &entry.kept)
    }

    /// The parts of the reservoir: one for each class if samples are kept by class, otherwise a single part.
    pub fn parts(&self) -> impl Iterator<Item = ReservoirPart> {
        self.parts
            .iter()
            .map(|(&part, found)| (part, Some(found.threshold).filter(|&threshold| threshold != NEVER)))
    }

    /// Builds the reservoir from the results of [`Reservoir::parts`] and [`Reservoir::entries`]. Also returns the
    /// samples that were evicted because the capacity is smaller than before.
    ///
    /// # Errors
    /// The problem as text, if no reservoir can have these entries.
    pub fn restore(
        (seed, by, capacity): (u64, KeepBy, Capacity),
        parts: impl IntoIterator<Item = ReservoirPart>,
        entries: impl IntoIterator<Item = KeptSample>,
    ) -> Result<(Self, Vec<KeptSample>), String> {
        let mut made = Self::new(seed, by, capacity).map_err(|error| error.to_string())?;
        for (part, threshold) in parts {
            if by != KeepBy::Class && part != 0 || !made.ensure_part(part) {
                return Err(format!("it has the impossible part {part}"));
            }
            made.parts.get_mut(&part).expect("made just now").threshold = threshold.unwrap_or(NEVER);
        }
        for kept in entries {
            let part = made.part_of(kept.class);
            let below = made.parts.get(&part).is_some_and(|part| (kept.order, kept.id) < part.threshold);
            if !below || made.contains(kept.id) {
                return Err(format!("it cannot contain the sample {}", kept.id));
            }
            made.insert(ReservoirEntry { part, kept });
        }
        let mut evicted = Vec::new();
        made.shrink(&mut StepChange::default(), &mut evicted);
        Ok((made, evicted))
    }

    /// Merges another reservoir into this one, as if this reservoir had been offered the samples of both. Returns the
    /// samples of both reservoirs that are no longer kept. No step may be pending that could be undone.
    ///
    /// # Errors
    /// [`base::error::Error::Unavailable`] if the two reservoirs have different keys, so that they cannot be merged.
    pub fn merge(&mut self, other: Self) -> Result<Vec<KeptSample>> {
        if (self.rehearse, self.by) != (other.rehearse, other.by) {
            let message = "rehearsal buffers with different seeds or different `by` cannot be merged";
            return Err(base::error::Error::Unavailable(message.to_owned()));
        }
        let mut gone = Vec::new();
        // Samples at or above either threshold may be missing in one of the reservoirs, so the merged reservoir keeps
        // none of them.
        for (&number, theirs) in &other.parts {
            self.ensure_part(number);
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
            // A sample that is in both reservoirs stays once, with the smaller key.
            if let Some(own) = self.remove(kept.id) {
                let uses = own.kept.uses.saturating_add(kept.uses);
                kept = if own.kept.order <= kept.order { own.kept } else { kept };
                kept.uses = uses;
            }
            self.insert(ReservoirEntry { part: self.part_of(kept.class), kept });
        }
        self.shrink(&mut StepChange::default(), &mut gone);
        // A sample that was dropped from only one of the reservoirs may still be kept.
        gone.retain(|kept| !self.contains(kept.id));
        Ok(gone)
    }
}
