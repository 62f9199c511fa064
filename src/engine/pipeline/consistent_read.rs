//! Makes sure that all members of a sample are read from one version of its shard.
//!
//! Members that are stored apart in a shard are read one after another. A reader checks the shard's stamp before and
//! after each read. If a shard was rewritten with the same samples, the reader accepts the new version and reads it
//! from then on. So some members of a sample can be from the old version and others from the new version. In that case
//! all members are read again. (→ tests/load/one_version.rs)

use base::error::{Error, Result};
use data::dataset::{DatasetIndex, Stamp};
use store::io::{MAX_RESTARTS, read_blocking};

/// Calls `make`, which makes a value from all members of `sample`. `record` holds the first members, and `make` reads
/// the others. If the members may be of two versions, the record is read again, `replace` exchanges its bytes, and
/// `make` is called again. Returns the value, and the record that it was made from.
///
/// # Errors
/// The errors of `make` and of reading; [`Error::DatasetChanged`] for a shard that keeps changing.
pub(crate) fn read_consistently<R, T>(
    index: &DatasetIndex,
    sample: u64,
    mut record: R,
    replace: impl Fn(R, Vec<u8>) -> R,
    mut make: impl FnMut(&R) -> Result<T>,
) -> Result<(T, R)> {
    // The stamp of the shard when the latest attempt began; `None` for the first attempt.
    let mut before: Option<Stamp> = None;
    let mut repeated = 0;
    loop {
        let made = make(&record);
        if !index.is_apart(sample) {
            return made.map(|made| (made, record));
        }
        let extent = index.extent(sample);
        let now = index.shard_stamp(extent.file);
        let is_one = match before {
            None => !index.has_moved(extent.file),
            before => before == now,
        };
        if is_one {
            return made.map(|made| (made, record));
        }
        if repeated >= MAX_RESTARTS {
            let message = "keeps changing while a sample is read".to_owned();
            return Err(Error::DatasetChanged { path: index.path(extent.file), message });
        }
        repeated += 1;
        before = now;
        record = replace(record, read_blocking(index, extent)?);
    }
}
