//! Plans for decoding a region of an image with Foreload's own GPU kernels: the layout of the planes, and the needed
//! rows of MCUs. Making a plan reads only the headers of a packed or indexed image.

pub(in crate::decode) use super::huffman::HuffmanCode;
pub(in crate::decode) use super::indexed::EntryPoint;
use super::indexed::{IndexedImage, is_indexed};
use super::markers::Frame;
use super::packed::{PackedImage, is_packed};
use super::{ComponentRegion, RegionLayout};
use crate::decode::{PlaneLayout, PlanesLayout, Region};
use base::error::DecodeError;
use std::ops::Range;

/// An image that Foreload's own GPU kernels can decode, according to its headers.
#[derive(Debug)]
pub struct CudaImage<'a>(CudaImageFormat<'a>);

#[derive(Debug)]
enum CudaImageFormat<'a> {
    Packed(PackedImage),
    Indexed(IndexedImage<'a>),
}

impl<'a> CudaImage<'a> {
    /// Reads and checks the headers of an image, but not its rows of MCUs. Returns `None` for an image in another
    /// storage format, and for an image that only the CPU's decoder can handle.
    ///
    /// # Errors
    /// [`DecodeError::Corrupt`] for a damaged head.
    pub fn read(bytes: &'a [u8]) -> Result<Option<Self>, DecodeError> {
        if is_packed(bytes) {
            PackedImage::read(bytes).map(|image| Some(Self(CudaImageFormat::Packed(image))))
        } else if is_indexed(bytes) {
            Ok(IndexedImage::read(bytes)?.map(|image| Self(CudaImageFormat::Indexed(image))))
        } else {
            Ok(None)
        }
    }

    /// The width and height of the image.
    pub fn size(&self) -> (u32, u32) {
        match &self.0 {
            CudaImageFormat::Packed(image) => image.size(),
            CudaImageFormat::Indexed(image) => image.size(),
        }
    }

    /// Plans the decoding of `region`, which must not be empty and must be inside the image. Returns `None` if only the
    /// CPU's decoder can handle the image.
    ///
    /// # Errors
    /// [`DecodeError::Corrupt`] for sampling factors that packed images do not have.
    pub fn plan(&self, region: Region) -> Result<Option<CudaPlan>, DecodeError> {
        match &self.0 {
            CudaImageFormat::Packed(image) => image.plan(region).map(Some),
            CudaImageFormat::Indexed(image) => Ok(image.plan(region)),
        }
    }
}

/// The plan by which a GPU kernel decodes a region of an image.
#[derive(Debug, Clone)]
pub struct CudaPlan {
    /// The layout of the decoded planes in the image's device memory. The planes hold the blocks that the region needs.
    pub layout: PlanesLayout,
    /// The range of the image's bytes that the kernel needs.
    pub bytes: Range<usize>,
    /// The components, in the order in which a row of MCUs stores them.
    pub(in crate::decode) components: Vec<PlannedComponent>,
    pub(in crate::decode) rows: PlannedRows,
}

#[derive(Debug, Clone)]
pub(in crate::decode) struct PlannedComponent {
    pub(in crate::decode) plane: usize,
    /// The number of columns of blocks, including the padding blocks of MCUs.
    pub(in crate::decode) columns: u32,
    /// The number of rows of blocks in a row of MCUs.
    pub(in crate::decode) rows: u32,
    /// The columns and the rows of blocks to decode.
    pub(in crate::decode) wanted: [Range<u32>; 2],
    /// The quantisation steps, in row-major order.
    pub(in crate::decode) steps: [u16; 64],
}

impl PlannedComponent {
    /// Plans `part` of a component. `columns` and `rows` count the component's blocks in a row of MCUs; `table` has the
    /// quantisation steps in coding order.
    pub(super) fn new(
        plane: usize,
        part: &ComponentRegion,
        (columns, rows): (u32, u32),
        table: &[u16; 64],
    ) -> Self {
        let mut steps = [0; 64];
        super::idct::ZIGZAG.iter().zip(table).for_each(|(&place, &step)| steps[usize::from(place)] = step);
        Self { plane, columns, rows, wanted: [part.columns.clone(), part.rows.clone()], steps }
    }
}

#[derive(Debug, Clone, Copy)]
pub(in crate::decode) struct PlannedRow {
    pub(in crate::decode) number: u32,
    /// The row's offset in [`CudaPlan::bytes`].
    pub(in crate::decode) start: u64,
    pub(in crate::decode) length: u32,
}

#[derive(Debug, Clone)]
pub(in crate::decode) enum PlannedRows {
    /// Rows of a packed image, each with the CRC-32C of its bytes.
    Packed(Vec<(PlannedRow, u32)>),
    /// Rows of an indexed image, each with its entry point: the bits to skip, and the DC coefficients before the row.
    Indexed(PlannedScan, Vec<(PlannedRow, EntryPoint)>),
}

#[derive(Debug, Clone)]
pub(in crate::decode) struct PlannedScan {
    /// The number of columns of MCUs, and of rows.
    pub(in crate::decode) mcus: (u32, u32),
    pub(in crate::decode) restart_interval: u32,
    /// The range of columns of MCUs that contain blocks to decode.
    pub(in crate::decode) wanted: Range<u32>,
    /// The code of DC differences and the code of AC coefficients, for each component.
    pub(in crate::decode) codes: Vec<[HuffmanCode; 2]>,
}

impl RegionLayout {
    /// The layout of planes that hold the wanted blocks, within the edges of the image.
    pub(super) fn planes(&self, frame: &Frame) -> PlanesLayout {
        let planes = self.parts.iter().map(|part| {
            let samples = |blocks: &Range<u32>| 8 * blocks.start..8 * blocks.end;
            PlaneLayout::new(&part.sampling, samples(&part.columns), samples(&part.rows))
        });
        let whole = Region { x: 0, y: 0, width: frame.width, height: frame.height };
        let decoded = planes.clone().next().map_or(whole, |first| first.region(frame.width, frame.height));
        PlanesLayout::concatenated(self.color, decoded, planes)
    }
}
