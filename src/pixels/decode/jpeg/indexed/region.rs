//! From an indexed image to the planes of a region: of each row of MCUs only the bytes around the region are read.

use super::IndexHead;
use crate::decode::Planes;
use crate::decode::jpeg::markers::ScanHeader;
use crate::decode::jpeg::scan::{self, Scan, ScanStart};
use crate::decode::jpeg::{Jpeg, PROGRESSIVE, RegionLayout};
use base::simd::Level;

/// Decodes what `layout` wants of `file` from the entry points of its index into `out`. `None` where they do not lead
/// to it: the file is damaged, or the index is another's.
pub(in super::super) fn decode_from(
    head: &IndexHead,
    jpeg: &mut Jpeg,
    (file, header): (&[u8], &mut ScanHeader),
    layout: &RegionLayout,
    level: Level,
    out: &mut Planes,
) -> Option<()> {
    if !head.is_of(header, layout) {
        return None;
    }
    let (width, height) = layout.mcus(&header.scan);
    header.tables.add_standard();
    layout.describe(&header.frame, out);
    layout.shape(&mut out.planes);
    let interval = header.tables.restart_interval;
    let (columns, rows) = layout.wanted(&header.scan);
    let blocks: u32 = layout.parts.iter().map(|part| part.h * part.v).sum();
    let skipped = u64::from(columns.start) * rows.len() as u64 * u64::from(blocks);
    let components = jpeg.components(header, layout, skipped).ok()?;
    for row in rows {
        let (entry, part) = head.row(row)?;
        let start = ScanStart {
            mcu: u64::from(row) * u64::from(width),
            skip: entry.skip,
            dc: std::array::from_fn(|component| entry.dc.get(component).copied().unwrap_or(0).into()),
        };
        let segment = start.mcu.checked_div(u64::from(interval)).unwrap_or(0);
        jpeg.entropy.unstuff_part(file, part, segment, level);
        let scan = Scan {
            entropy: &jpeg.entropy,
            components: &components,
            columns: width,
            rows: height,
            restart_interval: interval,
            start,
            wanted: (columns.clone(), row..row + 1),
        };
        scan::decode(&scan, &mut out.planes, level).ok()?;
    }
    Some(())
}

impl IndexHead<'_> {
    /// Whether the index can be that of a file with these headers.
    pub(super) fn is_of(&self, header: &ScanHeader, layout: &RegionLayout) -> bool {
        let is_one_scan = header.scan.len() == header.frame.components.len();
        let is_kind = layout.as_coded && is_one_scan && header.frame.marker != PROGRESSIVE;
        is_kind && self.facts.mcus == layout.mcus(&header.scan)
    }
}
