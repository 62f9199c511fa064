//! JPEG decoder that decodes only the wanted region: it skips the entropy-coded data outside the region, and transforms
//! only the blocks inside.
//!
//! `scan.rs` decodes sequential scans and `progressive/` decodes progressive scans, both from the unstuffed bytes of
//! `bits.rs`. These fast decoders only detect damage. A file with damage in its entropy-coded data is decoded again by
//! `conceal/`, a plain decoder that follows libjpeg's rules (→ `tests/images/decode/`, the fuzz tests).
//!
//! `rows.rs` reuses the row positions that an earlier decoding of the same file found.

mod bits;
mod blocks;
mod conceal;
mod huffman;
mod idct;
pub(super) mod indexed;
mod markers;
pub mod packed;
mod pairs;
mod pixels;
pub(in crate::decode) mod plan;
mod progressive;
pub(super) mod rows;
mod scan;
mod tables;

use std::ops::Range;

use self::bits::{DataEnd, Entropy, FileOffsets};
use self::idct::Quantisation;
use self::indexed::IndexHead;
use self::markers::{Frame, FrameComponent, MAX_BLOCKS, ScanComponent, ScanHeader, check_end};
use self::rows::RowStarts;
use self::scan::{Component, RowStart, Scan, ScanFailure, ScanFault, ScanStart};
use self::tables::TableCache;
use super::codecs::ChooseRegion;
use super::exif::Metadata;
use super::header::{JpegColorSpace, JpegHeader, Process};
use super::planes::Sampling;
use super::{Backend, ColorModel, Damaged, Decoded, Plane, Planes, Region};
use base::error::DecodeError;
use base::simd::Level;

/// The luma codes of ITU T.81, annex K.3, which encoders use by default: the code of DC differences and the code of AC
/// coefficients.
pub(super) fn annex_k_luma_codes() -> [huffman::Spec; 2] {
    huffman::standard::tables(false).into()
}

pub(super) fn is(bytes: &[u8]) -> bool {
    bytes.starts_with(&[0xFF, 0xD8, 0xFF])
}

pub(super) fn size(bytes: &[u8]) -> Result<(u32, u32), DecodeError> {
    header(bytes).map(|header| (header.width, header.height))
}

pub(super) fn metadata(bytes: &[u8]) -> Metadata<'_> {
    const XMP: &[u8] = b"http://ns.adobe.com/xap/1.0/\0";
    let segments = || markers::app1_segments(bytes);
    Metadata {
        exif: segments().find(|segment| segment.starts_with(b"Exif\0\0")),
        xmp: segments().find_map(|segment| segment.strip_prefix(XMP)),
    }
}

pub(super) fn header(bytes: &[u8]) -> Result<JpegHeader, DecodeError> {
    let header = ScanHeader::parse(bytes)?;
    check_size(bytes, &header)?;
    let frame = &header.frame;
    let (width, height) = (frame.width, frame.height);
    let region_decodable = check_supported(&header).is_ok()
        && RegionLayout::of(frame, header.color_space, Region { x: 0, y: 0, width, height }).is_ok();
    let process = match frame.marker {
        0xC0 => Process::Baseline,
        0xC1 => Process::Extended,
        PROGRESSIVE => Process::Progressive,
        _ => Process::Other,
    };
    let mut factors = [(0, 0); 4];
    for (factors, component) in factors.iter_mut().zip(&frame.components) {
        *factors = (component.h as u8, component.v as u8);
    }
    Ok(JpegHeader {
        width,
        height,
        process,
        precision: frame.precision,
        color_space: header.color_space,
        components: frame.components.len() as u8,
        factors,
        restart_interval: header.tables.restart_interval,
        interleaved: header.scan.len() == frame.components.len(),
        region_decodable,
    })
}

/// The known start positions of a file's rows of MCUs.
pub(in crate::decode) enum RowPositions<'a> {
    None,
    /// The index, which has the positions of all rows.
    Index(&'a IndexHead<'a>),
    /// The positions that earlier decoding of this file found, if any. Decoding adds the positions that it finds.
    Found(&'a mut Option<RowStarts>),
}

/// The frame marker of progressive files.
const PROGRESSIVE: u8 = 0xC2;

#[derive(Debug, Default)]
pub(super) struct Jpeg {
    cache: TableCache,
    entropy: Entropy,
    rows: Vec<RowStart>,
    progressive: progressive::ProgressiveScratch,
    /// The decoded components of an image whose planes must be computed from the components, for example of a CMYK
    /// image.
    components: [Plane; 4],
}

impl Jpeg {
    /// Decodes into `out` the region of the image that `choose` picks, starting at the `known` row positions. The
    /// result describes damage that was concealed.
    pub(super) fn decode(
        &mut self,
        bytes: &[u8],
        mut known: RowPositions<'_>,
        (level, damaged): (Level, Damaged),
        choose: ChooseRegion<'_>,
        out: &mut Planes,
    ) -> Result<Decoded, DecodeError> {
        let mut header = ScanHeader::parse(bytes)?;
        check_supported(&header)?;
        let (width, height) = (header.frame.width, header.frame.height);
        let region = choose(width, height)?;
        check_size(bytes, &header)?;
        let layout = RegionLayout::of(&header.frame, header.color_space, region)?;
        let file = (bytes, &mut header);
        // If the known positions do not lead to the region, decode from the start of the file.
        match &mut known {
            RowPositions::None => {}
            RowPositions::Index(index) => {
                if indexed::decode_from(index, self, file, &layout, level, out).is_some() {
                    return Ok(Decoded::by(Backend::Indexed, region));
                }
            }
            RowPositions::Found(rows) => {
                if rows::decode_from(rows, self, file, &layout, level, out).is_some() {
                    return Ok(Decoded { used_row_starts: true, ..Decoded::by(Backend::Region, region) });
                }
            }
        }
        let mut components = std::mem::take(&mut self.components);
        let planes = if layout.planes_are_components { &mut out.planes[..] } else { &mut components };
        let supports_row_starts = rows::supports_row_starts(&header, &layout);
        let done = if header.frame.marker == PROGRESSIVE {
            let done = self.decode_progressive(bytes, &mut header, &layout, level, planes);
            self.progressive.free_excess();
            done
        } else {
            self.decode_region(bytes, &mut header, &layout, level, planes)
        };
        if let (RowPositions::Found(rows), Ok(()), true) = (known, &done, supports_row_starts) {
            *rows = RowStarts::found(bytes, header.data, &self.rows);
        }
        let concealed = match done {
            Err(DecodeError::Corrupt(damage)) if damaged == Damaged::Conceal => {
                conceal::decode(bytes, &layout, planes)?;
                Some(damage)
            }
            done => done.map(|()| None)?,
        };
        if layout.planes_are_components {
            layout.describe(&header.frame, out);
        } else {
            out.shape_full((width, height), region, layout.color);
            pixels::assemble(&components[..layout.parts.len()], header.color_space, region, out);
        }
        self.components = components;
        Ok(Decoded { concealed, ..Decoded::by(Backend::Region, region) })
    }

    fn decode_region(
        &mut self,
        bytes: &[u8],
        header: &mut ScanHeader,
        layout: &RegionLayout,
        level: Level,
        planes: &mut [Plane],
    ) -> Result<(), DecodeError> {
        let mut missing = vec![true; layout.parts.len()];
        let mut end = None;
        while missing.contains(&true) {
            match end {
                None => header.tables.add_standard(),
                Some(at) if header.next_scan(bytes, at)? => {}
                Some(_) => return Err(incomplete(missing.iter().position(|&missing| missing))),
            }
            for part in &header.scan {
                if !std::mem::take(&mut missing[part.component]) {
                    return Err(DecodeError::Corrupt(format!("component {} is coded twice", part.component)));
                }
            }
            let mcus = layout.mcus(&header.scan);
            let at =
                unstuff(&mut self.entropy, bytes, header.data, header.tables.restart_interval, mcus, level)?;
            if end.is_none() {
                check_end(bytes, at)?;
                layout.shape(planes);
            }
            self.decode_scan(bytes, header, layout, level, planes)?;
            end = Some(at);
        }
        Ok(())
    }

    fn decode_scan(
        &mut self,
        bytes: &[u8],
        header: &ScanHeader,
        layout: &RegionLayout,
        level: Level,
        planes: &mut [Plane],
    ) -> Result<(), DecodeError> {
        let (columns, rows) = layout.mcus(&header.scan);
        let components = self.components(header, layout)?;
        let scan = Scan {
            entropy: &self.entropy,
            components: &components,
            columns,
            rows,
            restart_interval: header.tables.restart_interval,
            wanted: layout.wanted(&header.scan),
            start: ScanStart::default(),
        };
        scan::decode(&scan, planes, &mut self.rows, level)
            .map_err(|failure| damage(bytes, header.data, failure, (columns, rows)))
    }

    fn components(
        &mut self,
        header: &ScanHeader,
        layout: &RegionLayout,
    ) -> Result<Vec<Component>, DecodeError> {
        let tables = &header.tables;
        let mut components = Vec::with_capacity(4);
        for scan in &header.scan {
            let part = &layout.parts[scan.component];
            let dc = tables.dc(scan)?;
            let ac = tables.ac(scan)?;
            let (h, v) = part.factors(&header.scan);
            components.push(Component {
                h,
                v,
                plane: scan.component,
                quantisation: Quantisation::new(tables.quantisation(part.quantisation)?),
                dc: self.cache.dc(dc)?,
                ac: self.cache.ac(ac),
                pairs: self.cache.pairs(ac),
                columns: part.columns.clone(),
                rows: part.rows.clone(),
            });
        }
        Ok(components)
    }
}

/// Removes the byte stuffing from the scan that begins at `start` and has this many columns and rows of MCUs. Checks
/// the scan's restart markers, and returns the offset of its end.
fn unstuff(
    entropy: &mut Entropy,
    bytes: &[u8],
    start: usize,
    restart_interval: u32,
    (columns, rows): (u32, u32),
    level: Level,
) -> Result<usize, DecodeError> {
    let end = match entropy.unstuff(bytes, start, level) {
        DataEnd::Truncation => bytes.len(),
        DataEnd::Marker(at) => at,
        DataEnd::StrayRestart(marker, at) => {
            return Err(DecodeError::Corrupt(format!(
                "restart marker FF{marker:02X} out of order at byte {at}"
            )));
        }
    };
    let mcus = u64::from(columns) * u64::from(rows);
    let expected = (mcus - 1).checked_div(u64::from(restart_interval)).unwrap_or(0) + 1;
    let found = entropy.segments() as u64;
    // Restart markers and other data after the last MCU are skipped.
    if found < expected || (restart_interval == 0 && found > 1) {
        // A truncated file lacks restart markers. For a truncated file, report the truncation instead.
        check_end(bytes, end)?;
        return Err(DecodeError::Corrupt(format!(
            "{found} restart intervals, but the header requires {expected}"
        )));
    }
    Ok(end)
}

fn damage(bytes: &[u8], start: usize, failure: ScanFailure, (columns, rows): (u32, u32)) -> DecodeError {
    let ScanFailure { fault, mcu, byte } = failure;
    let at = FileOffsets::new(bytes, start).of(byte);
    let what = match fault {
        ScanFault::BadCode => "an invalid Huffman code",
        ScanFault::BlockOverrun => "a block of more than 64 coefficients",
        ScanFault::OutOfRange => "a coefficient out of range",
        ScanFault::OutOfData => "the entropy-coded data ends too early",
        ScanFault::LeftOver => "extra entropy-coded data at the end of a restart interval",
    };
    let mcus = u64::from(columns) * u64::from(rows);
    DecodeError::Corrupt(format!("{what}, near byte {at}, in MCU {mcu} of {mcus}"))
}

fn incomplete(missing: Option<usize>) -> DecodeError {
    let component = missing.unwrap_or(0);
    DecodeError::Corrupt(format!("the image ends without a scan of component {component}"))
}

/// Refuses files that are too short for the image size in their header, because decoding would allocate memory for that
/// size. Each block of the image takes at least one bit, in baseline files and in the first scan of progressive files.
fn check_size(bytes: &[u8], header: &ScanHeader) -> Result<(), DecodeError> {
    let frame = &header.frame;
    let blocks = u64::from(frame.width.div_ceil(8)) * u64::from(frame.height.div_ceil(8));
    // At least one component has full resolution, so it has this many blocks.
    if (bytes.len() as u64) * 8 < blocks {
        let (length, width, height) = (bytes.len(), frame.width, frame.height);
        return Err(DecodeError::Corrupt(format!(
            "truncated: {length} bytes cannot hold {width}×{height} pixels"
        )));
    }
    Ok(())
}

fn check_supported(header: &ScanHeader) -> Result<(), DecodeError> {
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
        return unsupported(format!("JPEG with {} bits per sample", frame.precision));
    }
    let count = frame.components.len();
    if !matches!(count, 1 | 3 | 4) {
        return unsupported(format!("JPEG with {count} components"));
    }
    Ok(())
}

/// The blocks of the wanted region, in the image and in each component.
struct RegionLayout {
    color: ColorModel,
    /// Whether the planes are the coded components. If not, the planes are computed from the components.
    planes_are_components: bool,
    /// The columns and rows of MCUs in interleaved scans.
    columns: u32,
    rows: u32,
    parts: Vec<ComponentRegion>,
}

/// The part of the region in one component.
struct ComponentRegion {
    h: u32,
    v: u32,
    quantisation: usize,
    sampling: Sampling,
    /// The columns and rows of the component's blocks that the region needs.
    columns: Range<u32>,
    rows: Range<u32>,
}

impl ComponentRegion {
    /// The columns and rows of the component's blocks in an MCU of `scan`, which contains the component. A scan of one
    /// component is not interleaved: an MCU is one block, regardless of the sampling factors.
    fn factors(&self, scan: &[ScanComponent]) -> (u32, u32) {
        if scan.len() == 1 { (1, 1) } else { (self.h, self.v) }
    }

    /// The number of columns of blocks of the whole component, without the padding blocks of MCUs.
    fn width(&self) -> usize {
        self.sampling.image_width.div_ceil(self.sampling.step_x).div_ceil(8) as usize
    }
}

impl RegionLayout {
    /// Lays out the region of an image whose coded components can be used as planes; `None` for other images.
    fn of_coded(frame: &Frame, color_space: JpegColorSpace, region: Region) -> Option<Self> {
        Self::of(frame, color_space, region).ok().filter(|layout| layout.planes_are_components)
    }

    fn of(frame: &Frame, color_space: JpegColorSpace, region: Region) -> Result<Self, DecodeError> {
        let color = match color_space {
            JpegColorSpace::Gray => ColorModel::Gray,
            JpegColorSpace::YCbCr => ColorModel::YCbCr,
            JpegColorSpace::Rgb | JpegColorSpace::Cmyk | JpegColorSpace::Ycck => ColorModel::Rgb,
        };
        let (h_max, v_max) = frame
            .components
            .iter()
            .fold((1, 1), |(h, v), component| (component.h.max(h), component.v.max(v)));
        let mut parts = Vec::with_capacity(4);
        let mut planes_are_components = frame.components.len() < 4;
        for &FrameComponent { h, v, table: quantisation, .. } in &frame.components {
            if !h_max.is_multiple_of(h) || !v_max.is_multiple_of(v) {
                return Err(DecodeError::Unsupported(format!(
                    "JPEG with sampling factors {h}×{v} and {h_max}×{v_max}, which libjpeg does not support either: \
                     encode the image again"
                )));
            }
            let (step_x, step_y) = (h_max / h, v_max / v);
            // The resize kernels do not support samples that span three pixels, nor subsampled red, green or blue.
            let is_known =
                if color == ColorModel::Rgb { step_x * step_y == 1 } else { step_x != 3 && step_y != 3 };
            planes_are_components &= is_known;
            let sampling = Sampling { step_x, step_y, image_width: frame.width, image_height: frame.height };
            let (columns, rows) = sampling.wanted(region);
            let columns = columns.start / 8..columns.end.div_ceil(8);
            let rows = rows.start / 8..rows.end.div_ceil(8);
            parts.push(ComponentRegion { h, v, quantisation, sampling, columns, rows });
        }
        let blocks: u32 = parts.iter().map(|part| part.h * part.v).sum();
        planes_are_components &= parts.len() == 1 || blocks <= MAX_BLOCKS;
        let (columns, rows) = (frame.width.div_ceil(8 * h_max), frame.height.div_ceil(8 * v_max));
        Ok(Self { color, planes_are_components, columns, rows, parts })
    }

    fn describe(&self, frame: &Frame, out: &mut Planes) {
        (out.image_width, out.image_height, out.color) = (frame.width, frame.height, self.color);
    }

    fn shape(&self, planes: &mut [Plane]) {
        for (part, plane) in self.parts.iter().zip(planes) {
            let (columns, rows) = (&part.columns, &part.rows);
            plane.shape(&part.sampling, 8 * columns.start..8 * columns.end, 8 * rows.start..8 * rows.end);
        }
    }

    fn mcus(&self, scan: &[ScanComponent]) -> (u32, u32) {
        match scan {
            [alone] => {
                let Sampling { step_x, step_y, image_width, image_height } =
                    self.parts[alone.component].sampling;
                (image_width.div_ceil(step_x).div_ceil(8), image_height.div_ceil(step_y).div_ceil(8))
            }
            _ => (self.columns, self.rows),
        }
    }

    /// Returns the columns and rows of the MCUs of a scan that contain blocks to decode.
    fn wanted(&self, scan: &[ScanComponent]) -> (Range<u32>, Range<u32>) {
        let over = |range: fn(&ComponentRegion) -> &Range<u32>, factor: fn((u32, u32)) -> u32| {
            let parts = || scan.iter().map(|scan| &self.parts[scan.component]);
            let factor = |part: &ComponentRegion| factor(part.factors(scan));
            let first = parts().map(|part| range(part).start / factor(part)).min().unwrap_or(0);
            let end = parts().map(|part| range(part).end.div_ceil(factor(part))).max().unwrap_or(0);
            first..end
        };
        (over(|part| &part.columns, |factors| factors.0), over(|part| &part.rows, |factors| factors.1))
    }
}
