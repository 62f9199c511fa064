//! The names of tiers in statistics, logs and reports.

use std::fmt;
use std::sync::{Mutex, PoisonError};

const LONGEST: usize = 24;

/// The maximum number of names in a process: more than any job has tiers, and few enough that a damaged log cannot fill
/// the memory.
const MAX_NAMES: usize = 64;

/// The name of a tier, such as `ram`, `nvme` or `source`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TierName(&'static str);

impl TierName {
    /// The place where the dataset is stored, the slowest tier.
    pub const SOURCE: Self = Self::of("source");
    /// Copies in this process's memory.
    pub const RAM: Self = Self::of("ram");
    /// Copies in a directory, on a fast local drive.
    pub const NVME: Self = Self::of("nvme");
    /// Copies in the caches of the job's other nodes.
    pub const PEERS: Self = Self::of("peers");

    /// The name `text`, for constants.
    ///
    /// # Panics
    /// Panics if `text` is not a valid name. In a constant this is a compile error.
    pub const fn of(text: &'static str) -> Self {
        assert!(is_name(text), "a name is up to 24 small letters, digits, `_` and `-`");
        Self(text)
    }

    /// The name `text`. `None` if it is not valid: a name has up to 24 small letters, digits, `_` and `-`.
    pub fn new(text: &str) -> Option<Self> {
        static NAMES: Mutex<Vec<&'static str>> = Mutex::new(Vec::new());
        if !is_name(text) {
            return None;
        }
        let mut names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = names.iter().find(|known| **known == text) {
            return Some(Self(known));
        }
        if names.len() >= MAX_NAMES {
            return None;
        }
        let name: &'static str = Box::leak(text.into());
        names.push(name);
        Some(Self(name))
    }

    /// The name as text.
    pub fn as_str(self) -> &'static str {
        self.0
    }
}

const fn is_name(text: &str) -> bool {
    let mut rest = text.as_bytes();
    let has_a_length = !rest.is_empty() && rest.len() <= LONGEST;
    while let [b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-', more @ ..] = rest {
        rest = more;
    }
    has_a_length && rest.is_empty()
}

impl Default for TierName {
    fn default() -> Self {
        Self::SOURCE
    }
}

impl fmt::Display for TierName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl fmt::Debug for TierName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl serde::Serialize for TierName {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_known_again() {
        assert_eq!(TierName::new("nvme"), Some(TierName::NVME));
        let disk = TierName::new("slow-disk2").expect("it is a name");
        assert_eq!((TierName::new("slow-disk2"), disk.as_str()), (Some(disk), "slow-disk2"));
        for none in ["", "Disk", "a b", "<i>", &"x".repeat(25)] {
            assert_eq!(TierName::new(none), None, "{none:?}");
        }
    }
}
