//! A control group's quota of processor time. When the quota is used up, all threads of the group wait for the next
//! period, so even work of low priority can delay training. The kernel counts the periods in which this happens.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const ROOTS: [&str; 4] =
    ["/sys/fs/cgroup", "/sys/fs/cgroup/cpu", "/sys/fs/cgroup/cpu,cpuacct", "/sys/fs/cgroup/unified"];

/// The interval between reads of the kernel's count: the usual length of a period.
const CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// The pause after the first period in which the quota was used up. Each further such period doubles the pause.
const SHORTEST_REST: Duration = Duration::from_secs(1);

/// The maximum pause. With it, background work uses up the quota of at most one period in a hundred.
const LONGEST_REST: Duration = Duration::from_secs(10);

/// Counts the periods in which the control groups of this process used up their quota (were throttled).
#[derive(Debug)]
pub struct ThrottledPeriods {
    files: Vec<PathBuf>,
}

impl ThrottledPeriods {
    /// Finds the kernel's counters for this process; there may be none.
    pub fn find() -> Self {
        let groups = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        Self { files: files_of(&groups, &ROOTS.map(Path::new)) }
    }

    /// Returns whether the system counts throttled periods.
    pub fn are_known(&self) -> bool {
        !self.files.is_empty()
    }

    fn count(&self) -> u64 {
        let of = |file: &PathBuf| std::fs::read_to_string(file).ok().as_deref().and_then(throttled);
        self.files.iter().filter_map(of).sum()
    }
}

/// Returns the files with the counters of the control groups and their parent groups. `groups` lists a group for each
/// hierarchy, in the format of `/proc/self/cgroup`.
fn files_of(groups: &str, roots: &[&Path]) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for line in groups.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(group)) = (parts.next(), parts.next()) else { continue };
        if !controllers.is_empty() && !controllers.split(',').any(|name| name == "cpu") {
            continue;
        }
        for root in roots {
            // In a container, the process's own group may appear as the root, although the group has another name
            // outside.
            let group = Path::new(group.trim_start_matches('/'));
            files.extend(group.ancestors().map(|group| root.join(group).join("cpu.stat")));
        }
    }
    files.sort_unstable();
    files.dedup();
    files.retain(|file| std::fs::read_to_string(file).is_ok_and(|text| throttled(&text).is_some()));
    files
}

fn throttled(text: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix("nr_throttled ")?.trim().parse().ok())
}

/// Decides when background work pauses, so that training does not lack processor time.
pub(super) struct QuotaPace {
    periods: ThrottledPeriods,
    seen: u64,
    last_check: Instant,
    rest: Duration,
}

impl QuotaPace {
    pub(super) fn new() -> Self {
        let periods = ThrottledPeriods::find();
        Self { seen: periods.count(), periods, last_check: Instant::now(), rest: Duration::ZERO }
    }

    /// Returns how long to pause now. The caller must call [`QuotaPace::resume`] after the pause.
    pub(super) fn rest(&mut self) -> Duration {
        if !self.periods.are_known() || self.last_check.elapsed() < CHECK_INTERVAL {
            return Duration::ZERO;
        }
        self.last_check = Instant::now();
        let seen = self.periods.count();
        self.adjust(seen)
    }

    /// Records that the work resumes. Ignores periods that were throttled during the pause, because the work did not
    /// cause them.
    pub(super) fn resume(&mut self) {
        (self.seen, self.last_check) = (self.periods.count(), Instant::now());
    }

    fn adjust(&mut self, seen: u64) -> Duration {
        let used_up = std::mem::replace(&mut self.seen, seen) != seen;
        if used_up {
            self.rest = (2 * self.rest).clamp(SHORTEST_REST, LONGEST_REST);
            return self.rest;
        }
        self.rest = if self.rest > SHORTEST_REST { self.rest / 2 } else { Duration::ZERO };
        Duration::ZERO
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_counts_of_a_group_and_those_above_it_are_found() {
        let root = tempfile::tempdir().unwrap();
        let write = |group: &str, text: &str| {
            std::fs::create_dir_all(root.path().join(group)).unwrap();
            std::fs::write(root.path().join(group).join("cpu.stat"), text).unwrap();
        };
        write("", "usage_usec 5\n");
        write("pods", "nr_periods 9\nnr_throttled 3\nthrottled_usec 70\n");
        write("pods/one", "nr_periods 9\nnr_throttled 4\nthrottled_time 70\n");
        write("pods/other", "nr_periods 9\nnr_throttled 50\n");
        let count = |groups| ThrottledPeriods { files: files_of(groups, &[root.path()]) };
        for groups in ["0::/pods/one\n", "7:memory:/x\n3:cpu,cpuacct:/pods/one\n"] {
            assert_eq!(count(groups).count(), 7, "{groups}");
        }
        assert!(!count("7:memory:/pods/one\n").are_known() && !count("0::/\n").are_known());
        // In a container, the process's own group is the root, whatever the name of the group outside.
        write("", "nr_throttled 6\n");
        assert_eq!(count("0::/machine/a1b2\n").count(), 6);
    }

    #[test]
    fn rests_become_longer_while_the_quota_is_used_up() {
        let mut pace = QuotaPace {
            periods: ThrottledPeriods { files: Vec::new() },
            seen: 0,
            last_check: Instant::now(),
            rest: Duration::ZERO,
        };
        let seconds = |pace: &mut QuotaPace, counts: &[u64]| -> Vec<u64> {
            counts.iter().map(|&seen| pace.adjust(seen).as_secs()).collect()
        };
        assert_eq!(seconds(&mut pace, &[0, 0, 1, 2, 4, 7, 8]), [0, 0, 1, 2, 4, 8, 10]);
        assert_eq!(seconds(&mut pace, &[8, 8, 9]), [0, 0, 5], "it comes back step by step");
        assert_eq!(seconds(&mut pace, &[9, 9, 9, 9, 10]), [0, 0, 0, 0, 1]);
        assert_eq!(pace.rest(), Duration::ZERO, "where nothing is known it does not rest");
    }
}
