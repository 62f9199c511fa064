//! Checks whether images were decoded at all. A decoder may report success although it has not written the planes. The
//! old contents of the memory, perhaps an older image, would then go into the batch. So the memory is first filled with
//! a poison word, and after decoding some lines of each plane are examined. A line on which all points are still poison
//! was most likely never written. If an image really has such pixels, it is only decoded again with another poison.

#ifndef FORELOAD_UNTOUCHED
#define FORELOAD_UNTOUCHED

#include "block.cuh"

/// The number of examined lines per plane, and of points per line. The lines are rows from the first to the last, then
/// the last column.
#define LINES 8
#define POINTS 32

/// The shared memory of a block.
typedef struct {
    u32 touched[3][LINES];
} Seen;

/// Whether a point differs from the poison. Its byte of the poison word depends on the address modulo four.
INLINE u32 is_touched(const PlaneParams* plane, u32 poison, u32 line, u32 point) {
    const u32 right = plane->width - 1, bottom = plane->height - 1, is_row = line < LINES - 1;
    const u32 x = is_row ? right * point / (POINTS - 1) : right;
    const u32 y = is_row ? bottom * line / (LINES - 2) : bottom * point / (POINTS - 1);
    const u64 at = plane->data + (u64)y * plane->stride + x;
    return load_byte((const u8*)at) != (poison >> 8 * (u32)(at & 3) & 255);
}

/// Counts the untouched lines of an image, with a block of LINES * POINTS threads.
INLINE void count_untouched(const Block* block, u32 poison, u32* count) {
    Seen* seen = (Seen*)block->memory;
    const ImageParams* image = block->image;
    const u32 planes = image->blank ? 0 : image->color == COLOR_GRAY ? 1 : 3;
    EACH_THREAD(t) {
        if (t < 3 * LINES) seen->touched[t / LINES][t % LINES] = 0;
    }
    SYNC();
    EACH_THREAD(t) {
        const u32 line = t / POINTS;
        ROLL for (u32 c = 0; c < planes; c++) {
            // All threads that write store the same value.
            if (is_touched(&image->planes[c], poison, line, t % POINTS)) seen->touched[c][line] = 1;
        }
    }
    SYNC();
    EACH_THREAD(t) {
        if (t == 0) {
            u32 untouched = 0;
            ROLL for (u32 i = 0; i < planes * LINES; i++) untouched += !seen->touched[i / LINES][i % LINES];
            *count = untouched;
        }
    }
}

#endif
