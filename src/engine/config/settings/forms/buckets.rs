//! The kind of values of the setting `buckets`.

use super::{Description, SideLengths, ValueKind, is};
use crate::config::choices::BucketsChoice;
use crate::config::{LoaderOptions, SettingsObject, UserValue};
use pixels::augment::MAX_SIDE;

/// A dict with the name of the class `Buckets` and a dict of its members, or a list of sizes, (height, width).
pub(in crate::config::settings) struct BucketRuleOrSizes;

impl ValueKind<BucketsChoice> for BucketRuleOrSizes {
    fn read(&self, given: &UserValue) -> Result<BucketsChoice, String> {
        let mut options = LoaderOptions::default();
        match given {
            UserValue::Nothing => {}
            UserValue::Map(classes) => {
                let [(UserValue::Text(class), UserValue::Map(members))] = &classes[..] else {
                    return is(given);
                };
                let object = SettingsObject::of_keyword("buckets").find(|object| object.class() == class);
                let Some(object) = object else { return is(given) };
                for (name, value) in members {
                    let setting = if let UserValue::Text(name) = name { object.member(name) } else { None };
                    let setting = setting.ok_or_else(|| format!("has {class} with {name}"))?;
                    setting.set(&mut options, value).map_err(|error| format!("has {class}: {error}"))?;
                }
                if options.buckets.rule.area.is_none() {
                    return is(given);
                }
            }
            _ => {
                let size = |size: UserValue| {
                    size.items()?;
                    SideLengths { to: MAX_SIDE }.read(&size).ok()
                };
                let sizes: Option<Vec<_>> = given.items().and_then(|items| items.map(size).collect());
                match sizes.filter(|sizes| !sizes.is_empty()) {
                    Some(sizes) => options.buckets.sizes = sizes,
                    None => return is(given),
                }
            }
        }
        options.buckets.list().map_err(|error| format!("has wrong sizes: {error}"))?;
        Ok(options.buckets)
    }

    fn show(&self, buckets: &BucketsChoice) -> UserValue {
        if !buckets.is_set() {
            return UserValue::Nothing;
        }
        let size = |&(height, width): &(u32, u32)| UserValue::Wholes(vec![height.into(), width.into()]);
        match buckets.rule.area {
            None => UserValue::List(buckets.sizes.iter().map(size).collect()),
            Some(area) => {
                let (step, max_ratio) = (buckets.rule.step, buckets.rule.max_ratio);
                UserValue::Other(format!("foreload.Buckets(area={area}, step={step}, max_ratio={max_ratio})"))
            }
        }
    }

    fn check(&self, buckets: &BucketsChoice) -> Result<(), String> {
        buckets.list().map(|_| ()).map_err(|error| format!("has wrong sizes: {error}"))
    }

    fn describe(&self) -> Description {
        Description::new(
            "a foreload.Buckets(area), a dict of its arguments, a list of sizes (height, width), or None",
            "Buckets | dict[str, Any] | Sequence[Sequence[int]] | None",
            "AREA",
        )
    }
}
