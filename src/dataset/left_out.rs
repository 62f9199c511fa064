//! What is left out of the samples of a dataset, and what that is to whoever trains.

use super::kind::image_extensions;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// Something that was found and is no sample, or no label.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LeftOut {
    BesideRecords,
    BrokenLink,
    CompressedTar,
    DirectoryWithoutImages,
    FileInRoot,
    Hidden,
    LargeMember,
    LinkAbove,
    MemberFarAway,
    MemberWithoutStem,
    Metadata,
    NoImage,
    NoPlainMember,
    /// An image of another format, by the ending of its name.
    OtherImage(&'static str),
    SampleCutShort,
    SampleWithoutImage,
    ShardWithoutImages,
    UnusableLabel,
}

/// The cost of leaving something out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Loss {
    /// A sample was perhaps meant.
    Sample,
    /// A label was perhaps meant.
    Label,
    /// It lies beside the samples and is none.
    Beside,
    /// Nobody would expect it to be read.
    Nothing,
}

impl LeftOut {
    /// The words that users read.
    pub(super) fn text(self) -> Cow<'static, str> {
        Cow::Borrowed(match self {
            Self::BesideRecords => "files beside TFRecord shards",
            Self::BrokenLink => "broken links and special files",
            Self::CompressedTar => "compressed tars beside class directories",
            Self::DirectoryWithoutImages => "directories without images beside shards",
            Self::FileInRoot => "files in the root",
            Self::Hidden => "hidden files",
            Self::LargeMember => "members of 4 GiB and more",
            Self::LinkAbove => "links to a directory above",
            Self::MemberFarAway => "members more than 1 TiB from their image",
            Self::MemberWithoutStem => "members without stem or suffix",
            Self::Metadata => "tables beside the images",
            Self::NoImage => "files that are no images",
            Self::NoPlainMember => "links, devices and sparse files in shards",
            Self::OtherImage(ending) => {
                return format!("{ending} images (only {} are read)", image_extensions()).into();
            }
            Self::SampleCutShort => {
                "samples without an image, as names are cut at the first dot (0.left.jpg is left.jpg of sample 0)"
            }
            Self::SampleWithoutImage => "samples without an image",
            Self::ShardWithoutImages => "shards without images beside class directories",
            Self::UnusableLabel => "labels that are no class numbers",
        })
    }

    /// The cost of leaving it out.
    pub(super) fn loss(self) -> Loss {
        match self {
            Self::BesideRecords | Self::Hidden => Loss::Nothing,
            Self::DirectoryWithoutImages | Self::FileInRoot | Self::NoImage | Self::ShardWithoutImages => {
                Loss::Beside
            }
            Self::Metadata | Self::UnusableLabel => Loss::Label,
            Self::BrokenLink
            | Self::CompressedTar
            | Self::LargeMember
            | Self::LinkAbove
            | Self::MemberFarAway
            | Self::MemberWithoutStem
            | Self::NoPlainMember
            | Self::OtherImage(_)
            | Self::SampleCutShort
            | Self::SampleWithoutImage => Loss::Sample,
        }
    }
}
