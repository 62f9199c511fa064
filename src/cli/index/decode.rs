//! The flag `foreload index --decode`: every image and mask is read and decoded whole, on all processors, and damaged
//! ones are listed. Of packed datasets all members are read, and compared with the checksums in their shards' footers.

use super::packed::{MemberSum, PackedSums};
use crate::output;
use base::crc::checksum;
use base::error::{DecodeError, Error, Result};
use data::dataset::kind::IMAGE_EXTENSIONS;
use data::dataset::{DatasetIndex, Extent, FieldKind, IMAGE, MemberBytes, TableField};
use engine::config::LoaderOptions;
use pixels::decode::{Damaged as Handling, Decoder, Mask, Planes, Region};
use serde::Serialize;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use store::io::read_blocking;

/// The number of samples that a thread takes at a time. They are neighbours, so that shards are read in order.
const AT_ONCE: u64 = 16;

/// The findings in the images and masks of a dataset.
#[derive(Debug, Default, Serialize)]
pub(super) struct DecodedImages {
    /// The number of images and masks that were read.
    #[serde(rename = "decoded")]
    pub(super) images: u64,
    /// The number of further members of packed datasets that were compared with their checksums.
    pub(super) compared: u64,
    /// The images that cannot become part of a batch, by sample.
    pub(super) damaged: Vec<DamagedImage>,
    /// The images that become part of a batch nevertheless, unless `damaged="refuse"` is asked for, by sample.
    pub(super) concealed: Vec<DamagedImage>,
    /// What was decoded, in words.
    #[serde(skip)]
    pub(super) what: &'static str,
}

/// A damaged image or mask, or another damaged member of a packed dataset.
#[derive(Debug, Serialize)]
pub(super) struct DamagedImage {
    /// The sample's number in the index.
    sample_id: u64,
    /// The name of the field that reads it; `None` where samples have one image each.
    #[serde(skip_serializing_if = "Option::is_none")]
    member: Option<String>,
    /// The image's file, or the shard that holds it; in a packed shard, with the name that it had before.
    path: PathBuf,
    /// The offset of the image's bytes in that file.
    offset: u64,
    /// The number of the image's bytes.
    bytes: u32,
    /// What is wrong with the image.
    reason: String,
}

impl DecodedImages {
    /// Adds what was found in a sample.
    fn add(&mut self, of_sample: Self) {
        let Self { images, compared, damaged, concealed, .. } = of_sample;
        self.images += images;
        self.compared += compared;
        self.damaged.extend(damaged);
        self.concealed.extend(concealed);
    }
}

impl DamagedImage {
    fn at(sample_id: u64, extent: Extent, path: PathBuf, reason: String) -> Self {
        let Extent { offset, length: bytes, .. } = extent;
        Self { sample_id, member: None, path, offset, bytes, reason }
    }

    /// Describes the image in one line.
    pub(super) fn describe(&self) -> String {
        let Self { sample_id, member, path, offset, bytes, reason } = self;
        let of = member.as_ref().map_or_else(String::new, |name| format!(", {name:?} of sample {sample_id}"));
        format!("{}{of}, bytes {offset}+{bytes}: {reason}", path.display())
    }
}

/// A member of a sample that is to be decoded.
struct FoundMember<'a> {
    name: &'a str,
    kind: FieldKind,
    /// Where it is, or where its sample is.
    extent: Extent,
    /// Why it cannot be told where it is.
    known: Result<(), DecodeError>,
}

/// The members that are decoded of each sample.
pub(super) struct ImageMembers(Vec<(String, FieldKind)>);

impl ImageMembers {
    /// The samples' own images, and the further members of `index` that are images or masks by their names.
    pub(super) fn of(index: &DatasetIndex) -> Self {
        let keys: BTreeSet<String> = index.summaries().flat_map(|summary| summary.keys).collect();
        let fields: Vec<TableField> = index.summaries().flat_map(|summary| summary.fields).collect();
        let any_own = index.summaries().any(|summary| !summary.notes.imageless);
        let is_own = |key: &String| IMAGE_EXTENSIONS.contains(&key.as_str());
        // Of a sample with several own images, the first alone is its image.
        let is_further = |key: &String| !is_own(key) || !any_own || index.ambiguous().is_some();
        let image = any_own.then(|| (IMAGE.to_owned(), FieldKind::Image));
        let further = keys.into_iter().filter(is_further).map(|key| {
            let by_schema = fields.iter().find(|field| field.name == key).map(|field| field.kind);
            let kind = by_schema.unwrap_or_else(|| FieldKind::of_key(&key));
            (key, kind)
        });
        let further = further.filter(|(_, kind)| matches!(kind, FieldKind::Image | FieldKind::Mask));
        Self(image.into_iter().chain(further).collect())
    }

    /// Whether samples have one image each, which need not be named.
    fn is_single(&self) -> bool {
        matches!(&self.0[..], [(name, _)] if name == IMAGE)
    }

    /// The names of the members that the index must be opened with; `None` where it knows the images already.
    pub(super) fn names(&self) -> Option<Vec<String>> {
        (!self.is_single()).then(|| self.0.iter().map(|(name, _)| name.clone()).collect())
    }

    /// The members of a sample.
    fn of_sample(&self, index: &DatasetIndex, sample: u64) -> Vec<FoundMember<'_>> {
        let record = index.extent(sample);
        let mut found: Vec<FoundMember<'_>> = Vec::new();
        for (number, (name, kind)) in self.0.iter().enumerate() {
            let (extent, known) = match index.member(sample, number) {
                MemberBytes::Whole => (record, Ok(())),
                MemberBytes::Within(range) => {
                    let (offset, length) = (record.offset + range.start as u64, range.len() as u32);
                    (Extent { offset, length, ..record }, Ok(()))
                }
                MemberBytes::Apart(extent) => (extent, Ok(())),
                MemberBytes::Twice => {
                    let message = "the sample has two members of this name: keep one";
                    (record, Err(DecodeError::Damaged(message.to_owned())))
                }
                MemberBytes::Absent => continue,
            };
            // The sample's own image comes first and comes again under its own name.
            if known.is_err() || found.iter().all(|other| other.extent != extent) {
                found.push(FoundMember { name, kind: *kind, extent, known });
            }
        }
        found
    }
}

/// Finds the images and masks of `index` that cannot be read or decoded whole. The index was opened with the names of
/// its `members`.
///
/// # Errors
/// [`Error::Unavailable`] if no thread can be started.
pub(super) fn damaged(index: &DatasetIndex, members: &ImageMembers, threads: usize) -> Result<DecodedImages> {
    let bar = output::bar(index.len(), "samples decoded");
    let has_masks = members.0.iter().any(|(_, kind)| *kind == FieldKind::Mask);
    let what = if has_masks { "images and masks" } else { "images" };
    let (next, decoded) = (AtomicU64::new(0), Mutex::new(DecodedImages { what, ..DecodedImages::default() }));
    let work = || {
        let mut checker = SampleChecker::new(index, members);
        loop {
            let first = next.fetch_add(AT_ONCE, Relaxed);
            let block = first..index.len().min(first.saturating_add(AT_ONCE));
            if block.is_empty() {
                return;
            }
            for sample in block {
                let of_sample = checker.check(sample);
                decoded.lock().unwrap_or_else(PoisonError::into_inner).add(of_sample);
                bar.inc(1);
            }
        }
    };
    std::thread::scope(|scope| {
        for number in 0..threads.max(1) {
            let thread = std::thread::Builder::new().name(format!("foreload-decode-{number}"));
            if let Err(error) = thread.spawn_scoped(scope, work) {
                // Fewer threads do the same work, but none cannot.
                return if number == 0 {
                    Err(Error::Unavailable(format!("no thread could be started: {error}")))
                } else {
                    Ok(())
                };
            }
        }
        Ok(())
    })?;
    bar.finish_and_clear();
    let mut decoded = decoded.into_inner().unwrap_or_else(PoisonError::into_inner);
    for list in [&mut decoded.damaged, &mut decoded.concealed] {
        // Threads finish in any order; those of one sample come in the order in which it was decoded.
        list.sort_by_key(|one| one.sample_id);
    }
    Ok(decoded)
}

/// Checks one sample after another. Each thread has its own.
struct SampleChecker<'a> {
    index: &'a DatasetIndex,
    members: &'a ImageMembers,
    sums: PackedSums,
    decoder: MemberDecoder,
}

impl<'a> SampleChecker<'a> {
    fn new(index: &'a DatasetIndex, members: &'a ImageMembers) -> Self {
        Self { index, members, sums: PackedSums::default(), decoder: MemberDecoder::new() }
    }

    /// Reads a sample, and returns what was found in it.
    fn check(&mut self, sample: u64) -> DecodedImages {
        let (index, members) = (self.index, self.members);
        let Self { sums, decoder, .. } = self;
        let found = members.of_sample(index, sample);
        let (sums, unreadable) = match sums.of_sample(index, sample) {
            Ok(sums) => (sums, None),
            Err(why) => (&[][..], Some(why)),
        };
        let mut checked = DecodedImages::default();
        let is_further = |sum: &&MemberSum| found.iter().all(|member| member.extent != sum.extent);
        for sum in sums.iter().filter(is_further) {
            checked.compared += 1;
            let read = read_blocking(index, sum.extent);
            if let Err(error) = read.and_then(|bytes| compare(&bytes, sum.checksum)) {
                let path = sum.path.clone();
                checked.damaged.push(DamagedImage::at(sample, sum.extent, path, error.to_string()));
            }
        }
        for FoundMember { name, kind, extent, known } in found {
            let sum = sums.iter().find(|sum| sum.extent == extent);
            // A shard whose footer cannot be read says nothing of any of its members.
            let unreadable = unreadable.clone().map(|why| Err(DecodeError::Damaged(why)));
            let outcome = unreadable.unwrap_or(known).map_err(Error::from);
            let expected = sum.map(|sum| sum.checksum);
            let outcome = outcome.and_then(|()| decoder.decode(index, extent, kind, expected));
            checked.images += 1;
            let (list, reason) = match outcome {
                Ok(None) => continue,
                Ok(Some(reason)) => (&mut checked.concealed, reason),
                Err(error) => (&mut checked.damaged, error.to_string()),
            };
            let path = sum.map_or_else(|| index.path(extent.file), |sum| sum.path.clone());
            let member = (!members.is_single()).then(|| name.to_owned());
            list.push(DamagedImage { member, ..DamagedImage::at(sample, extent, path, reason) });
        }
        checked
    }
}

/// What a thread decodes with.
struct MemberDecoder {
    max_pixels: u64,
    decoder: Decoder,
    planes: Planes,
}

impl MemberDecoder {
    fn new() -> Self {
        let max_pixels = LoaderOptions::default().max_pixels;
        let decoder = Decoder::new(max_pixels).with_damaged(Handling::Conceal);
        Self { max_pixels, decoder, planes: Planes::default() }
    }

    /// Decodes an image or a mask, whose bytes have the checksum `expected` where one is known; returns what was
    /// concealed if it is damaged and can be decoded.
    fn decode(
        &mut self,
        index: &DatasetIndex,
        extent: Extent,
        kind: FieldKind,
        expected: Option<u32>,
    ) -> Result<Option<String>> {
        let bytes = read_blocking(index, extent)?;
        expected.map_or(Ok(()), |expected| compare(&bytes, expected))?;
        if kind == FieldKind::Mask {
            Mask::decode(&bytes, self.max_pixels)?;
            return Ok(None);
        }
        let whole = |width, height| Region { x: 0, y: 0, width, height };
        Ok(self.decoder.decode(&bytes, whole, &mut self.planes)?.concealed)
    }
}

/// Compares bytes with the checksum that they had when they were packed.
fn compare(bytes: &[u8], expected: u32) -> Result<()> {
    match checksum(bytes) == expected {
        true => Ok(()),
        false => {
            let message =
                "its bytes have another checksum than when they were packed: pack the dataset again";
            Err(DecodeError::Damaged(message.to_owned()).into())
        }
    }
}
