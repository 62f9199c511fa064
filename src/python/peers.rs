//! The meeting of ranks for `peers=`, in which the ranks find one another. Python runs the meeting, because it can use
//! the cluster's engine (torch.distributed, Ray, MPI, JAX).

use super::error::{ConfigError, Error as AnyError};
use base::error::{Error, Result};
use cli::{FindsJob, FoundJob, JobQuestion};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::ffi::OsString;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use store::tier::{RankMeeting, RanksMet};

/// An object of `foreload._peers.Meetings`, and the exception that it raised. The caller gets that exception unchanged.
pub(super) struct PythonMeeting {
    meetings: Py<PyAny>,
    raised: Mutex<Option<PyErr>>,
}

impl PythonMeeting {
    pub(super) fn new(peers: &Bound<'_, PyAny>) -> PyResult<Arc<Self>> {
        Ok(Self::of(peers.py().import("foreload._peers")?.getattr("Meetings")?.call1((peers,))?))
    }

    fn of(meetings: Bound<'_, PyAny>) -> Arc<Self> {
        Arc::new(Self { meetings: meetings.unbind(), raised: Mutex::default() })
    }

    pub(super) fn take_raised(&self) -> Option<PyErr> {
        self.raised.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn call<T>(&self, ask: impl for<'py> FnOnce(&Bound<'py, PyAny>) -> PyResult<T>) -> Result<T> {
        Python::attach(|py| {
            ask(self.meetings.bind(py)).map_err(|exception| {
                let error = from_python(py, &exception);
                *self.raised.lock().unwrap_or_else(PoisonError::into_inner) = Some(exception);
                error
            })
        })
    }
}

/// Converts an exception to an error, for callers that do not see the exception.
fn from_python(py: Python<'_>, exception: &PyErr) -> Error {
    if !exception.is_instance_of::<AnyError>(py) {
        return Error::Unavailable(exception.to_string());
    }
    let message = exception.value(py).to_string();
    match message.strip_prefix("config: peers: ") {
        Some(message) if exception.is_instance_of::<ConfigError>(py) => Error::config("peers", message),
        _ => Error::Unavailable(message),
    }
}

impl RankMeeting for PythonMeeting {
    fn meet(&self, purpose: &str, payload: &[u8], rank: u32, world_size: u32) -> Result<RanksMet> {
        let (payloads, nodes, secret): (Vec<Vec<u8>>, Vec<Vec<u32>>, [u8; 32]) = self.call(|meetings| {
            let payload = PyBytes::new(meetings.py(), payload);
            meetings.call_method1("meet", (purpose, payload, rank, world_size))?.extract()
        })?;
        Ok(RanksMet { payloads, nodes, secret })
    }

    fn listen(&self, nodes: usize) -> Result<SocketAddr> {
        let (address, port): (IpAddr, u16) = self.call(|meetings| {
            let (address, port): (String, u16) = meetings.call_method1("listen", (nodes,))?.extract()?;
            Ok((address.parse()?, port))
        })?;
        Ok(SocketAddr::new(address, port))
    }
}

/// Finds the job for the command line, from the information that launchers and frameworks give to Python.
pub(super) struct PythonJob;

impl FindsJob for PythonJob {
    fn find(&self, ask: &JobQuestion<'_>) -> Result<FoundJob> {
        let find = |py: Python<'_>| {
            let peers = py.import("foreload._peers")?;
            let (rank, world_size, local_world_size, meetings): (u32, u32, Option<u32>, Bound<'_, PyAny>) =
                peers
                    .call_method1("find", (ask.directory, ask.listen, ask.patience.as_secs_f64()))?
                    .extract()?;
            Ok(FoundJob { rank, world_size, local_world_size, meeting: PythonMeeting::of(meetings) })
        };
        Python::attach(|py| find(py).map_err(|exception: PyErr| from_python(py, &exception)))
    }

    fn command(&self) -> Result<Vec<OsString>> {
        Python::attach(|py| own_command(py).map_err(|exception| from_python(py, &exception)))
    }
}

pub(super) fn own_command(py: Python<'_>) -> PyResult<Vec<OsString>> {
    py.import("foreload._command")?.getattr("own_command")?.call0()?.extract()
}
