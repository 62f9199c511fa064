//! Reasons why files are skipped, and what each reason costs the user.

use super::Contents;
use super::below::shard_layout;
use super::kind::ending_among;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// A reason why a file, directory or member is not a sample, or has no label.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SkipReason {
    FileNextToRecords,
    BrokenLink,
    CompressedTar,
    DirectoryWithoutImages,
    FileInRoot,
    Hidden,
    ImageInRoot,
    LargeMember,
    LinkToParent,
    MemberFarAway,
    MemberWithoutStem,
    Metadata,
    NoImage,
    NoPlainMember,
    /// An image in a format that cannot be decoded, with the suffix of its file name.
    OtherImage(&'static str),
    SplitAtFirstDot,
    SampleWithoutImage,
    ShardInClass,
    ShardInRoot,
    ShardWithoutImages,
    System,
    UnfinishedShard,
    UnusableLabel,
    UpperCaseShard,
    WithoutPartner,
}

/// What the user loses when a file, directory or member is skipped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SkipCost {
    /// The file was possibly meant as a sample.
    Sample,
    /// The file was possibly meant as a label.
    Label,
    /// The file is stored next to the samples, but is not a sample.
    Beside,
    /// Nothing is lost, because no user expects that this file is read.
    Nothing,
}

const OTHER_IMAGES: &[&str] = &[
    ".avif", ".bmp", ".dcm", ".gif", ".heic", ".heif", ".jp2", ".jxl", ".pgm", ".ppm", ".tga", ".tif",
    ".tiff",
];

impl SkipReason {
    /// The reason to skip a file of this name in a class directory. The file must not be an image that can be decoded.
    pub(super) fn of_file(name: &[u8]) -> Self {
        if let Some(ending) = Self::other_image(name) {
            return Self::OtherImage(ending);
        }
        match shard_layout(&name.to_ascii_lowercase(), Contents::Images) {
            Some(_) => Self::ShardInClass,
            None => Self::NoImage,
        }
    }

    pub(super) fn other_image(name: &[u8]) -> Option<&'static str> {
        ending_among(OTHER_IMAGES, name)
    }

    /// Returns what is lost with the skipped entries, and the words for them.
    pub(super) fn facts(self) -> (SkipCost, Cow<'static, str>) {
        use SkipCost::{Beside, Label, Nothing, Sample};
        let (loss, words) = match self {
            Self::FileNextToRecords => (Nothing, "files beside TFRecord shards"),
            Self::BrokenLink => (Sample, "broken links and special files"),
            Self::CompressedTar => (Sample, "compressed tars beside class directories"),
            Self::DirectoryWithoutImages => (Beside, "directories without images beside shards"),
            Self::FileInRoot => (Beside, "files in the root"),
            Self::Hidden => (Nothing, "hidden files"),
            Self::ImageInRoot => (Sample, "images in the root itself, apart from the samples"),
            Self::LargeMember => (Sample, "members of 4 GiB and more"),
            Self::LinkToParent => (Sample, "links to a directory above"),
            Self::MemberFarAway => (Sample, "members more than 1 TiB from their image"),
            Self::MemberWithoutStem => (Sample, "members without stem or suffix"),
            Self::Metadata => (Label, "tables beside the images"),
            Self::NoImage => (Beside, "files that are no images"),
            Self::NoPlainMember => (Sample, "links, devices and sparse files in shards"),
            Self::OtherImage(ending) => {
                return (Sample, format!("{ending} images, which no decoder here reads").into());
            }
            Self::SplitAtFirstDot => (
                Sample,
                "samples without an image, as names are cut at the first dot (0.left.jpg is left.jpg of sample 0)",
            ),
            Self::SampleWithoutImage => (Sample, "samples without an image"),
            Self::ShardInClass => (Sample, "shards in directories of images"),
            Self::ShardInRoot => (Sample, "shards in the root itself, apart from the samples"),
            Self::ShardWithoutImages => (Beside, "shards without images beside class directories"),
            Self::System => (Nothing, "files and directories of the system"),
            Self::UnfinishedShard => (Sample, "backups of shards and unfinished ones, by their names"),
            Self::UnusableLabel => (Label, "labels that are no class numbers"),
            Self::UpperCaseShard => {
                (Sample, "shards with endings in upper case, which are not read: rename them")
            }
            Self::WithoutPartner => (Beside, "files that belong to no image"),
        };
        (loss, Cow::Borrowed(words))
    }
}
