//! Copies brought to another form beside training (`form=`): packed, or with an index. They are kept as they are read,
//! at once; a thread of low priority goes through the files of copies afterwards, and each is replaced as a whole.

mod choose;
mod thread;
mod throttled;

pub use choose::FormChoice;
pub(super) use choose::{FormDecision, FormJob, PACKED};
pub(super) use thread::Converter;
pub use throttled::ThrottledPeriods;

use base::parts::RawOutline;
use data::dataset::DatasetIndex;
use pixels::decode::packed::PackedOutline;
use pixels::decode::{FileForm, FileRestorer, FormMaker, MadeForm, form_of};

/// The most bytes that a copy of a sample of `length` bytes has in any form; what would have more stays as it is.
pub fn most_bytes(length: u32) -> u32 {
    length.saturating_add(length / 4).saturating_add(MOST_HEAD)
}

/// The most bytes that a form adds to each sample, whatever its length.
pub(super) const MOST_HEAD: u32 = 1024;

/// The most bytes that a copy is made to have in a form: three eighths more than the file, where that is less. A head
/// alone may be more than a tiny file, whose copy would take more room than it saves work.
pub(super) fn most_made(length: u32) -> u32 {
    length.saturating_add(length / 8 * 3).min(most_bytes(length))
}

/// About how much memory may be taken to bring a copy to another form: that of an image of 15 megapixels with chroma of
/// half the size. A larger one stays as it is.
const MEMORY: usize = 128 << 20;

/// The form of the bytes that were read of a sample, from its dataset or from a copy. They have the sample's length
/// just where nothing was made of them ([`CopyMaker::make`]); what they begin with says nothing then, since files may
/// begin with anything.
pub fn form_of_record(index: &DatasetIndex, sample: u64, bytes: &[u8]) -> FileForm {
    match bytes.len() == index.extent(sample).length as usize {
        false => form_of(bytes),
        true if index.is_packed_record(sample) => FileForm::Packed,
        true => FileForm::AsIs,
    }
}

/// What a segment keeps of a copy so that parts of it can be read: the outline of an image that was packed for the
/// cache. Of what was packed in the dataset, as a copy of the sample's own length is, the index has the outline.
pub(super) fn outline_to_keep(index: &DatasetIndex, sample: u64, form: FileForm, bytes: &[u8]) -> RawOutline {
    let is_made = bytes.len() != index.extent(sample).length as usize;
    let outline = (is_made && form == FileForm::Packed).then(|| PackedOutline::of(bytes).ok());
    outline.flatten().unwrap_or_default()
}

/// Panics if `bytes` can be no copy of a sample.
pub(super) fn assert_is_copy(index: &DatasetIndex, sample: u64, bytes: &[u8]) {
    let length = index.extent(sample).length;
    let fits = bytes.len() == length as usize
        || bytes.len() <= most_bytes(length) as usize && form_of(bytes) != FileForm::AsIs;
    assert!(fits, "{} bytes of sample {sample}, which has {length}", bytes.len());
}

/// What a tier is asked to do with one of its files of copies.
pub(super) struct Conversion<'a> {
    /// The form that its copies are brought to.
    pub form: MadeForm,
    /// Whether files of copies may leave where the room does not suffice for another form.
    pub may_evict: bool,
    pub maker: &'a mut CopyMaker,
    /// Whether to stop at once.
    pub is_over: &'a dyn Fn() -> bool,
    /// Is told after each sample, so that it can rest.
    pub rest: &'a dyn Fn(),
}

/// What came of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ConversionResult {
    /// Some copies have the form now, or stay as they are for good.
    Some,
    /// There is nothing to do, for now.
    Nothing,
    /// There is nothing to do before another epoch: there was no room, or no form is wanted.
    NotNow,
}

/// Brings copies to forms. It owns the scratch memory.
pub(super) struct CopyMaker {
    maker: FormMaker,
    restorer: FileRestorer,
    made: Vec<u8>,
}

/// A copy in a form.
pub(super) struct MadeCopy<'a> {
    pub bytes: &'a [u8],
    pub form: FileForm,
}

impl Default for CopyMaker {
    fn default() -> Self {
        Self { maker: FormMaker::with_memory(MEMORY), restorer: FileRestorer::default(), made: Vec::new() }
    }
}

impl CopyMaker {
    /// Brings the bytes of a copy in the form `from` to another one. Where that cannot be, or would take too much room,
    /// they stay as they are; and so does what would have as many bytes as the file, whose length tells it from all
    /// that is made of it.
    pub(super) fn make<'a>(&'a mut self, from: FileForm, bytes: &'a [u8], form: MadeForm) -> MadeCopy<'a> {
        let stays = MadeCopy { bytes, form: from };
        if from >= form.into() {
            return stays;
        }
        let Ok(file) = self.restorer.restore(from, bytes) else { return stays };
        let most = u32::try_from(file.len()).map_or(0, most_made) as usize;
        match self.maker.make(form, file, &mut self.made) {
            Ok(()) if self.made.len() <= most && self.made.len() != file.len() => {
                MadeCopy { bytes: &self.made, form: form.into() }
            }
            _ => stays,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A JPEG with columns and rows of this number.
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
        for (side, form) in [(8, FileForm::AsIs), (16, FileForm::AsIs), (128, FileForm::Packed)] {
            let file = jpeg(side);
            let made = maker.make(FileForm::AsIs, &file, MadeForm::Packed);
            assert_eq!(made.form, form, "{side}: {} of {} bytes", made.bytes.len(), file.len());
        }
    }
}
