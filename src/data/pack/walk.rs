//! Makes the packed or tar shards of a dataset: finds the shards of an earlier run, and makes the missing shards on
//! several threads. A shard gets its name when it is complete.

use super::place::{self, PackingTarget};
use super::threads::each_job;
use super::{PackOptions, disk_space};
use crate::dataset::DatasetIndex;
use base::error::{Error, Result};
use std::fs::File;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// A kind of shards (packed or tar), and how to make them.
pub(super) trait MakesShards: Sync {
    /// Reusable memory of a thread.
    type Memory;
    type Made: Send;

    /// Required disk space in bytes for each byte of the source, and additional bytes for each sample.
    const DISK_SPACE: (f64, u64);

    fn name(number: usize) -> String;

    fn memory(&self) -> Self::Memory;

    /// Returns the facts about the shard with this index, these samples and this path; `None` if it does not exist.
    ///
    /// # Errors
    /// [`Error::Dataset`] for a file that is not this shard; [`Error::Io`] if the file cannot be read.
    fn found(&self, number: usize, samples: &Range<u64>, path: &Path) -> Result<Option<Self::Made>>;

    /// Writes the shard with this index and these samples to a file, and calls `done` for each sample. The path of the
    /// file is for messages. Also returns the digest of the source files' stamps.
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

pub(super) struct ShardRun<'a> {
    pub(super) index: &'a DatasetIndex,
    pub(super) place: &'a PackingTarget,
    pub(super) options: &'a PackOptions,
    pub(super) progress: &'a (dyn Fn(Option<u64>) + Sync),
    pub(super) shards: &'a [Range<u64>],
}

pub(super) struct FinishedShards<M> {
    /// Facts about each shard, and the digest of its source files' stamps.
    pub(super) made: Vec<(M, String)>,
    pub(super) samples_before: u64,
    pub(super) again: u64,
}

struct ShardProgress<M> {
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
    pub(super) fn run<K: MakesShards>(&self, kind: &K) -> Result<FinishedShards<K::Made>> {
        let made = self.shards.iter().map(|_| None).collect();
        let state = Mutex::new(ShardProgress { made, samples_before: 0, again: 0 });
        let lock = || state.lock().unwrap_or_else(PoisonError::into_inner);
        let all: Vec<usize> = (0..self.shards.len()).collect();
        let threads = self.options.threads;
        // Check the source's files on all threads, because on network storage each check takes long.
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
                    // Remove the old shard before new stamps are noted. Otherwise a later run would take the old shard
                    // for the new one.
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
        disk_space::check(self.index, self.shards, &missing, K::DISK_SPACE, self.options)?;
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
        let ShardProgress { made, samples_before, again } =
            state.into_inner().unwrap_or_else(PoisonError::into_inner);
        let made: Option<Vec<_>> = made.into_iter().collect();
        let made = made.ok_or_else(|| Error::Internal("a shard was not made".to_owned()))?;
        Ok(FinishedShards { made, samples_before, again })
    }

    fn path<K: MakesShards>(&self, number: usize) -> PathBuf {
        self.place.path.join(K::name(number))
    }

    /// Returns the digest of the current stamps of a shard's source files, if the shard was made from these versions.
    /// `None` also if a file is missing: packing the shard again then reports the missing file.
    fn fresh_stamps(&self, number: usize) -> Option<String> {
        let stamps = self.index.packing_stamps(self.shards[number].clone()).ok()?;
        (self.place.noted.get(&number) == Some(&stamps)).then_some(stamps)
    }
}
