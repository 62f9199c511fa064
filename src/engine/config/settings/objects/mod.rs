//! Settings that belong together, and the Python objects that hold them. Each has a file here with its members and what
//! users are told of it, and a line in [`settings_objects`](crate::settings_objects); everything else is made of these.

mod directory;
mod ram;
mod resources;

pub use resources::RESOURCES_MAY_BE;

/// What users choose of each tier of the cache.
pub mod choices {
    pub use super::CacheChoice;
    pub use super::directory::DirectoryChoice;
    pub use super::ram::RamChoice;
}
use choices::{DirectoryChoice, RamChoice};

use super::{LoaderKind, Setting};
use base::error::Result;
use std::path::PathBuf;
use store::tier::TierOptions;

/// Hands all objects to a macro, each with its row. Tiers of the cache are in order, the fastest first.
#[macro_export]
macro_rules! settings_objects {
    ($macro:ident) => {
        $macro! {
            /// `foreload.Ram`: a tier of the cache, in memory.
            Ram = ram::ROW;
            /// `foreload.Directory`: a tier of the cache, on a drive.
            Directory = directory::ROW;
            /// `foreload.Resources`: what a loader takes of the machine.
            Resources = resources::ROW;
        }
    };
}

/// What `cache` asks for: the tiers that keep copies, from the fastest to the slowest.
#[derive(Debug, Clone, Default)]
pub struct CacheChoice {
    /// The tier in memory, which has a size if there is one.
    pub ram: RamChoice,
    /// The tier in a directory, which has a path and a size if there is one.
    pub directory: DirectoryChoice,
}

impl CacheChoice {
    /// A cache of `size` bytes of memory.
    pub fn in_ram(size: u64) -> Self {
        Self { ram: RamChoice { size: Some(size), ..Default::default() }, ..Default::default() }
    }

    /// A cache of `size` bytes in a directory.
    pub fn in_directory(path: impl Into<PathBuf>, size: u64) -> Self {
        let directory = DirectoryChoice { path: Some(path.into()), size: Some(size), ..Default::default() };
        Self { directory, ..Default::default() }
    }

    /// The tiers that are asked for, from the fastest to the slowest.
    ///
    /// # Errors
    /// Where a tier lacks what it must have.
    pub(in crate::config) fn tiers(&self) -> Result<Vec<TierOptions>> {
        Ok([self.ram.tier(), self.directory.tier()?].into_iter().flatten().collect())
    }
}

/// What an object holds, and what users are told of it.
struct ObjectRow {
    /// The keyword of the loaders that takes it.
    keyword: &'static str,
    /// Whether a dict that names no class means this one of the keyword's objects.
    is_usual: bool,
    /// The number of members that must be given, and that can be given without their names, in their order.
    positional: usize,
    /// The table that has its members.
    members: &'static [Setting],
    /// What it is, in one line.
    summary: &'static str,
    /// The paragraph below that line.
    story: &'static str,
    /// An example of the keyword with it.
    example: &'static str,
}

macro_rules! define {
    ($($(#[doc = $about:literal])+ $class:ident = $row:path;)+) => {
        /// A Python object that holds settings as its members. Tiers of the cache are in order, the fastest first.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd)]
        pub enum SettingsObject {
            $($(#[doc = $about])+ $class,)+
        }

        impl SettingsObject {
            /// All objects.
            pub const ALL: [Self; [$(stringify!($class)),+].len()] = [$(Self::$class),+];

            /// The name of its class in Python.
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
    /// The keyword of the loaders that takes it.
    pub fn keyword(self) -> &'static str {
        self.row().keyword
    }

    /// What messages call it, before the name of a member: `cache.size`, `Ram.size`.
    pub fn path(self) -> &'static str {
        if self.row().is_usual { self.keyword() } else { self.class() }
    }

    /// All objects that a keyword takes.
    pub fn of_keyword(keyword: &str) -> impl Iterator<Item = Self> {
        Self::ALL.into_iter().filter(move |object| object.keyword() == keyword)
    }

    /// The object that a keyword's value means if it is a dict that names no class.
    pub fn usual(keyword: &str) -> Option<Self> {
        Self::of_keyword(keyword).find(|object| object.row().is_usual)
    }

    /// The number of members that must be given, and that can be given without their names, in their order.
    pub fn positional(self) -> usize {
        self.row().positional
    }

    /// The settings that it holds, in order.
    pub fn members(self) -> impl Iterator<Item = &'static Setting> {
        self.row()
            .members
            .iter()
            .filter(move |setting| setting.member.is_some_and(|member| member.object == self))
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
        self.row().summary
    }

    /// The paragraph below that line.
    pub fn story(self) -> &'static str {
        self.row().story
    }

    /// An example of the keyword with it.
    pub(super) fn example(self) -> &'static str {
        self.row().example
    }
}
