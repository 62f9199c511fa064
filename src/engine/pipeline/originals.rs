//! Finds or rebuilds the original file of an image that is stored in another format. Foreload's decoders read these
//! formats directly; all other code needs the original file. An indexed image contains the file as a range of its
//! bytes. From a packed image the file is rebuilt and checked.

use super::{context::SampleContext, run::EpochRun};
use base::error::DecodeError;
use data::dataset::MemberBytes;
use pixels::decode::{FileRestorer, RestoredFile, StorageFormat};
use std::sync::atomic::Ordering;
use store::tier::form_of_record;

#[derive(Default)]
pub(crate) struct OriginalFiles(FileRestorer);

impl OriginalFiles {
    /// Finds the file that `bytes` of this storage format were made from. A file that had to be rebuilt is counted.
    ///
    /// # Errors
    /// [`DecodeError::Corrupt`] for a damaged image that is not stored as its original file.
    pub(crate) fn find(
        &mut self,
        run: &EpochRun,
        form: StorageFormat,
        bytes: &[u8],
    ) -> Result<RestoredFile<'_>, DecodeError> {
        let found = self.0.find(form, bytes)?;
        if let RestoredFile::Rebuilt(_) = found {
            run.counters.rebuilt.fetch_add(1, Ordering::Relaxed);
        }
        Ok(found)
    }

    /// Like [`OriginalFiles::find`], but returns the bytes of the original file: a range of `bytes`, or the rebuilt
    /// file. `form` is the storage format of `bytes`.
    ///
    /// # Errors
    /// [`DecodeError::Corrupt`] for a damaged image that is not stored as its original file.
    pub(crate) fn restore<'a>(
        &'a mut self,
        run: &EpochRun,
        form: StorageFormat,
        bytes: &'a [u8],
    ) -> Result<&'a [u8], DecodeError> {
        Ok(match self.find(run, form, bytes)? {
            RestoredFile::InPlace(range) => &bytes[range],
            RestoredFile::Rebuilt(file) => file,
        })
    }
}

pub(crate) fn form_of_member(
    context: &SampleContext,
    sample: u64,
    member: usize,
    bytes: &[u8],
) -> StorageFormat {
    if context.index.is_stream() {
        return StorageFormat::AsIs;
    }
    match context.index.member(sample, member) {
        MemberBytes::WholeExtent => form_of_record(&context.index, sample, bytes),
        _ if context.index.is_packed_member(sample, member) => StorageFormat::Packed,
        // A cache keeps samples with several members as they were read.
        _ => StorageFormat::AsIs,
    }
}
