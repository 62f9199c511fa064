//! The settings of loaders. One table defines them: Rust's options, Python's keywords, the command line's flags and all
//! documents about settings are generated from it.
//!
//! [`table`] holds the settings, and [`forms`] defines the values that they accept. [`document`] writes Python's
//! `help()`, the stub and `docs/settings.md`. Code that reads arguments turns each argument into a [`UserValue`] and
//! passes it to [`Setting::set`].

mod document;
mod elsewhere;
mod forms;
mod given;
mod list;
mod objects;
mod row;
mod table;

pub use document::docstring;
pub use document::{SettingsClass, manual, parameters, signature, stub, stub_of_objects};
pub use elsewhere::unknown as unknown_setting;
pub(crate) use forms::{Description, ValueKind};
pub use given::UserValue;
pub use list::GivenSettings;
pub use objects::{CacheChoice, RESOURCES_MAY_BE, SettingsObject, choices};
pub use table::LoaderOptions;
use table::SETTINGS;

use base::error::{Error, Result};
use serde::{Deserialize, Serialize};

/// The classes of loaders in Python. The command line uses `ImageLoader`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum LoaderKind {
    /// `foreload.Loader`: fields of any kind. Images without `transforms` are uint8 in their own sizes.
    Fields,
    /// `foreload.ImageLoader`: without `transforms`, images are cropped, resized and normalised.
    Images,
    /// `foreload.FileLoader`.
    Files,
}

impl LoaderKind {
    /// All loaders.
    pub const ALL: [Self; 3] = [Self::Fields, Self::Images, Self::Files];

    /// Returns the loader's name in Python.
    pub fn name(self) -> &'static str {
        match self {
            Self::Fields => "Loader",
            Self::Images => "ImageLoader",
            Self::Files => "FileLoader",
        }
    }

    /// Returns the loader's settings, in the order of the table.
    pub fn settings(self) -> impl Iterator<Item = &'static Setting> {
        SETTINGS.iter().filter(move |setting| setting.belongs_to(self))
    }

    /// Returns the options of a loader whose settings are all at their defaults.
    pub fn usual(self) -> LoaderOptions {
        LoaderOptions { kind: self, decoded: self != Self::Files, ..LoaderOptions::default() }
    }
}

/// The subject of a setting. Each topic is a section of the documents, in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Topic {
    /// Order, size and end of batches.
    Batches,
    /// The samples that an epoch draws.
    Selection,
    /// The values that a batch holds for each sample.
    Fields,
    /// The transforms of images.
    Images,
    /// Samples that cannot be used.
    Failures,
    /// Threads, memory, reading.
    Resources,
    /// Copies kept in memory, in directories and on other nodes.
    Cache,
    /// The index of the dataset.
    Index,
    /// The processes of the job.
    Ranks,
}

impl Topic {
    /// Returns the heading of the section.
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

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Affects {
    /// The samples of a batch, their order, the values that are read from them, the pixels that are made from their
    /// images, or the warnings about images.
    Batch,
    /// No byte of a batch: only the device of the batches, the code that makes them, the speed, or the number of
    /// batches in memory.
    Nothing,
}

/// One setting, which is a row of the table.
#[derive(Debug)]
pub struct Setting {
    /// The keyword in Python and the field of [`LoaderOptions`]. For a member of a settings object, the name that
    /// errors use.
    pub name: &'static str,
    /// Topic that the setting belongs to.
    pub topic: Topic,
    decides: Affects,
    /// The settings object that holds the setting, if any, and the setting's name in it.
    pub member: Option<ObjectMember>,
    flag: Option<&'static str>,
    flag_alias: Option<&'static str>,
    loaders: &'static [LoaderKind],
    /// Whether the setting applies only to datasets, which have epochs, and not to streams.
    datasets_only: bool,
    /// The default, as Python writes it, and the description of the setting in a `FileLoader`, if they differ.
    in_files: Option<(&'static str, &'static str)>,
    /// The description of the setting in a `Loader`, if it differs.
    in_fields: Option<&'static str>,
    none_is_default: bool,
    lines: &'static [&'static str],
    describe: fn() -> Description,
    parse_word: fn(&str) -> UserValue,
    write: fn(&mut LoaderOptions, &UserValue) -> Result<(), String>,
    reset: fn(&mut LoaderOptions),
    check: fn(&LoaderOptions) -> Result<(), String>,
    show: fn(&LoaderOptions) -> UserValue,
    identify: fn(&LoaderOptions) -> String,
}

/// A setting as a member of a settings object, such as `size` in `cache=Directory(size=...)`.
#[derive(Debug, Clone, Copy)]
pub struct ObjectMember {
    /// The object that holds the setting.
    pub object: SettingsObject,
    /// The setting's name in the object.
    pub name: &'static str,
    /// Whether the setting is also a keyword of the loaders.
    pub is_keyword: bool,
}

impl Setting {
    const fn images_only(self) -> Self {
        Self { loaders: &[LoaderKind::Images], ..self }
    }

    const fn not_in_files(self) -> Self {
        Self { loaders: &[LoaderKind::Fields, LoaderKind::Images], ..self }
    }

    /// Gives the setting a name that Rust does not allow for a field.
    const fn keyword(self, name: &'static str) -> Self {
        Self { name, flag: Some(name), ..self }
    }

    const fn datasets_only(self) -> Self {
        Self { datasets_only: true, ..self }
    }

    const fn in_object(self, object: SettingsObject) -> Self {
        Self { member: Some(ObjectMember { object, name: self.name, is_keyword: true }), ..self }
    }

    /// Makes the setting a member of `object` and not a keyword of loaders. `name` is the name of its flag, and its
    /// name in Rust's errors.
    const fn only_in(self, object: SettingsObject, name: &'static str) -> Self {
        let member = Some(ObjectMember { object, name: self.name, is_keyword: false });
        Self { name, flag: Some(name), member, ..self }
    }

    const fn no_flag(self) -> Self {
        Self { flag: None, ..self }
    }

    const fn flag(self, name: &'static str) -> Self {
        Self { flag: Some(name), ..self }
    }

    const fn flag_alias(self, name: &'static str) -> Self {
        Self { flag_alias: Some(name), ..self }
    }

    /// `None` means the default.
    const fn or_none(self) -> Self {
        Self { none_is_default: true, ..self }
    }

    /// Sets the default, as Python writes it, and the description that a `FileLoader` has for the setting.
    const fn in_files(self, default: &'static str, doc: &'static str) -> Self {
        Self { in_files: Some((default, doc)), ..self }
    }

    /// Sets the description that a `Loader` has for the setting.
    const fn in_fields(self, doc: &'static str) -> Self {
        Self { in_fields: Some(doc), ..self }
    }
}

impl Setting {
    /// Returns all settings. Each setting is followed by the members of the settings objects that it accepts.
    pub fn all() -> impl Iterator<Item = &'static Self> {
        let members = |setting: &'static Self| setting.objects().flat_map(SettingsObject::members);
        SETTINGS.iter().flat_map(move |setting| std::iter::once(setting).chain(members(setting)))
    }

    /// Returns the setting called `name`, which may be a member of a settings object.
    pub fn named(name: &str) -> Option<&'static Self> {
        Self::all().find(|setting| setting.name == name)
    }

    /// Returns the settings objects that the setting accepts as its value. Tiers of the cache come in order, the
    /// fastest first.
    pub fn objects(&self) -> impl Iterator<Item = SettingsObject> + use<> {
        SettingsObject::of_keyword(self.name)
    }

    /// Whether a loader has the setting.
    pub fn belongs_to(&self, loader: LoaderKind) -> bool {
        self.loaders.contains(&loader)
    }

    /// Whether the setting is about a dataset, which has an index and epochs. Streams do not have such settings.
    pub fn is_of_datasets(&self) -> bool {
        self.datasets_only || matches!(self.topic, Topic::Selection | Topic::Cache | Topic::Index)
    }

    /// Returns the name of the setting in Python, such as `batch_size` or `cache.size`.
    pub fn python_name(&self) -> String {
        match self.member {
            Some(member) if !member.is_keyword => format!("{}.{}", member.object.path(), member.name),
            _ => self.name.to_owned(),
        }
    }

    /// Returns the flag on the command line, with hyphens and without the leading dashes; `None` if there is none.
    pub fn flag_name(&self) -> Option<String> {
        self.flag.map(|name| name.replace('_', "-"))
    }

    /// Returns an older name of the flag.
    pub fn old_flag_name(&self) -> Option<&'static str> {
        self.flag_alias
    }

    /// Returns the description of the setting in one line: its meaning, its unit, and the behaviour without it.
    pub fn doc(&self, loader: LoaderKind) -> String {
        let own = match loader {
            LoaderKind::Fields => self.in_fields,
            LoaderKind::Images => None,
            LoaderKind::Files => self.in_files.map(|(_, doc)| doc),
        };
        match own {
            Some(doc) => doc.to_owned(),
            None => self.lines.iter().map(|line| line.trim()).collect::<Vec<_>>().join(" "),
        }
    }

    /// Returns the default as Python writes it.
    pub fn default(&self, loader: LoaderKind) -> String {
        match (loader, self.in_files) {
            (LoaderKind::Files, Some((default, _))) => default.to_owned(),
            _ => self.shown(&LoaderOptions::default()).to_string(),
        }
    }

    /// Returns the description of accepted values.
    pub fn description(&self) -> Description {
        let form = (self.describe)();
        if self.none_is_default { form.or_none() } else { form }
    }

    /// Whether the contents of batches can depend on this setting.
    pub fn decides_batches(&self) -> bool {
        self.decides != Affects::Nothing
    }

    /// Returns a text that identifies the value in `options`: two values are equal if their texts are equal.
    pub fn identify(&self, options: &LoaderOptions) -> String {
        (self.identify)(options)
    }

    /// Returns the value in `options`, as a user would give it.
    pub fn shown(&self, options: &LoaderOptions) -> UserValue {
        (self.show)(options)
    }

    /// Returns the value that a word of the command line means.
    pub fn parse_word(&self, word: &str) -> UserValue {
        (self.parse_word)(word)
    }

    /// Sets the setting in `options` to the user's value.
    ///
    /// # Errors
    /// [`Error::Config`] that says what the value is and which values are accepted.
    pub fn set(&self, options: &mut LoaderOptions, given: &UserValue) -> Result<()> {
        if self.none_is_default && *given == UserValue::Nothing {
            (self.reset)(options);
            return Ok(());
        }
        let refused = (self.write)(options, given);
        match given {
            // The string stands for Python objects. The error already describes the wrong object, so do not add the
            // string.
            UserValue::Text(_) if self.description().text_by.is_some() => {
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
        let form = self.description();
        match form.has_parts && is.starts_with("has ") {
            true => Error::config(self.name, is),
            false => Error::config(self.name, format!("{is}, must be {}", form.may_be)),
        }
    }
}

/// Returns the Python name of a setting. `setting` is the name that errors in Rust use.
pub fn python_name(setting: &str) -> String {
    Setting::named(setting).map_or_else(|| setting.to_owned(), Setting::python_name)
}
