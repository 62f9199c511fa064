//! Decodes a row of MCUs of a packed image: its wanted blocks become samples of the image's planes. The storage format
//! is specified in `docs/packed-image.md`, and the samples are those of `src/pixels/decode/jpeg/packed/region.rs`.
//!
//! The host has only checked the head of the image, which ensures that the row can hold the lengths of its units. So
//! whatever a row says, a thread must not access memory outside of the row, the planes or the shared memory. An invalid
//! row is counted, and its samples are undefined: the CPU decodes the image again and reports the error.

#ifndef FORELOAD_PACKED_DECODE
#define FORELOAD_PACKED_DECODE

#include "packed/checksum.cuh"
#include "packed/unit.cuh"

/// The number of units in a row of blocks of a component.
INLINE u32 units_of(const ComponentEntry* component) { return (component->columns + UNIT - 1) / UNIT; }

/// The number of bytes of unit `number` of the row.
INLINE u32 unit_length(const PackedRowEntry* row, u32 number) {
    const u8* at = (const u8*)(row->bytes + 2 * (u64)number);
    return load_byte(at) | load_byte(at + 1) << 8;
}

/// The number of units in a row of MCUs, and the number of those that have wanted blocks.
INLINE void count_units(const ImageEntry* image, u32 number, u32* all, u32* wanted) {
    *all = *wanted = 0;
    ROLL for (u32 c = 0; c < image->count; c++) {
        const ComponentEntry* component = &image->components[c];
        u32 from, to;
        wanted_rows(component, number, &from, &to);
        *all += component->rows * units_of(component);
        *wanted += (to - from) * ((component->wanted[0][1] + UNIT - 1) / UNIT - component->wanted[0][0] / UNIT);
    }
}

/// Computes prefix sums of the lengths of the row's units. Each thread has `stretch` units; the sum of its units and of
/// all units before them goes to `sums[LEVELS % 2]`.
INLINE void add_lengths(const Block* block, const PackedRowEntry* row, u32 units, u32 stretch) {
    PackedShared* shared = (PackedShared*)block->memory;
    EACH_THREAD(t) {
        u32 sum = 0;
        ROLL for (u32 i = t * stretch; i < smaller(units, (t + 1) * stretch); i++) sum += unit_length(row, i);
        shared->sums[0][t] = sum;
    }
    SYNC();
    ROLL for (u32 level = 0; level < LEVELS; level++) {
        const u32 before = 1u << level;
        EACH_THREAD(t) {
            const u32* from = shared->sums[level % 2];
            shared->sums[(level + 1) % 2][t] = from[t] + (t >= before ? from[t - before] : 0);
        }
        SYNC();
    }
}

/// Finds wanted unit `number`: its component and place follow from the image, and its offset is the sum of the lengths
/// of the units before it.
INLINE void find_unit(const PackedShared* shared, const ImageEntry* image, const PackedRowEntry* row, u32 number,
                      u32 units, u32 stretch, PackedUnit* unit) {
    u32 before = 0;
    ROLL for (u32 c = 0; c < image->count; c++) {
        const ComponentEntry* component = &image->components[c];
        const u32* columns = component->wanted[0];
        const u32 left = columns[0] / UNIT, across = (columns[1] + UNIT - 1) / UNIT - left;
        u32 from, to;
        wanted_rows(component, row->number, &from, &to);
        if (number < (to - from) * across) {
            const u32 y = number / across, x = left + number % across;
            const u32 place = before + (from - row->number * component->rows + y) * units_of(component) + x;
            const u32 all = place / stretch;
            unit->component = c;
            unit->x = x * UNIT;
            unit->y = from + y;
            unit->count = smaller(UNIT, component->columns - unit->x);
            unit->first = columns[0] > unit->x ? columns[0] - unit->x : 0;
            unit->end = smaller(unit->count, columns[1] - unit->x);
            unit->length = unit_length(row, place);
            unit->offset = 2 * units + (all ? shared->sums[LEVELS % 2][all - 1] : 0);
            ROLL for (u32 i = all * stretch; i < place; i++) unit->offset += unit_length(row, i);
            return;
        }
        number -= (to - from) * across;
        before += component->rows * units_of(component);
    }
}

/// Transforms the thread's block and writes its samples.
INLINE void write_block(PackedShared* shared, const ImageEntry* image, u32 t, PackedBlock* mine) {
    const PackedUnit* unit = unit_of(shared, t);
    const u16* steps = shared->tables.steps[unit->component];
    i16* coefficients = shared->memory.coefficients[t];
    coefficients[0] = (i16)mine->dc;
    const ComponentEntry* component = &image->components[unit->component];
    mine->damaged |= !write_samples(component, steps, coefficients, unit->x + t % UNIT, unit->y);
}

/// Decodes the units in `shared->units`.
INLINE void decode_units(const Block* block, const ImageEntry* image, const PackedRowEntry* row) {
    PackedShared* shared = (PackedShared*)block->memory;
    PackedBlock blocks[OF_THREADS];
    EACH_THREAD(t) {
        if (t % UNIT < unit_of(shared, t)->count) read_block(shared, row, t, &blocks[MINE(t)]);
    }
    SYNC();
    EACH_THREAD(t) {
        if (t % UNIT < unit_of(shared, t)->count) read_mask(shared, row, t, &blocks[MINE(t)]);
    }
    SYNC();
    EACH_THREAD(t) {
        if (t % UNIT < unit_of(shared, t)->count) read_signs(shared, row, t, &blocks[MINE(t)]);
    }
    SYNC();
    EACH_THREAD(t) {
        if (t % UNIT < unit_of(shared, t)->end) expand(shared, row, t, &blocks[MINE(t)]);
    }
    SYNC();
    EACH_THREAD(t) {
        PackedBlock* mine = &blocks[MINE(t)];
        if (t % UNIT >= unit_of(shared, t)->first && t % UNIT < unit_of(shared, t)->end) {
            add_escapes(shared, row, t, mine);
            write_block(shared, image, t, mine);
            // All threads that write store the same value.
            if (mine->damaged) shared->damaged = 1;
        }
    }
    SYNC();
}

/// Decodes the wanted blocks of a row of MCUs, with a block of `BLOCKS` threads. Adds 1 to the image's damage counter
/// if the row is damaged.
INLINE void decode_row(const Block* block, const ImageEntry* images, const PackedRowEntry* row, u32* damage) {
    PackedShared* shared = (PackedShared*)block->memory;
    const ImageEntry* image = images + row->image;
    u32 units, wanted;
    count_units(image, row->number, &units, &wanted);
    EACH_THREAD(t) {
        share_tables(&shared->tables, image, t);
        if (t == 0) shared->damaged = 0;
    }
    u32 damaged = checksum_of(block, row) != row->checksum;
    const u32 stretch = (units + BLOCKS - 1) / BLOCKS;
    add_lengths(block, row, units, stretch);
    damaged |= shared->sums[LEVELS % 2][BLOCKS - 1] > row->length - 2 * units;
    ROLL for (u32 first = 0; first < wanted; first += UNITS) {
        EACH_THREAD(t) {
            if (t < UNITS) {
                PackedUnit* unit = &shared->units[t];
                unit->count = unit->first = unit->end = 0;
                if (first + t < wanted) find_unit(shared, image, row, first + t, units, stretch, unit);
            }
        }
        SYNC();
        decode_units(block, image, row);
    }
    EACH_THREAD(t) {
        if (t == 0 && (damaged || shared->damaged)) add_count(damage + image->damage, 1);
    }
}

#endif
