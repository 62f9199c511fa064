//! Makes sure that all members of a sample are read from one version of its shard.
//!
//! Members that lie apart in a shard are read one after another. A reader checks the shard's stamp before and after
//! each read, and takes a shard that was rewritten and holds the same samples for the dataset's from then on. So a
//! sample's members may come from before and from after such a change. Then all of them are read once more.

use base::error::{Error, Result};
use data::dataset::{DatasetIndex, Stamp};
use store::io::{MOST_MOVES, read_blocking};

/// Makes something of all members of `sample`, the first of which are in its `record`, by `make`. If they may have been
/// of two versions, `replace` puts the bytes of the record that was read once more in the place of the old one, and
/// `make` is called again. Returns what was made, and the record that it was made of.
///
/// # Errors
/// The errors of `make` and of reading; [`Error::DatasetChanged`] for a shard that is written to again and again.
pub(crate) fn of_one_version<R, T>(
    index: &DatasetIndex,
    sample: u64,
    mut record: R,
    replace: impl Fn(R, Vec<u8>) -> R,
    mut make: impl FnMut(&R) -> Result<T>,
) -> Result<(T, R)> {
    let mut version = OneVersion::default();
    loop {
        let made = make(&record);
        match version.read_anew(index, sample)? {
            Some(bytes) => record = replace(record, bytes),
            None => return made.map(|made| (made, record)),
        }
    }
}

/// The attempts to read all members of one sample from one version of its shard.
#[derive(Default)]
struct OneVersion {
    /// The stamp of the shard when the latest attempt began; `None` for the first, whose reads began before.
    before: Option<Stamp>,
    /// The number of times that the members were read again.
    repeated: u8,
}

impl OneVersion {
    /// Reads the record of a `sample` once more if its members may be of two versions; else `None`. Call it when all
    /// members have been read, until it returns `None`.
    ///
    /// # Errors
    /// The errors of reading; [`Error::DatasetChanged`] for a shard that is written to again and again.
    fn read_anew(&mut self, index: &DatasetIndex, sample: u64) -> Result<Option<Vec<u8>>> {
        if !index.is_apart(sample) {
            return Ok(None);
        }
        let extent = index.extent(sample);
        let now = index.shard_stamp(extent.file);
        let is_one = match self.before {
            None => !index.has_moved(extent.file),
            before => before == now,
        };
        if is_one {
            return Ok(None);
        }
        if self.repeated >= MOST_MOVES {
            let message = "is written to again and again while a sample is read".to_owned();
            return Err(Error::DatasetChanged { path: index.path(extent.file), message });
        }
        self.repeated += 1;
        self.before = now;
        read_blocking(index, extent).map(Some)
    }
}
