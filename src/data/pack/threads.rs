//! Runs jobs on several threads. The first failure ends all other jobs.

use base::error::{Error, Result};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// Whether another job has failed.
pub(super) struct JobStop(AtomicBool);

impl JobStop {
    /// Fails if another job has failed, to end this job. Only the other job's error is reported.
    pub(super) fn check(&self) -> Result<()> {
        if self.0.load(Ordering::Relaxed) {
            return Err(Error::Unavailable("another job has failed".to_owned()));
        }
        Ok(())
    }
}

/// Runs all `jobs`, started in this order, on up to `threads` threads, including the calling thread. `memory` makes
/// each thread's own memory.
///
/// # Errors
/// The error of the first job that fails. Running jobs then end at their next [`JobStop::check`].
pub(super) fn each_job<J: Sync, M>(
    threads: usize,
    jobs: &[J],
    memory: impl Fn() -> M + Sync,
    work: impl Fn(&mut M, &J, &JobStop) -> Result<()> + Sync,
) -> Result<()> {
    let (next, stop) = (AtomicUsize::new(0), JobStop(AtomicBool::new(false)));
    let failed: Mutex<Option<Error>> = Mutex::new(None);
    let run = || {
        let mut memory = memory();
        while let Some(job) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
            if stop.check().is_err() {
                return;
            }
            if let Err(error) = work(&mut memory, job, &stop) {
                failed.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
                stop.0.store(true, Ordering::Relaxed);
            }
        }
    };
    std::thread::scope(|scope| {
        for number in 1..threads.min(jobs.len()) {
            let thread = std::thread::Builder::new().name(format!("foreload-pack-{number}"));
            // If the system refuses to start another thread, the existing threads do all jobs.
            if thread.spawn_scoped(scope, run).is_err() {
                break;
            }
        }
        run();
    });
    failed.into_inner().unwrap_or_else(PoisonError::into_inner).map_or(Ok(()), Err)
}

#[cfg(test)]
mod tests {
    use super::each_job;
    use base::error::Error;
    use std::sync::Mutex;

    #[test]
    fn the_first_failure_is_reported_and_ends_the_rest() {
        let done = Mutex::new(Vec::new());
        let jobs: Vec<u32> = (0..1000).collect();
        let work = |made: &mut u32, job: &u32, stop: &super::JobStop| {
            *made += 1;
            if *job == 30 {
                return Err(Error::dataset("shard", "is broken"));
            }
            // A job that ignored the stop would loop for ever.
            if *job > 30 {
                loop {
                    stop.check()?;
                }
            }
            done.lock().unwrap().push(*job);
            Ok(())
        };
        let error = each_job(3, &jobs, || 0, work).unwrap_err().to_string();
        assert_eq!(error, "dataset shard: is broken");
        assert_eq!(done.lock().unwrap().len(), 30);
        each_job(3, &jobs[..30], || 0, work).unwrap();
        each_job(3, &jobs[..0], || 0, work).unwrap();
    }
}
