//! The samples of a tar shard: the members that share a stem, wherever they lie in it.
//!
//! WebDataset wants them side by side; `tar --sort=name`, archives made type by type and appended labels have them
//! apart. So all stems of a shard are remembered while it is indexed, each as long as its name and at most 200 bytes,
//! and 16 bytes for each member.

use super::Notes;
use super::archive::{TarMember, TarMembers};
use super::build::{MemberPlace, SampleRow};
use super::kind::image_rank;
use super::shards::refuse_compressed;
use super::source::{Malformed, ReadAt};
use std::collections::HashMap;
use std::num::NonZeroU64;

/// Longest `.cls` member: a number and white space.
const MAX_CLS: u64 = 64;
/// Longest `.json` member that is searched for a label.
const MAX_JSON: u64 = 16 << 20;
/// Most keys that the members of a shard may have: names that count something in their extension are no fields.
const MAX_KEYS: usize = 64;

/// What a shard holds.
#[derive(Debug, Default)]
pub struct ShardContents {
    /// Its samples in the order of their images; an unlabelled one has label 0. Of a shard without images, all stems in
    /// the order of their first members, which then stand for the image.
    pub samples: Vec<SampleRow>,
    /// The keys of all members that samples have, sorted.
    pub keys: Vec<String>,
    /// For each sample in turn, the member of each key in turn.
    pub members: Vec<MemberPlace>,
    /// What was left out.
    pub notes: Notes,
    /// The first sample without a label.
    pub unlabeled: Option<String>,
    /// The first sample with one.
    pub labeled: Option<String>,
}

/// Members of one stem: where their data begin, which is behind a header. Small, for there is one for each stem of a
/// shard.
#[derive(Default)]
struct StemMembers {
    members: Vec<MemberAt>,
    /// Of `cls`, else of `json`.
    label: Label,
}

/// One member of a stem.
#[derive(Clone, Copy)]
struct MemberAt {
    offset: NonZeroU64,
    length: u32,
    /// Number of its key among those of the shard.
    key: u16,
}

/// The keys of a shard in the order in which they come up.
#[derive(Default)]
struct Keys(Vec<Vec<u8>>);

impl Keys {
    /// The number of a key; `None` where there are too many.
    fn number(&mut self, key: Vec<u8>) -> Option<u16> {
        let known = self.0.iter().position(|known| *known == key);
        let number = known.or_else(|| {
            (self.0.len() < MAX_KEYS).then(|| {
                self.0.push(key);
                self.0.len() - 1
            })
        });
        number.map(|number| number as u16)
    }
}

/// What a member says of the class.
#[derive(Clone, Copy, Default)]
enum Label {
    /// Nothing: there is no such member, or neither key in it.
    #[default]
    Missing,
    Number(u32),
    /// Something that is no class number; why is found out again where it matters.
    Unusable,
}

/// Which stems of a shard are samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stems {
    /// Those with an image.
    WithImage,
    /// All: the dataset holds no image.
    All,
}

/// Finds the samples of a shard without reading their images.
///
/// # Errors
/// [`Malformed`] for an archive that is damaged, truncated or compressed, a sample with two members of one name of
/// those that make it a sample (image, `.cls`, `.json`), a label that is no class number, and an image of 4 GiB or
/// more.
pub fn contents<S: ReadAt + ?Sized>(source: &S, wanted: Stems) -> Result<ShardContents, Malformed> {
    refuse_compressed(source, "plain tar")?;
    let mut contents = ShardContents::default();
    let mut members = TarMembers::new(source);
    let mut samples: HashMap<Box<[u8]>, StemMembers> = HashMap::new();
    let mut keys = Keys::default();
    while let Some(member) = members.next_member()? {
        let Some((stem, suffix)) = contents.parted(&member) else { continue };
        let Some(key) = keys.number(suffix.clone()) else {
            contents.notes.skip("members of more kinds than fields can be", || text(&member.name));
            continue;
        };
        let sample = match samples.get_mut(stem) {
            Some(sample) => sample,
            None => samples.entry(stem.into()).or_default(),
        };
        let is_image = image_rank(&suffix).is_some();
        let Some(length) = length(&member) else {
            if is_image {
                return Err(too_large(stem, &member));
            }
            contents.notes.skip("members of 4 GiB and more", || text(&member.name));
            continue;
        };
        if let Some(first) = sample.members.iter_mut().find(|found| found.key == key) {
            if is_image || matches!(suffix.as_slice(), b"cls" | b"json") {
                return Err(twice(source, stem, &member, first.offset));
            }
            // Whoever asks for the field hears of it; the others are not concerned.
            first.length = MemberPlace::TWICE;
            continue;
        }
        let has_cls = sample.members.iter().any(|found| keys.0[usize::from(found.key)] == b"cls");
        sample.members.push(MemberAt { offset: place(&member)?, length, key });
        match suffix.as_slice() {
            b"cls" => sample.label = reduced(cls(&mut members, &member)?),
            // Read at once, while the bytes around its header are at hand; a .cls member comes before it in any order.
            b"json" if !has_cls => sample.label = reduced(json(&mut members, &member)?),
            _ => {}
        }
    }
    contents.take(source, samples, &keys, wanted)?;
    Ok(contents)
}

impl ShardContents {
    /// Stem and suffix of a member that may belong to a sample; what does not is noted.
    fn parted<'a>(&mut self, member: &'a TarMember) -> Option<(&'a [u8], Vec<u8>)> {
        if !member.plain {
            if !member.name.ends_with(b"/") {
                self.notes.skip("links, devices and sparse files in shards", || text(&member.name));
            }
            return None;
        }
        let parts = split(&member.name);
        if parts.is_none() {
            self.notes.skip("members without stem or suffix", || text(&member.name));
        }
        parts
    }

    /// Brings the samples in the order of their images: that of the shard.
    fn take<S: ReadAt + ?Sized>(
        &mut self,
        source: &S,
        samples: HashMap<Box<[u8]>, StemMembers>,
        keys: &Keys,
        wanted: Stems,
    ) -> Result<(), Malformed> {
        let ranks: Vec<Option<usize>> = keys.0.iter().map(|key| image_rank(key)).collect();
        let rank = |found: &MemberAt| ranks[usize::from(found.key)];
        // A sample's image, or what stands for it where there are none.
        let image = |sample: &StemMembers| match wanted {
            Stems::WithImage => sample
                .members
                .iter()
                .filter(|found| rank(found).is_some())
                .min_by_key(|found| rank(found))
                .copied(),
            Stems::All => sample.members.iter().min_by_key(|found| found.offset).copied(),
        };
        let mut samples: Vec<_> =
            samples.into_iter().map(|(stem, sample)| (image(&sample), stem, sample)).collect();
        // Those without an image come first, by name, so that which is the example does not depend on chance.
        samples.sort_unstable_by(|(a, one, _), (b, other, _)| {
            let place = |found: &Option<MemberAt>| found.map(|found| found.offset);
            place(a).cmp(&place(b)).then_with(|| one.cmp(other))
        });
        let order =
            self.take_keys(keys, samples.iter().filter(|(image, ..)| image.is_some()).map(|(.., of)| of));
        for (image, stem, sample) in samples {
            let Some(image) = image else {
                self.notes.skip("samples without an image", || text(&stem));
                continue;
            };
            let label = match sample.label {
                Label::Number(label) => Some(label),
                Label::Missing => None,
                Label::Unusable => return Err(unusable(source, &sample, keys)),
            };
            let first = if label.is_some() { &mut self.labeled } else { &mut self.unlabeled };
            first.get_or_insert_with(|| text(&stem));
            if wanted == Stems::WithImage
                && sample.members.iter().filter(|found| rank(found).is_some()).count() > 1
            {
                self.notes.keep_ambiguous(text(&stem));
            }
            let offset = image.offset.get();
            // What stands for an image that is there twice has no length of its own.
            let length = if image.length == MemberPlace::TWICE { 0 } else { image.length };
            self.samples.push(SampleRow { offset, length, label: label.unwrap_or(0) });
            let row = self.members.len();
            self.members.resize(row + self.keys.len(), MemberPlace::ABSENT);
            for found in &sample.members {
                if let Some(column) = order[usize::from(found.key)] {
                    let place = MemberPlace::new(offset, found.offset.get(), found.length);
                    self.members[row + column] = place.unwrap_or_else(|| {
                        self.notes.skip("members more than 1 TiB from their image", || text(&stem));
                        MemberPlace::ABSENT
                    });
                }
            }
        }
        Ok(())
    }

    /// Takes the keys that these samples have, sorted; and says where each of the shard's is among them.
    fn take_keys<'a>(
        &mut self,
        keys: &Keys,
        samples: impl Iterator<Item = &'a StemMembers>,
    ) -> Vec<Option<usize>> {
        let mut used = vec![false; keys.0.len()];
        samples.flat_map(|sample| &sample.members).for_each(|found| used[usize::from(found.key)] = true);
        let mut sorted: Vec<usize> = (0..keys.0.len()).filter(|&number| used[number]).collect();
        sorted.sort_unstable_by_key(|&number| &keys.0[number]);
        self.keys = sorted.iter().map(|&number| text(&keys.0[number])).collect();
        (0..keys.0.len()).map(|number| sorted.iter().position(|&known| known == number)).collect()
    }
}

/// Name and place of the first image in a shard, without looking further.
///
/// # Errors
/// The errors of [`contents`], as far as it looks.
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

/// Stem (directory included) and suffix in lower case, parted at the first dot of the base name, as WebDataset does.
/// `None` for names without a dot and for hidden files.
fn split(name: &[u8]) -> Option<(&[u8], Vec<u8>)> {
    let base = name.iter().rposition(|&b| b == b'/').map_or(0, |slash| slash + 1);
    let dot = name[base..].iter().position(|&b| b == b'.').filter(|&dot| dot > 0)?;
    Some((&name[..base + dot], name[base + dot + 1..].to_ascii_lowercase()))
}

fn place(member: &TarMember) -> Result<NonZeroU64, Malformed> {
    let message = "a member without a header before it".to_owned();
    NonZeroU64::new(member.offset).ok_or(Malformed { offset: member.offset, message })
}

/// Bytes of a member; `None` for 4 GiB and more, and for the two lengths that mean something else.
fn length(member: &TarMember) -> Option<u32> {
    u32::try_from(member.size).ok().filter(|&length| length < MemberPlace::TWICE)
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

/// What is wrong with a sample that has `second` and, with data at `first`, another member of its kind.
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

/// Why the label of a sample cannot be used.
fn unusable<S: ReadAt + ?Sized>(source: &S, sample: &StemMembers, keys: &Keys) -> Malformed {
    let of = |key: &[u8]| sample.members.iter().find(|found| keys.0[usize::from(found.key)] == key);
    let is_cls = of(b"cls").is_some();
    let Some(place) = of(b"cls").or_else(|| of(b"json")).map(|found| found.offset) else {
        return Malformed { offset: 0, message: CHANGED.to_owned() };
    };
    let mut members = TarMembers::new(source);
    let read = |member: TarMember| {
        if is_cls { cls(&mut members, &member) } else { json(&mut members, &member) }
    };
    match member_at(source, place).and_then(read) {
        Ok(Err(reason)) | Err(reason) => reason,
        Ok(Ok(_)) => Malformed { offset: place.get(), message: CHANGED.to_owned() },
    }
}

const CHANGED: &str = "the shard was written to while it was indexed";

/// The member whose data begin at `place`: names are not remembered, so that memory goes to stems alone.
fn member_at<S: ReadAt + ?Sized>(source: &S, place: NonZeroU64) -> Result<TarMember, Malformed> {
    let mut members = TarMembers::new(source);
    while let Some(member) = members.next_member()? {
        if member.offset == place.get() {
            return Ok(member);
        }
    }
    Err(Malformed { offset: place.get(), message: CHANGED.to_owned() })
}

/// A label, or what is wrong with it.
type ReadLabel = Result<Option<u32>, Malformed>;

/// Without the reason, which is long and mostly not asked for.
fn reduced(label: ReadLabel) -> Label {
    match label {
        Ok(None) => Label::Missing,
        Ok(Some(number)) => Label::Number(number),
        Err(_) => Label::Unusable,
    }
}

/// The number in a `.cls` member.
///
/// # Errors
/// Outside: it cannot be read at all. Inside: it is no class number.
fn cls<S: ReadAt + ?Sized>(
    members: &mut TarMembers<'_, S>,
    member: &TarMember,
) -> Result<ReadLabel, Malformed> {
    let data = if member.size <= MAX_CLS { Some(members.read(member.offset, member.size)?) } else { None };
    let number = data.as_deref().and_then(|data| std::str::from_utf8(data).ok());
    let number = number.and_then(|text| text.trim().parse().ok()).filter(|&number| number < u32::MAX);
    Ok(number.map(Some).ok_or_else(|| Malformed {
        offset: member.offset,
        message: format!("{:?} should hold a class number from 0 to 4294967294 as text", text(&member.name)),
    }))
}

/// The integer at `label` or `cls` of a `.json` member; `None` where neither key is there. Errors as [`cls`].
fn json<S: ReadAt + ?Sized>(
    members: &mut TarMembers<'_, S>,
    member: &TarMember,
) -> Result<ReadLabel, Malformed> {
    let name = text(&member.name);
    let fail = |message: String| Err(Malformed { offset: member.offset, message });
    if member.size > MAX_JSON {
        return Ok(fail(format!(
            "{name:?} has {} bytes; a label is looked for in up to 16 MiB",
            member.size
        )));
    }
    let data = members.read(member.offset, member.size)?;
    let value: serde_json::Value = match serde_json::from_slice(&data) {
        Ok(value) => value,
        Err(error) => return Ok(fail(format!("{name:?} is not JSON: {error}"))),
    };
    let Some((key, label)) = ["label", "cls"].iter().find_map(|key| Some((key, value.get(key)?))) else {
        return Ok(Ok(None));
    };
    let number = label.as_u64().and_then(|n| u32::try_from(n).ok()).filter(|&n| n < u32::MAX);
    Ok(number.map_or_else(
        || fail(format!("{name:?}: {key} should be a class number from 0 to 4294967294")),
        |number| Ok(Some(number)),
    ))
}

fn text(name: &[u8]) -> String {
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
        // A hash map is at least 7/16 full after it has grown; each of its places has a byte beside.
        let place = size_of::<(Box<[u8]>, StemMembers)>() + 1;
        assert!(place * 16 / 7 <= 200, "{place} bytes");
    }
}
