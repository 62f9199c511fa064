//! Processes nodes in parallel, as many at a time as there are processors: the caches of a thousand nodes at once would
//! need too much memory.

use std::sync::{Mutex, PoisonError};

pub(crate) fn parallel_for_each<T: Send>(nodes: &mut [T], work: impl Fn(u32, &mut T) + Sync) {
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(nodes.len());
    let queue = Mutex::new((0u32..).zip(nodes));
    let next = || queue.lock().unwrap_or_else(PoisonError::into_inner).next();
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some((number, node)) = next() {
                    work(number, node);
                }
            });
        }
    });
}

pub(crate) fn each<T: Send>(nodes: u32, work: impl Fn(u32) -> T + Sync) -> Vec<T> {
    let mut results: Vec<Option<T>> = (0..nodes).map(|_| None).collect();
    parallel_for_each(&mut results, |node, result| *result = Some(work(node)));
    results.into_iter().flatten().collect()
}
