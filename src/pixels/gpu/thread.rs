//! The driver's state of a thread: the context that is current there, and how its calls stand to a capture.
//!
//! While a thread of the process captures a CUDA graph in the default mode, which is also torch's, a query, a wait or
//! an allocation on any thread fails and spoils the capture, because it might belong to the graph. Our calls never do.
//! A thread says so by its mode, "relaxed" (`cuThreadExchangeStreamCaptureMode`): a thread of ours says it once; a
//! thread that calls us gets its own mode back when the call returns.

use super::driver::Driver;
use cudarc::driver::sys::{CUcontext, CUstreamCaptureMode as Mode};
use std::cell::Cell;
use std::marker::PhantomData;

thread_local! {
    /// The context that a thread of ours has for good.
    static ATTACHED: Cell<CUcontext> = const { Cell::new(std::ptr::null_mut()) };
    /// The number of [`Relaxed`] on this thread, and the mode that it had before the first of them.
    static RELAXED: Cell<(u32, Mode)> = const { Cell::new((0, Mode::CU_STREAM_CAPTURE_MODE_GLOBAL)) };
}

/// Sets this thread's mode and returns the former one. If the driver fails here, the call that follows fails too and
/// reports it.
fn exchange(driver: &Driver, mut mode: Mode) -> Mode {
    // SAFETY: the pointer is valid for the call; the driver writes one of the three modes.
    unsafe { (driver.functions.cuThreadExchangeStreamCaptureMode)(&mut mode) };
    mode
}

/// Makes this thread one of ours: `context`, which is current, stays so, and the thread's calls are no part of any
/// capture.
pub(super) fn attach(driver: &Driver, context: CUcontext) {
    exchange(driver, Mode::CU_STREAM_CAPTURE_MODE_RELAXED);
    ATTACHED.set(context);
}

/// Whether this thread has `context` for good.
pub(super) fn is_attached(context: CUcontext) -> bool {
    ATTACHED.get() == context
}

/// While this lives, this thread's calls are no part of any capture.
pub(super) struct Relaxed {
    driver: &'static Driver,
    /// A mode belongs to a thread, so this must not leave it.
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
