//! The driver's functions that the stand-in uses, from the `libcuda.so.1` that is loaded.

use std::ffi::c_void;
use std::ptr::{null, null_mut};
use std::sync::OnceLock;

use libloading::os::unix::{Library, RTLD_NOW};
use nvjpeg_sys::sys::nvjpegStatus_t as Status;

use crate::Answer;

type Code = u32;

/// The status of unfinished work.
const NOT_READY: Code = 600;

/// `CUDA_MEMCPY2D`.
#[repr(C)]
struct Rectangle {
    from: Side,
    to: Side,
    width: usize,
    height: usize,
}

#[repr(C)]
struct Side {
    x: usize,
    y: usize,
    /// The kind of memory: 1 of the host, 2 of the device.
    kind: u32,
    host: *const c_void,
    device: u64,
    array: *const c_void,
    pitch: usize,
}

struct Driver {
    current: extern "C" fn(*mut *mut c_void) -> Code,
    copy: extern "C" fn(u64, u64, usize, u64) -> Code,
    copy_rectangle: extern "C" fn(*const Rectangle, u64) -> Code,
    create_stream: extern "C" fn(*mut u64, u32) -> Code,
    destroy_stream: extern "C" fn(u64) -> Code,
    synchronize: extern "C" fn(u64) -> Code,
    wait: extern "C" fn(u64, u64, u32) -> Code,
    create_event: extern "C" fn(*mut u64, u32) -> Code,
    record: extern "C" fn(u64, u64) -> Code,
    query: extern "C" fn(u64) -> Code,
    destroy_event: extern "C" fn(u64) -> Code,
    call_host: extern "C" fn(u64, HostFunction, *mut c_void) -> Code,
}

/// A function that a stream may call.
pub type HostFunction = extern "C" fn(*mut c_void);

fn driver() -> Answer<&'static Driver> {
    static DRIVER: OnceLock<Option<Driver>> = OnceLock::new();
    let load = || {
        // SAFETY: loading runs the driver's initialisers, as any program that uses CUDA does.
        let library = unsafe { Library::open(Some("libcuda.so.1"), RTLD_NOW) }.ok()?;
        macro_rules! get {
            ($name:literal) => {
                // SAFETY: the fields' types are those of CUDA's header.
                unsafe { *library.get($name).ok()? }
            };
        }
        let driver = Driver {
            current: get!(b"cuCtxGetCurrent"),
            copy: get!(b"cuMemcpyAsync"),
            copy_rectangle: get!(b"cuMemcpy2DAsync_v2"),
            create_stream: get!(b"cuStreamCreate"),
            destroy_stream: get!(b"cuStreamDestroy_v2"),
            synchronize: get!(b"cuStreamSynchronize"),
            wait: get!(b"cuStreamWaitEvent"),
            create_event: get!(b"cuEventCreate"),
            record: get!(b"cuEventRecord"),
            query: get!(b"cuEventQuery"),
            destroy_event: get!(b"cuEventDestroy_v2"),
            call_host: get!(b"cuLaunchHostFunc"),
        };
        std::mem::forget(library);
        Some(driver)
    };
    DRIVER.get_or_init(load).as_ref().ok_or(Status::NVJPEG_STATUS_NOT_INITIALIZED)
}

fn check(code: Code) -> Answer {
    if code == 0 { Ok(()) } else { Err(Status::NVJPEG_STATUS_EXECUTION_FAILED) }
}

/// Refuses calls if no context is current.
pub fn context() -> Answer {
    let mut context = null_mut();
    check((driver()?.current)(&mut context))?;
    if context.is_null() { Err(Status::NVJPEG_STATUS_NOT_INITIALIZED) } else { Ok(()) }
}

/// A stream that belongs to the library.
pub struct Stream(pub u64);

impl Stream {
    pub fn new() -> Answer<Self> {
        let mut stream = 0;
        // 1 means that it does not wait for the default stream.
        check((driver()?.create_stream)(&mut stream, 1))?;
        Ok(Self(stream))
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if let Ok(driver) = driver() {
            (driver.destroy_stream)(self.0);
        }
    }
}

/// Waits until a stream has completed its work.
pub fn synchronize(stream: u64) -> Answer {
    check((driver()?.synchronize)(stream))
}

/// Queues a call of a function, which may take long.
pub fn call_host(stream: u64, function: HostFunction, data: *mut c_void) -> Answer {
    check((driver()?.call_host)(stream, function, data))
}

/// A mark in a stream.
pub struct Event(u64);

impl Event {
    pub fn new() -> Answer<Self> {
        let mut event = 0;
        // 2 means that it records no time.
        check((driver()?.create_event)(&mut event, 2))?;
        Ok(Self(event))
    }

    pub fn record(&self, stream: u64) -> Answer {
        check((driver()?.record)(self.0, stream))
    }

    /// Makes `stream` wait for the mark.
    pub fn hold(&self, stream: u64) -> Answer {
        check((driver()?.wait)(stream, self.0, 0))
    }

    pub fn is_passed(&self) -> Answer<bool> {
        match (driver()?.query)(self.0) {
            NOT_READY => Ok(false),
            code => check(code).map(|()| true),
        }
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        if let Ok(driver) = driver() {
            (driver.destroy_event)(self.0);
        }
    }
}

/// Rows of bytes in host or device memory.
#[derive(Clone, Copy)]
pub struct Rows {
    pub address: u64,
    pub pitch: usize,
    pub on_device: bool,
}

impl Rows {
    fn side(self) -> Side {
        Side {
            x: 0,
            y: 0,
            kind: if self.on_device { 2 } else { 1 },
            host: if self.on_device { null() } else { self.address as *const c_void },
            device: if self.on_device { self.address } else { 0 },
            array: null(),
            pitch: self.pitch,
        }
    }
}

/// Copies `height` rows of `width` bytes.
pub fn copy_rows(to: Rows, from: Rows, width: usize, height: usize, stream: u64) -> Answer {
    let rectangle = Rectangle { from: from.side(), to: to.side(), width, height };
    check((driver()?.copy_rectangle)(&rectangle, stream))
}

/// Copies bytes.
pub fn copy(to: u64, from: u64, bytes: usize, stream: u64) -> Answer {
    check((driver()?.copy)(to, from, bytes, stream))
}
