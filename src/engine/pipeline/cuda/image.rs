//! A sample while a lane works on it, and the state of each of its images.

use super::per_image::PerImage;
use super::refused::ImageId;
use crate::pipeline::mixing::FilledPlace;
use base::error::{Error, Result};
use data::dataset::Stamp;
use pixels::augment::DrawnViews;
use pixels::decode::cuda::{CudaPlan, LaunchTables};
use pixels::decode::nvjpeg::{Abilities, NvJpegBackend};
use pixels::decode::{JpegHeader, Planes, PlanesLayout};
use pixels::gpu::PinnedSlice;

/// Alignment of everything in the arena of a lane, in bytes, as nvJPEG and wide loads need.
const ALIGNMENT: u64 = 256;

pub(super) fn planes_bytes(layout: &PlanesLayout) -> u64 {
    layout.bytes.next_multiple_of(ALIGNMENT)
}

/// One sample of a sub-batch. If one of its images is decoded again, all are. If one fails, the sample fails.
pub(crate) struct LaneSample {
    pub place: FilledPlace,
    pub images: PerImage<LaneImage>,
}

impl LaneSample {
    pub(super) fn id(&self, image: usize) -> ImageId {
        ImageId { sample: self.place.draw.sample, image: image as u32 }
    }

    pub(crate) fn is_encoded(&self) -> bool {
        self.images.iter().any(LaneImage::is_encoded)
    }

    pub(crate) fn is_for_gpu(&self) -> bool {
        self.images.iter().any(LaneImage::is_for_gpu)
    }
}

pub(crate) enum LaneImage {
    Encoded {
        bytes: PinnedSlice,
        header: JpegHeader,
        drawn: DrawnViews,
        backend: NvJpegBackend,
        /// Whether the same decoder gets the image a second time, because some lines looked unwritten, or because there
        /// is no other decoder.
        tried_again: bool,
    },
    Own {
        bytes: PinnedSlice,
        plan: Box<CudaPlan>,
        drawn: DrawnViews,
    },
    Planes {
        bytes: PinnedSlice,
        layout: PlanesLayout,
        drawn: DrawnViews,
    },
    /// A file that the lane decodes on the CPU. `is_reported_damaged` is set if one of Foreload's own kernels has found
    /// damage in it.
    ForCpu {
        bytes: PinnedSlice,
        drawn: DrawnViews,
        is_reported_damaged: bool,
    },
    /// A file that the CPU must still read and decode. The file is not stored next to the rest of its sample, and there
    /// was no page-locked memory for it. `stamp` is the version of the shard that the sample was read from. `drawn` is
    /// set if the views depend on other fields of the sample.
    Unread {
        stamp: Option<Stamp>,
        drawn: Option<DrawnViews>,
    },
    /// Planes that the CPU has decoded, and that wait for page-locked memory.
    Decoded {
        planes: Box<Planes>,
        drawn: DrawnViews,
    },
    /// An image of a failed sample, which a substitute will replace.
    Replaced,
    /// An image without pixels: its sample has failed, or lacks this image, which is optional.
    Blank,
    /// No work is left: the image is in the batch, or the batch will not be delivered.
    Done,
}

impl LaneImage {
    /// Returns whether nvJPEG decodes the image, or has decoded it.
    pub(crate) fn is_encoded(&self) -> bool {
        matches!(self, Self::Encoded { .. })
    }

    /// Returns whether any decoder of the GPU decodes the image, or has decoded it.
    pub(crate) fn is_for_gpu(&self) -> bool {
        matches!(self, Self::Encoded { .. } | Self::Own { .. })
    }

    pub(super) fn pass_to_cpu(&mut self) {
        if let Self::Encoded { bytes, drawn, .. } | Self::Own { bytes, drawn, .. } = self {
            *self = Self::ForCpu { bytes: bytes.clone(), drawn: drawn.clone(), is_reported_damaged: false };
        }
    }

    /// Makes the CPU decode an image in which one of Foreload's own kernels has found damage.
    pub(super) fn mark_damaged(&mut self) {
        self.pass_to_cpu();
        if let Self::ForCpu { is_reported_damaged, .. } = self {
            *is_reported_damaged = true;
        }
    }

    /// Returns the layout of the image's planes in the arena of a lane; `None` for a blank image.
    pub(crate) fn layout(&self, abilities: &Abilities) -> Result<Option<PlanesLayout>> {
        Ok(match self {
            Self::Encoded { header, drawn, backend, .. } => {
                let layout = abilities.layout(header, drawn.region(), *backend);
                Some(layout.ok_or_else(|| Error::Internal(format!("{} has no layout", backend.name())))?)
            }
            Self::Own { plan, .. } => Some(plan.layout),
            Self::Planes { layout, .. } => Some(*layout),
            Self::Decoded { planes, .. } => Some(PlanesLayout::staged(planes)),
            Self::Blank => None,
            Self::ForCpu { .. } | Self::Unread { .. } | Self::Replaced | Self::Done => {
                return Err(Error::Internal("an image has no planes and no data for a GPU decoder".into()));
            }
        })
    }

    /// Returns the number of bytes that the image takes in the arena: its planes, which have this `layout`, and then
    /// the input of Foreload's own kernels.
    pub(crate) fn arena_bytes(&self, layout: &PlanesLayout) -> u64 {
        match self {
            Self::Own { plan, .. } => {
                planes_bytes(layout)
                    + LaunchTables::gather_bytes(plan.bytes.len() as u64).next_multiple_of(ALIGNMENT)
            }
            _ => planes_bytes(layout),
        }
    }

    pub(crate) fn drawn(&self) -> Option<&DrawnViews> {
        match self {
            Self::Encoded { drawn, .. }
            | Self::Own { drawn, .. }
            | Self::Planes { drawn, .. }
            | Self::Decoded { drawn, .. } => Some(drawn),
            Self::ForCpu { .. } | Self::Unread { .. } | Self::Replaced | Self::Blank | Self::Done => None,
        }
    }
}
