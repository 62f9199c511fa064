//! What the driver knows of a thread: the context that is current there, and how its calls stand to a capture.
//!
//! While some thread of the process captures a CUDA graph in the mode that is the default, which is torch's too, a
//! query, a wait or an allocation of any thread fails and spoils the capture: it might have belonged into the graph.
//! Ours never do, and a thread says so by its mode, "relaxed" (`cuThreadExchangeStreamCaptureMode`). A thread of ours
//! says it once; one that calls us has its own mode back when the call returns.

use super::driver::Driver;
use cudarc::driver::sys::{CUcontext, CUstreamCaptureMode as Mode};
use std::cell::Cell;
use std::marker::PhantomData;

thread_local! {
    /// The context that a thread of ours has for good.
    static HOME: Cell<CUcontext> = const { Cell::new(std::ptr::null_mut()) };
    /// How many [`Relaxed`] there are, and the mode that the thread had before the first of them.
    static RELAXED: Cell<(u32, Mode)> = const { Cell::new((0, Mode::CU_STREAM_CAPTURE_MODE_GLOBAL)) };
}

/// Sets this thread's mode; returns the former. Should the driver fail, so will the call that follows, and say so.
fn exchange(driver: &Driver, mut mode: Mode) -> Mode {
    // SAFETY: the pointer is valid for the call; the driver writes one of the three modes.
    unsafe { (driver.functions.cuThreadExchangeStreamCaptureMode)(&mut mode) };
    mode
}

/// This thread is ours: `context`, which is current, stays so, and its calls are no part of any capture.
pub(super) fn settle(driver: &Driver, context: CUcontext) {
    exchange(driver, Mode::CU_STREAM_CAPTURE_MODE_RELAXED);
    HOME.set(context);
}

/// Whether this thread has `context` for good.
pub(super) fn is_home(context: CUcontext) -> bool {
    HOME.get() == context
}

/// This thread's calls are no part of any capture as long as there is one.
pub(super) struct Relaxed {
    driver: &'static Driver,
    /// A mode is a thread's affair.
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
