//! `foreload.Buckets`: the sizes of batches, by their area.

use super::ObjectRow;
use super::SettingsObject::Buckets;
use crate::config::settings::forms::{FromOne, Maybe, WholeNumber};
use crate::config::settings::table::settings;
use crate::config::settings::{Affects, Setting, Topic, ValueKind};
use base::error::{Error, Result};
use data::schedule::BucketSizes;
use pixels::augment::ImageSize;

pub(super) static ROW: ObjectRow = ObjectRow {
    keyword: "buckets",
    is_usual: true,
    positional: 1,
    members: MEMBERS,
    summary: "Sizes of batches with about the same number of pixels, for `buckets=` of a loader.",
    story: "Each side is a multiple of `step`. There is a size for each width, as high as `area` allows, if neither \
            side is more than `max_ratio` times the other; of several with the same aspect ratio, only the largest.",
    example: "buckets=foreload.Buckets(area=1024 * 1024, step=64, max_ratio=2.0)",
};

settings! {
    /// The sizes of `buckets` by their area: a `foreload.Buckets`. There are none without an area.
    BucketRule, |options| options.buckets.rule;

    /// The members of `foreload.Buckets`.
    MEMBERS;

    /// The largest number of pixels of a size.
    area: Option<u64> = None, Maybe(WholeNumber::from(1).to(1 << 28)),
        Images, Batch.only_in(Buckets, "buckets_area").flag("buckets");

    /// The number of pixels that divides each side.
    step: u32 = 64, WholeNumber::from(1).to(4096), Images, Batch.only_in(Buckets, "buckets_step");

    /// The largest ratio of the longer side to the shorter side.
    max_ratio: f64 = 2.0, FromOne, Images, Batch.only_in(Buckets, "buckets_max_ratio");
}

/// The value of `buckets`: a rule, or a list of sizes.
#[derive(Debug, Clone, Default)]
pub struct BucketsChoice {
    /// The rule, which is used if it has an area.
    pub rule: BucketRule,
    /// The sizes, (height, width), if there is no rule.
    pub sizes: Vec<(u32, u32)>,
}

impl BucketsChoice {
    /// Returns whether there are buckets.
    pub fn is_set(&self) -> bool {
        self.rule.area.is_some() || !self.sizes.is_empty()
    }

    /// Returns the sizes of the buckets; `None` without buckets.
    ///
    /// # Errors
    /// [`Error::Config`] if there are no sizes, or too many.
    pub fn list(&self) -> Result<Option<BucketSizes>> {
        match (self.rule.area, self.sizes.as_slice()) {
            (None, []) => Ok(None),
            (Some(area), []) => BucketSizes::of_area(area, self.rule.step, self.rule.max_ratio).map(Some),
            (None, sizes) => {
                let size = |&(height, width): &(u32, u32)| ImageSize { width, height };
                BucketSizes::listed(sizes.iter().map(size).collect()).map(Some)
            }
            (Some(_), _) => {
                Err(Error::config("buckets", "has an area and a list of sizes: give one of the two"))
            }
        }
    }
}
