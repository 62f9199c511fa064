//! Decompression of blocks with snappy, gzip, zlib, zstd or LZ4, within limits.

use crate::source::Malformed;
use ruzstd::decoding::StreamingDecoder;
use ruzstd::decoding::errors::FrameDecoderError;
use std::io::Read;

pub(super) const LARGEST_BLOCK: u64 = 256 << 20;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BlockCodec {
    /// Snappy's raw format.
    Snappy,
    Gzip,
    Zstd,
    /// An LZ4 block (without a frame).
    Lz4Block,
    Lz4Frame,
    Zlib,
}

impl BlockCodec {
    /// The codecs, in the order of their ids in index files. The id of a codec never changes.
    const NUMBERED: [Self; 6] =
        [Self::Snappy, Self::Gzip, Self::Zstd, Self::Lz4Block, Self::Lz4Frame, Self::Zlib];

    pub(super) fn number(self) -> u32 {
        Self::NUMBERED.iter().position(|&codec| codec == self).unwrap_or_default() as u32
    }

    pub(super) fn numbered(number: u32) -> Option<Self> {
        Self::NUMBERED.get(number as usize).copied()
    }

    pub(super) fn title(self) -> &'static str {
        match self {
            Self::Snappy => "snappy",
            Self::Gzip => "gzip",
            Self::Zstd => "zstd",
            Self::Zlib => "zlib",
            Self::Lz4Block | Self::Lz4Frame => "LZ4",
        }
    }

    /// Maximum number of decompressed bytes per compressed byte. These are limits of the formats: in snappy, 3 bytes
    /// give a match of 64 bytes; in deflate, 2 bits give 258 bytes; in LZ4, 1 byte gives 255 bytes. In zstd, at least 3
    /// bytes give a block of at most 128 KiB.
    fn max_expansion(self) -> u64 {
        match self {
            Self::Snappy => 32,
            Self::Gzip | Self::Zlib => 1040,
            Self::Zstd => 1 << 16,
            Self::Lz4Block | Self::Lz4Frame => 256,
        }
    }
}

#[derive(Debug, Clone, Copy)]
pub(super) struct BlockSource {
    pub(super) offset: u64,
    pub(super) unpacked: u64,
    pub(super) codec: BlockCodec,
}

impl BlockSource {
    /// Decompresses the block from its compressed bytes `packed`.
    ///
    /// # Errors
    /// [`Malformed`] if the block is damaged, larger than [`LARGEST_BLOCK`], or of another size than stated.
    pub(super) fn unpack(self, packed: &[u8]) -> Result<Vec<u8>, Malformed> {
        self.try_unpack(packed).map_err(|message| Malformed { offset: self.offset, message })
    }

    fn try_unpack(self, packed: &[u8]) -> Result<Vec<u8>, String> {
        let (size, title) = (self.unpacked, self.codec.title());
        if size > LARGEST_BLOCK {
            let most = LARGEST_BLOCK >> 20;
            return Err(format!("a {title} block has {size} bytes decompressed; the limit is {most} MiB"));
        }
        if size > (packed.len() as u64 + 1) * self.codec.max_expansion() {
            return Err(format!("a {title} block of {} bytes cannot contain {size} bytes", packed.len()));
        }
        // A decoder would refuse a block of zero bytes, because even an empty zstd or LZ4 frame has a header.
        if size == 0 && packed.is_empty() {
            return Ok(Vec::new());
        }
        let damaged = |error: String| format!("a {title} block is damaged: {error}");
        let failed = |fault: UnpackFault| format!("a {title} block {}", fault.describe("is "));
        let mut unpacked = Vec::new();
        match self.codec {
            BlockCodec::Snappy => {
                let stated = snap::raw::decompress_len(packed).map_err(|error| damaged(error.to_string()))?;
                if stated as u64 != size {
                    return Err(damaged(format!("it states {stated} bytes, but its page {size}")));
                }
                unpacked.resize(size as usize, 0);
                snap::raw::Decoder::new()
                    .decompress(packed, &mut unpacked)
                    .map_err(|error| damaged(error.to_string()))?;
            }
            BlockCodec::Lz4Block => {
                unpacked.resize(size as usize, 0);
                let got = lz4_flex::block::decompress_into(packed, &mut unpacked)
                    .map_err(|error| damaged(error.to_string()))?;
                unpacked.truncate(got);
            }
            BlockCodec::Gzip => {
                unpack_gzip(packed, size, &mut unpacked).map_err(failed)?;
            }
            BlockCodec::Zlib => {
                let from = flate2::read::ZlibDecoder::new(packed);
                read_up_to(from, size, &mut unpacked).map_err(failed)?;
            }
            BlockCodec::Lz4Frame => {
                let from = lz4_flex::frame::FrameDecoder::new(packed);
                read_up_to(from, size, &mut unpacked).map_err(failed)?;
            }
            BlockCodec::Zstd => {
                unpack_zstd(packed, size, &mut unpacked).map_err(failed)?;
            }
        }
        if unpacked.len() as u64 != size {
            return Err(damaged(format!("it does not decompress to the stated {size} bytes")));
        }
        Ok(unpacked)
    }
}

/// Decompresses all bytes. Stops after one byte more than [`LARGEST_BLOCK`].
///
/// # Errors
/// A description of what is wrong.
pub(super) fn unpack_all(codec: BlockCodec, packed: &[u8]) -> Result<Vec<u8>, String> {
    let mut unpacked = Vec::new();
    let into = &mut unpacked;
    let found = match codec {
        BlockCodec::Gzip => unpack_gzip(packed, LARGEST_BLOCK, into),
        BlockCodec::Zlib => read_up_to(flate2::read::ZlibDecoder::new(packed), LARGEST_BLOCK, into),
        BlockCodec::Zstd => unpack_zstd(packed, LARGEST_BLOCK, into),
        BlockCodec::Snappy | BlockCodec::Lz4Block | BlockCodec::Lz4Frame => {
            Err(UnpackFault::Damaged("its length is not known".to_owned()))
        }
    };
    let title = codec.title();
    found.map_err(|fault| format!("is compressed with {title} as a whole and {}", fault.describe("")))?;
    Ok(unpacked)
}

enum UnpackFault {
    Damaged(String),
    /// A zstd frame needs a window (earlier output that is kept) of this many bytes, which is more than allowed.
    Window(u64),
}

impl UnpackFault {
    /// Describes the fault as a phrase that follows its subject. `is` is the verb before an adjective ("is" or "are").
    fn describe(self, is: &str) -> String {
        match self {
            Self::Damaged(why) => format!("{is}damaged: {why}"),
            Self::Window(bytes) => format!(
                "has a window of {} MiB, the limit is {} MiB: compress it again without zstd's --long, or decompress \
                 it",
                bytes.div_ceil(1 << 20),
                LARGEST_BLOCK >> 20
            ),
        }
    }
}

/// Decompresses gzip members, appended to `into`, to at most one byte more than `size` in all.
///
/// # Errors
/// A description of what is wrong.
pub(super) fn gzip(packed: &[u8], size: u64, into: &mut Vec<u8>) -> Result<(), String> {
    unpack_gzip(packed, size, into).map_err(|fault| fault.describe(""))
}

/// Decompresses gzip members, to at most one byte more than `size`. Zeros after the last member are ignored, because
/// tapes and some stores pad their blocks with zeros.
fn unpack_gzip(packed: &[u8], size: u64, into: &mut Vec<u8>) -> Result<(), UnpackFault> {
    let mut rest = packed;
    loop {
        let mut from = flate2::bufread::GzDecoder::new(rest);
        read_up_to(&mut from, size - into.len() as u64, into)?;
        if into.len() as u64 > size {
            return Ok(());
        }
        rest = from.into_inner();
        if rest.iter().all(|&byte| byte == 0) {
            return Ok(());
        }
        if !rest.starts_with(b"\x1f\x8b") {
            let message = format!("after its end are {} bytes that are not gzip", rest.len());
            return Err(UnpackFault::Damaged(message));
        }
    }
}

/// The length of the skippable frame at the start of these bytes; `None` if the bytes start with another kind of frame.
/// Programs such as pzstd store notes in these frames (RFC 8878, 3.1.2).
pub(super) fn skippable(bytes: &[u8]) -> Option<u64> {
    let (magic, rest) = bytes.split_first_chunk()?;
    let is_one = u32::from_le_bytes(*magic) & !0xf == 0x184d_2a50;
    rest.first_chunk().filter(|_| is_one).map(|length| 8 + u64::from(u32::from_le_bytes(*length)))
}

/// Decompresses zstd frames. Stops at `size` + 1 bytes, which is enough to see that the output is too long. `size` does
/// not limit the window: with `zstd --long`, a window can be larger than its frame's output.
fn unpack_zstd(packed: &[u8], size: u64, into: &mut Vec<u8>) -> Result<(), UnpackFault> {
    let mut rest = packed;
    while !rest.is_empty() && into.len() as u64 <= size {
        if let Some(length) = skippable(rest) {
            let behind = usize::try_from(length).ok().and_then(|length| rest.get(length..));
            rest = behind.ok_or_else(|| UnpackFault::Damaged("its last frame is truncated".to_owned()))?;
            continue;
        }
        let from = StreamingDecoder::new_with_max_window_size(&mut rest, LARGEST_BLOCK);
        let mut from = from.map_err(|error| match error {
            FrameDecoderError::WindowSizeTooBig { requested, .. } => UnpackFault::Window(requested),
            error => UnpackFault::Damaged(error.to_string()),
        })?;
        read_up_to(&mut from, size - into.len() as u64, into)?;
        let frame = from.into_frame_decoder();
        let stated = frame.get_checksum_from_data();
        if stated.is_some() && stated != frame.get_calculated_checksum() {
            return Err(UnpackFault::Damaged("its checksum does not match".to_owned()));
        }
    }
    Ok(())
}

/// Reads at most one byte more than `size`. The additional byte shows that the output is larger than stated.
fn read_up_to(from: impl Read, size: u64, into: &mut Vec<u8>) -> Result<(), UnpackFault> {
    let read = from.take(size + 1).read_to_end(into);
    read.map(|_| ()).map_err(|error| UnpackFault::Damaged(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_becomes_what_is_stated_or_an_error() {
        let text = b"the same again, the same again, the same again, the same again".as_slice();
        let packed = snap::raw::Encoder::new().compress_vec(text).unwrap();
        let block = |unpacked| BlockSource { offset: 7, unpacked, codec: BlockCodec::Snappy };
        assert_eq!(block(text.len() as u64).unpack(&packed).unwrap(), text);
        for size in [0, 1, text.len() as u64 + 1, LARGEST_BLOCK, LARGEST_BLOCK + 1, u64::MAX] {
            assert_eq!(block(size).unpack(&packed).unwrap_err().offset, 7, "{size}");
        }
    }

    /// An uncompressed zstd frame that needs a window of 2^`log` bytes.
    fn frame(log: u8, text: &[u8]) -> Vec<u8> {
        let head = (text.len() as u32) << 3 | 1;
        [b"\x28\xb5\x2f\xfd\0", &[(log - 10) << 3][..], &head.to_le_bytes()[..3], text].concat()
    }

    fn notes(number: u8, text: &[u8]) -> Vec<u8> {
        [&[0x50 + number, 0x2a, 0x4d, 0x18][..], &(text.len() as u32).to_le_bytes(), text].concat()
    }

    #[test]
    fn what_programs_put_between_frames_is_stepped_over() {
        let both = |packed: &[u8], unpacked: &[u8]| {
            let block = BlockSource { offset: 0, unpacked: unpacked.len() as u64, codec: BlockCodec::Zstd };
            assert_eq!(unpack_all(BlockCodec::Zstd, packed).unwrap(), unpacked);
            assert_eq!(block.unpack(packed).unwrap(), unpacked);
        };
        let (one, other) = (frame(20, b"one "), frame(20, b"other"));
        both(
            &[&notes(0, &[1; 4])[..], &one, &notes(15, b""), &notes(0, &[2; 70]), &other].concat(),
            b"one other",
        );
        both(&[&one[..], &other, &notes(14, &[0; 17])].concat(), b"one other");
        // The window of zstd --long=28 is allowed even if it exceeds the whole output.
        both(&frame(28, b"small"), b"small");
        for cut in [[&one[..], &notes(0, &[0; 9])[..16]].concat(), [&one[..], &notes(0, b"")[..7]].concat()] {
            assert!(unpack_all(BlockCodec::Zstd, &cut).is_err());
        }
        let told = unpack_all(BlockCodec::Zstd, &frame(31, b"small")).unwrap_err();
        assert!(told.contains("has a window of 2048 MiB") && !told.contains("damaged"), "{told}");
        assert_eq!(
            (skippable(&notes(3, b"abc")), skippable(&one), skippable(b"\x50\x2a")),
            (Some(11), None, None)
        );
    }

    #[test]
    fn zeros_behind_gzip_are_no_part_of_it() {
        let gzip = |text: &[u8]| {
            let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            std::io::Write::write_all(&mut encoder, text).unwrap();
            encoder.finish().unwrap()
        };
        let (one, other) = (gzip(b"one "), gzip(b"other"));
        let packed = [&one[..], &other, &[0; 512]].concat();
        assert_eq!(unpack_all(BlockCodec::Gzip, &packed).unwrap(), b"one other");
        let block = BlockSource { offset: 0, unpacked: 9, codec: BlockCodec::Gzip };
        assert_eq!(block.unpack(&packed).unwrap(), b"one other");
        let told = unpack_all(BlockCodec::Gzip, &[&one[..], b"more"].concat()).unwrap_err();
        assert!(told.ends_with("after its end are 4 bytes that are not gzip"), "{told}");
        assert!(unpack_all(BlockCodec::Gzip, &one[..one.len() - 1]).is_err());
        assert!(BlockSource { unpacked: 8, ..block }.unpack(&packed).is_err());
    }
}
