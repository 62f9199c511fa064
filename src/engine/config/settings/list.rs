//! The settings that a user gave, as a document from which another process makes the same options. Loaders and
//! producers of shared batches exchange it.

use super::{Given, LoaderKind, LoaderOptions, SETTINGS, Setting};
use base::error::{Error, Result};
use serde::{Deserialize, Serialize};

/// Settings by name, each with its given value.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct GivenSettings(Vec<(String, Given)>);

impl GivenSettings {
    /// Adds the given value of a setting, and replaces an earlier value.
    pub fn give(&mut self, setting: &str, given: Given) {
        self.0.retain(|(name, _)| name != setting);
        self.0.push((setting.to_owned(), given));
    }

    /// Whether a setting was given, whatever its value.
    pub fn has(&self, setting: &str) -> bool {
        self.0.iter().any(|(name, _)| name == setting)
    }

    /// Returns the options that these settings mean.
    ///
    /// # Errors
    /// [`Error::Config`] that names the setting.
    pub fn options(&self, loader: LoaderKind) -> Result<LoaderOptions> {
        let mut options = loader.usual();
        for (name, given) in &self.0 {
            let unknown = || Error::Internal(format!("another process sent the unknown setting {name}"));
            Setting::named(name).ok_or_else(unknown)?.set(&mut options, given)?;
        }
        Ok(options)
    }

    /// Returns the values of all settings that decide the contents of batches. Loaders that ask for the same batches get
    /// the same list, however they express them.
    pub fn deciding(&self, loader: LoaderKind) -> Result<Vec<(&'static str, Given)>> {
        let mut options = self.options(loader)?;
        options.train = Some(options.trains());
        let value = |setting: &'static Setting| {
            let given = self.0.iter().find(|(name, _)| name == setting.name).map(|(_, given)| given.clone());
            match (setting.shows_all(), given) {
                (false, Some(given)) => given,
                _ => setting.shown(&options),
            }
        };
        Ok(SETTINGS
            .iter()
            .filter(|setting| setting.decides_batches())
            .map(|setting| (setting.name, value(setting)))
            .collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(list: &[(&str, Given)]) -> GivenSettings {
        let mut settings = GivenSettings::default();
        list.iter().for_each(|(name, given)| settings.give(name, given.clone()));
        settings
    }

    fn transforms(text: &str) -> Given {
        Given::Text(text.into())
    }

    #[test]
    fn a_document_makes_the_same_options() {
        let settings = of(&[
            ("batch_size", Given::Whole(7)),
            ("seed", Given::Whole(u64::MAX.into())),
            ("scale", Given::Numbers(vec![0.1, 1.0])),
            ("indices", Given::Wholes(vec![3, 1, 2])),
            ("weights", Given::Map(vec![(Given::Text("cat".into()), Given::Number(2.5))])),
            ("transforms", transforms(r#"[{"RandomResizedCrop": {"size": 32}}]"#)),
            ("memory", Given::Text("2GB".into())),
        ]);
        let read: GivenSettings = serde_json::from_str(&serde_json::to_string(&settings).unwrap()).unwrap();
        assert_eq!(read, settings);
        let (one, other) = (settings.options(LoaderKind::Images), read.options(LoaderKind::Images));
        assert_eq!(format!("{:?}", one.unwrap()), format!("{:?}", other.unwrap()));
    }

    #[test]
    fn the_same_batches_are_the_same_in_other_words() {
        let deciding = |list: &[(&str, Given)]| of(list).deciding(LoaderKind::Images).unwrap();
        let usual = deciding(&[]);
        let crop = |size| transforms(&format!(r#"[{{"RandomResizedCrop": {{"size": {size}}}}}]"#));
        for same in [
            ("batch_size", Given::Whole(64)),
            ("image_size", Given::Wholes(vec![224, 224])),
            ("last_batch", Given::Nothing),
            ("train", Given::Truth(true)),
            ("threads", Given::Whole(3)),
            ("keep", Given::Whole(5)),
            ("device", Given::Text("cpu".into())),
            ("memory", Given::Text("2GB".into())),
        ] {
            assert_eq!(deciding(std::slice::from_ref(&same)), usual, "{same:?}");
        }
        for other in [
            ("batch_size", Given::Whole(65)),
            ("seed", Given::Whole(1)),
            ("indices", Given::Wholes(vec![1])),
            ("classes", Given::List(vec![Given::Whole(1)])),
            ("class_names", Given::List(vec![Given::Text("cat".into())])),
            ("on_error", Given::Text("skip".into())),
            ("max_pixels", Given::Whole(9)),
            ("fields", Given::List(vec![Given::Text("image".into())])),
            ("transforms", crop(32)),
            ("image_size", Given::Whole(32)),
            ("image_size_from", Given::Map(vec![(Given::Whole(2), Given::Whole(32))])),
            ("dtype", Given::Text("uint8".into())),
            ("memory_format", Given::Text("nhwc".into())),
            ("decode", Given::Text("exact".into())),
        ] {
            assert_ne!(deciding(std::slice::from_ref(&other)), usual, "{other:?}");
        }
        assert_ne!(deciding(&[("transforms", crop(32))]), deciding(&[("transforms", crop(33))]));
        assert!(of(&[("no_such", Given::Nothing)]).options(LoaderKind::Images).is_err());
    }
}
