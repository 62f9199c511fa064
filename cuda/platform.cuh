//! The differences between the GPU and the CPU, so that the rest of the pass is one source for both.
//!
//! It is compiled by NVRTC (C++, no headers) and by any C11 compiler with `-ffp-contract=off`. The code of a block of
//! threads is written as phases: `EACH_THREAD(t) { … }` is the work of one thread, and `SYNC()` separates phases of
//! which one reads data that another thread wrote. On the GPU, thread t alone runs the phase; on the CPU it is a loop
//! over all threads of the block, in an order that tests choose. Code outside of `EACH_THREAD` does the same in all
//! threads of a block.

#ifndef FORELOAD_PLATFORM
#define FORELOAD_PLATFORM

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef short i16;
typedef int i32;
typedef long long i64;
typedef float f32;
typedef double f64;

/// The most threads of a block.
#define MOST_THREADS 256

#ifdef __CUDACC_RTC__

#define INLINE static __device__ __forceinline__
/// The offset of a field. NVRTC has no other constant expression for it.
#define OFFSET_OF(type, field) __INTADDR__(&((type*)0)->field)
#define ASSERT(condition) static_assert(condition, #condition)
#define EACH_THREAD(t) for (u32 t = threadIdx.x, t##_once = 1; t##_once; t##_once = 0)
#define SYNC() __syncthreads()
/// Storage that a thread keeps from phase to phase.
#define OF_THREADS 1
#define MINE(t) 0
/// A table from which the threads of a warp mostly read the same entry.
#define CONSTANTS static __constant__ const
/// Loops over arrays that should become registers are unrolled; loops whose copies would not pay are not.
#define UNROLL _Pragma("unroll")
#define ROLL _Pragma("unroll 1")

/// The aligned word at `at`, in memory that no thread writes during the launch.
INLINE u32 load_word(const u8* at) { return __ldg((const u32*)at); }
INLINE u32 load_byte(const u8* at) { return __ldg(at); }

/// The four bytes that begin at byte `skew / 8` of two consecutive words; `skew` < 32.
INLINE u32 join_words(u32 low, u32 high, u32 skew) { return __funnelshift_r(low, high, skew); }

/// The bytes of a word in reverse order.
INLINE u32 reversed_bytes(u32 word) { return __byte_perm(word, 0, 0x0123); }

/// `sum` plus two 16-bit weights times two bytes: the lower ones of `samples`, or the upper ones.
INLINE i32 dot_low(u32 weights, u32 samples, i32 sum) {
    i32 to;
    asm("dp2a.lo.s32.u32 %0, %1, %2, %3;" : "=r"(to) : "r"(weights), "r"(samples), "r"(sum));
    return to;
}
INLINE i32 dot_high(u32 weights, u32 samples, i32 sum) {
    i32 to;
    asm("dp2a.hi.s32.u32 %0, %1, %2, %3;" : "=r"(to) : "r"(weights), "r"(samples), "r"(sum));
    return to;
}

/// The number of one bits, and the index of the lowest one bit, which must exist.
INLINE u32 ones_of(u64 bits) { return (u32)__popcll((i64)bits); }
INLINE u32 lowest_one_of(u64 bits) { return (u32)__ffsll((i64)bits) - 1; }

INLINE void lower(u32* value, u32 to) { atomicMin(value, to); }
INLINE void raise(u32* value, u32 to) { atomicMax(value, to); }
INLINE void add_count(u32* sum, u32 value) { atomicAdd(sum, value); }
INLINE void add_sum(u64* sum, u64 value) { atomicAdd(sum, value); }

/// The aligned word at `at`, in memory that threads of the block write in other phases.
INLINE u32 current_word(const u8* at) { return *(const u32*)at; }

/// The largest integer that is not above `value`.
INLINE i32 floor_of(f64 value) { return __double2int_rd(value); }

/// a * b + c, rounded once. No other operation is fused.
INLINE f32 fused(f32 a, f32 b, f32 c) { return __fmaf_rn(a, b, c); }
INLINE f32 root_of(f32 value) { return __fsqrt_rn(value); }

INLINE u32 bits_of(f32 value) { return __float_as_uint(value); }
INLINE f32 float_of(u32 bits) { return __uint_as_float(bits); }

/// Rounds to the nearest float16, ties to even. Values beyond the largest float16 become infinity.
INLINE u32 half_bits(f32 value) {
    u16 to;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(to) : "f"(value));
    return to;
}

/// Rounds to the nearest bfloat16, ties to even.
INLINE u32 brain_bits(f32 value) {
    u16 to;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(to) : "f"(value));
    return to;
}

struct __align__(8) Two {
    u32 word[2];
};
struct __align__(16) Four {
    u32 word[4];
};

INLINE void load_two(const u16* from, u32 to[2]) {
    const Two two = *(const Two*)from;
    to[0] = two.word[0];
    to[1] = two.word[1];
}

/// Loads 4 words; `from` is aligned to all of them.
INLINE void load_four(const u8* from, u32 to[4]) {
    const Four four = *(const Four*)from;
    to[0] = four.word[0];
    to[1] = four.word[1];
    to[2] = four.word[2];
    to[3] = four.word[3];
}

/// Stores 1, 2 or 4 words; `to` is aligned to all of them.
INLINE void store_words(u8* to, const u32* words, u32 count) {
    if (count == 4) {
        *(Four*)to = Four{{words[0], words[1], words[2], words[3]}};
    } else if (count == 2) {
        *(Two*)to = Two{{words[0], words[1]}};
    } else {
        *(u32*)to = words[0];
    }
}

/// Loads 2 or 4 bytes, which another thread may write before or after; `from` is aligned to them.
INLINE u32 load_bits(const u8* from, u32 size) { return size == 4 ? *(const u32*)from : *(const u16*)from; }

/// Stores the lowest 1, 2 or 4 bytes; `to` is aligned to them.
INLINE void store_bits(u8* to, u32 bits, u32 size) {
    if (size == 4) {
        *(u32*)to = bits;
    } else if (size == 2) {
        *(u16*)to = (u16)bits;
    } else {
        *to = (u8)bits;
    }
}

#else

#include <string.h>

#define INLINE static inline
#define OFFSET_OF(type, field) __builtin_offsetof(type, field)
#define ASSERT(condition) _Static_assert(condition, #condition)
#define EACH_THREAD(t) for (u32 t##_i = 0, t; t##_i < block->threads && (t = thread_at(block, t##_i), 1); t##_i++)
#define SYNC()
#define OF_THREADS MOST_THREADS
#define MINE(t) (t)
#define CONSTANTS static const
#define UNROLL
#define ROLL

INLINE u32 load_word(const u8* at) {
    u32 word;
    memcpy(&word, at, sizeof word);
    return word;
}
INLINE u32 load_byte(const u8* at) { return *at; }

INLINE u32 join_words(u32 low, u32 high, u32 skew) {
    return (u32)((((u64)high << 32) | low) >> skew);
}
INLINE u32 reversed_bytes(u32 word) { return __builtin_bswap32(word); }

INLINE i32 dot_low(u32 weights, u32 samples, i32 sum) {
    return sum + (i16)weights * (i32)(samples & 255) + (i16)(weights >> 16) * (i32)(samples >> 8 & 255);
}
INLINE i32 dot_high(u32 weights, u32 samples, i32 sum) { return dot_low(weights, samples >> 16, sum); }

INLINE u32 ones_of(u64 bits) { return (u32)__builtin_popcountll(bits); }
INLINE u32 lowest_one_of(u64 bits) { return (u32)__builtin_ctzll(bits); }

INLINE void lower(u32* value, u32 to) {
    if (to < *value) *value = to;
}
INLINE void raise(u32* value, u32 to) {
    if (to > *value) *value = to;
}
INLINE void add_count(u32* sum, u32 value) { *sum += value; }
INLINE void add_sum(u64* sum, u64 value) { *sum += value; }

INLINE u32 current_word(const u8* at) { return load_word(at); }

INLINE i32 floor_of(f64 value) {
    const i32 truncated = (i32)value;
    return truncated - ((f64)truncated > value);
}

INLINE f32 fused(f32 a, f32 b, f32 c) { return __builtin_fmaf(a, b, c); }
INLINE f32 root_of(f32 value) { return __builtin_sqrtf(value); }

INLINE u32 bits_of(f32 value) {
    u32 bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

INLINE f32 float_of(u32 bits) {
    f32 value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

INLINE u32 half_bits(f32 value) {
    const u32 bits = bits_of(value), sign = bits >> 16 & 0x8000, rest = bits & 0x7fffffff;
    if (rest > 0x7f800000) return sign | 0x7e00;
    // The smallest number that rounds up to 2^16, which a float16 cannot hold.
    if (rest >= 0x477ff000) return sign | 0x7c00;
    if (rest < 0x38800000) {
        // Subnormal float16 values are multiples of 2^-24. Half a unit or less is zero.
        if (rest <= 0x33000000) return sign;
        const u32 shift = 126 - (rest >> 23), digits = (rest & 0x7fffff) | 0x800000;
        const u32 even = digits >> shift & 1;
        return sign | ((digits + (1u << (shift - 1)) - 1 + even) >> shift);
    }
    return sign | ((rest - 0x38000000 + 0xfff + (rest >> 13 & 1)) >> 13);
}

INLINE u32 brain_bits(f32 value) {
    const u32 bits = bits_of(value);
    if ((bits & 0x7fffffff) > 0x7f800000) return bits >> 16 | 0x40;
    return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}

INLINE void load_two(const u16* from, u32 to[2]) { memcpy(to, from, 8); }
INLINE void load_four(const u8* from, u32 to[4]) { memcpy(to, from, 16); }
INLINE void store_words(u8* to, const u32* words, u32 count) { memcpy(to, words, 4 * count); }
INLINE u32 load_bits(const u8* from, u32 size) {
    u32 bits = 0;
    memcpy(&bits, from, size);
    return bits;
}
INLINE void store_bits(u8* to, u32 bits, u32 size) { memcpy(to, &bits, size); }

#endif

INLINE i32 clamped(i32 value, i32 most) { return value < 0 ? 0 : value > most ? most : value; }
INLINE u32 smaller(u32 a, u32 b) { return a < b ? a : b; }
INLINE u32 larger(u32 a, u32 b) { return a > b ? a : b; }

#endif
