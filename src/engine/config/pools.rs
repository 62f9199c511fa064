//! Sizes of the memory pools on the host: how memory is divided between slots (buffers for the bytes of files) and
//! batch buffers.
//!
//! The sizes follow from the settings, the machine and the dataset, and do not change while a pipeline runs.

use super::{DevicePools, LANES, LoaderKind, LoaderOptions};
use crate::batch::Pools;
use base::error::{Error, Result};
use base::slot::PAGE;
use base::units::in_gib;
use data::dataset::DatasetIndex;
use store::io::{largest_room, record_gap};
use store::tier::most_bytes;

const MIB: usize = 1 << 20;

/// Maximum size of the arena for reads in bytes, not counting the slots that hold the encoded files of batches.
const LARGEST_READ_ARENA: usize = 256 * MIB;

const LOCAL_DEPTH: u32 = 32;

/// Minimum and maximum number of reads in flight from servers. A server responds slowly, but can serve hundreds of
/// reads at a time.
const FEWEST_FROM_SERVERS: u32 = 64;
const MAX_FROM_SERVERS: u32 = 256;

/// Maximum total size in bytes of the slots for reads from servers. The first [`FEWEST_FROM_SERVERS`] reads get their
/// slots even above this limit.
const LARGEST_FOR_SERVERS: usize = 96 * MIB;

impl LoaderOptions {
    pub(super) fn depth_for(&self, index: &DatasetIndex) -> u32 {
        match self.queue_depth {
            Some(depth) => depth,
            None if !index.has_remote() => LOCAL_DEPTH,
            // Reads may go to other nodes of the job, which are busy with training, so use few.
            None if self.peers.on => FEWEST_FROM_SERVERS,
            None => {
                let bytes = self.memory.unwrap_or(u64::MAX).min(LARGEST_FOR_SERVERS as u64) as usize;
                let most = bytes / space_for(SLOTS_OF_READ, index.mean_bytes().max(1) as usize);
                (most as u32).clamp(FEWEST_FROM_SERVERS, MAX_FROM_SERVERS)
            }
        }
    }
}

pub(super) struct PoolSizing<'a> {
    pub options: &'a LoaderOptions,
    pub index: &'a DatasetIndex,
    pub threads: usize,
    pub queue_depth: usize,
    /// With a cache, samples may be in another storage format, which may be larger.
    pub has_cache: bool,
    /// Whether images keep their own sizes. Their sizes are then unknown before they are decoded.
    pub has_own_sizes: bool,
    /// The bytes of the arena that the largest sample, or the windows of the largest sample, take ([`largest_slot`]).
    pub largest: usize,
    /// Whether only windows of arrays are read.
    pub reads_windows: bool,
}

/// Minimum number of batches in the pipeline: being filled, or waiting for the consumer.
const FEWEST_AHEAD: usize = 2;

/// Number of slots for each read in flight: one for the read, and one for a sample that has arrived and waits to be
/// decoded.
const SLOTS_OF_READ: usize = 2;

impl PoolSizing<'_> {
    pub(super) fn warn_about_sizes(&self) {
        let Some(memory) = self.options.memory.filter(|_| self.has_own_sizes) else { return };
        self.index.notices().warn_once("memory", || {
            format!(
                "memory is {memory} bytes, but it does not limit images of varying size: only the number of their \
                 batches is limited ({FEWEST_AHEAD} ahead, plus those you keep). Add a transform that fixes the size, \
                 such as RandomCrop or CenterCrop, or lower batch_size"
            )
        });
    }

    /// Returns the sizes of the pools for batches of `batch_bytes` in host memory. The slots hold the reads in flight
    /// and the samples that wait to be decoded.
    ///
    /// # Errors
    /// [`Error::Config`] for a `memory` that is too small for these pools, or a `batch_size` that is too large.
    pub(super) fn with_batches(&self, batch_bytes: usize) -> Result<Pools> {
        let keep = self.options.keep as usize;
        // A decoded image frees its slot at once; encoded files stay in their slots.
        let held = if self.options.decoded { 0 } else { self.slots_of_a_batch() };
        let smallest_slots = arena(self.two_largest().saturating_add(held.saturating_mul(keep + 1)));
        // Enough batches to bridge a short stall, but not so many that large batches fill the memory.
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
                if self.index.has_arrays() && smallest_slots > machine / 4 {
                    let message = format!(
                        "select arrays of which a sample needs {} while it is read, but two samples must fit into a \
                         quarter of the memory, {}: read smaller windows with window=, or fewer fields",
                        in_gib(self.largest),
                        in_gib(machine / 4)
                    );
                    return Err(Error::config("fields", message));
                }
                let slot_bytes = usual_slots.min(machine / 4 / (2 * MIB) * (2 * MIB)).max(smallest_slots);
                let most = ((machine / 4).saturating_sub(slot_bytes) / batch_bytes.max(1)).max(needed);
                Ok(Pools { slot_bytes, prefetch: usual_prefetch, batches: most })
            }
            Some(memory) => {
                let memory = usize::try_from(memory).unwrap_or(usize::MAX);
                // The batches that the consumer keeps, and two that are being filled.
                let fewest = keep + 2;
                let batches_bytes = batch_bytes.saturating_mul(fewest);
                let least = smallest_slots.saturating_add(batches_bytes);
                if memory < least {
                    let lower = match self.index.has_arrays() {
                        true => ". Or lower batch_size, or read smaller windows with window=",
                        false => "",
                    };
                    return Err(Error::config(
                        "memory",
                        format!(
                            "is {memory} bytes, must be at least {least}: {smallest_slots} for reading, plus {fewest} \
                             batches of {batch_bytes}{lower}"
                        ),
                    ));
                }
                let slot_bytes = usual_slots.min(memory - batches_bytes) / (2 * MIB) * (2 * MIB);
                let slot_bytes = slot_bytes.max(smallest_slots);
                let batches = (memory - slot_bytes) / batch_bytes.max(1);
                // If the size of batches is unknown, only their number can limit the memory.
                let prefetch = if self.has_own_sizes { FEWEST_AHEAD } else { usual_prefetch };
                Ok(Pools { slot_bytes, prefetch: prefetch.min(batches - 1), batches })
            }
        }
    }

    fn too_large(&self, bytes: usize, needed: usize, machine: usize) -> Error {
        let LoaderOptions { batch_size, keep, image_size: (height, width), local_world_size, .. } =
            self.options;
        let part = local_world_size
            .map_or_else(String::new, |ranks| format!(" (this rank's share with local_world_size={ranks})"));
        let lower = match (self.options.decoded, &self.options.transforms) {
            (false, _) => "lower batch_size",
            (true, None) if self.options.kind == LoaderKind::Fields => "lower batch_size",
            (true, None) => "lower image_size or batch_size, or choose dtype=\"float16\" or \"uint8\"",
            (true, Some(_)) => {
                "lower batch_size or the size in transforms, or choose a smaller dtype with ToDtype"
            }
        };
        let must = format!(
            "{needed} batches of {} do not fit into {} of memory{part}: {lower}",
            in_gib(bytes),
            in_gib(machine)
        );
        if let Some(tokens) = self.options.batch_tokens {
            let message = format!(
                "is {tokens}, so a batch can have {batch_size} samples, but {needed} batches of {} do not fit into {} \
                 of memory{part}: lower batch_tokens, or make images smaller",
                in_gib(bytes),
                in_gib(machine)
            );
            return Error::config("batch_tokens", message);
        }
        let usual = LoaderOptions::default();
        let pixels = |(height, width): (u32, u32)| u64::from(height) * u64::from(width);
        let times_usual = pixels(self.options.image_size) / pixels(usual.image_size);
        let has_size = self.options.decoded
            && self.options.transforms.is_none()
            && self.options.kind != LoaderKind::Fields;
        if *keep > 1 {
            Error::config("keep", format!("is {keep}, but {must}; or lower keep"))
        } else if has_size && times_usual > u64::from(batch_size / usual.batch_size) {
            Error::config("image_size", format!("is ({height}, {width}), but {must}"))
        } else {
            Error::config("batch_size", format!("is {batch_size}, but {must}"))
        }
    }

    /// Returns the sizes of the host pools if batches are on a GPU. Files stay in their slots until their whole batch
    /// is decoded.
    ///
    /// # Errors
    /// [`Error::Config`] for a `memory` that is too small.
    pub(super) fn for_device(&self, device: &DevicePools) -> Result<Pools> {
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

    /// Returns the sizes of the host pools for batches of `batch_bytes` that are copied to a GPU when they are
    /// complete. Until then they are in host memory, so these sizes are like those for batches on the CPU.
    ///
    /// # Errors
    /// The errors of [`PoolSizing::with_batches`].
    pub(super) fn for_arrays_on(&self, device: &DevicePools, batch_bytes: usize) -> Result<Pools> {
        let host = self.with_batches(batch_bytes)?;
        Ok(Pools { prefetch: host.prefetch.min(device.prefetch), batches: device.batches, ..host })
    }

    /// Returns the maximum size in bytes of the cache of JPEG row starts. The row starts of a photograph take half a
    /// KB.
    pub(super) fn row_bytes(&self) -> usize {
        match self.options.memory {
            None => self.memory_here() / 32,
            Some(memory) => usize::try_from(memory / 16).unwrap_or(usize::MAX),
        }
    }

    fn memory_here(&self) -> usize {
        let machine = usize::try_from(store::io::storage::memory_limit()).unwrap_or(usize::MAX);
        machine / self.options.local_world_size.unwrap_or(1).max(1) as usize
    }

    /// Returns the space in bytes for two of the largest samples, so that one can be read while another is decoded. The
    /// limit keeps one huge file from deciding the size: a sample that does not fit fails like any other bad sample.
    fn two_largest(&self) -> usize {
        arena(2 * self.largest).min(self.largest_arena())
    }

    /// Returns the limit of the arena in bytes, not counting the slots that hold the encoded files of batches. Arrays
    /// are alike, so that the largest sample is usual and must not fail.
    fn largest_arena(&self) -> usize {
        let largest = if self.index.has_arrays() { self.largest.saturating_mul(4) } else { 0 };
        LARGEST_READ_ARENA.max(arena(largest))
    }

    /// Returns the space in bytes for the reads in flight, for the same number of samples that have arrived, and for a
    /// few samples per worker.
    fn reads(&self) -> usize {
        let samples = SLOTS_OF_READ * self.queue_depth + 8 * self.threads;
        space_for(samples, self.mean_bytes()).clamp(16 * MIB, self.largest_arena())
    }

    fn slots_of_a_batch(&self) -> usize {
        let n = self.options.batch_size as usize;
        let largest = self.largest;
        // Allow a quarter more than the mean, plus two of the largest samples, because small batches vary most.
        let usual = n.saturating_mul(slot_bytes(self.mean_bytes()) / 4 * 5).saturating_add(2 * largest);
        usual.min(n.saturating_mul(largest))
    }

    fn mean_bytes(&self) -> usize {
        if self.index.has_arrays() {
            // Each piece of a record is aligned to pages at both ends.
            let pieces = self.index.total_reads().div_ceil(self.index.len().max(1)) as usize;
            let whole = self.index.mean_bytes() as usize + pieces * 2 * PAGE;
            return if self.reads_windows { whole.min(self.largest) } else { whole };
        }
        most_read(u32::try_from(self.index.mean_bytes()).unwrap_or(u32::MAX), self.has_cache) as usize
    }
}

/// Returns the maximum number of bytes of the arena that a sample takes. If only windows are read, they need slots of
/// the length `windows`.
pub(super) fn largest_slot(index: &DatasetIndex, has_cache: bool, windows: Option<usize>) -> usize {
    slot_bytes(match index.has_arrays() {
        true => {
            let whole = largest_room(index, record_gap(index));
            windows.map_or(whole, |windows| windows.min(whole))
        }
        false => most_read(index.largest(), has_cache) as usize,
    })
}

/// Returns the space in bytes for `samples` samples of mean size, and half as much again because sizes vary.
fn space_for(samples: usize, mean_bytes: usize) -> usize {
    samples * mean_bytes / 2 * 3
}

/// Returns the maximum number of bytes that are read for a sample of `length` bytes. With a cache, its copy may have
/// another storage format.
pub(super) fn most_read(length: u32, has_cache: bool) -> u32 {
    if has_cache { most_bytes(length) } else { length }
}

/// Returns the maximum number of bytes of the arena that a slot for a file of `length` bytes takes, including
/// alignment.
fn slot_bytes(length: usize) -> usize {
    length + 3 * 4096
}

/// Rounds up to whole huge pages.
fn arena(bytes: usize) -> usize {
    bytes.checked_next_multiple_of(2 * MIB).unwrap_or(usize::MAX)
}
