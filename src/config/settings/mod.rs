//! What a loader can be told: one table of settings, from which come Rust's options, Python's keywords, the command
//! line's flags, and all that explains them.
//!
//! [`table`] holds the settings, [`forms`] what their values may be. [`document`] writes what Python's `help()`, the
//! stub and `docs/settings.md` say. Who reads arguments turns each into a [`Given`] and hands it to [`Setting::set`].

mod document;
mod elsewhere;
mod forms;
mod given;
mod objects;
mod table;

pub(crate) use document::docstring;
pub use document::{SettingsClass, manual, parameters, signature, stub};
pub(crate) use elsewhere::unknown as unknown_setting;
pub(crate) use forms::Description;
pub(crate) use given::Given;
pub use objects::SettingsObject;
pub use table::{LoaderOptions, SETTINGS};

pub(crate) use forms::Form;

use crate::error::{Error, Result};

/// The loaders that Python makes; the command line's is the first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LoaderKind {
    /// `foreload.ImageLoader`.
    Images,
    /// `foreload.FileLoader`.
    Files,
}

impl LoaderKind {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Images, Self::Files];

    /// Its name in Python.
    pub fn name(self) -> &'static str {
        match self {
            Self::Images => "ImageLoader",
            Self::Files => "FileLoader",
        }
    }

    /// The settings it has, in the order of the table.
    pub fn settings(self) -> impl Iterator<Item = &'static Setting> {
        SETTINGS.iter().filter(move |setting| setting.belongs_to(self))
    }

    /// What it does unless it is told otherwise.
    pub fn usual(self) -> LoaderOptions {
        LoaderOptions { decoded: matches!(self, Self::Images), ..LoaderOptions::default() }
    }
}

/// What a setting is about: the sections of the documents, in their order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Topic {
    /// Order, size and end of batches.
    Batches,
    /// What an epoch draws.
    Selection,
    /// What a batch holds of each sample.
    Fields,
    /// What becomes of an image.
    Images,
    /// Samples that cannot be used.
    Failures,
    /// Threads, memory, reading.
    Resources,
    /// Samples kept on local NVMe.
    Cache,
    /// The index of the dataset.
    Index,
    /// The job's processes.
    Ranks,
}

impl Topic {
    /// The heading.
    pub fn title(self) -> &'static str {
        match self {
            Self::Batches => "Batches",
            Self::Selection => "Which samples",
            Self::Fields => "Fields",
            Self::Images => "Images",
            Self::Failures => "Samples that fail",
            Self::Resources => "Resources",
            Self::Cache => "Cache",
            Self::Index => "Index",
            Self::Ranks => "Ranks",
        }
    }
}

/// One setting: a row of the table.
#[derive(Debug)]
pub struct Setting {
    /// The keyword in Python and the field of [`LoaderOptions`].
    pub name: &'static str,
    /// What it is about.
    pub topic: Topic,
    /// Its place in an object of settings, where it has one.
    pub member: Option<ObjectMember>,
    /// Its flag on the command line, without the dashes.
    flag: Option<&'static str>,
    /// An older name of its flag.
    flag_alias: Option<&'static str>,
    images_only: bool,
    /// The default of a `FileLoader`, as Python writes it, and what the setting means there, where both differ.
    in_files: Option<(&'static str, &'static str)>,
    none_is_default: bool,
    lines: &'static [&'static str],
    describe: fn() -> Description,
    given_by: fn(&str) -> Given,
    write: fn(&mut LoaderOptions, &Given) -> Result<(), String>,
    reset: fn(&mut LoaderOptions),
    check: fn(&LoaderOptions) -> Result<(), String>,
    show: fn(&LoaderOptions) -> Given,
}

/// A setting as a member of an object: `cache=Directory(size=...)`.
#[derive(Debug, Clone, Copy)]
pub struct ObjectMember {
    /// The object.
    pub object: SettingsObject,
    /// The keyword in it.
    pub name: &'static str,
}

/// Clauses of the table.
impl Setting {
    /// Only images have it.
    const fn images_only(self) -> Self {
        Self { images_only: true, ..self }
    }

    /// A member of `object`, called `name` there.
    const fn member(self, object: SettingsObject, name: &'static str) -> Self {
        Self { member: Some(ObjectMember { object, name }), ..self }
    }

    /// The command line has no flag for it.
    const fn no_flag(self) -> Self {
        Self { flag: None, ..self }
    }

    /// Its flag has another name.
    const fn flag(self, name: &'static str) -> Self {
        Self { flag: Some(name), ..self }
    }

    /// Its flag had another name.
    const fn flag_alias(self, name: &'static str) -> Self {
        Self { flag_alias: Some(name), ..self }
    }

    /// `None` means the default, too.
    const fn or_none(self) -> Self {
        Self { none_is_default: true, ..self }
    }

    /// A `FileLoader` has this default, as Python writes it, and says this of it.
    const fn in_files(self, default: &'static str, doc: &'static str) -> Self {
        Self { in_files: Some((default, doc)), ..self }
    }
}

impl Setting {
    /// The setting with that keyword.
    pub fn named(name: &str) -> Option<&'static Self> {
        SETTINGS.iter().find(|setting| setting.name == name)
    }

    /// Whether a loader has it.
    pub fn belongs_to(&self, loader: LoaderKind) -> bool {
        loader == LoaderKind::Images || !self.images_only
    }

    /// Whether Python takes it as a keyword of its own.
    pub fn is_keyword(&self) -> bool {
        self.member.is_none_or(|member| !member.object.is_only_way())
    }

    /// What it is called in Python: `batch_size`, `cache.size`.
    pub fn python_name(&self) -> String {
        match self.member {
            Some(member) if !self.is_keyword() => format!("{}.{}", member.object.keyword(), member.name),
            _ => self.name.to_owned(),
        }
    }

    /// Its flag on the command line, without the dashes and with hyphens; `None` where it has none.
    pub fn flag_name(&self) -> Option<String> {
        self.flag.map(|name| name.replace('_', "-"))
    }

    /// An older name of that flag.
    pub fn old_flag_name(&self) -> Option<&'static str> {
        self.flag_alias
    }

    /// What it means, units, and what happens without it: whole sentences in one line.
    pub fn doc(&self, loader: LoaderKind) -> String {
        match (loader, self.in_files) {
            (LoaderKind::Files, Some((_, doc))) => doc.to_owned(),
            _ => self.lines.iter().map(|line| line.trim()).collect::<Vec<_>>().join(" "),
        }
    }

    /// Its default as Python writes it.
    pub fn default(&self, loader: LoaderKind) -> String {
        match (loader, self.in_files) {
            (LoaderKind::Files, Some((default, _))) => default.to_owned(),
            _ => self.shown(&LoaderOptions::default()).to_string(),
        }
    }

    /// What its value may be.
    pub fn description(&self) -> Description {
        let form = (self.describe)();
        if !self.none_is_default {
            return form;
        }
        Description {
            may_be: format!("{}, or None", form.may_be),
            annotation: format!("{} | None", form.annotation),
            ..form
        }
    }

    /// Its value as a user would give it.
    pub fn shown(&self, options: &LoaderOptions) -> Given {
        (self.show)(options)
    }

    /// What a word of the command line means for it.
    pub fn given_by(&self, word: &str) -> Given {
        (self.given_by)(word)
    }

    /// Sets it to what was given.
    ///
    /// # Errors
    /// [`Error::Config`] that says what it is and what it may be.
    pub fn set(&self, options: &mut LoaderOptions, given: &Given) -> Result<()> {
        if self.none_is_default && *given == Given::Nothing {
            (self.reset)(options);
            return Ok(());
        }
        (self.write)(options, given).map_err(|is| self.must(&is))
    }

    /// Looks at its value, which may come from elsewhere than [`Setting::set`].
    ///
    /// # Errors
    /// As [`Setting::set`].
    pub fn check(&self, options: &LoaderOptions) -> Result<()> {
        (self.check)(options).map_err(|is| self.must(&is))
    }

    fn must(&self, is: &str) -> Error {
        Error::config(self.name, format!("{is}, must be {}", self.description().may_be))
    }
}

/// What Python calls a setting that an error of Rust's names.
pub(crate) fn python_name(setting: &str) -> String {
    Setting::named(setting).map_or_else(|| setting.to_owned(), Setting::python_name)
}
