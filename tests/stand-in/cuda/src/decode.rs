//! The kernels that gather the bytes of packed and indexed images, and decode them: the memory that a launch accesses,
//! and the CPU build that does its work.

use crate::augment::{all_sound, turn};
use crate::kernels::Launch;
use crate::shadow::{Access, Kind};
use crate::stream::Running;
use std::ffi::c_void;

// These functions are in `decode.c`.
unsafe extern "C" {
    fn standin_piece_bytes() -> u64;
    fn standin_gather_reads(piece: u64, visit: Visit, to: *mut c_void);
    fn standin_gather_writes(piece: u64, visit: Visit, to: *mut c_void);
    fn standin_packed_row_bytes() -> u64;
    fn standin_jpeg_image_bytes() -> u64;
    fn standin_indexed_row_bytes() -> u64;
    fn standin_indexed_image_bytes() -> u64;
    fn standin_code_bytes() -> u64;
    fn standin_group_bytes() -> u64;
    fn standin_image_of_row(row: u64) -> u32;
    fn standin_image_of_group(group: u64) -> u32;
    fn standin_first_of_group(group: u64) -> u32;
    fn standin_rows_of_group(group: u64) -> u32;
    fn standin_code_of(image: u64, component: u32, kind: u32) -> u32;
    fn standin_packed_reads(row: u64, visit: Visit, to: *mut c_void);
    fn standin_packed_writes(image: u64, row: u64, damage: u64, visit: Visit, to: *mut c_void);
    fn standin_indexed_reads(row: u64, visit: Visit, to: *mut c_void);
    fn standin_indexed_writes(image: u64, row: u64, damage: u64, visit: Visit, to: *mut c_void);
}

type Visit = extern "C" fn(*mut c_void, u64, u64);

extern "C" fn read(to: *mut c_void, start: u64, end: u64) {
    push(to, Access { kind: Kind::Read, start, end });
}

extern "C" fn write(to: *mut c_void, start: u64, end: u64) {
    push(to, Access { kind: Kind::Write, start, end });
}

fn push(to: *mut c_void, access: Access) {
    // SAFETY: this is the pointer that a launch's function gave.
    unsafe { (*to.cast::<Vec<Access>>()).push(access) };
}

/// A table in device memory: its address, and the bytes of an entry.
#[derive(Clone, Copy)]
struct Table(u64, u64);

impl Table {
    /// The address of an entry.
    fn at(self, number: u32) -> u64 {
        self.0 + u64::from(number) * self.1
    }

    /// Checks that the entries of all blocks of a launch, one per block, were written. Returns their addresses if so.
    fn of_blocks(self, launch: &Launch, running: &mut Running) -> Option<impl Iterator<Item = u64> + use<>> {
        let blocks = launch.grid[0];
        running.check(self.entries(0, blocks)).then(move || (0..blocks).map(move |number| self.at(number)))
    }

    /// The access that reads `count` entries from `first` on.
    fn entries(self, first: u32, count: u32) -> Access {
        Access { kind: Kind::Read, start: self.at(first), end: self.at(first + count) }
    }
}

/// Records all accesses of the kernel that gathers bytes, then does the work; returns an error if the launch is wrong.
pub fn run_gather(launch: &Launch, running: &mut Running) -> Result<(), String> {
    // SAFETY: a pure function.
    let pieces = Table(launch.address(0), unsafe { standin_piece_bytes() });
    let Some(pieces) = pieces.of_blocks(launch, running) else { return Ok(()) };
    let mut touched: Vec<Access> = Vec::new();
    let to = (&raw mut touched).cast();
    for piece in pieces {
        // SAFETY: the check shows that the pieces are device memory that was written.
        unsafe {
            standin_gather_reads(piece, read, to);
            standin_gather_writes(piece, write, to);
        }
    }
    // Loads and stores of 16 bytes fault at other addresses.
    if let Some(Access { start, .. }) = touched.iter().find(|access| !access.start.is_multiple_of(16)) {
        return Err(format!("a piece at {start:#x}, which is no multiple of 16"));
    }
    if !all_sound(touched, running) {
        return Ok(());
    }
    let turn = turn(launch, running);
    let arguments = [launch.arguments[0].as_ptr().cast()];
    // SAFETY: the argument has the kernel's size, and all memory that it accesses was checked.
    unsafe { kernels_stand_in::launch_gather(launch.grid, launch.block, launch.shared, turn, arguments) }
}

/// Records all accesses of the kernel that decodes packed images, then does the work; returns an error if the launch is
/// wrong.
pub fn run_packed(launch: &Launch, running: &mut Running) -> Result<(), String> {
    // SAFETY: pure functions.
    let sizes = unsafe { [standin_jpeg_image_bytes(), standin_packed_row_bytes()] };
    let [images, rows] = [0, 1].map(|index| Table(launch.address(index), sizes[index]));
    let damage = launch.address(2);
    let Some(rows) = rows.of_blocks(launch, running) else { return Ok(()) };
    let mut touched: Vec<Access> = Vec::new();
    let to = (&raw mut touched).cast();
    let mut known = None;
    for row in rows {
        // SAFETY: the check shows that the rows are device memory that was written.
        let image = unsafe { standin_image_of_row(row) };
        if known != Some(image) && !running.check(images.entries(image, 1)) {
            return Ok(());
        }
        known = Some(image);
        // SAFETY: the image's entry was checked, too.
        unsafe {
            standin_packed_reads(row, read, to);
            standin_packed_writes(images.at(image), row, damage, write, to);
        }
    }
    if !all_sound(touched, running) {
        return Ok(());
    }
    let turn = turn(launch, running);
    let arguments = [0, 1, 2].map(|index| launch.arguments[index].as_ptr().cast());
    // SAFETY: the arguments have the kernel's sizes, and all memory that it accesses was checked.
    unsafe { kernels_stand_in::launch_packed(launch.grid, launch.block, launch.shared, turn, arguments) }
}

/// Like [`run_packed`], for the kernel that decodes indexed images.
pub fn run_indexed(launch: &Launch, running: &mut Running) -> Result<(), String> {
    // SAFETY: pure functions.
    let sizes = unsafe {
        let image = standin_indexed_image_bytes();
        [image, standin_code_bytes(), standin_indexed_row_bytes(), standin_group_bytes()]
    };
    let [images, codes, rows, groups] = [0, 1, 2, 3].map(|index| Table(launch.address(index), sizes[index]));
    let damage = launch.address(4);
    let Some(groups) = groups.of_blocks(launch, running) else { return Ok(()) };
    let mut touched: Vec<Access> = Vec::new();
    let to = (&raw mut touched).cast();
    for group in groups {
        // SAFETY: the check shows that the groups are device memory that was written.
        let [image, first, count] = unsafe {
            [standin_image_of_group(group), standin_first_of_group(group), standin_rows_of_group(group)]
        };
        if !(running.check(images.entries(image, 1)) && running.check(rows.entries(first, count))) {
            return Ok(());
        }
        let of_image = images.at(image);
        for (component, kind) in (0..3).flat_map(|component| [(component, 0), (component, 1)]) {
            // SAFETY: the image's entry was checked.
            touched.push(codes.entries(unsafe { standin_code_of(of_image, component, kind) }, 1));
        }
        for row in (first..first + count).map(|number| rows.at(number)) {
            // SAFETY: the rows' entries were checked, too.
            unsafe {
                standin_indexed_reads(row, read, to);
                standin_indexed_writes(of_image, row, damage, write, to);
            }
        }
    }
    if !all_sound(touched, running) {
        return Ok(());
    }
    let turn = turn(launch, running);
    let arguments = [0, 1, 2, 3, 4].map(|index| launch.arguments[index].as_ptr().cast());
    // SAFETY: the arguments have the kernel's sizes, and all memory that it accesses was checked.
    unsafe { kernels_stand_in::launch_indexed(launch.grid, launch.block, launch.shared, turn, arguments) }
}
