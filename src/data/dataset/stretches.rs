//! Samples that lie beside one another: the *stretches* that a dataset is cut into, each of which is read at once where
//! an order keeps neighbours near.

use super::{DatasetIndex, Extent, FileBlock, FileId, UNPACKED_KEPT};
use sha2::{Digest, Sha256};

/// The most bytes of a stretch that lies in no compressed block, which is enough for a request to a server to cost
/// little beside its bytes.
pub const MOST_OF_STRETCH: u64 = 4 << 20;
/// The most bytes between two samples of a stretch, which are read along: headers and small fields may lie there, and
/// of a choice of small samples others.
const MOST_BETWEEN: u64 = 64 << 10;

/// A stretch: its first member, and what is read for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stretch {
    /// The number of its first sample among the members.
    first: u64,
    file: FileId,
    /// The first byte, and the one behind the last; addresses in a compressed block.
    start: u64,
    end: u64,
    is_compressed: bool,
}

impl Stretch {
    fn bytes(&self) -> u64 {
        self.end - self.start
    }
}

/// The stretches of the samples that epochs draw from, in the order of the samples.
///
/// A stretch is all samples of a compressed block, or samples that follow one another in a shard, of so many bytes or
/// less with what lies between them. It depends on the dataset and on the choice of samples, and not on where the
/// dataset lies.
#[derive(Debug)]
pub struct Stretches {
    stretches: Vec<Stretch>,
    members: u64,
    digest: [u8; 32],
    /// The numbers of those with several samples that are read at once although they are not compressed, by file and
    /// place.
    by_place: Vec<u32>,
}

impl Stretches {
    /// The stretches of so many `members`, of which `member` gives the samples. Those that lie in no compressed block
    /// have `most` bytes, or are one sample.
    pub fn new(index: &DatasetIndex, members: u64, member: impl Fn(u64) -> u64, most: u64) -> Self {
        let mut stretches: Vec<Stretch> = Vec::new();
        for number in 0..members {
            let extent = index.extent(member(number));
            if let Some(last) = stretches.last_mut()
                && last.takes(extent, most)
            {
                if extent.length > 0 {
                    last.end = last.end.max(extent.offset + u64::from(extent.length));
                }
                continue;
            }
            stretches.push(Stretch::begin(index, number, extent));
        }
        Self::of(stretches, members)
    }

    /// Stretches by the numbers of their members and bytes, of a dataset that is only simulated.
    pub fn simulated(sizes: &[(u64, u64)]) -> Self {
        let (mut stretches, mut first, mut start) = (Vec::new(), 0, 0);
        for (members, bytes) in sizes {
            let end = start + bytes;
            stretches.push(Stretch { first, file: FileId(0), start, end, is_compressed: false });
            (first, start) = (first + members, end);
        }
        Self::of(stretches, first)
    }

    fn of(stretches: Vec<Stretch>, members: u64) -> Self {
        let mut hash = Sha256::new();
        hash.update(b"foreload stretches");
        for stretch in &stretches {
            hash.update(stretch.first.to_le_bytes());
            hash.update(stretch.bytes().to_le_bytes());
        }
        let end_of = |number: usize| stretches.get(number + 1).map_or(members, |next| next.first);
        let plain = |number: &u32| {
            let stretch = &stretches[*number as usize];
            !stretch.is_compressed && end_of(*number as usize) - stretch.first > 1
        };
        let mut by_place: Vec<u32> = (0..stretches.len() as u32).filter(plain).collect();
        by_place.sort_by_key(|&number| {
            let Stretch { file, start, .. } = stretches[number as usize];
            (file.0, start)
        });
        Self { stretches, members, digest: hash.finalize().into(), by_place }
    }

    /// Whether any samples are read together.
    pub fn has_neighbours(&self) -> bool {
        let is_shared = |number: usize| self.members_of(number).count() > 1 && self.bytes_of(number) > 0;
        (self.stretches.len() as u64) < self.members && (0..self.len()).any(is_shared)
    }

    /// The bytes of the largest stretch, if memory has but few as large.
    pub fn few_at_a_time(&self) -> Option<u64> {
        let largest = (0..self.len()).map(|number| self.bytes_of(number)).max()?;
        (largest > UNPACKED_KEPT / 8).then_some(largest)
    }

    /// The number of stretches.
    pub fn len(&self) -> usize {
        self.stretches.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.stretches.is_empty()
    }

    /// The number of the samples of all of them.
    pub fn members(&self) -> u64 {
        self.members
    }

    /// The members of a stretch: the number of the first, and of the one behind the last.
    ///
    /// # Panics
    /// Panics when there is no such stretch.
    pub fn members_of(&self, stretch: usize) -> std::ops::Range<u64> {
        let end = self.stretches.get(stretch + 1).map_or(self.members, |next| next.first);
        self.stretches[stretch].first..end
    }

    /// The stretch that has a member.
    pub fn with_member(&self, member: u64) -> usize {
        self.stretches.partition_point(|stretch| stretch.first <= member) - 1
    }

    /// The bytes of memory that a stretch takes once it is read, and unpacked if it is compressed.
    ///
    /// # Panics
    /// Panics when there is no such stretch.
    pub fn bytes_of(&self, stretch: usize) -> u64 {
        self.stretches[stretch].bytes()
    }

    /// The hash of how samples are cut into stretches.
    pub fn digest(&self) -> &[u8; 32] {
        &self.digest
    }

    /// The stretch, not compressed and of more than this sample, that an extent lies in: its file, its first byte and
    /// its length.
    pub fn around(&self, extent: Extent) -> Option<Extent> {
        let at = self.by_place.partition_point(|&number| {
            let Stretch { file, start, .. } = self.stretches[number as usize];
            (file.0, start) <= (extent.file.0, extent.offset)
        });
        let number = *self.by_place.get(at.checked_sub(1)?)? as usize;
        let Stretch { file, start, end, .. } = self.stretches[number];
        let inside = file == extent.file && extent.offset.checked_add(extent.length.into())? <= end;
        let length = u32::try_from(end - start).ok()?;
        inside.then_some(Extent { file, offset: start, length })
    }
}

impl Stretch {
    fn begin(index: &DatasetIndex, first: u64, extent: Extent) -> Self {
        let Extent { file, offset, length } = extent;
        match index.block(extent).map(|block: FileBlock| block.addresses()) {
            Some(addresses) => {
                Self { first, file, start: addresses.start, end: addresses.end, is_compressed: true }
            }
            None => {
                Self { first, file, start: offset, end: offset + u64::from(length), is_compressed: false }
            }
        }
    }

    /// Whether the sample that follows those it has by now belongs to it. A sample without an image has no bytes, which
    /// lie nowhere.
    fn takes(&self, extent: Extent, most: u64) -> bool {
        let Extent { file, offset, length } = extent;
        if file == self.file && length == 0 {
            return true;
        }
        let end = offset + u64::from(length);
        if self.is_compressed {
            return file == self.file && self.start <= offset && end <= self.end;
        }
        file == self.file
            && self.end <= offset
            && offset - self.end <= MOST_BETWEEN
            && end - self.start <= most
    }
}
