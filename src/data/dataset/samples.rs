//! Samples of a tar shard: the members that share a stem, wherever they are in the shard.
//!
//! WebDataset requires the members of a sample to be adjacent. In archives made with `tar --sort=name` or type by type,
//! or with labels appended later, the members of a sample are not adjacent. So indexing keeps all stems of a shard in
//! memory. Each stem takes the bytes of its name and at most 200 bytes more; each member takes 16 bytes.

use super::Notes;
use super::archive::{TarMember, TarMembers};
use super::build::{SampleRow, ShardRows};
use super::class_names::ClassNames;
use super::ignored::ignored_member;
use super::kind::{FieldKind, image_rank};
use super::labels::{Label, LabelMembers, reduced};
use super::left_out::SkipReason;
use super::member::{MemberPlace, MemberRow};
use super::packed::{PackedFooter, ShardIdentity};
use super::shards::refuse_compressed;
use crate::source::{Malformed, ReadAt};
use std::collections::HashMap;
use std::num::NonZeroU64;
use std::rc::Rc;

/// The samples of a shard, and other facts about it.
#[derive(Debug, Default)]
pub struct ShardContents {
    /// The samples.
    pub rows: ShardRows,
    /// Other facts about the shard.
    pub findings: ShardFindings,
}

/// Facts about a shard, other than its samples.
#[derive(Debug, Default)]
pub struct ShardFindings {
    /// Notes on skipped files and members.
    pub notes: Notes,
    /// The name or index of the first sample without a label; `None` if all samples have labels.
    pub unlabeled: Option<String>,
    /// The name or index of the first sample with a label; `None` if no sample has a label.
    pub labeled: Option<String>,
    /// What is wrong with the first label that is not a class number.
    pub unusable: Option<String>,
    /// Whether any sample has an image.
    pub has_images: bool,
    /// The column of a table that holds the labels.
    pub label_column: Option<String>,
    /// The class names by class number; empty if classes have no names.
    pub classes: Vec<String>,
    /// Whether the class names are values of the samples. If so, the names are not sorted, and other shards can have
    /// other names. If not, a schema defines the names.
    pub classes_are_values: bool,
    /// The smallest label of a table's samples.
    pub smallest_label: Option<u32>,
    /// The footer and the identity of a packed shard. A packed shard has no other findings.
    pub(super) packed: Option<(PackedFooter, ShardIdentity)>,
}

/// The members of one stem. The struct is kept small, because there is one for each stem of a shard.
#[derive(Default)]
struct StemMembers {
    members: Vec<MemberAt>,
    /// The label that the sample's label member (`.cls` unless the user chose another) holds, or else its `.json`
    /// member.
    label: Label,
}

#[derive(Clone, Copy)]
struct MemberAt {
    offset: NonZeroU64,
    length: u32,
    key: u32,
}

impl StemMembers {
    fn find(&self, key: u32) -> Result<usize, usize> {
        self.members.binary_search_by_key(&key, |found| found.key)
    }
}

/// The keys of a shard, numbered in the order of their appearance.
#[derive(Default)]
struct Keys {
    numbers: HashMap<Rc<[u8]>, u32>,
    list: Vec<Rc<[u8]>>,
}

impl Keys {
    fn number(&mut self, key: &[u8]) -> u32 {
        if let Some(&number) = self.numbers.get(key) {
            return number;
        }
        let (key, number) = (Rc::<[u8]>::from(key), self.list.len() as u32);
        self.list.push(key.clone());
        self.numbers.insert(key, number);
        number
    }
}

/// Which stems of a shard become samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stems {
    /// Stems with an image are samples.
    WithImage,
    /// All stems are samples.
    All,
}

/// Finds the samples of a shard without reading their images.
///
/// # Errors
/// [`Malformed`] for an archive that is damaged, truncated or compressed. Also for an image of 4 GiB or more, and for a
/// sample that has its image, `.cls` or `.json` twice.
pub fn contents<S: ReadAt + ?Sized>(source: &S, wanted: Stems) -> Result<ShardContents, Malformed> {
    contents_with(source, wanted, None)
}

/// Like [`contents`]. If the user named a `label`, labels come from the members with this key, or from this key in
/// `.json` members.
pub(super) fn contents_with<S: ReadAt + ?Sized>(
    source: &S,
    wanted: Stems,
    label: Option<&str>,
) -> Result<ShardContents, Malformed> {
    refuse_compressed(source, "plain tar")?;
    let mut contents = ShardContents::default();
    let mut members = TarMembers::new(source);
    let mut samples: HashMap<Box<[u8]>, StemMembers> = HashMap::new();
    let (mut keys, mut names) = (Keys::default(), ClassNames::default());
    let labels = LabelMembers { asked: label };
    let whole = labels.whole().as_bytes();
    while let Some(member) = members.next_member()? {
        let Some((stem, suffix)) = contents.findings.split_member(&member) else { continue };
        let key = keys.number(&suffix);
        let sample = match samples.get_mut(stem) {
            Some(sample) => sample,
            None => samples.entry(stem.into()).or_default(),
        };
        let is_image = image_rank(&suffix).is_some();
        let Some(length) = length(&member) else {
            if is_image {
                return Err(too_large(stem, &member));
            }
            contents.findings.notes.skip(SkipReason::LargeMember, || text(&member.name));
            continue;
        };
        let at = match sample.find(key) {
            Err(at) => at,
            Ok(first) => {
                let first = &mut sample.members[first];
                if is_image || suffix == whole || matches!(suffix.as_slice(), b"cls" | b"json") {
                    return Err(twice(source, stem, &member, first.offset));
                }
                // A duplicate member is an error only for loaders that select it.
                first.length = MemberPlace::DUPLICATE;
                continue;
            }
        };
        sample.members.insert(at, MemberAt { offset: place(&member)?, length, key });
        let has_whole = || keys.numbers.get(whole).is_some_and(|&key| sample.find(key).is_ok());
        // Read labels now, while the bytes around their headers are buffered.
        if suffix == whole {
            sample.label = reduced(labels.read_whole(&mut members, &member)?, &mut names);
        } else if suffix == b"json" && !has_whole() {
            sample.label = reduced(labels.read_json(&mut members, &member)?, &mut names);
        }
    }
    contents.findings.classes = names.into_found();
    contents.findings.label_column = label.map(str::to_owned);
    contents.take(source, samples, &keys, wanted, labels)?;
    Ok(contents)
}

impl ShardContents {
    fn take<S: ReadAt + ?Sized>(
        &mut self,
        source: &S,
        samples: HashMap<Box<[u8]>, StemMembers>,
        keys: &Keys,
        wanted: Stems,
        labels: LabelMembers<'_>,
    ) -> Result<(), Malformed> {
        let ranks: Vec<Option<usize>> = keys.list.iter().map(|key| image_rank(key)).collect();
        let rank = |found: &&MemberAt| ranks[found.key as usize];
        // The member that is used as a sample's image: an image, or the first member if samples need no image.
        let image = |sample: &StemMembers| {
            let image = sample.members.iter().filter(|found| rank(found).is_some()).min_by_key(rank);
            let first = || sample.members.iter().min_by_key(|found| found.offset);
            image.or_else(|| first().filter(|_| wanted == Stems::All)).copied()
        };
        let mut samples: Vec<_> =
            samples.into_iter().map(|(stem, sample)| (image(&sample), stem, sample)).collect();
        // Sort samples without an image before all others and by name, so that the example in a message is
        // deterministic.
        samples.sort_unstable_by(|(a, one, _), (b, other, _)| {
            let place = |found: &Option<MemberAt>| found.map(|found| found.offset);
            place(a).cmp(&place(b)).then_with(|| one.cmp(other))
        });
        let order =
            self.take_keys(keys, samples.iter().filter(|(image, ..)| image.is_some()).map(|(.., of)| of));
        self.findings.classes_are_values =
            samples.iter().any(|(image, _, of)| image.is_some() && matches!(of.label, Label::Name(_)));
        if !self.findings.classes_are_values {
            self.findings.classes.clear();
        }
        for (image, stem, sample) in samples {
            let Some(image) = image else {
                self.findings.note_imageless(&stem, &sample, keys);
                continue;
            };
            let label = self.findings.label(source, &stem, &sample, keys, labels)?;
            let images = sample.members.iter().filter(|found| rank(found).is_some()).count();
            self.findings.has_images |= images > 0;
            if images > 1 {
                self.findings.notes.record_ambiguous(text(&stem));
            }
            let offset = image.offset.get();
            // If the member that replaces a missing image exists twice, store no bytes for it.
            let length = if image.length == MemberPlace::DUPLICATE { 0 } else { image.length };
            self.rows.samples.push(SampleRow { offset, length, label: label.unwrap_or(0) });
            let first = self.rows.members.len();
            for found in &sample.members {
                match MemberPlace::new(offset, found.offset.get(), found.length) {
                    Some(place) => {
                        self.rows.members.push(MemberRow { key: order[found.key as usize], place })
                    }
                    None => self.findings.notes.skip(SkipReason::MemberFarAway, || text(&stem)),
                }
            }
            self.rows.members[first..].sort_unstable_by_key(|row| row.key);
            self.rows.counts.push((self.rows.members.len() - first) as u32);
        }
        Ok(())
    }

    /// Stores the keys of the members of these samples, in sorted order. Returns, for each key of the shard, its index
    /// among the stored keys.
    fn take_keys<'a>(&mut self, keys: &Keys, samples: impl Iterator<Item = &'a StemMembers>) -> Vec<u32> {
        let mut used = vec![false; keys.list.len()];
        samples.flat_map(|sample| &sample.members).for_each(|found| used[found.key as usize] = true);
        let mut sorted: Vec<usize> = (0..keys.list.len()).filter(|&number| used[number]).collect();
        sorted.sort_unstable_by_key(|&number| &keys.list[number]);
        self.rows.keys = sorted.iter().map(|&number| text(&keys.list[number])).collect();
        let mut order = vec![0; keys.list.len()];
        (0..).zip(sorted).for_each(|(place, number)| order[number] = place);
        order
    }
}

impl ShardFindings {
    /// Splits the name of a member into stem and suffix. Returns `None` for a member that cannot belong to a sample,
    /// and records it as skipped.
    fn split_member<'a>(&mut self, member: &'a TarMember) -> Option<(&'a [u8], Vec<u8>)> {
        if !member.plain {
            if !member.name.ends_with(b"/") {
                self.notes.skip(SkipReason::NoPlainMember, || text(&member.name));
            }
            return None;
        }
        let parts = split(&member.name);
        if parts.is_none() {
            let why = ignored_member(&member.name).unwrap_or(SkipReason::MemberWithoutStem);
            self.notes.skip(why, || text(&member.name));
        }
        parts
    }

    /// Returns the label of a sample. Records in `self` the first samples with, without, and with an unusable label.
    fn label<S: ReadAt + ?Sized>(
        &mut self,
        source: &S,
        stem: &[u8],
        sample: &StemMembers,
        keys: &Keys,
        labels: LabelMembers<'_>,
    ) -> Result<Option<u32>, Malformed> {
        let label = match sample.label {
            Label::Name(label) => Some(label),
            Label::Number(label) if !self.classes_are_values => Some(label),
            Label::Number(label) => {
                let message = || {
                    let name = self.classes.first().map_or("", String::as_str);
                    format!(
                        "sample {:?} has the class number {label}, but others have class names such as {name:?}: write \
                         numbers for all samples, or names for all",
                        text(stem)
                    )
                };
                self.unusable = self.unusable.take().or_else(|| Some(message()));
                self.notes.skip(SkipReason::UnusableLabel, || text(stem));
                return Ok(None);
            }
            Label::Missing => None,
            Label::Unusable => {
                if self.unusable.is_none() {
                    let Malformed { offset, message } = unusable(source, sample, keys, labels);
                    self.unusable = Some(format!("at byte {offset}: {message}"));
                }
                self.notes.skip(SkipReason::UnusableLabel, || text(stem));
                return Ok(None);
            }
        };
        if label.is_none() && stem.contains(&b'/') {
            self.notes.in_directory.get_or_insert_with(|| text(stem));
        }
        let first = if label.is_some() { &mut self.labeled } else { &mut self.unlabeled };
        first.get_or_insert_with(|| text(stem));
        Ok(label)
    }

    /// Records a stem without an image as skipped. If the stem has images with longer suffixes, it was possibly meant
    /// as several samples.
    fn note_imageless(&mut self, stem: &[u8], sample: &StemMembers, keys: &Keys) {
        let mut suffixes = sample.members.iter().map(|found| &keys.list[found.key as usize]);
        match suffixes.find(|key| FieldKind::of_key(&text(key)) == FieldKind::Image) {
            None => self.notes.skip(SkipReason::SampleWithoutImage, || text(stem)),
            Some(key) => {
                self.notes.skip(SkipReason::SplitAtFirstDot, || format!("{}.{}", text(stem), text(key)));
            }
        }
    }
}

/// The name of the first image in a shard. Members after this image are not read.
///
/// # Errors
/// The errors of [`contents`], for the members that are read.
pub(super) fn first_image<S: ReadAt + ?Sized>(source: &S) -> Result<Option<String>, Malformed> {
    refuse_compressed(source, "plain tar")?;
    let mut members = TarMembers::new(source);
    while let Some(member) = members.next_member()? {
        let suffix = split(&member.name).map(|(_, suffix)| suffix);
        if member.plain && suffix.is_some_and(|suffix| image_rank(&suffix).is_some()) {
            return Ok(Some(text(&member.name)));
        }
    }
    Ok(None)
}

/// Splits a name at the first dot of its base name, as WebDataset does: into the stem with its directory, and the
/// suffix in lower case. `None` for names without a dot, for hidden and system files, and for files in directories with
/// hidden or system names.
pub(super) fn split(name: &[u8]) -> Option<(&[u8], Vec<u8>)> {
    if ignored_member(name).is_some() {
        return None;
    }
    let base = name.iter().rposition(|&b| b == b'/').map_or(0, |slash| slash + 1);
    let dot = name[base..].iter().position(|&b| b == b'.').filter(|&dot| dot > 0)?;
    Some((&name[..base + dot], name[base + dot + 1..].to_ascii_lowercase()))
}

fn place(member: &TarMember) -> Result<NonZeroU64, Malformed> {
    let message = "a member without a header before it".to_owned();
    NonZeroU64::new(member.offset).ok_or(Malformed { offset: member.offset, message })
}

/// The length of a member in bytes; `None` for 4 GiB and more, and for the two largest lengths, which [`MemberPlace`]
/// uses as markers.
fn length(member: &TarMember) -> Option<u32> {
    u32::try_from(member.size).ok().filter(|&length| length < MemberPlace::DUPLICATE)
}

fn too_large(stem: &[u8], member: &TarMember) -> Malformed {
    Malformed {
        offset: member.offset,
        message: format!(
            "the image of sample {:?} has {} bytes: 4 GiB or more",
            String::from_utf8_lossy(stem),
            member.size
        ),
    }
}

/// The error for a sample that has two members of one kind: `second`, and the member whose data begins at `first`.
fn twice<S: ReadAt + ?Sized>(source: &S, stem: &[u8], second: &TarMember, first: NonZeroU64) -> Malformed {
    let first = match member_at(source, first) {
        Ok(first) => first,
        Err(error) => return error,
    };
    Malformed {
        offset: second.offset,
        message: format!(
            "sample {:?} has two members of one kind, {:?} at byte {} and {:?} at byte {}: keep one, or give each \
             sample a name of its own",
            String::from_utf8_lossy(stem),
            String::from_utf8_lossy(&first.name),
            first.offset,
            String::from_utf8_lossy(&second.name),
            second.offset
        ),
    }
}

fn unusable<S: ReadAt + ?Sized>(
    source: &S,
    sample: &StemMembers,
    keys: &Keys,
    labels: LabelMembers<'_>,
) -> Malformed {
    let of = |key: &[u8]| sample.find(*keys.numbers.get(key)?).ok();
    let whole = of(labels.whole().as_bytes());
    let Some(place) = whole.or_else(|| of(b"json")).map(|found| sample.members[found].offset) else {
        return Malformed { offset: 0, message: CHANGED.to_owned() };
    };
    let mut members = TarMembers::new(source);
    let read = |member: TarMember| match whole {
        Some(_) => labels.read_whole(&mut members, &member),
        None => labels.read_json(&mut members, &member),
    };
    match member_at(source, place).and_then(read) {
        Ok(Err(reason)) | Err(reason) => reason,
        Ok(Ok(_)) => Malformed { offset: place.get(), message: CHANGED.to_owned() },
    }
}

const CHANGED: &str = "the shard was written to while it was indexed";

/// Finds the member whose data begins at `place`. Names of members are not stored while indexing, to save memory.
fn member_at<S: ReadAt + ?Sized>(source: &S, place: NonZeroU64) -> Result<TarMember, Malformed> {
    let mut members = TarMembers::new(source);
    while let Some(member) = members.next_member()? {
        if member.offset == place.get() {
            return Ok(member);
        }
    }
    Err(Malformed { offset: place.get(), message: CHANGED.to_owned() })
}

pub(super) fn text(name: &[u8]) -> String {
    String::from_utf8_lossy(name).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_parted_as_webdataset_parts_them() {
        let parts = |name: &'static str| split(name.as_bytes());
        assert_eq!(parts("a/b.c/d.seg.PNG"), Some((&b"a/b.c/d"[..], b"seg.png".to_vec())));
        assert_eq!(parts("./000.jpg"), Some((&b"./000"[..], b"jpg".to_vec())));
        assert_eq!(parts("a/.hidden.jpg"), None);
        assert_eq!(parts("a.b/README"), None);
    }

    #[test]
    fn a_stem_costs_what_is_promised() {
        // A hash map is at least 7/16 full after it has grown. Each slot of the map has one extra byte.
        let place = size_of::<(Box<[u8]>, StemMembers)>() + 1;
        assert!(place * 16 / 7 <= 200, "{place} bytes");
    }
}
