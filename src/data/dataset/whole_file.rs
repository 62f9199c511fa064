//! Shards that are compressed as a whole. Each shard is one block, which is decompressed before it is parsed.

use super::blocks::ShardBlocks;
use super::samples::ShardContents;
use super::unpack::{BlockCodec, BlockSource, LARGEST_BLOCK, skippable, unpack_all};
use crate::source::{Malformed, ReadAt};
use std::sync::{Condvar, Mutex, PoisonError};

/// Maximum total size, in bytes, of shards that are parsed at the same time. The compressed and the decompressed bytes
/// are counted. A single larger shard is parsed alone.
const MAX_AT_ONCE: u64 = 1 << 30;

const MAX_SKIPPED: u32 = 16;

static RESERVED_BYTES: (Mutex<u64>, Condvar) = (Mutex::new(0), Condvar::new());

struct ReservedMemory(u64);

impl ReservedMemory {
    fn take(bytes: u64) -> Self {
        let (reserved, changed) = &RESERVED_BYTES;
        let mut reserved = reserved.lock().unwrap_or_else(PoisonError::into_inner);
        while *reserved > 0 && *reserved + bytes > MAX_AT_ONCE {
            reserved = changed.wait(reserved).unwrap_or_else(PoisonError::into_inner);
        }
        *reserved += bytes;
        Self(bytes)
    }

    fn shrink(&mut self, bytes: u64) {
        let (reserved, changed) = &RESERVED_BYTES;
        let less = self.0.saturating_sub(bytes);
        self.0 -= less;
        *reserved.lock().unwrap_or_else(PoisonError::into_inner) -= less;
        changed.notify_all();
    }
}

impl Drop for ReservedMemory {
    fn drop(&mut self) {
        let (reserved, changed) = &RESERVED_BYTES;
        *reserved.lock().unwrap_or_else(PoisonError::into_inner) -= self.0;
        changed.notify_all();
    }
}

pub(super) struct UnpackedShard {
    bytes: Vec<u8>,
    packed: Vec<u8>,
    codec: BlockCodec,
    _memory: ReservedMemory,
}

/// Detects the codec of a shard that is compressed as a whole, by its first bytes. `None` for other shards.
///
/// # Errors
/// [`Malformed`] if its first bytes cannot be read.
pub(super) fn codec_of(source: &dyn ReadAt) -> Result<Option<BlockCodec>, Malformed> {
    let known: [(&[u8], BlockCodec); 2] =
        [(b"\x1f\x8b", BlockCodec::Gzip), (b"\x28\xb5\x2f\xfd", BlockCodec::Zstd)];
    let mut at = 0;
    for _ in 0..=MAX_SKIPPED {
        let mut start = [0; 8];
        let got = source.fill_at(&mut start, at)?;
        match skippable(&start[..got]) {
            // Files of pzstd begin with a skippable frame.
            Some(length) => at += length,
            None => {
                let found = known.iter().find(|(magic, _)| start[..got].starts_with(magic));
                return Ok(found
                    .map(|&(_, codec)| codec)
                    .filter(|&codec| at == 0 || codec == BlockCodec::Zstd));
            }
        }
    }
    Ok(None)
}

impl UnpackedShard {
    /// Decompresses a shard. `unpacked` is its decompressed size, if it is known.
    ///
    /// # Errors
    /// [`Malformed`] for a shard that is damaged, of another size than stated, or too large.
    pub(super) fn of(
        source: &dyn ReadAt,
        codec: BlockCodec,
        unpacked: Option<u64>,
    ) -> Result<Self, Malformed> {
        let wrong = |message: String| Malformed { offset: 0, message };
        let size = source.size();
        let title = codec.title();
        let too_large = || {
            let most = LARGEST_BLOCK >> 20;
            wrong(format!(
                "is compressed with {title} as a whole and has more than {most} MiB after decompression, which is the \
                 limit: decompress it, or write smaller shards"
            ))
        };
        if size.max(unpacked.unwrap_or(0)) > LARGEST_BLOCK {
            return Err(too_large());
        }
        let mut memory = ReservedMemory::take(size + unpacked.unwrap_or(LARGEST_BLOCK));
        let mut packed = vec![0; size as usize];
        let got = source.fill_at(&mut packed, 0)?;
        packed.truncate(got);
        let bytes = match unpacked {
            Some(unpacked) => BlockSource { offset: 0, unpacked, codec }.unpack(&packed)?,
            None => unpack_all(codec, &packed).map_err(wrong)?,
        };
        if bytes.len() as u64 > LARGEST_BLOCK {
            return Err(too_large());
        }
        memory.shrink((packed.len() + bytes.len()) as u64);
        Ok(Self { bytes, packed, codec, _memory: memory })
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Parses the decompressed shard with `parse`, and converts offsets in the result to addresses in the compressed
    /// block.
    ///
    /// # Errors
    /// The errors of `parse`.
    pub(super) fn contents(
        &self,
        parse: impl FnOnce(&[u8]) -> Result<ShardContents, Malformed>,
    ) -> Result<ShardContents, Malformed> {
        let mut contents = parse(&self.bytes).map_err(in_decompressed)?;
        let mut blocks = ShardBlocks::of(self.packed.len() as u64);
        let block = BlockSource { offset: 0, unpacked: self.bytes.len() as u64, codec: self.codec };
        let start = blocks.add(block, &self.packed)?;
        // Locations of members are relative to the sample's offset, so they stay the same.
        contents.rows.samples.iter_mut().for_each(|sample| sample.offset += start);
        contents.rows.blocks = blocks.into_rows();
        Ok(contents)
    }
}

/// Converts an error in the decompressed bytes to an error of the compressed shard. The message keeps the offset.
pub(super) fn in_decompressed(Malformed { offset, message }: Malformed) -> Malformed {
    Malformed { offset: 0, message: format!("{message} (at byte {offset} of the decompressed data)") }
}
