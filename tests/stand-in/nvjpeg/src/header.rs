//! The headers of a file that determine which backend supports it.

use nvjpeg_sys::sys::{nvjpegChromaSubsampling_t as Css, nvjpegStatus_t as Status};

use crate::Answer;

/// The frame and the first scan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    /// The marker: 0xC0 baseline, 0xC1 extended, 0xC2 progressive.
    pub marker: u8,
    pub precision: u8,
    pub width: u32,
    pub height: u32,
    /// The sampling factors of each component.
    pub factors: Vec<(u32, u32)>,
    /// The number of components of the first scan.
    pub scan: usize,
}

impl Header {
    pub fn parse(bytes: &[u8]) -> Answer<Self> {
        let bad = Status::NVJPEG_STATUS_BAD_JPEG;
        let byte = |at: usize| bytes.get(at).map(|&byte| u32::from(byte)).ok_or(bad);
        let word = |at: usize| Ok(byte(at)? << 8 | byte(at + 1)?);
        if word(0)? != 0xFFD8 {
            return Err(bad);
        }
        let (mut at, mut frame) = (2, None);
        loop {
            while byte(at)? != 0xFF || matches!(byte(at + 1)?, 0 | 0xFF) {
                at += 1;
            }
            let marker = byte(at + 1)? as u8;
            at += 2;
            match marker {
                0x01 | 0xD0..=0xD8 => continue,
                0xD9 => return Err(bad),
                0xC0..=0xCF if !matches!(marker, 0xC4 | 0xC8 | 0xCC) => {
                    let (height, width) = (word(at + 3)?, word(at + 5)?);
                    let mut factors = Vec::new();
                    for component in 0..byte(at + 7)? as usize {
                        let both = byte(at + 9 + 3 * component)?;
                        factors.push((both >> 4, both & 15));
                    }
                    if width == 0 || height == 0 || factors.iter().any(|&(h, v)| h == 0 || v == 0) {
                        return Err(bad);
                    }
                    let precision = byte(at + 2)? as u8;
                    frame = Some(Self { marker, precision, width, height, factors, scan: 0 });
                }
                0xDA => {
                    let mut header = frame.ok_or(bad)?;
                    header.scan = byte(at + 2)? as usize;
                    return Ok(header);
                }
                _ => {}
            }
            at += word(at)?.max(2) as usize;
        }
    }

    pub fn sampling(&self) -> Css {
        let steps: Vec<(u32, u32)> = (0..self.factors.len()).map(|component| self.steps(component)).collect();
        match steps[..] {
            [_] => Css::NVJPEG_CSS_GRAY,
            [(1, 1), (1, 1), (1, 1)] => Css::NVJPEG_CSS_444,
            [(1, 1), (2, 1), (2, 1)] => Css::NVJPEG_CSS_422,
            [(1, 1), (2, 2), (2, 2)] => Css::NVJPEG_CSS_420,
            [(1, 1), (1, 2), (1, 2)] => Css::NVJPEG_CSS_440,
            [(1, 1), (4, 1), (4, 1)] => Css::NVJPEG_CSS_411,
            [(1, 1), (4, 2), (4, 2)] => Css::NVJPEG_CSS_410,
            _ => Css::NVJPEG_CSS_UNKNOWN,
        }
    }

    /// The image columns and rows per sample of a component.
    pub fn steps(&self, component: usize) -> (u32, u32) {
        let max = |of: fn(&(u32, u32)) -> u32| self.factors.iter().map(of).max().unwrap_or(1);
        let (h, v) = self.factors[component];
        (max(|factors| factors.0) / h, max(|factors| factors.1) / v)
    }
}

/// Whether all segments, including those after coded data, are inside of the file, followed by an end-of-image marker.
pub fn is_whole(bytes: &[u8]) -> bool {
    let mut at = 2;
    loop {
        // Coded data, in which the only markers are restart markers.
        while bytes.get(at).is_some_and(|&byte| byte != 0xFF)
            || bytes.get(at + 1).is_some_and(|&byte| matches!(byte, 0 | 0xFF | 0xD0..=0xD7))
        {
            at += 1;
        }
        match bytes.get(at + 1) {
            None => return false,
            Some(0xD9) => return true,
            Some(0x01 | 0xD8) => at += 2,
            Some(_) => match bytes.get(at + 2..at + 4) {
                Some(length) if length >= &[0, 2] => {
                    at += 2 + usize::from(length[0]) * 256 + usize::from(length[1])
                }
                _ => return false,
            },
        }
    }
}
