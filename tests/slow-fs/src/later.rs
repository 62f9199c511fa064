//! Runs functions at a later time, on one thread.

use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Instant;

/// The function that runs at its time.
type Answer = Box<dyn FnOnce() + Send>;

/// A queue of functions to run later. When it is dropped, the remaining functions run at once.
pub struct Later {
    orders: Sender<(Instant, Answer)>,
}

impl Later {
    /// Starts the thread.
    pub fn start() -> std::io::Result<Self> {
        let (orders, ordered) = channel();
        std::thread::Builder::new().name("later".into()).spawn(move || keep(&ordered))?;
        Ok(Self { orders })
    }

    /// Runs `answer` at `due`, or at once if `due` is past.
    pub fn at(&self, due: Instant, answer: impl FnOnce() + Send + 'static) {
        if due <= Instant::now() {
            return answer();
        }
        // The thread ends with `self`, not before.
        let _ = self.orders.send((due, Box::new(answer)));
    }
}

fn keep(ordered: &Receiver<(Instant, Answer)>) {
    let mut waiting: BTreeMap<(Instant, u64), Answer> = BTreeMap::new();
    for number in 0.. {
        let now = Instant::now();
        while let Some(first) = waiting.first_entry().filter(|first| first.key().0 <= now) {
            first.remove()();
        }
        let next = match waiting.first_key_value() {
            None => ordered.recv().map_err(|_| RecvTimeoutError::Disconnected),
            Some(((due, _), _)) => ordered.recv_timeout(due.saturating_duration_since(now)),
        };
        match next {
            Ok((due, answer)) => {
                waiting.insert((due, number), answer);
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    waiting.into_values().for_each(|answer| answer());
}
