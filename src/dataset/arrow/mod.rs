//! Arrow IPC.
