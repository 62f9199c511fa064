//! The kernels of `cuda/`: the memory that a launch accesses, and the CPU build that does its work.

use crate::kernels::Launch;
use crate::shadow::{Access, Kind};
use crate::stream::Running;
use kernels_stand_in::{ENTRY, PARAMETERS, RING, RING_PLACES, SPAN};
use std::ffi::c_void;

// These functions are in `augment.c`.
unsafe extern "C" {
    fn standin_image_bytes(output: *const u8) -> u64;
    fn standin_levels_bytes(output: *const u8) -> u64;
    fn standin_place(image: u64) -> u32;
    fn standin_reads(image: u64, visit: extern "C" fn(*mut c_void, u64, u64, u32), to: *mut c_void);
}

/// The sizes of a kernel's parameters: a table, the images, and `OutputParams` by value.
pub fn parameters() -> Vec<usize> {
    PARAMETERS.to_vec()
}

extern "C" fn visit(to: *mut c_void, start: u64, end: u64, all: u32) {
    let kind = if all == 1 { Kind::Read } else { Kind::ReadSome };
    // SAFETY: this is the pointer that `run` gave to `standin_reads`.
    unsafe { (*to.cast::<Vec<Access>>()).push(Access { kind, start, end }) };
}

/// Records all accesses, then does the work; returns an error if the launch is wrong.
pub fn run(launch: &Launch, running: &mut Running) -> Result<(), String> {
    let (table, images, n) = (launch.address(0), launch.address(1), u64::from(launch.grid[1]));
    // SAFETY: the last argument has the size of `OutputParams`.
    let bytes = unsafe { standin_image_bytes(launch.arguments[2].as_ptr()) };
    let entries = n * ENTRY as u64;
    if !running.check(Access { kind: Kind::Read, start: table, end: table + entries }) {
        return Ok(());
    }
    let mut touched = Vec::new();
    for entry in (table..table + entries).step_by(ENTRY) {
        // SAFETY: the check shows that the table is device memory that was written.
        unsafe { standin_reads(entry, visit, (&raw mut touched).cast()) };
        // SAFETY: as above.
        let start = images + u64::from(unsafe { standin_place(entry) }) * bytes;
        touched.push(Access { kind: Kind::Write, start, end: start + bytes });
    }
    if !all_sound(touched, running) {
        return Ok(());
    }
    let turn = turn(launch, running);
    let arguments = [0, 1, 2].map(|index| launch.arguments[index].as_ptr().cast());
    // SAFETY: the arguments have the kernel's sizes, and all memory that it accesses was checked.
    unsafe {
        kernels_stand_in::launch(launch.name, launch.grid, launch.block, launch.shared, turn, arguments)
    }
}

/// Checks all accesses of a kernel, after a random delay.
pub fn all_sound(touched: Vec<Access>, running: &mut Running) -> bool {
    let sound = touched.into_iter().fold(true, |sound, access| sound & running.check(access));
    running.dawdle();
    sound
}

/// The order of a block's threads, ascending or nearly descending. The results of kernels must not depend on it.
pub fn turn(launch: &Launch, running: &mut Running) -> u32 {
    if running.draw().is_multiple_of(2) { 1 } else { launch.block[0].max(2) - 1 }
}

/// Like [`run`], for the kernel that counts untouched lines.
pub fn run_untouched(launch: &Launch, running: &mut Running) -> Result<(), String> {
    let (table, counts, n) = (launch.address(0), launch.address(1), u64::from(launch.grid[0]));
    let entries = n * ENTRY as u64;
    if !running.check(Access { kind: Kind::Read, start: table, end: table + entries }) {
        return Ok(());
    }
    let mut touched = vec![Access { kind: Kind::Write, start: counts, end: counts + 4 * n }];
    for entry in (table..table + entries).step_by(ENTRY) {
        // SAFETY: the check shows that the table is device memory that was written.
        unsafe { standin_reads(entry, visit, (&raw mut touched).cast()) };
    }
    if !all_sound(touched, running) {
        return Ok(());
    }
    let turn = turn(launch, running);
    let arguments = [0, 1, 2].map(|index| launch.arguments[index].as_ptr().cast());
    // SAFETY: the arguments have the kernel's sizes, and all memory that it accesses was checked.
    unsafe { kernels_stand_in::launch_untouched(launch.grid, launch.block, launch.shared, turn, arguments) }
}

/// The span of an image: the first of its program's words, their end, and the number of sets that it uses.
fn span(spans: u64, image: u64) -> [u64; 3] {
    let span = (spans + image * SPAN as u64) as *const u32;
    // SAFETY: the check shows that the spans are device memory that was written.
    [0, 1, 2].map(|index| u64::from(unsafe { span.add(index).read_unaligned() }))
}

/// Checks the reads of a table and of spans for `n` images, and of their programs' words.
fn checked_programs(running: &Running, [table, spans, words]: [u64; 3], n: u64) -> bool {
    let read = |start, bytes| running.check(Access { kind: Kind::Read, start, end: start + bytes });
    read(table, n * ENTRY as u64)
        && read(spans, n * SPAN as u64)
        && (0..n)
            .map(|image| span(spans, image))
            .all(|[first, end, _]| first == end || read(words + 4 * first, 4 * (end - first)))
}

/// Like [`run`], for the kernel that runs programs on grey levels and then makes images.
pub fn run_ops(launch: &Launch, running: &mut Running) -> Result<(), String> {
    let [table, spans, words, levels, set_bytes, images] =
        [0, 1, 2, 3, 4, 5].map(|index| launch.address(index));
    let output = launch.arguments[6].as_ptr();
    // SAFETY: the argument has the size of `OutputParams`.
    let (bytes, each) = unsafe { (standin_image_bytes(output), standin_levels_bytes(output)) };
    let n = u64::from(launch.grid[0]);
    if !checked_programs(running, [table, spans, words], n) {
        return Ok(());
    }
    let mut touched = Vec::new();
    for image in 0..n {
        // SAFETY: the check shows that the table is device memory that was written.
        let place = u64::from(unsafe { standin_place(table + image * ENTRY as u64) });
        let (from, to) = (levels + place * each, images + place * bytes);
        touched.push(Access { kind: Kind::Read, start: from, end: from + each });
        for set in 0..span(spans, image)[2] {
            let start = from + set * set_bytes;
            touched.push(Access { kind: Kind::Write, start, end: start + each });
        }
        touched.push(Access { kind: Kind::Write, start: to, end: to + bytes });
    }
    if !all_sound(touched, running) {
        return Ok(());
    }
    let turn = turn(launch, running);
    let arguments = [0, 1, 2, 3, 4, 5, 6].map(|index| launch.arguments[index].as_ptr().cast());
    // SAFETY: the arguments have the kernel's sizes, and all memory that it accesses was checked.
    unsafe { kernels_stand_in::launch_ops(launch.grid, launch.block, launch.shared, turn, arguments) }
}

/// Like [`run`], for the kernel that runs programs on finished images.
pub fn run_erase(launch: &Launch, running: &mut Running) -> Result<(), String> {
    let [table, spans, words, images] = [0, 1, 2, 3].map(|index| launch.address(index));
    // SAFETY: the argument has the size of `OutputParams`.
    let bytes = unsafe { standin_image_bytes(launch.arguments[4].as_ptr()) };
    let n = u64::from(launch.grid[0]);
    if !checked_programs(running, [table, spans, words], n) {
        return Ok(());
    }
    let place = |image: u64| {
        // SAFETY: the check shows that the table is device memory that was written.
        let start = images + u64::from(unsafe { standin_place(table + image * ENTRY as u64) }) * bytes;
        Access { kind: Kind::Write, start, end: start + bytes }
    };
    let changed = (0..n).filter(|&image| span(spans, image)[0] != span(spans, image)[1]);
    if !all_sound(changed.map(place).collect(), running) {
        return Ok(());
    }
    let turn = turn(launch, running);
    let arguments = [0, 1, 2, 3, 4].map(|index| launch.arguments[index].as_ptr().cast());
    // SAFETY: the arguments have the kernel's sizes, and all memory that it accesses was checked.
    unsafe { kernels_stand_in::launch_erase(launch.grid, launch.block, launch.shared, turn, arguments) }
}

/// Like [`run`], for the kernel that mixes images.
pub fn run_mix(launch: &Launch, running: &mut Running) -> Result<(), String> {
    let (table, images, n) = (launch.address(0), launch.address(1), u64::from(launch.grid[1]));
    // SAFETY: the last argument has the size of `OutputParams`.
    let bytes = unsafe { standin_image_bytes(launch.arguments[2].as_ptr()) };
    let entries = n * RING as u64;
    if !running.check(Access { kind: Kind::Read, start: table, end: table + entries }) {
        return Ok(());
    }
    let mut touched = Vec::new();
    for entry in (table..table + entries).step_by(RING) {
        let word = |number: usize| {
            // SAFETY: the check shows that the table is device memory that was written; an entry begins with the number
            // of places, then has the places.
            u64::from(unsafe { (entry as *const u32).add(number).read_unaligned() })
        };
        for place in (1..=word(0).min(RING_PLACES)).map(|number| word(number as usize)) {
            let (start, end) = (images + place * bytes, images + (place + 1) * bytes);
            touched.push(Access { kind: Kind::Read, start, end });
            touched.push(Access { kind: Kind::Write, start, end });
        }
    }
    if !all_sound(touched, running) {
        return Ok(());
    }
    let turn = turn(launch, running);
    let arguments = [0, 1, 2].map(|index| launch.arguments[index].as_ptr().cast());
    // SAFETY: the arguments have the kernel's sizes, and all memory that it accesses was checked.
    unsafe { kernels_stand_in::launch_mix(launch.grid, launch.block, turn, arguments) }
}
