//! Replaces each byte of a plane by its entry in a table of 256 bytes.

use base::simd::Level;

pub(super) fn replace(level: Level, plane: &mut [u8], table: &[u8; 256]) {
    match level {
        // SAFETY: `PixelPass::new` lowers the level to one that this processor supports.
        #[cfg(target_arch = "x86_64")]
        Level::Avx512 => unsafe { replace_avx512(plane, table) },
        // SAFETY: `PixelPass::new` lowers the level to one that this processor supports.
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 => unsafe { replace_avx2(plane, table) },
        _ => replace_portable(plane, table),
    }
}

fn replace_portable(plane: &mut [u8], table: &[u8; 256]) {
    for level in plane {
        *level = table[usize::from(*level)];
    }
}

/// With VBMI, one instruction looks up 64 bytes in half of the table, so two instructions cover the table.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
fn replace_avx512(plane: &mut [u8], table: &[u8; 256]) {
    use std::arch::x86_64::*;
    // SAFETY: each quarter of the table holds 64 bytes.
    let quarter = |n: usize| unsafe { _mm512_loadu_si512(table[64 * n..][..64].as_ptr().cast()) };
    let (first, second, third, fourth) = (quarter(0), quarter(1), quarter(2), quarter(3));
    let (blocks, rest) = plane.as_chunks_mut::<64>();
    for block in blocks {
        // SAFETY: a block holds 64 bytes.
        let levels = unsafe { _mm512_loadu_si512(block.as_ptr().cast()) };
        let low = _mm512_permutex2var_epi8(first, levels, second);
        let high = _mm512_permutex2var_epi8(third, levels, fourth);
        let found = _mm512_mask_blend_epi8(_mm512_movepi8_mask(levels), low, high);
        // SAFETY: a block holds 64 bytes.
        unsafe { _mm512_storeu_si512(block.as_mut_ptr().cast(), found) };
    }
    replace_portable(rest, table);
}

/// Without VBMI, a shuffle looks up bytes in a table of 16 entries, and gives 0 for an index whose highest bit is set.
/// So four shuffles look up each quarter of the table, and their results are joined. Then two bits of the level choose
/// the quarter.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn replace_avx2(plane: &mut [u8], table: &[u8; 256]) {
    use std::arch::x86_64::*;
    // SAFETY: each sixteenth of the table holds 16 bytes.
    let sixteenth = |n: usize| unsafe { _mm_loadu_si128(table[16 * n..][..16].as_ptr().cast()) };
    let tables: [__m256i; 16] = std::array::from_fn(|n| _mm256_broadcastsi128_si256(sixteenth(n)));
    let (blocks, rest) = plane.as_chunks_mut::<32>();
    for block in blocks {
        // SAFETY: a block holds 32 bytes.
        let levels = unsafe { _mm256_loadu_si256(block.as_ptr().cast()) };
        let place = _mm256_and_si256(levels, _mm256_set1_epi8(63));
        // After the XOR, bits 4 and 5 are 0 if the index is in this sixteenth; otherwise the addition sets the highest
        // bit.
        let indices: [__m256i; 4] = std::array::from_fn(|n| {
            let difference = _mm256_xor_si256(place, _mm256_set1_epi8(16 * n as i8));
            _mm256_add_epi8(difference, _mm256_set1_epi8(0x70))
        });
        let quarters: [__m256i; 4] = std::array::from_fn(|quarter| {
            let found: [__m256i; 4] =
                std::array::from_fn(|n| _mm256_shuffle_epi8(tables[4 * quarter + n], indices[n]));
            _mm256_or_si256(_mm256_or_si256(found[0], found[1]), _mm256_or_si256(found[2], found[3]))
        });
        // A blend looks at the highest bit of each byte, so bit 6 is moved there.
        let bit_6 = _mm256_slli_epi16::<1>(levels);
        let low = _mm256_blendv_epi8(quarters[0], quarters[1], bit_6);
        let high = _mm256_blendv_epi8(quarters[2], quarters[3], bit_6);
        let found = _mm256_blendv_epi8(low, high, levels);
        // SAFETY: a block holds 32 bytes.
        unsafe { _mm256_storeu_si256(block.as_mut_ptr().cast(), found) };
    }
    replace_portable(rest, table);
}
