//! Decodes rows of MCUs of an indexed image: their wanted blocks become samples of the image's planes. The storage
//! format is specified in `docs/indexed-image.md`, and the samples are those of
//! `src/pixels/decode/jpeg/indexed/region.rs`.
//!
//! Within a row, codes can only be read one after another, so latency dominates: a table lookup, the shift that depends
//! on it, the next lookup. A launch has some thousand rows, whose latencies overlap.
//!
//! The host has only read the headers of the image and checked that the rows are within the file. So whatever a row
//! says, a thread must not access memory outside of the row, the planes or the shared memory, and each turn of a loop
//! must consume a byte or decode a block. An invalid row is counted, and its samples are undefined: the CPU decodes the
//! image again and reports the error.

#ifndef FORELOAD_INDEXED_DECODE
#define FORELOAD_INDEXED_DECODE

#include "indexed/codes.cuh"

/// The progress of the first thread of a row.
typedef struct {
    RowBits bits;
    /// The column of MCUs, and the index of the next block in that MCU.
    u32 column, number;
    /// Whether the row is invalid.
    u32 damaged;
} RowReader;

/// The columns of blocks of a component in an MCU.
INLINE u32 columns_of(const IndexedImageEntry* image, u32 component) {
    return image->image.components[component].columns / image->mcus[0];
}

/// Lists the blocks of an MCU in their order.
INLINE void list_blocks(IndexedShared* shared, const IndexedImageEntry* image) {
    u32 number = 0;
    ROLL for (u32 c = 0; c < image->image.count; c++) {
        const u32 columns = columns_of(image, c), blocks = columns * image->image.components[c].rows;
        ROLL for (u32 i = 0; i < blocks && number < MCU_BLOCKS; i++, number++) {
            shared->mcu[number].component = (u8)c;
            shared->mcu[number].column = (u8)(i % columns);
            shared->mcu[number].row = (u8)(i / columns);
        }
    }
    shared->mcu_blocks = number;
}

/// Moves to the place where reading a row begins: its first bit, or the last restart marker before the wanted MCUs.
INLINE void begin_row(IndexedShared* shared, const IndexedImageEntry* image, const IndexedRowEntry* row, u32 r,
                      RowReader* mine) {
    const RowReader begun = {{0, 0, 0, 0}, 0, 0, 0};
    *mine = begun;
    ROLL for (u32 c = 0; c < 3; c++) shared->dc[r][c] = row->dc[c];
    refill(row, &mine->bits);
    take_bits(&mine->bits, row->skip);
    if (image->interval == 0) return;
    const u32 before = row->number * image->mcus[0];
    const u32 wanted = (before + image->wanted[0]) / image->interval;
    ROLL for (u32 interval = before / image->interval; interval < wanted && !mine->damaged; interval++) {
        mine->damaged = !begin_interval(row, &mine->bits, interval + 1);
        mine->column = (interval + 1) * image->interval - before;
        ROLL for (u32 c = 0; c < 3; c++) shared->dc[r][c] = 0;
    }
}

/// Advances to the next MCU, past a restart marker if one follows.
INLINE void end_mcu(IndexedShared* shared, const IndexedImageEntry* image, const IndexedRowEntry* row, u32 r,
                    RowReader* mine) {
    mine->number = 0;
    mine->column++;
    mine->damaged |= mine->bits.count < 0;
    const u32 mcu = row->number * image->mcus[0] + mine->column;
    if (mine->damaged || image->interval == 0 || mcu % image->interval) return;
    // After the last restart interval libjpeg accepts any data.
    if (mcu < image->mcus[1] * image->mcus[0]) mine->damaged = !only_padding(row, &mine->bits);
    if (mine->column < image->wanted[1] && !mine->damaged) {
        mine->damaged = !begin_interval(row, &mine->bits, mcu / image->interval);
        ROLL for (u32 c = 0; c < 3; c++) shared->dc[r][c] = 0;
    }
}

/// Reads the codes of row `r` until each thread of the row has a wanted block, or until the last wanted MCU is read.
INLINE void read_blocks(IndexedShared* shared, const IndexedImageEntry* image, const HuffmanCode* codes,
                        const IndexedRowEntry* row, u32 r, RowReader* mine) {
    u32 found = 0;
    ROLL while (mine->column < image->wanted[1] && !mine->damaged) {
        const McuBlock* block = &shared->mcu[mine->number];
        const u32 c = block->component;
        const ComponentEntry* component = &image->image.components[c];
        const u32 x = mine->column * columns_of(image, c) + block->column;
        const u32 y = row->number * component->rows + block->row;
        const u32 wanted = x >= component->wanted[0][0] && x < component->wanted[0][1] &&
                           y >= component->wanted[1][0] && y < component->wanted[1][1];
        i16* to = 0;
        if (wanted) {
            if (found == ROW_THREADS) break;
            const u32 t = r * ROW_THREADS + found++;
            shared->places[t].column = (u16)x;
            shared->places[t].row = (u16)y;
            shared->places[t].component = c;
            to = shared->coefficients[t];
        }
        mine->damaged = !read_coefficients(shared, image, codes, row, c, &mine->bits, &shared->dc[r][c], to);
        if (++mine->number == shared->mcu_blocks) end_mcu(shared, image, row, r, mine);
    }
    shared->found[r] = found;
}

/// The most wanted blocks of a row.
INLINE u32 most_blocks(const IndexedImageEntry* image) {
    u32 blocks = 0;
    ROLL for (u32 c = 0; c < image->image.count; c++) {
        const ComponentEntry* component = &image->image.components[c];
        blocks += (component->wanted[0][1] - component->wanted[0][0]) * component->rows;
    }
    return blocks;
}

/// Decodes the wanted blocks of a group of rows, with a block of `GROUP_THREADS` threads. Adds 1 to the image's damage
/// counter if one of the rows is damaged.
INLINE void decode_group(const Block* block, const IndexedImageEntry* images, const HuffmanCode* codes,
                         const IndexedRowEntry* rows, const RowGroupEntry* group, u32* damage) {
    IndexedShared* shared = (IndexedShared*)block->memory;
    const IndexedImageEntry* image = images + group->image;
    RowReader readers[OF_THREADS];
    EACH_THREAD(t) {
        share_tables(&shared->tables, &image->image, t);
        clear(shared->coefficients[t]);
        ROLL for (u32 c = 0; c < image->image.count; c++) {
            fill_lookup(codes + image->codes[c][0], DC_LOOKUP, shared->dc_codes[c], t);
            fill_lookup(codes + image->codes[c][1], AC_LOOKUP, shared->ac_codes[c], t);
        }
        if (t == 0) {
            list_blocks(shared, image);
            shared->damaged = 0;
        }
        const u32 r = t / ROW_THREADS;
        if (t % ROW_THREADS == 0) {
            shared->found[r] = 0;
            if (r < group->count) begin_row(shared, image, rows + group->first + r, r, &readers[MINE(t)]);
        }
    }
    SYNC();
    const u32 turns = (most_blocks(image) + ROW_THREADS - 1) / ROW_THREADS;
    ROLL for (u32 turn = 0; turn < turns; turn++) {
        EACH_THREAD(t) {
            const u32 r = t / ROW_THREADS;
            if (t % ROW_THREADS == 0 && r < group->count) {
                RowReader* mine = &readers[MINE(t)];
                read_blocks(shared, image, codes, rows + group->first + r, r, mine);
                // All threads that write store the same value.
                if (mine->damaged) shared->damaged = 1;
            }
        }
        SYNC();
        EACH_THREAD(t) {
            if (t % ROW_THREADS < shared->found[t / ROW_THREADS]) {
                const BlockPlace place = shared->places[t];
                const ComponentEntry* component = &image->image.components[place.component];
                const u16* steps = shared->tables.steps[place.component];
                i16* mine = shared->coefficients[t];
                if (!write_samples(component, steps, mine, place.column, place.row)) shared->damaged = 1;
                clear(mine);
            }
        }
        SYNC();
    }
    EACH_THREAD(t) {
        if (t == 0 && shared->damaged) add_count(damage + image->image.damage, 1);
    }
}

#endif
