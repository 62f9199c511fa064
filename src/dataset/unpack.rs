//! Blocks of tables that are packed with snappy, gzip, zstd or LZ4, unpacked within limits.

use crate::source::Malformed;
use std::io::Read;

/// The most bytes that a block may have when it is unpacked.
pub(super) const LARGEST_BLOCK: u64 = 256 << 20;
/// The most bytes of a zstd frame's window where the block is smaller.
const ZSTD_WINDOW: u64 = 8 << 20;

/// How a block is packed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BlockCodec {
    /// Snappy's raw format.
    Snappy,
    /// Gzip members.
    Gzip,
    /// A frame of zstd.
    Zstd,
    /// A block of LZ4 without a frame.
    Lz4Block,
    /// A frame of LZ4.
    Lz4Frame,
    /// A stream of zlib.
    Zlib,
}

impl BlockCodec {
    /// The codecs by their numbers in index files: none is ever given another.
    const NUMBERED: [Self; 6] =
        [Self::Snappy, Self::Gzip, Self::Zstd, Self::Lz4Block, Self::Lz4Frame, Self::Zlib];

    /// Its number in index files.
    pub(super) fn number(self) -> u32 {
        Self::NUMBERED.iter().position(|&codec| codec == self).unwrap_or_default() as u32
    }

    /// The codec of a number; `None` where no codec has it.
    pub(super) fn numbered(number: u32) -> Option<Self> {
        Self::NUMBERED.get(number as usize).copied()
    }

    /// Its name in messages.
    pub(super) fn title(self) -> &'static str {
        match self {
            Self::Snappy => "snappy",
            Self::Gzip => "gzip",
            Self::Zstd => "zstd",
            Self::Zlib => "zlib",
            Self::Lz4Block | Self::Lz4Frame => "LZ4",
        }
    }

    /// The most bytes that a packed byte can stand for: by the formats, matches are 64 bytes for 3, 258 for 2 bits, 255
    /// for 1, and a zstd block has at most 128 KiB for 3 bytes and more.
    fn most_for_a_byte(self) -> u64 {
        match self {
            Self::Snappy => 32,
            Self::Gzip | Self::Zlib => 1040,
            Self::Zstd => 1 << 16,
            Self::Lz4Block | Self::Lz4Frame => 256,
        }
    }
}

/// A block in a shard, from which later reads could unpack single values, too.
#[derive(Debug, Clone, Copy)]
pub(super) struct PackedBlock {
    /// The offset of its first byte in the shard.
    pub(super) offset: u64,
    /// The number of its bytes once it is unpacked.
    pub(super) unpacked: u64,
    /// How it is packed.
    pub(super) codec: BlockCodec,
}

impl PackedBlock {
    /// Unpacks the block, whose packed bytes are `packed`.
    ///
    /// # Errors
    /// [`Malformed`] for a block that is damaged, larger than [`LARGEST_BLOCK`], or of another length than stated.
    pub(super) fn unpack(self, packed: &[u8]) -> Result<Vec<u8>, Malformed> {
        self.try_unpack(packed).map_err(|message| Malformed { offset: self.offset, message })
    }

    fn try_unpack(self, packed: &[u8]) -> Result<Vec<u8>, String> {
        let (size, title) = (self.unpacked, self.codec.title());
        if size > LARGEST_BLOCK {
            let most = LARGEST_BLOCK >> 20;
            return Err(format!("a {title} block of {size} bytes once unpacked: {most} MiB are the most"));
        }
        // A zstd frame or an LZ4 frame without content has a head still.
        if size > (packed.len() as u64 + 1) * self.codec.most_for_a_byte() {
            return Err(format!("a {title} block of {} bytes cannot become {size} bytes", packed.len()));
        }
        if size == 0 && packed.is_empty() {
            return Ok(Vec::new());
        }
        let damaged = |error: String| format!("a {title} block is damaged: {error}");
        let mut unpacked = Vec::new();
        match self.codec {
            BlockCodec::Snappy => {
                let stated = snap::raw::decompress_len(packed).map_err(|error| damaged(error.to_string()))?;
                if stated as u64 != size {
                    return Err(damaged(format!("it states {stated} bytes, and its page {size}")));
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
                let from = flate2::read::MultiGzDecoder::new(packed);
                read_up_to(from, size, &mut unpacked).map_err(damaged)?;
            }
            BlockCodec::Zlib => {
                let from = flate2::read::ZlibDecoder::new(packed);
                read_up_to(from, size, &mut unpacked).map_err(damaged)?;
            }
            BlockCodec::Lz4Frame => {
                let from = lz4_flex::frame::FrameDecoder::new(packed);
                read_up_to(from, size, &mut unpacked).map_err(damaged)?;
            }
            BlockCodec::Zstd => {
                let window = size.max(ZSTD_WINDOW);
                unpack_zstd(packed, window, size, &mut unpacked).map_err(damaged)?;
            }
        }
        if unpacked.len() as u64 != size {
            return Err(damaged(format!("it does not become the {size} bytes that are stated")));
        }
        Ok(unpacked)
    }
}

/// Unpacks all that there is, up to a byte more than [`LARGEST_BLOCK`].
///
/// # Errors
/// What is wrong, in words.
pub(super) fn unpack_all(codec: BlockCodec, packed: &[u8]) -> Result<Vec<u8>, String> {
    let mut unpacked = Vec::new();
    let into = &mut unpacked;
    let found = match codec {
        BlockCodec::Gzip => read_up_to(flate2::read::MultiGzDecoder::new(packed), LARGEST_BLOCK, into),
        BlockCodec::Zlib => read_up_to(flate2::read::ZlibDecoder::new(packed), LARGEST_BLOCK, into),
        BlockCodec::Zstd => unpack_zstd(packed, LARGEST_BLOCK, LARGEST_BLOCK, into),
        BlockCodec::Snappy | BlockCodec::Lz4Block | BlockCodec::Lz4Frame => {
            Err("its length is not known".to_owned())
        }
    };
    let title = codec.title();
    found.map_err(|error| format!("is compressed with {title} as a whole and damaged: {error}"))?;
    Ok(unpacked)
}

/// Unpacks frames of zstd, and one byte more than `size` at most.
fn unpack_zstd(packed: &[u8], window: u64, size: u64, into: &mut Vec<u8>) -> Result<(), String> {
    let mut rest = packed;
    while !rest.is_empty() && into.len() as u64 <= size {
        let mut from = ruzstd::decoding::StreamingDecoder::new_with_max_window_size(&mut rest, window)
            .map_err(|error| error.to_string())?;
        read_up_to(&mut from, size - into.len() as u64, into)?;
        let frame = from.into_frame_decoder();
        let stated = frame.get_checksum_from_data();
        if stated.is_some() && stated != frame.get_calculated_checksum() {
            return Err("its checksum differs".to_owned());
        }
    }
    Ok(())
}

/// Reads what there is, and one byte more than `size` at most, by which more than stated is noticed.
fn read_up_to(from: impl Read, size: u64, into: &mut Vec<u8>) -> Result<(), String> {
    from.take(size + 1).read_to_end(into).map(|_| ()).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_becomes_what_is_stated_or_an_error() {
        let text = b"the same again, the same again, the same again, the same again".as_slice();
        let packed = snap::raw::Encoder::new().compress_vec(text).unwrap();
        let block = |unpacked| PackedBlock { offset: 7, unpacked, codec: BlockCodec::Snappy };
        assert_eq!(block(text.len() as u64).unpack(&packed).unwrap(), text);
        for size in [0, 1, text.len() as u64 + 1, LARGEST_BLOCK, LARGEST_BLOCK + 1, u64::MAX] {
            assert_eq!(block(size).unpack(&packed).unwrap_err().offset, 7, "{size}");
        }
    }
}
