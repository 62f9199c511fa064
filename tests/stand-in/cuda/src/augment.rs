//! The augmentation kernels through their CPU build, and what a launch of them touches.

use super::Launch;
use crate::shadow::{Access, Kind};
use crate::stream::Running;

type Visit = extern "C" fn(*mut Vec<Access>, u64, u64);
type Build = unsafe extern "C" fn(u32, u32, u32, u32, u32, u64, u64, *const u8) -> u32;

// `augment.c`, and `cuda/augment_cpu.c` which it includes.
unsafe extern "C" {
    fn standin_image_size() -> u32;
    fn standin_output_size() -> u32;
    fn standin_image_bytes(output: *const u8) -> u64;
    fn standin_reads(image: u64, visit: Visit, to: *mut Vec<Access>);
    fn foreload_augment_fast(
        tiles: u32,
        n: u32,
        threads: u32,
        shared: u32,
        turn: u32,
        table: u64,
        images: u64,
        output: *const u8,
    ) -> u32;
    fn foreload_augment_exact(
        tiles: u32,
        n: u32,
        threads: u32,
        shared: u32,
        turn: u32,
        table: u64,
        images: u64,
        output: *const u8,
    ) -> u32;
}

/// A table, the images, and `OutputParams` by value.
pub fn parameters() -> Vec<usize> {
    // SAFETY: answers a constant.
    vec![8, 8, unsafe { standin_output_size() } as usize]
}

pub fn fast(launch: &Launch, running: &mut Running) -> Result<(), String> {
    augment(launch, running, foreload_augment_fast)
}

pub fn exact(launch: &Launch, running: &mut Running) -> Result<(), String> {
    augment(launch, running, foreload_augment_exact)
}

extern "C" fn visit(to: *mut Vec<Access>, start: u64, end: u64) {
    // SAFETY: the pointer that `augment` gave to `standin_reads`.
    unsafe { (*to).push(Access { kind: Kind::ReadSome, start, end }) };
}

fn augment(launch: &Launch, running: &mut Running, build: Build) -> Result<(), String> {
    let (table, images, output) = (launch.address(0), launch.address(1), launch.arguments[2].as_ptr());
    let ([tiles, n, depth], [threads, rows, layers]) = (launch.grid, launch.block);
    if (depth, rows, layers) != (1, 1, 1) {
        return Err("a launch with a third dimension, or blocks with more than one".to_owned());
    }
    // SAFETY: answers a constant.
    let entry = u64::from(unsafe { standin_image_size() });
    // SAFETY: the argument has the size of `OutputParams`.
    let bytes = u64::from(n) * unsafe { standin_image_bytes(output) };
    if !running.check(Access { kind: Kind::Read, start: table, end: table + u64::from(n) * entry }) {
        return Ok(());
    }
    let mut touched = Vec::new();
    for image in 0..u64::from(n) {
        // SAFETY: the table was checked to be device memory that is written.
        unsafe { standin_reads(table + image * entry, visit, &mut touched) };
    }
    touched.push(Access { kind: Kind::Write, start: images, end: images + bytes });
    let sound = touched.into_iter().fold(true, |sound, access| sound & running.check(access));
    running.dawdle();
    if !sound {
        return Ok(());
    }
    // SAFETY: all that the build reads and writes was checked; it looks at shape and shared memory itself.
    let problem = unsafe { build(tiles, n, threads, launch.shared, 1, table, images, output) };
    match problem {
        0 => Ok(()),
        1 => Err("grid or block do not fit the output".to_owned()),
        _ => Err("too little shared memory".to_owned()),
    }
}
