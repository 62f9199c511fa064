//! Packs files and restores them. A file is packed only if it was restored byte for byte.

use super::coefficients::{self, CodedBlock, ImageBlocks, MAX_BLOCKS, block_count};
use super::head::{Choices, OriginalFile, PackedHead, PackedRow, frame_of, grids, row_end};
use super::write::{TooLarge, UnitWriter};
use super::{corrupt, decode, layout, restore};
use crate::decode::jpeg::markers::ScanHeader;
use crate::decode::jpeg::{self, Jpeg, PROGRESSIVE, RegionLayout, RowPositions, check_size, check_supported};
use crate::decode::{Damaged, KeepReason, Planes, Region};
use base::crc::checksum;
use base::error::DecodeError;
use base::simd::Level;

/// The largest number of bytes of memory that packing holds per block: the coefficients as read and as restored, and
/// the samples from the file and from the packed image while they are compared.
pub(super) const MEMORY_OF_BLOCK: usize = 2 * size_of::<CodedBlock>() + 2 * 64;

/// If a packed image would exceed this many times the file's size plus [`MAX_HEAD`] bytes, the file is not a
/// photograph, and it is not packed.
const MAX_GROWTH: usize = 2;
const MAX_HEAD: usize = 4096;

/// Packs one file after another. Owns scratch memory, so each thread has its own packer.
#[derive(Debug)]
pub struct Packer {
    level: Level,
    max_blocks: usize,
    jpeg: Jpeg,
    blocks: ImageBlocks,
    writer: UnitWriter,
    plain: Vec<u8>,
    restorer: Restorer,
    restored: Vec<u8>,
    planes: [Planes; 2],
}

impl Default for Packer {
    fn default() -> Self {
        Self::with_level(Level::detect())
    }
}

impl Packer {
    /// Makes a packer.
    pub fn new() -> Self {
        Self::default()
    }

    /// Makes a packer that uses the instructions of `level`, which the processor must have. The output is the same at
    /// every level.
    pub fn with_level(level: Level) -> Self {
        let level = level.lowered();
        Self {
            level,
            max_blocks: MAX_BLOCKS,
            jpeg: Jpeg::default(),
            blocks: ImageBlocks::default(),
            writer: UnitWriter::default(),
            plain: Vec::new(),
            restorer: Restorer::with_level(level),
            restored: Vec::new(),
            planes: Default::default(),
        }
    }

    /// Limits packing to about `bytes` bytes of memory. An image that needs more memory is not packed.
    pub(in crate::decode) fn with_memory(self, bytes: usize) -> Self {
        Self { max_blocks: MAX_BLOCKS.min(bytes / MEMORY_OF_BLOCK), ..self }
    }

    /// Packs the JPEG `file` into `out`, whose old bytes are dropped. The result is verified: it restores to `file`
    /// byte for byte, and all coefficients can be transformed.
    ///
    /// # Errors
    /// The reason to keep the file as it is; `out` is then empty.
    pub fn pack(&mut self, file: &[u8], out: &mut Vec<u8>) -> Result<(), KeepReason> {
        let done = self.try_pack(file, out);
        if done.is_err() {
            out.clear();
        }
        done
    }

    fn try_pack(&mut self, file: &[u8], out: &mut Vec<u8>) -> Result<(), KeepReason> {
        if !jpeg::is(file) {
            return Err(KeepReason::NotJpeg);
        }
        let damaged = |_: DecodeError| KeepReason::Damaged;
        let mut header = ScanHeader::parse(file).map_err(damaged)?;
        check_supported(&header).map_err(|_| KeepReason::Kind)?;
        check_size(file, &header).map_err(damaged)?;
        let (width, height) = (header.frame.width, header.frame.height);
        let whole = Region { x: 0, y: 0, width, height };
        let layout =
            RegionLayout::of_coded(&header.frame, header.color_space, whole).ok_or(KeepReason::Kind)?;
        if block_count(&header.frame) > self.max_blocks {
            return Err(KeepReason::Large);
        }
        // The coefficients of progressive files and of files with several scans are read by `conceal`, a more tolerant
        // decoder. So the strict decoder must accept such a file first.
        let is_sequential = header.frame.marker != PROGRESSIVE;
        let is_plain = is_sequential && header.scan.len() == header.frame.components.len();
        if !is_plain {
            self.jpeg
                .decode(
                    file,
                    RowPositions::None,
                    (self.level, Damaged::Refuse),
                    &mut |_, _| Ok(whole),
                    &mut self.planes[0],
                )
                .map_err(damaged)?;
        }
        restore::copy_uncoded_bytes(file, &mut self.plain).map_err(damaged)?;
        coefficients::read(&mut self.jpeg, file, &mut header, &layout, self.level, &mut self.blocks)
            .map_err(damaged)?;
        let (frame, tables) = frame_of(&header).map_err(damaged)?;
        if !self.blocks.are_allowed(&frame, &tables, self.level) {
            return Err(KeepReason::Damaged);
        }
        let length = |bytes: usize| u32::try_from(bytes).map_err(|_| KeepReason::Kind);
        let mut head = PackedHead {
            color_space: header.color_space,
            tables,
            original: OriginalFile {
                length: length(file.len())?,
                crc: checksum(file),
                plain: length(self.plain.len())?,
                choices: Choices::default(),
            },
            rows: vec![PackedRow { end: 0, crc: 0 }; grids(&frame).1],
            frame,
            length: 0,
        };
        if head.has_zero_step() {
            return Err(KeepReason::Kind);
        }
        self.write(&mut head, MAX_GROWTH * file.len() + MAX_HEAD, out)?;
        let is_possible = |choices: &Choices| !(is_sequential && choices.single_block_runs);
        for choices in Choices::ALL.into_iter().filter(is_possible) {
            head.original.choices = choices;
            head.overwrite(out);
            let restored = self.restorer.restore(out, &mut self.restored);
            if restored.is_ok() && self.restored == file {
                return if is_plain || self.decodes_alike(out) { Ok(()) } else { Err(KeepReason::Damaged) };
            }
        }
        Err(KeepReason::NotRestorable)
    }

    fn decodes_alike(&mut self, packed: &[u8]) -> bool {
        let mut whole = |width, height| Ok(Region { x: 0, y: 0, width, height });
        let decoded = decode(packed, None, self.level, &mut whole, &mut self.planes[1]);
        decoded.is_ok() && self.planes[0].same_samples(&self.planes[1])
    }

    /// Writes space for the head, then the rows, then the bytes that are not entropy-coded. Stores the ends and
    /// checksums of the rows in `head`. Fails if the result exceeds `most` bytes.
    fn write(&mut self, head: &mut PackedHead, most: usize, out: &mut Vec<u8>) -> Result<(), KeepReason> {
        out.clear();
        // This head has the same length as the final head, which overwrites it.
        head.write(out);
        let start = out.len();
        for (number, row) in head.rows.iter_mut().enumerate() {
            let row_at = out.len();
            self.writer
                .write_row(&self.blocks, number, self.level, out)
                .map_err(|TooLarge| KeepReason::Damaged)?;
            let end = row_end(out.len() - start).ok_or(KeepReason::Kind)?;
            *row = PackedRow { end, crc: checksum(&out[row_at..]) };
            if out.len() + self.plain.len() > most {
                return Err(KeepReason::Large);
            }
        }
        out.extend_from_slice(&self.plain);
        Ok(())
    }
}

/// Restores the original files of packed images. Owns scratch memory, so each thread has its own restorer.
#[derive(Debug)]
pub struct Restorer {
    level: Level,
    blocks: ImageBlocks,
    scratch: Vec<u8>,
}

impl Default for Restorer {
    fn default() -> Self {
        Self::with_level(Level::detect())
    }
}

impl Restorer {
    /// Makes a restorer.
    pub fn new() -> Self {
        Self::default()
    }

    /// Makes a restorer that uses the instructions of `level`, which the processor must have.
    pub fn with_level(level: Level) -> Self {
        Self { level: level.lowered(), blocks: ImageBlocks::default(), scratch: Vec::new() }
    }

    /// Restores the original file of `packed` to `out`, whose old bytes are dropped, and verifies its checksum.
    ///
    /// # Errors
    /// [`DecodeError::Corrupt`] for damaged bytes; `out` is then empty.
    pub fn restore(&mut self, packed: &[u8], out: &mut Vec<u8>) -> Result<(), DecodeError> {
        out.clear();
        let done = self.try_restore(packed, out);
        if done.is_err() {
            out.clear();
        }
        done
    }

    fn try_restore(&mut self, packed: &[u8], out: &mut Vec<u8>) -> Result<(), DecodeError> {
        let head = PackedHead::read(packed)?;
        let (width, height) = (head.frame.width, head.frame.height);
        let layout = layout(&head, Region { x: 0, y: 0, width, height })?;
        if block_count(&head.frame) > MAX_BLOCKS {
            return Err(corrupt("it has more blocks than a packed image may have"));
        }
        coefficients::read_packed(packed, &head, self.level, &mut self.blocks)?;
        let OriginalFile { length, crc, choices, .. } = head.original;
        let choice = (choices, length as usize);
        restore::restore(
            &self.blocks,
            head.plain(packed),
            &layout,
            choice,
            self.level,
            (&mut self.scratch, out),
        )?;
        if out.len() != length as usize || checksum(out) != crc {
            return Err(corrupt("the restored file has another length or checksum than the original"));
        }
        Ok(())
    }
}
