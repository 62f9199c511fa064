//! Chooses the storage format for the copies of a tier by the space in the tiers. This module does no I/O.

use super::super::cache::NoForms;
use base::names::named;
use pixels::decode::ConvertedFormat;

/// The storage format that the user wants for copies (`form=`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum FormChoice {
    /// Copies are converted if the converted copies of all samples fit into the cache. A conversion saves more
    /// processor time than it takes. But converted copies are larger: if not all of them fit, fewer samples are cached,
    /// and more are read from the dataset.
    #[default]
    Auto,
    /// Copies stay in the storage format in which they are read.
    AsIs,
    /// Copies get an index of their entropy-coded data.
    Indexed,
    /// Copies are packed: their coefficients are stored without entropy coding.
    Packed,
}

named!(FormChoice: "auto" => Auto, "as-is" => AsIs, "indexed" => Indexed, "packed" => Packed);

impl FormChoice {
    fn made(self) -> Option<ConvertedFormat> {
        match self {
            Self::Auto | Self::AsIs => None,
            Self::Indexed => Some(ConvertedFormat::Indexed),
            Self::Packed => Some(ConvertedFormat::Packed),
        }
    }
}

/// The size of packed photographs relative to their files. It is 1.20 for ImageNet; the margin is for other datasets.
pub(in crate::tier) const PACKED: f64 = 1.25;

/// The size of indexed photographs relative to their files.
const INDEXED: f64 = 1.01;

#[derive(Debug, Clone, Copy, PartialEq)]
pub(in crate::tier) struct FormatFacts {
    pub choice: FormChoice,
    /// The reason why copies are not converted, however much space there is.
    pub no_forms: Option<NoForms>,
    /// The size in bytes of the samples that the epoch uses.
    pub used: u64,
    /// The size in bytes of the samples that fit into the largest tier that does not evict samples after their next
    /// use.
    pub room: u64,
    /// Whether this tier keeps samples permanently, instead of evicting them after their next use.
    pub stays: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::tier) struct FormatDecision {
    /// The storage format to which copies are converted; `None` if they stay as they are.
    pub form: Option<ConvertedFormat>,
    /// Whether copies may be evicted to free space for the conversion.
    pub may_evict: bool,
    /// The reason as a text.
    pub why: &'static str,
}

impl FormatDecision {
    pub(in crate::tier) fn as_is(why: &'static str) -> Self {
        Self { form: None, may_evict: false, why }
    }
}

impl FormatFacts {
    pub(in crate::tier) fn decide(&self) -> FormatDecision {
        if self.choice == FormChoice::AsIs {
            return FormatDecision::as_is("form=\"as-is\"");
        }
        let asked = self.choice.made();
        if let Some(NoForms { why, .. }) = self.no_forms.filter(|no| no.is_impossible || asked.is_none()) {
            return FormatDecision::as_is(why);
        }
        if !self.stays {
            return FormatDecision::as_is("copies are evicted after their next use");
        }
        if asked.is_some() {
            return FormatDecision { form: asked, may_evict: true, why: "as form= says" };
        }
        let fits = |ratio: f64| self.used as f64 * ratio <= self.room as f64;
        let next_to_stored = |form, why| FormatDecision { form: Some(form), may_evict: false, why };
        if fits(PACKED) {
            next_to_stored(
                ConvertedFormat::Packed,
                "packed copies fit, and batches from them take half to two thirds of the CPU time",
            )
        } else if fits(INDEXED) {
            next_to_stored(ConvertedFormat::Indexed, "packed copies do not fit")
        } else {
            FormatDecision::as_is(
                "packed copies are larger: fewer would fit, and more samples would be read from the dataset",
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const JOB: FormatFacts = FormatFacts {
        choice: FormChoice::Auto,
        no_forms: None,
        used: 1_000_000,
        room: 2_000_000,
        stays: true,
    };

    fn form(job: FormatFacts) -> (Option<ConvertedFormat>, bool) {
        let FormatDecision { form, may_evict, .. } = job.decide();
        (form, may_evict)
    }

    #[test]
    fn room_decides() {
        let with = |room| form(FormatFacts { room, ..JOB });
        assert_eq!(with(2_000_000), (Some(ConvertedFormat::Packed), false));
        assert_eq!(with(1_100_000), (Some(ConvertedFormat::Indexed), false));
        assert_eq!(with(500_000), (None, false));
    }

    #[test]
    fn the_user_decides_what_can_be() {
        let no = |is_impossible| Some(NoForms { why: "for a reason", is_impossible });
        let asked = |choice, no_forms| form(FormatFacts { choice, no_forms, room: 10, ..JOB }).0;
        for (choice, made) in [
            (FormChoice::Packed, Some(ConvertedFormat::Packed)),
            (FormChoice::Indexed, Some(ConvertedFormat::Indexed)),
            (FormChoice::AsIs, None),
        ] {
            assert_eq!(asked(choice, None), made, "{choice:?}");
            assert_eq!(asked(choice, no(false)), made, "{choice:?}");
            assert_eq!(asked(choice, no(true)), None, "{choice:?}");
        }
        assert_eq!(form(FormatFacts { no_forms: no(false), ..JOB }), (None, false));
        assert_eq!(form(FormatFacts { choice: FormChoice::Packed, stays: false, ..JOB }), (None, false));
    }
}
