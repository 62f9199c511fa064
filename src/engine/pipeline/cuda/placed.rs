//! A sample whose images have places in a lane's arena, and what a decoder is asked to decode into them.

use super::image::{LaneImage, LaneSample};
use super::per_image::PerImage;
use pixels::decode::nvjpeg::{NvJpegBackend, PlaneTarget, Request};
use pixels::decode::{PlaneLayout, PlanesLayout};

/// A sample whose images have places in the arena.
pub(crate) struct PlacedSample {
    pub work: LaneSample,
    /// The offset and the layout of each image's planes, behind which are the bytes that a kernel of our own
    /// needs; `None` for a blank image.
    pub at: PerImage<Option<(u64, PlanesLayout)>>,
}

impl PlacedSample {
    /// Each image with its place in the arena.
    pub(crate) fn images(&self) -> impl Iterator<Item = (&LaneImage, &Option<(u64, PlanesLayout)>)> {
        self.work.images.iter().zip(self.at.iter())
    }
}

/// The requests for `backend` to decode into the arena, and for each of them which sample of `placed` and which of its
/// images it is for.
pub(crate) fn requests(
    backend: NvJpegBackend,
    arena: u64,
    placed: &[PlacedSample],
) -> (Vec<(usize, usize)>, Vec<Request<'_>>) {
    let (mut indices, mut requests) = (Vec::new(), Vec::new());
    for (index, sample) in placed.iter().enumerate() {
        for (number, (image, at)) in sample.images().enumerate() {
            if let (LaneImage::Encoded { bytes, header, backend: own, .. }, Some((offset, layout))) =
                (image, at)
                && *own == backend
            {
                let target = |plane: PlaneLayout| PlaneTarget {
                    ptr: arena + offset + plane.offset,
                    stride: plane.stride,
                };
                requests.push(Request { bytes, header, layout, planes: layout.planes.map(target) });
                indices.push((index, number));
            }
        }
    }
    (indices, requests)
}
