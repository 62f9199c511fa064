//! A sample whose images have places in a lane's arena, and the requests to decode into these places.

use super::image::{LaneImage, LaneSample};
use super::per_image::PerImage;
use pixels::decode::nvjpeg::{NvJpegBackend, PlaneTarget, Request};
use pixels::decode::{PlaneLayout, PlanesLayout};

/// A sample whose images have places in the arena.
pub(crate) struct PlacedSample {
    pub work: LaneSample,
    /// The offset and the layout of each image's planes; `None` for a blank image. The planes are followed by the bytes
    /// that one of Foreload's own kernels needs.
    pub at: PerImage<Option<(u64, PlanesLayout)>>,
}

impl PlacedSample {
    /// Iterates over the images with their places in the arena.
    pub(crate) fn images(&self) -> impl Iterator<Item = (&LaneImage, &Option<(u64, PlanesLayout)>)> {
        self.work.images.iter().zip(self.at.iter())
    }
}

/// Returns the requests for `backend` to decode into the arena. For each request, also returns the index of its sample
/// in `placed` and the index of the image in the sample.
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
