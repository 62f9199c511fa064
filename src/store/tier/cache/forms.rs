//! The storage formats to which the copies of each tier are converted (`form=`). They are chosen for each epoch.

use super::{Cache, TierPlace};
use crate::tier::convert::{
    Conversion, ConversionResult, Converter, CopyMaker, FormChoice, FormatDecision, FormatFacts,
};
use base::error::Result;
use base::locks::lock;
use base::names::NamedValue;
use pixels::decode::StorageFormat;
use std::sync::Arc;

/// The reason why copies are not converted to another storage format, however much space there is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoForms {
    /// The reason as a text.
    pub why: &'static str,
    /// Whether conversion is impossible even if the user asks for it.
    pub is_impossible: bool,
}

impl Cache {
    pub(super) fn decide_formats(&self, used: u64) {
        let places = 0..self.tiers.len();
        let stays = |place: TierPlace| self.keeps_first(place) && !self.is_of_nodes(place);
        let room = places.clone().filter(|&place| stays(place)).map(|place| self.tiers[place].room()).max();
        let decisions = places.map(|place| {
            let choice = self.tiers[place].form;
            let job = FormatFacts {
                choice,
                no_forms: self.options.no_forms,
                used,
                room: room.unwrap_or(0),
                stays: stays(place),
            };
            let decision = match &self.network {
                // All nodes made this decision together, when they exchanged addresses.
                Some(network) if choice != FormChoice::AsIs && job.stays => network.form.clone(),
                _ => job.decide(),
            };
            let convertible = self.tier(place).parts().convertible;
            let decision =
                match convertible.is_none_or(|tier| tier.reserve_for_conversion(decision.may_evict)) {
                    false if decision.may_evict => FormatDecision::as_is("the cache is too small to convert"),
                    _ => decision,
                };
            if decision.form.is_none() && !matches!(choice, FormChoice::Auto | FormChoice::AsIs) {
                let (name, form, why) = (self.tier(place).name(), choice.name(), decision.why);
                self.index.notices().warn_once(("form", name.as_str()), || {
                    format!("copies in {name} are not converted to {form}: {why}")
                });
            }
            decision
        });
        let decisions = decisions.collect();
        *lock(&self.format_decisions) = decisions;
    }

    pub(super) fn describe_formats(&self) -> Vec<String> {
        let decisions = lock(&self.format_decisions);
        let named = self.tiers.iter().zip(&*decisions).filter(|(kept, _)| kept.form != FormChoice::AsIs);
        named
            .map(|(kept, decision)| {
                let form = decision.form.map_or(StorageFormat::AsIs, StorageFormat::from).name();
                format!("{} {form} ({})", kept.tier.name(), decision.why)
            })
            .collect()
    }

    pub(super) fn start_converter(self: &Arc<Self>) -> Result<Option<Converter>> {
        let may = |choice: FormChoice| choice != FormChoice::AsIs;
        let any = self.tiers.iter().any(|kept| may(kept.form));
        any.then(|| Converter::start(self.clone())).transpose()
    }

    /// Converts some copies of one tier. Slower tiers come first, because faster tiers copy from slower ones.
    pub(in crate::tier) fn convert(
        &self,
        maker: &mut CopyMaker,
        is_over: &dyn Fn() -> bool,
        rest: &dyn Fn(),
    ) -> ConversionResult {
        let decisions = lock(&self.format_decisions).clone();
        // `Nothing` of one tier wins over `NotNow` of another: it may have work soon.
        let mut all = ConversionResult::NotNow;
        for (place, decision) in decisions.into_iter().enumerate().rev() {
            let Some(form) = decision.form else { continue };
            let may_evict = decision.may_evict;
            let conversion = &mut Conversion { form, may_evict, maker, is_over, rest };
            match self.tier(place).parts().convertible.map(|tier| tier.convert(conversion)) {
                Some(ConversionResult::Some) => return ConversionResult::Some,
                Some(ConversionResult::Nothing) | None => all = ConversionResult::Nothing,
                Some(ConversionResult::NotNow) => {}
            }
        }
        all
    }

    pub(in crate::tier) fn note_dead_converter(&self) {
        self.index.notices().warn_once("dead converter", || {
            "cached copies are no longer converted, because a thread panicked. This is a bug in Foreload: please \
             report it, and use form=\"as-is\" until it is fixed"
                .to_owned()
        });
    }
}
