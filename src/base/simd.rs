//! The SIMD level to use: detected at run time, the same for the whole program. `foreload doctor` and every benchmark
//! report it.

use std::sync::OnceLock;

/// A SIMD level for which a kernel may have an implementation. A higher level includes the lower ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Plain Rust without special instructions.
    Portable,
    /// AVX2, FMA, F16C, BMI1, BMI2, LZCNT, POPCNT (x86-64-v3).
    Avx2,
    /// AVX-512 F, BW, CD, DQ, VL, VBMI, VBMI2, VNNI (Ice Lake, Zen 4 and later) on top of [`Level::Avx2`].
    Avx512,
}

impl Level {
    /// The best level of this processor, unless `FORELOAD_SIMD` (`portable`, `avx2`, `avx512`) lowers it.
    pub fn detect() -> Self {
        static LEVEL: OnceLock<Level> = OnceLock::new();
        *LEVEL.get_or_init(|| {
            let best = Self::best();
            match std::env::var("FORELOAD_SIMD").as_deref() {
                Ok("portable") => Self::Portable,
                Ok("avx2") => best.min(Self::Avx2),
                _ => best,
            }
        })
    }

    /// The levels that this processor supports, from the lowest. Tests compare the results of all levels.
    pub fn available() -> impl Iterator<Item = Self> {
        [Self::Portable, Self::Avx2, Self::Avx512].into_iter().filter(|&level| level <= Self::best())
    }

    /// This level, or the best lower one that this processor supports.
    pub fn lowered(self) -> Self {
        self.min(Self::best())
    }

    /// The name in `FORELOAD_SIMD` and in the output of `foreload doctor`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Portable => "portable",
            Self::Avx2 => "avx2",
            Self::Avx512 => "avx512",
        }
    }

    #[cfg(target_arch = "x86_64")]
    fn best() -> Self {
        let v3 = is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("fma")
            && is_x86_feature_detected!("f16c")
            && is_x86_feature_detected!("bmi1")
            && is_x86_feature_detected!("bmi2")
            && is_x86_feature_detected!("lzcnt")
            && is_x86_feature_detected!("popcnt");
        let v4 = is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512cd")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512vl")
            && is_x86_feature_detected!("avx512vbmi")
            && is_x86_feature_detected!("avx512vbmi2")
            && is_x86_feature_detected!("avx512vnni");
        match (v3, v4) {
            (true, true) => Self::Avx512,
            (true, false) => Self::Avx2,
            _ => Self::Portable,
        }
    }

    #[cfg(not(target_arch = "x86_64"))]
    fn best() -> Self {
        Self::Portable
    }
}
