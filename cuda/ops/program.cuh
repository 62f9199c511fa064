//! The operations on the grey levels of one image, as data: a list of instructions. The Rust side, which makes the list
//! from the drawn operations of an image, is `src/pixels/augment/cuda/program.rs`.
//!
//! The levels are stored in *sets*: three planes, R, G and B, of the output's size. An instruction reads one set and
//! writes one set, perhaps the same. Set 0 holds the result of the augmentation pass.

#ifndef FORELOAD_PROGRAM
#define FORELOAD_PROGRAM

#include "finish.cuh"

/// The codes of instructions, and the words after the two words of an instruction's head. Floats are stored as their
/// bits.
enum {
    /// Replaces each level by its entry in a table of 256 bytes.
    OP_TABLE,
    /// Contrast: the factor, and 1 minus the factor.
    OP_CONTRAST,
    OP_AUTOCONTRAST,
    OP_EQUALIZE,
    /// Grey, as torchvision computes it.
    OP_GREY,
    /// Saturation: the factor, and 1 minus the factor.
    OP_SATURATION,
    /// Hue: the share of a full turn.
    OP_HUE,
    /// The channels that R, G and B are taken from, a byte each.
    OP_PERMUTE,
    /// A rectangle (row, column, rows, columns), and its levels of R, G and B, a byte each.
    OP_FILL,
    /// Normalises, casts and stores the image. Only the instructions below that work on the finished image follow it.
    OP_STORE,
    /// Sharpness: 1 minus the factor.
    OP_SHARPNESS,
    /// A blur: the sets that hold the upper and the lower bytes of the values between its passes, 16 bits each. Then
    /// the number of weights along x and y, counted from the middle weight; the weights along x; the weights along y.
    OP_BLUR,
    /// Moves pixels by integers: pixel (x, y) shows (a x + b y + c, d x + e y + f) of the words a to f.
    OP_MOVE,
    /// A warp: three floats for columns and three for rows, which give places in the image; the sampler; whether there
    /// is a fill, and its three floats.
    OP_WARP,
    /// A warp that moves each row along itself. Its words: the distance in pixels and the further distance per row from
    /// the image's centre, as floats; how many rows further down the source row is; whether there is a fill, and its
    /// three floats.
    OP_SHIFT,
    /// The weighted sum of sets: their number, then for each set its index and its weight.
    OP_MIX,
    /// Writes values over a rectangle (row, column, rows, columns) of the finished image: three floats.
    OP_ERASE,
    /// Writes normal numbers over a rectangle of the finished image: two words of a key, three means, three deviations.
    OP_NOISE,
};

/// Bounds in the order of the codes: codes below the first make a table of levels, and codes below the second handle
/// each pixel independently.
enum { FIRST_BESIDE_TABLES = OP_GREY, FIRST_BESIDE_POINTS = OP_SHARPNESS };

/// The location of an image's instructions: words first..end of the words of the launch.
typedef struct {
    u32 first, end;
    /// The number of sets that the instructions use.
    u32 sets;
} ProgramSpan;

/// The head of an instruction: a word with its code and its sets, and a word with its length in words.
INLINE u32 code_of(const u32* op) { return op[0] & 0xff; }
INLINE u32 from_of(const u32* op) { return op[0] >> 8 & 0xfff; }
INLINE u32 to_of(const u32* op) { return op[0] >> 20; }
INLINE u32 length_of(const u32* op) { return op[1]; }
INLINE const u32* words_of(const u32* op) { return op + 2; }

/// An image while its program runs.
typedef struct {
    const OutputParams* output;
    /// The first pixel of the image's set 0. Set n begins n * `set_bytes` bytes later.
    u8* levels;
    u64 set_bytes;
    /// The finished image.
    u8* finished;
} Canvas;

/// The number of pixels of an image. Its levels are fewer than 2^32.
INLINE u32 pixels_of(const Canvas* canvas) { return canvas->output->width * canvas->output->height; }
INLINE u8* set_of(const Canvas* canvas, u32 number) { return canvas->levels + number * canvas->set_bytes; }

/// The levels of up to four consecutive pixels in one word, the first one lowest. A word takes fewer registers than
/// four separate levels.
INLINE u32 load_levels(const u8* from, u32 count) {
    if (count == QUAD && ((u64)from & 3) == 0) return current_word(from);
    u32 levels = 0;
    UNROLL for (u32 i = 0; i < QUAD; i++) levels |= i < count ? (u32)from[i] << 8 * i : 0;
    return levels;
}

/// Stores the levels of up to four consecutive pixels.
INLINE void store_levels(u8* to, u32 count, u32 levels) {
    if (count == QUAD && ((u64)to & 3) == 0) {
        store_words(to, &levels, 1);
    } else {
        UNROLL for (u32 i = 0; i < QUAD; i++) {
            if (i < count) to[i] = (u8)(levels >> 8 * i);
        }
    }
}

/// Pixel number `i` of four.
INLINE u32 level_of(u32 levels, u32 i) { return levels >> 8 * i & 255; }

/// What the threads of a block share.
typedef struct {
    /// The new level of each level of R, G and B.
    u8 table[3][256];
    /// How often each level occurs.
    u32 histogram[3][256];
    u32 lowest[3], highest[3];
    /// The sum of the grey levels of all pixels.
    u64 sum;
} OpsShared;

SAME_SIZE(OpsShared, 3 * 256 * 5 + 32);
SAME_SIZE(ProgramSpan, 12);

INLINE OpsShared* ops_shared(const Block* block) { return (OpsShared*)block->memory; }

/// The most threads of a block.
#define MOST_OPS_THREADS 512

/// The loop of thread `t` over the pixels of an image, four at a time, from pixel `at` on.
#define EACH_QUAD(at, canvas, t)                                                                                      \
    ROLL for (u32 at = QUAD * (t); at < pixels_of(canvas); at += QUAD * block->threads)

/// The loop of thread `t` over single pixels, for instructions that read neighbours.
#define EACH_PIXEL(at, canvas, t) ROLL for (u32 at = (t); at < pixels_of(canvas); at += block->threads)

/// The number of pixels from `at` on, at most four.
INLINE u32 count_from(const Canvas* canvas, u32 at) { return smaller(QUAD, pixels_of(canvas) - at); }

#endif
