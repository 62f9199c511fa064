//! A `libnvjpeg.so.13` for machines without a GPU. It proves orchestration, never speed, and says nothing about how a
//! GPU rounds.
//!
//! It answers what the real ones answer (12.4 and 13.3), also where that is misleading: batches with parameters are for
//! the engine alone, and are called supported everywhere. libjpeg decodes; the planes go to device memory by the
//! driver's public functions, whichever `libcuda.so.1` is loaded. What the documentation forbids is refused as nvJPEG
//! refuses it. What it leaves undefined and real libraries do not forgive, such as memory or a state that is used again
//! while its last work is under way, ends the process with a sentence. As on real hardware, the engine does not wait
//! for what its stream has queued.
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

/// Ends the process for a mistake that a real library may or may not survive.
fn misuse(what: &str) -> ! {
    eprintln!("nvJPEG stand-in: {what}");
    std::process::abort();
}
