//! The GPU: device, streams, events, memory, kernels, through NVIDIA's driver as it is found at run time.
//!
//! Nothing here panics where a driver, a function of it or a device is missing: [`probe()`] says in a sentence why
//! there is no GPU, everything else is a [`Result`](base::error::Result). Every call makes the device's primary context
//! current for its own duration and puts back what was current, so that it may come from any thread, also one that
//! torch uses, and is no part of what other code may be capturing; see `thread.rs`.
//!
//! Ownership replaces order of destruction: whatever lives on a device holds it, a buffer holds its pool and its
//! stream, and work in flight holds what it reads and writes (see [`InFlight`]).

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

pub use device::DeviceInfo;
pub use device::{Capability, GpuDevice};
pub use driver::is_usable;
pub use event::Event;
pub use in_flight::InFlight;
pub use memory::DeviceRange;
pub use memory::{DeviceBuffer, MemoryPool};
pub use module::{Arg, Function, KernelImage, Module};
pub use pinned::{PinnedBuffer, PinnedSlice, Registration};
pub use probe::{Probe, probe};
pub use stream::{Stream, StreamRef};
