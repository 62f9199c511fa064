//! What the index knows of each sample: its class, and where its bytes are.

use super::super::Extent;
use super::super::selected_members::MemberBytes;
use super::DatasetIndex;
use crate::parts::RawOutline;

impl DatasetIndex {
    /// The class number of a sample; 0, which means nothing, where samples have no labels.
    ///
    /// # Panics
    /// Panics when `sample` is not below [`DatasetIndex::len`].
    pub fn label(&self, sample: u64) -> u32 {
        if let Some(live) = &self.live {
            return live.label(sample);
        }
        let (number, placed) = self.part_with(sample);
        self.classes.of_part(number, placed.part.label(sample - placed.sample))
    }

    /// The extent that is read of a sample at once: its image; or, of the members that [`IndexOptions::members`] names,
    /// the largest and those that lie beside it.
    ///
    /// # Panics
    /// Panics when `sample` is not below [`DatasetIndex::len`].
    ///
    /// [`IndexOptions::members`]: crate::dataset::IndexOptions::members
    pub fn extent(&self, sample: u64) -> Extent {
        if let Some(live) = &self.live {
            return live.extent(sample);
        }
        let placed = self.part_with(sample).1;
        let extent = placed.part.extent(sample - placed.sample);
        Extent { file: placed.whole(extent.file), ..extent }
    }

    /// What is known of the layout of a sample's packed image; `None` where nothing is, and where more than the image
    /// is read of the sample at once.
    ///
    /// # Panics
    /// Panics when `sample` is not below [`DatasetIndex::len`].
    pub(crate) fn outline(&self, sample: u64) -> Option<&RawOutline> {
        if self.is_stream() {
            return None;
        }
        let placed = self.part_with(sample).1;
        placed.part.outline(sample - placed.sample)
    }

    /// Where the member with the number `field` in [`IndexOptions::members`] is; without members, the image has number
    /// 0.
    ///
    /// # Panics
    /// Panics when `sample` is not below [`DatasetIndex::len`], or there is no such member.
    ///
    /// [`IndexOptions::members`]: crate::dataset::IndexOptions::members
    pub fn member(&self, sample: u64, field: usize) -> MemberBytes {
        let placed = self.part_with(sample).1;
        match placed.part.member(sample - placed.sample, field) {
            MemberBytes::Apart(extent) => {
                MemberBytes::Apart(Extent { file: placed.whole(extent.file), ..extent })
            }
            found => found,
        }
    }

    /// Whether the member with the number `field` is packed in its shard, as [`DatasetIndex::member`] counts members.
    /// Only this tells: a file that is kept as it is may begin as a packed image does.
    ///
    /// # Panics
    /// Panics when `sample` is not below [`DatasetIndex::len`], or there is no such member.
    pub(crate) fn is_packed_member(&self, sample: u64, field: usize) -> bool {
        if self.is_stream() {
            return false;
        }
        let placed = self.part_with(sample).1;
        placed.part.is_packed_member(sample - placed.sample, field)
    }

    /// Whether what is read of a sample at once is one packed member.
    ///
    /// # Panics
    /// Panics when `sample` is not below [`DatasetIndex::len`].
    pub(crate) fn is_packed_record(&self, sample: u64) -> bool {
        if self.is_stream() {
            return false;
        }
        let placed = self.part_with(sample).1;
        placed.part.is_packed_record(sample - placed.sample)
    }

    /// Whether some member of a sample lies so far from the others that it is read by itself.
    ///
    /// # Panics
    /// Panics when `sample` is not below [`DatasetIndex::len`].
    pub(crate) fn is_apart(&self, sample: u64) -> bool {
        if self.is_stream() {
            return false;
        }
        let placed = self.part_with(sample).1;
        placed.part.is_apart(sample - placed.sample)
    }
}
