//! Parser for the segments of a JPEG file before and between its scans.
//!
//! The parser is as tolerant as libjpeg-turbo: bytes between segments, fill bytes, unknown segments and trailing bytes
//! are skipped.

use super::huffman::{Spec, standard};
use crate::decode::header::JpegColorSpace;
use base::error::DecodeError;

/// The largest number of blocks in an MCU of several components (ITU T.81, B.2.3).
pub(super) const MAX_BLOCKS: u32 = 10;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FrameComponent {
    pub(super) id: u8,
    /// The sampling factors, 1..=4.
    pub(super) h: u32,
    pub(super) v: u32,
    pub(super) table: usize,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Frame {
    /// The marker: 0xC0 baseline, 0xC1 extended sequential, 0xC2 progressive.
    pub(super) marker: u8,
    pub(super) precision: u8,
    pub(super) width: u32,
    pub(super) height: u32,
    pub(super) components: Vec<FrameComponent>,
}

/// A component in a scan: the indices of the frame's component and of its Huffman tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ScanComponent {
    pub(super) component: usize,
    pub(super) dc: usize,
    pub(super) ac: usize,
}

/// The coefficients that a scan of a progressive file codes, and their bits (ITU T.81, G.1.1.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Progression {
    /// The first and last coefficient, in coding order.
    pub(super) first: u8,
    pub(super) last: u8,
    /// The number of low bits that earlier scans have left out; 0 in a first scan.
    pub(super) high: u8,
    /// The number of low bits that this scan leaves out.
    pub(super) low: u8,
}

#[derive(Debug)]
pub(super) struct ScanHeader {
    pub(super) frame: Frame,
    pub(super) color_space: JpegColorSpace,
    pub(super) scan: Vec<ScanComponent>,
    pub(super) progression: Progression,
    /// The offset in the file of the scan's entropy-coded bytes.
    pub(super) data: usize,
    pub(super) tables: CodingTables,
}

/// Tables that segments before a scan define. Later segments can redefine them.
#[derive(Debug, Default)]
pub(super) struct CodingTables {
    /// The number of MCUs between restart markers; 0 if there are none.
    pub(super) restart_interval: u32,
    /// The quantisation tables, in zigzag order.
    quantisation: [Option<[u16; 64]>; 4],
    dc: [Option<Spec>; 4],
    ac: [Option<Spec>; 4],
}

struct Walker<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Walker<'a> {
    fn marker(&mut self) -> Result<(u8, usize), DecodeError> {
        loop {
            while *self.bytes.get(self.at).ok_or_else(|| self.truncated())? != 0xFF {
                self.at += 1;
            }
            while *self.bytes.get(self.at).ok_or_else(|| self.truncated())? == 0xFF {
                self.at += 1;
            }
            self.at += 1;
            let marker = self.bytes[self.at - 1];
            if marker != 0 {
                return Ok((marker, self.at - 2));
            }
        }
    }

    fn payload(&mut self, marker: u8) -> Result<&'a [u8], DecodeError> {
        let length = match self.bytes.get(self.at..self.at + 2) {
            Some(length) => usize::from(u16::from_be_bytes([length[0], length[1]])),
            None => return Err(self.truncated()),
        };
        if length < 2 {
            return Err(corrupt(marker, self.at - 2, "has an invalid length"));
        }
        let payload = self.bytes.get(self.at + 2..self.at + length).ok_or_else(|| self.truncated())?;
        self.at += length;
        Ok(payload)
    }

    fn truncated(&self) -> DecodeError {
        let length = self.bytes.len();
        DecodeError::Corrupt(format!("truncated: the file ends inside its headers, after {length} bytes"))
    }
}

fn missing(what: &str, index: usize) -> DecodeError {
    DecodeError::Corrupt(format!("{what} table {index} is missing"))
}

fn corrupt(marker: u8, at: usize, what: &str) -> DecodeError {
    let name = match marker {
        0xC4 => "DHT",
        0xDA => "SOS",
        0xDB => "DQT",
        0xDD => "DRI",
        0xC0..=0xCF => "SOF",
        _ => "a",
    };
    DecodeError::Corrupt(format!("{name} segment (marker FF{marker:02X}) at byte {at} {what}"))
}

impl ScanHeader {
    pub(super) fn parse(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut walker = Walker { bytes, at: 2 };
        let mut frame: Option<Frame> = None;
        let mut tables = CodingTables::default();
        let (mut jfif, mut adobe) = (false, None);
        loop {
            let (marker, at) = walker.marker()?;
            match marker {
                0xC4 | 0xDB | 0xDD => tables.read(marker, at, walker.payload(marker)?)?,
                // DAC concerns only arithmetic coding.
                0xCC => drop(walker.payload(marker)?),
                0xC0..=0xCF => {
                    if frame.is_some() {
                        return Err(corrupt(marker, at, "is a second frame header"));
                    }
                    frame = Some(
                        read_frame(marker, walker.payload(marker)?).map_err(|e| corrupt(marker, at, e))?,
                    );
                }
                0xDA => {
                    let frame = frame.ok_or_else(|| corrupt(marker, at, "comes before the frame header"))?;
                    let (scan, progression) =
                        read_scan(walker.payload(marker)?, &frame).map_err(|e| corrupt(marker, at, e))?;
                    let color_space = color_space(&frame, jfif, adobe);
                    return Ok(Self { frame, color_space, scan, progression, data: walker.at, tables });
                }
                0xE0 => jfif |= walker.payload(marker)?.starts_with(b"JFIF\0"),
                0xEE => {
                    let payload = walker.payload(marker)?;
                    if payload.starts_with(b"Adobe") && payload.len() >= 12 {
                        adobe = Some(payload[11]);
                    }
                }
                0xD9 => {
                    return Err(DecodeError::Corrupt(format!(
                        "end-of-image marker at byte {at}, before any image"
                    )));
                }
                // TEM, RSTn and a second SOI are markers without a length.
                0x01 | 0xD0..=0xD8 => {}
                _ => drop(walker.payload(marker)?),
            }
        }
    }

    /// Reads the headers of the next scan, after the end `at` of the previous scan. Returns `false` if the image has no
    /// further scan.
    pub(super) fn next_scan(&mut self, bytes: &[u8], at: usize) -> Result<bool, DecodeError> {
        let mut walker = Walker { bytes, at };
        loop {
            let (marker, at) = walker.marker()?;
            match marker {
                0xC4 | 0xDB | 0xDD => self.tables.read(marker, at, walker.payload(marker)?)?,
                0xDA => {
                    (self.scan, self.progression) = read_scan(walker.payload(marker)?, &self.frame)
                        .map_err(|e| corrupt(marker, at, e))?;
                    self.data = walker.at;
                    return Ok(true);
                }
                0xD9 => return Ok(false),
                0x01 | 0xD0..=0xD8 => {}
                _ => drop(walker.payload(marker)?),
            }
        }
    }
}

impl CodingTables {
    /// Stores the tables or the interval that a DHT, DQT or DRI segment at `at` defines.
    pub(super) fn read(&mut self, marker: u8, at: usize, payload: &[u8]) -> Result<(), DecodeError> {
        let done = match marker {
            0xC4 => read_huffman(payload, &mut self.dc, &mut self.ac),
            0xDB => read_quantisation(payload, &mut self.quantisation),
            _ => <[u8; 2]>::try_from(payload)
                .ok()
                .map(|interval| self.restart_interval = u32::from(u16::from_be_bytes(interval))),
        };
        done.ok_or_else(|| corrupt(marker, at, "has invalid contents"))
    }

    pub(super) fn dc(&self, scan: &ScanComponent) -> Result<&Spec, DecodeError> {
        self.dc[scan.dc].as_ref().ok_or_else(|| missing("DC Huffman", scan.dc))
    }

    pub(super) fn ac(&self, scan: &ScanComponent) -> Result<&Spec, DecodeError> {
        self.ac[scan.ac].as_ref().ok_or_else(|| missing("AC Huffman", scan.ac))
    }

    pub(super) fn quantisation(&self, index: usize) -> Result<&[u16; 64], DecodeError> {
        let table = self.quantisation.get(index).and_then(Option::as_ref);
        table.ok_or_else(|| missing("quantisation", index))
    }

    /// Adds the Huffman tables of annex K, which frames of Motion JPEG omit.
    pub(super) fn add_standard(&mut self) {
        for index in 0..2 {
            let (dc, ac) = (&mut self.dc[index], &mut self.ac[index]);
            if dc.is_none() || ac.is_none() {
                let (standard_dc, standard_ac) = standard::tables(index == 1);
                dc.get_or_insert(standard_dc);
                ac.get_or_insert(standard_ac);
            }
        }
    }
}

/// The payloads of the APP1 segments before the first scan, up to the first malformed segment.
pub(super) fn app1_segments(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut walker = Walker { bytes, at: 2 };
    std::iter::from_fn(move || {
        loop {
            match walker.marker().ok()?.0 {
                0xE1 => return walker.payload(0xE1).ok(),
                0xD9 | 0xDA => return None,
                0x01 | 0xD0..=0xD8 => {}
                marker => drop(walker.payload(marker).ok()?),
            }
        }
    })
}

/// Checks that the file has an end-of-image marker after `at`. This offset can be in entropy-coded data or between
/// segments.
pub(super) fn check_end(bytes: &[u8], at: usize) -> Result<(), DecodeError> {
    let mut walker = Walker { bytes, at };
    loop {
        match walker.marker().map_err(|_| truncated(bytes))?.0 {
            0xD9 => return Ok(()),
            0x01 | 0xD0..=0xD8 => {}
            marker => drop(walker.payload(marker).map_err(|_| truncated(bytes))?),
        }
    }
}

pub(super) fn truncated(bytes: &[u8]) -> DecodeError {
    let length = bytes.len();
    DecodeError::Corrupt(format!("truncated: no end-of-image marker in {length} bytes"))
}

fn read_huffman(mut payload: &[u8], dc: &mut [Option<Spec>; 4], ac: &mut [Option<Spec>; 4]) -> Option<()> {
    while let Some((&[selector, ref counts @ ..], rest)) = payload.split_first_chunk::<17>() {
        let counts: [u8; 16] = *counts.first_chunk()?;
        let total = counts.iter().map(|&count| usize::from(count)).sum();
        let spec = Spec::new(counts, rest.get(..total)?)?;
        let tables = if selector & 0xE0 == 0 && selector & 0x10 != 0 { &mut *ac } else { &mut *dc };
        *tables.get_mut(usize::from(selector & 0xEF))? = Some(spec);
        payload = &rest[total..];
    }
    payload.is_empty().then_some(())
}

fn read_quantisation(mut payload: &[u8], tables: &mut [Option<[u16; 64]>; 4]) -> Option<()> {
    while let Some((&selector, rest)) = payload.split_first() {
        let wide = match selector >> 4 {
            0 => 1,
            1 => 2,
            _ => return None,
        };
        let (values, rest) = rest.split_at_checked(64 * wide)?;
        let table = tables.get_mut(usize::from(selector & 15))?.insert([0; 64]);
        for (entry, value) in table.iter_mut().zip(values.chunks_exact(wide)) {
            *entry = value.iter().fold(0, |entry, &byte| entry << 8 | u16::from(byte));
        }
        payload = rest;
    }
    Some(())
}

fn read_frame(marker: u8, payload: &[u8]) -> Result<Frame, &'static str> {
    let Some((&[precision, h1, h0, w1, w0, count], rest)) = payload.split_first_chunk::<6>() else {
        return Err("is too short");
    };
    let (height, width) = (u32::from(u16::from_be_bytes([h1, h0])), u32::from(u16::from_be_bytes([w1, w0])));
    if width == 0 || height == 0 {
        return Err("states an empty image");
    }
    if count == 0 || rest.len() != 3 * usize::from(count) {
        return Err("has the wrong length for its number of components");
    }
    let components: Vec<_> = rest
        .chunks_exact(3)
        .map(|c| FrameComponent {
            id: c[0],
            h: u32::from(c[1] >> 4),
            v: u32::from(c[1] & 15),
            table: c[2].into(),
        })
        .collect();
    if components.iter().any(|c| !(1..=4).contains(&c.h) || !(1..=4).contains(&c.v)) {
        return Err("has invalid sampling factors");
    }
    Ok(Frame { marker, precision, width, height, components })
}

pub(super) fn read_scan(
    payload: &[u8],
    frame: &Frame,
) -> Result<(Vec<ScanComponent>, Progression), &'static str> {
    let Some((&count, rest)) = payload.split_first() else { return Err("is empty") };
    if !(1..=4).contains(&count) || rest.len() != 2 * usize::from(count) + 3 {
        return Err("has the wrong length for its number of components");
    }
    let mut scan: Vec<ScanComponent> = Vec::new();
    for pair in rest[..2 * usize::from(count)].chunks_exact(2) {
        let unused = |i: &usize| scan.iter().all(|s| s.component != *i);
        let component = (0..frame.components.len())
            .filter(unused)
            .find(|&i| frame.components[i].id == pair[0])
            .ok_or("names a component that the frame does not have")?;
        let (dc, ac) = (usize::from(pair[1] >> 4), usize::from(pair[1] & 15));
        if dc > 3 || ac > 3 {
            return Err("names an invalid Huffman table");
        }
        scan.push(ScanComponent { component, dc, ac });
    }
    let blocks = scan.iter().map(|part| &frame.components[part.component]).map(|part| part.h * part.v);
    if scan.len() > 1 && blocks.sum::<u32>() > MAX_BLOCKS {
        return Err("has more than 10 blocks in an MCU");
    }
    let [.., first, last, bits] = *rest else { return Err("is too short") };
    Ok((scan, Progression { first, last, high: bits >> 4, low: bits & 15 }))
}

/// The colour space, by the rules of libjpeg's `default_decompress_parms`.
fn color_space(frame: &Frame, jfif: bool, adobe: Option<u8>) -> JpegColorSpace {
    let ids: Vec<u8> = frame.components.iter().map(|component| component.id).collect();
    match (ids.len(), adobe) {
        (1, _) => JpegColorSpace::Gray,
        (4, None | Some(0)) => JpegColorSpace::Cmyk,
        (4, _) => JpegColorSpace::Ycck,
        (3, Some(0)) if !jfif => JpegColorSpace::Rgb,
        (3, None) if !jfif && ids == *b"RGB" => JpegColorSpace::Rgb,
        _ => JpegColorSpace::YCbCr,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(segments: &[(u8, &[u8])]) -> Vec<u8> {
        let mut bytes = vec![0xFF, 0xD8];
        for (marker, payload) in segments {
            bytes.extend([0xFF, *marker]);
            bytes.extend((payload.len() as u16 + 2).to_be_bytes());
            bytes.extend(*payload);
        }
        bytes
    }

    const FRAME: (u8, &[u8]) = (0xC0, &[8, 0, 16, 0, 17, 3, 1, 0x22, 0, 2, 0x11, 1, 3, 0x11, 1]);
    const RGB_FRAME: (u8, &[u8]) = (0xC0, &[8, 0, 16, 0, 17, 3, b'R', 0x11, 0, b'G', 0x11, 1, b'B', 0x11, 1]);
    const SCAN: (u8, &[u8]) = (0xDA, &[3, 1, 0x00, 2, 0x11, 3, 0x11, 0, 63, 0]);
    const RGB_SCAN: (u8, &[u8]) = (0xDA, &[3, b'R', 0x00, b'G', 0x11, b'B', 0x11, 0, 63, 0]);

    #[test]
    fn a_header_says_what_the_file_holds() {
        let bytes = file(&[(0xE0, b"JFIF\0..."), (0xDD, &[1, 2]), FRAME, SCAN]);
        let header = ScanHeader::parse(&bytes).unwrap();
        assert_eq!((header.frame.width, header.frame.height), (17, 16));
        assert_eq!(header.frame.components[0], FrameComponent { id: 1, h: 2, v: 2, table: 0 });
        assert_eq!(header.scan[2], ScanComponent { component: 2, dc: 1, ac: 1 });
        assert_eq!((header.tables.restart_interval, header.data), (258, bytes.len()));
        assert_eq!(header.color_space, JpegColorSpace::YCbCr);
    }

    #[test]
    fn colours_follow_libjpeg() {
        let adobe = |transform| [b"Adobe\0\0\0\0\0\0".to_vec(), vec![transform]].concat();
        let color_space = |segments: &[(u8, &[u8])]| ScanHeader::parse(&file(segments)).unwrap().color_space;
        assert_eq!(color_space(&[FRAME, SCAN]), JpegColorSpace::YCbCr);
        assert_eq!(color_space(&[RGB_FRAME, RGB_SCAN]), JpegColorSpace::Rgb);
        assert_eq!(color_space(&[(0xE0, b"JFIF\0"), RGB_FRAME, RGB_SCAN]), JpegColorSpace::YCbCr);
        assert_eq!(color_space(&[(0xEE, &adobe(0)), FRAME, SCAN]), JpegColorSpace::Rgb);
        assert_eq!(color_space(&[(0xEE, &adobe(1)), RGB_FRAME, RGB_SCAN]), JpegColorSpace::YCbCr);
    }

    #[test]
    fn whatever_is_cut_or_flipped_is_an_error_or_a_header() {
        let table: Vec<u8> = [vec![0u8, 0, 1], vec![0; 14], vec![5]].concat();
        let whole = file(&[(0xDB, &[7; 65][..]), (0xC4, &table), FRAME, SCAN]);
        let whole = [&whole[..4], &[0, 67, 0], &[7; 64], &whole[4 + 67..]].concat();
        assert!(ScanHeader::parse(&whole).is_ok());
        for length in 2..whole.len() {
            assert!(ScanHeader::parse(&whole[..length]).is_err(), "{length} bytes");
        }
        for at in 2..whole.len() {
            for bit in 0..8 {
                let mut bytes = whole.clone();
                bytes[at] ^= 1 << bit;
                let _ = ScanHeader::parse(&bytes);
            }
        }
    }

    #[test]
    fn the_end_is_found_behind_scans_and_segments() {
        assert!(check_end(&[1, 2, 0xFF, 0, 0xFF, 0xD3, 5, 0xFF, 0xFE, 0, 3, 0xFF, 0xFF, 0xD9, 7], 0).is_ok());
        assert!(check_end(&[1, 2, 0xFF, 0, 3], 0).is_err());
        assert!(check_end(&[1, 2, 0xFF, 0xFE, 0, 9, 0xFF, 0xD9], 0).is_err());
    }
}
