//! The filters of chunked arrays: compression, shuffling and checksums, as HDF5, zarr and numcodecs apply them.
//!
//! A chunk has a list of filters in the order in which the writer applied them. [`unpack_chunk`] undoes them, the last
//! one first. Decoding is strict: every size must be exactly as expected, all input must be used, and every checksum is
//! verified. So damaged bytes give an error, never other values, wherever the format can tell.
//!
//! Formats without a suitable crate are decoded here: Blosc 1 (`blosc.rs`), the transpositions of bytes and bits
//! (`shuffle.rs`), and small framings and checksums (`formats.rs`, `sums.rs`).

mod blosc;
mod formats;
mod shuffle;
mod sums;
#[cfg(test)]
mod tests;
mod transpose;

use super::super::unpack::{self, LARGEST_BLOCK};
use flate2::{Decompress, FlushDecompress, Status};
use serde::{Deserialize, Serialize};
use zstd_safe::{DCtx, get_error_name};

/// A transformation of a chunk's bytes by its writer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ChunkFilter {
    /// One zlib stream: HDF5's filter 1, numcodecs' `zlib`.
    Zlib,
    /// Members of gzip.
    Gzip,
    /// Frames of zstd: HDF5's filter 32015, zarr's `zstd`.
    Zstd,
    /// LZ4 blocks, each after its length: HDF5's filter 32004.
    Lz4Blocks,
    /// One LZ4 block after its decompressed size: numcodecs' `lz4`.
    Lz4Sized,
    /// LibLZF's format: HDF5's filter 32000.
    Lzf,
    /// A Blosc 1 chunk: HDF5's filter 32001, zarr's `blosc`. Its header names the compressor.
    Blosc,
    /// All first bytes of the elements, then all second bytes, and so on.
    Shuffle {
        /// Bytes of an element.
        size: u32,
    },
    /// HDF5's filter 32008: within blocks, all lowest bits of the elements, then all second bits, and so on.
    Bitshuffle {
        /// Bytes of an element.
        size: u32,
        /// Elements in a block; 0 for the library's default. Chunks with compressed blocks state the size themselves.
        block: u32,
        /// The compression of each block.
        packing: BlockPacking,
    },
    /// A checksum of 4 bytes, little-endian, after the bytes.
    Checksum {
        /// The checksum's algorithm.
        sum: ChunkSum,
    },
    /// Differences of neighbouring integers, except for the first one: numcodecs' `delta`.
    Delta {
        /// Bytes of an integer: 1, 2, 4 or 8.
        size: u32,
        /// Whether the bytes of the integers are stored with the highest one first.
        big_endian: bool,
    },
    /// Another order of dimensions: zarr's `transpose`, or column-major order. After decoding, the chunk is row-major.
    Transpose {
        /// Bytes of an element: 1, 2, 4 or 8.
        size: u32,
        /// The lengths of the chunk's dimensions after decoding.
        shape: Vec<u64>,
        /// For each stored dimension, outermost first, its number among the decoded dimensions.
        order: Vec<u32>,
    },
}

/// The compression of the blocks of [`ChunkFilter::Bitshuffle`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum BlockPacking {
    /// Only shuffled.
    Plain,
    /// LZ4.
    Lz4,
    /// Zstd.
    Zstd,
}

/// The algorithm of a checksum.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ChunkSum {
    /// HDF5's filter 3.
    Fletcher32,
    /// CRC-32C (Castagnoli).
    Crc32c,
}

impl ChunkFilter {
    fn is_compression(&self) -> bool {
        use ChunkFilter::{Bitshuffle, Blosc, Gzip, Lz4Blocks, Lz4Sized, Lzf, Zlib, Zstd};
        match self {
            Zlib | Gzip | Zstd | Lz4Blocks | Lz4Sized | Lzf | Blosc => true,
            Bitshuffle { packing, .. } => *packing != BlockPacking::Plain,
            _ => false,
        }
    }

    /// Decodes `packed` to exactly `size` bytes. `to` may have more or fewer bytes before, which are overwritten.
    fn unpack(
        &self,
        packed: &[u8],
        size: usize,
        to: &mut Vec<u8>,
        work: &mut FilterWork,
    ) -> Result<(), String> {
        if let Self::Gzip = self {
            to.clear();
            // With the additional byte, the decoder detects that the output is too long without growing the buffer.
            to.reserve(size + 1);
        } else {
            to.resize(size, 0);
        }
        match self {
            Self::Zlib => work.inflate(packed, to),
            Self::Gzip => unpack::gzip(packed, size as u64, to),
            Self::Zstd => work.unpack_zstd(packed, to),
            Self::Lz4Blocks => formats::lz4_blocks(packed, to),
            Self::Lz4Sized => formats::lz4_sized(packed, to),
            Self::Lzf => formats::lzf(packed, to),
            Self::Blosc => blosc::unpack(packed, to, work),
            Self::Shuffle { size } => same_length(packed, to).map(|()| {
                shuffle::unshuffle(*size as usize, packed, to);
            }),
            Self::Bitshuffle { size, block, packing } => {
                formats::bitshuffle(*size as usize, *block as usize, *packing, packed, to, work)
            }
            Self::Delta { size, big_endian } => {
                same_length(packed, to)?;
                formats::undo_differences(*size, *big_endian, packed, to)
            }
            Self::Transpose { size, shape, order } => transpose::rows_first(*size, shape, order, packed, to),
            // Verified by `payload`.
            Self::Checksum { .. } => Ok(()),
        }
    }

    fn title(&self) -> &'static str {
        match self {
            Self::Zlib => "zlib",
            Self::Gzip => "gzip",
            Self::Zstd => "zstd",
            Self::Lz4Blocks | Self::Lz4Sized => "LZ4",
            Self::Lzf => "LZF",
            Self::Blosc => "blosc",
            Self::Shuffle { .. } => "shuffled",
            Self::Bitshuffle { .. } => "bitshuffle",
            Self::Checksum { .. } => "checksum",
            Self::Delta { .. } => "delta",
            Self::Transpose { .. } => "transposed",
        }
    }
}

fn same_length(from: &[u8], to: &[u8]) -> Result<(), String> {
    if from.len() == to.len() {
        return Ok(());
    }
    Err(format!("there are {} bytes, must be {}", from.len(), to.len()))
}

/// The memory that decoding needs. Each thread keeps one, so that decoding rarely allocates.
#[derive(Default)]
pub struct ChunkScratch {
    from: Vec<u8>,
    to: Vec<u8>,
    work: FilterWork,
}

/// The memory of single filters.
struct FilterWork {
    /// A decompressed block that is still shuffled.
    block: Vec<u8>,
    /// The planes of bytes of a block whose bits are shuffled.
    planes: Vec<u8>,
    zlib: Decompress,
    /// `None` until it is needed.
    zstd: Option<DCtx<'static>>,
}

impl Default for FilterWork {
    fn default() -> Self {
        Self { block: Vec::new(), planes: Vec::new(), zlib: Decompress::new(true), zstd: None }
    }
}

impl FilterWork {
    /// Decompresses one zlib stream, which must fill `to` exactly.
    fn inflate(&mut self, packed: &[u8], to: &mut [u8]) -> Result<(), String> {
        self.zlib.reset(true);
        let status = self.zlib.decompress(packed, to, FlushDecompress::Finish);
        let status = status.map_err(|error| error.to_string())?;
        let ends = self.zlib.total_in() == packed.len() as u64 && self.zlib.total_out() == to.len() as u64;
        if status == Status::StreamEnd && ends {
            return Ok(());
        }
        Err(format!("the stream is truncated, or does not give exactly {} bytes", to.len()))
    }

    /// Decompresses frames of zstd, which must fill `to` exactly.
    fn unpack_zstd(&mut self, packed: &[u8], to: &mut [u8]) -> Result<(), String> {
        if self.zstd.is_none() {
            self.zstd = DCtx::try_create();
        }
        let decoder = self.zstd.as_mut().ok_or("there is no memory for a decoder")?;
        match decoder.decompress(to, packed) {
            Ok(found) if found == to.len() => Ok(()),
            Ok(found) => Err(format!("the frames give {found} bytes, must be {}", to.len())),
            Err(code) => Err(get_error_name(code).to_owned()),
        }
    }
}

/// Decodes a chunk to exactly `expected` bytes. `filters` are in the order in which the writer applied them. If bit n
/// of `mask` is set, the writer left out the n-th filter of this chunk, as HDF5 does.
///
/// # Errors
/// What is wrong, as a sentence that begins with "its". No input causes a panic.
pub fn unpack_chunk<'a>(
    filters: &[ChunkFilter],
    mask: u32,
    packed: &'a [u8],
    expected: usize,
    scratch: &'a mut ChunkScratch,
) -> Result<&'a [u8], String> {
    Ok(decode(filters, mask, packed, expected, scratch)?.unwrap_or(&scratch.from))
}

/// Decodes a chunk as [`unpack_chunk`] does, into memory that the caller keeps.
///
/// # Errors
/// Those of [`unpack_chunk`].
pub(super) fn unpack_owned(
    filters: &[ChunkFilter],
    mask: u32,
    packed: &[u8],
    expected: usize,
    scratch: &mut ChunkScratch,
) -> Result<Vec<u8>, String> {
    match decode(filters, mask, packed, expected, scratch)? {
        Some(stored) => Ok(stored.to_vec()),
        // The scratch may have served a much larger chunk.
        None if scratch.from.capacity() / 2 > expected => Ok(scratch.from.clone()),
        None => Ok(std::mem::take(&mut scratch.from)),
    }
}

/// Decodes a chunk into `scratch.from`. If no filter changed the bytes, returns these instead, which are a part of
/// `packed`.
fn decode<'a>(
    filters: &[ChunkFilter],
    mask: u32,
    packed: &'a [u8],
    expected: usize,
    scratch: &mut ChunkScratch,
) -> Result<Option<&'a [u8]>, String> {
    if !filters.is_empty() && expected as u64 > LARGEST_BLOCK {
        let most = LARGEST_BLOCK >> 20;
        return Err(format!("its size is {expected} bytes decompressed, the limit is {most} MiB"));
    }
    let ChunkScratch { from, to, work } = scratch;
    // The current bytes are a part of `packed`, and after the first decoder the whole of `from`.
    let (mut rest, mut is_packed) = (packed, true);
    for (number, filter) in filters.iter().enumerate().rev() {
        if is_left_out(mask, number) {
            continue;
        }
        if let ChunkFilter::Checksum { sum } = *filter {
            if is_packed {
                rest = sums::payload(sum, rest)?;
            } else {
                from.truncate(sums::payload(sum, from)?.len());
            }
            continue;
        }
        let bytes = if is_packed { rest } else { from.as_slice() };
        let size = match size_before(&filters[..number], mask, expected) {
            Some(size) => size,
            // Only compressions change the size, so before one that is applied later the sizes are equal.
            None if !filter.is_compression() => bytes.len(),
            None => return Err("its filters compress it twice, which is not read".to_owned()),
        };
        filter
            .unpack(bytes, size, to, work)
            .and_then(|()| if to.len() == size { Ok(()) } else { Err(not_the_size(to.len(), size)) })
            .map_err(|error| format!("its {} data cannot be decoded: {error}", filter.title()))?;
        std::mem::swap(from, to);
        is_packed = false;
    }
    let unpacked = if is_packed { rest } else { from.as_slice() };
    if unpacked.len() != expected {
        return Err(format!("its size is wrong: {}", not_the_size(unpacked.len(), expected)));
    }
    Ok(is_packed.then_some(rest))
}

fn not_the_size(is: usize, must_be: usize) -> String {
    format!(
        "there are {} bytes{}, must be {must_be}",
        is.min(must_be + 1),
        if is > must_be { " or more" } else { "" }
    )
}

fn is_left_out(mask: u32, number: usize) -> bool {
    u32::try_from(number).ok().and_then(|number| mask.checked_shr(number)).is_some_and(|mask| mask & 1 == 1)
}

/// The number of bytes after `filters` were applied to `size` bytes; `None` if one of them compresses.
fn size_before(filters: &[ChunkFilter], mask: u32, size: usize) -> Option<usize> {
    let mut applied = filters.iter().enumerate().filter(|(number, _)| !is_left_out(mask, *number));
    applied.try_fold(size, |size, (_, filter)| match filter {
        ChunkFilter::Checksum { .. } => Some(size + 4),
        filter => Some(size).filter(|_| !filter.is_compression()),
    })
}

/// Checks filters when an array is opened: whether [`unpack_chunk`] can undo them for chunks of `bytes` bytes.
///
/// # Errors
/// A description of what is not read, which continues a sentence about the array.
pub fn check_filters(filters: &[ChunkFilter], bytes: u64) -> Result<(), String> {
    let most = LARGEST_BLOCK;
    if !filters.is_empty() && bytes > most {
        let most = most >> 20;
        return Err(format!(
            "has filtered chunks of {bytes} bytes, the limit is {most} MiB: write smaller chunks"
        ));
    }
    let compressions: Vec<_> =
        filters.iter().filter(|filter| filter.is_compression()).map(ChunkFilter::title).collect();
    if compressions.len() > 1 {
        let listed = compressions.join(" and ");
        return Err(format!("is compressed twice, with {listed}, which is not read: compress it once"));
    }
    filters.iter().try_for_each(|filter| match *filter {
        ChunkFilter::Shuffle { size: 0 } | ChunkFilter::Bitshuffle { size: 0, .. } => {
            Err("is shuffled by elements of 0 bytes".to_owned())
        }
        ChunkFilter::Delta { size, .. } | ChunkFilter::Transpose { size, .. }
            if !matches!(size, 1 | 2 | 4 | 8) =>
        {
            Err(format!("has a filter of elements of {size} bytes, must be 1, 2, 4 or 8"))
        }
        ChunkFilter::Transpose { size, ref shape, ref order } => transpose::check(size, shape, order, bytes),
        _ => Ok(()),
    })
}

/// The most bytes that a chunk of `bytes` bytes can have after filters were applied. Compressions make incompressible
/// bytes a little longer.
pub fn most_packed(bytes: u64) -> u64 {
    bytes.saturating_add(bytes / 16).saturating_add(4096)
}
