//! Decodes damaged JPEGs like libjpeg. This decoder is plain and slow: it decodes the whole image from the start, after
//! the fast decoder has detected damage.
//!
//! Where libjpeg warns and continues, so does this decoder:
//!
//! - Bits that are no code count as symbol 0.
//! - Coefficients beyond a block overwrite its last coefficient.
//! - A scan's bits end at the first marker; zeros follow.
//! - A restart interval without data leaves its blocks unchanged, and reading continues at the next restart marker that
//!   fits.
//!
//! Files that libjpeg refuses when Pillow calls it are refused: a file that ends before its last row is decoded (or
//! before its end marker, if it has several scans), and markers at impossible positions.
//!
//! One behaviour is not imitated. If two bytes 0xFF precede a stuffed zero, which no encoder writes, libjpeg's fast
//! path takes them for a marker. It decodes the block again in its slow path, without clearing the coefficients that it
//! has already stored.
//!
//! libjpeg smooths a progressive image whose scans leave out bits. This decoder, like Foreload's other decoders, does
//! not.

mod block;
mod source;
mod transform;

use std::ops::Range;

use super::RegionLayout;
use super::huffman::{HuffmanCode, Spec};
use super::markers::{Progression, ScanHeader, truncated};
use super::progressive::MAX_SCANS;
use crate::decode::Plane;
use base::error::DecodeError;

use self::block::ZigzagBlock;
use self::source::{ScanSource, Stop};

/// The stored coefficients of a component: of the wanted blocks only, or of all blocks if more scans can follow.
struct KeptCoefficients {
    columns: Range<u32>,
    rows: Range<u32>,
    blocks: Vec<ZigzagBlock>,
    /// The quantisation steps in coding order; `None` before the component's first scan.
    steps: Option<[u16; 64]>,
}

impl KeptCoefficients {
    fn new(columns: Range<u32>, rows: Range<u32>) -> Self {
        let blocks = vec![[0; 64]; columns.len() * rows.len()];
        Self { columns, rows, blocks, steps: None }
    }

    fn at(&mut self, x: u32, y: u32) -> Option<&mut ZigzagBlock> {
        let inside = self.columns.contains(&x) && self.rows.contains(&y);
        let (x, y) = (x.wrapping_sub(self.columns.start), y.wrapping_sub(self.rows.start));
        inside.then(|| &mut self.blocks[y as usize * self.columns.len() + x as usize])
    }
}

/// Reads all coefficients of a file: the blocks of each component in order, including the padding blocks of MCUs.
pub(super) fn coefficients(bytes: &[u8], layout: &RegionLayout) -> Result<Vec<Vec<[i16; 64]>>, DecodeError> {
    let kept = read(bytes, layout, true)?;
    Ok(kept.into_iter().map(|component| component.blocks).collect())
}

pub(super) fn decode(bytes: &[u8], layout: &RegionLayout, planes: &mut [Plane]) -> Result<(), DecodeError> {
    let mut kept = read(bytes, layout, false)?;
    layout.shape(planes);
    for ((part, kept), plane) in layout.parts.iter().zip(&mut kept).zip(planes) {
        let steps = kept.steps.unwrap_or([0; 64]);
        for (row, y) in part.rows.clone().enumerate() {
            for (column, x) in part.columns.clone().enumerate() {
                let block = kept.at(x, y).expect("what is wanted is kept");
                transform::transform(
                    block,
                    &steps,
                    &mut plane.data[8 * (row * plane.stride + column)..],
                    plane.stride,
                );
            }
        }
    }
    Ok(())
}

/// Reads the coefficients of the blocks in the region of `layout`. Reads all blocks if `whole` is set or the file has
/// several scans.
fn read(bytes: &[u8], layout: &RegionLayout, whole: bool) -> Result<Vec<KeptCoefficients>, DecodeError> {
    let mut header = ScanHeader::parse(bytes)?;
    let progressive = header.frame.marker == super::PROGRESSIVE;
    if !progressive {
        header.tables.add_standard();
    }
    let several = progressive || header.scan.len() < header.frame.components.len();
    let kept = layout.parts.iter().map(|part| {
        if several || whole {
            KeptCoefficients::new(0..layout.columns * part.h, 0..layout.rows * part.v)
        } else {
            KeptCoefficients::new(part.columns.clone(), part.rows.clone())
        }
    });
    let mut kept: Vec<_> = kept.collect();
    let mut source = ScanSource::new(bytes, header.data);
    let done = read_scans(&mut source, &mut header, layout, several, &mut kept);
    done.map_err(|stop| match stop {
        Stop::Truncated => truncated(bytes),
        Stop::Refused(error) => error,
    })?;
    Ok(kept)
}

fn read_scans(
    source: &mut ScanSource,
    header: &mut ScanHeader,
    layout: &RegionLayout,
    several: bool,
    kept: &mut [KeptCoefficients],
) -> Result<(), Stop> {
    for _ in 0..MAX_SCANS {
        read_scan(source, header, layout, kept)?;
        match source.next_scan(header) {
            Ok(true) if several => {}
            Ok(true) => {
                let what = "an extra scan after one that contains all components";
                return Err(DecodeError::Corrupt(what.into()).into());
            }
            Ok(false) => return Ok(()),
            // The file ends after all rows were decoded. Pillow does not require an end marker in this case.
            Err(Stop::Truncated) if !several => return Ok(()),
            Err(stop) => return Err(stop),
        }
    }
    Err(DecodeError::Unsupported(format!("JPEG of more than {MAX_SCANS} scans")).into())
}

enum ScanCoding {
    Sequential(Vec<(HuffmanCode, HuffmanCode)>),
    DcFirst(Vec<HuffmanCode>),
    DcRefine,
    AcFirst(HuffmanCode),
    AcRefine(HuffmanCode),
}

impl ScanCoding {
    fn new(header: &ScanHeader) -> Result<Self, DecodeError> {
        let (tables, scan) = (&header.tables, &header.scan);
        let dc = |part| tables.dc(part).and_then(Spec::check_dc).map(HuffmanCode::new);
        let ac = |part| tables.ac(part).map(HuffmanCode::new);
        if header.frame.marker != super::PROGRESSIVE {
            let codes = scan.iter().map(|part| Ok((dc(part)?, ac(part)?)));
            return codes.collect::<Result<_, _>>().map(Self::Sequential);
        }
        let Progression { first, last, high, low } = header.progression;
        let band = if first == 0 { last == 0 } else { first <= last && last <= 63 && scan.len() == 1 };
        if !band || low > 13 || (high != 0 && high != low + 1) {
            return Err(DecodeError::Corrupt(format!(
                "a scan has an invalid progression: coefficients {first} to {last}, bits {high} to {low}"
            )));
        }
        match (first, high) {
            (0, 0) => scan.iter().map(dc).collect::<Result<_, _>>().map(Self::DcFirst),
            (0, _) => Ok(Self::DcRefine),
            (_, 0) => ac(&scan[0]).map(Self::AcFirst),
            (_, _) => ac(&scan[0]).map(Self::AcRefine),
        }
    }
}

fn read_scan(
    source: &mut ScanSource,
    header: &ScanHeader,
    layout: &RegionLayout,
    kept: &mut [KeptCoefficients],
) -> Result<(), Stop> {
    // libjpeg also refuses a scan that lists components in another order than the frame.
    if header.scan.iter().enumerate().any(|(place, part)| part.component < place) {
        return Err(DecodeError::Corrupt(
            "a scan lists its components in another order than the frame".into(),
        )
        .into());
    }
    for part in &header.scan {
        let kept = &mut kept[part.component];
        if kept.steps.is_none() {
            let table = header.frame.components[part.component].table;
            kept.steps = Some(*header.tables.quantisation(table)?);
        }
    }
    let (pass, progression) = (ScanCoding::new(header)?, header.progression);
    // A scan of one component is not interleaved: an MCU is one block, regardless of the sampling factors.
    let alone = header.scan.len() == 1;
    let (columns, rows) = layout.mcus(&header.scan);
    let (mut previous, mut eob_run) = ([0; 4], 0);
    let mut left = header.tables.restart_interval;
    source.begin_scan();
    for row in 0..rows {
        for column in 0..columns {
            if header.tables.restart_interval > 0 {
                if left == 0 {
                    source.restart()?;
                    (previous, eob_run, left) = ([0; 4], 0, header.tables.restart_interval);
                }
                left -= 1;
            }
            if source.exhausted {
                continue;
            }
            for (index, scan) in header.scan.iter().enumerate() {
                let part = &layout.parts[scan.component];
                let (h, v) = if alone { (1, 1) } else { (part.h, part.v) };
                for y in row * v..(row + 1) * v {
                    for x in column * h..(column + 1) * h {
                        let mut unwanted = [0; 64];
                        let block = kept[scan.component].at(x, y).unwrap_or(&mut unwanted);
                        let previous = &mut previous[index];
                        match &pass {
                            ScanCoding::Sequential(codes) => {
                                let (dc, ac) = &codes[index];
                                block::sequential(source, dc, ac, previous, block)?;
                            }
                            ScanCoding::DcFirst(codes) => {
                                block::dc_first(source, &codes[index], progression.low, previous, block)?;
                            }
                            ScanCoding::DcRefine => block::dc_refine(source, progression.low, block)?,
                            ScanCoding::AcFirst(codes) => {
                                block::ac_first(source, codes, progression, &mut eob_run, block)?;
                            }
                            ScanCoding::AcRefine(codes) => {
                                block::ac_refine(source, codes, progression, &mut eob_run, block)?;
                            }
                        }
                    }
                }
            }
        }
    }
    Ok(())
}
