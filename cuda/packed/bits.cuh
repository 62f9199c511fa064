//! The bits of a packed image, counted from the lowest of the first byte on.

#ifndef FORELOAD_PACKED_BITS
#define FORELOAD_PACKED_BITS

#include "packed/table.cuh"

/// The bits of a row of MCUs from one of its bytes on. After the row come up to three bytes of the memory that follows
/// it, then zeros without end.
typedef struct {
    /// The address of the word that holds the first byte, and the number of bits of that word before the first byte.
    u64 words;
    u32 skew;
    /// The number of words up to the one that holds the row's last byte.
    u32 count;
} BitSource;

/// The bits from byte `offset` of a row on.
INLINE BitSource bits_from(const PackedRowEntry* row, u32 offset) {
    const u64 address = row->bytes + offset, end = row->bytes + row->length;
    BitSource source;
    source.words = address & ~(u64)3;
    source.skew = 8 * (u32)(address & 3);
    source.count = end > source.words ? (u32)((end - source.words + 3) / 4) : 0;
    return source;
}

INLINE u32 word_of(const BitSource* source, u32 number) {
    return number < source->count ? load_word((const u8*)(source->words + 4 * (u64)number)) : 0;
}

/// The 64 bits from bit `at` on, the first one lowest.
INLINE u64 bits_at(const BitSource* source, u32 at) {
    const u32 bit = at + source->skew, first = bit / 32, skew = bit % 32;
    const u32 middle = word_of(source, first + 1);
    const u32 low = join_words(word_of(source, first), middle, skew);
    return (u64)join_words(middle, word_of(source, first + 2), skew) << 32 | low;
}

/// The byte at `at`, counted from the first one.
INLINE u32 byte_at(const BitSource* source, u32 at) { return (u32)bits_at(source, 8 * at) & 255; }

/// The lowest `count` bits; `count` is at most 63.
INLINE u64 lowest(u64 bits, u32 count) { return bits & (((u64)1 << count) - 1); }

/// The lowest `count` bits, at most 31, as a number with a sign.
INLINE i32 with_sign_of(u64 bits, u32 count) {
    const i32 value = (i32)lowest(bits, count);
    return count && value >> (count - 1) ? value - (1 << count) : value;
}

#endif
