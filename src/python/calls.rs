//! Calls into Python by Foreload's own threads. All these calls end before the interpreter exits.
//!
//! While the interpreter is ending, CPython up to 3.13 ends every thread that asks for the GIL, by unwinding its stack.
//! Rust's frames cannot be unwound in that way, so the whole process would abort. In a module that is built for all
//! versions from 3.10 on, `Python::try_attach` cannot detect that the interpreter is ending. So this module keeps a
//! list of the threads that are in a call, and [`end`] ends their calls at exit.

use base::error::{Error, Result};
use pyo3::exceptions::PySystemExit;
use pyo3::ffi;
use pyo3::prelude::*;
use std::ffi::c_ulong;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// [`end`] raises `SystemExit` in the running calls up to this many times, and waits `END_WAIT` after each time. A call
/// that waits inside of C code, for example an iterator over an empty queue, sees the exception only when the C code
/// returns.
const END_WAITS: usize = 20;
const END_WAIT: Duration = Duration::from_millis(100);

/// The calls of this process; null before the first one, and again in a forked child.
static CALLS: AtomicPtr<Calls> = AtomicPtr::new(null_mut());

#[derive(Default)]
struct Calls {
    state: Mutex<CallState>,
    fewer: Condvar,
}

#[derive(Default)]
struct CallState {
    /// The threads in a call, by Python's thread identifiers.
    running: Vec<c_ulong>,
    ended: bool,
}

impl Calls {
    fn get() -> &'static Self {
        let mut known = CALLS.load(Ordering::Acquire);
        if known.is_null() {
            let new: *mut Self = Box::leak(Box::default());
            // If two threads get here at once, the memory of one of them is leaked.
            known = match CALLS.compare_exchange(null_mut(), new, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => new,
                Err(other) => other,
            };
        }
        // SAFETY: the value was leaked, and is only ever shared.
        unsafe { &*known }
    }

    fn state(&self) -> MutexGuard<'_, CallState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A call that is running. The call ends when this is dropped, also during a panic.
struct RunningCall {
    of: &'static Calls,
    thread: c_ulong,
}

impl RunningCall {
    /// Records that the calling thread begins a call. Returns `None` if the interpreter is ending.
    fn begin() -> Option<Self> {
        // SAFETY: the function reads a number, and needs neither the GIL nor an interpreter.
        let thread = unsafe { ffi::PyThread_get_thread_ident() };
        let of = Calls::get();
        let mut state = of.state();
        if state.ended {
            return None;
        }
        state.running.push(thread);
        Some(Self { of, thread })
    }
}

impl Drop for RunningCall {
    fn drop(&mut self) {
        let mut state = self.of.state();
        if let Some(at) = state.running.iter().position(|thread| *thread == self.thread) {
            state.running.swap_remove(at);
        }
        self.of.fewer.notify_all();
    }
}

/// Runs `act` with the GIL.
///
/// # Errors
/// The errors of `act`; [`Error::Unavailable`] if the interpreter is ending.
pub(super) fn call<T>(act: impl for<'py> FnOnce(Python<'py>) -> Result<T>) -> Result<T> {
    let ending = || Err(Error::Unavailable("the interpreter is ending".into()));
    let Some(_running) = RunningCall::begin() else { return ending() };
    // If `end` ran before this thread was attached, the thread got no `SystemExit`. So check again.
    Python::try_attach(|py| if has_ended() { ending() } else { act(py) }).unwrap_or_else(ending)
}

pub(super) fn has_ended() -> bool {
    Calls::get().state().ended
}

/// Shows the user an exception that a call raised, with its traceback, unless [`end`] raised it.
pub(super) fn show(py: Python<'_>, exception: &PyErr) {
    if !(has_ended() && exception.is_instance_of::<PySystemExit>(py)) {
        exception.display(py);
    }
}

/// Ends all calls, and refuses later calls: raises `SystemExit` in each running call. Returns when all calls have
/// ended, or after [`END_WAITS`] times [`END_WAIT`]. Python runs this at exit.
#[pyfunction]
pub(super) fn end(py: Python<'_>) {
    let calls = Calls::get();
    calls.state().ended = true;
    let exit = py.get_type::<PySystemExit>();
    for _ in 0..END_WAITS {
        let running = calls.state().running.clone();
        if running.is_empty() {
            break;
        }
        for thread in running {
            // SAFETY: this thread holds the GIL. The function takes its own reference to the class, and ignores the
            // identifier of a thread that has ended its call.
            unsafe { ffi::PyThreadState_SetAsyncExc(thread as _, exit.as_ptr()) };
        }
        py.detach(|| {
            let more = |state: &mut CallState| !state.running.is_empty();
            drop(calls.fewer.wait_timeout_while(calls.state(), END_WAIT, more));
        });
    }
}

/// Forgets the calls of the parent process. Python runs this in a forked child, which has none of the parent's threads.
#[pyfunction]
pub(super) fn forget() {
    CALLS.store(null_mut(), Ordering::Release);
}
