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

    pub(super) fn text(self) -> Cow<'static, str> {
        Cow::Borrowed(match self {
            Self::FileNextToRecords => "files beside TFRecord shards",
            Self::BrokenLink => "broken links and special files",
            Self::CompressedTar => "compressed tars beside class directories",
            Self::DirectoryWithoutImages => "directories without images beside shards",
            Self::FileInRoot => "files in the root",
            Self::Hidden => "hidden files",
            Self::ImageInRoot => "images in the root itself, apart from the samples",
            Self::LargeMember => "members of 4 GiB and more",
            Self::LinkToParent => "links to a directory above",
            Self::MemberFarAway => "members more than 1 TiB from their image",
            Self::MemberWithoutStem => "members without stem or suffix",
            Self::Metadata => "tables beside the images",
            Self::NoImage => "files that are no images",
            Self::NoPlainMember => "links, devices and sparse files in shards",
            Self::OtherImage(ending) => {
                return format!("{ending} images, which no decoder here reads").into();
            }
            Self::SplitAtFirstDot => {
                "samples without an image, as names are cut at the first dot (0.left.jpg is left.jpg of sample 0)"
            }
            Self::SampleWithoutImage => "samples without an image",
            Self::ShardInClass => "shards in directories of images",
            Self::ShardInRoot => "shards in the root itself, apart from the samples",
            Self::ShardWithoutImages => "shards without images beside class directories",
            Self::System => "files and directories of the system",
            Self::UnfinishedShard => "backups of shards and unfinished ones, by their names",
            Self::UnusableLabel => "labels that are no class numbers",
            Self::UpperCaseShard => "shards with endings in upper case, which are not read: rename them",
        })
    }

    pub(super) fn loss(self) -> SkipCost {
        match self {
            Self::FileNextToRecords | Self::Hidden | Self::System => SkipCost::Nothing,
            Self::DirectoryWithoutImages | Self::FileInRoot | Self::NoImage | Self::ShardWithoutImages => {
                SkipCost::Beside
            }
            Self::Metadata | Self::UnusableLabel => SkipCost::Label,
            Self::BrokenLink
            | Self::CompressedTar
            | Self::ImageInRoot
            | Self::LargeMember
            | Self::LinkToParent
            | Self::MemberFarAway
            | Self::MemberWithoutStem
            | Self::NoPlainMember
            | Self::OtherImage(_)
            | Self::SplitAtFirstDot
            | Self::SampleWithoutImage
            | Self::ShardInClass
            | Self::ShardInRoot
            | Self::UnfinishedShard
            | Self::UpperCaseShard => SkipCost::Sample,
        }
    }
}
