//! The storage formats that the copies of each tier are converted to (`form=`). They are chosen again for each epoch.

use super::{Cache, TierPlace};
use crate::tier::convert::{
    Conversion, ConversionResult, Converter, CopyMaker, FormChoice, FormatDecision, FormatFacts,
};
use base::names::NamedValue;
use pixels::decode::StorageFormat;
use std::sync::PoisonError;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};

/// Why copies are not converted to another storage format, regardless of the available space.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoForms {
    /// The reason, in words.
    pub why: &'static str,
    /// Whether conversion is impossible, even if the user asks for it.
    pub is_impossible: bool,
}

/// The decisions about storage formats.
#[derive(Default)]
pub(super) struct CacheFormats {
    /// The decision about each tier.
    decisions: Mutex<Vec<FormatDecision>>,
}

impl Cache {
    /// Decides which storage formats the copies are converted to, in an epoch that uses `used` bytes of samples.
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
                // All nodes made this decision together, when they met.
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
        *self.forms.decisions.lock().unwrap_or_else(PoisonError::into_inner) = decisions;
    }

    /// Describes the storage formats that copies are converted to, and why; empty before the first epoch.
    pub(super) fn describe_formats(&self) -> Vec<String> {
        let decisions = self.forms.decisions.lock().unwrap_or_else(PoisonError::into_inner);
        let named = self.tiers.iter().zip(&*decisions).filter(|(kept, _)| kept.form != FormChoice::AsIs);
        named
            .map(|(kept, decision)| {
                let form = decision.form.map_or(StorageFormat::AsIs, StorageFormat::from).name();
                format!("{} {form} ({})", kept.tier.name(), decision.why)
            })
            .collect()
    }

    /// Starts the thread that converts copies, if any tier may convert.
    pub(super) fn start_converter(self: &Arc<Self>) -> std::io::Result<Option<Converter>> {
        let may = |choice: FormChoice| choice != FormChoice::AsIs;
        let any = self.tiers.iter().any(|kept| may(kept.form));
        any.then(|| Converter::start(self.clone())).transpose()
    }

    /// Converts some copies of a tier. Slower tiers come first, because faster tiers take their copies from slower
    /// ones.
    pub(in crate::tier) fn convert(
        &self,
        maker: &mut CopyMaker,
        is_over: &dyn Fn() -> bool,
        rest: &dyn Fn(),
    ) -> ConversionResult {
        let decisions = self.forms.decisions.lock().unwrap_or_else(PoisonError::into_inner).clone();
        // If one tier may have work soon, look again soon, even if another tier has no space.
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

    /// Warns that copies are not converted any more, because the thread has panicked.
    pub(in crate::tier) fn note_dead_converter(&self) {
        self.index.notices().warn_once("dead converter", || {
            "cached copies are no longer converted, because a thread panicked. This is a bug in Foreload: please \
             report it, and use form=\"as-is\" until it is fixed"
                .to_owned()
        });
    }

    /// Returns whether the pipeline waits for reads from this node's own tiers.
    pub(in crate::tier) fn own_reads_wait(&self) -> bool {
        self.own_reads_wait.load(Relaxed)
    }
}
