//! Chooses the values that the user did not set, for one size of images: threads, device, pools, cache and the layout
//! of batches.

use super::requested::RequestedFields;
use super::{
    AllowedBackends, CpuShare, Device, DevicePools, FieldWindows, Images, LoaderConfig, LoaderOptions,
    ViewKind, pools, share,
};
use base::error::Result;
use data::dataset::{DatasetIndex, NeighbourBlocks, SampleColumn};
use data::schedule::{CostTable, Selection};
use pixels::augment::cuda::LaneMemory;
use pixels::decode::cuda::LaunchTables;
use std::sync::Arc;
use store::tier::NoForms;

/// Values that are the same for all sizes of images, which may differ from epoch to epoch.
pub(super) struct SizeIndependent {
    pub(super) neighbour_blocks: Option<Arc<NeighbourBlocks>>,
    pub(super) selection: Arc<Selection>,
    pub(super) label_columns: Arc<Vec<SampleColumn>>,
    pub(super) cost_table: Option<Arc<CostTable>>,
}

impl LoaderOptions {
    /// Returns the configuration for the image size of these options.
    pub(super) fn sized(
        &self,
        asked: Option<&RequestedFields<'_>>,
        index: &DatasetIndex,
        mut images: Images,
        same: &SizeIndependent,
    ) -> Result<LoaderConfig> {
        let options = self;
        let ranks = options.local_world_size.unwrap_or(1);
        // Bytes that are passed on without decoding need only one thread.
        let processors = || if options.decoded { share::processors(ranks) } else { 1 };
        let threads = options.threads.map_or_else(processors, |threads| threads as usize);
        let cpu = options.cpu.map(|share| CpuShare::new(share, ranks));
        let threads = cpu.map_or(threads, |cpu| threads.min(cpu.threads()));
        let queue_depth = options.depth_for(index) as usize;
        let label_columns = same.label_columns.clone();
        let (mut fields, mut layout) = options.fields(asked, index, &images, &label_columns)?;
        if options.decoded {
            images.find_boxes(&fields)?;
        }
        let windows = FieldWindows::new(asked, &fields, index)?;
        let drawn = (&label_columns, &*same.selection);
        let mix = options.mix_plan(index, &images, &mut fields, &mut layout, drawn)?;
        let bucket = options.bucket(&images, &mut layout)?;
        let batch_bytes = layout.bytes(options.batch_size as usize);
        let mut chosen = options.choose_device(&images, &fields, index)?;
        let of_batches = match images.list().is_empty() {
            true => chosen.pools_of_batches(options.device == "auto", options.device_memory, batch_bytes)?,
            false => None,
        };
        if chosen.is_gpu_unused {
            index.notices().warn_once("device", || {
                let why = &chosen.why;
                format!(
                    "there is a GPU, but batches are made on the CPU: {why}. Set device=\"cpu\" to silence this warning"
                )
            });
        }
        let backends = AllowedBackends::from_environment()?;
        let device_pools = match chosen.device {
            _ if of_batches.is_some() => of_batches,
            Device::Cpu => None,
            Device::Cuda { .. } => {
                options.check_gpu_decoder(&images, index, (chosen.decoder, backends))?;
                let batch = options.batch_size as usize;
                let views = LaneMemory::new(images.views(), batch).bytes();
                let tables = match chosen.decoder.decodes_packed(backends) {
                    true => LaunchTables::usual_bytes(batch.saturating_mul(images.list().len())),
                    false => 0,
                };
                let lane = views.saturating_add(tables);
                Some(DevicePools::new(options.device_memory, chosen.memory, lane, batch_bytes)?)
            }
        };
        let has_own_sizes = options.decoded
            && (0..images.list().len()).any(|image| ViewKind::of(images.recipe(image)) != ViewKind::Tensors);
        let mut cache = options.cache(queue_depth)?;
        let has_cache = cache.is_some();
        // The cache keeps whole samples.
        let of_windows = windows.room(&fields, index).filter(|_| !has_cache);
        let host = pools::PoolSizing {
            options,
            index,
            threads,
            queue_depth,
            has_cache,
            has_own_sizes,
            largest: pools::largest_slot(index, has_cache, of_windows),
            reads_windows: of_windows.is_some(),
        };
        host.warn_about_sizes();
        let pools = match &device_pools {
            None => host.with_batches(batch_bytes)?,
            Some(device) if images.list().is_empty() => host.for_arrays_on(device, batch_bytes)?,
            Some(device) => host.for_device(device)?,
        };
        if let Some(cache) = &mut cache {
            cache.no_forms = match index.has_arrays() {
                true => Some(NoForms { why: "arrays are kept as they are stored", is_impossible: true }),
                false => options.no_forms(&fields, chosen.device, chosen.decoder),
            };
        }
        Ok(LoaderConfig {
            batch_size: options.batch_size,
            seed: options.seed,
            shuffling: options.shuffling(),
            neighbour_blocks: same.neighbour_blocks.clone(),
            shuffle_ranks: options.shuffle_ranks,
            last_batch: options.last_batch_or_default(),
            repeats: options.repeats,
            assignment: options.assignment,
            selection: same.selection.clone(),
            later: Vec::new(),
            bucket,
            buckets: Vec::new(),
            bucket_table: None,
            cost_table: same.cost_table.clone(),
            step_bins: options.bins,
            decoded: options.decoded,
            device: chosen.device,
            device_reason: chosen.why,
            decoder: chosen.decoder,
            cpu_decode: options.cpu_decode,
            backends,
            device_pools,
            images,
            fields,
            windows,
            layout,
            mix,
            label_columns,
            threads,
            cpu,
            io: options.io,
            direct: options.direct,
            queue_depth,
            cache,
            damaged: options.damaged,
            orientation: options.orientation,
            on_error: options.on_error,
            max_errors: options.max_errors,
            max_pixels: options.max_pixels,
            pools,
            row_bytes: host.row_bytes(),
        })
    }
}
