//! What has to be known to decode a region of an indexed image on a GPU, which follows from the index and the headers
//! of the JPEG.

use super::IndexHead;
use crate::decode::Region;
use crate::decode::jpeg::huffman::HuffmanCode;
use crate::decode::jpeg::markers::{ScanComponent, ScanHeader};
use crate::decode::jpeg::plan::{OwnPlan, PlannedComponent, PlannedRow, PlannedRows, PlannedScan};
use crate::decode::jpeg::{RegionLayout, check_size, refuse_unknown};
use base::error::DecodeError;

/// The most bytes of a block of a row: 64 codes of up to 27 bits with their values, each byte of them stuffed, and a
/// restart marker. A longer row is filled up with bytes that code nothing, which one thread of a GPU would step over
/// for seconds; the CPU decodes such an image.
const LONGEST_BLOCK: usize = 64 * 4 * 2 + 8;

/// An indexed image: its index, and the headers of its JPEG.
#[derive(Debug)]
pub(in super::super) struct IndexedImage<'a> {
    head: IndexHead<'a>,
    file: &'a [u8],
    header: Box<ScanHeader>,
}

impl<'a> IndexedImage<'a> {
    /// Reads the index and the headers of an indexed image. `None` for headers that only the CPU's decoder knows, or
    /// that it has to complain of.
    pub(in super::super) fn read(indexed: &'a [u8]) -> Result<Option<Self>, DecodeError> {
        let head = IndexHead::read(indexed)?;
        let file = &indexed[head.file()];
        let known = ScanHeader::parse(file).and_then(|header| {
            refuse_unknown(&header)?;
            check_size(file, &header)?;
            Ok(header)
        });
        Ok(known.ok().map(|mut header| {
            header.tables.add_standard();
            Self { head, file, header: Box::new(header) }
        }))
    }

    /// The columns and rows of the image.
    pub(in super::super) fn size(&self) -> (u32, u32) {
        (self.header.frame.width, self.header.frame.height)
    }

    /// Plans to decode `region`. `None` where the index does not lead to it, or the CPU's decoder has to complain.
    pub(in super::super) fn plan(&self, region: Region) -> Option<OwnPlan> {
        let Self { head, file, header } = self;
        let layout = RegionLayout::of_coded(&header.frame, header.color_space, region)?;
        if !head.is_of(header, &layout) {
            return None;
        }
        let (columns, numbers) = layout.wanted(&header.scan);
        let mcus = layout.mcus(&header.scan);
        let rows = numbers.map(|number| {
            let (entry, part) = head.row(number)?;
            file.get(part.clone())?;
            Some((number, entry, part))
        });
        let rows = rows.collect::<Option<Vec<_>>>()?;
        let factors = |scan: &ScanComponent| layout.parts[scan.component].factors(&header.scan);
        let blocks: u32 = header.scan.iter().map(factors).map(|(h, v)| h * v).sum();
        let longest = mcus.0 as usize * blocks as usize * LONGEST_BLOCK;
        if rows.iter().any(|(_, _, part)| part.len() > longest) {
            return None;
        }
        let start = rows.iter().map(|(_, _, part)| part.start).min()?;
        let end = rows.iter().map(|(_, _, part)| part.end).max()?;
        let row = |(number, entry, part): (u32, _, std::ops::Range<usize>)| {
            let begins = (part.start - start) as u64;
            (PlannedRow { number, start: begins, length: part.len() as u32 }, entry)
        };
        let component = |scan: &ScanComponent| {
            let part = &layout.parts[scan.component];
            let (h, v) = part.factors(&header.scan);
            let table = header.tables.quantisation(part.quantisation).ok()?;
            // With such a step the CPU's bounds are others than products of coefficients and steps.
            let usable = !table.contains(&0);
            usable.then(|| PlannedComponent::new(scan.component, part, (mcus.0 * h, v), table))
        };
        let codes = |scan: &ScanComponent| {
            let dc = header.tables.dc(scan).and_then(|dc| dc.check_dc()).ok()?;
            Some([dc, header.tables.ac(scan).ok()?].map(HuffmanCode::new))
        };
        let scan = PlannedScan {
            mcus,
            restart_interval: header.tables.restart_interval,
            wanted: columns,
            codes: header.scan.iter().map(codes).collect::<Option<_>>()?,
        };
        let file_at = head.file().start;
        Some(OwnPlan {
            layout: layout.planes(&header.frame),
            bytes: file_at + start..file_at + end,
            components: header.scan.iter().map(component).collect::<Option<_>>()?,
            rows: PlannedRows::Indexed(scan, rows.into_iter().map(row).collect()),
        })
    }
}
