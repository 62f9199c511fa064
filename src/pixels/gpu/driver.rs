//! NVIDIA's driver: its functions, looked up at run time, and its status codes as errors.
//!
//! The signatures are compared with cudarc's bindings at compile time. cudarc's own functions are not called, because
//! they panic if a symbol is missing, and return the status as an enum that lacks the codes of newer drivers.

use base::error::{Error, Result};
use cudarc::driver::sys;
use libloading::Library;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

/// The name of the library in every driver package. `libcuda.so` is not used, because it may be the toolkit's stub.
const LIBRARY: &str = "libcuda.so.1";

/// The oldest supported version, encoded like [`Driver::version`]: CUDA 12.2, driver 535.
pub(super) const OLDEST: i32 = 12020;

/// The result of a driver function: a `CUresult` as a number and not as an enum, because newer drivers return codes
/// that this code does not know.
pub(super) type Status = c_uint;

pub(super) const OUT_OF_MEMORY: Status = 2;
pub(super) const NOT_READY: Status = 600;
pub(super) const STREAM_CAPTURE_IMPLICIT: Status = 906;
const NOT_INITIALIZED: Status = 3;
const STUB_LIBRARY: Status = 34;
const NO_DEVICE: Status = 100;

/// Type of `CUresult cuFuncGetParamInfo(CUfunction, size_t index, size_t *offset, size_t *size)`, since CUDA 12.4.
pub(super) type FuncGetParamInfo =
    unsafe extern "C" fn(sys::CUfunction, usize, *mut usize, *mut usize) -> Status;

macro_rules! functions {
    ($($name:ident($($type:ty),*);)*) => {
        /// Addresses of the driver's functions. Each field has the function's name in `cuda.h`.
        #[allow(non_snake_case)]
        pub(super) struct Functions {
            $(pub(super) $name: unsafe extern "C" fn($($type),*) -> Status,)*
            /// `None` in drivers for CUDA versions before 12.4.
            pub(super) cuFuncGetParamInfo: Option<FuncGetParamInfo>,
        }

        impl Functions {
            fn find(library: &Library) -> Result<Self, String> {
                Ok(Self {
                    $(
                        // SAFETY: the driver's function of this name has this type, as the comparison with cudarc below
                        // checks.
                        $name: unsafe { find(library, stringify!($name)) }?,
                    )*
                    // SAFETY: the driver's function has this type in the header of CUDA 12.4.
                    cuFuncGetParamInfo: unsafe { find(library, "cuFuncGetParamInfo") }.ok(),
                })
            }
        }

        // A signature that differs from cudarc's fails to compile.
        $(const _: unsafe fn($($type),*) -> sys::CUresult = sys::$name;)*

        #[cfg(test)]
        const REQUIRED: &[&str] = &[$(stringify!($name)),*];
    };
}

functions! {
    cuInit(c_uint);
    cuGetErrorName(sys::CUresult, *mut *const c_char);
    cuGetErrorString(sys::CUresult, *mut *const c_char);
    cuDeviceGetCount(*mut c_int);
    cuDeviceGet(*mut sys::CUdevice, c_int);
    cuDeviceGetName(*mut c_char, c_int, sys::CUdevice);
    cuDeviceGetAttribute(*mut c_int, sys::CUdevice_attribute, sys::CUdevice);
    cuDeviceTotalMem_v2(*mut usize, sys::CUdevice);
    cuDevicePrimaryCtxRetain(*mut sys::CUcontext, sys::CUdevice);
    cuDevicePrimaryCtxRelease_v2(sys::CUdevice);
    cuCtxGetCurrent(*mut sys::CUcontext);
    cuCtxSetCurrent(sys::CUcontext);
    cuCtxSynchronize();
    cuThreadExchangeStreamCaptureMode(*mut sys::CUstreamCaptureMode);
    cuMemGetInfo_v2(*mut usize, *mut usize);
    cuStreamCreateWithPriority(*mut sys::CUstream, c_uint, c_int);
    cuStreamDestroy_v2(sys::CUstream);
    cuStreamSynchronize(sys::CUstream);
    cuStreamQuery(sys::CUstream);
    cuStreamIsCapturing(sys::CUstream, *mut sys::CUstreamCaptureStatus);
    cuStreamWaitEvent(sys::CUstream, sys::CUevent, c_uint);
    cuEventCreate(*mut sys::CUevent, c_uint);
    cuEventDestroy_v2(sys::CUevent);
    cuEventRecord(sys::CUevent, sys::CUstream);
    cuEventQuery(sys::CUevent);
    cuEventSynchronize(sys::CUevent);
    cuEventElapsedTime(*mut f32, sys::CUevent, sys::CUevent);
    cuMemPoolCreate(*mut sys::CUmemoryPool, *const sys::CUmemPoolProps);
    cuMemPoolDestroy(sys::CUmemoryPool);
    cuMemPoolSetAttribute(sys::CUmemoryPool, sys::CUmemPool_attribute, *mut c_void);
    cuMemPoolGetAttribute(sys::CUmemoryPool, sys::CUmemPool_attribute, *mut c_void);
    cuMemAllocFromPoolAsync(*mut sys::CUdeviceptr, usize, sys::CUmemoryPool, sys::CUstream);
    cuMemFreeAsync(sys::CUdeviceptr, sys::CUstream);
    cuMemHostRegister_v2(*mut c_void, usize, c_uint);
    cuMemHostUnregister(*mut c_void);
    cuMemHostGetDevicePointer_v2(*mut sys::CUdeviceptr, *mut c_void, c_uint);
    cuMemcpyHtoDAsync_v2(sys::CUdeviceptr, *const c_void, usize, sys::CUstream);
    cuMemcpyDtoHAsync_v2(*mut c_void, sys::CUdeviceptr, usize, sys::CUstream);
    cuMemcpyDtoDAsync_v2(sys::CUdeviceptr, sys::CUdeviceptr, usize, sys::CUstream);
    cuMemsetD8Async(sys::CUdeviceptr, u8, usize, sys::CUstream);
    cuMemsetD32Async(sys::CUdeviceptr, c_uint, usize, sys::CUstream);
    cuModuleLoadData(*mut sys::CUmodule, *const c_void);
    cuModuleUnload(sys::CUmodule);
    cuModuleGetFunction(*mut sys::CUfunction, sys::CUmodule, *const c_char);
    cuLaunchKernel(
        sys::CUfunction, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, sys::CUstream,
        *mut *mut c_void, *mut *mut c_void
    );
}

// This function is called before other functions are looked up, because an old driver lacks some of the other
// functions.
const _: unsafe fn(*mut c_int) -> sys::CUresult = sys::cuDriverGetVersion;

/// Finds the symbol `name` in the library; the error is a sentence that names the symbol.
///
/// # Safety
///
/// `F` must be the type of the function.
unsafe fn find<F: Copy>(library: &Library, name: &str) -> Result<F, String> {
    // SAFETY: the caller's promise.
    let symbol = unsafe { library.get::<F>(name) };
    symbol
        .map(|symbol| *symbol)
        .map_err(|_| format!("{LIBRARY} has no function {name}: install a driver for CUDA 12.2 or newer"))
}

/// The initialised driver. A process has one driver and keeps it until it exits.
pub(super) struct Driver {
    pub(super) functions: Functions,
    /// The newest CUDA version that the driver supports: 1000 · major + 10 · minor.
    pub(super) version: i32,
    /// The library is never closed, because the driver runs threads of its own.
    _library: Library,
}

static DRIVER: OnceLock<Driver> = OnceLock::new();

/// Whether this process was forked after the driver was initialised: CUDA does not survive a fork.
static FORKED: AtomicBool = AtomicBool::new(false);

extern "C" fn mark_forked() {
    FORKED.store(true, Ordering::Relaxed);
}

pub(super) struct NoDriver {
    pub why: String,
    /// Whether the machine has no driver or no device. Such a machine has no fault that must be reported.
    pub absent: bool,
}

/// Returns the driver. The first successful call loads and initialises it. If the driver cannot be used, the error is
/// [`Error::Unavailable`] with the reason as a sentence.
pub(super) fn driver() -> Result<&'static Driver> {
    started().map_err(|none| Error::Unavailable(none.why))
}

/// Returns the driver like [`driver`], but with a [`NoDriver`] as the error.
pub(super) fn started() -> Result<&'static Driver, NoDriver> {
    static STARTING: Mutex<()> = Mutex::new(());
    if FORKED.load(Ordering::Relaxed) {
        return Err(NoDriver { why: AFTER_FORK.to_owned(), absent: false });
    }
    if let Some(driver) = DRIVER.get() {
        return Ok(driver);
    }
    let _one = STARTING.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(driver) = DRIVER.get() {
        return Ok(driver);
    }
    let driver = Driver::start()?;
    // SAFETY: the handler only stores to an atomic, which is allowed between fork and exec.
    unsafe { libc::pthread_atfork(None, None, Some(mark_forked)) };
    Ok(DRIVER.get_or_init(|| driver))
}

/// Returns whether the driver is initialised and this process can use it. A child that was forked after the
/// initialisation cannot use the driver.
pub fn is_usable() -> bool {
    DRIVER.get().is_some() && !FORKED.load(Ordering::Relaxed)
}

const AFTER_FORK: &str = "this process was forked after CUDA was started and cannot use it: start processes with \
                          the spawn method, or use the GPU only in the children";

impl Driver {
    fn start() -> Result<Self, NoDriver> {
        let absent = |why| NoDriver { why, absent: true };
        let unusable = |why| NoDriver { why, absent: false };
        // SAFETY: NVIDIA's driver is made to be loaded this way; its initialisers have no requirements on the caller.
        let library = unsafe { Library::new(LIBRARY) }
            .map_err(|error| absent(format!("no NVIDIA driver can be loaded: {}", detail(&error))))?;
        let version = read_version(&library).map_err(unusable)?;
        if version < OLDEST {
            return Err(unusable(format!(
                "the NVIDIA driver supports CUDA up to {}.{}, but CUDA 12.2 is required: install driver 535 or newer",
                version / 1000,
                version % 1000 / 10
            )));
        }
        let functions = Functions::find(&library).map_err(unusable)?;
        let driver = Self { functions, version, _library: library };
        // SAFETY: `cuInit` only requires that its flags are 0.
        let status = unsafe { (driver.functions.cuInit)(0) };
        let described = || driver.describe(status);
        match status {
            0 => Ok(driver),
            NO_DEVICE => Err(absent(match std::env::var_os("CUDA_VISIBLE_DEVICES") {
                Some(visible) => format!(
                    "the NVIDIA driver finds no device; CUDA_VISIBLE_DEVICES is {:?}",
                    visible.to_string_lossy()
                ),
                None => "the NVIDIA driver finds no device".to_owned(),
            })),
            NOT_INITIALIZED => Err(unusable(format!("cuInit: {}; {AFTER_FORK}", described()))),
            STUB_LIBRARY => Err(absent(format!(
                "{LIBRARY} is the CUDA toolkit's stub, not a driver: take its folder out of LD_LIBRARY_PATH"
            ))),
            _ => Err(unusable(format!("the NVIDIA driver cannot be initialised: cuInit: {}", described()))),
        }
    }

    /// Returns the name and description of a status: `CUDA_ERROR_OUT_OF_MEMORY: out of memory`, or a number if the
    /// driver has no name for the status.
    pub(super) fn describe(&self, status: Status) -> String {
        let text = |function: unsafe extern "C" fn(sys::CUresult, *mut *const c_char) -> Status| {
            // SAFETY: `CUresult` and `Status` are both a C `unsigned int` in the calling convention. The driver accepts
            // any number; only cudarc's enum is limited.
            let function: unsafe extern "C" fn(Status, *mut *const c_char) -> Status =
                unsafe { std::mem::transmute(function) };
            let mut text = std::ptr::null();
            // SAFETY: the pointer is valid for the call; it receives a static string or null.
            let answer = unsafe { function(status, &mut text) };
            (answer == 0 && !text.is_null())
                // SAFETY: the function's documentation says that the string ends in NUL and is never freed.
                .then(|| unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
        };
        let name = text(self.functions.cuGetErrorName).unwrap_or_else(|| format!("CUDA error {status}"));
        match text(self.functions.cuGetErrorString) {
            Some(description) => format!("{name}: {description}"),
            None => name,
        }
    }

    pub(super) fn check(&self, call: &'static str, status: Status) -> Result<()> {
        if status == 0 {
            return Ok(());
        }
        Err(Error::Gpu { call, status: self.describe(status), advice: advice(status) })
    }
}

fn advice(status: Status) -> &'static str {
    match status {
        OUT_OF_MEMORY => "; lower device_memory or batch_size, or free other GPU memory of this process",
        46 => "; another process holds the GPU in exclusive mode",
        // ECC errors, illegal addresses or instructions, and failed launches destroy the context.
        214 | 220 | 700 | 702 | 710 | 714..=719 => {
            "; the CUDA context is lost, perhaps because of other code in this process: restart the process"
        }
        NOT_INITIALIZED | 4 => "; CUDA is shut down in this process",
        802 => "; the system is not ready: is nvidia-fabricmanager running?",
        _ => "",
    }
}

/// Calls a function of the driver and turns its status into a `Result`; the error names the function.
macro_rules! call {
    ($driver:expr, $name:ident($($argument:expr),* $(,)?)) => {{
        let driver: &$crate::gpu::driver::Driver = $driver;
        driver.check(stringify!($name), (driver.functions.$name)($($argument),*))
    }};
}
pub(super) use call;

fn read_version(library: &Library) -> Result<i32, String> {
    // SAFETY: the type is the function's type in `cuda.h`.
    let get: unsafe extern "C" fn(*mut c_int) -> Status = unsafe { find(library, "cuDriverGetVersion") }?;
    let mut version = 0;
    // SAFETY: the pointer is valid for the call. This function needs no initialised driver.
    match unsafe { get(&mut version) } {
        0 => Ok(version),
        STUB_LIBRARY => Ok(OLDEST),
        status => Err(format!("cannot read the NVIDIA driver's version: CUDA error {status}")),
    }
}

/// The dynamic loader's message, without the wording of the `libloading` crate.
fn detail(error: &libloading::Error) -> String {
    std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn required_functions_are_named_once() {
        let mut names = REQUIRED.to_vec();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), REQUIRED.len());
    }

    #[test]
    fn usual_causes_have_advice() {
        assert!(advice(OUT_OF_MEMORY).contains("device_memory"));
        assert!(advice(700).contains("context is lost"));
        assert_eq!(advice(1), "");
    }
}
