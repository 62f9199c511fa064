//! Settings that belong together, and the Python objects that hold them.

use super::table::{DIRECTORY, RAM};
use super::{LoaderKind, SETTINGS, Setting};

/// A Python object that holds settings as its members. Tiers of the cache are in order, the fastest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd)]
pub enum SettingsObject {
    /// `foreload.Ram`: a tier of the cache, in memory.
    Ram,
    /// `foreload.Directory`: a tier of the cache, on a drive.
    Directory,
    /// `foreload.Resources`: what a loader takes of the machine.
    Resources,
}

impl SettingsObject {
    /// All objects.
    pub const ALL: [Self; 3] = [Self::Ram, Self::Directory, Self::Resources];

    /// The name of its class in Python.
    pub fn class(self) -> &'static str {
        match self {
            Self::Ram => "Ram",
            Self::Directory => "Directory",
            Self::Resources => "Resources",
        }
    }

    /// The keyword of the loaders that takes it.
    pub fn keyword(self) -> &'static str {
        match self {
            Self::Ram | Self::Directory => "cache",
            Self::Resources => "resources",
        }
    }

    /// What messages call it, before the name of a member: `cache.size`, `Ram.size`.
    pub fn path(self) -> &'static str {
        match self {
            Self::Ram => self.class(),
            Self::Directory | Self::Resources => self.keyword(),
        }
    }

    /// All objects that a keyword takes.
    pub fn of_keyword(keyword: &str) -> impl Iterator<Item = Self> {
        Self::ALL.into_iter().filter(move |object| object.keyword() == keyword)
    }

    /// The number of members that must be given, and that can be given without their names, in their order.
    pub fn positional(self) -> usize {
        match self {
            Self::Ram => 1,
            Self::Directory => 2,
            Self::Resources => 0,
        }
    }

    /// The settings that it holds, in order.
    pub fn members(self) -> impl Iterator<Item = &'static Setting> {
        let table = match self {
            Self::Ram => RAM,
            Self::Directory => DIRECTORY,
            Self::Resources => SETTINGS,
        };
        table.iter().filter(move |setting| setting.member.is_some_and(|member| member.object == self))
    }

    /// The member called `name`.
    pub fn member(self, name: &str) -> Option<&'static Setting> {
        self.members().find(|setting| setting.member.is_some_and(|member| member.name == name))
    }

    /// Whether a loader takes it.
    pub fn belongs_to(self, loader: LoaderKind) -> bool {
        self.members().any(|setting| setting.belongs_to(loader))
    }

    /// What the object is, in one line.
    pub fn summary(self) -> &'static str {
        match self {
            Self::Ram => "A cache in memory, for `cache=` of a loader.",
            Self::Directory => "A cache in a directory on local NVMe, for `cache=` of a loader.",
            Self::Resources => "What of the machine a loader takes, for `resources=` of a loader.",
        }
    }

    /// The paragraph below that line.
    pub fn story(self) -> &'static str {
        match self {
            Self::Ram => {
                "Memory suits datasets on slow storage, alone or before a `Directory`: each sample is kept once, so \
                 that their sizes add up. It is gone with the process. Each rank keeps what it reads itself."
            }
            Self::Directory => {
                "What is there is used again by the next run, and other loaders, ranks, jobs and datasets may share \
                 it. The dataset itself is never touched."
            }
            Self::Resources => {
                "The same settings are keywords of the loaders; each may be said in one place only. What is not given \
                 is chosen."
            }
        }
    }

    /// An example of the keyword with it.
    pub(super) fn example(self) -> &'static str {
        match self {
            Self::Ram => "cache=[foreload.Ram(\"20GB\"), foreload.Directory(\"/nvme/foreload\", \"800GB\")]",
            Self::Directory => "cache=foreload.Directory(\"/nvme/foreload\", \"800GB\")",
            Self::Resources => "resources=foreload.Resources(threads=8, memory=\"4GB\")",
        }
    }
}

/// What the value of `resources` must be.
pub const RESOURCES_MAY_BE: &str =
    "a foreload.Resources(threads=..., memory=..., ...), a dict of its arguments, or None";
