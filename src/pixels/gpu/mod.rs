//! Access to NVIDIA GPUs: devices, streams, events, memory and kernels. The driver is loaded at run time.
//!
//! Nothing here panics if a driver, one of its functions or a device is missing. [`probe()`] reports the reason as a
//! sentence; every other function returns a [`Result`](base::error::Result).
//!
//! Every call makes the device's primary context current and restores the previous one when it returns. A call never
//! becomes part of a CUDA graph that other code captures. So any thread may call, including threads that torch uses;
//! see `thread.rs`.
//!
//! Objects can be dropped in any order: an object on a device holds the device, a buffer holds its pool and its stream,
//! and work in flight holds the memory that it reads and writes (see [`InFlight`]).
//!
//! Tests run this module against a stand-in for the driver (`tests/stand-in/`), which checks the order of every access.

mod device;
mod driver;
mod event;
mod in_flight;
mod memory;
mod module;
mod pinned;
mod probe;
mod stream;
mod thread;

pub use device::{Capability, DeviceInfo, GpuDevice};
pub use driver::is_usable;
pub use event::Event;
pub use in_flight::InFlight;
pub use memory::{DeviceBuffer, DeviceRange, MemoryPool};
pub use module::{Arg, Function, KernelImage, Module};
pub use pinned::{PinnedBuffer, PinnedSlice, Registration};
pub use probe::{Probe, probe};
pub use stream::{Stream, StreamRef};
