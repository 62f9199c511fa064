//! The tables that Foreload's own kernels read for the images of a launch, stored one after another.

use super::gather::{CHUNK_BYTES, GatherTable, QUAD_BYTES};
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
    /// Gathers the bytes for both decoding kernels, with a thread block for each chunk.
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

    /// Returns (threads per thread block, bytes of shared memory per thread block). A thread of a decoding kernel
    /// handles one 8×8 block of an image at a time.
    pub const fn block(self) -> (u32, u32) {
        match self {
            Self::Packed => (128, 20_036),
            Self::Indexed => (128, 26_856),
            Self::Gather => (128, 0),
        }
    }

    /// The number of the kernel's parameters, all of which are addresses: the arrays of the kernel's table and, for a
    /// decoding kernel, the damage counters.
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

/// The device addresses of an image's bytes and planes.
#[derive(Debug, Clone, Copy)]
pub struct ImageAddresses {
    /// The source: [the needed bytes](CudaPlan::bytes) in page-locked memory. Every aligned group of 16 bytes that
    /// contains a needed byte must be readable as a whole.
    pub from: u64,
    /// The destination of the gathered bytes: device memory of [`LaunchTables::gather_bytes`] bytes, at a multiple of
    /// 16.
    pub bytes: u64,
    /// The destination of the planes, a multiple of 64.
    pub planes: u64,
}

/// The usual maximum number of bytes that decoding an image needs.
const USUAL_BYTES: usize = 128 << 10;

/// The usual maximum number of rows of MCUs that are decoded of an image. 40 rows of 16 pixels cover an image of 640
/// rows of pixels.
const USUAL_ROWS: usize = 40;

/// The usual maximum number of Huffman codes that an image adds to the table.
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

    /// The maximum number of bytes that an image with this plan takes in the tables.
    pub fn most_bytes(plan: &CudaPlan) -> usize {
        let decoder = match &plan.rows {
            PlannedRows::Packed(rows) => PackedTable::image_bytes(rows.len()),
            PlannedRows::Indexed(scan, rows) => IndexedTable::image_bytes(rows.len(), 2 * scan.codes.len()),
        };
        GatherTable::image_bytes(plan.bytes.len()) + decoder
    }

    /// The size of a quad and the maximum size of a chunk, in bytes. A thread of [`CudaKernel::Gather`] copies one quad
    /// at a time.
    pub const COPY_SIZES: [u64; 2] = [QUAD_BYTES, CHUNK_BYTES];

    /// The size in bytes of the device memory that receives an image's `needed` bytes.
    pub const fn gather_bytes(needed: u64) -> u64 {
        needed + 2 * QUAD_BYTES
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

    /// All arrays of the tables. Every array except possibly the last has a length that is a multiple of 8 bytes.
    fn parts(&self) -> [&[u8]; 7] {
        let ([images, rows], [indexed, codes, entries, groups]) = (self.packed.parts(), self.indexed.parts());
        [self.gather.part(), images, rows, indexed, codes, entries, groups]
    }
}
