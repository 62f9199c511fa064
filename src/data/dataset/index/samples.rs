//! The class of each sample, and the location of its bytes.

use super::super::Extent;
use super::super::selected_members::MemberBytes;
use super::DatasetIndex;
use base::error::{Error, Result};
use base::parts::RawHeaderSummary;
use std::collections::{BTreeMap, BTreeSet};

/// Maximum number of classes that an error message lists.
const CLASSES_NAMED: usize = 10;

impl DatasetIndex {
    /// The class number of a sample. If samples have no labels, returns 0, which has no meaning.
    ///
    /// # Panics
    /// Panics if `sample` is not below [`DatasetIndex::len`].
    pub fn label(&self, sample: u64) -> u32 {
        if let Some(live) = &self.live {
            return live.label(sample);
        }
        let (number, placed) = self.dataset_of_sample(sample);
        self.classes.of_part(number, placed.part.label(sample - placed.sample))
    }

    /// The class number of a sample, regardless of [`IndexOptions::class_names`]. Selections use this number, so that
    /// no order depends on the option.
    ///
    /// # Panics
    /// Panics if `sample` is not below [`DatasetIndex::len`].
    ///
    /// [`IndexOptions::class_names`]: crate::dataset::IndexOptions::class_names
    pub fn own_label(&self, sample: u64) -> u32 {
        if self.is_stream() {
            return self.label(sample);
        }
        let (number, placed) = self.dataset_of_sample(sample);
        self.classes.own_of_part(number, placed.part.label(sample - placed.sample))
    }

    /// Checks that [`IndexOptions::class_names`] contains the class of each sample.
    ///
    /// # Errors
    /// [`Error::Config`] that names the missing classes.
    ///
    /// [`IndexOptions::class_names`]: crate::dataset::IndexOptions::class_names
    pub fn check_listed(&self) -> Result<()> {
        let mut unlisted: BTreeMap<u32, &str> = self.classes.unlisted().collect();
        if unlisted.is_empty() || !self.is_labeled() {
            return Ok(());
        }
        // A class without samples needs no number.
        let used: BTreeSet<u32> = (0..self.len()).map(|sample| self.own_label(sample)).collect();
        unlisted.retain(|own, _| used.contains(own));
        if unlisted.is_empty() {
            return Ok(());
        }
        let mut names = Vec::from_iter(unlisted.values().take(CLASSES_NAMED).map(|name| format!("{name:?}")));
        if unlisted.len() > CLASSES_NAMED {
            names.push(format!("and {} others", unlisted.len() - CLASSES_NAMED));
        }
        let message = format!(
            "lacks {} of the {} classes of {}: {}. Add them to the list, or select with classes= the classes to draw \
             from",
            unlisted.len(),
            self.classes.own_count(),
            self.root().display(),
            names.join(", ")
        );
        Err(Error::config("class_names", message))
    }

    /// The extent that the first read of a sample fetches: its image, or with [`IndexOptions::members`] the largest of
    /// these members and those stored near it.
    ///
    /// # Panics
    /// Panics if `sample` is not below [`DatasetIndex::len`].
    ///
    /// [`IndexOptions::members`]: crate::dataset::IndexOptions::members
    pub fn extent(&self, sample: u64) -> Extent {
        if let Some(live) = &self.live {
            return live.extent(sample);
        }
        let placed = self.dataset_of_sample(sample).1;
        let extent = placed.part.extent(sample - placed.sample);
        Extent { file: placed.global_file(extent.file), ..extent }
    }

    /// The header summary of a sample's packed image. `None` if there is no summary, or if the first read fetches more
    /// of the sample than the image.
    ///
    /// # Panics
    /// Panics if `sample` is not below [`DatasetIndex::len`].
    pub fn header_summary(&self, sample: u64) -> Option<&RawHeaderSummary> {
        let (part, sample) = self.own_sample(sample)?;
        part.header_summary(sample)
    }

    /// Locates the member with index `field` in [`IndexOptions::members`]. Without members, the image has index 0.
    ///
    /// # Panics
    /// Panics if `sample` is not below [`DatasetIndex::len`], or if the member does not exist.
    ///
    /// [`IndexOptions::members`]: crate::dataset::IndexOptions::members
    pub fn member(&self, sample: u64, field: usize) -> MemberBytes {
        let placed = self.dataset_of_sample(sample).1;
        match placed.part.member(sample - placed.sample, field) {
            MemberBytes::Separate(extent) => {
                MemberBytes::Separate(Extent { file: placed.global_file(extent.file), ..extent })
            }
            found => found,
        }
    }

    /// Whether the member with index `field` (see [`DatasetIndex::member`]) is packed in its shard. The bytes alone do
    /// not show this, because a file that is not packed can begin like a packed image.
    ///
    /// # Panics
    /// Panics if `sample` is not below [`DatasetIndex::len`], or if the member does not exist.
    pub fn is_packed_member(&self, sample: u64, field: usize) -> bool {
        self.own_sample(sample).is_some_and(|(part, sample)| part.is_packed_member(sample, field))
    }

    /// Whether the first read of a sample fetches exactly one packed member.
    ///
    /// # Panics
    /// Panics if `sample` is not below [`DatasetIndex::len`].
    pub fn is_packed_record(&self, sample: u64) -> bool {
        self.own_sample(sample).is_some_and(|(part, sample)| part.is_packed_record(sample))
    }

    /// Whether a member of a sample is stored so far from the other members that it needs a separate read.
    ///
    /// # Panics
    /// Panics if `sample` is not below [`DatasetIndex::len`].
    pub fn is_apart(&self, sample: u64) -> bool {
        self.own_sample(sample).is_some_and(|(part, sample)| part.is_apart(sample))
    }
}
