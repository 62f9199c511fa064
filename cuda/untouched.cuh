//! Whether images were decoded at all. A decoder may report that it has decoded an image and not have written its
//! planes: what lay there before, perhaps an older image, would go into the batch. So the memory is filled with a word
//! of poison first, and afterwards some lines of each plane are examined: a line on which all points are still poison
//! was most likely never written. If an image really looks like that, it is decoded once more with another poison, and
//! nothing else happens.

#ifndef FORELOAD_UNTOUCHED
#define FORELOAD_UNTOUCHED

#include "block.cuh"

/// The number of lines of a plane that are examined, and of points on each: rows from the first to the last, then the
/// last column.
#define LINES 8
#define POINTS 32

/// What the threads of a block share.
typedef struct {
    u32 touched[3][LINES];
} Seen;

/// Whether a point holds something else than poison. Which byte of the poison belongs there depends on the address
/// modulo four.
INLINE u32 is_touched(const PlaneParams* plane, u32 poison, u32 line, u32 point) {
    const u32 right = plane->width - 1, bottom = plane->height - 1, is_row = line < LINES - 1;
    const u32 x = is_row ? right * point / (POINTS - 1) : right;
    const u32 y = is_row ? bottom * line / (LINES - 2) : bottom * point / (POINTS - 1);
    const u64 at = plane->data + (u64)y * plane->stride + x;
    return load_byte((const u8*)at) != (poison >> 8 * (u32)(at & 3) & 255);
}

/// Counts the lines of an image that nobody has touched, by a block of LINES * POINTS threads.
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
            // All threads that write, write the same value.
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
