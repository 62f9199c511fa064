//! A `libnvjpeg.so.13` for machines without a GPU. It tests the orchestration, but not speed, and does not show how a
//! GPU rounds.
//!
//! It gives the same answers as the real versions (12.4 and 13.3), even misleading ones: batches with parameters work
//! only on the engine, but are reported as supported everywhere. libjpeg decodes; the planes go to device memory
//! through the public functions of the loaded driver. Calls that the documentation forbids are refused as nvJPEG
//! refuses them. Undefined behaviour, such as reuse of memory or of a state while its last work is unfinished, ends the
//! process with a message. As on real hardware, the engine does not wait for earlier work of its stream.
//!
//! | environment | meaning |
//! |---|---|
//! | `FORELOAD_STANDIN_FAIL=nvjpegDecodeBatchedEx:2` | the second call fails; `:4` behind it chooses the status |
//! | `FORELOAD_STANDIN_NVJPEG=no-hardware,refuse-444` | knobs, see `control.rs` |
//! | `FORELOAD_STANDIN_NVJPEG_COSTS=huffman:2500,engine:80` | microseconds that things cost, see `costs.rs` |

mod batched;
mod control;
mod costs;
mod driver;
mod handles;
mod header;
mod image;
mod objects;
mod phased;

use nvjpeg_sys::sys::nvjpegStatus_t as Status;

/// The result of a call.
type Answer<T = ()> = Result<T, Status>;

/// Runs a call unless a fault is planned for it; a panic is an internal error.
fn answer(name: &'static str, call: impl FnOnce() -> Answer) -> Status {
    if let Some(status) = control::fault(name) {
        return status;
    }
    match std::panic::catch_unwind(std::panic::AssertUnwindSafe(call)) {
        Ok(Ok(())) => Status::NVJPEG_STATUS_SUCCESS,
        Ok(Err(status)) => status,
        Err(_) => Status::NVJPEG_STATUS_INTERNAL_ERROR,
    }
}

/// Ends the process because of a mistake that a real library might not survive.
fn misuse(what: &str) -> ! {
    eprintln!("nvJPEG stand-in: {what}");
    std::process::abort();
}
