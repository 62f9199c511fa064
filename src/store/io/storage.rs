//! Finds out which storage a path is on, and whether to read it through the page cache.

use super::Direct;
use super::files::dio_fits;
use base::error::{Error, Result};
use rustix::fs::{AtFlags, Mode as Permissions, OFlags, StatxFlags};
use std::path::{Path, PathBuf};

/// A kind of file system. It decides how files are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum StorageKind {
    /// The file system is on a local disk.
    Local,
    /// The file system is in memory, so a read is a copy.
    Memory,
    /// The file system is on other machines, or in another process (FUSE).
    Network,
    /// The file system is Lustre. It is read like other network storage, but io_uring is used only if the user asks for
    /// it.
    Lustre,
    /// The file system is unknown, and is read like network storage.
    Unknown,
}

/// The storage that a path is on.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Storage {
    /// The name of the file system, for example "ext4", "xfs" or "lustre". For a file system without a known name, its
    /// magic number in hexadecimal.
    pub file_system: String,
    /// The kind of the file system.
    pub kind: StorageKind,
    /// Whether O_DIRECT works with page-aligned reads; `None` if there was no regular file to try it on.
    pub direct_works: Option<bool>,
    /// The alignment in bytes that STATX_DIOALIGN requires of memory and offsets; zeros if the kernel does not report
    /// it.
    pub direct_alignment: (u32, u32),
}

/// The known file systems: `f_type` of statfs(2) (from the kernel's `magic.h` and the projects' own headers), name,
/// kind.
const FILE_SYSTEMS: &[(u32, &str, StorageKind)] = &[
    (0xef53, "ext4", StorageKind::Local),
    (0x5846_5342, "xfs", StorageKind::Local),
    (0x9123_683e, "btrfs", StorageKind::Local),
    (0xca45_1a4e, "bcachefs", StorageKind::Local),
    (0xf2f5_2010, "f2fs", StorageKind::Local),
    (0x2fc1_2fc1, "zfs", StorageKind::Local),
    (0x794c_7630, "overlayfs", StorageKind::Local),
    (0x7371_7368, "squashfs", StorageKind::Local),
    (0xe0f5_e1e2, "erofs", StorageKind::Local),
    (0x0102_1994, "tmpfs", StorageKind::Memory),
    (0x8584_58f6, "ramfs", StorageKind::Memory),
    (0x6969, "nfs", StorageKind::Network),
    (0xfe53_4d42, "smb", StorageKind::Network),
    (0xff53_4d42, "cifs", StorageKind::Network),
    (0x6573_5546, "fuse", StorageKind::Network),
    (0x00c3_6400, "ceph", StorageKind::Network),
    (0x4750_4653, "gpfs", StorageKind::Network),
    (0x1983_0326, "beegfs", StorageKind::Network),
    (0x0102_1997, "9p", StorageKind::Network),
    (0x5346_414f, "afs", StorageKind::Network),
    (0x0bd0_0bd0, "lustre", StorageKind::Lustre),
];

impl Storage {
    /// Examines the file system of `path`. Tries O_DIRECT on `path`, or if `path` is a directory, on the first regular
    /// file in it.
    pub fn of(path: &Path) -> Result<Self> {
        let stat = rustix::fs::statfs(path).map_err(|error| Error::io("statfs", path, error.into()))?;
        let magic = stat.f_type as u32;
        let known = FILE_SYSTEMS.iter().find(|&&(number, ..)| number == magic);
        let (file_system, kind) = match known {
            Some(&(_, name, kind)) => (name.to_owned(), kind),
            None => (format!("{magic:#x}"), StorageKind::Unknown),
        };
        let mut storage = Self { file_system, kind, direct_works: None, direct_alignment: (0, 0) };
        if let Some(file) = find_regular_file(path, 4) {
            storage.try_direct(&file);
        }
        Ok(storage)
    }

    /// Returns the maximum gap between wanted parts of a sample, in bytes, that is read together with the parts in one
    /// request. A drive takes about as long for one more request as for reading this many bytes. Network storage limits
    /// the number of requests, so each of its samples is read in one request.
    pub fn longest_gap(&self) -> usize {
        match self.kind {
            StorageKind::Local | StorageKind::Memory => 16 << 10,
            StorageKind::Network | StorageKind::Lustre | StorageKind::Unknown => usize::MAX,
        }
    }

    /// Examines the file system of `path`, like [`Storage::of`]. If that fails, tries the parent directories up to
    /// `root`, so that one deleted sample does not hide the storage of the others.
    ///
    /// # Errors
    /// The error for `path`, if all directories up to `root` fail, too.
    pub fn near(path: &Path, root: &Path) -> Result<Self> {
        Self::of(path).or_else(|error| {
            let above = path.ancestors().skip(1).take_while(|directory| directory.starts_with(root));
            above.chain([root]).map(Self::of).find_map(Result::ok).ok_or(error)
        })
    }

    fn try_direct(&mut self, file: &Path) {
        let wanted = StatxFlags::DIOALIGN;
        if let Ok(found) = rustix::fs::statx(rustix::fs::CWD, file, AtFlags::empty(), wanted)
            && found.stx_mask & wanted.bits() != 0
        {
            self.direct_alignment = (found.stx_dio_mem_align, found.stx_dio_offset_align);
            let (memory, offset) = self.direct_alignment;
            if memory == 0 || offset == 0 {
                self.direct_works = Some(false);
                return;
            }
        }
        let flags = OFlags::RDONLY | OFlags::DIRECT | OFlags::CLOEXEC;
        let opens = rustix::fs::open(file, flags, Permissions::empty()).is_ok();
        self.direct_works = Some(opens && dio_fits(self.direct_alignment.0, self.direct_alignment.1));
    }

    /// Decides whether to read a dataset of `bytes` bytes from this storage with O_DIRECT, if the page cache may use
    /// `memory` bytes. Returns whether to use O_DIRECT, and the reason.
    ///
    /// # Errors
    /// [`Error::Config`] if O_DIRECT is requested and does not work on this storage.
    pub fn choose(&self, direct: Direct, bytes: u64, memory: u64) -> Result<(bool, String)> {
        let name = &self.file_system;
        match direct {
            Direct::Off => Ok((false, "direct=off".to_owned())),
            Direct::On if self.direct_works == Some(false) => {
                let message =
                    format!("is on, but {name} refuses O_DIRECT with 4096-byte alignment; use auto or off");
                Err(Error::config("direct", message))
            }
            Direct::On => Ok((true, "direct=on".to_owned())),
            Direct::Auto => Ok(match self.kind {
                StorageKind::Local if self.direct_works == Some(false) => {
                    (false, format!("{name} refuses O_DIRECT"))
                }
                // Even with O_DIRECT, these file systems read checksummed or compressed extents through the page cache.
                StorageKind::Local
                    if matches!(name.as_str(), "btrfs" | "bcachefs" | "zfs" | "squashfs" | "erofs") =>
                {
                    (false, format!("{name} does not benefit from O_DIRECT"))
                }
                StorageKind::Local if bytes <= memory / 2 => {
                    let (bytes, memory) = (gigabytes(bytes), gigabytes(memory));
                    (
                        false,
                        format!(
                            "{bytes} of data fit in half of {memory} available memory: cached for later epochs"
                        ),
                    )
                }
                StorageKind::Local => {
                    let (bytes, memory) = (gigabytes(bytes), gigabytes(memory));
                    (true, format!("{bytes} of data on {name} would not stay in {memory} available memory"))
                }
                _ => (false, format!("{name} is read through the page cache")),
            }),
        }
    }
}

fn gigabytes(bytes: u64) -> String {
    format!("{:.1} GB", bytes as f64 / 1e9)
}

fn find_regular_file(path: &Path, depth: usize) -> Option<PathBuf> {
    let kind = std::fs::metadata(path).ok()?.file_type();
    if kind.is_file() {
        return Some(path.to_owned());
    }
    if !kind.is_dir() || depth == 0 {
        return None;
    }
    // Bounded, because a directory may have a million entries.
    std::fs::read_dir(path)
        .ok()?
        .take(16)
        .flatten()
        .find_map(|entry| find_regular_file(&entry.path(), depth - 1))
}

/// Returns the bytes of memory that the page cache could use: the system's available memory, but at most the limit of
/// the control group.
pub fn available_memory() -> u64 {
    meminfo("MemAvailable:").map_or(0, |available| available.min(memory_limit()))
}

/// Returns the bytes of memory that this process may use: the machine's memory, or less if a control group (version 1
/// or 2) limits it. Returns [`u64::MAX`] if neither number can be read.
pub fn memory_limit() -> u64 {
    let groups = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let limits = limit_files(&groups)
        .into_iter()
        .filter_map(|file| std::fs::read_to_string(file).ok()?.trim().parse().ok());
    // Without a limit, the file of version 2 has "max", and the file of version 1 a number beyond every machine's
    // memory.
    limits.chain(meminfo("MemTotal:")).min().unwrap_or(u64::MAX)
}

/// Returns the files that may have a memory limit for a process whose `/proc/self/cgroup` has the text `groups`. Each
/// control group of the process and each parent group may set a limit. In a container, some of the files do not exist,
/// because the mounted hierarchy begins at the container's own group.
fn limit_files(groups: &str) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for line in groups.lines() {
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(group)) = (fields.next(), fields.next()) else { continue };
        let (mount, file) = match controllers {
            "" => ("/sys/fs/cgroup", "memory.max"),
            _ if controllers.split(',').any(|controller| controller == "memory") => {
                ("/sys/fs/cgroup/memory", "memory.limit_in_bytes")
            }
            _ => continue,
        };
        let group = Path::new(group.trim_start_matches('/'));
        files.extend(group.ancestors().map(|group| Path::new(mount).join(group).join(file)));
    }
    files
}

fn meminfo(name: &str) -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let value = text.lines().find_map(|line| line.strip_prefix(name))?;
    let kilobytes: u64 = value.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kilobytes * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn local(direct_works: bool) -> Storage {
        let file_system = "ext4".to_owned();
        Storage {
            file_system,
            kind: StorageKind::Local,
            direct_works: Some(direct_works),
            direct_alignment: (512, 512),
        }
    }

    #[test]
    fn auto_reads_directly_what_memory_cannot_keep() {
        let storage = local(true);
        assert!(!storage.choose(Direct::Auto, 50, 100).unwrap().0);
        assert!(storage.choose(Direct::Auto, 51, 100).unwrap().0);
        assert!(!local(false).choose(Direct::Auto, 51, 100).unwrap().0);
        let lustre = Storage { kind: StorageKind::Lustre, ..storage };
        assert!(!lustre.choose(Direct::Auto, 51, 100).unwrap().0);
    }

    #[test]
    fn the_users_choice_comes_first() {
        assert!(local(true).choose(Direct::On, 1, 100).unwrap().0);
        assert!(!local(true).choose(Direct::Off, 99, 100).unwrap().0);
        let error = local(false).choose(Direct::On, 1, 100).unwrap_err().to_string();
        assert!(error.starts_with("config: direct: is on, but ext4 refuses O_DIRECT"), "{error}");
    }

    #[test]
    fn this_machine_has_a_file_system_and_memory() {
        let storage = Storage::of(Path::new(env!("CARGO_MANIFEST_DIR"))).unwrap();
        assert!(!storage.file_system.is_empty());
        assert!(storage.direct_works.is_some(), "there are files here");
        assert!(available_memory() > 1 << 20);
        assert!(memory_limit() >= available_memory() && memory_limit() < 1 << 50);
    }

    #[test]
    fn limits_are_looked_for_in_every_group_around_this_process() {
        let second = limit_files("0::/a/b\n");
        let expected = ["a/b/memory.max", "a/memory.max", "memory.max"];
        assert_eq!(second, expected.map(|file| Path::new("/sys/fs/cgroup").join(file)));
        let first = limit_files("7:cpu,cpuacct:/x\n4:hugetlb,memory:/y\nnonsense\n");
        let expected = ["y/memory.limit_in_bytes", "memory.limit_in_bytes"];
        assert_eq!(first, expected.map(|file| Path::new("/sys/fs/cgroup/memory").join(file)));
        assert_eq!(limit_files("0::/\n"), [Path::new("/sys/fs/cgroup/memory.max")]);
    }
}
