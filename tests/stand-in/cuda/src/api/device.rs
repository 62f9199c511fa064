//! The driver itself, devices and contexts.

use crate::entry::{CONTEXTS, Needs, enter, put};
use crate::settings::settings;
use crate::status::{self, Status};
use crate::world::{World, at_exit};
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::sync::Once;

#[unsafe(no_mangle)]
extern "C" fn cuInit(flags: u32) -> Status {
    enter("cuInit", Needs::Nothing, |call| {
        if flags != 0 {
            return Err(status::INVALID_VALUE);
        }
        if settings().devices == 0 {
            return Err(status::NO_DEVICE);
        }
        if call.process != 0 && call.process != std::process::id() {
            return Err(status::NOT_INITIALIZED);
        }
        call.process = std::process::id();
        static EXIT: Once = Once::new();
        EXIT.call_once(|| {
            // SAFETY: the function lives as long as the process: libraries with exit handlers are not unloaded here.
            unsafe { libc::atexit(at_exit) };
        });
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuDriverGetVersion(version: *mut c_int) -> Status {
    enter("cuDriverGetVersion", Needs::Nothing, |_| put(version, settings().version))
}

fn error_text(place: *mut *const c_char, text: Option<&'static str>) -> Result<(), Status> {
    put(place, text.map_or(std::ptr::null(), |text| text.as_ptr().cast()))?;
    text.map(|_| ()).ok_or(status::INVALID_VALUE)
}

#[unsafe(no_mangle)]
extern "C" fn cuGetErrorName(error: Status, text: *mut *const c_char) -> Status {
    enter("cuGetErrorName", Needs::Nothing, |_| error_text(text, status::texts(error).map(|texts| texts.0)))
}

#[unsafe(no_mangle)]
extern "C" fn cuGetErrorString(error: Status, text: *mut *const c_char) -> Status {
    enter("cuGetErrorString", Needs::Nothing, |_| error_text(text, status::texts(error).map(|texts| texts.1)))
}

/// The address of a function of this library, in its newest version.
fn address(symbol: *const c_char) -> *mut c_void {
    // SAFETY: all zeros is a valid value, which the call fills in.
    let mut own: libc::Dl_info = unsafe { std::mem::zeroed() };
    // SAFETY: only looks up the file of one of our functions.
    unsafe { libc::dladdr(cuInit as *const c_void, &mut own) };
    // SAFETY: the name is the loader's; the library is loaded already.
    let library = unsafe { libc::dlopen(own.dli_fname, libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
    // SAFETY: the caller of cuGetProcAddress guarantees that the string is valid.
    let symbol = unsafe { CStr::from_ptr(symbol) }.to_string_lossy();
    let versions = ["_v3", "_v2", ""].iter().filter_map(|end| CString::new(format!("{symbol}{end}")).ok());
    let found = versions.map(|name| {
        // SAFETY: the handle is valid, the name ends in NUL.
        unsafe { libc::dlsym(library, name.as_ptr()) }
    });
    found.into_iter().find(|address| !address.is_null()).unwrap_or(std::ptr::null_mut())
}

#[unsafe(no_mangle)]
extern "C" fn cuGetProcAddress_v2(
    symbol: *const c_char,
    function: *mut *mut c_void,
    version: c_int,
    _flags: u64,
    found: *mut c_int,
) -> Status {
    enter("cuGetProcAddress_v2", Needs::Nothing, |_| {
        if symbol.is_null() || version > settings().version {
            return Err(status::INVALID_VALUE);
        }
        let address = address(symbol);
        put(function, address)?;
        if !found.is_null() {
            // CU_GET_PROC_ADDRESS_SUCCESS, _SYMBOL_NOT_FOUND
            put(found, c_int::from(address.is_null()))?;
        }
        if address.is_null() { Err(status::NOT_FOUND) } else { Ok(()) }
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuGetProcAddress(
    symbol: *const c_char,
    function: *mut *mut c_void,
    version: c_int,
    flags: u64,
) -> Status {
    cuGetProcAddress_v2(symbol, function, version, flags, std::ptr::null_mut())
}

#[unsafe(no_mangle)]
extern "C" fn cuDeviceGetCount(count: *mut c_int) -> Status {
    enter("cuDeviceGetCount", Needs::Driver, |_| put(count, settings().devices))
}

fn known(device: c_int) -> Result<(), Status> {
    if (0..settings().devices).contains(&device) { Ok(()) } else { Err(status::INVALID_DEVICE) }
}

#[unsafe(no_mangle)]
extern "C" fn cuDeviceGet(device: *mut c_int, ordinal: c_int) -> Status {
    enter("cuDeviceGet", Needs::Driver, |_| {
        known(ordinal)?;
        put(device, ordinal)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuDeviceGetName(name: *mut c_char, length: c_int, device: c_int) -> Status {
    enter("cuDeviceGetName", Needs::Driver, |_| {
        known(device)?;
        let text = c"Foreload stand-in";
        if name.is_null() || length < 1 {
            return Err(status::INVALID_VALUE);
        }
        // SAFETY: the caller guarantees `length` bytes; the string is cut to them and ends in NUL.
        unsafe { libc::snprintf(name, length as usize, c"%s".as_ptr(), text.as_ptr()) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuDeviceTotalMem_v2(bytes: *mut usize, device: c_int) -> Status {
    enter("cuDeviceTotalMem_v2", Needs::Driver, |_| {
        known(device)?;
        put(bytes, settings().memory as usize)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuDeviceGetAttribute(value: *mut c_int, attribute: c_int, device: c_int) -> Status {
    enter("cuDeviceGetAttribute", Needs::Driver, |_| {
        known(device)?;
        let (major, minor) = settings().capability;
        let answer = match attribute {
            // MAX_THREADS_PER_BLOCK, MAX_SHARED_MEMORY_PER_BLOCK, WARP_SIZE
            1 => 1024,
            8 => 48 << 10,
            10 => 32,
            // MULTIPROCESSOR_COUNT, INTEGRATED, CAN_MAP_HOST_MEMORY
            16 => 4,
            18 => 0,
            19 => 1,
            // COMPUTE_MODE: default; CONCURRENT_KERNELS; ASYNC_ENGINE_COUNT; UNIFIED_ADDRESSING
            20 => 0,
            31 | 41 => 1,
            40 => 2,
            // COMPUTE_CAPABILITY_MAJOR, _MINOR
            75 => major,
            76 => minor,
            // MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, MEMORY_POOLS_SUPPORTED
            97 => 96 << 10,
            115 => 1,
            _ => return Err(status::INVALID_VALUE),
        };
        put(value, answer)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuDevicePrimaryCtxRetain(context: *mut u64, device: c_int) -> Status {
    enter("cuDevicePrimaryCtxRetain", Needs::Driver, |call| {
        known(device)?;
        put(context, World::context_of(device))?;
        call.retained[device as usize] += 1;
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuDevicePrimaryCtxRelease_v2(device: c_int) -> Status {
    enter("cuDevicePrimaryCtxRelease_v2", Needs::Driver, |call| {
        known(device)?;
        let count = call.retained[device as usize];
        if count == 0 {
            call.violate("a primary context is released more often than it was retained".to_owned());
            return Err(status::INVALID_CONTEXT);
        }
        let context = World::context_of(device);
        let lives = |call: &World| {
            call.by_handle.values().any(|actor| call.streams[*actor].context == context)
                || call.events.values().any(|event| event.context == context)
                || call.modules.values().any(|module| module.context == context)
                || call.memory.live().next().is_some()
        };
        if count == 1 && lives(call) {
            let leaks = call.leaks().join(", ");
            call.violate(format!("a primary context is released while there are {leaks}"));
        }
        if count == 1 {
            call.wait_until(World::is_idle);
            let gone: Vec<_> = call.defaults.extract_if(|(own, _), _| *own == context).collect();
            for (_, actor) in gone {
                call.close_stream(actor);
            }
        }
        call.retained[device as usize] -= 1;
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxGetCurrent(context: *mut u64) -> Status {
    enter("cuCtxGetCurrent", Needs::Driver, |call| put(context, call.context))
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxSetCurrent(context: u64) -> Status {
    enter("cuCtxSetCurrent", Needs::Driver, |call| {
        if context != 0 && call.device_of(context).is_none() {
            call.violate("cuCtxSetCurrent of a context that was released, or never was one".to_owned());
            return Err(status::INVALID_CONTEXT);
        }
        CONTEXTS.with_borrow_mut(|contexts| {
            contexts.pop();
            if context != 0 {
                contexts.push(context);
            }
        });
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxPushCurrent_v2(context: u64) -> Status {
    enter("cuCtxPushCurrent_v2", Needs::Driver, |call| {
        call.device_of(context).ok_or(status::INVALID_CONTEXT)?;
        CONTEXTS.with_borrow_mut(|contexts| contexts.push(context));
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxPopCurrent_v2(context: *mut u64) -> Status {
    enter("cuCtxPopCurrent_v2", Needs::Driver, |_| {
        let popped = CONTEXTS.with_borrow_mut(Vec::pop).ok_or(status::INVALID_CONTEXT)?;
        if context.is_null() { Ok(()) } else { put(context, popped) }
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxGetDevice(device: *mut c_int) -> Status {
    enter("cuCtxGetDevice", Needs::Context, |call| {
        let own = call.device_of(call.context).ok_or(status::INVALID_CONTEXT)?;
        put(device, own)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxSynchronize() -> Status {
    enter("cuCtxSynchronize", Needs::Context, |call| {
        let context = call.context;
        let own = |world: &World| {
            let streams = world.streams.iter().enumerate().filter(move |(_, own)| own.context == context);
            streams.map(|(actor, own)| (actor, own.queued, own.clock.clone())).collect::<Vec<_>>()
        };
        let seen = own(call);
        call.wait_until(|world| seen.iter().all(|(actor, number, _)| world.streams[*actor].done >= *number));
        for (_, _, clock) in &seen {
            call.host_joins(clock);
        }
        Ok(())
    })
}
