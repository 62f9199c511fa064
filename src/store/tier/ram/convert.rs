//! Converts a block: the new bytes of its samples go into blocks of the new storage format, and the block is freed.

use super::super::catalog::SegmentIndex;
use super::super::convert::{Conversion, ConversionResult, form_of_record};
use super::super::copies::{ConvertibleTier, Offer};
use super::{BlockKind, OpenBlock, RamBlock, RamShared};
use base::counting::count;
use base::crc::checksum;
use base::locks::{lock, read_lock};
use data::dataset::{Extent, FileId, FileVersion};
use pixels::decode::StorageFormat;
use std::collections::HashMap;
use std::sync::Arc;

struct ConvertedSample {
    sample: u64,
    version: FileVersion,
    form: StorageFormat,
    bytes: Vec<u8>,
}

struct ChosenBlock {
    segment: SegmentIndex,
    group: u64,
    block: Arc<RamBlock>,
    open: Option<OpenBlock>,
}

impl ConvertibleTier for RamShared {
    /// Converts the samples of one block that has samples whose conversion was not tried.
    fn convert(&self, conversion: &mut Conversion<'_>) -> ConversionResult {
        let form = conversion.form.into();
        let Some(ChosenBlock { segment, group, block, open }) = self.unconverted(form) else {
            return ConversionResult::Nothing;
        };
        let Some(made) = self.make(segment, &block, conversion) else { return ConversionResult::Nothing };
        let formed = made.iter().filter(|sample| sample.form == form).count();
        let kept = (made.len() - formed) as u64;
        let counted = open.as_ref().map_or(0, |open| open.unconvertible);
        if formed == 0 {
            // No sample of the block can be converted, but the block may have space for more samples.
            self.catalog_mut().set_last_target(segment, form);
            count(&self.counters.unconvertible_samples, kept.saturating_sub(counted));
            if let Some(open) = open {
                let open = OpenBlock { unconvertible: kept, ..open };
                lock(&self.filling).open.entry((group, StorageFormat::AsIs)).or_default().push(open);
            }
            return ConversionResult::Some;
        }
        for sample in &made {
            // If there is no space for the new copy next to the old one, this sample and all later samples of the block
            // stay unconverted for now.
            if self.put(segment, (group, form), sample).is_err() {
                return ConversionResult::NotNow;
            }
            count(&self.counters.converted_samples, u64::from(sample.form == form));
        }
        self.free(segment);
        count(&self.counters.unconvertible_samples, kept.saturating_sub(counted));
        ConversionResult::Some
    }

    /// Reserves nothing: converted samples go into other blocks.
    fn reserve_for_conversion(&self, _wanted: bool) -> bool {
        true
    }
}

impl RamShared {
    /// Chooses a block with samples whose conversion to this storage format was not tried. Blocks that are no longer
    /// filled come first. Next come open blocks that are at least half full and, if memory is left, open blocks that
    /// got no sample since an epoch ended. A chosen open block is not filled any more. Each class of samples has
    /// separate blocks, so most blocks never become full.
    fn unconverted(&self, form: StorageFormat) -> Option<ChosenBlock> {
        let mut filling = lock(&self.filling);
        let waiting: Vec<_> =
            self.catalog().live().filter(|(_, segment)| segment.last_target < form).collect();
        let is_ripe = |open: &OpenBlock| {
            2 * open.used as u64 >= self.block_bytes || open.idle_since_epoch && !filling.full
        };
        let open: HashMap<SegmentIndex, bool> =
            filling.open.values().flatten().map(|open| (open.segment, is_ripe(open))).collect();
        let is_closed = |(index, _): &&(SegmentIndex, _)| !open.contains_key(index);
        let is_ripe = |(index, _): &&(SegmentIndex, _)| open.get(index).copied().unwrap_or(false);
        let chosen = waiting.iter().find(is_closed).or_else(|| waiting.iter().find(is_ripe));
        let (segment, group) = chosen.map(|(index, segment)| (*index, segment.group))?;
        let open = filling.open.values_mut().find_map(|blocks| {
            let at = blocks.iter().position(|open| open.segment == segment)?;
            Some(blocks.remove(at))
        });
        let blocks = read_lock(&self.blocks);
        Some(ChosenBlock { segment, group, block: blocks.get(&segment)?.clone(), open })
    }

    /// Converts the samples of a block; `None` if the thread must stop or a sample is damaged.
    fn make(
        &self,
        segment: SegmentIndex,
        block: &RamBlock,
        conversion: &mut Conversion<'_>,
    ) -> Option<Vec<ConvertedSample>> {
        let samples = lock(&block.samples).clone();
        let mut all = Vec::with_capacity(samples.len());
        for sample in samples {
            if (conversion.is_over)() {
                return None;
            }
            let place = self.catalog().locate(sample).map(|(place, _)| place);
            let Some(place) = place.filter(|place| place.segment == segment) else { continue };
            let (offset, length) = (place.offset, place.length);
            let extent = Extent { file: FileId(segment), offset: offset.into(), length };
            let bytes = self.read(&extent, <[u8]>::to_vec).ok()?;
            if checksum(&bytes) != place.crc {
                self.note_damage(segment, sample);
                return None;
            }
            let version = place.version();
            let form = form_of_record(&self.index, sample, &bytes);
            let made = conversion.maker.make(form, &bytes, conversion.form);
            let fits = made.bytes.len() as u64 <= self.block_bytes;
            let (form, bytes) = if fits { (made.form, made.bytes.to_vec()) } else { (form, bytes) };
            all.push(ConvertedSample { sample, version, form, bytes });
            (conversion.rest)();
        }
        Some(all)
    }

    /// Enters a converted sample in place of its copy in the block `former`. Enters nothing if the sample has left that
    /// block.
    fn put(
        &self,
        former: SegmentIndex,
        kind: BlockKind,
        ConvertedSample { sample, version, form, bytes }: &ConvertedSample,
    ) -> Result<(), Offer> {
        let here = || self.catalog().locate(*sample).map(|(place, _)| place.segment);
        let (_filling, place) = match self.place(kind, bytes.len(), || here() != Some(former)) {
            Ok(placed) => placed,
            Err(Offer::Present) => return Ok(()),
            Err(offer) => return Err(offer),
        };
        let row = place.fill((*sample, *version), (*form, kind.1), bytes);
        let mut catalog = self.catalog_mut();
        catalog.replace(former, place.segment, &[row]);
        Ok(())
    }
}
