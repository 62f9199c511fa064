//! The transpositions of bytes and of bits that make arrays of numbers easier to compress.
//!
//! A shuffled block has planes: plane p has the p-th byte of each element. Interleaving two halves of a sequence byte
//! by byte moves the highest bit of every byte's index to the lowest place. So log2(size) interleavings of `size`
//! planes put the bytes of each element together.

use base::simd::Level;

/// Puts the bytes of each element together. Bytes after the last whole element are copied. Both slices must have the
/// same length; more bytes are ignored.
pub(super) fn unshuffle(size: usize, from: &[u8], to: &mut [u8]) {
    match size {
        2 => unshuffle_vectors::<2>(from, to),
        4 => unshuffle_vectors::<4>(from, to),
        8 => unshuffle_vectors::<8>(from, to),
        16 => unshuffle_vectors::<16>(from, to),
        _ => unshuffle_from(size.max(1), 0, from, to),
    }
}

/// Unshuffles the elements from number `first` on.
fn unshuffle_from(size: usize, first: usize, from: &[u8], to: &mut [u8]) {
    let count = from.len() / size;
    let rest = count * size;
    // Without a whole element there are no planes, however large an element is.
    let planes = if count == 0 { 0 } else { size };
    for plane in 0..planes {
        let bytes = from[plane * count..][..count].iter().skip(first);
        let places = to.iter_mut().skip(first * size + plane).step_by(size);
        bytes.zip(places).for_each(|(byte, place)| *place = *byte);
    }
    to.iter_mut().skip(rest).zip(&from[rest..]).for_each(|(place, byte)| *place = *byte);
}

/// Unshuffles 16 elements at a time. `N` is a power of two.
fn unshuffle_vectors<const N: usize>(from: &[u8], to: &mut [u8]) {
    let count = from.len() / N;
    let mut planes: [&[[u8; 16]]; N] = [&[]; N];
    for (number, plane) in planes.iter_mut().enumerate() {
        *plane = &from[number * count..].as_chunks().0[..count / 16];
    }
    for (number, block) in to.chunks_exact_mut(16 * N).take(count / 16).enumerate() {
        let mut vectors = [to_vector([0; 16]); N];
        for (vector, plane) in vectors.iter_mut().zip(planes) {
            *vector = to_vector(plane[number]);
        }
        for _ in 0..N.trailing_zeros() {
            let before = vectors;
            for half in 0..N / 2 {
                [vectors[2 * half], vectors[2 * half + 1]] = interleave(before[half], before[half + N / 2]);
            }
        }
        for (place, vector) in block.as_chunks_mut().0.iter_mut().zip(vectors) {
            *place = to_bytes(vector);
        }
    }
    unshuffle_from(N, count / 16 * 16, from, to);
}

/// 16 bytes, as the processor keeps them in a register.
#[cfg(not(target_arch = "x86_64"))]
type ShuffledBytes = [u8; 16];
#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::__m128i as ShuffledBytes;

#[inline(always)]
fn to_vector(bytes: [u8; 16]) -> ShuffledBytes {
    // SAFETY: both types are 16 bytes, and any bytes are a value of both.
    unsafe { std::mem::transmute(bytes) }
}

#[inline(always)]
fn to_bytes(vector: ShuffledBytes) -> [u8; 16] {
    // SAFETY: both types are 16 bytes, and any bytes are a value of both.
    unsafe { std::mem::transmute(vector) }
}

/// The bytes of two vectors in turns.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn interleave(even: ShuffledBytes, odd: ShuffledBytes) -> [ShuffledBytes; 2] {
    use std::arch::x86_64::{_mm_unpackhi_epi8, _mm_unpacklo_epi8};
    // SAFETY: every processor of this architecture has SSE2.
    unsafe { [_mm_unpacklo_epi8(even, odd), _mm_unpackhi_epi8(even, odd)] }
}

#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
fn interleave(even: ShuffledBytes, odd: ShuffledBytes) -> [ShuffledBytes; 2] {
    let byte = |at: usize| if at.is_multiple_of(2) { even[at / 2] } else { odd[at / 2] };
    [std::array::from_fn(byte), std::array::from_fn(|at| byte(at + 16))]
}

/// Puts the bits of each element together. The number of elements must be a multiple of 8, and both slices must have
/// the same length; otherwise the bytes are copied. `planes` is memory for the planes of bytes.
pub(super) fn unshuffle_bits(size: usize, from: &[u8], to: &mut [u8], planes: &mut Vec<u8>) {
    let count = from.len() / size.max(1);
    if count == 0 || !count.is_multiple_of(8) || count * size != from.len() {
        return to.iter_mut().zip(from).for_each(|(place, byte)| *place = *byte);
    }
    planes.resize(from.len(), 0);
    // Each byte of the elements has 8 planes of bits.
    for (bits, plane) in from.chunks_exact(count).zip(planes.chunks_exact_mut(count)) {
        unshuffle(8, bits, plane);
    }
    transpose_by(Level::detect(), planes);
    unshuffle(size, planes, to);
}

fn transpose_by(level: Level, plane: &mut [u8]) {
    match level.lowered() {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: a processor of this level has AVX2.
        Level::Avx2 | Level::Avx512 => unsafe { transpose_all_avx2(plane) },
        _ => transpose_all(plane),
    }
}

/// Transposes the bits of every 8 bytes.
#[inline(always)]
fn transpose_all(plane: &mut [u8]) {
    for eight in plane.as_chunks_mut().0 {
        *eight = transpose_bits(u64::from_le_bytes(*eight)).to_le_bytes();
    }
}

/// The same, compiled for longer vectors.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn transpose_all_avx2(plane: &mut [u8]) {
    transpose_all(plane);
}

/// Transposes 8 × 8 bits: bit b of byte e becomes bit e of byte b (Hacker's Delight, 7-3).
fn transpose_bits(bits: u64) -> u64 {
    let swapped = |bits: u64, mask: u64, by: u32| {
        let changed = (bits ^ bits >> by) & mask;
        bits ^ changed ^ changed << by
    };
    let bits = swapped(bits, 0x00aa_00aa_00aa_00aa, 7);
    let bits = swapped(bits, 0x0000_cccc_0000_cccc, 14);
    swapped(bits, 0x0000_0000_f0f0_f0f0, 28)
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::rng::{RandomKey, Use};

    fn shuffled(size: usize, bytes: &[u8]) -> Vec<u8> {
        let count = bytes.len() / size;
        let planes = (0..size).flat_map(|plane| (0..count).map(move |at| bytes[at * size + plane]));
        planes.chain(bytes[count * size..].iter().copied()).collect()
    }

    /// Bit by bit.
    fn bits_shuffled(size: usize, bytes: &[u8]) -> Vec<u8> {
        let count = bytes.len() / size;
        let mut planes = vec![0; bytes.len()];
        for (element, bytes) in bytes.chunks(size).enumerate() {
            for bit in (0..8 * size).filter(|bit| bytes[bit / 8] >> (bit % 8) & 1 == 1) {
                planes[bit * (count / 8) + element / 8] |= 1 << (element % 8);
            }
        }
        planes
    }

    #[test]
    fn all_levels_transpose_the_same_bits() {
        let mut random = RandomKey::new(&[], 2, 0, Use::Augment).stream(0);
        let bytes: Vec<u8> = (0..1000).map(|_| random.next_u64() as u8).collect();
        let mut wanted = vec![0; 1000];
        for (eight, wanted) in bytes.chunks(8).zip(wanted.chunks_mut(8)) {
            for bit in (0..64).filter(|bit| eight[bit / 8] >> (bit % 8) & 1 == 1) {
                wanted[bit % 8] |= 1 << (bit / 8);
            }
        }
        for level in Level::available() {
            let mut found = bytes.clone();
            transpose_by(level, &mut found);
            assert_eq!(found, wanted, "{level:?}");
        }
    }

    #[test]
    fn shuffling_is_undone() {
        let mut random = RandomKey::new(&[], 1, 0, Use::Augment).stream(0);
        for size in [1, 2, 3, 4, 5, 8, 12, 16, 17, 255] {
            for length in [0, 1, 15, 16, 31, 32, 127, 256, 1000, 4096, 4097] {
                let bytes: Vec<u8> = (0..length).map(|_| random.next_u64() as u8).collect();
                let mut found = vec![0; length];
                unshuffle(size, &shuffled(size, &bytes), &mut found);
                assert_eq!(found, bytes, "{size}, {length}");
                let whole = &bytes[..length / (8 * size) * 8 * size];
                let mut found = vec![0; whole.len()];
                unshuffle_bits(size, &bits_shuffled(size, whole), &mut found, &mut Vec::new());
                assert_eq!(found, whole, "bits: {size}, {length}");
            }
        }
    }
}
