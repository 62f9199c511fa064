//! Baseline JPEG, only the wanted region: entropy-skips what lies outside, inverse-transforms what lies inside.

mod bits;
mod huffman;
mod idct;
mod markers;
mod scan;

use std::sync::Arc;

use self::bits::{End, Entropy, file_offset};
use self::huffman::Cache;
use self::idct::Quantisation;
use self::markers::{Coding, FrameComponent, Header, check_end};
use self::scan::{Component, Failure, Fault, Scan};
use super::fallback::{self, Ink};
use super::planes::Sampling;
use super::{Backend, ColorModel, Planes, Region};
use crate::error::DecodeError;
use crate::simd::Level;

/// Blocks to step over that make a table for it worth building; it costs about as much as stepping over these.
const SKIP_TABLE_PAYS: u64 = 200;

/// Tables and scratch memory of the JPEG decoder.
#[derive(Debug, Default)]
pub(super) struct Jpeg {
    cache: Cache,
    entropy: Entropy,
}

impl Jpeg {
    /// Decodes what `choose` picks of the image into `out`.
    pub(super) fn decode(
        &mut self,
        bytes: &[u8],
        level: Level,
        choose: impl FnOnce(u32, u32) -> Result<Region, DecodeError>,
        out: &mut Planes,
    ) -> Result<(Region, Backend), DecodeError> {
        let mut header = Header::parse(bytes)?;
        let frame = &header.frame;
        refuse_unknown(&header)?;
        let region = choose(frame.width, frame.height)?;
        if let Some(layout) = Layout::of(&header, region) {
            header.add_standard_tables();
            self.decode_region(bytes, &header, &layout, level, out)?;
            return Ok((region, Backend::Region));
        }
        check_end(bytes, header.data)?;
        let ink = match header.coding {
            Coding::Gray => Ink::Gray,
            Coding::YCbCr => Ink::YCbCr,
            Coding::Rgb => Ink::Rgb,
            Coding::Cmyk => Ink::Cmyk,
            Coding::Ycck => Ink::Ycck,
        };
        fallback::decode(bytes, (frame.width, frame.height), ink, region, out)?;
        Ok((region, Backend::Zune))
    }

    fn decode_region(
        &mut self,
        bytes: &[u8],
        header: &Header,
        layout: &Layout,
        level: Level,
        out: &mut Planes,
    ) -> Result<(), DecodeError> {
        let mcus = u64::from(layout.columns) * u64::from(layout.rows);
        self.unstuff(bytes, header, mcus, layout.blocks_per_mcu)?;
        let pays = layout.skipped_blocks >= SKIP_TABLE_PAYS;
        let mut components = Vec::with_capacity(3);
        for part in &layout.parts {
            let missing =
                |what: &str, index: usize| DecodeError::Corrupt(format!("{what} table {index} is missing"));
            let table = header.quantisation[part.quantisation]
                .as_ref()
                .ok_or_else(|| missing("quantisation", part.quantisation))?;
            let dc = header.dc[part.dc].as_ref().ok_or_else(|| missing("DC Huffman", part.dc))?;
            let ac = header.ac[part.ac].as_ref().ok_or_else(|| missing("AC Huffman", part.ac))?;
            components.push(Component {
                h: part.h,
                v: part.v,
                quantisation: Arc::new(Quantisation::new(table)),
                dc: self.cache.dc(dc)?,
                skip: pays.then(|| self.cache.skip(ac)),
                ac: self.cache.ac(ac),
                columns: part.columns.clone(),
                rows: part.rows.clone(),
            });
        }
        out.image_width = header.frame.width;
        out.image_height = header.frame.height;
        out.color = layout.color;
        for (part, plane) in layout.parts.iter().zip(&mut out.planes) {
            let (columns, rows) = (&part.columns, &part.rows);
            plane.shape(&part.sampling, 8 * columns.start..8 * columns.end, 8 * rows.start..8 * rows.end);
        }
        let scan = Scan {
            entropy: &self.entropy,
            components: &components,
            columns: layout.columns,
            rows: layout.rows,
            restart_interval: header.restart_interval,
        };
        scan::decode(&scan, &mut out.planes, level).map_err(|failure| {
            let Failure { fault, mcu, byte } = failure;
            let at = file_offset(bytes, header.data, byte);
            let what = match fault {
                Fault::BadCode => "no Huffman code",
                Fault::BlockOverrun => "a block of more than 64 coefficients",
                Fault::OutOfRange => "a coefficient out of range",
                Fault::OutOfData => "the entropy-coded data ends too early",
                Fault::LeftOver => "more entropy-coded data than its restart interval can hold",
            };
            DecodeError::Corrupt(format!("{what}, near byte {at}, in MCU {mcu} of {mcus}"))
        })
    }

    /// Unstuffs the scan and checks that it ends as it should and can hold the image.
    fn unstuff(&mut self, bytes: &[u8], header: &Header, mcus: u64, blocks: u32) -> Result<(), DecodeError> {
        let interval = u64::from(header.restart_interval);
        match self.entropy.unstuff(bytes, header.data) {
            End::EndOfFile => check_end(bytes, bytes.len())?,
            End::Marker(_, at) => check_end(bytes, at)?,
            End::StrayRestart(marker, at) => {
                return Err(DecodeError::Corrupt(format!(
                    "restart marker FF{marker:02X} out of turn at byte {at}"
                )));
            }
        }
        let expected = mcus.checked_sub(1).and_then(|last| last.checked_div(interval)).unwrap_or(0) + 1;
        let found = self.entropy.segments() as u64;
        if found != expected {
            return Err(DecodeError::Corrupt(format!(
                "{found} restart intervals where the header means {expected}"
            )));
        }
        // Each block takes at least two bits: a header that promises more must not make us allocate for it.
        if (self.entropy.len() as u64) * 4 < mcus * u64::from(blocks) {
            let length = self.entropy.len();
            return Err(DecodeError::Corrupt(format!("truncated: {length} bytes cannot hold {mcus} MCUs")));
        }
        Ok(())
    }
}

/// Refuses what no decoder here knows.
fn refuse_unknown(header: &Header) -> Result<(), DecodeError> {
    let frame = &header.frame;
    let unsupported = |what: String| Err(DecodeError::Unsupported(what));
    match frame.marker {
        0xC0..=0xC2 => {}
        0xC3 => return unsupported("lossless JPEG".into()),
        0xC5..=0xC7 => return unsupported("hierarchical JPEG".into()),
        0xC9..=0xCB | 0xCD..=0xCF => return unsupported("JPEG with arithmetic coding".into()),
        marker => return unsupported(format!("JPEG with frame marker FF{marker:02X}")),
    }
    if frame.precision != 8 {
        return unsupported(format!("JPEG of {} bits a sample", frame.precision));
    }
    let count = frame.components.len();
    if !matches!(count, 1 | 3 | 4) {
        return unsupported(format!("JPEG of {count} components"));
    }
    Ok(())
}

/// How the region's blocks lie in the scan.
struct Layout {
    color: ColorModel,
    /// MCUs of the image.
    columns: u32,
    rows: u32,
    blocks_per_mcu: u32,
    skipped_blocks: u64,
    parts: Vec<Part>,
}

/// One component's share.
struct Part {
    h: u32,
    v: u32,
    quantisation: usize,
    dc: usize,
    ac: usize,
    sampling: Sampling,
    /// Wanted blocks.
    columns: std::ops::Range<u32>,
    rows: std::ops::Range<u32>,
}

impl Layout {
    /// `None` where the image is none of the kind the region decoder knows.
    fn of(header: &Header, region: Region) -> Option<Self> {
        let frame = &header.frame;
        let color = match header.coding {
            Coding::Gray => ColorModel::Gray,
            Coding::YCbCr => ColorModel::YCbCr,
            Coding::Rgb => ColorModel::Rgb,
            Coding::Cmyk | Coding::Ycck => return None,
        };
        // A scan that names the components in another order is legal nowhere and decoded by nobody.
        let in_order = header.scan.iter().enumerate().all(|(i, part)| part.component == i);
        if frame.marker == 0xC2 || header.scan.len() != frame.components.len() || !in_order {
            return None;
        }
        let (h_max, v_max) = frame
            .components
            .iter()
            .fold((1, 1), |(h, v), component| (component.h.max(h), component.v.max(v)));
        let alone = frame.components.len() == 1;
        let mut parts = Vec::with_capacity(3);
        for (component, scan) in frame.components.iter().zip(&header.scan) {
            // The only component of a scan is not interleaved: an MCU is one block, whatever the factors say.
            let FrameComponent { h, v, .. } =
                if alone { FrameComponent { h: 1, v: 1, ..*component } } else { *component };
            let (step_x, step_y) = if alone { (1, 1) } else { (step(h, h_max)?, step(v, v_max)?) };
            if color == ColorModel::Rgb && (step_x, step_y) != (1, 1) {
                return None;
            }
            let sampling = Sampling { step_x, step_y, image_width: frame.width, image_height: frame.height };
            let (columns, rows) = sampling.wanted(region);
            parts.push(Part {
                h,
                v,
                quantisation: component.table,
                dc: scan.dc,
                ac: scan.ac,
                sampling,
                columns: columns.start / 8..columns.end.div_ceil(8),
                rows: rows.start / 8..rows.end.div_ceil(8),
            });
        }
        if parts.iter().any(|part| part.quantisation > 3) {
            return None;
        }
        let (h_max, v_max) = if alone { (1, 1) } else { (h_max, v_max) };
        let blocks_per_mcu = parts.iter().map(|part| part.h * part.v).sum();
        // The standard's limit (ITU T.81, B.2.3).
        if blocks_per_mcu > 10 {
            return None;
        }
        let (columns, rows) = (frame.width.div_ceil(8 * h_max), frame.height.div_ceil(8 * v_max));
        // Blocks that are coded before the region ends, less those that are wanted.
        let last_row = parts.iter().map(|part| part.rows.end.div_ceil(part.v)).max().unwrap_or(rows);
        let coded = u64::from(last_row) * u64::from(columns) * u64::from(blocks_per_mcu);
        let wanted: u64 = parts.iter().map(|part| part.columns.len() as u64 * part.rows.len() as u64).sum();
        let skipped_blocks = coded.saturating_sub(wanted);
        Some(Self { color, columns, rows, blocks_per_mcu, skipped_blocks, parts })
    }
}

/// Image pixels a sample spans, where that is 1, 2 or 4.
fn step(factor: u32, max: u32) -> Option<u32> {
    (max.is_multiple_of(factor) && matches!(max / factor, 1 | 2 | 4)).then(|| max / factor)
}
