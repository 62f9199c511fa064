//! The layout of an image's planes in device memory: which pixel values each plane holds, and at which offsets.

use super::planes::Sampling;
use super::{ColorModel, JpegHeader, Planes, Region};
use std::ops::Range;

/// Planes and their rows begin at multiples of this many bytes.
const ALIGNMENT: u64 = 64;

/// The layout of one plane, for decoders that write it.
///
/// Sample (x, y) of the whole component is `(y - y0) * stride + (x - x0)` bytes after the plane's first byte, for x in
/// x0..x0+width and y in y0..y0+height.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PlaneLayout {
    /// The bytes from the start of the image's memory to the start of the plane.
    pub offset: u64,
    /// The bytes from one row to the next.
    pub stride: u32,
    /// The column, in the component, of the first stored sample.
    pub x0: u32,
    /// The row, in the component, of the first stored sample.
    pub y0: u32,
    /// The number of stored columns.
    pub width: u32,
    /// The number of stored rows.
    pub height: u32,
    /// The columns of the whole component.
    pub full_width: u32,
    /// The rows of the whole component.
    pub full_height: u32,
    /// The image columns that one sample spans: 1, 2 or 4.
    pub step_x: u32,
    /// The image rows that one sample spans: 1, 2 or 4.
    pub step_y: u32,
}

impl PlaneLayout {
    /// A plane at offset 0 that holds these columns and rows of a component, within the component's bounds. The stride
    /// is large enough for all columns.
    pub(super) fn new(sampling: &Sampling, columns: Range<u32>, rows: Range<u32>) -> Self {
        let (full_width, full_height) =
            (sampling.image_width.div_ceil(sampling.step_x), sampling.image_height.div_ceil(sampling.step_y));
        Self {
            offset: 0,
            stride: (columns.len() as u32).next_multiple_of(ALIGNMENT as u32),
            x0: columns.start,
            y0: rows.start,
            width: columns.end.min(full_width) - columns.start,
            height: rows.end.min(full_height) - rows.start,
            full_width,
            full_height,
            step_x: sampling.step_x,
            step_y: sampling.step_y,
        }
    }

    /// The pixels that the plane's samples span, in an image of this size.
    pub(super) fn region(&self, image_width: u32, image_height: u32) -> Region {
        let (x, y) = (self.x0 * self.step_x, self.y0 * self.step_y);
        Region {
            x,
            y,
            width: (self.width * self.step_x).min(image_width - x),
            height: (self.height * self.step_y).min(image_height - y),
        }
    }
}

/// The layout of all planes of an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlanesLayout {
    /// Which colour component each plane holds; [`ColorModel::Gray`] uses only the first plane.
    pub color: ColorModel,
    /// The rectangle of image pixels that the planes hold.
    pub decoded: Region,
    /// The layout of each component's plane.
    pub planes: [PlaneLayout; 3],
    /// The bytes of memory for all planes. The memory must begin at a multiple of 64, as device memory does.
    pub bytes: u64,
}

impl PlanesLayout {
    /// Lays out an image of which at least `region` is decoded, with the margin that chroma upsampling needs. The
    /// decoded rectangle begins at an MCU boundary, and ends at an MCU boundary or at the image's edge. Returns `None`
    /// if the coded components cannot be used as planes.
    ///
    /// # Panics
    /// Panics if the region is empty or exceeds the image.
    pub(super) fn of(header: &JpegHeader, region: Region) -> Option<Self> {
        let color = header.color()?;
        region.assert_inside(header.width, header.height);
        let count = usize::from(header.components);
        let mut samplings = [header.sampling(0)?; 3];
        for (index, sampling) in samplings.iter_mut().enumerate().take(count) {
            *sampling = header.sampling(index)?;
        }
        let samplings = &samplings[..count];
        // The region that any component needs, in whole MCUs, so that its edges are sample edges in every component.
        let along = |x: bool| {
            let mcu = 8 * samplings.iter().map(|s| if x { s.step_x } else { s.step_y }).max().unwrap_or(1);
            let full = if x { header.width } else { header.height };
            let wanted = samplings.iter().map(|sampling| {
                let (columns, rows) = sampling.wanted(region);
                let (range, step) = if x { (columns, sampling.step_x) } else { (rows, sampling.step_y) };
                (range.start * step, range.end * step)
            });
            let (start, end) = wanted.fold((full, 0), |(start, end), one| (start.min(one.0), end.max(one.1)));
            let start = start / mcu * mcu;
            (start, end.next_multiple_of(mcu).min(full) - start)
        };
        let ((x, width), (y, height)) = (along(true), along(false));
        let planes = samplings.iter().map(|sampling| {
            let (x0, y0) = (x / sampling.step_x, y / sampling.step_y);
            let (columns, rows) = (width.div_ceil(sampling.step_x), height.div_ceil(sampling.step_y));
            PlaneLayout::new(sampling, x0..x0 + columns, y0..y0 + rows)
        });
        Some(Self::concatenated(color, Region { x, y, width, height }, planes))
    }

    /// Lays out planes one after another. Together they hold the pixels `decoded`.
    pub(super) fn concatenated(
        color: ColorModel,
        decoded: Region,
        planes: impl Iterator<Item = PlaneLayout>,
    ) -> Self {
        let mut layout = Self { color, decoded, planes: Default::default(), bytes: 0 };
        for (to, plane) in layout.planes.iter_mut().zip(planes) {
            *to = PlaneLayout { offset: layout.bytes, ..plane };
            layout.bytes += u64::from(plane.stride) * u64::from(plane.height);
        }
        layout
    }

    /// The layout of planes that the CPU has decoded and that are copied to the device unchanged, as `stride * height`
    /// bytes each.
    pub fn staged(planes: &Planes) -> Self {
        let count = if planes.color == ColorModel::Gray { 1 } else { 3 };
        let mut layout = [PlaneLayout::default(); 3];
        let mut bytes = 0u64;
        for (to, plane) in layout.iter_mut().zip(&planes.planes[..count]) {
            *to = PlaneLayout {
                offset: bytes,
                stride: plane.stride as u32,
                x0: plane.x0,
                y0: plane.y0,
                width: plane.width,
                height: plane.height,
                full_width: plane.full_width,
                full_height: plane.full_height,
                step_x: plane.step_x,
                step_y: plane.step_y,
            };
            bytes += (plane.stride as u64 * u64::from(plane.height)).next_multiple_of(ALIGNMENT);
        }
        let decoded = layout[0].region(planes.image_width, planes.image_height);
        Self { color: planes.color, decoded, planes: layout, bytes }
    }

    /// The planes that the colour model uses.
    pub fn used(&self) -> &[PlaneLayout] {
        &self.planes[..if self.color == ColorModel::Gray { 1 } else { 3 }]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_whole_image_lies_plane_behind_plane() {
        let header = JpegHeader::baseline([(2, 2), (1, 1), (1, 1), (0, 0)], 3);
        let layout = PlanesLayout::of(&header, header.whole()).unwrap();
        assert_eq!(layout.decoded, header.whole());
        let shapes = layout.used().iter().map(|p| (p.offset, p.stride, p.width, p.height));
        assert_eq!(shapes.collect::<Vec<_>>(), [(0, 128, 100, 80), (10240, 64, 50, 40), (12800, 64, 50, 40)]);
        assert_eq!(layout.bytes, 15360);
    }

    #[test]
    fn a_region_grows_to_whole_mcus_with_chromas_margin() {
        let header = JpegHeader::baseline([(2, 2), (1, 1), (1, 1), (0, 0)], 3);
        let region = Region { x: 32, y: 17, width: 16, height: 14 };
        let layout = PlanesLayout::of(&header, region).unwrap();
        // The chroma sample to the left of column 32 is in the previous MCU; rows 15..33 touch three MCUs.
        assert_eq!(layout.decoded, Region { x: 16, y: 0, width: 48, height: 48 });
        assert_eq!((layout.planes[1].x0, layout.planes[1].width, layout.planes[1].full_width), (8, 24, 50));
        let edge = PlanesLayout::of(&header, Region { x: 99, y: 79, width: 1, height: 1 }).unwrap();
        assert_eq!(edge.decoded, Region { x: 96, y: 64, width: 4, height: 16 });
    }

    #[test]
    fn every_layout_holds_what_the_cpu_would_decode() {
        for factors in [[(2, 2), (1, 1)], [(2, 1), (1, 1)], [(1, 2), (1, 1)], [(1, 1), (1, 1)]] {
            let [luma, chroma] = factors;
            let header = JpegHeader::baseline([luma, chroma, chroma, (0, 0)], 3);
            for x in 0..header.width {
                for width in [1, 2, 17, header.width] {
                    let width = width.min(header.width - x);
                    let region = Region { x, y: x % header.height, width, height: 1 };
                    let layout = PlanesLayout::of(&header, region).unwrap();
                    for (index, plane) in layout.planes.iter().enumerate() {
                        let (columns, rows) = header.sampling(index).unwrap().wanted(region);
                        assert!(plane.x0 <= columns.start && columns.end <= plane.x0 + plane.width);
                        assert!(plane.y0 <= rows.start && rows.end <= plane.y0 + plane.height);
                        assert!(plane.x0 + plane.width <= plane.full_width && plane.width <= plane.stride);
                        assert!(plane.y0 + plane.height <= plane.full_height);
                    }
                }
            }
        }
    }
}
