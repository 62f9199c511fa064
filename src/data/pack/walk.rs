//! Makes the shards of a dataset, of whatever kind they are: finds those that an earlier run has finished, and has
//! threads make the others, each published whole.

use super::place::{self, PackingPlace};
use super::threads::each_job;
use super::{PackOptions, room};
use crate::dataset::DatasetIndex;
use base::error::{Error, Result};
use std::fs::File;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// A kind of shards.
pub(super) trait MakesShards: Sync {
    /// What each thread has for itself.
    type Memory;
    /// What is known of a shard that is there.
    type Made: Send;

    /// How many bytes of room are wanted for each byte of the source, and for each sample beside that.
    const ROOM: (f64, u64);

    /// The file name of a shard.
    fn name(number: usize) -> String;

    fn memory(&self) -> Self::Memory;

    /// What is known of the shard with this number, these samples and this path; `None` where it is not there.
    ///
    /// # Errors
    /// [`Error::Dataset`] for a file that is no such shard; [`Error::Io`] where it cannot be read.
    fn found(&self, number: usize, samples: &Range<u64>, path: &Path) -> Result<Option<Self::Made>>;

    /// Writes the shard with this number and these samples to a file, which messages call by its path, and calls
    /// `done` for each sample. Returns the digest of the stamps of what it was made of, too.
    ///
    /// # Errors
    /// Those of reading and writing samples, and of `done`.
    fn make(
        &self,
        memory: &mut Self::Memory,
        number: usize,
        samples: Range<u64>,
        target: (&File, &Path),
        done: &(dyn Fn() -> Result<()> + Sync),
    ) -> Result<(Self::Made, String)>;
}

/// The shards that are to be there, and where.
pub(super) struct ShardWalk<'a> {
    pub(super) index: &'a DatasetIndex,
    pub(super) place: &'a PackingPlace,
    pub(super) options: &'a PackOptions,
    pub(super) progress: &'a (dyn Fn(Option<u64>) + Sync),
    /// The samples of each.
    pub(super) shards: &'a [Range<u64>],
}

/// All shards once they are there.
pub(super) struct WalkedShards<M> {
    /// What is known of each, and the digest of the stamps of what it was made of.
    pub(super) made: Vec<(M, String)>,
    /// The number of samples in shards that an earlier run had finished.
    pub(super) samples_before: u64,
    /// The number of shards of an earlier run that were made again.
    pub(super) again: u64,
}

/// What is known of the shards by now.
struct WalkState<M> {
    made: Vec<Option<(M, String)>>,
    samples_before: u64,
    again: u64,
}

impl ShardWalk<'_> {
    /// Makes all shards that are not there yet.
    ///
    /// # Errors
    /// Those of `kind`; [`Error::Config`] where there is too little room; [`Error::Io`] where shards cannot be written.
    pub(super) fn run<K: MakesShards>(&self, kind: &K) -> Result<WalkedShards<K::Made>> {
        let made = self.shards.iter().map(|_| None).collect();
        let state = Mutex::new(WalkState { made, samples_before: 0, again: 0 });
        let lock = || state.lock().unwrap_or_else(PoisonError::into_inner);
        let all: Vec<usize> = (0..self.shards.len()).collect();
        let threads = self.options.threads;
        // All threads look at the source's files, since storage behind a network takes its time for each.
        each_job(
            threads,
            &all,
            || (),
            |(), &number, stop| {
                stop.check()?;
                let path = self.path::<K>(number);
                let samples = &self.shards[number];
                let Some(made) = kind.found(number, samples, &path)? else { return Ok(()) };
                let Some(stamps) = self.fresh_stamps(number) else {
                    // No run that follows may take it for the one that is noted next.
                    place::remove(&path)?;
                    lock().again += 1;
                    return Ok(());
                };
                {
                    let mut state = lock();
                    state.made[number] = Some((made, stamps));
                    state.samples_before += samples.end - samples.start;
                }
                samples.clone().for_each(|_| (self.progress)(None));
                Ok(())
            },
        )?;
        let missing: Vec<usize> = all.into_iter().filter(|&number| lock().made[number].is_none()).collect();
        room::check(self.index, self.shards, &missing, K::ROOM, self.options)?;
        each_job(
            threads.min(missing.len()),
            &missing,
            || kind.memory(),
            |memory, &number, stop| {
                let done = || {
                    (self.progress)(None);
                    stop.check()
                };
                let (samples, path) = (self.shards[number].clone(), self.path::<K>(number));
                let made = self.place.publish(&K::name(number), |file| {
                    let (made, stamps) = kind.make(memory, number, samples, (file, &path), &done)?;
                    self.place.note(number, &stamps)?;
                    Ok((made, stamps))
                })?;
                lock().made[number] = Some(made);
                Ok(())
            },
        )?;
        let WalkState { made, samples_before, again } =
            state.into_inner().unwrap_or_else(PoisonError::into_inner);
        let made: Option<Vec<_>> = made.into_iter().collect();
        let made = made.ok_or_else(|| Error::Internal("a shard was not made".to_owned()))?;
        Ok(WalkedShards { made, samples_before, again })
    }

    fn path<K: MakesShards>(&self, number: usize) -> PathBuf {
        self.place.path().join(K::name(number))
    }

    /// The digest of the stamps that the files of a shard have, if they are those that it was made of. Where a file is
    /// gone, making the shard again says so.
    fn fresh_stamps(&self, number: usize) -> Option<String> {
        let stamps = self.index.packing_stamps(self.shards[number].clone()).ok()?;
        (self.place.noted(number) == Some(&stamps)).then_some(stamps)
    }
}
