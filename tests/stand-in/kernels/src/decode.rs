//! The kernels that decode packed and indexed images, and the one that gathers their bytes.

use super::judged;
use std::ffi::c_void;

unsafe extern "C" {
    fn foreload_gather(n: u32, threads: u32, turn: u32, pieces: *const c_void) -> u32;
    fn foreload_packed(
        n: u32,
        threads: u32,
        shared: u32,
        turn: u32,
        images: *const c_void,
        rows: *const c_void,
        damage: *mut c_void,
    ) -> u32;
    fn foreload_indexed(
        n: u32,
        threads: u32,
        shared: u32,
        turn: u32,
        images: *const c_void,
        codes: *const c_void,
        rows: *const c_void,
        groups: *const c_void,
        damage: *mut c_void,
    ) -> u32;
    fn foreload_packed_shared() -> u32;
    fn foreload_indexed_shared() -> u32;
    fn foreload_quad_bytes() -> u32;
    fn foreload_piece_bytes() -> u32;
}

/// The name of the kernel that gathers the bytes of images, which has one parameter: its pieces.
pub const GATHER: &str = "foreload_gather";

/// The name of the kernel that decodes packed images.
pub const PACKED: &str = "foreload_packed";

/// The sizes of the parameters of [`PACKED`]: images, rows, damage.
pub const PACKED_PARAMETERS: [usize; 3] = [8, 8, 8];

/// The name of the kernel that decodes indexed images.
pub const INDEXED: &str = "foreload_indexed";

/// The sizes of the parameters of [`INDEXED`]: images, codes, rows, groups, damage.
pub const INDEXED_PARAMETERS: [usize; 5] = [8, 8, 8, 8, 8];

/// Runs [`GATHER`] to its end, like [`launch`](super::launch).
///
/// # Safety
/// The rules of [`launch`](super::launch), with one address.
pub unsafe fn launch_gather(
    grid: [u32; 3],
    block: [u32; 3],
    shared: u32,
    turn: u32,
    [pieces]: [*const c_void; 1],
) -> Result<(), String> {
    // SAFETY: the argument is an address, as the caller guarantees, and so are the addresses in its entries.
    let status =
        unsafe { foreload_gather(grid[0], block[0], turn, pieces.cast::<*const c_void>().read_unaligned()) };
    judged(GATHER, status, grid, block, shared)
}

/// Runs [`PACKED`] to its end, like [`launch`](super::launch).
///
/// # Safety
/// The rules of [`launch`](super::launch), with the sizes of [`PACKED_PARAMETERS`].
pub unsafe fn launch_packed(
    grid: [u32; 3],
    block: [u32; 3],
    shared: u32,
    turn: u32,
    arguments: [*const c_void; 3],
) -> Result<(), String> {
    // SAFETY: the caller guarantees that the arguments are addresses.
    let [images, rows, damage] = arguments.map(|at| unsafe { at.cast::<*mut c_void>().read_unaligned() });
    // SAFETY: as the caller guarantees.
    let status = unsafe { foreload_packed(grid[0], block[0], shared, turn, images, rows, damage) };
    judged(PACKED, status, grid, block, shared)
}

/// Runs [`INDEXED`] to its end, like [`launch`](super::launch).
///
/// # Safety
/// The rules of [`launch`](super::launch), with the sizes of [`INDEXED_PARAMETERS`].
pub unsafe fn launch_indexed(
    grid: [u32; 3],
    block: [u32; 3],
    shared: u32,
    turn: u32,
    arguments: [*const c_void; 5],
) -> Result<(), String> {
    // SAFETY: the caller guarantees that the arguments are addresses.
    let [images, codes, rows, groups, damage] =
        arguments.map(|at| unsafe { at.cast::<*mut c_void>().read_unaligned() });
    // SAFETY: as the caller guarantees.
    let status =
        unsafe { foreload_indexed(grid[0], block[0], shared, turn, images, codes, rows, groups, damage) };
    judged(INDEXED, status, grid, block, shared)
}

/// The bytes of shared memory that a block of [`PACKED`] and one of [`INDEXED`] need.
pub fn shared_bytes() -> [u32; 2] {
    // SAFETY: pure functions.
    unsafe { [foreload_packed_shared(), foreload_indexed_shared()] }
}

/// The bytes of a quad, and the most bytes of a piece that [`GATHER`] moves.
pub fn piece_bytes() -> [u32; 2] {
    // SAFETY: pure functions.
    unsafe { [foreload_quad_bytes(), foreload_piece_bytes()] }
}
