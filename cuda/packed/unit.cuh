//! From the bits of units to coefficients. Each thread has a block. The offset of a block's bits follows from the
//! lengths of the blocks before it in the unit; a barrier ensures that these are known.

#ifndef FORELOAD_PACKED_UNIT
#define FORELOAD_PACKED_UNIT

#include "packed/bits.cuh"
#include "packed/shared.cuh"

/// The widths in bits of a unit's head: the first DC coefficient, the width of the differences, the flag for long
/// escapes. After the differences come the index of a block's last coefficient and the width of its remainders.
enum { DC_BITS = 12, DIFFERENCE_BITS = 4, HEAD_BITS = DC_BITS + DIFFERENCE_BITS + 1, LAST_BITS = 6, WIDTH_BITS = 3 };

/// The largest magnitude of an AC coefficient.
#define MOST_MAGNITUDE 1023

/// The state of a thread's block.
typedef struct {
    /// Bit masks of coefficients. `nonzero` is in coding order. `negative` and `large` (has a remainder) have one bit
    /// per nonzero coefficient, from the lowest on; `escaped` has one bit per large coefficient.
    u64 nonzero, negative, large, escaped;
    /// The width of the remainders in bits, and the size of an escape of the unit in bytes.
    u32 width, escape_bytes;
    /// The offset of the masks in bits, or of the data after them: signs, then remainders.
    u32 at;
    i32 dc;
    /// Whether the block is invalid.
    u32 damaged;
} PackedBlock;

/// The unit of the thread's block.
INLINE const PackedUnit* unit_of(const PackedShared* shared, u32 t) { return &shared->units[t / UNIT]; }

/// The remainder of this width that marks an escape.
INLINE u32 escape_of(u32 width) { return width == 0 ? ~0u : width == 7 ? 126 : (1u << width) - 1; }

/// Reads the fields of the block that precede the masks.
INLINE void read_block(PackedShared* shared, const PackedRowEntry* row, u32 t, PackedBlock* mine) {
    const PackedUnit* unit = unit_of(shared, t);
    const BitSource bits = bits_from(row, unit->offset);
    const u32 b = t % UNIT;
    clear(shared->memory.coefficients[t]);
    const u64 head = bits_at(&bits, 0);
    const u32 width = (u32)lowest(head >> DC_BITS, DIFFERENCE_BITS);
    mine->dc = with_sign_of(head, DC_BITS);
    mine->escape_bytes = 1 + (u32)(head >> (HEAD_BITS - 1) & 1);
    mine->damaged = 0;
    const u64 difference = b ? bits_at(&bits, HEAD_BITS + (b - 1) * width) : 0;
    shared->differences[t] = (i16)with_sign_of(difference, b ? width : 0);
    const u32 blocks_at = HEAD_BITS + (unit->count - 1) * width;
    const u64 said = bits_at(&bits, blocks_at + b * (LAST_BITS + WIDTH_BITS));
    const u32 last = (u32)lowest(said, LAST_BITS);
    mine->width = (u32)lowest(said >> LAST_BITS, WIDTH_BITS);
    mine->at = blocks_at + unit->count * (LAST_BITS + WIDTH_BITS);
    // The last coefficient is not zero; the mask covers those before it.
    mine->nonzero = (u64)(last > 0) << last;
    shared->mask_bits[t] = (u8)(last ? last - 1 : 0);
}

/// Reads the block's mask, and adds the differences up.
INLINE void read_mask(PackedShared* shared, const PackedRowEntry* row, u32 t, PackedBlock* mine) {
    const PackedUnit* unit = unit_of(shared, t);
    const BitSource bits = bits_from(row, unit->offset);
    const u32 first = t - t % UNIT;
    u32 at = mine->at;
    ROLL for (u32 i = 0; i < unit->count; i++) {
        at += first + i < t ? shared->mask_bits[first + i] : 0;
        mine->at += shared->mask_bits[first + i];
        mine->dc += first + i <= t ? shared->differences[first + i] : 0;
    }
    mine->dc = (i16)mine->dc;
    mine->nonzero |= lowest(bits_at(&bits, at), shared->mask_bits[t]) << 1;
    shared->nonzeros[t] = (u8)ones_of(mine->nonzero);
}

/// Reads which coefficients are negative, and which are large.
INLINE void read_signs(PackedShared* shared, const PackedRowEntry* row, u32 t, PackedBlock* mine) {
    const PackedUnit* unit = unit_of(shared, t);
    const BitSource bits = bits_from(row, unit->offset);
    const u32 first = t - t % UNIT, nonzeros = shared->nonzeros[t];
    u32 at = mine->at;
    ROLL for (u32 i = 0; i < unit->count; i++) {
        at += first + i < t ? 2 * shared->nonzeros[first + i] : 0;
        mine->at += 2 * shared->nonzeros[first + i];
    }
    mine->negative = lowest(bits_at(&bits, at), nonzeros);
    mine->large = lowest(bits_at(&bits, at + nonzeros), nonzeros);
    shared->remainder_bits[t] = (u16)(ones_of(mine->large) * mine->width);
}

/// Stores the AC coefficients in their places. Coefficients with escapes are wrong until `add_escapes`.
INLINE void expand(PackedShared* shared, const PackedRowEntry* row, u32 t, PackedBlock* mine) {
    const PackedUnit* unit = unit_of(shared, t);
    const BitSource bits = bits_from(row, unit->offset);
    const u32 first = t - t % UNIT;
    u32 at = mine->at;
    ROLL for (u32 i = 0; i < unit->end; i++) {
        at += first + i < t ? shared->remainder_bits[first + i] : 0;
        mine->at += shared->remainder_bits[first + i];
    }
    mine->damaged |= mine->at > 8 * unit->length;
    i16* coefficients = shared->memory.coefficients[t];
    const u32 width = mine->width, escape = escape_of(width);
    u64 nonzero = mine->nonzero, negative = mine->negative, large = mine->large, window = 0, escaped = 0;
    u32 left = 0, number = 0;
    ROLL for (; nonzero; nonzero &= nonzero - 1) {
        u32 magnitude = 1;
        if (large & 1) {
            if (left < width) {
                window = bits_at(&bits, at);
                left = 64;
            }
            const u32 rest = (u32)lowest(window, width);
            window >>= width;
            left -= width;
            at += width;
            // An invalid remainder may exceed a byte. On the CPU it wraps, too.
            magnitude += 1 + rest;
            escaped |= (u64)(rest == escape) << number;
            number++;
        }
        const i32 value = negative & 1 ? -(i32)magnitude : (i32)magnitude;
        coefficients[shared->tables.places[lowest_one_of(nonzero)]] = (signed char)value;
        negative >>= 1;
        large >>= 1;
    }
    mine->escaped = escaped;
    shared->escapes[t] = (u8)ones_of(escaped);
}

/// Stores the coefficients that have escapes.
INLINE void add_escapes(PackedShared* shared, const PackedRowEntry* row, u32 t, PackedBlock* mine) {
    if (!mine->escaped) return;
    const PackedUnit* unit = unit_of(shared, t);
    const BitSource bits = bits_from(row, unit->offset);
    // If less than a byte follows the remainders of all blocks, the unit holds no escapes, so the blocks before the
    // wanted ones have none.
    const u32 any = unit->end < unit->count || 8 * unit->length >= mine->at + 8;
    const u32 first = t - t % UNIT;
    u32 back = 0;
    ROLL for (u32 i = any ? 0 : unit->first; i < unit->end; i++) {
        back += first + i <= t ? shared->escapes[first + i] * mine->escape_bytes : 0;
    }
    i16* coefficients = shared->memory.coefficients[t];
    u64 nonzero = mine->nonzero, negative = mine->negative, large = mine->large, escaped = mine->escaped;
    ROLL for (; escaped; nonzero &= nonzero - 1) {
        if (large & 1) {
            if (escaped & 1) {
                u32 more = 0;
                if (back <= unit->length) {
                    const u32 start = unit->length - back;
                    more = byte_at(&bits, start) | (mine->escape_bytes == 2 ? byte_at(&bits, start + 1) << 8 : 0);
                }
                back -= mine->escape_bytes;
                const u32 magnitude = smaller(more + 2 + escape_of(mine->width), MOST_MAGNITUDE + 1);
                mine->damaged |= magnitude > MOST_MAGNITUDE;
                const i32 value = negative & 1 ? -(i32)magnitude : (i32)magnitude;
                coefficients[shared->tables.places[lowest_one_of(nonzero)]] = (i16)value;
            }
            escaped >>= 1;
        }
        negative >>= 1;
        large >>= 1;
    }
}

#endif
