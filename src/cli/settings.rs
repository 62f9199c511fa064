//! The loader's settings as flags, with the names, defaults and help texts from the table of settings.

use base::error::Error;
use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Command, FromArgMatches};
use engine::config::{GivenSettings, LoaderKind, LoaderOptions, Setting, UserValue, check_given_once};
use std::ffi::OsString;
use std::marker::PhantomData;
use std::ops::Deref;

/// The settings that a command takes as flags.
pub(super) trait TakesSettings {
    /// The names of the settings; `None` for all settings that have a flag.
    const NAMES: Option<&'static [&'static str]> = None;
    /// Defaults of this command that differ from the loader's: (name of the setting, value as on the command line).
    const DEFAULTS: &'static [(&'static str, &'static str)] = &[];
}

/// The settings from the flags of a command, flattened into its arguments.
#[derive(Debug, Clone)]
pub(super) struct Settings<C>(LoaderOptions, GivenSettings, PhantomData<C>);

impl<C> From<LoaderOptions> for Settings<C> {
    fn from(options: LoaderOptions) -> Self {
        Self(options, GivenSettings::default(), PhantomData)
    }
}

impl<C> Settings<C> {
    pub(super) fn given(&self) -> &GivenSettings {
        &self.1
    }
}

impl<C> Deref for Settings<C> {
    type Target = LoaderOptions;

    fn deref(&self) -> &LoaderOptions {
        &self.0
    }
}

fn flags<C: TakesSettings>() -> impl Iterator<Item = (&'static Setting, String)> {
    let included = |setting: &&Setting| C::NAMES.is_none_or(|names| names.contains(&setting.name));
    Setting::all().filter(included).filter_map(|setting| Some((setting, setting.flag_name()?)))
}

impl<C: TakesSettings> clap::Args for Settings<C> {
    fn augment_args(command: Command) -> Command {
        flags::<C>().fold(command, |command, (setting, flag)| command.arg(argument::<C>(setting, flag)))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

fn argument<C: TakesSettings>(setting: &'static Setting, flag: String) -> Arg {
    let doc = cli_help(&setting.doc(LoaderKind::Images), default::<C>(setting).is_some());
    let form = setting.description();
    let mut argument = Arg::new(setting.name)
        .long(flag)
        .help_heading(setting.topic.title())
        .help(first_sentence(&doc).to_owned())
        .long_help(doc)
        .value_name(form.placeholder)
        .allow_negative_numbers(true)
        .value_parser(OsStringValueParser::new().try_map(|word| given(setting, word)));
    if let Some(old) = setting.old_flag_name() {
        argument = argument.alias(old);
    }
    if form.annotation.starts_with("bool") {
        // The flag alone, such as `--immutable`, means true. A word after the flag is a separate argument.
        argument = argument.num_args(0..=1).require_equals(true).default_missing_value("true");
    }
    match default::<C>(setting) {
        Some(word) => argument.default_value(word).action(ArgAction::Set),
        None => argument.action(ArgAction::Set),
    }
}

/// Adapts a setting's help text to the command line: `true` in place of `True`. If the flag has no default, the meaning
/// of `None` becomes the default.
fn cli_help(doc: &str, has_default: bool) -> String {
    let lower = |doc: &str| {
        ["None:", "True:", "False:", "True,"]
            .iter()
            .fold(doc.to_owned(), |doc, word| doc.replace(word, &word.to_lowercase()))
    };
    match doc.split_once(" None: ") {
        Some((before, rest)) if !has_default => {
            let (meaning, after) = rest.split_once(". ").unwrap_or((rest.trim_end_matches('.'), ""));
            let text = [before, after].join(" ");
            lower(&format!("{} [default: {meaning}]", text.trim_end()))
        }
        _ => lower(doc),
    }
}

/// The default as a word on the command line; `None` if the help text explains the default.
fn default<C: TakesSettings>(setting: &Setting) -> Option<String> {
    if let Some((_, word)) = C::DEFAULTS.iter().find(|(name, _)| *name == setting.name) {
        return Some((*word).to_owned());
    }
    match setting.shown(&LoaderOptions::default()) {
        UserValue::Nothing => None,
        UserValue::Text(word) => Some(word),
        UserValue::Truth(truth) => Some(truth.to_string()),
        list if list.items().is_some() => {
            let items = list.items().into_iter().flatten();
            Some(items.map(|item| item.to_string()).collect::<Vec<_>>().join(","))
        }
        other => Some(other.to_string()),
    }
}

fn given(setting: &Setting, word: OsString) -> Result<UserValue, Error> {
    let given = match word.into_string() {
        Ok(word) => setting.parse_word(&word),
        // A path may contain any bytes.
        Err(word) => UserValue::Path(word.into()),
    };
    setting.set(&mut LoaderOptions::default(), &given)?;
    Ok(given)
}

impl<C: TakesSettings> FromArgMatches for Settings<C> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut settings = Self::from(LoaderOptions::default());
        settings.update_from_arg_matches(matches)?;
        Ok(settings)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        let refused = |error| clap::Error::raw(clap::error::ErrorKind::ValueValidation, error);
        let mut by_user = Vec::new();
        for (setting, _) in flags::<C>() {
            if let Some(given) = matches.get_one::<UserValue>(setting.name) {
                setting.set(&mut self.0, given).map_err(refused)?;
                self.1.give(setting.name, given.clone());
                // Clap also gives defaults as values. A default must not conflict with a value from the user.
                let is_default = matches.value_source(setting.name) != Some(ValueSource::CommandLine);
                if !is_default && *given != UserValue::Nothing {
                    by_user.push(setting.name);
                }
            }
        }
        if self.0.transforms.is_some() {
            check_given_once(&by_user).map_err(refused)?;
        }
        Ok(())
    }
}

/// The first sentence of a text without its full stop. `-h` shows it, and `--help` shows the whole text.
fn first_sentence(text: &str) -> &str {
    text.split_once(". ").map_or(text, |(first, _)| first).trim_end_matches('.')
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Every;
    impl TakesSettings for Every {
        const DEFAULTS: &'static [(&'static str, &'static str)] = &[("batch_size", "256")];
    }

    fn read(words: &[&str]) -> Result<LoaderOptions, String> {
        let command =
            <Settings<Every> as clap::Args>::augment_args(Command::new("test").no_binary_name(true));
        let matches = command.try_get_matches_from(words).map_err(|error| error.to_string())?;
        Settings::<Every>::from_arg_matches(&matches)
            .map(|settings| settings.0)
            .map_err(|error| error.to_string())
    }

    #[test]
    fn nothing_said_is_the_default_of_the_table_or_of_the_command() {
        let mut options = read(&[]).unwrap();
        assert_eq!(std::mem::replace(&mut options.batch_size, 64), 256);
        for setting in Setting::all() {
            assert_eq!(setting.shown(&options), setting.shown(&LoaderOptions::default()), "{}", setting.name);
        }
    }

    #[test]
    fn words_say_what_python_says() {
        let options = read(&[
            "--image-size",
            "96,128",
            "--mean",
            "0.5,0.5,0.5",
            "--train=false",
            "--immutable",
            "--memory",
            "1GB",
            "--flip",
            "0",
            "--last-batch",
            "none",
            "--fill",
            "ahead",
        ]);
        let options = options.unwrap();
        assert_eq!((options.image_size, options.mean), ((96, 128), [0.5; 3]));
        assert_eq!(
            (options.train, options.immutable, options.memory),
            (Some(false), true, Some(1_000_000_000))
        );
        assert_eq!((options.flip, options.last_batch), (0.0, None));
        assert_eq!(options.cache.directory.fill, store::tier::FillChoice::Ahead);
    }

    #[test]
    fn nothing_is_said_beside_transforms_that_they_say() {
        let list = r#"[{"RandomResizedCrop": {"size": 32}}]"#;
        for words in [["--image-size", "64"], ["--flip", "0.5"], ["--train=true", "--mean=0,0,0"]] {
            let error = read(&[&["--transforms", list], &words[..]].concat()).unwrap_err();
            assert!(error.contains("cannot be combined with transforms, where"), "{words:?}: {error}");
        }
        let options = read(&["--transforms", list, "--batch-size", "8", "--resize", "none"]).unwrap();
        assert_eq!((options.batch_size, options.transforms.is_some()), (8, true));
        assert_eq!(read(&["--transforms", "none", "--image-size", "64"]).unwrap().image_size, (64, 64));
    }

    #[test]
    fn a_bad_word_is_named_with_what_it_may_be() {
        for (words, said) in [
            (["--batch-size", "-1"], "batch_size: is -1, must be a whole number from 1 to 4294967295"),
            (["--dtype", "float64"], "dtype: is \"float64\", must be one of float32, float16"),
            (["--std", "1,0,1"], "std: is (1, 0, 1), must be three finite numbers above 0"),
            (["--cache-size", "much"], "cache_size: is \"much\", must be a number of bytes"),
            (["--threads", "two"], "threads: is \"two\", must be a whole number"),
        ] {
            let error = read(&words).unwrap_err();
            assert!(error.contains(said), "{words:?}: {error}");
        }
    }
}
