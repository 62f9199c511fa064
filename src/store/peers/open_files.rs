//! The limit on the number of files (including connections) that this process may have open.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the soft limit on open files to `wanted`, or as far as the system allows. Never lowers the limit. Returns the
/// resulting limit.
pub fn allow_open_files(wanted: u64) -> u64 {
    let limit = getrlimit(Resource::Nofile);
    // `None` means unlimited.
    let (current, maximum) = (limit.current.unwrap_or(u64::MAX), limit.maximum.unwrap_or(u64::MAX));
    let raised = wanted.min(maximum);
    if current >= raised {
        return current;
    }
    let limit = Rlimit { current: Some(raised), maximum: limit.maximum };
    if setrlimit(Resource::Nofile, limit).is_ok() { raised } else { current }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_raised_as_far_as_it_goes_and_never_lowered() {
        let limit = || getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        let before = limit();
        assert!(allow_open_files(1) >= before && limit() >= before);
        let most = getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX);
        assert_eq!((allow_open_files(u64::MAX), limit()), (most, most));
    }
}
