//! The meeting of ranks, which Python does: it knows the cluster's engines.

use crate::error::{Error, Result};
use crate::tier::{RankMeeting, RanksMet};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};

/// An object of `foreload._peers.Meetings`, and the exception that it raised, which the caller is to see as it is.
pub(super) struct PythonMeeting {
    meetings: Py<PyAny>,
    raised: Mutex<Option<PyErr>>,
}

impl PythonMeeting {
    /// How ranks meet by a loader's argument `peers`.
    pub(super) fn new(peers: &Bound<'_, PyAny>) -> PyResult<Arc<Self>> {
        let meetings = peers.py().import("foreload._peers")?.getattr("Meetings")?.call1((peers,))?;
        Ok(Arc::new(Self { meetings: meetings.unbind(), raised: Mutex::default() }))
    }

    /// The exception that ended the latest meeting.
    pub(super) fn take_raised(&self) -> Option<PyErr> {
        self.raised.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn call<T>(&self, ask: impl for<'py> FnOnce(&Bound<'py, PyAny>) -> PyResult<T>) -> Result<T> {
        Python::attach(|py| ask(self.meetings.bind(py))).map_err(|exception| {
            let error = Error::Unavailable(exception.to_string());
            *self.raised.lock().unwrap_or_else(PoisonError::into_inner) = Some(exception);
            error
        })
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
