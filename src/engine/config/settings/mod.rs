//! The settings of loaders: one table, from which come Rust's options, Python's keywords, the command line's flags, and
//! all documents about them.
//!
//! [`table`] holds the settings, and [`forms`] says what their values may be. [`document`] writes what Python's
//! `help()`, the stub and `docs/settings.md` say. Code that reads arguments turns each into a [`Given`] and hands it to
//! [`Setting::set`].

mod document;
mod elsewhere;
mod forms;
mod given;
mod list;
mod objects;
mod table;

pub use document::docstring;
pub use document::{SettingsClass, manual, parameters, signature, stub, stub_of_objects};
pub use elsewhere::unknown as unknown_setting;
pub(crate) use forms::{Description, Form};
pub use given::Given;
pub use list::GivenSettings;
pub use objects::{CacheChoice, RESOURCES_MAY_BE, SettingsObject, choices};
pub use table::LoaderOptions;
use table::SETTINGS;

use base::error::{Error, Result};

/// The loaders of Python. The command line has the first.
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

    /// The loader's name in Python.
    pub fn name(self) -> &'static str {
        match self {
            Self::Images => "ImageLoader",
            Self::Files => "FileLoader",
        }
    }

    /// The settings that it has, in the order of the table.
    pub fn settings(self) -> impl Iterator<Item = &'static Setting> {
        SETTINGS.iter().filter(move |setting| setting.belongs_to(self))
    }

    /// The options of the loader when no setting is given.
    pub fn usual(self) -> LoaderOptions {
        LoaderOptions { decoded: matches!(self, Self::Images), ..LoaderOptions::default() }
    }
}

/// What a setting is about. The topics are the sections of the documents, in their order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Topic {
    /// Order, size and end of batches.
    Batches,
    /// What an epoch draws.
    Selection,
    /// What a batch holds of each sample.
    Fields,
    /// What is done to images.
    Images,
    /// Samples that cannot be used.
    Failures,
    /// Threads, memory, reading.
    Resources,
    /// Copies kept in memory, in directories and on other nodes.
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

/// What of a batch depends on a setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Decides {
    /// Which samples are in it, in which order, or what of them.
    Batch,
    /// What is made of its samples' images. No order depends on it, and of what is read only which part of an image.
    Recipe,
    /// No byte: only where batches end, what makes them, how fast, or how many are kept.
    Nothing,
}

/// One setting, which is a row of the table.
#[derive(Debug)]
pub struct Setting {
    /// The keyword in Python and the field of [`LoaderOptions`], or what errors call a member of an object.
    pub name: &'static str,
    /// The topic that it belongs to.
    pub topic: Topic,
    /// What of a batch depends on it.
    decides: Decides,
    /// The object of settings that it is a member of, if any.
    pub member: Option<ObjectMember>,
    /// The flag on the command line, without the dashes; `None` where it has none.
    flag: Option<&'static str>,
    /// An older name of the flag.
    flag_alias: Option<&'static str>,
    images_only: bool,
    /// Whether it is about datasets, which have epochs, and not about streams.
    datasets_only: bool,
    /// The default of a `FileLoader`, as Python writes it, and what the setting means there, if these differ.
    in_files: Option<(&'static str, &'static str)>,
    none_is_default: bool,
    lines: &'static [&'static str],
    describe: fn() -> Description,
    given_by: fn(&str) -> Given,
    write: fn(&mut LoaderOptions, &Given) -> Result<(), String>,
    reset: fn(&mut LoaderOptions),
    check: fn(&LoaderOptions) -> Result<(), String>,
    show: fn(&LoaderOptions) -> Given,
    shows_all: fn() -> bool,
}

/// A setting as a member of an object: `cache=Directory(size=...)`.
#[derive(Debug, Clone, Copy)]
pub struct ObjectMember {
    /// The object that holds it.
    pub object: SettingsObject,
    /// The setting's name in the object.
    pub name: &'static str,
    /// Whether it is a keyword of the loaders, too.
    pub is_keyword: bool,
}

/// The clauses of the table.
impl Setting {
    /// Only `ImageLoader` has the setting.
    const fn images_only(self) -> Self {
        Self { images_only: true, ..self }
    }

    /// No stream has the setting.
    const fn datasets_only(self) -> Self {
        Self { datasets_only: true, ..self }
    }

    /// The setting is a member of `object`, too.
    const fn in_object(self, object: SettingsObject) -> Self {
        Self { member: Some(ObjectMember { object, name: self.name, is_keyword: true }), ..self }
    }

    /// The setting is a member of `object` and no keyword: its flag and Rust's errors call it `name`.
    const fn only_in(self, object: SettingsObject, name: &'static str) -> Self {
        let member = Some(ObjectMember { object, name: self.name, is_keyword: false });
        Self { name, flag: Some(name), member, ..self }
    }

    /// The command line has no flag for the setting.
    const fn no_flag(self) -> Self {
        Self { flag: None, ..self }
    }

    /// The flag has this other name.
    const fn flag(self, name: &'static str) -> Self {
        Self { flag: Some(name), ..self }
    }

    /// The flag has this older name too.
    const fn flag_alias(self, name: &'static str) -> Self {
        Self { flag_alias: Some(name), ..self }
    }

    /// `None` means the default, too.
    const fn or_none(self) -> Self {
        Self { none_is_default: true, ..self }
    }

    /// A `FileLoader` has this default, as Python writes it, and this text in its documents.
    const fn in_files(self, default: &'static str, doc: &'static str) -> Self {
        Self { in_files: Some((default, doc)), ..self }
    }
}

impl Setting {
    /// All settings, each followed by the members of the objects that it takes.
    pub fn all() -> impl Iterator<Item = &'static Self> {
        let members = |setting: &'static Self| setting.objects().flat_map(SettingsObject::members);
        SETTINGS.iter().flat_map(move |setting| std::iter::once(setting).chain(members(setting)))
    }

    /// The setting called `name`, which may be a member of an object.
    pub fn named(name: &str) -> Option<&'static Self> {
        Self::all().find(|setting| setting.name == name)
    }

    /// The objects that are its value, from the fastest to the slowest.
    pub fn objects(&self) -> impl Iterator<Item = SettingsObject> + use<> {
        SettingsObject::of_keyword(self.name)
    }

    /// Whether a loader has it.
    pub fn belongs_to(&self, loader: LoaderKind) -> bool {
        loader == LoaderKind::Images || !self.images_only
    }

    /// Whether it is about a dataset, which has an index and epochs: no stream has the setting.
    pub fn is_of_datasets(&self) -> bool {
        self.datasets_only || matches!(self.topic, Topic::Selection | Topic::Cache | Topic::Index)
    }

    /// What the setting is called in Python, such as `batch_size` or `cache.size`.
    pub fn python_name(&self) -> String {
        match self.member {
            Some(member) if !member.is_keyword => format!("{}.{}", member.object.path(), member.name),
            _ => self.name.to_owned(),
        }
    }

    /// The flag on the command line, with hyphens and without the leading dashes; `None` where it has none.
    pub fn flag_name(&self) -> Option<String> {
        self.flag.map(|name| name.replace('_', "-"))
    }

    /// An older name of the flag.
    pub fn old_flag_name(&self) -> Option<&'static str> {
        self.flag_alias
    }

    /// What the setting means, its unit, and what happens without it, in one line.
    pub fn doc(&self, loader: LoaderKind) -> String {
        match (loader, self.in_files) {
            (LoaderKind::Files, Some((_, doc))) => doc.to_owned(),
            _ => self.lines.iter().map(|line| line.trim()).collect::<Vec<_>>().join(" "),
        }
    }

    /// The default as Python writes it.
    pub fn default(&self, loader: LoaderKind) -> String {
        match (loader, self.in_files) {
            (LoaderKind::Files, Some((default, _))) => default.to_owned(),
            _ => self.shown(&LoaderOptions::default()).to_string(),
        }
    }

    /// What the value may be.
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

    /// Whether batches differ where only its value differs.
    pub fn decides_batches(&self) -> bool {
        self.decides != Decides::Nothing
    }

    /// Whether it is part of the recipe.
    pub fn is_of_recipe(&self) -> bool {
        self.decides == Decides::Recipe
    }

    /// Whether values that are [shown](Setting::shown) alike are alike.
    pub fn shows_all(&self) -> bool {
        (self.shows_all)()
    }

    /// The value in `options`, as a user would give it.
    pub fn shown(&self, options: &LoaderOptions) -> Given {
        (self.show)(options)
    }

    /// The value that a word of the command line gives.
    pub fn given_by(&self, word: &str) -> Given {
        (self.given_by)(word)
    }

    /// Sets it in `options` to what was given.
    ///
    /// # Errors
    /// [`Error::Config`] that says what the value is and what it may be.
    pub fn set(&self, options: &mut LoaderOptions, given: &Given) -> Result<()> {
        if self.none_is_default && *given == Given::Nothing {
            (self.reset)(options);
            return Ok(());
        }
        let refused = (self.write)(options, given);
        match given {
            // Objects that Python made a text of are refused by what is wrong in one of them.
            Given::Text(_) if self.description().text_by.is_some() => {
                refused.map_err(|message| Error::config(self.name, message))
            }
            _ => refused.map_err(|is| self.must(&is)),
        }
    }

    /// Checks the value in `options`, which need not come from [`Setting::set`].
    ///
    /// # Errors
    /// The errors of [`Setting::set`].
    pub fn check(&self, options: &LoaderOptions) -> Result<()> {
        (self.check)(options).map_err(|is| self.must(&is))
    }

    fn must(&self, is: &str) -> Error {
        Error::config(self.name, format!("{is}, must be {}", self.description().may_be))
    }
}

/// The name in Python of a setting that an error of Rust names.
pub fn python_name(setting: &str) -> String {
    Setting::named(setting).map_or_else(|| setting.to_owned(), Setting::python_name)
}
