//! The flag `foreload index --decode`: reads and decodes every image and mask completely, on all processors, and lists
//! the damaged images and masks. For packed datasets it reads all members, and compares them with the checksums in the
//! shards' footers.

use super::packed::{MemberSum, PackedSums};
use crate::output;
use base::crc::checksum;
use base::error::{DecodeError, Error, Result};
use data::dataset::kind::IMAGE_EXTENSIONS;
use data::dataset::{DatasetIndex, Extent, FieldKind, IMAGE, Layout, MemberBytes, TableField};
use engine::config::LoaderOptions;
use pixels::decode::{Damaged as Handling, Decoder, Mask, Planes, Region};
use serde::Serialize;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use store::io::read_blocking;

/// The number of consecutive samples that a thread takes at a time. They are neighbours, so shards are read in order.
const CHUNK_SAMPLES: u64 = 16;

#[derive(Debug, Default, Serialize)]
pub(super) struct DecodedImages {
    #[serde(rename = "decoded")]
    pub(super) images: u64,
    /// The number of members of packed datasets, other than images and masks, that were compared with their checksums.
    pub(super) compared: u64,
    pub(super) damaged: Vec<DamagedImage>,
    /// The damaged images that are decoded nevertheless, unless `damaged="refuse"` is set, sorted by sample.
    pub(super) concealed: Vec<DamagedImage>,
    #[serde(skip)]
    pub(super) what: &'static str,
}

/// A damaged image or mask, or another damaged member of a packed dataset.
#[derive(Debug, Serialize)]
pub(super) struct DamagedImage {
    sample_id: u64,
    /// The name of the field of the member; `None` if each sample has one image.
    #[serde(skip_serializing_if = "Option::is_none")]
    member: Option<String>,
    /// The image's file, or its shard. In a packed shard it is joined with the image's original name.
    path: PathBuf,
    offset: u64,
    bytes: u32,
    reason: String,
}

impl DecodedImages {
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

    pub(super) fn describe(&self) -> String {
        let Self { sample_id, member, path, offset, bytes, reason } = self;
        let of = member.as_ref().map_or_else(String::new, |name| format!(", {name:?} of sample {sample_id}"));
        format!("{}{of}, bytes {offset}+{bytes}: {reason}", path.display())
    }
}

struct FoundMember<'a> {
    name: &'a str,
    kind: FieldKind,
    /// Where the member's bytes are. If `known` is an error, where the sample's bytes are.
    extent: Extent,
    /// An error with the reason if the member's bytes cannot be located.
    known: Result<(), DecodeError>,
}

pub(super) struct ImageMembers(Vec<(String, FieldKind)>);

impl ImageMembers {
    /// The main image of each sample, and the other members of `index` that are images or masks by their names.
    pub(super) fn of(index: &DatasetIndex) -> Self {
        let keys: BTreeSet<String> = index
            .summaries()
            .flat_map(|summary| {
                let is_parallel = summary.layout == Layout::Parallel;
                let named = summary.fields.into_iter().filter(move |_| is_parallel).map(|field| field.name);
                summary.keys.into_iter().chain(named)
            })
            .collect();
        let fields: Vec<TableField> = index.summaries().flat_map(|summary| summary.fields).collect();
        let any_own = index.summaries().any(|summary| !summary.notes.imageless);
        let is_own = |key: &String| IMAGE_EXTENSIONS.contains(&key.as_str());
        // If samples have several main images, only the first is decoded as the main image, so decode all of them by
        // name.
        let is_secondary = |key: &String| !is_own(key) || !any_own || index.ambiguous().is_some();
        let image = any_own.then(|| (IMAGE.to_owned(), FieldKind::Image));
        let secondary = keys.into_iter().filter(is_secondary).map(|key| {
            let by_schema = fields.iter().find(|field| field.name == key).map(|field| field.kind);
            let kind = by_schema.unwrap_or_else(|| FieldKind::of_key(&key));
            (key, kind)
        });
        let secondary = secondary.filter(|(_, kind)| matches!(kind, FieldKind::Image | FieldKind::Mask));
        Self(image.into_iter().chain(secondary).collect())
    }

    fn is_single(&self) -> bool {
        matches!(&self.0[..], [(name, _)] if name == IMAGE)
    }

    /// The names of the members with which the index must be opened; `None` if only the main images are decoded.
    pub(super) fn names(&self) -> Option<Vec<String>> {
        (!self.is_single()).then(|| self.0.iter().map(|(name, _)| name.clone()).collect())
    }

    fn of_sample(&self, index: &DatasetIndex, sample: u64) -> Vec<FoundMember<'_>> {
        let record = index.extent(sample);
        let mut found: Vec<FoundMember<'_>> = Vec::new();
        for (number, (name, kind)) in self.0.iter().enumerate() {
            let (extent, known) = match index.member(sample, number) {
                MemberBytes::WholeExtent => (record, Ok(())),
                MemberBytes::InExtent(range) => {
                    let (offset, length) = (record.offset + range.start as u64, range.len() as u32);
                    (Extent { offset, length, ..record }, Ok(()))
                }
                MemberBytes::Separate(extent) => (extent, Ok(())),
                MemberBytes::Ambiguous => {
                    let message = "the sample has two members with this name: keep one";
                    (record, Err(DecodeError::Damaged(message.to_owned())))
                }
                MemberBytes::Absent => continue,
            };
            // The main image is in `found` already. If it also occurs under its own name, skip it.
            if known.is_err() || found.iter().all(|other| other.extent != extent) {
                found.push(FoundMember { name, kind: *kind, extent, known });
            }
        }
        found
    }
}

/// Finds the images and masks of `index` that cannot be read or decoded completely. The index must have been opened
/// with the names of its `members`.
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
            let first = next.fetch_add(CHUNK_SAMPLES, Relaxed);
            let block = first..index.len().min(first.saturating_add(CHUNK_SAMPLES));
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
                // With fewer threads the work only takes longer, so fail only if no thread has started.
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
        // Threads finish in any order. The sort is stable, so findings of one sample stay in the order of decoding.
        list.sort_by_key(|one| one.sample_id);
    }
    Ok(decoded)
}

/// Checks samples one after another. Each thread has its own checker.
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

    fn check(&mut self, sample: u64) -> DecodedImages {
        let (index, members) = (self.index, self.members);
        let Self { sums, decoder, .. } = self;
        let found = members.of_sample(index, sample);
        let (sums, unreadable) = match sums.of_sample(index, sample) {
            Ok(sums) => (sums, None),
            Err(why) => (&[][..], Some(why)),
        };
        let mut checked = DecodedImages::default();
        let is_secondary = |sum: &&MemberSum| found.iter().all(|member| member.extent != sum.extent);
        for sum in sums.iter().filter(is_secondary) {
            checked.compared += 1;
            let read = read_blocking(index, sum.extent);
            if let Err(error) = read.and_then(|bytes| compare(&bytes, sum.checksum)) {
                let path = sum.path.clone();
                checked.damaged.push(DamagedImage::at(sample, sum.extent, path, error.to_string()));
            }
        }
        for FoundMember { name, kind, extent, known } in found {
            let sum = sums.iter().find(|sum| sum.extent == extent);
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

    /// Decodes an image or a mask, and compares its bytes with the checksum `expected` if it is known. Returns the
    /// concealed damage of an image that was decoded nevertheless.
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

fn compare(bytes: &[u8], expected: u32) -> Result<()> {
    match checksum(bytes) == expected {
        true => Ok(()),
        false => {
            let message = "its bytes have changed since they were packed (their checksum differs): pack the dataset \
                           again";
            Err(DecodeError::Damaged(message.to_owned()).into())
        }
    }
}
