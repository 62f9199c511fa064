//! Makes the shards of a dataset, of either kind: finds those of an earlier run, and makes the others on several
//! threads. Each gets its name when it is complete.

use super::place::{self, PackingTarget};
use super::threads::each_job;
use super::{PackOptions, room};
use crate::dataset::DatasetIndex;
use base::error::{Error, Result};
use std::fs::File;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// A kind of shards, and how to make them.
pub(super) trait MakesShards: Sync {
    /// Reusable memory of a thread.
    type Memory;
    /// Facts about an existing shard.
    type Made: Send;

    /// Required disk space in bytes for each byte of the source, and additionally for each sample.
    const ROOM: (f64, u64);

    /// Returns the file name of a shard.
    fn name(number: usize) -> String;

    fn memory(&self) -> Self::Memory;

    /// Returns the facts about the shard with this number, these samples and this path; `None` if it does not exist.
    ///
    /// # Errors
    /// [`Error::Dataset`] for a file that is not this shard; [`Error::Io`] if it cannot be read.
    fn found(&self, number: usize, samples: &Range<u64>, path: &Path) -> Result<Option<Self::Made>>;

    /// Writes the shard with this number and these samples to a file (with its path for messages), and calls `done` for
    /// each sample. Also returns the digest of the source files' stamps.
    ///
    /// # Errors
    /// The errors of reading and writing samples, and of `done`.
    fn make(
        &self,
        memory: &mut Self::Memory,
        number: usize,
        samples: Range<u64>,
        target: (&File, &Path),
        done: &(dyn Fn() -> Result<()> + Sync),
    ) -> Result<(Self::Made, String)>;
}

/// The shards to make, and their directory.
pub(super) struct ShardRun<'a> {
    pub(super) index: &'a DatasetIndex,
    pub(super) place: &'a PackingTarget,
    pub(super) options: &'a PackOptions,
    pub(super) progress: &'a (dyn Fn(Option<u64>) + Sync),
    /// Samples of each shard.
    pub(super) shards: &'a [Range<u64>],
}

/// Result for all shards.
pub(super) struct WalkedShards<M> {
    /// Facts about each shard, and the digest of its source files' stamps.
    pub(super) made: Vec<(M, String)>,
    /// Number of samples in shards of an earlier run.
    pub(super) samples_before: u64,
    /// Number of shards of an earlier run that were made again.
    pub(super) again: u64,
}

/// Facts about the shards so far.
struct WalkState<M> {
    made: Vec<Option<(M, String)>>,
    samples_before: u64,
    again: u64,
}

impl ShardRun<'_> {
    /// Makes all missing shards.
    ///
    /// # Errors
    /// The errors of `kind`; [`Error::Config`] if disk space is insufficient; [`Error::Io`] if shards cannot be
    /// written.
    pub(super) fn run<K: MakesShards>(&self, kind: &K) -> Result<WalkedShards<K::Made>> {
        let made = self.shards.iter().map(|_| None).collect();
        let state = Mutex::new(WalkState { made, samples_before: 0, again: 0 });
        let lock = || state.lock().unwrap_or_else(PoisonError::into_inner);
        let all: Vec<usize> = (0..self.shards.len()).collect();
        let threads = self.options.threads;
        // Check the source's files on all threads, because network storage takes long for each.
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
                    // Remove the old shard before new stamps are noted: a later run would take it for the new one.
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

    /// Returns the digest of a shard's source files' current stamps, if the shard was made of these versions. If a file
    /// is missing, making the shard again reports it.
    fn fresh_stamps(&self, number: usize) -> Option<String> {
        let stamps = self.index.packing_stamps(self.shards[number].clone()).ok()?;
        (self.place.noted(number) == Some(&stamps)).then_some(stamps)
    }
}
