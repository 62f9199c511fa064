//! Finds new files in a directory and its subdirectories: by inotify where inotify works, otherwise by periodic
//! listing.
//!
//! A directory is listed again only if its modification time has changed, or is so recent that a file may have appeared
//! in the same clock tick. If the kernel's queue of events overflows, everything is listed again.

use base::error::{Error, Result};
use base::names::named;
use data::dataset::COARSE_TICK;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use rustix::io::Errno;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};
use store::io::storage::{Storage, StorageKind};

/// How a directory is watched.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum WatchChoice {
    /// By inotify on a local file system, otherwise by periodic listing.
    #[default]
    Auto,
    /// The kernel reports changes.
    Inotify,
    /// The directory is listed periodically.
    Poll,
}

named!(WatchChoice: "auto" => Auto, "inotify" => Inotify, "poll" => Poll);

/// Listing takes at most one `LISTING_SHARE`th of the time.
const LISTING_SHARE: u32 = 4;

pub(super) struct Watch {
    root: PathBuf,
    events: Option<Events>,
    listed: HashMap<PathBuf, WatchedDirectory>,
    every: Duration,
    list_next: Option<Instant>,
    /// The files that were created and not closed yet, with the time of creation. Such a file is being written, or it
    /// is a hard link to a complete file.
    created: HashMap<PathBuf, Instant>,
}

/// A created file that is not closed within this time counts as a hard link to a complete file.
const LINKED_AFTER: Duration = Duration::from_secs(1);

struct WatchedDirectory {
    changed: SystemTime,
    /// Whether the modification time is so old that every later change gives a different one.
    settled: bool,
    below: Vec<PathBuf>,
}

struct Events {
    fd: OwnedFd,
    /// The watched directories as paths below the root, by their watch descriptors.
    directories: HashMap<i32, PathBuf>,
}

impl Watch {
    /// Watches `root`. It is listed at intervals of `every` if the kernel does not report changes.
    ///
    /// # Errors
    /// [`Error::Io`] if the root cannot be examined; [`Error::Unavailable`] if inotify is required and fails.
    pub(super) fn new(root: &Path, choice: WatchChoice, every: Duration) -> Result<Self> {
        let use_inotify = match choice {
            WatchChoice::Inotify => true,
            WatchChoice::Poll => false,
            WatchChoice::Auto => {
                matches!(Storage::near(root, root)?.kind, StorageKind::Local | StorageKind::Memory)
            }
        };
        let events = match use_inotify.then(|| inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)) {
            Some(Ok(fd)) => Some(Events { fd, directories: HashMap::new() }),
            Some(Err(error)) if choice == WatchChoice::Inotify => {
                return Err(Error::Unavailable(format!("inotify failed: {error}; use watch=\"poll\"")));
            }
            _ => None,
        };
        let list_next = Some(Instant::now());
        Ok(Self {
            root: root.to_owned(),
            events,
            listed: HashMap::new(),
            every,
            list_next,
            created: HashMap::new(),
        })
    }

    pub(super) fn uses_inotify(&self) -> bool {
        self.events.is_some()
    }

    /// Waits up to `patience` for files, and appends the paths of files that may have appeared, relative to the root. A
    /// path may be appended twice, or may have existed before.
    ///
    /// # Errors
    /// [`Error::Io`] if the root cannot be listed.
    pub(super) fn wait(&mut self, patience: Duration, into: &mut Vec<PathBuf>) -> Result<()> {
        let now = Instant::now();
        if self.list_next.is_some_and(|next| next <= now) {
            self.list(into)?;
            // With inotify there is no need to list again.
            let taken = now.elapsed() * LISTING_SHARE;
            self.list_next = self.events.is_none().then(|| Instant::now() + self.every.max(taken));
            return Ok(());
        }
        let until_list = self.list_next.map(|next| next - now);
        let patience = until_list.map_or(patience, |until| until.min(patience));
        if !self.created.is_empty() {
            into.extend(
                self.created.extract_if(|_, since| since.elapsed() >= LINKED_AFTER).map(|(path, _)| path),
            );
        }
        match &self.events {
            None => std::thread::sleep(patience),
            Some(events) => {
                let mut fds = [PollFd::new(&events.fd, PollFlags::IN)];
                let time =
                    Timespec { tv_sec: patience.as_secs() as i64, tv_nsec: patience.subsec_nanos().into() };
                match poll(&mut fds, Some(&time)) {
                    Ok(0) | Err(Errno::INTR) => {}
                    Ok(_) => self.take_events(into)?,
                    Err(error) => return Err(Error::io("wait for changes of", &self.root, error.into())),
                }
            }
        }
        Ok(())
    }

    fn take_events(&mut self, into: &mut Vec<PathBuf>) -> Result<()> {
        let Some(events) = &self.events else { return Ok(()) };
        let mut buffer = [MaybeUninit::uninit(); 16 << 10];
        let mut reader = inotify::Reader::new(&events.fd, &mut buffer);
        let (mut directories, mut overflowed) = (Vec::new(), false);
        loop {
            let event = match reader.next() {
                Ok(event) => event,
                Err(Errno::WOULDBLOCK) => break,
                Err(Errno::INTR) => continue,
                Err(error) => return Err(Error::io("watch", &self.root, error.into())),
            };
            overflowed |= event.events().contains(ReadFlags::QUEUE_OVERFLOW);
            let Some(directory) = events.directories.get(&event.wd()) else { continue };
            if event.events().contains(ReadFlags::IGNORED) && directory.as_os_str().is_empty() {
                // The root was removed: listing it fails, or finds its replacement.
                overflowed = true;
                continue;
            }
            let Some(name) = event.file_name() else { continue };
            let path = directory.join(OsStr::from_bytes(name.to_bytes()));
            if event.events().contains(ReadFlags::ISDIR) {
                directories.push(path);
            } else if event.events().contains(ReadFlags::CREATE) {
                self.created.insert(path, Instant::now());
            } else {
                self.created.remove(&path);
                into.push(path);
            }
        }
        if overflowed {
            self.listed.clear();
            self.list_next = Some(Instant::now());
        }
        // No event reports files that appeared in a new directory before the directory was watched.
        directories.into_iter().try_for_each(|directory| self.list_from(directory, into))
    }

    fn list(&mut self, into: &mut Vec<PathBuf>) -> Result<()> {
        self.list_from(PathBuf::new(), into)
    }

    fn list_from(&mut self, directory: PathBuf, into: &mut Vec<PathBuf>) -> Result<()> {
        let mut open = vec![directory];
        while let Some(directory) = open.pop() {
            match self.list_one(&directory, into) {
                Ok(below) => open.extend(below),
                // A subdirectory may be removed during the listing, but not the root.
                Err(error) if directory.as_os_str().is_empty() => {
                    return Err(Error::io("list", &self.root, error));
                }
                Err(_) => {}
            }
        }
        Ok(())
    }

    fn list_one(&mut self, directory: &Path, into: &mut Vec<PathBuf>) -> std::io::Result<Vec<PathBuf>> {
        let path = self.root.join(directory);
        if let Some(events) = &mut self.events {
            let wanted =
                WatchFlags::CREATE | WatchFlags::MOVED_TO | WatchFlags::CLOSE_WRITE | WatchFlags::ONLYDIR;
            let number = inotify::add_watch(&events.fd, &path, wanted).map_err(|error| match error {
                Errno::NOSPC => std::io::Error::other(
                    "no more directories can be watched: raise fs.inotify.max_user_watches, or use watch=\"poll\"",
                ),
                other => other.into(),
            })?;
            events.directories.insert(number, directory.to_owned());
        }
        let (now, changed) = (SystemTime::now(), std::fs::metadata(&path)?.modified()?);
        if let Some(known) = self.listed.get(directory)
            && known.changed == changed
            && known.settled
        {
            return Ok(known.below.clone());
        }
        let mut below = Vec::new();
        for entry in std::fs::read_dir(&path)? {
            let entry = entry?;
            let found = directory.join(entry.file_name());
            match entry.file_type()? {
                kind if kind.is_dir() => below.push(found),
                _ => into.push(found),
            }
        }
        let settled = now.duration_since(changed).is_ok_and(|age| age > 2 * COARSE_TICK);
        self.listed.insert(directory.to_owned(), WatchedDirectory { changed, settled, below: below.clone() });
        Ok(below)
    }
}
