//! The bits of a row of MCUs of a JPEG, the highest of each byte first, without the zeros that are stuffed after FF.

#ifndef FORELOAD_INDEXED_BITS
#define FORELOAD_INDEXED_BITS

#include "indexed/table.cuh"

/// The progress of a thread in the bits of its row.
typedef struct {
    /// The next bits, the first one highest, followed by zeros.
    u64 window;
    /// The number of bits in `window`; negative if more bits were taken than the row has.
    i32 count;
    /// The offset in the row of the next byte to read.
    u32 at;
    /// Whether the thread has reached a marker or the end of the row.
    u32 ended;
} RowBits;

/// What `next_byte` returns at a marker and at the end of the row: no byte.
#define NO_BYTE 256u

/// The four bytes of a row from `at` on, the first one lowest. At least one of them is in the row; bytes after the end
/// of the row are undefined.
INLINE u32 four_bytes(const IndexedRowEntry* row, u32 at) {
    const u64 address = row->bytes + at, word = address & ~(u64)3;
    const u32 high = word + 4 < row->bytes + row->length ? load_word((const u8*)(word + 4)) : 0;
    return join_words(load_word((const u8*)word), high, 8 * (u32)(address & 3));
}

/// Whether one of four bytes is FF.
INLINE u32 has_ff(u32 bytes) { return (~bytes - 0x01010101u) & bytes & 0x80808080u; }

/// Whether the four bytes from `at` on are all in the row and none of them is FF.
INLINE u32 are_plain(const IndexedRowEntry* row, u32 at, u32 bytes) { return row->length - at >= 4 && !has_ff(bytes); }

/// Returns the next byte of coded data and advances past it and past the zero that is stuffed after it. More than one
/// FF may precede a marker.
INLINE u32 next_byte(const IndexedRowEntry* row, u32* at) {
    ROLL while (*at < row->length) {
        const u32 bytes = four_bytes(row, *at), byte = bytes & 255, next = bytes >> 8 & 255;
        const u32 is_last = row->length - *at == 1;
        if (byte != 255) {
            *at += 1;
            return byte;
        }
        if (!is_last && next == 0) {
            *at += 2;
            return byte;
        }
        if (is_last || next != 255) return NO_BYTE;
        *at += 1;
    }
    return NO_BYTE;
}

/// Fills the window to more than 32 bits, if the row has them. No code with its value is longer than 27 bits.
INLINE void refill(const IndexedRowEntry* row, RowBits* bits) {
    ROLL while (bits->count <= 32 && !bits->ended) {
        const u32 bytes = bits->at < row->length ? four_bytes(row, bits->at) : 0;
        if (bits->at < row->length && are_plain(row, bits->at, bytes)) {
            bits->window |= (u64)reversed_bytes(bytes) << (32 - bits->count);
            bits->count += 32;
            bits->at += 4;
            continue;
        }
        const u32 byte = next_byte(row, &bits->at);
        bits->ended = byte == NO_BYTE;
        if (!bits->ended) {
            bits->window |= (u64)byte << (56 - bits->count);
            bits->count += 8;
        }
    }
}

INLINE void take_bits(RowBits* bits, u32 count) {
    bits->window <<= count;
    bits->count -= (i32)count;
}

/// Whether only padding is left before a marker or the end of the row: less than a byte, or bytes of zeros or of ones.
/// Consumes the padding.
INLINE u32 only_padding(const IndexedRowEntry* row, RowBits* bits) {
    if (bits->count < 0) return 0;
    take_bits(bits, (u32)bits->count % 8);
    u32 padding = NO_BYTE;
    ROLL for (refill(row, bits); bits->count > 0; refill(row, bits)) {
        const u32 byte = (u32)(bits->window >> 56);
        if ((byte != 0 && byte != 255) || (padding != NO_BYTE && byte != padding)) return 0;
        padding = byte;
        take_bits(bits, 8);
    }
    return 1;
}

/// Advances past the next marker, which must be the restart marker before `interval`. Returns 0 if it is another
/// marker.
INLINE u32 begin_interval(const IndexedRowEntry* row, RowBits* bits, u32 interval) {
    u32 at = bits->at;
    ROLL while (at < row->length) {
        const u32 bytes = four_bytes(row, at);
        if (are_plain(row, at, bytes)) {
            at += 4;
        } else if (next_byte(row, &at) == NO_BYTE) {
            break;
        }
    }
    if (row->length - at < 2 || (four_bytes(row, at) >> 8 & 255) != 0xd0 + (interval - 1) % 8) return 0;
    bits->window = 0;
    bits->count = 0;
    bits->at = at + 2;
    bits->ended = 0;
    return 1;
}

#endif
