//! Scoped threads for indexing and revalidating a dataset.

use base::error::{Error, Result};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// Runs `work` on `threads` threads, which send items. The calling thread receives the items and passes them to `take`,
/// one at a time. The first error stops all threads.
///
/// `work` gets a function that sends an item and returns whether to continue.
pub(super) fn collect<T: Send>(
    threads: usize,
    work: impl Fn(&dyn Fn(Result<T>) -> bool) + Sync,
    mut take: impl FnMut(T) -> Result<()>,
) -> Result<()> {
    std::thread::scope(|scope| {
        let (sender, receiver) = crossbeam_channel::bounded(threads);
        for i in 0..threads {
            let (work, sender) = (&work, sender.clone());
            let thread = std::thread::Builder::new().name(format!("foreload-index-{i}"));
            let spawned = thread.spawn_scoped(scope, move || {
                work(&|item: Result<T>| {
                    let go_on = item.is_ok();
                    sender.send(item).is_ok() && go_on
                });
            });
            if let Err(error) = spawned {
                // Fewer threads can do the same work, but one thread is needed.
                if i == 0 {
                    return Err(Error::Unavailable(format!("no thread could be started: {error}")));
                }
                break;
            }
        }
        drop(sender);
        for item in receiver {
            take(item?)?;
        }
        Ok(())
    })
}

/// Calls `work` with every number below `count`, on up to `threads` threads. The calling thread is one of them, so that
/// no thread is started for little work. The first error stops the work. Of several errors, returns the error for the
/// lowest number.
///
/// # Errors
/// The errors of `work`.
pub fn for_each(threads: usize, count: usize, work: impl Fn(usize) -> Result<()> + Sync) -> Result<()> {
    let next = AtomicUsize::new(0);
    let failed: Mutex<Option<(usize, Error)>> = Mutex::new(None);
    let run = || {
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= count {
                return;
            }
            if let Err(error) = work(number) {
                // Keep all threads from beginning another item.
                next.store(count, Ordering::Relaxed);
                let mut failed = failed.lock().unwrap_or_else(PoisonError::into_inner);
                if failed.as_ref().is_none_or(|(first, _)| number < *first) {
                    *failed = Some((number, error));
                }
            }
        }
    };
    std::thread::scope(|scope| {
        for i in 1..threads.min(count) {
            let thread = std::thread::Builder::new().name(format!("foreload-look-{i}"));
            // If a thread cannot be started, the other threads do its share of the work.
            if thread.spawn_scoped(scope, run).is_err() {
                break;
            }
        }
        run();
    });
    failed.into_inner().unwrap_or_else(PoisonError::into_inner).map_or(Ok(()), |(_, error)| Err(error))
}
