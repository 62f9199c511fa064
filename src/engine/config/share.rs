//! How many processors one rank uses if other ranks of its job run on the same machine, and what share of these
//! processors `cpu=` allows.

use std::os::unix::process::parent_id;
use std::path::Path;
use store::tier::ThrottledPeriods;

/// Whether the control group of this process has a quota of processor time, and the system does not report when the
/// quota is used up. In that case even a thread of low priority takes time from the other threads, because the quota is
/// less than the time of all processors.
pub fn has_unwatched_quota() -> bool {
    let own = std::thread::available_parallelism().map_or(1, usize::from);
    allowed("thread-self").is_some_and(|cpus| own < cpus.len()) && !ThrottledPeriods::find().are_known()
}

/// Returns the number of processors for one of `ranks` processes of this machine.
///
/// A launcher may have given each rank its own processors, or all ranks the same processors. So the processors that the
/// launcher itself may use are divided among the ranks, and no rank takes more processors than it may use.
pub(super) fn processors(ranks: u32) -> usize {
    let own = std::thread::available_parallelism().map_or(1, usize::from);
    if ranks <= 1 {
        return own;
    }
    let mine = allowed("thread-self").map_or(0, |cpus| cpus.len());
    let launchers = launcher().and_then(|launcher| allowed(&launcher.to_string()));
    let together = match (launchers, group_cpus()) {
        (Some(cpus), Some(group)) => cpus.iter().filter(|cpu| group.contains(cpu)).count(),
        (Some(cpus), None) | (None, Some(cpus)) => cpus.len(),
        (None, None) => own,
    };
    // The quota of the control group may be less than the time of all its processors, and all ranks in the group share
    // it.
    let together = if own < mine { together.min(own) } else { together };
    share(own, together, ranks as usize)
}

/// The share of the node's processors that loading may take (`cpu=`).
#[derive(Debug, Clone, Copy)]
pub struct CpuShare {
    /// Above 0 and at most 1.
    share: f64,
    /// The ranks of the node; 1 if their number is unknown.
    ranks: u32,
}

impl CpuShare {
    pub(super) fn new(share: f64, ranks: u32) -> Self {
        Self { share, ranks }
    }

    /// Returns the average number of processors that one of `loaders` loaders on the node may keep busy.
    pub fn cores(&self, loaders: u32) -> f64 {
        self.share * cores(self.ranks.max(loaders))
    }

    /// Returns the number of threads that keep the whole share busy, if there is only one loader on the node.
    pub(super) fn threads(&self) -> usize {
        (self.cores(1).ceil() as usize).max(1)
    }
}

/// Returns the number of processors that one of `ranks` processes of this machine has: a fraction if control groups
/// have quotas.
fn cores(ranks: u32) -> f64 {
    let whole = processors(ranks) as f64;
    let groups = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    match quota(&groups, Path::new("/sys/fs/cgroup")) {
        Some(quota) => whole.min((quota / f64::from(ranks.max(1))).max(0.01)),
        None => whole,
    }
}

/// Returns the smallest quota, in processors, of the control groups in `groups` and their ancestors. `groups` has the
/// format of `/proc/self/cgroup`; `root` is where control groups are mounted.
fn quota(groups: &str, root: &Path) -> Option<f64> {
    let number = |text: &str| text.trim().parse::<f64>().ok().filter(|number| *number > 0.0);
    let read = |path: std::path::PathBuf| std::fs::read_to_string(path).ok();
    let of_group = |group: &Path, is_second: bool| match is_second {
        true => {
            let text = read(group.join("cpu.max"))?;
            let (quota, period) = text.trim().split_once(' ')?;
            Some(number(quota)? / number(period)?)
        }
        false => {
            let quota = number(&read(group.join("cpu.cfs_quota_us"))?)?;
            Some(quota / number(&read(group.join("cpu.cfs_period_us"))?)?)
        }
    };
    let quotas = groups.lines().flat_map(|line| {
        let mut fields = line.splitn(3, ':').skip(1);
        let (controllers, group) = (fields.next().unwrap_or("-"), fields.next().unwrap_or_default());
        let (mounts, is_second) = match controllers {
            "" => (vec![root.to_owned()], true),
            _ if controllers.split(',').any(|controller| controller == "cpu") => {
                (vec![root.join("cpu"), root.join("cpu,cpuacct")], false)
            }
            _ => (Vec::new(), false),
        };
        let group = Path::new(group.trim_start_matches('/')).to_owned();
        let of_mount = move |mount: std::path::PathBuf| {
            let places: Vec<_> = group.ancestors().map(|group| mount.join(group)).collect();
            places.into_iter().filter_map(move |place| of_group(&place, is_second))
        };
        mounts.into_iter().flat_map(of_mount).collect::<Vec<_>>()
    });
    quotas.min_by(f64::total_cmp)
}

/// Returns the number of processors for one rank. `own` is the number that this rank may use, `together` the number
/// that all ranks together may use.
fn share(own: usize, together: usize, ranks: usize) -> usize {
    match together > own {
        true => own.min(together.div_ceil(ranks)),
        false => (own / ranks).max(1),
    }
}

/// Returns the process that started the ranks of this machine: the nearest ancestor that is not a rank itself. A script
/// between the launcher and a rank inherits the rank's environment, so it looks like a rank and is skipped.
fn launcher() -> Option<u32> {
    let mut process = parent_id();
    for _ in 0..8 {
        // Another user's process, such as a daemon that starts tasks, does not let this process read its environment.
        let Ok(environment) = std::fs::read(format!("/proc/{process}/environ")) else { break };
        if !is_a_rank(&environment) {
            break;
        }
        process = status(&process.to_string(), "PPid:")?.parse().ok()?;
    }
    // The process id is 0 for a process outside of this container.
    (process > 0).then_some(process)
}

fn allowed(process: &str) -> Option<Vec<usize>> {
    listed(&status(process, "Cpus_allowed_list:")?)
}

/// Returns the value of the line that begins with `name` in `/proc/PROCESS/status`.
fn status(process: &str, name: &str) -> Option<String> {
    let text = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    text.lines().find_map(|line| line.strip_prefix(name)).map(|value| value.trim().to_owned())
}

fn is_a_rank(environment: &[u8]) -> bool {
    let told = |variable: &[u8]| {
        let name = variable.split(|byte| *byte == b'=').next().unwrap_or_default();
        name == b"SLURM_LOCALID" || super::device::LOCAL_RANKS.iter().any(|known| known.as_bytes() == name)
    };
    environment.split(|byte| *byte == 0).any(told)
}

fn group_cpus() -> Option<Vec<usize>> {
    let groups = std::fs::read_to_string("/proc/self/cgroup").ok()?;
    let files = groups.lines().filter_map(|line| {
        let mut fields = line.splitn(3, ':').skip(1);
        let (controllers, group) = (fields.next()?, fields.next()?);
        let (mount, file) = match controllers {
            "" => ("/sys/fs/cgroup", "cpuset.cpus.effective"),
            _ if controllers.split(',').any(|controller| controller == "cpuset") => {
                ("/sys/fs/cgroup/cpuset", "cpuset.effective_cpus")
            }
            _ => return None,
        };
        // Inside a container the mounted hierarchy begins at the container's own group.
        let group = Path::new(group.trim_start_matches('/'));
        let mut places = group.ancestors().map(|group| Path::new(mount).join(group).join(file));
        places.find_map(|place| std::fs::read_to_string(place).ok())
    });
    files.filter_map(|list| listed(&list)).min_by_key(Vec::len)
}

fn listed(list: &str) -> Option<Vec<usize>> {
    let mut numbers = Vec::new();
    for part in list.trim().split(',').filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        numbers.extend(first.parse::<usize>().ok()?..=last.parse::<usize>().ok()?);
    }
    (!numbers.is_empty()).then_some(numbers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_share_what_they_have_together() {
        for (own, together, ranks, expected) in [
            // All ranks have the same processors.
            (128, 128, 8, 16),
            (10, 10, 4, 2),
            (2, 2, 8, 1),
            // Each rank has its own processors; in some cases the launcher reserves some processors for the system.
            (16, 128, 8, 16),
            (15, 120, 8, 15),
            (16, 127, 8, 16),
            // Four ranks share the processors of a socket.
            (64, 128, 8, 16),
            // A rank has fewer processors than its share would be.
            (4, 128, 8, 4),
            (1, 128, 8, 1),
        ] {
            assert_eq!(share(own, together, ranks), expected, "{own} of {together} for {ranks}");
        }
    }

    #[test]
    fn a_rank_is_known_by_its_environment() {
        assert!(is_a_rank(b"HOME=/\0LOCAL_RANK=0\0"));
        assert!(is_a_rank(b"SLURM_LOCALID=3"));
        assert!(!is_a_rank(b"HOME=/\0MY_LOCAL_RANK=0\0LOCAL_WORLD_SIZE=8\0"));
        assert!(!is_a_rank(b""));
        assert!(
            launcher()
                .and_then(|launcher| allowed(&launcher.to_string()))
                .is_some_and(|cpus| !cpus.is_empty())
        );
        assert_eq!(status("self", "Pid:"), Some(std::process::id().to_string()));
    }

    #[test]
    fn quotas_of_both_versions_of_control_groups_are_found() {
        let root = tempfile::tempdir().unwrap();
        let write = |place: &str, text: &str| {
            let path = root.path().join(place);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write("pods/cpu.max", "150000 100000\n");
        write("pods/one/cpu.max", "max 100000\n");
        write("cpu,cpuacct/box/cpu.cfs_quota_us", "50000\n");
        write("cpu,cpuacct/box/cpu.cfs_period_us", "100000\n");
        write("cpu,cpuacct/free/cpu.cfs_quota_us", "-1\n");
        write("cpu,cpuacct/free/cpu.cfs_period_us", "100000\n");
        let found = |groups| quota(groups, root.path());
        assert_eq!(found("0::/pods/one\n"), Some(1.5), "that of the group above");
        assert_eq!(found("3:cpu,cpuacct:/box\n2:memory:/x\n"), Some(0.5));
        assert_eq!(found("3:cpu,cpuacct:/free\n"), None);
        assert_eq!(found("0::/elsewhere\n"), None);
        write("cpu.max", "25000 100000\n");
        assert_eq!(found("0::/what/it/is/called/outside\n"), Some(0.25), "in a container");
        assert!(cores(1) > 0.0 && cores(1) <= processors(1) as f64);
    }

    #[test]
    fn lists_of_processors() {
        assert_eq!(listed("0-3,8\n"), Some(vec![0, 1, 2, 3, 8]));
        assert_eq!(listed("\n"), None);
        assert_eq!(listed("x-3"), None);
    }
}
