//! What has to be known to decode a region of a packed image on a GPU: where its planes will lie, and which rows of
//! MCUs they are made of. All of it follows from the head.

use super::super::idct::ZIGZAG;
use super::super::markers::Frame;
use super::super::{ComponentPart, RegionLayout};
use super::head::{BlockGrid, PackedHead, grids};
use super::layout;
use crate::decode::Region;
use crate::decode::nvjpeg::{PlaneLayout, PlanesLayout};
use crate::error::DecodeError;
use std::ops::Range;

/// The head of a packed image.
#[derive(Debug)]
pub struct PackedImage(PackedHead);

/// How to decode a region of a packed image.
#[derive(Debug, Clone)]
pub struct PackedPlan {
    /// Where the planes lie in memory of their own. They hold the wanted blocks.
    pub layout: PlanesLayout,
    /// The bytes of the packed image that are needed.
    pub bytes: Range<usize>,
    pub(in crate::decode) components: Vec<PlannedComponent>,
    pub(in crate::decode) rows: Vec<PlannedRow>,
}

/// What is wanted of a component.
#[derive(Debug, Clone)]
pub(in crate::decode) struct PlannedComponent {
    /// The columns of blocks, and the rows of blocks in a row of MCUs.
    pub(in crate::decode) columns: u32,
    pub(in crate::decode) rows: u32,
    /// The wanted columns and rows of blocks.
    pub(in crate::decode) wanted: [Range<u32>; 2],
    /// The steps of quantisation, row by row of a block.
    pub(in crate::decode) steps: [u16; 64],
}

/// A row of MCUs that is wanted.
#[derive(Debug, Clone, Copy)]
pub(in crate::decode) struct PlannedRow {
    /// Which row of the image it is.
    pub(in crate::decode) number: u32,
    /// Where it begins among [`PackedPlan::bytes`], how many bytes it has, and their CRC-32C.
    pub(in crate::decode) start: u64,
    pub(in crate::decode) length: u32,
    pub(in crate::decode) crc: u32,
}

impl PackedImage {
    /// Reads the head of a packed image and checks it. The rows of MCUs are not looked at.
    ///
    /// # Errors
    /// [`DecodeError::Corrupt`] for a damaged head.
    pub fn read(packed: &[u8]) -> Result<Self, DecodeError> {
        PackedHead::read(packed).map(Self)
    }

    /// The columns and rows of the image.
    pub fn size(&self) -> (u32, u32) {
        (self.0.frame.width, self.0.frame.height)
    }

    /// Plans to decode `region`, which must not be empty and lie in the image.
    ///
    /// # Errors
    /// [`DecodeError::Corrupt`] for sampling factors that are not packed.
    pub fn plan(&self, region: Region) -> Result<PackedPlan, DecodeError> {
        let Self(head) = self;
        let region = layout(head, region)?;
        let (grids, _) = grids(&head.frame);
        let numbers = region.rows_of_mcus(&grids, head.rows.len());
        let bytes = head.bytes_of(&region);
        let rows = numbers.map(|number| {
            let place = head.row(number);
            PlannedRow {
                number: number as u32,
                start: (place.start - bytes.start) as u64,
                length: place.len() as u32,
                crc: head.rows[number].crc,
            }
        });
        let component = |(part, grid): (&ComponentPart, &BlockGrid)| {
            let table = &head.tables[part.quantisation];
            let mut steps = [0; 64];
            ZIGZAG.iter().zip(table).for_each(|(&place, &step)| steps[usize::from(place)] = step);
            let (columns, rows) = (grid.columns as u32, grid.rows as u32);
            PlannedComponent { columns, rows, wanted: [part.columns.clone(), part.rows.clone()], steps }
        };
        Ok(PackedPlan {
            layout: region.planes(&head.frame),
            rows: rows.collect(),
            bytes,
            components: region.parts.iter().zip(&grids).map(component).collect(),
        })
    }
}

impl PackedHead {
    /// The bytes of the rows of MCUs that hold wanted blocks.
    pub(super) fn bytes_of(&self, region: &RegionLayout) -> Range<usize> {
        let numbers = region.rows_of_mcus(&grids(&self.frame).0, self.rows.len());
        match numbers.clone().last() {
            Some(last) => self.row(numbers.start).start..self.row(last).end,
            None => 0..0,
        }
    }
}

impl RegionLayout {
    /// The rows of MCUs that hold wanted blocks, of `rows` in all.
    pub(super) fn rows_of_mcus(&self, grids: &[BlockGrid], rows: usize) -> Range<usize> {
        let over = self.parts.iter().zip(grids);
        let start = over.clone().map(|(part, grid)| part.rows.start as usize / grid.rows).min();
        let end = over.map(|(part, grid)| (part.rows.end as usize).div_ceil(grid.rows)).max();
        start.unwrap_or(0)..end.unwrap_or(0).min(rows)
    }

    /// The layout of planes that hold the wanted blocks, up to the edges of the image.
    fn planes(&self, frame: &Frame) -> PlanesLayout {
        let planes = self.parts.iter().map(|part| {
            let samples = |blocks: &Range<u32>| 8 * blocks.start..8 * blocks.end;
            PlaneLayout::new(&part.sampling, samples(&part.columns), samples(&part.rows))
        });
        let whole = Region { x: 0, y: 0, width: frame.width, height: frame.height };
        let decoded = planes.clone().next().map_or(whole, |first| first.region(frame.width, frame.height));
        PlanesLayout::stacked(self.color, decoded, planes)
    }
}
