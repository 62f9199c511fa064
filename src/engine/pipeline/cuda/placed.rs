//! A sample whose images have memory in a lane's arena, and the requests to decode into that memory.

use super::image::{LaneImage, LaneSample};
use super::per_image::PerImage;
use pixels::decode::nvjpeg::{NvJpegBackend, PlaneTarget, Request};
use pixels::decode::{PlaneLayout, PlanesLayout};

pub(crate) struct PlacedSample {
    pub work: LaneSample,
    /// The offset in the arena and the layout of each image's planes; `None` for a blank image. After the planes comes
    /// the input of Foreload's own kernels, if one of them decodes the image.
    pub at: PerImage<Option<(u64, PlanesLayout)>>,
}

impl PlacedSample {
    pub(crate) fn images(&self) -> impl Iterator<Item = (&LaneImage, &Option<(u64, PlanesLayout)>)> {
        self.work.images.iter().zip(self.at.iter())
    }
}

/// Returns the requests to `backend` for decoding into the arena. Each request comes with the index of its sample in
/// `placed` and the index of the image in the sample.
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
