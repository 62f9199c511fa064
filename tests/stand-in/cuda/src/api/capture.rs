//! Stream capture.

use crate::capture::{Capture, MODE, Mode, this_thread};
use crate::entry::{Needs, enter, put};
use crate::status::{self, Status};

#[unsafe(no_mangle)]
extern "C" fn cuThreadExchangeStreamCaptureMode(mode: *mut u32) -> Status {
    enter("cuThreadExchangeStreamCaptureMode", Needs::Driver, |_| {
        if mode.is_null() {
            return Err(status::INVALID_VALUE);
        }
        // SAFETY: the caller of the driver's function guarantees that the pointer is valid.
        let wanted = Mode::of(unsafe { mode.read() })?;
        put(mode, MODE.replace(wanted) as u32)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamBeginCapture_v2(stream: u64, mode: u32) -> Status {
    enter("cuStreamBeginCapture_v2", Needs::Context, |call| {
        let actor = call.stream(stream)?;
        let mode = Mode::of(mode)?;
        if call.streams[actor].legacy || call.captures.iter().any(|capture| capture.stream == actor) {
            return Err(status::INVALID_VALUE);
        }
        call.captures.push(Capture { stream: actor, mode, thread: this_thread(), spoiled: None });
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamEndCapture(stream: u64, graph: *mut u64) -> Status {
    enter("cuStreamEndCapture", Needs::Context, |call| {
        let actor = call.stream(stream)?;
        let found = call.captures.iter().position(|capture| capture.stream == actor);
        let capture = &call.captures[found.ok_or(status::INVALID_VALUE)?];
        if capture.mode != Mode::Relaxed && capture.thread != this_thread() {
            return Err(status::STREAM_CAPTURE_WRONG_THREAD);
        }
        put(graph, 0)?;
        let ended = call.captures.swap_remove(found.unwrap_or_default());
        match ended.spoiled {
            Some(by) => {
                eprintln!("CUDA stand-in: a capture was spoiled by {by}");
                Err(status::STREAM_CAPTURE_INVALIDATED)
            }
            // This is an empty graph, which is never used.
            None => put(graph, call.new_handle()),
        }
    })
}

/// `CU_STREAM_CAPTURE_STATUS_NONE`, `_ACTIVE`, `_INVALIDATED`.
#[unsafe(no_mangle)]
extern "C" fn cuStreamIsCapturing(stream: u64, state: *mut u32) -> Status {
    enter("cuStreamIsCapturing", Needs::Context, |call| {
        let actor = call.stream(stream)?;
        if call.capture_blocks(actor) {
            return Err(status::STREAM_CAPTURE_IMPLICIT);
        }
        let capture = call.captures.iter().find(|capture| capture.stream == actor);
        put(state, capture.map_or(0, |capture| if capture.spoiled.is_none() { 1 } else { 2 }))
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuGraphDestroy(graph: u64) -> Status {
    enter("cuGraphDestroy", Needs::Driver, |_| if graph == 0 { Err(status::INVALID_VALUE) } else { Ok(()) })
}
