//! How host memory is divided between slots and batches.

use super::{DevicePools, LANES, LoaderOptions};
use crate::batch::Pools;
use base::error::{Error, Result};
use base::units::in_gib;
use data::dataset::DatasetIndex;
use store::tier::most_bytes;

const MIB: usize = 1 << 20;

/// The largest arena for the reads of decoded images, in bytes.
const LARGEST_READ_ARENA: usize = 256 * MIB;

/// The number of reads in flight from local storage.
const LOCAL_DEPTH: u32 = 32;

/// The fewest and the most reads in flight from servers. A server answers late, but hundreds of reads at a time.
const FEWEST_FROM_SERVERS: u32 = 64;
const MOST_FROM_SERVERS: u32 = 256;

/// The most bytes of slots for reads from servers, unless the fewest reads need more.
const LARGEST_FOR_SERVERS: usize = 96 * MIB;

impl LoaderOptions {
    /// The number of reads in flight.
    pub(super) fn depth_for(&self, index: &DatasetIndex) -> u32 {
        match self.queue_depth {
            Some(depth) => depth,
            None if !index.has_remote() => LOCAL_DEPTH,
            // These reads may go to other nodes of the job, which are busy with training.
            None if self.peers.on => FEWEST_FROM_SERVERS,
            None => {
                let bytes = self.memory.unwrap_or(u64::MAX).min(LARGEST_FOR_SERVERS as u64) as usize;
                let most = bytes / room_for(SLOTS_OF_READ, index.mean_bytes().max(1) as usize);
                (most as u32).clamp(FEWEST_FROM_SERVERS, MOST_FROM_SERVERS)
            }
        }
    }
}

/// What the sizes of the pools depend on.
pub(super) struct PoolSizing<'a> {
    pub options: &'a LoaderOptions,
    pub index: &'a DatasetIndex,
    pub threads: usize,
    pub queue_depth: usize,
    /// Whether samples may come from a cache, where they may have another form.
    pub has_cache: bool,
    /// Whether batches have images of their own sizes, which nobody knows before they are decoded.
    pub has_own_sizes: bool,
}

/// The fewest batches that are being filled or wait for the consumer.
const FEWEST_AHEAD: usize = 2;

/// The slots for each read in flight: its own, and one for a sample that has arrived and waits to be decoded.
const SLOTS_OF_READ: usize = 2;

impl PoolSizing<'_> {
    /// Says that `memory` does not bind images of their own sizes, where both are asked for.
    pub(super) fn warn_about_sizes(&self) {
        let Some(memory) = self.options.memory.filter(|_| self.has_own_sizes) else { return };
        self.index.notices().warn_once("memory", || {
            format!(
                "memory is {memory} bytes, but images of their own sizes come on top: of them only the number of \
                 batches is bound, {FEWEST_AHEAD} ahead and those you keep; a transform that fixes the size, such as \
                 RandomCrop or CenterCrop, brings them under the cap, a smaller batch_size makes batches smaller"
            )
        });
    }

    /// The sizes for batches of `batch_bytes` in host memory, with slots for the reads in flight and for those that
    /// wait to be decoded.
    ///
    /// # Errors
    /// [`Error::Config`] for a `memory` too small for them, or a `batch_size` too large.
    pub(super) fn with_batches(&self, batch_bytes: usize) -> Result<Pools> {
        let keep = self.options.keep as usize;
        // Decoded images leave their slots at once; encoded files stay in them.
        let held = if self.options.decoded { 0 } else { self.slots_of_a_batch() };
        let smallest_slots = arena(self.two_largest().saturating_add(held.saturating_mul(keep + 1)));
        // Enough batches to ride out a hiccup, but not so many that large batches fill the memory.
        let usual_prefetch = (96 * MIB / (batch_bytes.saturating_add(held)).max(1)).clamp(FEWEST_AHEAD, 8);
        let usual_slots = arena(self.reads().saturating_add(held.saturating_mul(usual_prefetch + keep)));
        match self.options.memory {
            None => {
                let machine = self.memory_here();
                let needed = usual_prefetch + keep + 1;
                let bytes = batch_bytes.saturating_add(held);
                if bytes.saturating_mul(needed) > machine {
                    return Err(self.too_large(bytes, needed, machine));
                }
                let slot_bytes = usual_slots.min(machine / 4 / (2 * MIB) * (2 * MIB)).max(smallest_slots);
                let most = ((machine / 4).saturating_sub(slot_bytes) / batch_bytes.max(1)).max(needed);
                Ok(Pools { slot_bytes, prefetch: usual_prefetch, batches: most })
            }
            Some(memory) => {
                let memory = usize::try_from(memory).unwrap_or(usize::MAX);
                // The batches that the consumer has, and two that are being filled.
                let fewest = keep + 2;
                let batches_bytes = batch_bytes.saturating_mul(fewest);
                let least = smallest_slots.saturating_add(batches_bytes);
                if memory < least {
                    return Err(Error::config(
                        "memory",
                        format!(
                            "is {memory} bytes, must be at least {least}: {smallest_slots} for what is read and \
                             {fewest} batches of {batch_bytes}"
                        ),
                    ));
                }
                let slot_bytes = usual_slots.min(memory - batches_bytes) / (2 * MIB) * (2 * MIB);
                let slot_bytes = slot_bytes.max(smallest_slots);
                let batches = (memory - slot_bytes) / batch_bytes.max(1);
                // What has no known size is bound by number alone.
                let prefetch = if self.has_own_sizes { FEWEST_AHEAD } else { usual_prefetch };
                Ok(Pools { slot_bytes, prefetch: prefetch.min(batches - 1), batches })
            }
        }
    }

    /// The error that batches need more memory than there is. It names the setting that makes them so many or so large.
    fn too_large(&self, bytes: usize, needed: usize, machine: usize) -> Error {
        let LoaderOptions { batch_size, keep, image_size: (height, width), local_world_size, .. } =
            self.options;
        let part = local_world_size
            .map_or_else(String::new, |ranks| format!(", this rank's part by local_world_size={ranks}"));
        let lower = match (self.options.decoded, &self.options.transforms) {
            (false, _) => "lower batch_size",
            (true, None) => "lower image_size or batch_size, or choose dtype=\"float16\" or \"uint8\"",
            (true, Some(_)) => {
                "lower batch_size or the size in transforms, or choose a smaller dtype by ToDtype"
            }
        };
        let must = format!(
            "{needed} batches of {} must fit in {} of memory{part}: {lower}",
            in_gib(bytes),
            in_gib(machine)
        );
        let usual = LoaderOptions::default();
        let pixels = |(height, width): (u32, u32)| u64::from(height) * u64::from(width);
        let times_usual = pixels(self.options.image_size) / pixels(usual.image_size);
        let has_size = self.options.decoded && self.options.transforms.is_none();
        if *keep > 1 {
            Error::config("keep", format!("is {keep}, but {must}; or lower keep"))
        } else if has_size && times_usual > u64::from(batch_size / usual.batch_size) {
            Error::config("image_size", format!("is ({height}, {width}), but {must}"))
        } else {
            Error::config("batch_size", format!("is {batch_size}, but {must}"))
        }
    }

    /// The sizes where batches are on a GPU. Files stay in their slots until their whole batch is decoded.
    ///
    /// # Errors
    /// [`Error::Config`] for a `memory` that is too small.
    pub(super) fn beside(&self, device: &DevicePools) -> Result<Pools> {
        let smallest = self.two_largest();
        let held = self.slots_of_a_batch().saturating_mul(LANES + 1);
        let usual = arena(self.reads().saturating_add(held)).max(smallest);
        let cap = match self.options.memory {
            None => self.memory_here() / 4,
            Some(memory) => usize::try_from(memory).unwrap_or(usize::MAX),
        };
        if cap < smallest {
            let message =
                format!("is {cap} bytes, must be at least {smallest} for two of the largest samples");
            return Err(Error::config("memory", message));
        }
        let slot_bytes = usual.min(cap / (2 * MIB) * (2 * MIB)).max(smallest);
        Ok(Pools { slot_bytes, prefetch: device.prefetch, batches: device.batches })
    }

    /// The most bytes for where the rows of JPEGs begin. A photograph takes half a KB.
    pub(super) fn row_bytes(&self) -> usize {
        match self.options.memory {
            None => self.memory_here() / 32,
            Some(memory) => usize::try_from(memory / 16).unwrap_or(usize::MAX),
        }
    }

    /// The number of bytes of this machine's memory that each of its ranks has.
    fn memory_here(&self) -> usize {
        let machine = usize::try_from(store::io::storage::memory_limit()).unwrap_or(usize::MAX);
        machine / self.options.local_world_size.unwrap_or(1).max(1) as usize
    }

    /// The room for two of the largest samples, so that one can be read while another is decoded. One huge file does
    /// not decide the size: what does not fit fails like any other bad sample.
    fn two_largest(&self) -> usize {
        arena(2 * self.slot_of_the_largest()).min(LARGEST_READ_ARENA)
    }

    /// The room for the reads in flight, for as many that have arrived, and for a few of each worker.
    fn reads(&self) -> usize {
        let samples = SLOTS_OF_READ * self.queue_depth + 8 * self.threads;
        room_for(samples, self.mean_bytes()).clamp(16 * MIB, LARGEST_READ_ARENA)
    }

    /// The number of bytes of slots that the encoded files of a batch take.
    fn slots_of_a_batch(&self) -> usize {
        let n = self.options.batch_size as usize;
        let largest = self.slot_of_the_largest();
        // A quarter more than the mean, and two of the largest, because a small batch is seldom an average one.
        let usual = n.saturating_mul(slot_bytes(self.mean_bytes()) / 4 * 5).saturating_add(2 * largest);
        usual.min(n.saturating_mul(largest))
    }

    /// The number of bytes of the slot that the largest sample takes at most.
    fn slot_of_the_largest(&self) -> usize {
        slot_bytes(most_read(self.index.largest(), self.has_cache) as usize)
    }

    /// The number of bytes that are read of a sample of mean size at most.
    fn mean_bytes(&self) -> usize {
        most_read(u32::try_from(self.index.mean_bytes()).unwrap_or(u32::MAX), self.has_cache) as usize
    }
}

/// The room for so many samples of mean size, and half of that again because sizes vary.
fn room_for(samples: usize, mean_bytes: usize) -> usize {
    samples * mean_bytes / 2 * 3
}

/// The most bytes that are read of a sample of `length` bytes: its copy in a cache may have another form.
pub(super) fn most_read(length: u32, has_cache: bool) -> u32 {
    if has_cache { most_bytes(length) } else { length }
}

/// The number of bytes of the arena that a slot for a file of `length` bytes takes at most.
fn slot_bytes(length: usize) -> usize {
    length + 3 * 4096
}

/// Rounds up to whole huge pages.
fn arena(bytes: usize) -> usize {
    bytes.checked_next_multiple_of(2 * MIB).unwrap_or(usize::MAX)
}
