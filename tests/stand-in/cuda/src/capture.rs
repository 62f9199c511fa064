//! Stream capture, simulated for code that captures nothing itself: which calls invalidate a capture elsewhere in the
//! process (the driver's documentation of `cuThreadExchangeStreamCaptureMode`, and the programming guide on prohibited
//! and unhandled operations). Nothing is actually captured: a stream in capture mode accepts no work here.

use crate::status::{self, Status};
use crate::world::World;
use std::cell::Cell;

/// `CUstreamCaptureMode`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// No thread may make an unsafe call.
    Global,
    /// The thread that captures may not make an unsafe call.
    ThreadLocal,
    /// Every thread may make unsafe calls.
    Relaxed,
}

impl Mode {
    pub fn of(number: u32) -> Result<Self, Status> {
        match number {
            0 => Ok(Self::Global),
            1 => Ok(Self::ThreadLocal),
            2 => Ok(Self::Relaxed),
            _ => Err(status::INVALID_VALUE),
        }
    }
}

thread_local! {
    /// The mode of the calling thread.
    pub static MODE: Cell<Mode> = const { Cell::new(Mode::Global) };
}

/// A capture that has begun and not ended.
#[derive(Debug)]
pub struct Capture {
    /// The stream's actor.
    pub stream: usize,
    pub mode: Mode,
    pub thread: u64,
    /// The call that invalidated it, if any.
    pub spoiled: Option<&'static str>,
}

/// The id of the calling thread.
pub fn this_thread() -> u64 {
    // SAFETY: no arguments, always succeeds.
    (unsafe { libc::pthread_self() }) as u64
}

/// "Potentially unsafe API calls": queries, waits, and allocations outside of any stream's order. The documentation has
/// no list, so this list contains all candidates.
const UNSAFE: &[&str] = &[
    "cuEventQuery",
    "cuEventSynchronize",
    "cuStreamQuery",
    "cuStreamSynchronize",
    "cuMemAlloc_v2",
    "cuMemFree_v2",
    "cuMemHostAlloc",
    "cuMemAllocHost_v2",
    "cuMemFreeHost",
    "cuMemHostRegister_v2",
    "cuMemHostUnregister",
    "cuMemPoolCreate",
    "cuMemPoolDestroy",
    "cuMemPoolSetAttribute",
    "cuMemAllocFromPoolAsync",
    "cuMemFreeAsync",
    "cuMemcpyHtoD_v2",
    "cuMemcpyDtoH_v2",
    "cuMemcpyDtoD_v2",
    "cuMemcpy",
    "cuModuleLoadData",
    "cuModuleUnload",
];

impl World {
    /// Applies the effect of a call on existing captures, by the mode of its thread, before the call does anything
    /// else.
    pub fn capture_permits(&mut self, call: &'static str, context: u64) -> Result<(), Status> {
        // This call waits for all streams of a context in every mode, including streams that capture.
        let waits_for_all = call == "cuCtxSynchronize"
            && self.captures.iter().any(|capture| self.streams[capture.stream].context == context);
        let (own, thread) = (MODE.get(), this_thread());
        let forbids = |capture: &Capture| match own {
            Mode::Relaxed => false,
            Mode::ThreadLocal => capture.thread == thread && capture.mode != Mode::Relaxed,
            Mode::Global => {
                capture.mode == Mode::Global || (capture.thread == thread && capture.mode != Mode::Relaxed)
            }
        };
        if waits_for_all || (UNSAFE.contains(&call) && self.captures.iter().any(forbids)) {
            self.spoil_captures(call);
            return Err(status::STREAM_CAPTURE_UNSUPPORTED);
        }
        Ok(())
    }

    /// Whether a stream may be used. A stream that captures accepts no work, and the legacy default stream accepts none
    /// while a blocking stream captures.
    pub fn capture_permits_stream(&mut self, call: &'static str, stream: usize) -> Result<(), Status> {
        if matches!(call, "cuStreamBeginCapture_v2" | "cuStreamEndCapture" | "cuStreamIsCapturing") {
            return Ok(());
        }
        let refused = if self.captures.iter().any(|capture| capture.stream == stream) {
            status::STREAM_CAPTURE_UNSUPPORTED
        } else if self.capture_blocks(stream) {
            status::STREAM_CAPTURE_IMPLICIT
        } else {
            return Ok(());
        };
        self.spoil_captures(call);
        Err(refused)
    }

    /// Whether this is the legacy default stream while a stream that waits for it captures.
    pub fn capture_blocks(&self, stream: usize) -> bool {
        let own = &self.streams[stream];
        own.legacy
            && self.captures.iter().any(|capture| {
                let other = &self.streams[capture.stream];
                other.context == own.context && other.blocking()
            })
    }

    fn spoil_captures(&mut self, call: &'static str) {
        for capture in &mut self.captures {
            capture.spoiled.get_or_insert(call);
        }
    }
}
