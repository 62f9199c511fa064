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
}

impl BlockCodec {
    /// Its name in messages.
    pub(super) fn title(self) -> &'static str {
        match self {
            Self::Snappy => "snappy",
            Self::Gzip => "gzip",
            Self::Zstd => "zstd",
            Self::Lz4Block | Self::Lz4Frame => "LZ4",
        }
    }

    /// The most bytes that a packed byte can stand for: by the formats, matches are 64 bytes for 3, 258 for 2 bits, 255
    /// for 1, and a zstd block has at most 128 KiB for 3 bytes and more.
    fn most_for_a_byte(self) -> u64 {
        match self {
            Self::Snappy => 32,
            Self::Gzip => 1040,
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
            BlockCodec::Lz4Frame => {
                let from = lz4_flex::frame::FrameDecoder::new(packed);
                read_up_to(from, size, &mut unpacked).map_err(damaged)?;
            }
            BlockCodec::Zstd => {
                let window = size.max(ZSTD_WINDOW);
                let mut from = ruzstd::decoding::StreamingDecoder::new_with_max_window_size(packed, window)
                    .map_err(|error| damaged(error.to_string()))?;
                read_up_to(&mut from, size, &mut unpacked).map_err(damaged)?;
                let frame = from.into_frame_decoder();
                let stated = frame.get_checksum_from_data();
                if stated.is_some() && stated != frame.get_calculated_checksum() {
                    return Err(damaged("its checksum differs".to_owned()));
                }
            }
        }
        if unpacked.len() as u64 != size {
            return Err(damaged(format!("it does not become the {size} bytes that are stated")));
        }
        Ok(unpacked)
    }
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
