//! Measures the rate at which the workers decode and augment samples: runs the pipeline on samples in memory.

use base::error::Error;
use base::error::Result;
use data::dataset::DatasetIndex;
use engine::config;
use engine::config::LoaderOptions;
use engine::pipeline::Pipeline;
use serde::Serialize;
use std::collections::HashMap;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use store::io::{InMemoryDataset, Reader, read_blocking};

#[derive(Debug, Serialize)]
pub(super) struct DecodeReport {
    pub(super) images: u64,
    pub(super) bytes: u64,
    pub(super) seconds: f64,
    pub(super) threads: usize,
    pub(super) device: &'static str,
}

impl DecodeReport {
    pub(super) fn bandwidth(&self) -> f64 {
        self.bytes as f64 / self.seconds.max(f64::MIN_POSITIVE)
    }
}

/// The batch size. It is small, so that even few samples make many batches.
const BATCH: u32 = 16;

const SAMPLES: usize = 1024;
/// The number of bytes in memory after which no more samples are loaded.
const BYTES: usize = 128 << 20;

/// Loads the first samples of an epoch, and runs the epoch repeatedly for about `limit`.
///
/// # Errors
/// The errors of the loader: a sample that cannot be read or decoded.
pub(super) fn measure(
    index: &Arc<DatasetIndex>,
    options: &LoaderOptions,
    limit: Duration,
) -> Result<DecodeReport> {
    let batch_size = BATCH.min(u32::try_from(index.len() / 2).unwrap_or(BATCH).max(1));
    let config = LoaderOptions { batch_size, ..options.clone() }.check(index)?;
    let (threads, device) = (config.threads, config.device);
    // The pipeline's schedule says which samples come first. They are loaded into `kept` before the first epoch calls
    // `open`.
    let kept: Arc<OnceLock<Arc<InMemoryDataset>>> = Arc::default();
    let pipeline = {
        let (kept, depth) = (kept.clone(), config.queue_depth);
        let open = move |_: &Arc<DatasetIndex>, _: &_, _: &_| {
            let resident = kept.get().ok_or_else(|| Error::Internal("no samples are in memory".into()))?;
            // Samples that are not in memory are requested only after the last counted batch.
            Ok(Box::new(resident.reader(depth)) as Box<dyn Reader>)
        };
        Pipeline::with_reader(index.clone(), config, Box::new(open))
    };
    let schedule = pipeline.schedule(0, 0, 1)?;
    let samples = (0..schedule.steps()).flat_map(|step| schedule.places(step)).map(|place| place.draw.sample);
    let (sizes, resident) = load(index, limit, samples)?;
    let _ = kept.set(resident);
    let steps = sizes.len() as u64 / u64::from(batch_size);
    if steps < 2 {
        let message = format!("has too few samples to measure decoding: {} were read in time", sizes.len());
        return Err(Error::dataset(index.root(), message));
    }
    let of_step = |step: u64| &sizes[step as usize * batch_size as usize..][..batch_size as usize];
    let device = if device == config::Device::Cpu { "cpu" } else { "cuda" };
    let mut decoded = DecodeReport { images: 0, bytes: 0, seconds: 0.0, threads, device };
    let begun = Instant::now();
    while begun.elapsed() < limit {
        let mut epoch = pipeline.epoch(0, 0, 1, 0)?;
        // Measure from the first batch, when all threads have work, to the last.
        let mut since = None;
        for step in 0..steps {
            let Some(batch) = epoch.next_batch()? else { break };
            batch.synchronize()?;
            if since.is_some() {
                decoded.images += batch.len() as u64;
                decoded.bytes += of_step(step).iter().sum::<u64>();
            }
            since.get_or_insert_with(Instant::now);
        }
        decoded.seconds += since.map_or(0.0, |since| since.elapsed().as_secs_f64());
    }
    Ok(decoded)
}

/// Reads up to [`SAMPLES`] of `samples` and about [`BYTES`] bytes. Stops after `limit` if two batches have been read.
/// Returns the size of each sample, and the samples.
fn load(
    index: &Arc<DatasetIndex>,
    limit: Duration,
    samples: impl Iterator<Item = u64>,
) -> Result<(Vec<u64>, Arc<InMemoryDataset>)> {
    let (begun, mut files, mut sizes) = (Instant::now(), HashMap::new(), Vec::new());
    let mut total = 0;
    for sample in samples.take(SAMPLES) {
        if (begun.elapsed() >= limit && sizes.len() >= 2 * BATCH as usize) || total >= BYTES {
            break;
        }
        let bytes = read_blocking(&**index, index.extent(sample))?;
        total += bytes.len();
        sizes.push(bytes.len() as u64);
        files.insert(sample, bytes.into_boxed_slice());
    }
    Ok((sizes, InMemoryDataset::new(index, files)))
}
