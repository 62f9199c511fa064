//! What the user should hear although nothing failed: what is left out, replaced, slowed or not known. Each is said once.
//!
//! Whoever notices something says it here, on any thread; Python turns it into a warning, the command line prints it. A
//! message names the reason and the remedy.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Most bytes of a message: enough for reason, remedy and a long path; a list of all that is concerned is not for here.
const LONGEST: usize = 1000;

/// The notices of one loader. Clones are the same.
#[derive(Debug, Clone, Default)]
pub struct Notices(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    /// Whether there is something to take: asked for at every batch.
    waiting: AtomicBool,
    said: Mutex<Said>,
}

#[derive(Debug, Default)]
struct Said {
    subjects: BTreeSet<&'static str>,
    waiting: Vec<String>,
}

impl Notices {
    /// Says `message`, unless something was said on this `subject` before.
    pub fn say(&self, subject: &'static str, message: impl FnOnce() -> String) {
        let mut said = self.said();
        if said.subjects.insert(subject) {
            said.waiting.push(shortened(message()));
            self.0.waiting.store(true, Ordering::Release);
        }
    }

    /// What was said since this was last called, in order.
    pub fn take(&self) -> Vec<String> {
        if !self.0.waiting.load(Ordering::Acquire) {
            return Vec::new();
        }
        let mut said = self.said();
        self.0.waiting.store(false, Ordering::Release);
        std::mem::take(&mut said.waiting)
    }

    fn said(&self) -> MutexGuard<'_, Said> {
        self.0.said.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn shortened(mut message: String) -> String {
    if message.len() > LONGEST {
        let end = (0..=LONGEST).rev().find(|&at| message.is_char_boundary(at)).unwrap_or(0);
        message.truncate(end);
        message.push('…');
    }
    message
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_subject_is_spoken_of_once_and_briefly() {
        let notices = Notices::default();
        assert!(notices.take().is_empty());
        notices.say("cache", || "the first".into());
        notices.clone().say("cache", || unreachable!("nobody hears it"));
        notices.say("index", || "é".repeat(LONGEST));
        let taken = notices.take();
        assert_eq!(taken[0], "the first");
        assert!(taken[1].len() <= LONGEST + '…'.len_utf8() && taken[1].ends_with("é…"));
        notices.say("cache", || unreachable!("said before"));
        assert!(notices.take().is_empty());
    }
}
