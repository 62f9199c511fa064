//! Jobs on several threads, of which the first that fails ends the others.

use base::error::{Error, Result};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// Whether another job has failed.
pub(super) struct JobStop(AtomicBool);

impl JobStop {
    /// An error that ends this job where another has failed; that one's error is what is reported.
    pub(super) fn check(&self) -> Result<()> {
        if self.0.load(Ordering::Relaxed) {
            return Err(Error::Unavailable("another job has failed".to_owned()));
        }
        Ok(())
    }
}

/// Does all `jobs`, in this order, on up to `threads` threads, of which this one is the first. Each thread has memory
/// of its own, which `memory` makes.
///
/// # Errors
/// That of the first job that fails. Jobs that run then end at their next [`JobStop::check`].
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
            // Fewer threads do the same work.
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
            // A job that runs on would wait for ever.
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
