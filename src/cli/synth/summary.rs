//! The statistics of the generated images, for comparison with other datasets.

use super::huffman::CodeCounts;
use super::profile::{Profile, RANKS};
use super::recipe::JpegCoding;
use super::store::SynthLayout;
use super::{MadeImage, SynthArgs};
use crate::output;
use base::names::NamedValue;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

#[derive(Default)]
pub(crate) struct Statistics {
    bytes: Vec<f64>,
    widths: Vec<f64>,
    heights: Vec<f64>,
    rates: Vec<f64>,
    qualities: Vec<f64>,
    codings: BTreeMap<JpegCoding, CodingStatistics>,
    codes: CodeCounts,
}

#[derive(Default)]
struct CodingStatistics {
    bytes: Vec<f64>,
    rates: Vec<f64>,
}

#[derive(Debug, Serialize)]
pub(crate) struct SynthSummary {
    profile: Profile,
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
    codings: BTreeMap<&'static str, CodingSummary>,
    codes: CodesSummary,
    seconds: f64,
    images_per_s: f64,
}

/// The images of one coding, with the 5, 25, 50, 75 and 95 % quantiles.
#[derive(Debug, Serialize)]
struct CodingSummary {
    images: usize,
    bytes: [f64; 5],
    bits_per_pixel: [f64; 5],
}

#[derive(Debug, Serialize)]
struct CodesSummary {
    bits_per_code: f64,
    non_zero_per_block: f64,
    end_of_block: f64,
    dc_only_blocks: f64,
}

impl Statistics {
    pub(crate) fn add(&mut self, made: &MadeImage) {
        let (recipe, encoded) = (&made.recipe, &made.encoded);
        let bytes = encoded.bytes.len() as f64;
        let rate = bytes * 8.0 / (recipe.width * recipe.height) as f64;
        self.bytes.push(bytes);
        self.widths.push(recipe.width as f64);
        self.heights.push(recipe.height as f64);
        self.rates.push(rate);
        self.qualities.push(f64::from(encoded.quality));
        let of_coding = self.codings.entry(recipe.coding).or_default();
        of_coding.bytes.push(bytes);
        of_coding.rates.push(rate);
        self.codes += encoded.counts;
    }

    pub(crate) fn summary(self, args: &SynthArgs, elapsed: Duration) -> SynthSummary {
        let images = self.bytes.len();
        let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len().max(1) as f64;
        let seconds = elapsed.as_secs_f64();
        let rates = sorted(self.rates);
        let (widths, heights) = (sorted(self.widths), sorted(self.heights));
        SynthSummary {
            profile: args.profile,
            layout: args.layout,
            images,
            classes: args.classes,
            seed: args.seed,
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
            codings: self.codings.into_iter().map(|(coding, of)| (coding.name(), of.summary())).collect(),
            codes: CodesSummary::of(&self.codes),
            seconds: round2(seconds),
            images_per_s: (images as f64 / seconds).round(),
        }
    }
}

impl CodingStatistics {
    fn summary(self) -> CodingSummary {
        let at = |values: Vec<f64>| {
            let values = sorted(values);
            RANKS.map(|rank| round2(quantile(&values, rank)))
        };
        CodingSummary { images: self.bytes.len(), bytes: at(self.bytes), bits_per_pixel: at(self.rates) }
    }
}

impl CodesSummary {
    fn of(counts: &CodeCounts) -> Self {
        let part = |of: u64, whole: u64| of as f64 / whole.max(1) as f64;
        Self {
            bits_per_code: round2(part(counts.bits, counts.codes)),
            non_zero_per_block: round2(part(counts.non_zero, counts.blocks)),
            end_of_block: round2(part(counts.ends, counts.blocks)),
            dc_only_blocks: (1000.0 * part(counts.dc_only, counts.blocks)).round() / 1000.0,
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
            "  rate      mean {} bits per pixel, median {p50}, 5 % below {p5}, 5 % above {p95}",
            self.bits_per_pixel_mean
        )?;
        writeln!(f, "  quality   median {}", self.quality_median)?;
        let codings: Vec<String> =
            self.codings.iter().map(|(name, of)| format!("{name} {}", of.images)).collect();
        writeln!(f, "  codings   {}", codings.join(", "))?;
        write!(
            f,
            "  codes     {} bits each; a block has {} non-zero AC coefficients, the last at {}; {:.1} % have none",
            self.codes.bits_per_code,
            self.codes.non_zero_per_block,
            self.codes.end_of_block,
            100.0 * self.codes.dc_only_blocks
        )
    }
}
