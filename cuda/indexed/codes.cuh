//! Huffman codes, and from the bits of a row to the coefficients of a block (ITU T.81, F.2.2). The same data is invalid
//! here and in `src/pixels/decode/jpeg/scan.rs`.

#ifndef FORELOAD_INDEXED_CODES
#define FORELOAD_INDEXED_CODES

#include "indexed/bits.cuh"
#include "indexed/shared.cuh"

/// The largest size in bits of a DC difference and of an AC coefficient in images with 8 bits per sample.
#define MOST_DC_BITS 11
#define MOST_AC_BITS 10

/// The largest magnitude of a DC coefficient multiplied by its step.
#define MOST_DC 32767

/// The code that `bits` (16 bits) begin with: its length, and the symbol in the upper half. 0 if there is none.
INLINE u32 find_code(const HuffmanCode* code, u32 bits) {
    u32 i = 0;
    ROLL while (i < 16 && bits >= load_word((const u8*)&code->limit[i])) i++;
    if (i == 16) return 0;
    const u32 index = (bits >> (15 - i)) + load_word((const u8*)&code->offset[i]);
    return (i + 1) | load_byte(&code->symbols[index & 255]) << 8;
}

/// Fills a lookup table of `bits` bits. Thread `t` fills its share.
INLINE void fill_lookup(const HuffmanCode* code, u32 bits, u16* lookup, u32 t) {
    ROLL for (u32 i = t; i < 1u << bits; i += GROUP_THREADS) {
        const u32 found = find_code(code, i << (16 - bits));
        lookup[i] = (found & 255) <= bits ? (u16)found : 0;
    }
}

/// The next code of the row, in the format of `find_code`.
INLINE u32 next_code(const HuffmanCode* code, const u16* lookup, u32 bits, const RowBits* row) {
    const u32 found = lookup[row->window >> (64 - bits)];
    return found ? found : find_code(code, (u32)(row->window >> 48));
}

/// Takes a code of length `length` and the value of `size` bits after it, and returns the value. Values whose first bit
/// is 0 are negative.
INLINE i32 take_value(RowBits* bits, u32 length, u32 size) {
    take_bits(bits, length);
    if (size == 0) return 0;
    const i32 value = (i32)(bits->window >> (64 - size));
    take_bits(bits, size);
    return value >> (size - 1) ? value : value - (1 << size) + 1;
}

/// Reads the next block of a component from the bits of a row. `dc` is the component's last DC coefficient. Stores the
/// coefficients in their places in `to`, which must be zeros, unless `to` is null. Returns 0 if the data is invalid.
INLINE u32 read_coefficients(const IndexedShared* shared, const IndexedImageEntry* image, const HuffmanCode* codes,
                      const IndexedRowEntry* row, u32 component, RowBits* bits, i32* dc, i16* to) {
    const u32* numbers = image->codes[component];
    refill(row, bits);
    const u32 first = next_code(codes + numbers[0], shared->dc_codes[component], DC_LOOKUP, bits);
    if (first == 0 || first >> 8 > MOST_DC_BITS) return 0;
    const i32 sum = *dc + take_value(bits, first & 255, first >> 8);
    if ((u32)(sum < 0 ? -sum : sum) * shared->tables.steps[component][0] > MOST_DC) return 0;
    *dc = sum;
    if (to) to[0] = (i16)sum;
    u32 k = 0;
    ROLL while (k < 63) {
        refill(row, bits);
        const u32 code = next_code(codes + numbers[1], shared->ac_codes[component], AC_LOOKUP, bits);
        const u32 run = code >> 12, size = code >> 8 & 15;
        if (code == 0 || size > MOST_AC_BITS) return 0;
        const i32 value = take_value(bits, code & 255, size);
        // As in libjpeg, every symbol without a value ends the block, except a run of sixteen zeros.
        if (size == 0 && run != 15) return 1;
        k += run + 1;
        if (k > 63) return 0;
        if (to && size) to[shared->tables.places[k]] = (i16)value;
    }
    return 1;
}

#endif
