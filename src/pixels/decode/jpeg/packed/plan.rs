//! Plans for decoding a region of a packed image on a GPU. Only the head of the image is read.

use super::super::plan::{CudaPlan, PlannedComponent, PlannedRow, PlannedRows};
use super::super::{ComponentRegion, RegionLayout};
use super::head::{BlockGrid, PackedHead, grids};
use super::layout;
use crate::decode::Region;
use base::error::DecodeError;
use std::ops::Range;

#[derive(Debug)]
pub(in super::super) struct PackedImage(PackedHead);

impl PackedImage {
    pub(in super::super) fn read(packed: &[u8]) -> Result<Self, DecodeError> {
        PackedHead::read(packed).map(Self)
    }

    pub(in super::super) fn size(&self) -> (u32, u32) {
        (self.0.frame.width, self.0.frame.height)
    }

    pub(in super::super) fn plan(&self, region: Region) -> Result<CudaPlan, DecodeError> {
        let Self(head) = self;
        let region = layout(head, region)?;
        let (grids, _) = grids(&head.frame);
        let numbers = region.rows_of_mcus(&grids, head.rows.len());
        let bytes = head.bytes_of(&region);
        let rows = numbers.map(|number| {
            let place = head.row(number);
            let start = (place.start - bytes.start) as u64;
            let row = PlannedRow { number: number as u32, start, length: place.len() as u32 };
            (row, head.rows[number].crc)
        });
        let component = |(plane, (part, grid)): (usize, (&ComponentRegion, &BlockGrid))| {
            let grid = (grid.columns as u32, grid.rows as u32);
            PlannedComponent::new(plane, part, grid, &head.tables[part.quantisation])
        };
        Ok(CudaPlan {
            layout: region.planes(&head.frame),
            rows: PlannedRows::Packed(rows.collect()),
            bytes,
            components: region.parts.iter().zip(&grids).enumerate().map(component).collect(),
        })
    }
}

impl PackedHead {
    pub(super) fn bytes_of(&self, region: &RegionLayout) -> Range<usize> {
        let numbers = region.rows_of_mcus(&grids(&self.frame).0, self.rows.len());
        match numbers.clone().last() {
            Some(last) => self.row(numbers.start).start..self.row(last).end,
            None => 0..0,
        }
    }
}

impl RegionLayout {
    pub(super) fn rows_of_mcus(&self, grids: &[BlockGrid], rows: usize) -> Range<usize> {
        let over = self.parts.iter().zip(grids);
        let start = over.clone().map(|(part, grid)| part.rows.start as usize / grid.rows).min();
        let end = over.map(|(part, grid)| (part.rows.end as usize).div_ceil(grid.rows)).max();
        start.unwrap_or(0)..end.unwrap_or(0).min(rows)
    }
}
