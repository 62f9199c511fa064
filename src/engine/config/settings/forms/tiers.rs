//! The setting `cache`.

use super::{Form, is};
use crate::config::{CacheChoice, Given, LoaderOptions, SettingsObject};

/// Tiers from the fastest to the slowest, each as a dict of its members by the name of its class.
pub(in crate::config::settings) struct TierList;

impl Form<CacheChoice> for TierList {
    fn read(&self, given: &Given) -> Result<CacheChoice, String> {
        let tiers: Vec<Given> = match given {
            Given::Nothing => return Ok(CacheChoice::default()),
            given => given.items().map_or_else(|| vec![given.clone()], Iterator::collect),
        };
        let mut options = LoaderOptions::default();
        let mut before: Option<SettingsObject> = None;
        for tier in &tiers {
            let Given::Map(classes) = tier else { return is(given) };
            let [(Given::Text(class), Given::Map(members))] = &classes[..] else { return is(given) };
            let known = |object: &SettingsObject| object.class() == class;
            let Some(object) = SettingsObject::of_keyword("cache").find(known) else { return is(given) };
            match before.replace(object) {
                Some(same) if same == object => return Err(format!("has two of foreload.{class}")),
                Some(slower) if slower > object => {
                    let slower = slower.class();
                    return Err(format!(
                        "has foreload.{slower} before foreload.{class}, and not from the fastest to the slowest"
                    ));
                }
                _ => {}
            }
            for (name, value) in members {
                let setting = match name {
                    Given::Text(name) => object.member(name),
                    _ => None,
                };
                let setting = setting.ok_or_else(|| format!("has {class} with {name}"))?;
                setting.set(&mut options, value).map_err(|error| format!("has {class}: {error}"))?;
            }
        }
        if before.is_some() { Ok(options.cache) } else { is(given) }
    }

    fn show(&self, cache: &CacheChoice) -> Given {
        let text = |text: &str| Given::Text(text.into());
        let options = LoaderOptions { cache: cache.clone(), ..LoaderOptions::default() };
        let usual = LoaderOptions::default();
        let mut tiers = Given::empty_list();
        for object in SettingsObject::of_keyword("cache") {
            let is_given = |(_, value, usual): &(_, Given, Given)| value != usual;
            let values = object.members().filter_map(|setting| {
                Some((text(setting.member?.name), setting.shown(&options), setting.shown(&usual)))
            });
            let members: Vec<_> = values.filter(is_given).map(|(name, value, _)| (name, value)).collect();
            if !members.is_empty() {
                tiers.push(Given::Map(vec![(text(object.class()), Given::Map(members))]));
            }
        }
        if tiers == Given::empty_list() { Given::Nothing } else { tiers }
    }

    fn check(&self, _: &CacheChoice) -> Result<(), String> {
        // Each member is checked by itself.
        Ok(())
    }

    fn may_be(&self) -> String {
        "a foreload.Directory(path, size), a foreload.Ram(size), a dict of a directory's arguments, a list [Ram, \
         Directory], or None"
            .into()
    }

    fn annotation(&self) -> String {
        "Ram | Directory | dict[str, Any] | Sequence[Ram | Directory | dict[str, Any]] | None".into()
    }

    fn placeholder(&self) -> String {
        "TIERS".into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_read_is_shown_again() {
        let text = |text: &str| Given::Text(text.into());
        let tier =
            |class: &str, members: Vec<(Given, Given)>| Given::Map(vec![(text(class), Given::Map(members))]);
        let ram = tier("Ram", vec![(text("size"), Given::Whole(5))]);
        let path = || (text("path"), text("/nvme"));
        let directory = tier("Directory", vec![path(), (text("fill"), text("ahead"))]);
        let both = Given::List(vec![ram.clone(), directory.clone()]);
        assert_eq!(TierList.show(&TierList.read(&both).unwrap()), both);
        assert_eq!(TierList.read(&both).unwrap().ram.size, Some(5));
        let alone = TierList.read(&directory).unwrap();
        assert_eq!(TierList.show(&alone), Given::List(vec![directory.clone()]));
        assert_eq!(TierList.show(&TierList.read(&Given::Nothing).unwrap()), Given::Nothing);
        for wrong in [
            Given::empty_list(),
            text("/nvme"),
            Given::Map(vec![path()]),
            Given::List(vec![Given::Nothing]),
            Given::List(vec![directory.clone(), ram.clone()]),
            Given::List(vec![ram.clone(), ram]),
            tier("Directory", vec![(text("sise"), Given::Whole(5))]),
            tier("Resources", vec![]),
        ] {
            assert!(TierList.read(&wrong).is_err(), "{wrong}");
        }
    }
}
