//! Plans for decoding a region of an indexed image on a GPU. Only the index and the headers of the JPEG are read.

use super::IndexHead;
use crate::decode::Region;
use crate::decode::jpeg::huffman::HuffmanCode;
use crate::decode::jpeg::markers::{ScanComponent, ScanHeader};
use crate::decode::jpeg::plan::{CudaPlan, PlannedComponent, PlannedRow, PlannedRows, PlannedScan};
use crate::decode::jpeg::{RegionLayout, check_size, check_supported};
use base::error::DecodeError;

/// The largest number of bytes per block of a row of MCUs: 64 codes of up to 27 bits with their values, every byte
/// stuffed, and a restart marker. If a row is longer, it contains bytes that code nothing, and one GPU thread would
/// take seconds to skip them. The CPU decodes such an image.
const LONGEST_BLOCK: usize = 64 * 4 * 2 + 8;

#[derive(Debug)]
pub(in super::super) struct IndexedImage<'a> {
    head: IndexHead<'a>,
    file: &'a [u8],
    header: Box<ScanHeader>,
}

impl<'a> IndexedImage<'a> {
    /// Reads the index and the headers of an indexed image. Returns `None` if the headers are damaged or unsupported;
    /// the CPU's decoder then reports the error.
    pub(in super::super) fn read(indexed: &'a [u8]) -> Result<Option<Self>, DecodeError> {
        let head = IndexHead::read(indexed)?;
        let file = &indexed[head.file()];
        let known = ScanHeader::parse(file).and_then(|header| {
            check_supported(&header)?;
            check_size(file, &header)?;
            Ok(header)
        });
        Ok(known.ok().map(|mut header| {
            header.tables.add_standard();
            Self { head, file, header: Box::new(header) }
        }))
    }

    pub(in super::super) fn size(&self) -> (u32, u32) {
        (self.header.frame.width, self.header.frame.height)
    }

    /// Plans the decoding of `region`. Returns `None` if the index does not match the file, or if only the CPU's
    /// decoder can decode the image or report its error.
    pub(in super::super) fn plan(&self, region: Region) -> Option<CudaPlan> {
        let Self { head, file, header } = self;
        let layout = RegionLayout::of_coded(&header.frame, header.color_space, region)?;
        if !head.matches_file(header, &layout) {
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
            // The kernel checks only products of coefficients and steps. With a step of 0, products do not show a
            // coefficient that the CPU finds out of range.
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
        Some(CudaPlan {
            layout: layout.planes(&header.frame),
            bytes: file_at + start..file_at + end,
            components: header.scan.iter().map(component).collect::<Option<_>>()?,
            rows: PlannedRows::Indexed(scan, rows.into_iter().map(row).collect()),
        })
    }
}
