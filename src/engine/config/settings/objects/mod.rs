//! Settings that belong together, and the Python objects that hold them. Each object has a file here with its members
//! and documentation, and a line in [`settings_objects`](crate::settings_objects). Everything else is generated from
//! these.

mod buckets;
mod directory;
mod ram;
mod resources;

pub use resources::RESOURCES_MAY_BE;

/// The options of each tier of the cache, and of buckets.
pub mod choices {
    pub use super::CacheChoice;
    pub use super::buckets::{BucketRule, BucketsChoice};
    pub use super::directory::DirectoryChoice;
    pub use super::ram::RamChoice;
}
use choices::{DirectoryChoice, RamChoice};

use super::{LoaderKind, Setting};
use base::error::Result;
use std::path::PathBuf;
use store::tier::TierOptions;

/// Passes all objects to a macro, each with its row. Tiers of the cache come in order, the fastest first.
#[macro_export]
macro_rules! settings_objects {
    ($macro:ident) => {
        $macro! {
            /// `foreload.Buckets`: the sizes of batches.
            Buckets = buckets::ROW;
            /// `foreload.Ram`: a tier of the cache, in memory.
            Ram = ram::ROW;
            /// `foreload.Directory`: a tier of the cache, on a drive.
            Directory = directory::ROW;
            /// `foreload.Resources`: the settings for threads, memory and reading.
            Resources = resources::ROW;
        }
    };
}

/// The value of `cache`: the tiers that keep copies, from the fastest to the slowest.
#[derive(Debug, Clone, Default)]
pub struct CacheChoice {
    /// The tier in memory, which exists if it has a size.
    pub ram: RamChoice,
    /// The tier in a directory, which exists if it has a path and a size.
    pub directory: DirectoryChoice,
}

impl CacheChoice {
    /// Returns a cache of `size` bytes of memory.
    pub fn in_ram(size: u64) -> Self {
        Self { ram: RamChoice { size: Some(size), ..Default::default() }, ..Default::default() }
    }

    /// Returns a cache of `size` bytes in a directory.
    pub fn in_directory(path: impl Into<PathBuf>, size: u64) -> Self {
        let directory = DirectoryChoice { path: Some(path.into()), size: Some(size), ..Default::default() };
        Self { directory, ..Default::default() }
    }

    pub(in crate::config) fn tiers(&self) -> Result<Vec<TierOptions>> {
        Ok([self.ram.tier(), self.directory.tier()?].into_iter().flatten().collect())
    }
}

/// One settings object: its members, and the texts of its documentation.
struct ObjectRow {
    keyword: &'static str,
    /// Whether a dict without a class name means this object, if the keyword accepts several kinds of objects.
    is_usual: bool,
    /// Number of members that are required and can be passed by position, in their order.
    positional: usize,
    members: &'static [Setting],
    summary: &'static str,
    story: &'static str,
    example: &'static str,
}

macro_rules! define {
    ($($(#[doc = $about:literal])+ $class:ident = $row:path;)+) => {
        /// A Python object whose members are settings. Tiers of the cache come in order, the fastest first.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd)]
        pub enum SettingsObject {
            $($(#[doc = $about])+ $class,)+
        }

        impl SettingsObject {
            /// All settings objects.
            pub const ALL: [Self; [$(stringify!($class)),+].len()] = [$(Self::$class),+];

            /// Returns the name of the object's class in Python.
            pub fn class(self) -> &'static str {
                match self {
                    $(Self::$class => stringify!($class),)+
                }
            }

            fn row(self) -> &'static ObjectRow {
                match self {
                    $(Self::$class => &$row,)+
                }
            }
        }
    };
}
settings_objects!(define);

impl SettingsObject {
    /// Returns the loader keyword that takes the object.
    pub fn keyword(self) -> &'static str {
        self.row().keyword
    }

    /// Returns the text before the object's members in messages: `cache` in `cache.size`, `Ram` in `Ram.size`.
    pub fn path(self) -> &'static str {
        if self.row().is_usual { self.keyword() } else { self.class() }
    }

    /// Returns all objects that a keyword takes.
    pub fn of_keyword(keyword: &str) -> impl Iterator<Item = Self> {
        Self::ALL.into_iter().filter(move |object| object.keyword() == keyword)
    }

    /// Returns the object that a dict without a class name means for a keyword.
    pub fn usual(keyword: &str) -> Option<Self> {
        Self::of_keyword(keyword).find(|object| object.row().is_usual)
    }

    /// Returns the number of members that are required and can be passed by position, in their order.
    pub fn positional(self) -> usize {
        self.row().positional
    }

    /// Returns the settings that the object holds, in order.
    pub fn members(self) -> impl Iterator<Item = &'static Setting> {
        self.row()
            .members
            .iter()
            .filter(move |setting| setting.member.is_some_and(|member| member.object == self))
    }

    /// Returns the member called `name`.
    pub fn member(self, name: &str) -> Option<&'static Setting> {
        self.members().find(|setting| setting.member.is_some_and(|member| member.name == name))
    }

    /// Whether a loader takes the object.
    pub fn belongs_to(self, loader: LoaderKind) -> bool {
        self.members().any(|setting| setting.belongs_to(loader))
    }

    /// Returns the summary of the object, in one line.
    pub fn summary(self) -> &'static str {
        self.row().summary
    }

    /// Returns the paragraph below the summary.
    pub fn story(self) -> &'static str {
        self.row().story
    }

    pub(super) fn example(self) -> &'static str {
        self.row().example
    }
}
