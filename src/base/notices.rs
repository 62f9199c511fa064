//! Notices: warnings and information for the user although nothing failed, for instance about something that was
//! skipped, replaced, slowed down or unknown. Each is given once.
//!
//! Any code on any thread adds notices. Python turns them into warnings, or into lines of its log if they are only
//! information. The command line prints the warnings. A message names the reason and the remedy.

use serde::{Deserialize, Serialize};
use std::collections::{BTreeSet, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The maximum length of a message in bytes: enough for the reason, the remedy and a long path, but not for a list of
/// all affected files.
const LONGEST: usize = 1000;

/// The number of running commands. While a command runs, urgent notices are printed immediately, because no other code
/// shows them before the command ends.
static COMMANDS: AtomicUsize = AtomicUsize::new(0);

/// While this value exists, urgent notices are printed on stderr. The command line holds one while a command runs, and
/// then drops it, because the process may be a Python interpreter that later uses loaders.
pub struct PrintUrgentNotices(());

impl PrintUrgentNotices {
    /// Starts printing urgent notices.
    pub fn begin() -> Self {
        COMMANDS.fetch_add(1, Ordering::Relaxed);
        Self(())
    }
}

impl Drop for PrintUrgentNotices {
    fn drop(&mut self) {
        COMMANDS.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Whether a notice requires action.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NoticeKind {
    /// Something is probably not as the user wants it.
    Warning,
    /// Information; a healthy run may have such notices.
    Information,
}

/// A message to the user.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Notice {
    /// Whether the notice requires action.
    pub kind: NoticeKind,
    /// The message, of bounded length.
    pub message: String,
}

/// The notices of one loader. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct Notices(Arc<NoticeQueue>);

#[derive(Debug, Default)]
struct NoticeQueue {
    /// Whether there is a notice to take. Every batch checks this flag, without the mutex.
    waiting: AtomicBool,
    state: Mutex<NoticeState>,
}

#[derive(Debug, Default)]
struct NoticeState {
    subjects: BTreeSet<NoticeSubject>,
    passed_on: BTreeSet<String>,
    waiting: VecDeque<Notice>,
}

/// The subject of a notice that is given once: a name, and optionally what it concerns, such as a setting or tier.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct NoticeSubject(&'static str, &'static str);

impl From<&'static str> for NoticeSubject {
    fn from(name: &'static str) -> Self {
        Self(name, "")
    }
}

impl From<(&'static str, &'static str)> for NoticeSubject {
    fn from((name, which): (&'static str, &'static str)) -> Self {
        Self(name, which)
    }
}

impl Notices {
    /// Warns with `message`, unless there was a notice on this `subject` before.
    pub fn warn_once(&self, subject: impl Into<NoticeSubject>, message: impl FnOnce() -> String) {
        self.add_once(NoticeKind::Warning, subject.into(), message);
    }

    /// Informs with `message`, unless there was a notice on this `subject` before.
    pub fn inform_once(&self, subject: impl Into<NoticeSubject>, message: impl FnOnce() -> String) {
        self.add_once(NoticeKind::Information, subject.into(), message);
    }

    fn add_once(&self, kind: NoticeKind, subject: NoticeSubject, message: impl FnOnce() -> String) {
        let mut state = self.state();
        if state.subjects.insert(subject) {
            self.add(&mut state, kind, message());
        }
    }

    /// Adds `message`, even if the same message was added before. For notices that are repeated for each dataset or
    /// epoch.
    pub fn notify(&self, kind: NoticeKind, message: String) {
        self.add(&mut self.state(), kind, message);
    }

    /// Adds a message of another process, unless the same message was added before. A process that reconnects gets all
    /// messages again.
    pub fn pass_on(&self, kind: NoticeKind, message: String) {
        let mut state = self.state();
        if state.passed_on.insert(message.clone()) {
            self.add(&mut state, kind, message);
        }
    }

    /// Warns with `message` about something that happens now. While a command runs, the message is printed immediately;
    /// otherwise it is queued.
    pub fn warn_at_once(&self, message: String) {
        if COMMANDS.load(Ordering::Relaxed) > 0 {
            eprintln!("warning: {}", shortened(message));
        } else {
            self.notify(NoticeKind::Warning, message);
        }
    }

    fn add(&self, state: &mut NoticeState, kind: NoticeKind, message: String) {
        state.waiting.push_back(Notice { kind, message: shortened(message) });
        self.0.waiting.store(true, Ordering::Release);
    }

    /// Takes the first notice that was not taken yet. This is cheap if there is no notice.
    pub fn next(&self) -> Option<Notice> {
        if !self.0.waiting.load(Ordering::Acquire) {
            return None;
        }
        let mut state = self.state();
        let next = state.waiting.pop_front();
        self.0.waiting.store(!state.waiting.is_empty(), Ordering::Release);
        next
    }

    /// Takes the warnings that were not taken yet, in order, and drops notices that are only information.
    pub fn take(&self) -> Vec<String> {
        let all = std::iter::from_fn(|| self.next());
        all.filter(|notice| notice.kind == NoticeKind::Warning).map(|notice| notice.message).collect()
    }

    fn state(&self) -> MutexGuard<'_, NoticeState> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
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
        notices.warn_once("cache", || "the first".into());
        notices.clone().warn_once("cache", || unreachable!("nobody hears it"));
        notices.warn_once("index", || "é".repeat(LONGEST));
        let taken = notices.take();
        assert_eq!(taken[0], "the first");
        assert!(taken[1].len() <= LONGEST + '…'.len_utf8() && taken[1].ends_with("é…"));
        notices.warn_once("cache", || unreachable!("said before"));
        assert!(notices.take().is_empty());
    }

    #[test]
    fn one_is_taken_at_a_time_and_what_is_good_to_know_is_no_warning() {
        let notices = Notices::default();
        notices.inform_once("io", || "registered".into());
        notices.notify(NoticeKind::Warning, "epoch 0".into());
        notices.notify(NoticeKind::Warning, "epoch 1".into());
        assert_eq!(notices.next().unwrap().kind, NoticeKind::Information);
        assert_eq!(notices.next().unwrap().message, "epoch 0");
        notices.inform_once("io", || unreachable!("said before"));
        assert_eq!(notices.take(), ["epoch 1"]);
        for message in ["damaged", "slow", "damaged"] {
            notices.pass_on(NoticeKind::Warning, message.into());
        }
        assert_eq!(notices.take(), ["damaged", "slow"]);
        assert_eq!(notices.next(), None);
    }
}
