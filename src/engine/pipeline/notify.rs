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

/// The least share of what should fit that a full cache must hold. If it holds less, it has less space than was
/// intended.
const AS_PLANNED: f64 = 0.9;

/// Warns about the first sample that was skipped or replaced.
pub(crate) fn failure(context: &SampleContext, error: &Error) {
    let instead = match context.config.on_error {
        OnError::Skip => "another sample takes its place",
        _ => "zeros take its place",
    };
    context.index.notices().warn_once("sample", || {
        let most = context.config.max_errors;
        let most = most.map_or("as often as needed".into(), |most| format!("as up to {most} times"));
        format!(
            "{error}; {instead}, {most} in an epoch (on_error, max_errors): `foreload index --decode` finds \
             all damaged images"
        )
    });
}

/// Warns about the first sample with a member that is stored far from the others.
pub(crate) fn apart(context: &SampleContext, sample: u64, field: &str) {
    let file = context.index.extent(sample).file;
    let is_file = context.index.shard_stamp(file).is_none();
    if is_file && context.config.cache.is_none() {
        return;
    }
    context.index.notices().warn_once("apart", || {
        let path = context.index.path(file);
        if is_file {
            return format!(
                "{}: the files of the column {field:?} are not kept in the cache, which keeps one file of each \
                 sample: write each image and the files of its other fields side by side into tar shards",
                context.index.root().display()
            );
        }
        format!(
            "{}: members of a sample lie apart, as {field:?} of sample {sample}: each is a read of its own, by \
             the thread that decodes, and not kept in the cache; write the members of a sample side by side, as \
             WebDataset does",
            path.display()
        )
    });
}

/// Warns about the first image whose values have more bits than batches keep.
pub(crate) fn narrowed(context: &SampleContext, image: usize, sample: u64) {
    context.index.notices().warn_once("narrowed", || {
        let path = context.index.path(context.index.extent(sample).file);
        let name = &context.config.images.list()[image].name;
        let remedy = match context.index.is_sharded() {
            true => format!(
                "foreload.fields.Mask({name:?}, dtype=\"int32\") beside another image keeps the values, \
                 foreload.fields.Bytes({name:?}) the file"
            ),
            false => "decoded=False gives the files as they are".to_owned(),
        };
        format!(
            "some images are PNGs with 16 bits of gray, of which batches have the upper 8; the first is {name:?} \
             of sample {sample} ({}): {remedy}",
            path.display()
        )
    });
}

/// Warns about the first image whose metadata says to turn it, unless `orientation="ignore"`.
pub(crate) fn turned(context: &SampleContext, image: usize, sample: u64, bytes: &[u8]) {
    if context.config.orientation == Orientation::Ignore {
        return;
    }
    let Some(orientation) = orientation(bytes) else { return };
    context.index.notices().warn_once("turned", || {
        let path = context.index.path(context.index.extent(sample).file);
        format!(
            "some images are stored turned or mirrored, by their EXIF orientation, and are decoded as they are \
             stored, where `datasets` would turn them; the first is {:?} of sample {sample} ({}), of orientation \
             {orientation}: store images upright, as PIL.ImageOps.exif_transpose makes them, or set \
             orientation=\"ignore\" to train on them as they are stored",
            context.config.images.list()[image].name,
            path.display()
        )
    });
}

/// Warns that batches are copied twice on their way to a GPU, because the driver `refused` to page-lock the leased
/// memory.
pub(crate) fn copied_twice(context: &SampleContext, refused: Option<&str>) {
    let Some(why) = refused else { return };
    context.index.notices().warn_once("copied", || {
        format!(
            "the GPU's driver does not lock memory that another process shares ({why}), so the CPU copies each \
             batch before the GPU does; let this process lock more (ulimit -l), or copy batches of device=\"cpu\" \
             yourself"
        )
    });
}

/// Warns about the first damaged image that was decoded anyway.
pub(crate) fn concealed(context: &SampleContext, named: impl FnOnce() -> ConcealedSample) {
    context.index.notices().warn_once("concealed", || {
        let ConcealedSample { sample, path, message, .. } = named();
        let path = path.display();
        format!(
            "some images are damaged and decoded all the same, as Pillow decodes them; the first is sample \
             {sample} ({path}): {message}; `concealed` of the loader names them, damaged=\"refuse\" makes them \
             failures"
        )
    });
}

/// Warns about the first image that a decoder of the GPU reported as decoded and did not write.
pub(crate) fn skipped(context: &SampleContext, backend: NvJpegBackend, sample: u64) {
    context.index.notices().warn_once("skipped", || {
        let path = context.index.path(context.index.extent(sample).file);
        format!(
            "the GPU's decoder ({}) reports success for images that it has not decoded; the first is sample \
             {sample} ({}): they are decoded again by the next decoder, and `decoded_again` of the statistics \
             counts them; a newer driver or nvJPEG may mend it, FORELOAD_GPU_BACKEND=cuda or =cpu does without",
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
            "Foreload's decoder on the GPU finds damage in images in which the one on the CPU finds none; the \
             first is sample {sample} ({}): the CPU decodes them, so that batches are right, and `decoded_again` \
             of the statistics counts them; this is a defect of Foreload or of the GPU, please report it with \
             what `foreload doctor` prints",
            path.display()
        )
    });
}

/// Reports the first image that a decoder of the GPU has refused for good.
pub(crate) fn refused(context: &SampleContext, backend: NvJpegBackend, sample: u64, error: &DecodeError) {
    context.index.notices().inform_once("refused", || {
        let path = context.index.path(context.index.extent(sample).file);
        format!(
            "sample {sample} ({}) was refused by the GPU's decoder ({}) twice: {error}; this and others like it \
             are left to the next decoder from now on",
            path.display(),
            backend.name()
        )
    });
}

/// Warns about the first image that a decoder of the GPU could not decode for lack of a resource, most likely memory.
pub(crate) fn failing(context: &SampleContext, backend: NvJpegBackend, sample: u64, error: &Error) {
    context.index.notices().warn_once(("failing", backend.name()), || {
        let path = context.index.path(context.index.extent(sample).file);
        format!(
            "the GPU's decoder ({}) fails, and not for the files it is given: {error}; the first is sample \
             {sample} ({}); the next decoder has its images, and it is tried again with the next ones: where \
             memory is short, lower device_memory or batch_size, or end what else has the GPU's",
            backend.name(),
            path.display()
        )
    });
}

/// Warns that a decoder of the GPU fails all the time and is paused.
pub(crate) fn paused(context: &SampleContext, backend: NvJpegBackend, why: &str) {
    context.index.notices().warn_once(("paused", backend.name()), || {
        format!(
            "the GPU's decoder ({}) has decoded nothing in several calls in a row: {why}; it is left alone for \
             pauses that double up to {LONGEST_BACKOFF} batches, until it decodes again, wherever another one or \
             the CPU may have its images: see with nvidia-smi whether another process holds the GPU or it wants a \
             reset; where memory is short, lower device_memory or batch_size",
            backend.name()
        )
    });
}

/// Warns that a decoder of the GPU failed when it was probed.
pub(crate) fn probe_failed(context: &SampleContext, backend: NvJpegBackend, why: &str) {
    context.index.notices().warn_once("untried", || {
        format!(
            "the GPU's decoder ({}) failed when it was tried, and this loader does without: {why}; the next \
             decoder or the CPU has its images. The process's next loader tries it again: end what else has the \
             GPU's memory, or see with nvidia-smi whether it wants a reset",
            backend.name()
        )
    });
}

/// Warns that some decoders of the GPU could not be made before the first batch.
pub(crate) fn unprepared(context: &SampleContext, error: &Error) {
    context.index.notices().warn_once("unprepared", || {
        format!(
            "not all of the GPU's decoders could be made before the first batch: {error}; they are made when they \
             are needed, which may spoil a CUDA graph that is captured just then: where memory is short, lower \
             device_memory or batch_size, or end what else has the GPU's"
        )
    });
}

/// Reports that this loader cannot find the other loaders of its node that share the processors.
pub(crate) fn alone(context: &SampleContext, why: &str) {
    context.index.notices().inform_once("cpu", || {
        format!(
            "this loader takes its whole share of the processors (cpu), however many loaders of this node have \
             one, because it cannot find them: {why}; or give each loader a smaller cpu"
        )
    });
}

/// Warns that the CPU decodes only because batches are too small for the GPU's kernels.
pub(crate) fn small_batches(context: &SampleContext) {
    context.index.notices().warn_once("small batches", || {
        format!(
            "this GPU has no decoding engine for these images, and its kernels decode them only where a batch has \
             {} of them and more: the CPU decodes them; raise batch_size, which is {}",
            NvJpegBackend::CudaBatched.least_of_call(),
            context.config.batch_size
        )
    });
}

/// Warns about the number of samples that failed, at the end of `epoch`.
pub(crate) fn failures(context: &SampleContext, epoch: u64, failed: u64) {
    if failed > 0 {
        let samples = if failed == 1 { "1 sample".to_owned() } else { format!("{failed} samples") };
        let message = format!(
            "epoch {epoch}: {samples} failed, others or zeros took their places; `errors` names them"
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
        true => "set shuffle=\"blocks\", by which each is unpacked about once, or ",
        false => "",
    };
    index.notices().warn_once("compressed blocks", || {
        format!(
            "{}: samples lie in compressed blocks, and in an order at random each sample that no cache has takes \
             the unpacking of a whole one, {:.0} times the bytes of the samples in an epoch: {by_blocks}set \
             `cache` to keep samples once they are unpacked, or write the dataset without compression",
            index.root().display(),
            costs.factor()
        )
    });
}

/// Warns that each rank reads the blocks of several parts at a time, because `shuffle_ranks` exceeds the number of
/// ranks.
pub(crate) fn parts(context: &SampleContext, parts: u32, ranks: u32) {
    context.index.notices().warn_once("parts", || {
        format!(
            "shuffle_ranks is {parts}, and there are {ranks} ranks: each reads the blocks of several at a time, \
             which is more than it has memory for, so that blocks are read again; leave shuffle_ranks out once \
             the epoch that was begun with it is over"
        )
    });
}

/// Warns that a directory filled up with less of this dataset than should fit; `cached` holds the counters of the tiers
/// in the epoch.
pub(crate) fn cache_full(context: &SampleContext, cached: &CacheStats) {
    let Some(options) = &context.config.cache else { return };
    // Samples in faster tiers need not be in slower ones.
    let mut left = context.index.total_bytes();
    for tier in &options.tiers {
        let stats = cached.tier(tier.name());
        let room = stats.quota.min(left);
        left -= stats.held_bytes.min(left);
        let Some(path) = tier.directory() else { continue };
        if stats.dropped_full == 0 || stats.held_bytes as f64 >= AS_PLANNED * room as f64 {
            continue;
        }
        context.index.notices().warn_once(("cache is full", tier.name().as_str()), || {
            let directory = path.display();
            format!(
                "cache: {directory} is full with {} bytes of this dataset, of {room} that were meant to fit: other \
                 datasets in use have the rest; raise its size, or see `foreload cache show {directory}`",
                stats.held_bytes
            )
        });
    }
}
