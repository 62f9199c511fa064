//! Operations that handle each level independently: a table of 256 levels for each channel. Consecutive tables are
//! merged into one.

use super::PixelOp;
use super::arithmetic::{fma, truncate};
use super::lookup;
use super::statistics::LevelCounts;
use base::simd::Level;

/// The new level for each of the 256 levels of R, G and B.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::augment) struct LevelTables(pub(in crate::augment) [[u8; 256]; 3]);

impl LevelTables {
    /// Returns the tables of an operation if each new level depends on the old level alone; `None` for all other
    /// operations.
    pub(in crate::augment) fn of(op: &PixelOp) -> Option<Self> {
        Some(match *op {
            PixelOp::AdjustBrightness { brightness_factor } => {
                let factor = brightness_factor as f32;
                Self::each(|level| truncate(f32::from(level) * factor))
            }
            PixelOp::Invert => Self::each(|level| 255 - level),
            PixelOp::Posterize { bits } => {
                let dropped = 8 - bits.min(8);
                Self::each(|level| (u32::from(level) >> dropped << dropped) as u8)
            }
            PixelOp::Solarize { threshold } => {
                let threshold = threshold as f32;
                Self::each(|level| if f32::from(level) >= threshold { 255 - level } else { level })
            }
            PixelOp::SolarizeAdd { addition, threshold } => Self::each(|level| {
                let added = i32::from(level).saturating_add(addition).clamp(0, 255) as u8;
                if i32::from(level) < threshold { added } else { level }
            }),
            _ => return None,
        })
    }

    /// Returns the tables of `adjust_contrast` for an image whose mean grey is `mean`: x · f + mean · (1 - f).
    pub(in crate::augment) fn contrast(factor: f64, mean: f32) -> Self {
        let (of_level, of_mean) = (factor as f32, (1.0 - factor) as f32);
        Self::each(|level| truncate(fma(mean, of_mean, f32::from(level) * of_level)))
    }

    /// Returns the tables of `autocontrast` for the least and the greatest level of each channel.
    pub(in crate::augment) fn autocontrast(extremes: [(u8, u8); 3]) -> Self {
        Self::of_channels(extremes.map(|(least, greatest)| {
            move |level| match greatest - least {
                0 => level,
                range => {
                    let scale = f32::from(range) * (1.0 / 255.0_f64) as f32;
                    truncate((f32::from(level) - f32::from(least)) / scale)
                }
            }
        }))
    }

    /// Returns the tables of `equalize` for the histogram of each channel. As in PIL, the pixels of the greatest level
    /// are not counted.
    pub(in crate::augment) fn equalize(histograms: &[LevelCounts; 3]) -> Self {
        Self(histograms.each_ref().map(|histogram| {
            let pixels: u32 = histogram.iter().sum();
            let greatest = histogram.iter().rfind(|&&count| count > 0).copied().unwrap_or(0);
            let step = (pixels - greatest) / 255;
            let mut below = 0;
            std::array::from_fn(|level| {
                let equal = (below + step / 2).checked_div(step).map_or(level as u32, |equal| equal.min(255));
                below += histogram[level];
                equal as u8
            })
        }))
    }

    /// Returns the tables that apply these tables and then `next`.
    pub(in crate::augment) fn then(mut self, next: &Self) -> Self {
        for (table, next) in self.0.iter_mut().zip(&next.0) {
            for level in table {
                *level = next[usize::from(*level)];
            }
        }
        self
    }

    /// Replaces each value in the planes of R, G and B by its entry in the plane's table. `level` selects the SIMD
    /// instructions.
    pub(super) fn apply(&self, level: Level, planes: [&mut [u8]; 3]) {
        for (table, plane) in self.0.iter().zip(planes) {
            lookup::replace(level, plane, table);
        }
    }

    fn each(of: impl Fn(u8) -> u8 + Copy) -> Self {
        Self::of_channels([of; 3])
    }

    fn of_channels(of: [impl Fn(u8) -> u8; 3]) -> Self {
        Self(of.map(|of| std::array::from_fn(|level| of(level as u8))))
    }
}
