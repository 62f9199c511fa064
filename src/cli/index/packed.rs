//! The members listed in the footers of packed shards: the place, checksum and original name of each.

use base::error::Result;
use data::dataset::{DatasetIndex, Extent, FileId};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

pub(super) struct MemberSum {
    pub(super) extent: Extent,
    pub(super) checksum: u32,
    /// The shard, joined with the name that the member had before packing.
    pub(super) path: PathBuf,
}

/// The members of the packed shard that was read last, by sample. Neighbouring samples are in one shard, so footers are
/// rarely read. Each thread has its own copy.
#[derive(Default)]
pub(super) struct PackedSums {
    of: Option<FileId>,
    members: Vec<Vec<MemberSum>>,
}

impl PackedSums {
    /// The members of a sample; empty if the sample is not in a packed shard. The error is the reason why the shard's
    /// footer cannot be read.
    pub(super) fn of_sample(&mut self, index: &DatasetIndex, sample: u64) -> Result<&[MemberSum], String> {
        let file = index.extent(sample).file;
        if self.of != Some(file) {
            self.of = None;
            self.members = members(index, file).map_err(|error| error.to_string())?;
            self.of = Some(file);
        }
        let number = (sample - index.samples_of(file).start) as usize;
        Ok(self.members.get(number).map_or(&[], Vec::as_slice))
    }
}

fn members(index: &DatasetIndex, file: FileId) -> Result<Vec<Vec<MemberSum>>> {
    let Some(footer) = index.packed_footer(file)? else { return Ok(Vec::new()) };
    let shard = index.path(file);
    let of_sample = footer.by_sample().map(|(_, members)| {
        let sums = members.into_iter().map(|(member, name)| MemberSum {
            extent: Extent { file, offset: member.offset, length: member.length },
            checksum: member.checksum,
            path: match name.strip_prefix(b"/").unwrap_or(name) {
                [] => shard.clone(),
                name => shard.join(OsStr::from_bytes(name)),
            },
        });
        sums.collect()
    });
    Ok(of_sample.collect())
}
