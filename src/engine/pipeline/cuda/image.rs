//! A sample on its way through a lane, and how far each of its images has come.

use super::per_image::PerImage;
use super::refused::ImageId;
use crate::batch::Ticket;
use crate::pipeline::mixing::FilledPlace;
use base::error::{Error, Result};
use data::dataset::Stamp;
use data::schedule::Draw;
use pixels::augment::DrawnViews;
use pixels::decode::cuda::{OwnPlan, OwnTables};
use pixels::decode::nvjpeg::{Abilities, NvJpegBackend};
use pixels::decode::{JpegHeader, Planes, PlanesLayout};
use pixels::gpu::PinnedSlice;

/// What lies in the arena of a lane begins at multiples of this, as nvJPEG and wide loads need.
const ALIGNMENT: u64 = 256;

/// The number of bytes of the arena that planes take.
pub(super) fn planes_bytes(layout: &PlanesLayout) -> u64 {
    layout.bytes.next_multiple_of(ALIGNMENT)
}

/// One sample of a piece. Its images go through the lane together: when one is decoded again, all are, and when one
/// fails, the sample does.
pub(crate) struct LaneSample {
    pub ticket: Ticket,
    pub(super) position: u64,
    /// The sample and which of its draws it is; those of the substitute once there is one.
    pub draw: Draw,
    /// The element of the mask: whether the sample counts.
    pub valid: bool,
    pub images: PerImage<LaneImage>,
}

impl LaneSample {
    /// What identifies an image of the sample.
    pub(super) fn id(&self, image: usize) -> ImageId {
        ImageId { sample: self.draw.sample, image: image as u32 }
    }

    /// The place of the sample in its batch, filled but for what mixing changes.
    pub(crate) fn into_place(self) -> FilledPlace {
        let Draw { sample, occurrence } = self.draw;
        FilledPlace { ticket: self.ticket, position: self.position, sample, occurrence, valid: self.valid }
    }

    /// Whether nvJPEG is to decode an image of the sample, or did.
    pub(crate) fn is_encoded(&self) -> bool {
        self.images.iter().any(LaneImage::is_encoded)
    }

    /// Whether a decoder of the GPU is to decode an image of the sample, or did.
    pub(crate) fn is_for_gpu(&self) -> bool {
        self.images.iter().any(LaneImage::is_for_gpu)
    }
}

/// How far an image has come.
pub(crate) enum LaneImage {
    /// A file for nvJPEG.
    Encoded {
        bytes: PinnedSlice,
        header: JpegHeader,
        drawn: DrawnViews,
        backend: NvJpegBackend,
        /// Whether the same decoder has it a second time, because there is no other, or because the check was doubtful.
        tried_again: bool,
    },
    /// A packed or an indexed image for a kernel of our own.
    Own { bytes: PinnedSlice, plan: Box<OwnPlan>, drawn: DrawnViews },
    /// Planes in page-locked memory.
    Planes { bytes: PinnedSlice, layout: PlanesLayout, drawn: DrawnViews },
    /// A file for the CPU. It may be one in which a kernel of our own has found damage.
    ForCpu { bytes: PinnedSlice, drawn: DrawnViews, is_doubted: bool },
    /// A file for the CPU that is still to be read, from the version of its shard that has this stamp.
    Unread { stamp: Option<Stamp>, drawn: Option<DrawnViews> },
    /// Planes that the CPU has decoded, before there is page-locked memory for them.
    Decoded { planes: Box<Planes>, drawn: DrawnViews },
    /// An image of a sample that failed, whose place a substitute is to take.
    Replaced,
    /// The image is zeros.
    Blank,
    /// Nothing is left to do: the image is in the batch, or its batch will not be delivered.
    Nothing,
}

impl LaneImage {
    /// Whether nvJPEG is to decode it, or did.
    pub(crate) fn is_encoded(&self) -> bool {
        matches!(self, Self::Encoded { .. })
    }

    /// Whether a decoder of the GPU is to decode it, or did.
    pub(crate) fn is_for_gpu(&self) -> bool {
        matches!(self, Self::Encoded { .. } | Self::Own { .. })
    }

    /// Gives a file of the GPU's to the CPU.
    pub(super) fn leave_to_cpu(&mut self) {
        if let Self::Encoded { bytes, drawn, .. } | Self::Own { bytes, drawn, .. } = self {
            *self = Self::ForCpu { bytes: bytes.clone(), drawn: drawn.clone(), is_doubted: false };
        }
    }

    /// Gives an image in which a kernel of our own has found damage to the CPU.
    pub(super) fn doubt(&mut self) {
        self.leave_to_cpu();
        if let Self::ForCpu { is_doubted, .. } = self {
            *is_doubted = true;
        }
    }

    /// How its planes lie in the arena of a lane; `None` for a blank image.
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
            Self::ForCpu { .. } | Self::Unread { .. } | Self::Replaced | Self::Nothing => {
                return Err(Error::Internal("the CPU left an image".into()));
            }
        })
    }

    /// The number of bytes of the arena that it takes, of which the first are planes of this `layout`.
    pub(crate) fn arena_bytes(&self, layout: &PlanesLayout) -> u64 {
        match self {
            Self::Own { plan, .. } => {
                planes_bytes(layout) + OwnTables::room(plan.bytes.len() as u64).next_multiple_of(ALIGNMENT)
            }
            _ => planes_bytes(layout),
        }
    }

    /// The views that were drawn of it, where they are known.
    pub(crate) fn drawn(&self) -> Option<&DrawnViews> {
        match self {
            Self::Encoded { drawn, .. }
            | Self::Own { drawn, .. }
            | Self::Planes { drawn, .. }
            | Self::Decoded { drawn, .. } => Some(drawn),
            Self::ForCpu { .. } | Self::Unread { .. } | Self::Replaced | Self::Blank | Self::Nothing => None,
        }
    }
}
