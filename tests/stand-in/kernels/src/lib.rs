//! The kernels of `cuda/` as functions on the CPU, which do the work of a launch on a GPU thread by thread.

mod decode;

pub use decode::{
    GATHER, INDEXED, INDEXED_PARAMETERS, PACKED, PACKED_PARAMETERS, launch_gather, launch_indexed,
    launch_packed, piece_bytes, shared_bytes,
};

use std::ffi::c_void;

type Kernel = unsafe extern "C" fn(u32, u32, u32, u32, u32, *const c_void, *mut c_void, *const c_void) -> u32;

unsafe extern "C" {
    fn foreload_augment_fast(
        tiles: u32,
        n: u32,
        threads: u32,
        shared: u32,
        turn: u32,
        table: *const c_void,
        images: *mut c_void,
        output: *const c_void,
    ) -> u32;
    fn foreload_augment_exact(
        tiles: u32,
        n: u32,
        threads: u32,
        shared: u32,
        turn: u32,
        table: *const c_void,
        images: *mut c_void,
        output: *const c_void,
    ) -> u32;
    fn foreload_untouched(
        n: u32,
        threads: u32,
        shared: u32,
        turn: u32,
        table: *const c_void,
        counts: *mut c_void,
        poison: u32,
    ) -> u32;
    fn foreload_ops(
        n: u32,
        threads: u32,
        shared: u32,
        turn: u32,
        table: *const c_void,
        spans: *const c_void,
        words: *const c_void,
        levels: *mut c_void,
        set_bytes: u64,
        images: *mut c_void,
        output: *const c_void,
    ) -> u32;
    fn foreload_erase(
        n: u32,
        threads: u32,
        shared: u32,
        turn: u32,
        table: *const c_void,
        spans: *const c_void,
        words: *const c_void,
        images: *mut c_void,
        output: *const c_void,
    ) -> u32;
    fn foreload_mix(
        tiles: u32,
        n: u32,
        threads: u32,
        turn: u32,
        table: *const c_void,
        images: *mut c_void,
        output: *const c_void,
    ) -> u32;
    fn foreload_half_bits(value: f32) -> u32;
    fn foreload_brain_bits(value: f32) -> u32;
}

/// The sizes of the parameters of the kernels that make images: table, images, `OutputParams`.
pub const PARAMETERS: [usize; 3] = [8, 8, 88];

/// The bytes of an image's entry in the table, the first parameter.
pub const ENTRY: usize = 280;

/// The sizes of the parameters of [`UNTOUCHED`]: table, counts, poison.
pub const UNTOUCHED_PARAMETERS: [usize; 3] = [8, 8, 4];

/// The name of the kernel that counts untouched lines.
pub const UNTOUCHED: &str = "foreload_untouched";

/// The sizes of the parameters of [`OPS`]: table, spans, words, levels, bytes of a set, images, `OutputParams`.
pub const OPS_PARAMETERS: [usize; 7] = [8, 8, 8, 8, 8, 8, 88];

/// The name of the kernel that runs programs on grey levels and then makes images.
pub const OPS: &str = "foreload_ops";

/// The sizes of the parameters of [`ERASE`]: table, spans, words, images, `OutputParams`.
pub const ERASE_PARAMETERS: [usize; 5] = [8, 8, 8, 8, 88];

/// The name of the kernel that runs programs on finished images.
pub const ERASE: &str = "foreload_erase";

/// The bytes of an image's span, which gives the location of its program.
pub const SPAN: usize = 12;

/// The name of the kernel that mixes images; its parameters have the sizes of [`PARAMETERS`].
pub const MIX: &str = "foreload_mix";

/// The bytes of the table entry of a mixing group (ring).
pub const RING: usize = 48;

/// The most places of a mixing group.
pub const RING_PLACES: u64 = 4;

/// The names of the kernels that make images.
pub const KERNELS: [&str; 2] = ["foreload_augment_fast", "foreload_augment_exact"];

/// Runs a kernel to its end, like `cuLaunchKernel`. `turn` is the order in which the threads of a block run between two
/// barriers: 1 is ascending, and any number without a common divisor with the number of threads is another order. The
/// result must not depend on it.
///
/// Returns an error message if the launch is wrong.
///
/// # Safety
/// `arguments` must be pointers to the kernel's arguments, with the sizes of [`PARAMETERS`]. The addresses in the
/// arguments and in the table must point to memory of this process that is large enough for the kernel. No other code
/// may use that memory during the call.
pub unsafe fn launch(
    name: &str,
    grid: [u32; 3],
    block: [u32; 3],
    shared: u32,
    turn: u32,
    arguments: [*const c_void; 3],
) -> Result<(), String> {
    let kernel: Kernel = match name {
        "foreload_augment_fast" => foreload_augment_fast,
        "foreload_augment_exact" => foreload_augment_exact,
        _ => return Err(format!("there is no kernel {name}")),
    };
    if grid[2] != 1 || block[1..] != [1, 1] {
        return Err(format!("{name}: a grid of {grid:?} blocks of {block:?} threads"));
    }
    // SAFETY: the caller guarantees that the first two arguments are addresses.
    let [table, images] = [0, 1].map(|i| unsafe { arguments[i].cast::<*mut c_void>().read_unaligned() });
    // SAFETY: as the caller guarantees.
    match unsafe { kernel(grid[0], grid[1], block[0], shared, turn, table, images, arguments[2]) } {
        0 => Ok(()),
        1 => Err(format!("{name}: the tiles do not fit {grid:?} blocks of {block:?} threads")),
        _ => Err(format!("{name}: {shared} bytes of shared memory")),
    }
}

/// Runs [`UNTOUCHED`] to its end, like [`launch`].
///
/// # Safety
/// The rules of [`launch`], with the sizes of [`UNTOUCHED_PARAMETERS`].
pub unsafe fn launch_untouched(
    grid: [u32; 3],
    block: [u32; 3],
    shared: u32,
    turn: u32,
    arguments: [*const c_void; 3],
) -> Result<(), String> {
    // SAFETY: the caller guarantees that the first two arguments are addresses.
    let [table, counts] = [0, 1].map(|i| unsafe { arguments[i].cast::<*mut c_void>().read_unaligned() });
    // SAFETY: the caller guarantees that the last argument is an integer.
    let poison = unsafe { arguments[2].cast::<u32>().read_unaligned() };
    // SAFETY: as the caller guarantees.
    let status = unsafe { foreload_untouched(grid[0], block[0], shared, turn, table, counts, poison) };
    judged(UNTOUCHED, status, grid, block, shared)
}

/// Runs [`OPS`] to its end, like [`launch`].
///
/// # Safety
/// The rules of [`launch`], with the sizes of [`OPS_PARAMETERS`].
pub unsafe fn launch_ops(
    grid: [u32; 3],
    block: [u32; 3],
    shared: u32,
    turn: u32,
    arguments: [*const c_void; 7],
) -> Result<(), String> {
    let [table, spans, words, levels, _, images, output] = arguments;
    // SAFETY: the caller guarantees that these arguments are addresses.
    let [table, spans, words, levels, images] = [table, spans, words, levels, images]
        .map(|argument| unsafe { argument.cast::<*mut c_void>().read_unaligned() });
    // SAFETY: the caller guarantees that this argument is an integer.
    let set_bytes = unsafe { arguments[4].cast::<u64>().read_unaligned() };
    // SAFETY: as the caller guarantees.
    let status = unsafe {
        foreload_ops(grid[0], block[0], shared, turn, table, spans, words, levels, set_bytes, images, output)
    };
    judged(OPS, status, grid, block, shared)
}

/// Runs [`ERASE`] to its end, like [`launch`].
///
/// # Safety
/// The rules of [`launch`], with the sizes of [`ERASE_PARAMETERS`].
pub unsafe fn launch_erase(
    grid: [u32; 3],
    block: [u32; 3],
    shared: u32,
    turn: u32,
    arguments: [*const c_void; 5],
) -> Result<(), String> {
    // SAFETY: the caller guarantees that the first four arguments are addresses.
    let [table, spans, words, images] =
        [0, 1, 2, 3].map(|i| unsafe { arguments[i].cast::<*mut c_void>().read_unaligned() });
    // SAFETY: as the caller guarantees.
    let status =
        unsafe { foreload_erase(grid[0], block[0], shared, turn, table, spans, words, images, arguments[4]) };
    judged(ERASE, status, grid, block, shared)
}

/// The result of a kernel with one block per image, or per row, from its status.
fn judged(name: &str, status: u32, grid: [u32; 3], block: [u32; 3], shared: u32) -> Result<(), String> {
    match status {
        0 if grid[1..] == [1, 1] && block[1..] == [1, 1] => Ok(()),
        2 => Err(format!("{name}: {shared} bytes of shared memory")),
        _ => Err(format!("{name}: {grid:?} blocks of {block:?} threads")),
    }
}

/// Runs [`MIX`] to its end, like [`launch`].
///
/// # Safety
/// The rules of [`launch`].
pub unsafe fn launch_mix(
    grid: [u32; 3],
    block: [u32; 3],
    turn: u32,
    arguments: [*const c_void; 3],
) -> Result<(), String> {
    // SAFETY: the caller guarantees that the first two arguments are addresses.
    let [table, images] = [0, 1].map(|i| unsafe { arguments[i].cast::<*mut c_void>().read_unaligned() });
    let [tiles, n, 1] = grid else { return Err(format!("{MIX}: a grid of {grid:?}")) };
    // SAFETY: as the caller guarantees.
    match unsafe { foreload_mix(tiles, n, block[0], turn, table, images, arguments[2]) } {
        0 if block[1..] == [1, 1] => Ok(()),
        _ => Err(format!("{MIX}: {grid:?} blocks of {block:?} threads")),
    }
}

/// The kernels' conversion of a float to float16.
pub fn half_bits(value: f32) -> u16 {
    // SAFETY: a pure function.
    unsafe { foreload_half_bits(value) as u16 }
}

/// The kernels' conversion of a float to bfloat16.
pub fn brain_bits(value: f32) -> u16 {
    // SAFETY: a pure function.
    unsafe { foreload_brain_bits(value) as u16 }
}
