//! The kind of values of the setting `cache`.

use super::{Description, ValueKind, is};
use crate::config::{CacheChoice, LoaderOptions, SettingsObject, UserValue};

/// The tiers from the fastest to the slowest. Each tier is a dict with the name of its class and a dict of its members.
pub(in crate::config::settings) struct TierList;

impl TierList {
    fn tier(given: &UserValue) -> Option<(SettingsObject, &[(UserValue, UserValue)])> {
        let UserValue::Map(classes) = given else { return None };
        let [(UserValue::Text(class), UserValue::Map(members))] = &classes[..] else { return None };
        SettingsObject::of_keyword("cache").find(|object| object.class() == class).zip(Some(members))
    }

    /// Returns the user's value with tiers as Python writes them, for messages.
    fn named(given: &UserValue) -> UserValue {
        match (Self::tier(given), given.items()) {
            (Some((object, members)), _) => {
                let member = |(name, value): &(UserValue, UserValue)| match name {
                    UserValue::Text(name) => format!("{name}={value}"),
                    name => format!("{name}={value}"),
                };
                let members: Vec<_> = members.iter().map(member).collect();
                UserValue::Other(format!("foreload.{}({})", object.class(), members.join(", ")))
            }
            (None, Some(items)) => UserValue::List(items.map(|item| Self::named(&item)).collect()),
            (None, None) => given.clone(),
        }
    }
}

impl ValueKind<CacheChoice> for TierList {
    fn read(&self, given: &UserValue) -> Result<CacheChoice, String> {
        let tiers: Vec<UserValue> = match given {
            UserValue::Nothing => return Ok(CacheChoice::default()),
            given => given.items().map_or_else(|| vec![given.clone()], Iterator::collect),
        };
        let mut options = LoaderOptions::default();
        let mut before: Option<SettingsObject> = None;
        for tier in &tiers {
            let Some((object, members)) = Self::tier(tier) else { return is(&Self::named(given)) };
            let class = object.class();
            match before.replace(object).filter(|before| *before >= object) {
                Some(same) if same == object => {
                    return Err(format!("has foreload.{class} twice"));
                }
                Some(slower) => {
                    let slower = slower.class();
                    return Err(format!("has foreload.{slower} before the faster foreload.{class}"));
                }
                None => {}
            }
            for (name, value) in members {
                let setting = if let UserValue::Text(name) = name { object.member(name) } else { None };
                let setting = setting.ok_or_else(|| format!("has {class} with {name}"))?;
                setting.set(&mut options, value).map_err(|error| format!("has {class}: {error}"))?;
            }
        }
        if before.is_some() { Ok(options.cache) } else { is(&Self::named(given)) }
    }

    fn show(&self, cache: &CacheChoice) -> UserValue {
        let shown = format!("{cache:?}");
        let is_usual = shown == format!("{:?}", CacheChoice::default());
        if is_usual { UserValue::Nothing } else { UserValue::Other(shown) }
    }

    fn check(&self, _: &CacheChoice) -> Result<(), String> {
        Ok(())
    }

    fn describe(&self) -> Description {
        let tiers: Vec<_> = SettingsObject::of_keyword("cache").collect();
        let one = |tier: &SettingsObject| {
            let needed = tier.members().take(tier.positional()).filter_map(|setting| setting.member);
            let needed: Vec<_> = needed.map(|member| member.name).collect();
            format!("a foreload.{}({})", tier.class(), needed.join(", "))
        };
        let each: Vec<_> = tiers.iter().rev().map(one).collect();
        let usual = SettingsObject::usual("cache").map_or("", SettingsObject::class);
        let classes: Vec<_> = tiers.iter().map(|tier| tier.class()).collect();
        let (each, listed, one) = (each.join(", "), classes.join(", "), classes.join(" | "));
        Description::new(
            format!("{each}, a dict with the arguments of a {usual}, a list [{listed}], or None"),
            format!("{one} | dict[str, Any] | Sequence[{one} | dict[str, Any]] | None"),
            "TIERS",
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tiers_are_read_each_once_the_fastest_first() {
        let text = |text: &str| UserValue::Text(text.into());
        let tier = |class: &str, member: &str, value| {
            UserValue::Map(vec![(text(class), UserValue::Map(vec![(text(member), value)]))])
        };
        let (ram, directory) = (tier("Ram", "size", text("1kB")), tier("Directory", "path", text("/nvme")));
        let both = TierList.read(&UserValue::List(vec![ram.clone(), directory.clone()])).unwrap();
        assert_eq!((both.ram.size, both.directory.path), (Some(1000), Some("/nvme".into())));
        assert_eq!(TierList.read(&directory).unwrap().ram.size, None);
        for wrong in [
            UserValue::empty_list(),
            text("/nvme"),
            UserValue::Map(vec![(text("path"), text("/nvme"))]),
            UserValue::List(vec![UserValue::Nothing]),
            UserValue::List(vec![directory, ram.clone()]),
            UserValue::List(vec![ram.clone(), ram]),
            tier("Directory", "sise", UserValue::Whole(5)),
            tier("Resources", "threads", UserValue::Whole(5)),
        ] {
            assert!(TierList.read(&wrong).is_err(), "{wrong}");
        }
    }
}
