//! The settings that a user gave, as a document that loaders send to the producer of shared batches. The other process
//! makes the same options from it.

use super::{LoaderKind, LoaderOptions, SETTINGS, Setting, UserValue};
use base::error::{Error, Result};
use serde::{Deserialize, Serialize};

/// Settings by name, each with the user's value.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct GivenSettings(Vec<(String, UserValue)>);

impl GivenSettings {
    /// Adds the user's value of a setting, and replaces an earlier value.
    pub fn give(&mut self, setting: &str, given: UserValue) {
        self.0.retain(|(name, _)| name != setting);
        self.0.push((setting.to_owned(), given));
    }

    /// Whether the user set a setting, to any value.
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

    /// Returns the settings that decide the contents of batches, each with a text that identifies its value. Two
    /// loaders that request the same batches have the same list, even if their settings are written differently.
    /// `labels` is left out: it may name a file, and only its contents tell whether two labels are the same.
    ///
    /// # Errors
    /// [`Error::Config`] that names the setting.
    pub fn deciding(&self, loader: LoaderKind) -> Result<Vec<(&'static str, String)>> {
        let mut options = self.options(loader)?;
        options.train = Some(options.trains());
        let deciding =
            SETTINGS.iter().filter(|setting| setting.decides_batches() && setting.name != "labels");
        Ok(deciding.map(|setting| (setting.name, setting.identify(&options))).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(list: &[(&str, UserValue)]) -> GivenSettings {
        let mut settings = GivenSettings::default();
        list.iter().for_each(|(name, given)| settings.give(name, given.clone()));
        settings
    }

    fn transforms(text: &str) -> UserValue {
        UserValue::Text(text.into())
    }

    #[test]
    fn a_document_makes_the_same_options() {
        let settings = of(&[
            ("batch_size", UserValue::Whole(7)),
            ("seed", UserValue::Whole(u64::MAX.into())),
            ("scale", UserValue::Numbers(vec![0.1, 1.0])),
            ("indices", UserValue::Wholes(vec![3, 1, 2])),
            ("weights", UserValue::Map(vec![(UserValue::Text("cat".into()), UserValue::Number(2.5))])),
            ("transforms", transforms(r#"[{"RandomResizedCrop": {"size": 32}}]"#)),
            ("memory", UserValue::Text("2GB".into())),
        ]);
        let read: GivenSettings = serde_json::from_str(&serde_json::to_string(&settings).unwrap()).unwrap();
        assert_eq!(read, settings);
        let (one, other) = (settings.options(LoaderKind::Images), read.options(LoaderKind::Images));
        assert_eq!(format!("{:?}", one.unwrap()), format!("{:?}", other.unwrap()));
    }

    #[test]
    fn the_same_batches_are_the_same_in_other_words() {
        let deciding = |list: &[(&str, UserValue)]| of(list).deciding(LoaderKind::Images).unwrap();
        let usual = deciding(&[]);
        let crop = |size| transforms(&format!(r#"[{{"RandomResizedCrop": {{"size": {size}}}}}]"#));
        for same in [
            ("batch_size", UserValue::Whole(64)),
            ("image_size", UserValue::Wholes(vec![224, 224])),
            ("last_batch", UserValue::Nothing),
            ("train", UserValue::Truth(true)),
            ("threads", UserValue::Whole(3)),
            ("keep", UserValue::Whole(5)),
            ("device", UserValue::Text("cpu".into())),
            ("memory", UserValue::Text("2GB".into())),
        ] {
            assert_eq!(deciding(std::slice::from_ref(&same)), usual, "{same:?}");
        }
        for other in [
            ("batch_size", UserValue::Whole(65)),
            ("seed", UserValue::Whole(1)),
            ("indices", UserValue::Wholes(vec![1])),
            ("classes", UserValue::List(vec![UserValue::Whole(1)])),
            ("class_names", UserValue::List(vec![UserValue::Text("cat".into())])),
            ("on_error", UserValue::Text("skip".into())),
            ("max_pixels", UserValue::Whole(9)),
            ("fields", UserValue::List(vec![UserValue::Text("image".into())])),
            ("transforms", crop(32)),
            ("image_size", UserValue::Whole(32)),
            ("image_size_from", UserValue::Map(vec![(UserValue::Whole(2), UserValue::Whole(32))])),
            ("dtype", UserValue::Text("uint8".into())),
            ("memory_format", UserValue::Text("nhwc".into())),
            ("decode", UserValue::Text("exact".into())),
        ] {
            assert_ne!(deciding(std::slice::from_ref(&other)), usual, "{other:?}");
        }
        assert_ne!(deciding(&[("transforms", crop(32))]), deciding(&[("transforms", crop(33))]));
        let written = |text: &str| deciding(&[("transforms", transforms(text))]);
        let pad = written(r#"[{"RandomCrop": {"size": [20, 20], "fill": 0}}]"#);
        assert_eq!(written(r#"[ { "RandomCrop" : { "size" : [20, 20] } } ]"#), pad);
        assert_ne!(written(r#"[{"RandomCrop": {"size": [20, 20], "fill": 1}}]"#), pad);
        assert!(of(&[("no_such", UserValue::Nothing)]).options(LoaderKind::Images).is_err());
    }
}
