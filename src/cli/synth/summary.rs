//! The statistics of the images that were made, which users can compare with those of a dataset of their own.

use super::recipe::{JpegCoding, PhotoRecipe};
use super::store::SynthLayout;
use crate::output;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// The statistics, collected while images are written.
#[derive(Default)]
pub(crate) struct Statistics {
    bytes: Vec<f64>,
    widths: Vec<f64>,
    heights: Vec<f64>,
    rates: Vec<f64>,
    qualities: Vec<f64>,
    codings: BTreeMap<&'static str, u64>,
}

/// The summary that `foreload synth` prints.
#[derive(Debug, Serialize)]
pub(crate) struct SynthSummary {
    version: &'static str,
    layout: SynthLayout,
    images: usize,
    classes: u32,
    seed: u64,
    bytes: u64,
    bytes_mean: f64,
    bytes_median: f64,
    width_median: f64,
    height_median: f64,
    largest: [f64; 2],
    bits_per_pixel_mean: f64,
    bits_per_pixel_percentiles: BTreeMap<&'static str, f64>,
    quality_median: f64,
    codings: BTreeMap<&'static str, u64>,
    seconds: f64,
    images_per_s: f64,
}

impl Statistics {
    /// Counts an image.
    pub(crate) fn add(&mut self, recipe: &PhotoRecipe, quality: u8, bytes: usize) {
        self.bytes.push(bytes as f64);
        self.widths.push(recipe.width as f64);
        self.heights.push(recipe.height as f64);
        self.rates.push(bytes as f64 * 8.0 / (recipe.width * recipe.height) as f64);
        self.qualities.push(f64::from(quality));
        let name = JpegCoding::SHARES.iter().find(|s| s.0 == recipe.coding).map_or("", |s| s.2);
        *self.codings.entry(name).or_default() += 1;
    }

    /// The summary of all images counted.
    pub(crate) fn summary(
        self,
        layout: SynthLayout,
        classes: u32,
        seed: u64,
        elapsed: Duration,
    ) -> SynthSummary {
        let images = self.bytes.len();
        let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len().max(1) as f64;
        let seconds = elapsed.as_secs_f64();
        let rates = sorted(self.rates);
        let (widths, heights) = (sorted(self.widths), sorted(self.heights));
        SynthSummary {
            version: base::version::get(),
            layout,
            images,
            classes,
            seed,
            bytes: self.bytes.iter().sum::<f64>() as u64,
            bytes_mean: mean(&self.bytes).round(),
            bytes_median: quantile(&sorted(self.bytes), 0.5),
            width_median: quantile(&widths, 0.5),
            height_median: quantile(&heights, 0.5),
            largest: [quantile(&widths, 1.0), quantile(&heights, 1.0)],
            bits_per_pixel_mean: round2(mean(&rates)),
            bits_per_pixel_percentiles: [("5", 0.05), ("50", 0.5), ("95", 0.95)]
                .map(|(name, q)| (name, round2(quantile(&rates, q))))
                .into(),
            quality_median: quantile(&sorted(self.qualities), 0.5),
            codings: self.codings,
            seconds: round2(seconds),
            images_per_s: (images as f64 / seconds).round(),
        }
    }
}

fn sorted(mut values: Vec<f64>) -> Vec<f64> {
    values.sort_by(f64::total_cmp);
    values
}

fn quantile(sorted: &[f64], q: f64) -> f64 {
    let last = sorted.len().saturating_sub(1);
    sorted.get((q * last as f64).round() as usize).copied().unwrap_or(0.0)
}

fn round2(value: f64) -> f64 {
    (100.0 * value).round() / 100.0
}

impl fmt::Display for SynthSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let size = |bytes: f64| output::bytes(bytes as u64);
        let [p5, p50, p95] = ["5", "50", "95"].map(|name| self.bits_per_pixel_percentiles[name]);
        writeln!(
            f,
            "{} images of {} classes, {}, in {:.1} s",
            self.images,
            self.classes,
            output::bytes(self.bytes),
            self.seconds
        )?;
        writeln!(
            f,
            "  size      median {}×{} pixels, up to {} wide and {} high",
            self.width_median, self.height_median, self.largest[0], self.largest[1]
        )?;
        writeln!(f, "  file      mean {}, median {}", size(self.bytes_mean), size(self.bytes_median))?;
        writeln!(
            f,
            "  rate      mean {} bits a pixel, median {p50}, 5 % below {p5}, 5 % above {p95}",
            self.bits_per_pixel_mean
        )?;
        writeln!(f, "  quality   median {}", self.quality_median)?;
        let codings: Vec<String> =
            self.codings.iter().map(|(name, count)| format!("{name} {count}")).collect();
        write!(f, "  codings   {}", codings.join(", "))
    }
}
