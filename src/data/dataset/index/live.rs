//! The index of a stream. It has no parts. Its samples come and go during a run, and a [`StreamSamples`] supplies them.

use super::super::classes::Classes;
use super::super::selected_members::{IMAGE, MemberBytes};
use super::super::{BlockCache, Extent, FileId, Fingerprint, IndexOptions};
use super::DatasetIndex;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The samples of a stream that are in use. The code that makes batches of them keeps them available until their batch
/// is done.
pub trait StreamSamples: Send + Sync {
    /// The stream's name in messages.
    fn name(&self) -> &Path;
    /// Identifies the order of this stream. States and random numbers depend on it.
    fn fingerprint(&self) -> Fingerprint;
    /// The number of bytes of the largest sample that may arrive, and of a sample of usual size.
    fn sizes(&self) -> (u32, u32);
    /// The bytes of a sample: a table of its members, then all of the members.
    fn extent(&self, sample: u64) -> Extent;
    /// The class of a sample; 0 if it has none.
    fn label(&self, sample: u64) -> u32;
    /// The range of a member in the bytes of a sample, by its name or by alternative names (`a;b`). [`IMAGE`] selects
    /// any image.
    fn member(&self, name: &str, record: &[u8]) -> Option<Range<usize>>;
    /// The name of a sample in messages.
    fn shown(&self, sample: u64) -> PathBuf;
    /// The path of a file that holds samples.
    fn path(&self, file: FileId) -> PathBuf;
}

impl DatasetIndex {
    /// The index of a stream. `classes` are the names of its classes; if it is empty, classes are numbers.
    pub fn of_stream(live: Arc<dyn StreamSamples>, classes: Vec<String>, options: &IndexOptions) -> Self {
        let labeled = !options.without_labels;
        Self {
            parts: Vec::new(),
            classes: Classes::of_stream(classes, labeled),
            samples: 0,
            files: 0,
            notices: options.notices.clone(),
            members: options.members.clone(),
            unpacked: BlockCache::default(),
            live: Some(live),
        }
    }

    /// Whether it is the index of a stream.
    pub fn is_stream(&self) -> bool {
        self.live.is_some()
    }

    /// Locates the member with the number `field`, like [`DatasetIndex::member`], in a sample that was read. For a
    /// stream, the bytes in `record` give the location.
    pub fn member_in(&self, sample: u64, field: usize, record: &[u8]) -> MemberBytes {
        let Some(live) = &self.live else { return self.member(sample, field) };
        let name = self.members.as_ref().map_or(IMAGE, |members| &members[field]);
        live.member(name, record).map_or(MemberBytes::Absent, MemberBytes::Within)
    }
}
