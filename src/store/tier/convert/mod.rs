//! Converts copies to another storage format during training (`form=`): packed, or with an index.
//!
//! A sample is kept at once, in the storage format in which it is read. Later, a thread of low priority converts the
//! copies, one segment (a file or a block of memory) at a time. The new segment replaces the former segment, which
//! stays until every process has loaded the new one. A lock keeps two processes from converting the same segment.
//!
//! Each row of a segment's table has the storage format of the sample's bytes and the format of the last attempted
//! conversion, so that no conversion is tried twice. A reader of a copy detects the storage format from the bytes. A
//! slot has space for the longest copy that any storage format of a sample may have. If a conversion would be longer,
//! the copy stays as it is.

mod choose;
mod thread;
mod throttled;

pub use choose::FormChoice;
pub(super) use choose::{FormatDecision, FormatFacts, PACKED};
pub(super) use thread::Converter;
pub use throttled::ThrottledPeriods;

use base::parts::RawHeaderSummary;
use data::dataset::DatasetIndex;
use pixels::decode::packed::PackedHeaderSummary;
use pixels::decode::{ConvertedFormat, FileRestorer, FormatConverter, StorageFormat, storage_format_of};

/// Returns the maximum size in bytes of a copy, in any storage format, for a sample of `length` bytes. If a conversion
/// would be larger, the copy stays as it is.
pub fn most_bytes(length: u32) -> u32 {
    length.saturating_add(length / 4).saturating_add(MAX_HEAD)
}

/// The maximum number of bytes that a storage format adds to a sample, independently of its length.
pub(super) const MAX_HEAD: u32 = 1024;

/// Returns the maximum size in bytes of a converted copy: three eighths more than the file, but at most [`most_bytes`].
/// This excludes tiny files: for them, the head that a format adds is large, and a conversion saves little work.
pub(super) fn max_converted_bytes(length: u32) -> u32 {
    length.saturating_add(length / 8 * 3).min(most_bytes(length))
}

/// The approximate memory for one conversion, in bytes. It suffices for 15 megapixels with chroma of half the size. A
/// larger image stays as it is.
const MEMORY: usize = 128 << 20;

/// Returns the storage format of a sample's bytes, which were read from the dataset or from a copy.
///
/// If the bytes have the length that the index gives for the sample, they were not converted (see [`CopyMaker::make`]).
/// Their content must then not be examined, because a file may begin with any bytes.
pub fn form_of_record(index: &DatasetIndex, sample: u64, bytes: &[u8]) -> StorageFormat {
    match bytes.len() == index.extent(sample).length as usize {
        false => storage_format_of(bytes),
        true if index.is_packed_record(sample) => StorageFormat::Packed,
        true => StorageFormat::AsIs,
    }
}

/// Returns the summary of the header that a segment stores with a copy, so that parts of the copy can be read. Only
/// images that were packed for the cache have one. For an image that is packed in the dataset, the index has the
/// summary.
pub(super) fn summary_to_keep(
    index: &DatasetIndex,
    sample: u64,
    form: StorageFormat,
    bytes: &[u8],
) -> RawHeaderSummary {
    let is_made = bytes.len() != index.extent(sample).length as usize;
    let header_summary =
        (is_made && form == StorageFormat::Packed).then(|| PackedHeaderSummary::of(bytes).ok());
    header_summary.flatten().unwrap_or_default()
}

pub(super) fn assert_is_copy(index: &DatasetIndex, sample: u64, bytes: &[u8]) {
    let length = index.extent(sample).length;
    let fits = bytes.len() == length as usize
        || bytes.len() <= most_bytes(length) as usize && storage_format_of(bytes) != StorageFormat::AsIs;
    assert!(fits, "{} bytes of sample {sample}, which has {length}", bytes.len());
}

pub(super) struct Conversion<'a> {
    pub form: ConvertedFormat,
    /// Whether segments may be evicted if there is no space for the conversion.
    pub may_evict: bool,
    pub maker: &'a mut CopyMaker,
    /// Returns true if the conversion must stop at once.
    pub is_over: &'a dyn Fn() -> bool,
    /// Called after each sample, so that the thread can pause.
    pub rest: &'a dyn Fn(),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ConversionResult {
    /// Some copies were converted, or were found to be inconvertible.
    Some,
    /// There is nothing to convert at present.
    Nothing,
    /// There is nothing to convert before the next epoch: there was no space, or no conversion is wanted.
    NotNow,
}

pub(super) struct CopyMaker {
    maker: FormatConverter,
    restorer: FileRestorer,
    made: Vec<u8>,
}

pub(super) struct ConvertedCopy<'a> {
    pub bytes: &'a [u8],
    pub form: StorageFormat,
}

impl Default for CopyMaker {
    fn default() -> Self {
        Self {
            maker: FormatConverter::with_memory(MEMORY),
            restorer: FileRestorer::default(),
            made: Vec::new(),
        }
    }
}

impl CopyMaker {
    /// Converts the bytes of a copy from the storage format `from` to `form`. Returns the original bytes if the
    /// conversion is impossible or takes too much space. A result with exactly the length of the file is discarded,
    /// too, because the length distinguishes the file from its conversions.
    pub(super) fn make<'a>(
        &'a mut self,
        from: StorageFormat,
        bytes: &'a [u8],
        form: ConvertedFormat,
    ) -> ConvertedCopy<'a> {
        let stays = ConvertedCopy { bytes, form: from };
        if from >= form.into() {
            return stays;
        }
        let Ok(file) = self.restorer.restore(from, bytes) else { return stays };
        let most = u32::try_from(file.len()).map_or(0, max_converted_bytes) as usize;
        match self.maker.make(form, file, &mut self.made) {
            Ok(()) if self.made.len() <= most && self.made.len() != file.len() => {
                ConvertedCopy { bytes: &self.made, form: form.into() }
            }
            _ => stays,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn jpeg(side: u16) -> Vec<u8> {
        let (mut file, mut seed) = (Vec::new(), 1u32);
        let gray: Vec<u8> = (0..u32::from(side) * u32::from(side))
            .map(|_| {
                seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                (seed >> 24) as u8
            })
            .collect();
        let encoder = jpeg_encoder::Encoder::new(&mut file, 60);
        encoder
            .encode(&gray, side, side, jpeg_encoder::ColorType::Luma)
            .expect("an image that can be encoded");
        file
    }

    #[test]
    fn a_tiny_file_stays_as_it_is_and_a_larger_one_is_packed() {
        let mut maker = CopyMaker::default();
        for (side, form) in
            [(8, StorageFormat::AsIs), (16, StorageFormat::AsIs), (128, StorageFormat::Packed)]
        {
            let file = jpeg(side);
            let made = maker.make(StorageFormat::AsIs, &file, ConvertedFormat::Packed);
            assert_eq!(made.form, form, "{side}: {} of {} bytes", made.bytes.len(), file.len());
        }
    }
}
