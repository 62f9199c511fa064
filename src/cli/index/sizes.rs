//! The flags `--sizes`, `--buckets` and `--where` of `foreload index`: the sizes of images, stored next to the index.

use base::error::Result;
use data::dataset::image_sizes::MeasuredSize;
use data::dataset::{DatasetIndex, SampleSet};
use engine::config::{HeaderReading, LoaderOptions};
use pixels::decode::Orientation;
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

/// The number of headers that are read at a time.
const QUEUE_DEPTH: usize = 32;

/// What was found about the sizes of the images of a dataset.
#[derive(Debug, Serialize)]
pub(super) struct SizesFound {
    /// The number of samples for which `--where` is true; `None` without a condition.
    #[serde(skip_serializing_if = "Option::is_none")]
    chosen: Option<u64>,
    samples: u64,
    /// The number of images whose size cannot be read.
    unreadable: u64,
    width: Extremes,
    height: Extremes,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    buckets: Vec<BucketCount>,
    /// The files that keep the sizes, one for each dataset.
    paths: Vec<PathBuf>,
}

#[derive(Debug, Default, Serialize)]
struct Extremes {
    least: u32,
    median: u32,
    largest: u32,
}

#[derive(Debug, Serialize)]
struct BucketCount {
    height: u32,
    width: u32,
    images: u64,
}

#[derive(Default)]
struct Counts {
    unreadable: u64,
    widths: BTreeMap<u32, u64>,
    heights: BTreeMap<u32, u64>,
    buckets: Vec<u64>,
}

/// Reads the sizes of the images in `index` that are not stored yet, and counts them: all images, or those that
/// `--where` chooses.
pub(super) fn find(index: &DatasetIndex, options: &LoaderOptions) -> Result<SizesFound> {
    let reading = HeaderReading {
        member: (!index.members().is_empty()).then_some(0),
        is_applied: options.orientation == Orientation::Apply,
        queue_depth: QUEUE_DEPTH,
        rebuild: options.rebuild_index,
        progress: true,
        cancel: Arc::default(),
    };
    let chosen = options.chosen_by_condition(index, &reading)?;
    // The sizes that the condition needed were measured again.
    let reading = HeaderReading { rebuild: reading.rebuild && chosen.is_none(), ..reading };
    let wanted = chosen.as_ref().map(|chosen| {
        let mut wanted = SampleSet::among(index.len());
        chosen.iter().for_each(|&sample| _ = wanted.insert(sample));
        wanted
    });
    let sizes = reading.sizes(index, wanted.as_ref())?;
    let buckets = options.buckets.list()?;
    let count_of = buckets.as_ref().map_or(0, |buckets| buckets.list().len());
    let counts = Mutex::new(Counts { buckets: vec![0; count_of], ..Counts::default() });
    sizes.for_each_chunk(reading.threads(), |first, chunk| {
        let mut counts = counts.lock().unwrap_or_else(PoisonError::into_inner);
        let is_wanted = |sample| wanted.as_ref().is_none_or(|wanted: &SampleSet| wanted.has(sample as u32));
        let chunk = chunk.iter().zip(first..).filter(|(_, sample)| is_wanted(*sample));
        for (size, _) in chunk {
            let Some((width, height)) = MeasuredSize::shown(*size, reading.is_applied) else {
                counts.unreadable += 1;
                continue;
            };
            *counts.widths.entry(width).or_default() += 1;
            *counts.heights.entry(height).or_default() += 1;
            if let Some(buckets) = &buckets {
                counts.buckets[usize::from(buckets.nearest(width, height))] += 1;
            }
        }
        Ok(())
    })?;
    let counts = counts.into_inner().unwrap_or_else(PoisonError::into_inner);
    let of_bucket = buckets.iter().flat_map(|buckets| buckets.list()).zip(&counts.buckets);
    Ok(SizesFound {
        chosen: chosen.as_ref().map(|chosen| chosen.len() as u64),
        samples: index.len(),
        unreadable: counts.unreadable,
        width: extremes(&counts.widths),
        height: extremes(&counts.heights),
        buckets: of_bucket
            .map(|(size, &images)| BucketCount { height: size.height, width: size.width, images })
            .collect(),
        paths: sizes.paths().map(PathBuf::from).collect(),
    })
}

fn extremes(counts: &BTreeMap<u32, u64>) -> Extremes {
    let half = counts.values().sum::<u64>().div_ceil(2);
    let mut before = 0;
    let median = counts.iter().find(|(_, count)| {
        before += *count;
        before >= half
    });
    let [least, largest] =
        [counts.keys().next(), counts.keys().next_back()].map(|key| key.copied().unwrap_or(0));
    Extremes { least, median: median.map_or(0, |(size, _)| *size), largest }
}

impl SizesFound {
    /// The lines of the text output.
    pub(super) fn lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        if let Some(chosen) = self.chosen {
            lines.push(format!("  where        {chosen} of {} samples", self.samples));
        }
        let known = self.chosen.unwrap_or(self.samples) - self.unreadable;
        let shown =
            |Extremes { least, median, largest }: &Extremes| format!("{least} to {largest}, median {median}");
        let unreadable = match self.unreadable {
            0 => String::new(),
            several => format!("; the sizes of {several} images cannot be read"),
        };
        lines.push(format!(
            "  sizes        {known} images: width {}; height {}{unreadable}",
            shown(&self.width),
            shown(&self.height)
        ));
        let share = |images: u64| 100.0 * images as f64 / known.max(1) as f64;
        lines.extend(self.buckets.iter().map(|BucketCount { height, width, images }| {
            format!("  bucket       {width}x{height}: {images} images, {:.1} %", share(*images))
        }));
        lines.extend(self.paths.iter().map(|path| format!("  stored in    {}", path.display())));
        lines
    }
}
