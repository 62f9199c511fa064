//! The index of a stream, which has no datasets (`parts`). Samples are added and removed during a run. A
//! [`StreamSamples`] supplies them.

use super::super::classes::Classes;
use super::super::selected_members::{IMAGE, MemberBytes};
use super::super::{BlockCache, Extent, FileId, Fingerprint, IndexOptions};
use super::DatasetIndex;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The samples of a stream that are in use. The code that makes batches keeps a sample available until its batch is
/// done.
pub trait StreamSamples: Send + Sync {
    /// The name of the stream, for messages.
    fn name(&self) -> &Path;
    /// Identifies the order of this stream. Checkpoint states and random numbers depend on the fingerprint.
    fn fingerprint(&self) -> Fingerprint;
    /// The number of bytes of the largest sample that can arrive, and of a sample of usual size.
    fn sizes(&self) -> (u32, u32);
    /// The location of a sample's bytes: a table of its members, followed by all members.
    fn extent(&self, sample: u64) -> Extent;
    /// The class number of a sample; 0 if it has no class.
    fn label(&self, sample: u64) -> u32;
    /// The range of a member in `record`, the bytes of a sample. `name` is the member's name, or alternative names
    /// (`a;b`). [`IMAGE`] selects any image.
    fn member(&self, name: &str, record: &[u8]) -> Option<Range<usize>>;
    /// The name of a sample, for messages.
    fn shown(&self, sample: u64) -> PathBuf;
    /// The path of a file that holds samples.
    fn path(&self, file: FileId) -> PathBuf;
}

impl DatasetIndex {
    /// The index of a stream. `classes` are the class names; if the list is empty, classes have only numbers.
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

    /// Whether this is the index of a stream.
    pub fn is_stream(&self) -> bool {
        self.live.is_some()
    }

    /// Locates the member with index `field` in a sample that was read, like [`DatasetIndex::member`]. For a stream,
    /// the location is found in `record`, the bytes of the sample.
    pub fn member_in(&self, sample: u64, field: usize, record: &[u8]) -> MemberBytes {
        let Some(live) = &self.live else { return self.member(sample, field) };
        let name = self.members.as_ref().map_or(IMAGE, |members| &members[field]);
        live.member(name, record).map_or(MemberBytes::Absent, MemberBytes::InExtent)
    }
}
