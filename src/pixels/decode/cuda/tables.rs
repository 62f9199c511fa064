//! The tables that Foreload's own kernels read for the images of a launch, stored one after another.

use super::gather::{GatherTable, PIECE_BYTES, QUAD_BYTES};
use super::indexed::IndexedTable;
use super::packed::PackedTable;
use crate::decode::jpeg::plan::{CudaPlan, PlannedRows};

/// A kernel that decodes images, or the kernel that gathers their bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CudaKernel {
    /// Decodes packed images, with a thread block for each row of MCUs.
    Packed,
    /// Decodes indexed images, with a thread block for each group of rows of MCUs.
    Indexed,
    /// Gathers the bytes for both, with a thread block for each chunk.
    Gather,
}

impl CudaKernel {
    /// All kernels, each at the index of its discriminant.
    pub const ALL: [Self; 3] = [Self::Packed, Self::Indexed, Self::Gather];

    /// The name of the kernel's function.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Packed => "foreload_packed",
            Self::Indexed => "foreload_indexed",
            Self::Gather => "foreload_gather",
        }
    }

    /// The threads of a block, and the bytes of shared memory per block. A thread of a decoder handles one block of 8×8
    /// samples at a time.
    pub const fn block(self) -> (u32, u32) {
        match self {
            Self::Packed => (128, 20_036),
            Self::Indexed => (128, 26_856),
            Self::Gather => (128, 0),
        }
    }

    /// The number of its parameters, all of which are addresses: the arrays of its table, then, for a decoder, the
    /// damage counters.
    pub const fn parameters(self) -> usize {
        match self {
            Self::Packed => 3,
            Self::Indexed => 5,
            Self::Gather => 1,
        }
    }
}

/// A launch of a kernel.
#[derive(Debug)]
pub struct CudaLaunch {
    /// The kernel.
    pub kernel: CudaKernel,
    /// The number of thread blocks.
    pub blocks: u32,
    /// The addresses that are passed as arguments.
    pub arguments: Vec<u64>,
}

/// The places of an image, as device addresses.
#[derive(Debug, Clone, Copy)]
pub struct ImageAddresses {
    /// [The bytes that are needed](CudaPlan::bytes), in page-locked memory. Aligned groups of 16 bytes that contain
    /// some of them must be readable as a whole.
    pub from: u64,
    /// The destination of the gathered bytes: device memory of [`LaunchTables::room`] bytes, at a multiple of 16.
    pub bytes: u64,
    /// The destination of the planes, a multiple of 64.
    pub planes: u64,
}

/// The number of needed bytes that an image usually does not exceed.
const USUAL_BYTES: usize = 128 << 10;

/// The number of wanted rows of MCUs that an image usually does not exceed: that of 640 rows of pixels.
const USUAL_ROWS: usize = 40;

/// The number of its own Huffman codes that an image usually does not exceed.
const USUAL_CODES: usize = 4;

/// The images that are decoded by one launch of each kernel.
#[derive(Debug, Default)]
pub struct LaunchTables {
    gather: GatherTable,
    packed: PackedTable,
    indexed: IndexedTable,
}

impl LaunchTables {
    /// The usual size in bytes of the tables of this many images.
    pub const fn usual_bytes(images: usize) -> usize {
        let (packed, indexed) =
            (PackedTable::image_bytes(USUAL_ROWS), IndexedTable::image_bytes(USUAL_ROWS, USUAL_CODES));
        let decoder = if packed > indexed { packed } else { indexed };
        images.saturating_mul(GatherTable::image_bytes(USUAL_BYTES) + decoder)
    }

    /// The largest number of bytes that an image takes in the tables.
    pub fn most_bytes(plan: &CudaPlan) -> usize {
        let decoder = match &plan.rows {
            PlannedRows::Packed(rows) => PackedTable::image_bytes(rows.len()),
            PlannedRows::Indexed(scan, rows) => IndexedTable::image_bytes(rows.len(), 2 * scan.codes.len()),
        };
        GatherTable::image_bytes(plan.bytes.len()) + decoder
    }

    /// The bytes of a quad, and the largest size of a chunk that [`CudaKernel::Gather`] copies.
    pub const PIECE_BYTES: [u64; 2] = [QUAD_BYTES, PIECE_BYTES];

    /// The device memory for gathering an image of which `needed` bytes are needed.
    pub const fn room(needed: u64) -> u64 {
        GatherTable::room(needed)
    }

    /// Clears the tables for the next launch.
    pub fn clear(&mut self) {
        self.gather.clear();
        self.packed.clear();
        self.indexed.clear();
    }

    /// Adds an image that is decoded by `plan`. `damage` is the index of the image's damage counter.
    pub fn add(&mut self, plan: &CudaPlan, places: ImageAddresses, damage: u32) {
        let bytes = self.gather.add(places.from, plan.bytes.len() as u64, places.bytes);
        let at = [places.planes, bytes];
        match &plan.rows {
            PlannedRows::Packed(rows) => self.packed.add(plan, rows, at, damage),
            PlannedRows::Indexed(scan, rows) => self.indexed.add(plan, (scan, rows), at, damage),
        }
    }

    /// The size of the tables in bytes.
    pub fn bytes(&self) -> usize {
        self.parts().iter().map(|part| part.len()).sum()
    }

    /// Writes the tables to `to`.
    ///
    /// # Panics
    /// Panics if `to` has fewer bytes than the tables.
    pub fn write(&self, mut to: &mut [u8]) {
        for part in self.parts() {
            let (here, rest) = to.split_at_mut(part.len());
            here.copy_from_slice(part);
            to = rest;
        }
    }

    /// The launches that gather the bytes of all images and then decode them. The tables must be at the address `at`, a
    /// multiple of 8. `damage` is the address of the 32-bit damage counters.
    pub fn launches(&self, at: u64, damage: u64) -> impl Iterator<Item = CudaLaunch> {
        let mut end = at;
        let addresses = self.parts().map(|part| {
            let start = end;
            end += part.len() as u64;
            start
        });
        let (gather, decoders) = addresses.split_at(CudaKernel::Gather.parameters());
        let (packed, indexed) = decoders.split_at(CudaKernel::Packed.parameters() - 1);
        let with_damage = |parts: &[u64]| [parts, &[damage]].concat();
        let launches = [
            (CudaKernel::Gather, self.gather.blocks(), gather.to_vec()),
            (CudaKernel::Packed, self.packed.blocks(), with_damage(packed)),
            (CudaKernel::Indexed, self.indexed.blocks(), with_damage(indexed)),
        ];
        let launches = launches.map(|(kernel, blocks, arguments)| CudaLaunch { kernel, blocks, arguments });
        launches.into_iter().filter(|launch| launch.blocks > 0)
    }

    /// All arrays of the tables. The length of each, except possibly the last, is a multiple of 8.
    fn parts(&self) -> [&[u8]; 7] {
        let ([images, rows], [indexed, codes, entries, groups]) = (self.packed.parts(), self.indexed.parts());
        [self.gather.part(), images, rows, indexed, codes, entries, groups]
    }
}
