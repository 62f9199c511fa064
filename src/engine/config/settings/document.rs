//! Writes the documents about the settings: Python's docstrings, signatures and stub, and `docs/settings.md`.

use super::{LoaderKind, RESOURCES_MAY_BE, Setting, SettingsObject, Topic};
use base::text::wrapped;

const WIDTH: usize = 120;

/// A parameter of one of Python's classes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parameter {
    /// Name of the parameter.
    pub name: &'static str,
    /// The default as Python writes it; `None` if the parameter is required.
    pub default: Option<String>,
    /// The type in Python's notation, for type checkers.
    pub annotation: String,
    /// Whether the parameter can be passed by position.
    pub positional: bool,
    /// Meaning of the parameter.
    pub doc: String,
}

/// A Python class whose parameters are settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SettingsClass {
    /// A loader.
    Loader(LoaderKind),
    /// An object that a loader takes.
    Object(SettingsObject),
}

impl SettingsClass {
    /// Returns all classes. The loaders come last, because their parameters take objects of the other classes.
    pub fn all() -> impl Iterator<Item = Self> {
        SettingsObject::ALL.map(Self::Object).into_iter().chain(LoaderKind::ALL.map(Self::Loader))
    }

    /// Returns the class's name in Python.
    pub fn name(self) -> &'static str {
        match self {
            Self::Loader(loader) => loader.name(),
            Self::Object(object) => object.class(),
        }
    }

    fn summary(self) -> &'static str {
        match self {
            Self::Loader(LoaderKind::Fields) => {
                "Shuffled batches of any fields: arrays, numbers, texts, images, from shards or tables."
            }
            Self::Loader(LoaderKind::Images) => {
                "Shuffled, augmented, normalised batches from a directory of images or of tar shards."
            }
            Self::Loader(LoaderKind::Files) => {
                "Files of any kind, or the records of `.tfrecord` shards, as bytes that are not decoded."
            }
            Self::Object(object) => object.summary(),
        }
    }

    fn story(self) -> &'static str {
        match self {
            Self::Loader(LoaderKind::Fields) => {
                "`fields=` chooses the fields. `ImageLoader` is this loader with defaults for images: a crop, a size, \
                 a normalisation. `FileLoader` gives whole files without a copy. Both derive from this class.\n\nEvery \
                 iteration runs the epoch after the previous one, whether that was completed or not; the first is \
                 epoch 0. `set_epoch` or a loaded state chooses another epoch for one iteration. An iteration from \
                 which no batch was requested does not count. The order depends on (dataset, selection, seed, epoch) \
                 alone. A loader runs one epoch at a time: a new iteration ends the previous one. A child of `os.fork` \
                 can read the batches that its parent holds, but needs its own loader for others."
            }
            Self::Loader(LoaderKind::Images) => {
                "The order and every crop depend on (dataset, selection, seed, epoch) alone."
            }
            Self::Loader(LoaderKind::Files) => {
                "Batches have `files`, `sample_ids` and `mask`. If all files are in subdirectories, batches also have \
                 `labels`, the number of the sample's first subdirectory."
            }
            Self::Object(object) => object.story(),
        }
    }

    fn raises(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::Loader(LoaderKind::Fields | LoaderKind::Images) => &[
                ("ConfigError", "A setting has an invalid value, or no setting has this name."),
                (
                    "DatasetError",
                    "There is no dataset at `path`, or its index cannot be read. Images are both in class directories \
                     and in shards next to them. A sample of a shard has two members of one kind, or a label that is \
                     not a class number.",
                ),
                ("UnavailableError", "The device does not exist or cannot be used."),
            ],
            Self::Loader(LoaderKind::Files) => &[
                ("ConfigError", "A setting has an invalid value, or no setting has this name."),
                ("DatasetError", "There is no dataset at `path`, or its index cannot be read."),
            ],
            Self::Object(_) => {
                &[("ConfigError", "A setting has an invalid value, or no setting has this name.")]
            }
        }
    }
}

fn path_of(loader: LoaderKind) -> Parameter {
    let doc = match loader {
        LoaderKind::Fields => {
            "The dataset, by its path or URL: `.tar` shards; Parquet, Arrow, MDS or TFRecord files; arrays in HDF5, \
             NetCDF, zarr, npy or npz; a CSV or another table of files; a directory of images; or a packed dataset. A \
             list of several datasets is one dataset: their samples follow one another."
        }
        LoaderKind::Images => {
            "`path/class/.../image.jpg` (classes as torchvision's ImageFolder sorts them), or a directory of \
             WebDataset-style `.tar` shards, or one such shard. Members of a shard that share a stem are a sample, \
             wherever they are in the shard: an image, recognised by its extension, and its class number in `.cls` or \
             in `.json` (key `label` or `cls`). Either all samples have a class number, or none has and batches have \
             no `labels`. A list of several datasets is one dataset: their samples follow one another, and classes \
             with the same name are one class. A URL of http:// or https:// is accepted as a string: of a shard, of a \
             list of shards (`.txt`), of a packed dataset, or of a directory with an index page."
        }
        LoaderKind::Files => {
            "A directory: all files in it and below it are samples. Or a directory of `*.tfrecord*` shards: their \
             records are samples. A list of several directories is one dataset. A URL of http:// or https:// is \
             accepted as a string."
        }
    };
    Parameter {
        name: "path",
        default: None,
        annotation: "str | os.PathLike[str] | Sequence[str | os.PathLike[str]]".into(),
        positional: true,
        doc: doc.into(),
    }
}

/// Returns the parameters of a class, in order.
pub fn parameters(class: SettingsClass) -> Vec<Parameter> {
    match class {
        SettingsClass::Loader(loader) => parameters_of(loader),
        SettingsClass::Object(object) => {
            object.members().enumerate().map(|(n, s)| member(object, n, s)).collect()
        }
    }
}

fn parameters_of(loader: LoaderKind) -> Vec<Parameter> {
    let mut parameters = vec![path_of(loader)];
    for setting in loader.settings() {
        if setting.member.is_some() && !parameters.iter().any(|known| known.name == "resources") {
            parameters.push(Parameter {
                name: "resources",
                default: Some("None".into()),
                annotation: "Resources | Mapping[str, Any] | None".into(),
                positional: false,
                doc: RESOURCES.into(),
            });
        }
        parameters.push(Parameter {
            name: setting.name,
            default: Some(setting.default(loader)),
            annotation: setting.description().annotation,
            positional: false,
            doc: setting.doc(loader),
        });
    }
    parameters
}

const RESOURCES: &str = "`threads`, `memory` and others of these settings in one object: a `foreload.Resources` or a \
    dict. A setting in it must not also be given as a keyword. None: use the keywords.";

fn member(object: SettingsObject, number: usize, setting: &Setting) -> Parameter {
    let positional = number < object.positional();
    let annotation = setting.description().annotation;
    Parameter {
        name: setting.member.map_or(setting.name, |member| member.name),
        default: (!positional).then(|| setting.default(LoaderKind::Images)),
        // A required parameter accepts no None, so its type does not mention None.
        annotation: match positional {
            true => annotation.trim_end_matches(" | None").to_owned(),
            false => annotation,
        },
        positional: object.positional() > 0,
        doc: setting.doc(LoaderKind::Images),
    }
}

/// Returns the docstring of a class, which begins at the left margin.
pub fn docstring(class: SettingsClass) -> String {
    // The width must fit the stub, where the docstring is indented.
    let width = WIDTH - 4;
    let mut lines = wrapped(class.summary(), "", "", width);
    for paragraph in class.story().split("\n\n") {
        lines.push(String::new());
        lines.extend(wrapped(paragraph, "", "", width));
    }
    lines.extend([String::new(), "Args:".into()]);
    for parameter in parameters(class) {
        lines.extend(wrapped(&format!("{}: {}", parameter.name, parameter.doc), "    ", "        ", width));
    }
    lines.extend([String::new(), "Raises:".into()]);
    for (error, when) in class.raises() {
        lines.extend(wrapped(&format!("{error}: {when}"), "    ", "        ", width));
    }
    lines.join("\n") + "\n"
}

/// Returns the parameters as Python writes them: `path, *, batch_size=64, ...`. With `typed`, adds their types for the
/// stub.
pub fn signature(class: SettingsClass, typed: bool) -> Vec<String> {
    let mut written = Vec::new();
    let mut by_name = false;
    for parameter in parameters(class) {
        if !parameter.positional && !std::mem::replace(&mut by_name, true) {
            written.push("*".to_owned());
        }
        let Parameter { name, annotation, default, .. } = parameter;
        written.push(match (default, typed) {
            (None, true) => format!("{name}: {annotation}"),
            (None, false) => name.to_owned(),
            (Some(default), true) => format!("{name}: {annotation} = {default}"),
            (Some(default), false) => format!("{name}={default}"),
        });
    }
    written
}

/// Returns the stub of a class: its first line, its docstring, `__new__`, and the attributes of an object.
pub fn stub(class: SettingsClass) -> String {
    let (decorator, base) = match class {
        SettingsClass::Loader(LoaderKind::Fields) => ("disjoint_base", ""),
        SettingsClass::Loader(_) => ("final", "(Loader)"),
        SettingsClass::Object(_) => ("final", ""),
    };
    let mut text = format!("@{decorator}\nclass {}{base}:\n    \"\"\"", class.name());
    for (number, line) in docstring(class).lines().enumerate() {
        let indent = if number == 0 || line.is_empty() { "" } else { "    " };
        text += &format!("{indent}{line}\n");
    }
    text += "    \"\"\"\n\n    def __new__(\n        cls,\n";
    for parameter in signature(class, true) {
        text += &format!("        {parameter},\n");
    }
    text += "    ) -> Self: ...\n";
    if let SettingsClass::Object(_) = class {
        for Parameter { name, annotation, .. } in parameters(class) {
            text += &format!("    @property\n    def {name}(self) -> {annotation}: ...\n");
        }
    }
    text
}

/// Returns the stub file with all classes whose objects loaders take.
pub fn stub_of_objects() -> String {
    let classes = SettingsObject::ALL.map(|object| {
        stub(SettingsClass::Object(object))
            + "    def __eq__(self, other: object, /) -> bool: ...\n\
               \x20   def __hash__(self) -> int: ...\n\
               \x20   def __getnewargs_ex__(self) -> tuple[tuple[()], dict[str, Any]]: ...\n"
    });
    format!(
        "\"\"\"Groups of settings: a part of `_core.pyi`, for type checkers; at run time `foreload._core` has \
         them.\"\"\"\n\n# Written by `make stub`.\n\nimport os\nfrom typing import Any, Literal, final\n\n\
         from typing_extensions import Self\n\n{}",
        classes.join("\n")
    )
}

/// Returns the text of `docs/settings.md`: every setting, by topic.
pub fn manual() -> String {
    let mut lines = wrapped(INTRODUCTION, "", "", WIDTH);
    let mut topic: Option<Topic> = None;
    for setting in Setting::all() {
        if topic.replace(setting.topic) != Some(setting.topic) {
            lines.extend([String::new(), format!("## {}", setting.topic.title())]);
            if setting.topic == Topic::Resources {
                let facts = format!("`resources=None` · {RESOURCES_MAY_BE}");
                lines.extend(section("resources", &facts, RESOURCES, [SettingsObject::Resources]));
            }
        }
        let doc = setting.doc(LoaderKind::Images);
        lines.extend(section(&setting.python_name(), &facts(setting), &doc, setting.objects()));
    }
    lines.insert(0, String::new());
    lines.insert(0, "# Settings".into());
    lines.join("\n") + "\n"
}

const INTRODUCTION: &str = "The settings of `foreload.Loader`, `foreload.ImageLoader` and `foreload.FileLoader`, and \
    so of `Dataset`, `ImageDataset` and `ImageSource`: for each its default in Python, its flag if the command line \
    has one, its possible values, and its meaning. An invalid value raises a `ConfigError` that names the setting. \
    Tuples, arrays and tensors are accepted wherever a list is, and NumPy scalars wherever a number is. `make stub` \
    writes this page.";

fn facts(setting: &Setting) -> String {
    let loader = LoaderKind::Images;
    let mut facts = vec![match setting.member {
        Some(member) if !member.is_keyword => {
            format!("`{}({}={})`", member.object.class(), member.name, setting.default(loader))
        }
        _ => format!("`{}={}`", setting.name, setting.default(loader)),
    }];
    if !setting.belongs_to(LoaderKind::Fields) {
        facts.push("`ImageLoader` only".into());
    } else if !setting.belongs_to(LoaderKind::Files) {
        facts.push("not in `FileLoader`".into());
    } else if setting.default(LoaderKind::Files) != setting.default(loader) {
        facts.push(format!("`FileLoader`: `{}`", setting.default(LoaderKind::Files)));
    }
    facts.extend(setting.flag_name().map(|flag| format!("`--{flag}`")));
    facts.push(setting.description().may_be);
    facts.join(" · ")
}

fn section(
    name: &str,
    facts: &str,
    doc: &str,
    objects: impl IntoIterator<Item = SettingsObject>,
) -> Vec<String> {
    let example = |object: SettingsObject| format!(" For example `{}`. {}", object.example(), object.story());
    let examples: String = objects.into_iter().map(example).collect();
    let mut lines = vec![String::new(), format!("### `{name}`"), String::new()];
    lines.extend(wrapped(facts, "", "", WIDTH));
    lines.push(String::new());
    lines.extend(wrapped(&(doc.to_owned() + &examples), "", "", WIDTH));
    lines
}
