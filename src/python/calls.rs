//! Calls into Python by Foreload's own threads. All these calls end before the interpreter does.
//!
//! While the interpreter is ending, CPython up to 3.13 ends every thread that asks for the GIL, by unwinding its stack.
//! Rust's frames cannot be unwound in that way, so the whole process would abort. `Python::try_attach` cannot find out
//! that the interpreter is ending in a module that is built for all versions from 3.10 on. So this module keeps a list
//! of the threads that are in a call, and [`end`] ends their calls at exit.

use base::error::{Error, Result};
use pyo3::exceptions::PySystemExit;
use pyo3::ffi;
use pyo3::prelude::*;
use std::ffi::c_ulong;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How long the exit waits for running calls. A call that waits in C code, such as an iterator over an empty queue,
/// reacts only when it returns to Python.
const END_WAIT: Duration = Duration::from_secs(2);

static CALLS: Calls =
    Calls { state: Mutex::new(CallState { running: Vec::new(), ended: false }), fewer: Condvar::new() };

struct Calls {
    state: Mutex<CallState>,
    /// Signalled when a call has ended.
    fewer: Condvar,
}

struct CallState {
    /// The threads that are in a call, by Python's thread ids.
    running: Vec<c_ulong>,
    ended: bool,
}

impl Calls {
    fn state(&self) -> MutexGuard<'_, CallState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A running call. It ends with its scope, also by a panic.
struct RunningCall(c_ulong);

impl RunningCall {
    /// Registers a call of this thread; `None` if the interpreter is ending.
    fn begin() -> Option<Self> {
        // SAFETY: the function reads a number, and needs neither the GIL nor an interpreter.
        let thread = unsafe { ffi::PyThread_get_thread_ident() };
        let mut state = CALLS.state();
        if state.ended {
            return None;
        }
        state.running.push(thread);
        Some(Self(thread))
    }
}

impl Drop for RunningCall {
    fn drop(&mut self) {
        let mut state = CALLS.state();
        if let Some(at) = state.running.iter().position(|thread| *thread == self.0) {
            state.running.swap_remove(at);
        }
        CALLS.fewer.notify_all();
    }
}

/// Runs `act` with the GIL.
///
/// # Errors
/// The errors of `act`; [`Error::Unavailable`] if the interpreter is ending.
pub(super) fn call<T>(act: impl for<'py> FnOnce(Python<'py>) -> Result<T>) -> Result<T> {
    let ending = || Err(Error::Unavailable("the Python interpreter is shutting down".into()));
    let Some(_running) = RunningCall::begin() else { return ending() };
    Python::try_attach(act).unwrap_or_else(ending)
}

/// Shows the user an exception that a call raised, with its traceback, unless [`end`] raised it.
pub(super) fn show(py: Python<'_>, exception: &PyErr) {
    if !CALLS.state().ended {
        exception.display(py);
    }
}

/// Ends all calls and refuses later ones. Raises `SystemExit` in each running call, and returns when all have ended, or
/// after [`END_WAIT`]. Called at exit.
#[pyfunction]
pub(super) fn end(py: Python<'_>) {
    let running = {
        let mut state = CALLS.state();
        state.ended = true;
        state.running.clone()
    };
    let exit = py.get_type::<PySystemExit>();
    for thread in running {
        // SAFETY: this thread holds the GIL. The function takes its own reference to the class, and ignores the id of a
        // thread that has ended its call.
        unsafe { ffi::PyThreadState_SetAsyncExc(thread as _, exit.as_ptr()) };
    }
    py.detach(|| {
        let wait = CALLS.fewer.wait_timeout_while(CALLS.state(), END_WAIT, |state| !state.running.is_empty());
        drop(wait);
    });
}
