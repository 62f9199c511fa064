//! Decodes a region of an indexed image to planes. Each row of MCUs is decoded only up to the region's right edge.

use super::IndexHead;
use crate::decode::Planes;
use crate::decode::jpeg::markers::ScanHeader;
use crate::decode::jpeg::rows::{ScanFromEntryPoint, is_sequential_scan};
use crate::decode::jpeg::{Jpeg, RegionLayout};
use base::simd::Level;

/// Decodes the region of `layout` from `file` into `out`, starting at the entry points of the index. Returns `None` if
/// the entry points do not lead to the region: the file is damaged, or the index belongs to another file.
pub(in super::super) fn decode_from(
    head: &IndexHead,
    jpeg: &mut Jpeg,
    (file, header): (&[u8], &mut ScanHeader),
    layout: &RegionLayout,
    level: Level,
    out: &mut Planes,
) -> Option<()> {
    if !head.matches_file(header, layout) {
        return None;
    }
    let scan = ScanFromEntryPoint::new(jpeg, (file, header), layout, level, out)?;
    scan.rows.clone().try_for_each(|row| {
        let (entry, part) = head.row(row)?;
        scan.decode(jpeg, (row, entry), part, row..row + 1, &mut out.planes)
    })
}

impl IndexHead<'_> {
    pub(super) fn matches_file(&self, header: &ScanHeader, layout: &RegionLayout) -> bool {
        layout.planes_are_components
            && is_sequential_scan(header)
            && self.facts.mcus == layout.mcus(&header.scan)
    }
}
