//! The functions by which tests control the stand-in: calls that fail, and a GPU with fewer abilities.

use std::collections::{BTreeSet, HashMap};
use std::ffi::{CStr, c_char};
use std::sync::{Mutex, MutexGuard, PoisonError};

use nvjpeg_sys::sys::nvjpegStatus_t as Status;

#[derive(Default)]
struct Control {
    read: bool,
    /// Planned faults: (function, call at which it fails, status).
    faults: Vec<(String, u64, Status)>,
    calls: HashMap<String, u64>,
    knobs: BTreeSet<String>,
}

static CONTROL: Mutex<Option<Control>> = Mutex::new(None);

fn with<T>(act: impl FnOnce(&mut Control) -> T) -> T {
    let mut guard: MutexGuard<'_, Option<Control>> = CONTROL.lock().unwrap_or_else(PoisonError::into_inner);
    let control = guard.get_or_insert_with(Control::default);
    if !control.read {
        control.read = true;
        let wishes = |name| std::env::var(name).unwrap_or_default();
        for wish in wishes("FORELOAD_STANDIN_FAIL").split(',') {
            let mut parts = wish.split(':');
            if let (Some(name), Some(nth)) = (parts.next(), parts.next().and_then(|nth| nth.parse().ok())) {
                control.plan(name, nth, parts.next().and_then(|status| status.parse().ok()).unwrap_or(0));
            }
        }
        control.knobs = wishes("FORELOAD_STANDIN_NVJPEG").split(',').map(str::to_owned).collect();
    }
    act(control)
}

impl Control {
    fn plan(&mut self, name: &str, nth: u64, status: u32) {
        let at = self.calls.get(name).copied().unwrap_or(0) + nth;
        let status = if status == 0 { Status::NVJPEG_STATUS_EXECUTION_FAILED } else { Status(status) };
        self.faults.push((name.to_owned(), at, status));
    }
}

/// Counts a call; returns the status with which it must fail, if any.
pub fn fault(name: &'static str) -> Option<Status> {
    with(|control| {
        let count = control.calls.entry(name.to_owned()).or_default();
        *count += 1;
        if control.knobs.contains(&format!("broken-{name}")) {
            return Some(Status::NVJPEG_STATUS_EXECUTION_FAILED);
        }
        if control.knobs.contains(&format!("no-memory-{name}")) {
            return Some(Status::NVJPEG_STATUS_ALLOCATOR_FAILURE);
        }
        let due = control.faults.iter().position(|(fault, at, _)| fault == name && at == count)?;
        Some(control.faults.swap_remove(due).2)
    })
}

/// Whether a knob is turned on:
///
/// - `no-hardware`: the GPU has no decoding engine;
/// - `refuse-444`, `refuse-422`, `refuse-420`, `refuse-440`, `refuse-gray`: the engine does not take this sampling;
/// - `no-region`: the engine takes whole images only;
/// - `askew`: the engine's regions lie 8 pixels to the right of where they should;
/// - `ignore-region`: the engine's regions all lie at the image's upper left corner;
/// - `floor-chroma`: the engine rounds the size of chroma planes down where the image's is odd;
/// - `wrong-beside-2`, `wrong-beside-8`: the engine's last sample is wrong where the image's width is no multiple of
///   that number;
/// - `skip`: the engine leaves the first image of each call untouched and reports success;
/// - `broken-` and a function: all of its calls fail, without a reason;
/// - `no-memory-` and a function: all of its calls fail for want of memory.
pub fn knob(name: &str) -> bool {
    with(|control| control.knobs.contains(name))
}

fn text(name: *const c_char) -> String {
    // SAFETY: the caller guarantees a string that ends in NUL.
    unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned()
}

/// Makes the `nth` call of a function from now on (1 is the next) fail with `status`; 0 means "execution failed".
#[unsafe(no_mangle)]
extern "C" fn nvjpeg_standin_fail(name: *const c_char, nth: u64, status: u32) {
    with(|control| control.plan(&text(name), nth, status));
}

/// Turns on the knobs of a list separated by commas, and no others.
#[unsafe(no_mangle)]
extern "C" fn nvjpeg_standin_knobs(knobs: *const c_char) {
    with(|control| control.knobs = text(knobs).split(',').map(str::to_owned).collect());
}

/// How often a function was called since the last reset.
#[unsafe(no_mangle)]
extern "C" fn nvjpeg_standin_calls(name: *const c_char) -> u64 {
    with(|control| control.calls.get(&text(name)).copied().unwrap_or(0))
}

/// The number of objects that exist.
#[unsafe(no_mangle)]
extern "C" fn nvjpeg_standin_objects() -> u64 {
    crate::objects::count()
}

/// Resets planned faults, calls and knobs.
#[unsafe(no_mangle)]
extern "C" fn nvjpeg_standin_reset() {
    with(|control| *control = Control { read: true, ..Control::default() });
}
