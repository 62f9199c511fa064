//! What the kernels of our own read of the images that they decode, one table behind the other.

use super::gather::{GatherTable, PIECE_BYTES, QUAD_BYTES};
use super::indexed::IndexedTable;
use super::packed::PackedTable;
use crate::decode::jpeg::plan::{OwnPlan, PlannedRows};

/// A kernel that decodes images, or the one that gathers what they are decoded from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OwnKernel {
    /// That of packed images, with a block of threads for each row of MCUs.
    Packed,
    /// That of indexed images, with a block of threads for some rows of MCUs.
    Indexed,
    /// That of the bytes of both, with a block of threads for each piece.
    Gather,
}

impl OwnKernel {
    /// All of them, each at the index that is its number.
    pub const ALL: [Self; 3] = [Self::Packed, Self::Indexed, Self::Gather];

    /// The name of the kernel.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Packed => "foreload_packed",
            Self::Indexed => "foreload_indexed",
            Self::Gather => "foreload_gather",
        }
    }

    /// The threads of a block, and the bytes that they share. A thread of a decoder has a block of 8×8 samples at a
    /// time.
    pub const fn block(self) -> (u32, u32) {
        match self {
            Self::Packed => (128, 20_036),
            Self::Indexed => (128, 26_856),
            Self::Gather => (128, 0),
        }
    }

    /// The number of its parameters, all of which are addresses: the parts of its table, then a decoder's counts of
    /// damage.
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
pub struct OwnLaunch {
    /// The kernel.
    pub kernel: OwnKernel,
    /// How many blocks of threads it has.
    pub blocks: u32,
    /// The addresses that are its arguments.
    pub arguments: Vec<u64>,
}

/// Where an image is, by addresses of the device.
#[derive(Debug, Clone, Copy)]
pub struct OwnPlaces {
    /// [The bytes that are needed of it](OwnPlan::bytes), in page-locked memory. Where they are part of 16 bytes at a
    /// multiple of 16, the others of these can be read too.
    pub from: u64,
    /// Where they are gathered: device memory of [`OwnTables::room`] bytes, at a multiple of 16.
    pub bytes: u64,
    /// Where its planes go, a multiple of 64.
    pub planes: u64,
}

/// The bytes that are usually needed of an image, or fewer.
const USUAL_BYTES: usize = 128 << 10;

/// The rows of MCUs that are usually wanted of an image, or fewer: as many as 640 rows of pixels have.
const USUAL_ROWS: usize = 40;

/// The Huffman codes that an image usually has of its own, or fewer.
const USUAL_CODES: usize = 4;

/// The images that are decoded by one launch of each kernel.
#[derive(Debug, Default)]
pub struct OwnTables {
    gather: GatherTable,
    packed: PackedTable,
    indexed: IndexedTable,
}

impl OwnTables {
    /// The bytes that the tables of so many images usually have.
    pub const fn usual_bytes(images: usize) -> usize {
        let (packed, indexed) =
            (PackedTable::image_bytes(USUAL_ROWS), IndexedTable::image_bytes(USUAL_ROWS, USUAL_CODES));
        let decoder = if packed > indexed { packed } else { indexed };
        images.saturating_mul(GatherTable::image_bytes(USUAL_BYTES) + decoder)
    }

    /// The most bytes that an image takes of tables.
    pub fn most_bytes(plan: &OwnPlan) -> usize {
        let decoder = match &plan.rows {
            PlannedRows::Packed(rows) => PackedTable::image_bytes(rows.len()),
            PlannedRows::Indexed(scan, rows) => IndexedTable::image_bytes(rows.len(), 2 * scan.codes.len()),
        };
        GatherTable::image_bytes(plan.bytes.len()) + decoder
    }

    /// The bytes of a quad, and the most of a piece that [`OwnKernel::Gather`] moves.
    pub const PIECE_BYTES: [u64; 2] = [QUAD_BYTES, PIECE_BYTES];

    /// The device memory in which the bytes of an image are gathered, of which so many are needed.
    pub const fn room(needed: u64) -> u64 {
        GatherTable::room(needed)
    }

    /// Begins the tables of other launches.
    pub fn clear(&mut self) {
        self.gather.clear();
        self.packed.clear();
        self.indexed.clear();
    }

    /// Adds an image to be decoded as `plan` says. What is damaged of it is counted by the number `damage`.
    pub fn add(&mut self, plan: &OwnPlan, places: OwnPlaces, damage: u32) {
        let bytes = self.gather.add(places.from, plan.bytes.len() as u64, places.bytes);
        let at = [places.planes, bytes];
        match &plan.rows {
            PlannedRows::Packed(rows) => self.packed.add(plan, rows, at, damage),
            PlannedRows::Indexed(scan, rows) => self.indexed.add(plan, (scan, rows), at, damage),
        }
    }

    /// The number of bytes of the tables.
    pub fn bytes(&self) -> usize {
        self.parts().iter().map(|part| part.len()).sum()
    }

    /// Writes the tables to `to`, which has as many bytes.
    ///
    /// # Panics
    /// If `to` has fewer bytes.
    pub fn write(&self, mut to: &mut [u8]) {
        for part in self.parts() {
            let (here, rest) = to.split_at_mut(part.len());
            here.copy_from_slice(part);
            to = rest;
        }
    }

    /// The launches that gather what all images need and then decode them, whose tables are at the address `at`, a
    /// multiple of 8, and whose damage is counted by 32-bit numbers behind `damage`.
    pub fn launches(&self, at: u64, damage: u64) -> impl Iterator<Item = OwnLaunch> {
        let mut end = at;
        let addresses = self.parts().map(|part| {
            let start = end;
            end += part.len() as u64;
            start
        });
        let (gather, decoders) = addresses.split_at(OwnKernel::Gather.parameters());
        let (packed, indexed) = decoders.split_at(OwnKernel::Packed.parameters() - 1);
        let with_damage = |parts: &[u64]| [parts, &[damage]].concat();
        let launches = [
            (OwnKernel::Gather, self.gather.blocks(), gather.to_vec()),
            (OwnKernel::Packed, self.packed.blocks(), with_damage(packed)),
            (OwnKernel::Indexed, self.indexed.blocks(), with_damage(indexed)),
        ];
        let launches = launches.map(|(kernel, blocks, arguments)| OwnLaunch { kernel, blocks, arguments });
        launches.into_iter().filter(|launch| launch.blocks > 0)
    }

    /// All parts of the tables, of which only the last one's length may be no multiple of 8.
    fn parts(&self) -> [&[u8]; 7] {
        let ([images, rows], [indexed, codes, entries, groups]) = (self.packed.parts(), self.indexed.parts());
        [self.gather.part(), images, rows, indexed, codes, entries, groups]
    }
}
