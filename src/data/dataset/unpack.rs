//! Decompression of blocks with snappy, gzip, zlib, zstd or LZ4, within limits.

use super::lz4;
use crate::source::Malformed;
use std::io::Read;
use zstd_safe::{DCtx, DParameter, InBuffer, OutBuffer, get_error_name, get_frame_content_size};

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
                lz4::block(packed, &mut unpacked).map_err(damaged)?;
            }
            BlockCodec::Gzip => {
                unpack_gzip(packed, size, &mut unpacked).map_err(failed)?;
            }
            BlockCodec::Zlib => {
                let from = flate2::read::ZlibDecoder::new(packed);
                read_up_to(from, size, &mut unpacked).map_err(failed)?;
            }
            BlockCodec::Lz4Frame => {
                unpacked.resize(size as usize, 0);
                lz4::frame(packed, &mut unpacked).map_err(damaged)?;
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

/// The window that the header of a zstd frame states (RFC 8878, 3.1.1.1), in bytes.
fn window_of(frame: &[u8]) -> Option<u64> {
    let &[_, _, _, _, descriptor, window, ..] = frame else { return None };
    if descriptor & 0x20 != 0 {
        // The window is the whole content.
        return get_frame_content_size(frame).ok().flatten();
    }
    let power = 1u64 << (10 + (window >> 3));
    Some(power + power / 8 * u64::from(window & 7))
}

/// The memory for the output of a zstd frame that does not state its size: the largest block of zstd.
const SHORTEST_OUTPUT: usize = 128 << 10;

/// Decompresses zstd frames, and skips skippable ones. Stops at `size` + 1 bytes, which is enough to see that the
/// output is too long. `size` does not limit the window: with `zstd --long`, a window can be larger than its frame's
/// output.
fn unpack_zstd(packed: &[u8], size: u64, into: &mut Vec<u8>) -> Result<(), UnpackFault> {
    let damaged = |code| UnpackFault::Damaged(get_error_name(code).to_owned());
    let mut decoder =
        DCtx::try_create().ok_or_else(|| UnpackFault::Damaged("no memory for a decoder".to_owned()))?;
    decoder.set_parameter(DParameter::WindowLogMax(LARGEST_BLOCK.ilog2())).map_err(damaged)?;
    let most = usize::try_from(size).map_or(usize::MAX, |size| size.saturating_add(1));
    // If the output has room for all of a frame, the library decodes it without a window of its own.
    let stated = get_frame_content_size(packed).ok().flatten().and_then(|size| usize::try_from(size).ok());
    into.reserve_exact(stated.map_or(SHORTEST_OUTPUT, |stated| stated.saturating_add(1)).min(most));
    let (mut from, mut frame, mut left) = (InBuffer::around(packed), 0, 0);
    while left > 0 || from.pos() < packed.len() {
        if into.len() == into.capacity() {
            into.reserve_exact(into.len().max(SHORTEST_OUTPUT).min(most - into.len()));
        }
        let filled = into.len();
        let mut to = OutBuffer::around_pos(into, filled);
        left = decoder.decompress_stream(&mut to, &mut from).map_err(|code| {
            // The library does not say the size.
            let window = window_of(&packed[frame..]).filter(|&window| window > LARGEST_BLOCK);
            window.map_or_else(|| damaged(code), UnpackFault::Window)
        })?;
        if into.len() >= most {
            return Ok(());
        }
        if left == 0 {
            frame = from.pos();
        } else if into.len() < into.capacity() && from.pos() == packed.len() {
            return Err(UnpackFault::Damaged("its last frame is truncated".to_owned()));
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
    use base::rng::{RandomKey, Use};
    use zstd_safe::{CCtx, CParameter};

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
    fn damaged_zstd_is_an_error_or_what_the_library_reads() {
        let mut random = RandomKey::new(&[], 3, 0, Use::Augment).stream(0);
        let text: Vec<u8> = (0..300_000u32).map(|i| (i / 100 * (i % 97)) as u8).collect();
        let packed = |states_size| {
            let mut encoder = CCtx::create();
            encoder.set_parameter(CParameter::ContentSizeFlag(states_size)).unwrap();
            encoder.set_parameter(CParameter::ChecksumFlag(true)).unwrap();
            let mut packed = Vec::with_capacity(400_000);
            encoder.compress2(&mut packed, &text).unwrap();
            packed
        };
        for packed in [packed(true), packed(false)] {
            let twice = packed.repeat(2);
            assert_eq!(unpack_all(BlockCodec::Zstd, &twice).unwrap(), text.repeat(2));
            let block = |unpacked| BlockSource { offset: 0, unpacked, codec: BlockCodec::Zstd };
            assert_eq!(block(600_000).unpack(&twice).unwrap(), text.repeat(2));
            for size in [0, 1, 299_999, 300_000, 300_001, 599_999, 600_001] {
                assert!(block(size).unpack(&twice).is_err(), "{size}");
            }
            for round in 0..300 {
                let mut damaged = packed.clone();
                let at = random.below(if round % 2 == 0 { 20 } else { damaged.len() as u64 }) as usize;
                match random.below(3) {
                    0 => damaged.truncate(at),
                    1 => damaged[at] ^= 1 << random.below(8),
                    _ => damaged[at] = 255,
                }
                let mut library = Vec::with_capacity(text.len());
                let is_read = zstd_safe::decompress(&mut library, &damaged).is_ok();
                let found = unpack_all(BlockCodec::Zstd, &damaged);
                assert!(!is_read || found.as_ref() == Ok(&library), "{round}: {at}");
                assert!(found.is_err() || damaged.is_empty() || found == Ok(text.clone()), "{round}: {at}");
            }
        }
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
