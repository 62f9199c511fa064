//! The kernel that decodes packed images: what a launch of it touches, and its CPU build.

use crate::augment::{all_sound, turn};
use crate::kernels::Launch;
use crate::shadow::{Access, Kind};
use crate::stream::Running;
use std::ffi::c_void;

// These functions are in `packed.c`.
unsafe extern "C" {
    fn standin_row_bytes() -> u64;
    fn standin_image_entry_bytes() -> u64;
    fn standin_image_of(row: u64) -> u32;
    fn standin_row_reads(row: u64, visit: Visit, to: *mut c_void);
    fn standin_row_writes(image: u64, row: u64, damage: u64, visit: Visit, to: *mut c_void);
}

type Visit = extern "C" fn(*mut c_void, u64, u64);

extern "C" fn read(to: *mut c_void, start: u64, end: u64) {
    push(to, Access { kind: Kind::Read, start, end });
}

extern "C" fn write(to: *mut c_void, start: u64, end: u64) {
    push(to, Access { kind: Kind::Write, start, end });
}

fn push(to: *mut c_void, access: Access) {
    // SAFETY: the pointer that `run` gave.
    unsafe { (*to.cast::<Vec<Access>>()).push(access) };
}

/// Enters all accesses, then does the work; returns what is wrong with the launch.
pub fn run(launch: &Launch, running: &mut Running) -> Result<(), String> {
    let [images, rows, damage] = [0, 1, 2].map(|index| launch.address(index));
    // SAFETY: pure functions.
    let (row_bytes, image_bytes) = unsafe { (standin_row_bytes(), standin_image_entry_bytes()) };
    let end = rows + u64::from(launch.grid[0]) * row_bytes;
    if !running.check(Access { kind: Kind::Read, start: rows, end }) {
        return Ok(());
    }
    let mut touched: Vec<Access> = Vec::new();
    let to = (&raw mut touched).cast();
    let mut known = None;
    for row in (rows..end).step_by(row_bytes as usize) {
        // SAFETY: the rows were checked to be device memory that is written.
        let start = images + u64::from(unsafe { standin_image_of(row) }) * image_bytes;
        let entry = Access { kind: Kind::Read, start, end: start + image_bytes };
        if known != Some(start) && !running.check(entry) {
            return Ok(());
        }
        known = Some(start);
        // SAFETY: so was the image's entry.
        unsafe {
            standin_row_reads(row, read, to);
            standin_row_writes(start, row, damage, write, to);
        }
    }
    if !all_sound(touched, running) {
        return Ok(());
    }
    let turn = turn(launch, running);
    let arguments = [0, 1, 2].map(|index| launch.arguments[index].as_ptr().cast());
    // SAFETY: the arguments have the kernel's sizes, and all that it reads and writes was checked.
    unsafe { kernels_stand_in::launch_packed(launch.grid, launch.block, launch.shared, turn, arguments) }
}
