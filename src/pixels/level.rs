//! A macro for plain loops that are written once and compiled for every SIMD level.

/// Defines a function whose body is compiled once for each SIMD level. Its first argument, a
/// [`Level`](base::simd::Level), selects the build. Functions that the body calls in loops must be `#[inline(always)]`,
/// so that they are compiled for the level, too. All builds give the same bits: a compiler neither reorders nor fuses
/// floating-point arithmetic.
macro_rules! vectorised {
    (
        $(#[$attribute:meta])*
        $visibility:vis fn $name:ident($($argument:ident: $type:ty),* $(,)?) $(-> $result:ty)? $body:block
    ) => {
        $(#[$attribute])*
        $visibility fn $name(level: base::simd::Level, $($argument: $type),*) $(-> $result)? {
            #[inline(always)]
            fn portable($($argument: $type),*) $(-> $result)? $body

            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma,f16c,bmi1,bmi2,lzcnt,popcnt")]
            fn avx2($($argument: $type),*) $(-> $result)? {
                portable($($argument),*)
            }

            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma,f16c,bmi1,bmi2,lzcnt,popcnt,\
                                       avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx512vbmi,avx512vbmi2,avx512vnni")]
            fn avx512($($argument: $type),*) $(-> $result)? {
                portable($($argument),*)
            }

            match level {
                // SAFETY: `Augmenter::new`, `PixelPass::new`, `erase` and `NumberConversion::new` lower the level to
                // one that this processor supports.
                #[cfg(target_arch = "x86_64")]
                base::simd::Level::Avx512 => unsafe { avx512($($argument),*) },
                // SAFETY: the level was lowered to a level that this processor supports, as above.
                #[cfg(target_arch = "x86_64")]
                base::simd::Level::Avx2 => unsafe { avx2($($argument),*) },
                _ => portable($($argument),*),
            }
        }
    };
}
pub(crate) use vectorised;
