//! The meeting of ranks, which Python does: it knows the cluster's engines.

use super::error::{ConfigError, Error as AnyError};
use base::error::{Error, Result};
use cli::{FindsJob, FoundJob, JobQuestion};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::ffi::OsString;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use store::tier::{RankMeeting, RanksMet};

/// An object of `foreload._peers.Meetings`, and the exception that it raised, which the caller is to see as it is.
pub(super) struct PythonMeeting {
    meetings: Py<PyAny>,
    raised: Mutex<Option<PyErr>>,
}

impl PythonMeeting {
    /// How ranks meet by a loader's argument `peers`.
    pub(super) fn new(peers: &Bound<'_, PyAny>) -> PyResult<Arc<Self>> {
        Ok(Self::of(peers.py().import("foreload._peers")?.getattr("Meetings")?.call1((peers,))?))
    }

    /// What `foreload._peers` has made already.
    fn of(meetings: Bound<'_, PyAny>) -> Arc<Self> {
        Arc::new(Self { meetings: meetings.unbind(), raised: Mutex::default() })
    }

    /// The exception that ended the latest meeting.
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

/// The error that an exception stands for, where nobody sees the exception itself.
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

/// The job that launchers and frameworks tell Python of, for the command line.
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

/// The command that runs `foreload` by the interpreter and the module of this process.
pub(super) fn own_command(py: Python<'_>) -> PyResult<Vec<OsString>> {
    py.import("foreload._command")?.getattr("own_command")?.call0()?.extract()
}
