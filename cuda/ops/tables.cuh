//! Tables of levels, most of which need statistics of the whole image first: `table.rs` and `statistics.rs` of
//! `src/pixels/augment/ops/`.

#ifndef FORELOAD_TABLES
#define FORELOAD_TABLES

#include "ops/points.cuh"

/// Thread `t` adds its share of the set `from` to the shared statistics that the instruction needs.
INLINE void count_levels(const Block* block, const Canvas* canvas, const u32* op, u32 t) {
    OpsShared* all = ops_shared(block);
    const u32 pixels = pixels_of(canvas), code = code_of(op);
    const u8* from = set_of(canvas, from_of(op));
    u32 lowest[3] = {255, 255, 255}, highest[3] = {0, 0, 0};
    u64 sum = 0;
    EACH_QUAD(at, canvas, t) {
        const u32 count = count_from(canvas, at);
        u32 levels[3];
        UNROLL for (u32 c = 0; c < 3; c++) levels[c] = load_levels(from + c * pixels + at, count);
        ROLL for (u32 i = 0; i < count; i++) {
            u32 pixel[3];
            UNROLL for (u32 c = 0; c < 3; c++) pixel[c] = level_of(levels[c], i);
            if (code == OP_CONTRAST) {
                sum += luma(pixel[0], pixel[1], pixel[2]);
            } else if (code == OP_AUTOCONTRAST) {
                UNROLL for (u32 c = 0; c < 3; c++) {
                    lowest[c] = smaller(lowest[c], pixel[c]);
                    highest[c] = larger(highest[c], pixel[c]);
                }
            } else {
                UNROLL for (u32 c = 0; c < 3; c++) add_count(&all->histogram[c][pixel[c]], 1);
            }
        }
    }
    if (code == OP_CONTRAST) add_sum(&all->sum, sum);
    if (code == OP_AUTOCONTRAST) {
        UNROLL for (u32 c = 0; c < 3; c++) {
            lower(&all->lowest[c], lowest[c]);
            raise(&all->highest[c], highest[c]);
        }
    }
}

/// The result of contrast for a level: the level times the factor, plus the mean grey times (1 - factor).
INLINE u32 contrasted(const Canvas* canvas, const OpsShared* all, const u32* words, u32 level) {
    const f32 mean = (f32)all->sum / (f32)pixels_of(canvas);
    return truncated(fused(mean, float_of(words[1]), (f32)level * float_of(words[0])));
}

/// The result of automatic contrast for a level of a channel.
INLINE u32 stretched(u32 lowest, u32 highest, u32 level) {
    const f32 scale = (f32)(highest - lowest) * LEVEL_UNIT;
    return highest == lowest ? level : truncated(((f32)level - (f32)lowest) / scale);
}

/// Fills the table of a channel such that its histogram becomes uniform. One thread does it, because each level depends
/// on the levels below it.
INLINE void even_out(const Canvas* canvas, OpsShared* all, u32 c) {
    u32 of_greatest = 0;
    ROLL for (u32 level = 0; level < 256; level++) {
        of_greatest = all->histogram[c][level] ? all->histogram[c][level] : of_greatest;
    }
    const u32 step = (pixels_of(canvas) - of_greatest) / 255;
    u32 below = 0;
    ROLL for (u32 level = 0; level < 256; level++) {
        all->table[c][level] = (u8)(step == 0 ? level : smaller((below + step / 2) / step, 255));
        below += all->histogram[c][level];
    }
}

/// Fills the table of levels as the instruction says.
INLINE void make_table(const Block* block, const Canvas* canvas, const u32* op) {
    OpsShared* all = ops_shared(block);
    const u32 code = code_of(op);
    const u32* words = words_of(op);
    if (code != OP_TABLE) {
        EACH_THREAD(t) {
            ROLL for (u32 i = t; i < 3 * 256; i += block->threads) all->histogram[i / 256][i % 256] = 0;
            if (t < 3) {
                all->lowest[t] = 255;
                all->highest[t] = 0;
            }
            if (t == 0) all->sum = 0;
        }
        SYNC();
        EACH_THREAD(t) count_levels(block, canvas, op, t);
        SYNC();
    }
    EACH_THREAD(t) {
        if (code == OP_EQUALIZE) {
            if (t < 3) even_out(canvas, all, t);
        } else {
            // The table in a launch's words is one for all channels, or one for each.
            const u32 channel_words = length_of(op) > 2 + 64 ? 64 : 0;
            ROLL for (u32 i = t; i < 3 * 256; i += block->threads) {
                const u32 c = i / 256, level = i % 256;
                u32 to;
                if (code == OP_CONTRAST) {
                    to = contrasted(canvas, all, words, level);
                } else if (code == OP_AUTOCONTRAST) {
                    to = stretched(all->lowest[c], all->highest[c], level);
                } else {
                    to = words[c * channel_words + level / 4] >> 8 * (level % 4) & 255;
                }
                all->table[c][level] = (u8)to;
            }
        }
    }
    SYNC();
}

#endif
