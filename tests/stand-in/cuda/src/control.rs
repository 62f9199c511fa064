//! The functions that tests call in the process: planned faults, violations, leaks, counters.

use crate::world::{CHANGED, World, lock};
use std::ffi::{CStr, c_char};
use std::sync::{MutexGuard, PoisonError};

/// Copies text to a buffer of `length` bytes, truncated and with a NUL at the end.
fn copy_text(text: &str, to: *mut c_char, length: usize) {
    if to.is_null() || length == 0 {
        return;
    }
    let bytes = &text.as_bytes()[..text.len().min(length - 1)];
    // SAFETY: the caller guarantees `length` bytes.
    unsafe {
        std::ptr::copy_nonoverlapping(bytes.as_ptr().cast(), to, bytes.len());
        to.add(bytes.len()).write(0);
    }
}

fn text(name: *const c_char) -> String {
    // SAFETY: the caller guarantees a string that ends in NUL.
    unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned()
}

/// Makes the `nth` call of a function from now on (1 is the next) fail with `status`; 0 chooses a suitable one.
#[unsafe(no_mangle)]
extern "C" fn standin_fail(name: *const c_char, nth: u64, status: u32) {
    lock().faults.plan(&text(name), nth, status);
}

/// Sets whether violations abort the process (1, as at the start) or are only recorded (0).
#[unsafe(no_mangle)]
extern "C" fn standin_abort(abort: u32) {
    lock().abort = abort != 0;
}

/// The number of violations since the last reset. Their messages, one per line, go to a buffer of `length` bytes.
#[unsafe(no_mangle)]
extern "C" fn standin_violations(to: *mut c_char, length: usize) -> u64 {
    let world = lock_idle();
    copy_text(&world.violations.join("\n"), to, length);
    world.violations.len() as u64
}

/// The number of kinds of objects that were not freed. Their descriptions, one per line, go to a buffer of `length`
/// bytes.
#[unsafe(no_mangle)]
extern "C" fn standin_leaks(to: *mut c_char, length: usize) -> u64 {
    let world = lock_idle();
    let leaks = world.leaks();
    copy_text(&leaks.join("\n"), to, length);
    leaks.len() as u64
}

/// How often a function was called.
#[unsafe(no_mangle)]
extern "C" fn standin_calls(name: *const c_char) -> u64 {
    lock().faults.calls(&text(name))
}

/// A counter: "bytes to device", "bytes to host", "bytes on device", "launches", "allocations", "cost" (see `cost.rs`),
/// "spinning waits" (for unfinished work, except with events that sleep), or "bytes allocated" (the current value).
#[unsafe(no_mangle)]
extern "C" fn standin_count(name: *const c_char) -> u64 {
    let world = lock();
    match text(name).as_str() {
        "bytes allocated" => world.memory.live().map(|found| found.end - found.start).sum(),
        name => world.counters.get(name).copied().unwrap_or(0),
    }
}

/// Waits until all streams are idle, then resets violations, planned faults and counters.
#[unsafe(no_mangle)]
extern "C" fn standin_reset() {
    let mut world = lock_idle();
    world.violations.clear();
    world.faults.clear();
    world.counters.clear();
}

/// Locks the world when all queued work is done.
fn lock_idle() -> MutexGuard<'static, World> {
    let busy = CHANGED.wait_while(lock(), |world| !world.is_idle());
    busy.unwrap_or_else(PoisonError::into_inner)
}
