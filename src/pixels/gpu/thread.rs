//! The driver's state of a thread: its current context, and whether its calls may become part of a CUDA graph capture.
//!
//! While a thread of the process captures a CUDA graph in the default mode, which torch uses, other threads are
//! restricted. A query, a wait or an allocation on any thread then fails and invalidates the capture, because the
//! driver assumes that the call might belong to the graph. Foreload's calls never belong to a graph. So they run in the
//! "relaxed" mode (`cuThreadExchangeStreamCaptureMode`). Foreload's own threads set this mode once; other threads get
//! their previous mode back when a call into this module returns.

use super::driver::Driver;
use cudarc::driver::sys::{CUcontext, CUstreamCaptureMode as Mode};
use std::cell::Cell;
use std::marker::PhantomData;

thread_local! {
    /// The context that one of Foreload's own threads keeps for its whole life.
    static ATTACHED: Cell<CUcontext> = const { Cell::new(std::ptr::null_mut()) };
    /// The number of [`Relaxed`] values on this thread, and the mode before the first of them.
    static RELAXED: Cell<(u32, Mode)> = const { Cell::new((0, Mode::CU_STREAM_CAPTURE_MODE_GLOBAL)) };
}

/// Sets this thread's mode and returns the previous mode. Ignores an error of the driver: the next call of the driver
/// fails, too, and reports the error.
fn exchange(driver: &Driver, mut mode: Mode) -> Mode {
    // SAFETY: the pointer is valid for the call; the driver writes one of the three modes.
    unsafe { (driver.functions.cuThreadExchangeStreamCaptureMode)(&mut mode) };
    mode
}

/// Marks this thread as one of Foreload's own threads. `context`, which must be current, stays current, and the
/// thread's calls never become part of a capture.
pub(super) fn attach(driver: &Driver, context: CUcontext) {
    exchange(driver, Mode::CU_STREAM_CAPTURE_MODE_RELAXED);
    ATTACHED.set(context);
}

pub(super) fn is_attached(context: CUcontext) -> bool {
    ATTACHED.get() == context
}

/// While a value exists, the calls of its thread never become part of a capture.
pub(super) struct Relaxed {
    driver: &'static Driver,
    /// A mode belongs to a thread, so the value must not be sent to another thread.
    _this_thread: PhantomData<*const ()>,
}

impl Relaxed {
    pub(super) fn new(driver: &'static Driver) -> Self {
        RELAXED.set(match RELAXED.get() {
            (0, _) => (1, exchange(driver, Mode::CU_STREAM_CAPTURE_MODE_RELAXED)),
            (count, former) => (count + 1, former),
        });
        Self { driver, _this_thread: PhantomData }
    }
}

impl Drop for Relaxed {
    fn drop(&mut self) {
        let (count, former) = RELAXED.get();
        RELAXED.set((count - 1, former));
        if count == 1 {
            exchange(self.driver, former);
        }
    }
}
