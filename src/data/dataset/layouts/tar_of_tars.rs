//! A tar of tars, as ImageNet's training images are distributed: one inner tar per class, which has the name of the
//! class and contains its images.
//!
//! Images are read in place, without unpacking the inner tars. Names inside the archive are never used as paths. The
//! name of a class is the last component of the name of its tar.

use super::super::archive::{TarMember, TarMembers};
use super::super::build::{SampleRow, ShardRows};
use super::super::ignored::ignored_member;
use super::super::kind::{IMAGE_EXTENSIONS, image_extensions, image_rank};
use super::super::left_out::SkipReason;
use super::super::member::{MemberPlace, MemberRow};
use super::super::samples::{ShardContents, ShardFindings, split, text};
use super::super::{Notes, shards};
use super::{ShardLayout, ShardParser, ShardReadOptions};
use crate::source::{DatasetSource, Malformed, ReadAt};
use base::error::Result;
use std::collections::BTreeMap;
use std::io;

/// A tar of tars has the name of a tar shard, so [`is_tar_of_tars`] detects it by its contents.
pub(super) struct TarsOfClasses;

const ENDING: &[u8] = b".tar";

impl ShardLayout for TarsOfClasses {
    fn empty_message(&self) -> String {
        format!("the tars in it hold no {} image", image_extensions())
    }

    fn is_table(&self) -> bool {
        false
    }

    fn parser(&self, _: &dyn DatasetSource, _: &ShardReadOptions) -> Result<Box<dyn ShardParser>> {
        Ok(Box::new(Self))
    }
}

impl ShardParser for TarsOfClasses {
    fn contents(&self, _: &[u8], bytes: &dyn ReadAt) -> Result<ShardContents, Malformed> {
        tar_of_tars(bytes)
    }
}

/// Whether a shard is a tar of tars. The first member must be a tar. The second member, if there is one, must not
/// belong to the same sample, as `0.jpg` after `0.tar` would.
///
/// # Errors
/// [`Malformed`] if the first members cannot be read.
pub(in crate::dataset) fn is_tar_of_tars<S: ReadAt + ?Sized>(source: &S) -> Result<bool, Malformed> {
    shards::refuse_compressed(source, "plain tar")?;
    let mut members = TarMembers::new(source);
    let mut next = || {
        loop {
            match members.next_member()? {
                Some(member) if !member.plain || ignored_member(&member.name).is_some() => {}
                member => return Ok(member),
            }
        }
    };
    let Some(first) = next()?.filter(|first| first.name.ends_with(ENDING)) else { return Ok(false) };
    // If the second member cannot be read, the parser of the whole shard reports the error.
    let Ok(Some(second)) = next() else { return Ok(true) };
    let stem = |member: &TarMember| split(&member.name).map(|(stem, _)| stem.to_vec());
    Ok(second.name.ends_with(ENDING) || stem(&first) != stem(&second))
}

/// Finds the images in the inner tars of a tar of tars, with the number of the class of each image.
///
/// # Errors
/// [`Malformed`] for archives that are damaged, truncated or compressed, for members that are not tars, and for members
/// of these tars that are not images. Also for two tars of one class, and for an image of 4 GiB or more.
pub fn tar_of_tars<S: ReadAt + ?Sized>(source: &S) -> Result<ShardContents, Malformed> {
    shards::refuse_compressed(source, "plain tar")?;
    let mut notes = Notes::default();
    // Class numbers in the order of the archive. They are provisional until all names are known.
    let mut classes: BTreeMap<String, u32> = BTreeMap::new();
    let mut images: Vec<InnerImage> = Vec::new();
    let mut members = TarMembers::new(source);
    while let Some(member) = members.next_member()? {
        let fail = |message: String| Malformed { offset: member.offset, message };
        if !member.plain {
            if !member.name.ends_with(b"/") {
                notes.skip(SkipReason::NoPlainMember, || text(&member.name));
            }
            continue;
        }
        if let Some(why) = ignored_member(&member.name) {
            notes.skip(why, || text(&member.name));
            continue;
        }
        let name = text(&member.name);
        let last = member.name.rsplit(|&byte| byte == b'/').next().unwrap_or_default();
        let class = last.strip_suffix(ENDING).filter(|class| !class.is_empty());
        let Some(class) = class.map(text) else {
            let message = format!(
                "{name:?} is next to tars, which are the classes of a tar of tars: a shard must contain either images \
                 or tars of images, not both"
            );
            return Err(fail(message));
        };
        let number = classes.len() as u32;
        if classes.insert(class.clone(), number).is_some() {
            return Err(fail(format!("{name:?} is a second tar of the class {class:?}")));
        }
        let before = images.len();
        images_of(&Inner { source, member: &member }, number, &mut images, &mut notes).map_err(
            |Malformed { offset, message }| Malformed {
                offset: member.offset.saturating_add(offset),
                message: format!("in {name:?}, which begins at byte {}: {message}", member.offset),
            },
        )?;
        if images.len() == before {
            notes.empty_classes.push(class);
        }
    }
    Ok(ShardContents { rows: rows(&images, &classes), findings: findings(notes, &images, classes) })
}

struct InnerImage {
    offset: u64,
    length: u32,
    /// The index of the image's class in the order of the archive. The final class number is the index in sorted order.
    class: u32,
    extension: usize,
}

fn images_of<S: ReadAt + ?Sized>(
    tar: &Inner<'_, S>,
    class: u32,
    images: &mut Vec<InnerImage>,
    notes: &mut Notes,
) -> Result<(), Malformed> {
    shards::refuse_compressed(tar, "plain tar")?;
    let mut members = TarMembers::new(tar);
    while let Some(TarMember { name, offset, size, plain }) = members.next_member()? {
        if !plain {
            if !name.ends_with(b"/") {
                notes.skip(SkipReason::NoPlainMember, || text(&name));
            }
            continue;
        }
        if let Some(why) = ignored_member(&name) {
            notes.skip(why, || text(&name));
            continue;
        }
        let fail = |what: &str| Malformed { offset, message: format!("{:?} {what}", text(&name)) };
        let ending = name.rsplit(|&byte| byte == b'.').next().unwrap_or_default();
        let Some(extension) = image_rank(&ending.to_ascii_lowercase()) else {
            let what =
                format!("is not a {} image; the tar of a class must contain only images", image_extensions());
            return Err(fail(&what));
        };
        let length = u32::try_from(size).ok().filter(|&length| length < MemberPlace::DUPLICATE);
        let length = length.ok_or_else(|| fail(&format!("has {size} bytes: 4 GiB or more")))?;
        images.push(InnerImage { offset: tar.member.offset + offset, length, class, extension });
    }
    Ok(())
}

/// The samples in the order of the archive. The number of a class is the index of its name in sorted order.
fn rows(images: &[InnerImage], classes: &BTreeMap<String, u32>) -> ShardRows {
    let mut places = vec![0; classes.len()];
    (0..).zip(classes.values()).for_each(|(place, &number)| places[number as usize] = place);
    let mut keys: Vec<&str> = images.iter().map(|image| IMAGE_EXTENSIONS[image.extension]).collect();
    keys.sort_unstable();
    keys.dedup();
    let row = |image: &InnerImage| MemberRow {
        key: keys.partition_point(|key| *key < IMAGE_EXTENSIONS[image.extension]) as u32,
        place: MemberPlace { offset_from_image: 0, length: image.length, packed: false },
    };
    let sample = |image: &InnerImage| SampleRow {
        offset: image.offset,
        length: image.length,
        label: places[image.class as usize],
    };
    ShardRows {
        samples: images.iter().map(sample).collect(),
        members: images.iter().map(row).collect(),
        counts: vec![1; images.len()],
        keys: keys.iter().map(|key| (*key).to_owned()).collect(),
        ..ShardRows::default()
    }
}

fn findings(notes: Notes, images: &[InnerImage], classes: BTreeMap<String, u32>) -> ShardFindings {
    ShardFindings {
        notes,
        labeled: images.first().map(|image| format!("at byte {}", image.offset)),
        has_images: !images.is_empty(),
        label_column: Some(String::new()),
        classes: classes.into_keys().collect(),
        ..ShardFindings::default()
    }
}

/// One member of the outer tar, as the file that the parser of the inner tar reads.
struct Inner<'a, S: ?Sized> {
    source: &'a S,
    member: &'a TarMember,
}

impl<S: ReadAt + ?Sized> ReadAt for Inner<'_, S> {
    fn size(&self) -> u64 {
        self.member.size
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let left = self.member.size.saturating_sub(offset);
        let wanted = (buffer.len() as u64).min(left) as usize;
        match wanted {
            0 => Ok(0),
            // The member ends inside the archive, so the sum is a valid offset.
            _ => self.source.read_at(&mut buffer[..wanted], self.member.offset + offset),
        }
    }
}
