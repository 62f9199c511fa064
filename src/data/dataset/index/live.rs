//! The index of a stream, which has no parts: its samples come and go while a run uses them, and someone else knows
//! them.

use super::super::classes::Classes;
use super::super::selected_members::{IMAGE, MemberBytes};
use super::super::{Extent, FileId, Fingerprint, IndexOptions, UnpackedBlocks};
use super::DatasetIndex;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The samples of a stream that are in use. Whoever makes batches of them sees to it that they are known until their
/// batch is done.
pub trait LiveSamples: Send + Sync {
    /// What the stream is called in messages.
    fn name(&self) -> &Path;
    /// What stands for the order of a stream and for no other: states and random numbers are bound to it.
    fn fingerprint(&self) -> Fingerprint;
    /// The number of bytes of the largest sample that may come, and of one of usual size.
    fn sizes(&self) -> (u32, u32);
    /// The bytes of a sample: all of its members, behind a table of them.
    fn extent(&self, sample: u64) -> Extent;
    /// The class of a sample; 0 where it has none.
    fn label(&self, sample: u64) -> u32;
    /// Where a member lies in the bytes of a sample, by its name or its choice of names; [`IMAGE`] is whichever image.
    fn member(&self, name: &str, record: &[u8]) -> Option<Range<usize>>;
    /// What messages call a sample.
    fn shown(&self, sample: u64) -> PathBuf;
    /// The path of a file that samples lie in.
    fn path(&self, file: FileId) -> PathBuf;
}

impl DatasetIndex {
    /// The index of a stream. Its samples have the classes called `classes`, or numbers alone where these are none.
    pub fn of_stream(live: Arc<dyn LiveSamples>, classes: Vec<String>, options: &IndexOptions) -> Self {
        let labeled = !options.without_labels;
        Self {
            parts: Vec::new(),
            classes: Classes::of_stream(classes, labeled),
            samples: 0,
            files: 0,
            notices: options.notices.clone(),
            members: options.members.clone(),
            unpacked: UnpackedBlocks::default(),
            live: Some(live),
        }
    }

    /// Whether it is the index of a stream.
    pub fn is_stream(&self) -> bool {
        self.live.is_some()
    }

    /// Where the member with the number `field` is, like [`DatasetIndex::member`], of a sample that was read: the
    /// `record` of a sample of a stream says so itself.
    pub fn member_in(&self, sample: u64, field: usize, record: &[u8]) -> MemberBytes {
        let Some(live) = &self.live else { return self.member(sample, field) };
        let name = self.members.as_ref().map_or(IMAGE, |members| &members[field]);
        live.member(name, record).map_or(MemberBytes::Absent, MemberBytes::Within)
    }
}
