//! Detects directories of images next to directories of their masks. Such directories are not classes.

use super::super::below::DatasetSearch;
use super::super::ignored::ignored_entry;
use super::super::kind::is_image_file;
use super::{below, text};
use crate::source::EntryKind;
use base::error::{Error, Result};
use std::collections::HashSet;
use std::ops::ControlFlow;

/// Names of directories of images, in lower case and reduced to their letters.
const IMAGES: &[&str] =
    &["image", "images", "img", "imgs", "input", "inputs", "jpegimages", "photo", "photos", "rgb"];
/// Names of directories of masks, also in lower case and reduced to their letters.
pub(in crate::dataset) const MASKS: &[&str] = &[
    "annotation",
    "annotations",
    "depth",
    "groundtruth",
    "gt",
    "label",
    "labels",
    "mask",
    "masks",
    "matte",
    "mattes",
    "seg",
    "segmentation",
    "segmentationclass",
    "segmentationobject",
    "segmentations",
    "target",
    "targets",
    "trimap",
    "trimaps",
];
/// Suffixes that a mask's file stem adds to the stem of its image.
const OF_MASKS: &[&str] = &["_gt", "_label", "_labels", "_mask", "_seg", "-mask"];
const COMPARED: usize = 4096;

/// Refuses a directory with a name in [`IMAGES`] next to a directory with a name in [`MASKS`], if most of their files
/// share stems.
///
/// # Errors
/// [`Error::Dataset`] for such directories; [`Error::Io`] for a directory that cannot be listed.
pub(super) fn refuse(search: DatasetSearch<'_>, directories: &[Vec<u8>]) -> Result<()> {
    let called =
        |names: &[&str]| directories.iter().filter(|name| is_called(name, names)).collect::<Vec<_>>();
    let (images, masks) = (called(IMAGES), called(MASKS));
    for images in &images {
        for masks in &masks {
            let (of_images, of_masks) = (stems(search, images)?, stems(search, masks)?);
            let shared = of_images.intersection(&of_masks).count();
            let least = of_images.len().min(of_masks.len());
            if 2 * shared > least {
                let remedy = match search.source.is_remote() {
                    true => {
                        "list them in a table with the columns image and mask, and open it with fields=[\"image\", \
                         foreload.fields.Mask(\"mask\")]"
                            .to_owned()
                    }
                    false => format!(
                        "open them with fields=[{:?}, foreload.fields.Mask({:?})]",
                        text(images),
                        text(masks)
                    ),
                };
                let message = format!(
                    "{} and {} have {shared} of {least} file names in common, so they seem to be images and their \
                     masks, not classes: {remedy}; if they are classes, rename one",
                    text(images),
                    text(masks)
                );
                return Err(Error::dataset(search.source.path(&[]), message));
            }
        }
    }
    Ok(())
}

/// Whether a directory has one of these names, by its own name without the directories above it.
pub(in crate::dataset) fn is_called(name: &[u8], names: &[&str]) -> bool {
    let own = name.rsplit(|&byte| byte == b'/').next().unwrap_or(name);
    let letters: String = own
        .iter()
        .filter(|byte| byte.is_ascii_alphabetic())
        .map(|byte| byte.to_ascii_lowercase() as char)
        .collect();
    names.contains(&letters.as_str())
}

/// The stems of images below a directory, with their subdirectories, for at most [`COMPARED`] files.
fn stems(search: DatasetSearch<'_>, directory: &[u8]) -> Result<HashSet<Vec<u8>>> {
    let (mut stems, mut waiting) = (HashSet::new(), vec![Vec::new()]);
    while let Some(within) = waiting.pop().filter(|_| stems.len() < COMPARED) {
        let path = if within.is_empty() { directory.to_vec() } else { below(directory, &within) };
        let mut names: Vec<Vec<u8>> = Vec::new();
        search.entries(&path, |entry| {
            match entry.kind {
                _ if ignored_entry(entry, search.contents).is_some() => {}
                // Skip symbolic links, because they can form cycles.
                EntryKind::Directory if entry.target.is_none() => waiting.push(below(&within, entry.name)),
                EntryKind::File if is_image_file(entry.name) => names.push(entry.name.to_vec()),
                _ => {}
            }
            Ok(ControlFlow::Continue(()))
        })?;
        // Sort the names, so that the same files of both directories are compared, independent of the order of listing.
        names.sort_unstable();
        stems.extend(names.iter().take(COMPARED).map(|name| below(&within, stem(name))));
    }
    Ok(stems)
}

/// The name of an image without its extension. For a mask, the suffix from [`OF_MASKS`] is removed too.
fn stem(name: &[u8]) -> &[u8] {
    let stem = name.iter().rposition(|&byte| byte == b'.').map_or(name, |dot| &name[..dot]);
    without_mask_suffix(stem)
}

/// A file stem without the suffix that masks add to the stem of their image.
pub(in crate::dataset) fn without_mask_suffix(stem: &[u8]) -> &[u8] {
    OF_MASKS.iter().find_map(|ending| stem.strip_suffix(ending.as_bytes())).unwrap_or(stem)
}
