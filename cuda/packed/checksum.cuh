//! The CRC-32C of a row of MCUs. Each thread of a block computes the remainder of a stretch of the row; the remainders
//! of neighbouring stretches are then joined pair by pair.
//!
//! Zeros before the first byte do not change a remainder. So zeros are put in front that make the lengths of all
//! stretches the same power of two. Then the factor of the left one of two remainders depends only on the length of the
//! stretches.

#ifndef FORELOAD_PACKED_CHECKSUM
#define FORELOAD_PACKED_CHECKSUM

#include "packed/shared.cuh"

/// Castagnoli's polynomial, with the coefficient of x^31 lowest.
#define CASTAGNOLI 0x82f63b78u

/// x^(8 * 2^i) modulo the polynomial: the factor of a remainder when 2^i bytes are appended.
CONSTANTS u32 behind[32] = {
    0x00800000, 0x00008000, 0x82f63b78, 0x6ea2d55c, 0x18b8ea18, 0x510ac59a, 0xb82be955, 0xb8fdb1e7,
    0x88e56f72, 0x74c360a4, 0xe4172b16, 0x0d65762a, 0x35d73a62, 0x28461564, 0xbf455269, 0xe2ea32dc,
    0xfe7740e6, 0xf946610b, 0x3c204f8f, 0x538586e3, 0x59726915, 0x734d5309, 0xbc1ac763, 0x7d0722cc,
    0xd289cabe, 0xe94ca9bc, 0x05b74f3f, 0xa51e1f42, 0x40000000, 0x20000000, 0x08000000, 0x00800000,
};

/// `value` times x modulo the polynomial.
INLINE u32 times_x(u32 value) { return value >> 1 ^ (value & 1 ? CASTAGNOLI : 0); }

/// The product of two remainders.
INLINE u32 product_of(u32 a, u32 b) {
    u32 product = 0;
    ROLL for (u32 i = 0; i < 32; i++) {
        product ^= a & 0x80000000u >> i ? b : 0;
        b = times_x(b);
    }
    return product;
}

/// The four bytes of a row from `at` on; bytes before the row are zeros. CRC-32C starts with a remainder of ones, which
/// is the same as inverting the row's first four bytes.
INLINE u32 word_of_row(const PackedRowEntry* row, i64 at) {
    if (at <= -4) return 0;
    const u64 address = row->bytes + (u64)at, words = address & ~(u64)3;
    const u32 skew = 8 * (u32)(address & 3);
    const u32 low = words < (row->bytes & ~(u64)3) ? 0 : load_word((const u8*)words);
    const u32 word = join_words(low, skew ? load_word((const u8*)(words + 4)) : 0, skew);
    if (at >= 4) return word;
    const u32 of_row = at < 0 ? ~0u << 8 * (u32)-at : ~0u;
    return (word & of_row) ^ (at < 0 ? of_row : ~0u >> 8 * (u32)at);
}

/// The checksum of a row, the same for all threads of the block. It uses the memory of the coefficients.
INLINE u32 checksum_of(const Block* block, const PackedRowEntry* row) {
    PackedShared* shared = (PackedShared*)block->memory;
    EACH_THREAD(t) {
        ROLL for (u32 byte = t; byte < 256; byte += BLOCKS) {
            u32 remainder = byte;
            ROLL for (u32 i = 0; i < 8; i++) remainder = times_x(remainder);
            shared->memory.remainders[byte] = remainder;
        }
    }
    SYNC();
    u32 power = 2;
    while ((u64)BLOCKS << power < row->length) power++;
    const i64 front = ((i64)BLOCKS << power) - row->length;
    EACH_THREAD(t) {
        u32 remainder = 0;
        ROLL for (i64 at = ((i64)t << power) - front, end = at + ((i64)1 << power); at < end; at += 4) {
            remainder ^= word_of_row(row, at);
            ROLL for (u32 i = 0; i < 4; i++) {
                remainder = shared->memory.remainders[remainder & 255] ^ remainder >> 8;
            }
        }
        shared->sums[0][t] = remainder;
    }
    SYNC();
    ROLL for (u32 level = 0; level < LEVELS; level++) {
        const u32* from = shared->sums[level % 2];
        EACH_THREAD(t) {
            if (t < BLOCKS >> (level + 1)) {
                const u32 left = product_of(from[2 * t], behind[power + level]);
                shared->sums[(level + 1) % 2][t] = left ^ from[2 * t + 1];
            }
        }
        SYNC();
    }
    const u32 checksum = ~shared->sums[LEVELS % 2][0];
    SYNC();
    return checksum;
}

#endif
