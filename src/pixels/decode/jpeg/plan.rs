//! What has to be known to decode a region of an image by a kernel of our own on a GPU: where its planes will lie, and
//! which rows of MCUs they are made of. All of it follows from the headers of a packed or an indexed image.

pub(in crate::decode) use super::huffman::HuffmanCode;
pub(in crate::decode) use super::indexed::EntryPoint;
use super::indexed::{IndexedImage, is_indexed};
use super::markers::Frame;
use super::packed::{PackedImage, is_packed};
use super::{ComponentPart, RegionLayout};
use crate::decode::{PlaneLayout, PlanesLayout, Region};
use base::error::DecodeError;
use std::ops::Range;

/// An image that a kernel of our own can decode, by its headers.
#[derive(Debug)]
pub struct OwnImage<'a>(OwnForm<'a>);

#[derive(Debug)]
enum OwnForm<'a> {
    Packed(PackedImage),
    Indexed(IndexedImage<'a>),
}

impl<'a> OwnImage<'a> {
    /// Reads the headers of an image and checks them. The rows of MCUs are not looked at. `None` for an image of
    /// another form, and for one whose JPEG the CPU's decoder has to look at.
    ///
    /// # Errors
    /// [`DecodeError::Corrupt`] for a damaged head.
    pub fn read(bytes: &'a [u8]) -> Result<Option<Self>, DecodeError> {
        if is_packed(bytes) {
            PackedImage::read(bytes).map(|image| Some(Self(OwnForm::Packed(image))))
        } else if is_indexed(bytes) {
            Ok(IndexedImage::read(bytes)?.map(|image| Self(OwnForm::Indexed(image))))
        } else {
            Ok(None)
        }
    }

    /// The columns and rows of the image.
    pub fn size(&self) -> (u32, u32) {
        match &self.0 {
            OwnForm::Packed(image) => image.size(),
            OwnForm::Indexed(image) => image.size(),
        }
    }

    /// Plans to decode `region`, which must not be empty and lie in the image. `None` where the CPU's decoder has to
    /// look at the image.
    ///
    /// # Errors
    /// [`DecodeError::Corrupt`] for sampling factors that are not packed.
    pub fn plan(&self, region: Region) -> Result<Option<OwnPlan>, DecodeError> {
        match &self.0 {
            OwnForm::Packed(image) => image.plan(region).map(Some),
            OwnForm::Indexed(image) => Ok(image.plan(region)),
        }
    }
}

/// How a kernel of our own decodes a region of an image.
#[derive(Debug, Clone)]
pub struct OwnPlan {
    /// Where the planes lie in memory of their own. They hold the wanted blocks.
    pub layout: PlanesLayout,
    /// The bytes of the image that are needed.
    pub bytes: Range<usize>,
    /// The components, in the order in which a row of MCUs has them.
    pub(in crate::decode) components: Vec<PlannedComponent>,
    pub(in crate::decode) rows: PlannedRows,
}

/// What is wanted of a component.
#[derive(Debug, Clone)]
pub(in crate::decode) struct PlannedComponent {
    /// The number of its plane.
    pub(in crate::decode) plane: usize,
    /// The columns of blocks, with those that only fill MCUs, and the rows of blocks in a row of MCUs.
    pub(in crate::decode) columns: u32,
    pub(in crate::decode) rows: u32,
    /// The wanted columns and rows of blocks.
    pub(in crate::decode) wanted: [Range<u32>; 2],
    /// The steps of quantisation, row by row of a block.
    pub(in crate::decode) steps: [u16; 64],
}

impl PlannedComponent {
    /// The part `part` of a component, of which a row of MCUs has so many columns and rows of blocks. The steps are
    /// those of `table`, which is in coding order.
    pub(super) fn new(
        plane: usize,
        part: &ComponentPart,
        (columns, rows): (u32, u32),
        table: &[u16; 64],
    ) -> Self {
        let mut steps = [0; 64];
        super::idct::ZIGZAG.iter().zip(table).for_each(|(&place, &step)| steps[usize::from(place)] = step);
        Self { plane, columns, rows, wanted: [part.columns.clone(), part.rows.clone()], steps }
    }
}

/// A row of MCUs that is wanted.
#[derive(Debug, Clone, Copy)]
pub(in crate::decode) struct PlannedRow {
    /// Which row of the image it is.
    pub(in crate::decode) number: u32,
    /// Where it begins among [`OwnPlan::bytes`], and how many bytes it has.
    pub(in crate::decode) start: u64,
    pub(in crate::decode) length: u32,
}

/// The rows of MCUs that are wanted.
#[derive(Debug, Clone)]
pub(in crate::decode) enum PlannedRows {
    /// Those of a packed image, each with the CRC-32C of its bytes.
    Packed(Vec<(PlannedRow, u32)>),
    /// Those of an indexed image, each with the bits and the coefficients before it.
    Indexed(PlannedScan, Vec<(PlannedRow, EntryPoint)>),
}

/// The scan of an indexed image.
#[derive(Debug, Clone)]
pub(in crate::decode) struct PlannedScan {
    /// The columns and rows of MCUs.
    pub(in crate::decode) mcus: (u32, u32),
    /// The number of MCUs between restart markers; 0 if there are none.
    pub(in crate::decode) restart_interval: u32,
    /// The columns of MCUs that hold wanted blocks.
    pub(in crate::decode) wanted: Range<u32>,
    /// Of each component the code of DC differences and that of AC coefficients.
    pub(in crate::decode) codes: Vec<[HuffmanCode; 2]>,
}

impl RegionLayout {
    /// The layout of planes that hold the wanted blocks, up to the edges of the image.
    pub(super) fn planes(&self, frame: &Frame) -> PlanesLayout {
        let planes = self.parts.iter().map(|part| {
            let samples = |blocks: &Range<u32>| 8 * blocks.start..8 * blocks.end;
            PlaneLayout::new(&part.sampling, samples(&part.columns), samples(&part.rows))
        });
        let whole = Region { x: 0, y: 0, width: frame.width, height: frame.height };
        let decoded = planes.clone().next().map_or(whole, |first| first.region(frame.width, frame.height));
        PlanesLayout::stacked(self.color, decoded, planes)
    }
}
