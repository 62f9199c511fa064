//! Warnings and information for the user about an epoch, for instance about failed samples or a cache that filled up
//! too soon.

use super::{ConcealedSample, context::SampleContext, cuda::LONGEST_BACKOFF};
use crate::config::OnError;
use base::error::{DecodeError, Error};
use base::notices::NoticeKind;
use data::schedule::Shuffling;
use pixels::decode::nvjpeg::NvJpegBackend;
use pixels::decode::{Orientation, orientation};
use store::tier::{CacheStats, TierOptions};

/// The user is warned if a full cache holds less than this share of the bytes that should fit into it, because it then
/// has less space than was configured.
const MIN_FULL_SHARE: f64 = 0.9;

pub(crate) fn failure(context: &SampleContext, error: &Error) {
    let instead = match context.config.on_error {
        OnError::Skip => "another sample takes its place",
        _ => "zeros take its place",
    };
    context.index.notices().warn_once("sample", || {
        let most = context.config.max_errors;
        let most = most.map_or("any number of times".into(), |most| format!("at most {most} times"));
        format!(
            "{error}; {instead}, {most} in an epoch (on_error, max_errors). `foreload index --decode` lists all \
             damaged images"
        )
    });
}

pub(crate) fn members_stored_apart(context: &SampleContext, sample: u64, field: &str) {
    let file = context.index.extent(sample).file;
    let is_file = context.index.shard_stamp(file).is_none();
    if is_file && context.config.cache.is_none() {
        return;
    }
    context.index.notices().warn_once("apart", || {
        let path = context.index.path(file);
        if is_file {
            return format!(
                "{}: the files of the column {field:?} are not cached, because the cache keeps one file of each \
                 sample: write each image and the files of its other fields next to each other into tar shards",
                context.index.root().display()
            );
        }
        format!(
            "{}: the members of a sample are not adjacent, such as {field:?} of sample {sample}. Each of them costs a \
             separate read on a decoding thread, and is not cached: write the members of a sample next to each other, \
             as WebDataset does",
            path.display()
        )
    });
}

pub(crate) fn narrowed(context: &SampleContext, image: usize, sample: u64) {
    context.index.notices().warn_once("narrowed", || {
        let path = context.index.path(context.index.extent(sample).file);
        let name = &context.config.images.list()[image].name;
        let remedy = match context.index.is_sharded() {
            true => format!(
                "foreload.fields.Mask({name:?}, dtype=\"int32\") with another image keeps the values, \
                 foreload.fields.Bytes({name:?}) keeps the file"
            ),
            false => "decoded=False gives the files unchanged".to_owned(),
        };
        format!(
            "some images are PNGs with 16 bits of gray, and batches keep the upper 8 bits; the first is {name:?} of \
             sample {sample} ({}): {remedy}",
            path.display()
        )
    });
}

pub(crate) fn rotated_image(context: &SampleContext, image: usize, sample: u64, bytes: &[u8]) {
    if context.config.orientation != Orientation::Warn {
        return;
    }
    if let Some(orientation) = orientation(bytes) {
        rotated(context, image, sample, orientation);
    }
}

/// Warns about the first image that has another orientation than 1, with `orientation="warn"`.
pub(crate) fn rotated(context: &SampleContext, image: usize, sample: u64, orientation: u8) {
    context.index.notices().warn_once("turned", || {
        let path = context.index.path(context.index.extent(sample).file);
        format!(
            "some images are stored rotated or mirrored (EXIF), and batches have them as they are stored; the first is \
             {:?} of sample {sample} ({}), with orientation {orientation}: set orientation=\"apply\" to turn them \
             upright, as `datasets` and torchcodec do, or orientation=\"ignore\" to silence this warning",
            context.config.images.list()[image].name,
            path.display()
        )
    });
}

/// Warns of the first image that is in a batch of the wrong size, because its file was rewritten after its size was
/// measured.
pub(crate) fn other_bucket(context: &SampleContext, sample: u64, (width, height): (u32, u32)) {
    let Some(bucket) = &context.config.bucket else { return };
    if bucket.sizes.list()[usize::from(bucket.sizes.nearest(width, height))] == bucket.size {
        return;
    }
    context.index.notices().warn_once("other bucket", || {
        let path = context.index.path(context.index.extent(sample).file);
        format!(
            "some images have another shape than when their sizes were measured; the first is sample {sample} ({}), \
             now {width}x{height}, which was cropped to {}x{}: run `foreload index --sizes --rebuild-index`, or set \
             rebuild_index=True once",
            path.display(),
            bucket.size.width,
            bucket.size.height
        )
    });
}

/// Warns that batches are copied twice on their way to a GPU, because the driver `refused` to page-lock the leased
/// memory.
pub(crate) fn copied_twice(context: &SampleContext, refused: Option<&str>) {
    let Some(why) = refused else { return };
    context.index.notices().warn_once("copied", || {
        format!(
            "the GPU's driver cannot page-lock memory that another process shares ({why}), so the CPU copies each \
             batch before the GPU does: raise the limit of locked memory (ulimit -l), or use device=\"cpu\" and copy \
             batches yourself"
        )
    });
}

pub(crate) fn concealed(context: &SampleContext, named: impl FnOnce() -> ConcealedSample) {
    context.index.notices().warn_once("concealed", || {
        let ConcealedSample { sample, path, message, .. } = named();
        let path = path.display();
        format!(
            "some images are damaged and were decoded anyway, as Pillow decodes them; the first is sample {sample} \
             ({path}): {message}. The loader's `concealed` lists them; damaged=\"refuse\" makes them failures"
        )
    });
}

pub(crate) fn unwritten_image(context: &SampleContext, backend: NvJpegBackend, sample: u64) {
    context.index.notices().warn_once("skipped", || {
        let path = context.index.path(context.index.extent(sample).file);
        format!(
            "the GPU's decoder ({}) reports success for images that it did not decode; the first is sample {sample} \
             ({}). The next decoder decodes them again, and the statistic `decoded_again` counts them: try a newer \
             driver or nvJPEG, or avoid this decoder with FORELOAD_GPU_BACKEND=cuda or =cpu",
            backend.name(),
            path.display()
        )
    });
}

/// Warns about the first image in which one of Foreload's own kernels found damage and the CPU's decoder found none.
pub(crate) fn damage_unconfirmed(context: &SampleContext, sample: u64) {
    context.index.notices().warn_once("doubted", || {
        let path = context.index.path(context.index.extent(sample).file);
        format!(
            "Foreload's decoder on the GPU finds damage in images in which its decoder on the CPU finds none; the \
             first is sample {sample} ({}). The CPU decodes them, so batches are correct, and the statistic \
             `decoded_again` counts them. This is a defect of Foreload or of the GPU: please report it with the output \
             of `foreload doctor`",
            path.display()
        )
    });
}

pub(crate) fn refused(context: &SampleContext, backend: NvJpegBackend, sample: u64, error: &DecodeError) {
    context.index.notices().inform_once("refused", || {
        let path = context.index.path(context.index.extent(sample).file);
        format!(
            "the GPU's decoder ({}) refused sample {sample} ({}) twice: {error}. The next decoder decodes it, and \
             others like it, from now on",
            backend.name(),
            path.display()
        )
    });
}

/// Warns about the first image that a decoder of the GPU could not decode for lack of a resource, most likely memory.
pub(crate) fn failing(context: &SampleContext, backend: NvJpegBackend, sample: u64, error: &Error) {
    context.index.notices().warn_once(("failing", backend.name()), || {
        let path = context.index.path(context.index.extent(sample).file);
        format!(
            "the GPU's decoder ({}) fails, and the files are not the cause: {error}; the first is sample {sample} \
             ({}). The next decoder decodes these images, and this one is tried again with later images: if GPU memory \
             is short, lower device_memory or batch_size, or end other processes that use it",
            backend.name(),
            path.display()
        )
    });
}

pub(crate) fn paused(context: &SampleContext, backend: NvJpegBackend, why: &str) {
    context.index.notices().warn_once(("paused", backend.name()), || {
        format!(
            "the GPU's decoder ({}) has decoded nothing in several calls in a row: {why}. Where another decoder or the \
             CPU may decode its images, it is paused and tried again; the pauses double up to {LONGEST_BACKOFF} \
             batches. Check with nvidia-smi whether another process uses the GPU or the GPU needs a reset; if GPU \
             memory is short, lower device_memory or batch_size",
            backend.name()
        )
    });
}

pub(crate) fn probe_failed(context: &SampleContext, backend: NvJpegBackend, why: &str) {
    context.index.notices().warn_once("untried", || {
        format!(
            "the GPU's decoder ({}) failed when it was tried, so this loader does not use it: {why}. The next decoder \
             or the CPU decodes its images, and the next loader of this process tries it again: end other processes \
             that use the GPU's memory, or check with nvidia-smi whether the GPU needs a reset",
            backend.name()
        )
    });
}

pub(crate) fn decoders_not_prepared(context: &SampleContext, error: &Error) {
    context.index.notices().warn_once("unprepared", || {
        format!(
            "not all of the GPU's decoders could be created before the first batch: {error}. They are created when \
             they are needed, which can break a CUDA graph that is being captured at that time: if GPU memory is \
             short, lower device_memory or batch_size, or end other processes that use it"
        )
    });
}

pub(crate) fn no_other_loaders_found(context: &SampleContext, why: &str) {
    context.index.notices().inform_once("cpu", || {
        format!(
            "this loader cannot find the other loaders of this node, so it takes its whole share of the processors \
             (cpu), as if it were alone: {why}; or give each loader a smaller cpu"
        )
    });
}

pub(crate) fn small_batches(context: &SampleContext) {
    context.index.notices().warn_once("small batches", || {
        format!(
            "this GPU has no decoding engine for these images, and its kernels need at least {} of them in a batch, so \
             the CPU decodes them: raise batch_size, which is {}",
            NvJpegBackend::CudaBatched.min_images_per_call(),
            context.config.batch_size
        )
    });
}

pub(crate) fn failures(context: &SampleContext, epoch: u64, failed: u64) {
    if failed > 0 {
        let samples = if failed == 1 { "1 sample".to_owned() } else { format!("{failed} samples") };
        let message = format!(
            "epoch {epoch}: {samples} failed, and other samples or zeros took their places; the loader's `errors` \
             lists them"
        );
        context.index.notices().notify(NoticeKind::Warning, message);
    }
}

/// Warns that compressed blocks are decompressed again and again, because samples come in random order and no cache
/// keeps them.
pub(crate) fn blocks(context: &SampleContext) {
    let room = context.config.cache.iter().flat_map(|cache| &cache.tiers).map(TierOptions::size);
    let index = &context.index;
    if context.config.shuffling != Shuffling::On
        || !index.has_blocks()
        || room.sum::<u64>() >= index.total_bytes()
    {
        return;
    }
    let Some(costs) = index.block_costs().filter(|costs| !costs.fit_in_memory()) else { return };
    let by_blocks = match context.config.can_shuffle_blocks() {
        true => "set shuffle=\"blocks\", which decompresses each block about once, or ",
        false => "",
    };
    index.notices().warn_once("compressed blocks", || {
        format!(
            "{}: samples are stored in compressed blocks. In random order, each sample that is not cached costs the \
             decompression of a whole block, in an epoch {:.0} times the bytes of the samples: {by_blocks}set `cache` \
             to keep decompressed samples, or write the dataset without compression",
            index.root().display(),
            costs.factor()
        )
    });
}

/// Warns that each rank reads the blocks of several ranks at a time, because `shuffle_ranks` exceeds the number of
/// ranks.
pub(crate) fn parts(context: &SampleContext, parts: u32, ranks: u32) {
    context.index.notices().warn_once("parts", || {
        format!(
            "shuffle_ranks is {parts}, but there are {ranks} ranks. Each rank reads the blocks of several ranks at a \
             time, which do not fit into its memory, so blocks are read again: remove shuffle_ranks after the epoch \
             that began with it"
        )
    });
}

/// Warns that a directory filled up with less of this dataset than should fit; `cached` holds the counters of the tiers
/// in the epoch.
pub(crate) fn cache_full(context: &SampleContext, cached: &CacheStats) {
    let Some(options) = &context.config.cache else { return };
    // Tiers are ordered from fast to slow. A sample in a faster tier need not be in a slower one.
    let mut left = context.index.total_bytes();
    for tier in &options.tiers {
        let stats = cached.tier(tier.name());
        let room = stats.quota.min(left);
        left -= stats.held_bytes.min(left);
        let Some(path) = tier.directory() else { continue };
        if stats.dropped_full == 0 || stats.held_bytes as f64 >= MIN_FULL_SHARE * room as f64 {
            continue;
        }
        context.index.notices().warn_once(("cache is full", tier.name().as_str()), || {
            let directory = path.display();
            format!(
                "cache: {directory} is full with {} bytes of this dataset, but {room} were expected to fit. Other \
                 datasets in use take the rest: raise its size, or see `foreload cache show {directory}`",
                stats.held_bytes
            )
        });
    }
}
