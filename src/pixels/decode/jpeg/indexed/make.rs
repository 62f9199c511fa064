//! Makes the index of a JPEG in one pass over all its codes, without decoding samples.

use super::head::{EntryPoint, IndexedFile};
use crate::decode::KeepReason;
use crate::decode::Region;
use crate::decode::jpeg::bits::{Entropy, FileOffsets};
use crate::decode::jpeg::markers::{ScanHeader, check_end};
use crate::decode::jpeg::rows::is_sequential_scan;
use crate::decode::jpeg::scan::{Component, skip_mcu};
use crate::decode::jpeg::{Jpeg, RegionLayout, check_size, check_supported, is, unstuff};
use base::crc::checksum;
use base::error::DecodeError;
use base::simd::Level;

/// Indexes one file after another. Owns scratch memory, so each thread has its own indexer.
#[derive(Debug)]
pub(in crate::decode) struct Indexer {
    level: Level,
    jpeg: Jpeg,
    entries: Vec<EntryPoint>,
}

impl Default for Indexer {
    fn default() -> Self {
        Self { level: Level::detect(), jpeg: Jpeg::default(), entries: Vec::new() }
    }
}

impl Indexer {
    /// Writes the JPEG `file` in the indexed format to `out`, whose old bytes are dropped. Reads all codes of the file.
    /// Whether the coefficients are in range is checked only when the file is decoded.
    ///
    /// # Errors
    /// The reason to keep the file as it is; `out` is then empty.
    pub(in crate::decode) fn index(&mut self, file: &[u8], out: &mut Vec<u8>) -> Result<(), KeepReason> {
        out.clear();
        let facts = self.find(file)?;
        facts.write(&self.entries, out);
        out.extend_from_slice(file);
        Ok(())
    }

    fn find(&mut self, file: &[u8]) -> Result<IndexedFile, KeepReason> {
        if !is(file) {
            return Err(KeepReason::NotJpeg);
        }
        let damaged = |_: DecodeError| KeepReason::Damaged;
        let length = u32::try_from(file.len()).map_err(|_| KeepReason::Kind)?;
        let mut header = ScanHeader::parse(file).map_err(damaged)?;
        check_supported(&header).map_err(|_| KeepReason::Kind)?;
        check_size(file, &header).map_err(damaged)?;
        // The smallest region, because nothing is decoded.
        let region = Region { x: 0, y: 0, width: 1, height: 1 };
        let layout =
            RegionLayout::of_coded(&header.frame, header.color_space, region).ok_or(KeepReason::Kind)?;
        if !is_sequential_scan(&header) {
            return Err(KeepReason::Kind);
        }
        header.tables.add_standard();
        let (mcus, interval) = (layout.mcus(&header.scan), header.tables.restart_interval);
        let end = unstuff(&mut self.jpeg.entropy, file, header.data, interval, mcus, self.level);
        let end = end.map_err(damaged)?;
        check_end(file, end).map_err(damaged)?;
        let components = self.jpeg.components(&header, &layout).map_err(damaged)?;
        let walk = CodeWalk {
            entropy: &self.jpeg.entropy,
            components: &components,
            offsets: FileOffsets::new(file, header.data),
            mcus,
            interval,
        };
        self.entries.clear();
        let done = match self.level {
            // SAFETY: the level guarantees that the processor has these instructions.
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 | Level::Avx512 => unsafe { walk_avx2(walk, &mut self.entries) },
            _ => walk_with(walk, &mut self.entries),
        };
        done.ok_or(KeepReason::Damaged)?;
        Ok(IndexedFile { file: length, crc: checksum(file), end: end as u32, mcus })
    }
}

struct CodeWalk<'a> {
    entropy: &'a Entropy,
    components: &'a [Component],
    offsets: FileOffsets<'a>,
    mcus: (u32, u32),
    interval: u32,
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt")]
fn walk_avx2(walk: CodeWalk, entries: &mut Vec<EntryPoint>) -> Option<()> {
    walk_with(walk, entries)
}

#[inline(always)]
fn walk_with(mut walk: CodeWalk, entries: &mut Vec<EntryPoint>) -> Option<()> {
    let (mut segment, mut left) = (0, walk.interval);
    let (mut bits, mut dc) = (walk.entropy.reader(0)?, [0; 4]);
    for _ in 0..walk.mcus.1 {
        for column in 0..walk.mcus.0 {
            if walk.interval > 0 {
                if left == 0 {
                    if !bits.only_padding() {
                        return None;
                    }
                    segment += 1;
                    (bits, dc, left) = (walk.entropy.reader(segment)?, [0; 4], walk.interval);
                }
                left -= 1;
            }
            if column == 0 {
                let at = bits.consumed_bits();
                let byte = u32::try_from(walk.offsets.of(at / 8)).ok()?;
                let dc = std::array::from_fn(|component| dc[component] as i16);
                entries.push(EntryPoint { byte, skip: at as u32 % 8, dc });
            }
            skip_mcu(&mut bits, &mut dc, walk.components).ok()?;
            if bits.overrun() {
                return None;
            }
        }
    }
    Some(())
}
