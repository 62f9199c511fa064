//! Device memory, memory pools and page-locked host memory.

use crate::cost;
use crate::entry::{Call, Needs, enter, put};
use crate::memory::Source;
use crate::pool::Pool;
use crate::status::{self, Status};
use crate::stream::Plan;
use crate::world::{HostRange, World, lock};
use std::ffi::{c_int, c_void};

#[unsafe(no_mangle)]
extern "C" fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize) -> Status {
    enter("cuMemGetInfo_v2", Needs::Context, |call| {
        let device = call.device_of(call.context).ok_or(status::INVALID_CONTEXT)?;
        put(free, call.left(device) as usize)?;
        put(total, crate::settings::settings().memory as usize)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemAlloc_v2(pointer: *mut u64, bytes: usize) -> Status {
    enter("cuMemAlloc_v2", Needs::Context, |call| {
        let device = call.device_of(call.context).ok_or(status::INVALID_CONTEXT)?;
        if bytes == 0 {
            return Err(status::INVALID_VALUE);
        }
        if bytes as u64 > call.left(device) {
            return Err(status::OUT_OF_MEMORY);
        }
        let start = call.memory.allocate(bytes as u64, Source::Plain).ok_or(status::OUT_OF_MEMORY)?;
        put(pointer, start)?;
        let born = call.host_step();
        if let Some(found) = call.memory.at(start) {
            found.born = Some(born);
        }
        Ok(())
    })
}

/// Marks an allocation as being freed; refuses addresses that are not allocations or were freed before.
fn begin_free(call: &mut Call, pointer: u64) -> Result<(), Status> {
    let by = std::sync::Arc::new(call.by_host());
    let (order, name) = (call.order, call.name);
    let problem = match call.memory.at(pointer) {
        None => Some(format!("{name} of {pointer:#x}, where no allocation begins")),
        Some(found) => match &found.freed {
            Some((_, earlier)) => Some(format!("{name} of what {} freed before", earlier.text)),
            None => {
                found.freed = Some((order, by));
                None
            }
        },
    };
    match problem {
        None => Ok(()),
        Some(problem) => {
            call.violate(problem);
            Err(status::INVALID_VALUE)
        }
    }
}

#[unsafe(no_mangle)]
extern "C" fn cuMemFree_v2(pointer: u64) -> Status {
    enter("cuMemFree_v2", Needs::Context, |call| {
        if pointer == 0 {
            return Ok(());
        }
        call.wait_until(World::is_idle);
        for actor in 0..call.streams.len() {
            let clock = call.streams[actor].clock.clone();
            call.host_joins(&clock);
        }
        begin_free(call, pointer)?;
        let (by, clock) = (call.by_host(), call.host.clone());
        call.end_allocation(pointer, &by, &clock);
        call.give_back(pointer);
        call.memory.release();
        Ok(())
    })
}

/// The part of `CUmemPoolProps` that is used here.
#[repr(C)]
struct Properties {
    kind: u32,
    handles: u32,
    location: u32,
    device: c_int,
    security: *mut c_void,
    most: usize,
    reserved: [u8; 56],
}

#[unsafe(no_mangle)]
extern "C" fn cuMemPoolCreate(pool: *mut u64, properties: *const Properties) -> Status {
    enter("cuMemPoolCreate", Needs::Driver, |call| {
        if properties.is_null() {
            return Err(status::INVALID_VALUE);
        }
        // SAFETY: the caller of the driver's function guarantees that the pointer is valid.
        let Properties { kind, handles, location, device, security, most, reserved } =
            unsafe { properties.read() };
        let valid = (kind, handles, location) == (1, 0, 1)
            && (0..call.retained.len() as c_int).contains(&device)
            && security.is_null()
            && reserved.iter().all(|byte| *byte == 0);
        if !valid {
            return Err(status::INVALID_VALUE);
        }
        // More than the device has is refused here; the status of a real driver is not documented.
        if most as u64 > crate::settings::settings().memory {
            return Err(status::INVALID_VALUE);
        }
        let handle = call.new_handle();
        put(pool, handle)?;
        call.pools.insert(handle, Pool::new(device, most as u64));
        Ok(())
    })
}

fn known(call: &mut Call, pool: u64) -> Result<&mut Pool, Status> {
    if call.pools.get(&pool).is_none_or(|pool| pool.destroyed) {
        let name = call.name;
        return Err(call.bad_handle(name, pool));
    }
    call.pools.get_mut(&pool).ok_or(status::INVALID_VALUE)
}

#[unsafe(no_mangle)]
extern "C" fn cuMemPoolDestroy(pool: u64) -> Status {
    enter("cuMemPoolDestroy", Needs::Driver, |call| {
        let pool_state = known(call, pool)?;
        pool_state.destroyed = true;
        // Memory in use stays; cached memory is released.
        pool_state.reserved = pool_state.used;
        call.bury(pool, "memory pool");
        Ok(())
    })
}

/// `CU_MEMPOOL_ATTR_*`
const THRESHOLD: c_int = 4;
const RESERVED: c_int = 5;
const RESERVED_HIGH: c_int = 6;
const USED: c_int = 7;
const USED_HIGH: c_int = 8;

#[unsafe(no_mangle)]
extern "C" fn cuMemPoolSetAttribute(pool: u64, attribute: c_int, value: *mut c_void) -> Status {
    enter("cuMemPoolSetAttribute", Needs::Driver, |call| {
        let pool = known(call, pool)?;
        if value.is_null() {
            return Err(status::INVALID_VALUE);
        }
        // SAFETY: by the documentation, these attributes are 64-bit integers; the caller guarantees that the pointer is
        // valid.
        let number = || unsafe { value.cast::<u64>().read_unaligned() };
        match attribute {
            1..=3 => {}
            THRESHOLD => pool.threshold = number(),
            RESERVED_HIGH if number() == 0 => pool.reserved_high = pool.reserved,
            USED_HIGH if number() == 0 => pool.used_high = pool.used,
            _ => return Err(status::INVALID_VALUE),
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemPoolGetAttribute(pool: u64, attribute: c_int, value: *mut c_void) -> Status {
    enter("cuMemPoolGetAttribute", Needs::Driver, |call| {
        let pool = known(call, pool)?;
        let answer = match attribute {
            THRESHOLD => pool.threshold,
            RESERVED => pool.reserved,
            RESERVED_HIGH => pool.reserved_high,
            USED => pool.used,
            USED_HIGH => pool.used_high,
            _ => return Err(status::INVALID_VALUE),
        };
        put(value.cast::<u64>(), answer)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemAllocFromPoolAsync(pointer: *mut u64, bytes: usize, pool: u64, stream: u64) -> Status {
    enter("cuMemAllocFromPoolAsync", Needs::Context, |call| {
        let actor = call.stream(stream)?;
        if bytes == 0 || pointer.is_null() {
            return Err(status::INVALID_VALUE);
        }
        let device = known(call, pool)?.device;
        let left = call.left(device);
        known(call, pool)?.take(bytes as u64, left)?;
        let start = call.memory.allocate(bytes as u64, Source::Pool(pool)).ok_or(status::OUT_OF_MEMORY)?;
        put(pointer, start)?;
        call.count("allocations", 1);
        call.queue(actor, "cuMemAllocFromPoolAsync", Plan::default(), move |running| {
            if let Some(found) = lock().memory.at(start) {
                found.born = Some(running.mark.stamp);
            }
        });
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemFreeAsync(pointer: u64, stream: u64) -> Status {
    enter("cuMemFreeAsync", Needs::Context, |call| {
        let actor = call.stream(stream)?;
        begin_free(call, pointer)?;
        // Later allocations of this stream may use the memory at once: for the pool, it is free from here on.
        call.give_back(pointer);
        call.queue(actor, "cuMemFreeAsync", Plan::default(), move |running| {
            lock().end_allocation(pointer, &running.mark.operation, &running.clock);
        });
        Ok(())
    })
}

/// `CU_MEMHOSTREGISTER_PORTABLE`, and `CU_MEMHOSTALLOC_PORTABLE`.
const PORTABLE: u32 = 1;

fn enter_range(call: &mut Call, start: u64, bytes: usize, flags: u32, allocated: bool) {
    let context = (flags & PORTABLE == 0).then_some(call.context);
    let allocated = allocated.then_some(bytes);
    call.host_ranges.insert(start, HostRange { end: start + bytes as u64, context, allocated });
}

#[unsafe(no_mangle)]
extern "C" fn cuMemHostRegister_v2(start: *mut c_void, bytes: usize, flags: u32) -> Status {
    enter("cuMemHostRegister_v2", Needs::Context, |call| {
        let start = start as u64;
        if start == 0 || bytes == 0 || flags > 15 {
            return Err(status::INVALID_VALUE);
        }
        let end = start + bytes as u64;
        let before = call.host_ranges.range(..end).next_back();
        if before.is_some_and(|(_, range)| range.end > start) {
            return Err(status::HOST_MEMORY_ALREADY_REGISTERED);
        }
        enter_range(call, start, bytes, flags, false);
        call.count(cost::COUNTER, cost::registering(bytes));
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemHostGetDevicePointer_v2(pointer: *mut u64, start: *mut c_void, flags: u32) -> Status {
    enter("cuMemHostGetDevicePointer_v2", Needs::Context, |call| {
        let start = start as u64;
        if flags != 0 || !call.is_locked(start, start + 1, call.context) {
            return Err(status::INVALID_VALUE);
        }
        put(pointer, start)
    })
}

/// Removes a range; using it afterwards is a violation.
fn remove_range(call: &mut Call, start: u64, allocated: bool) -> Result<HostRange, Status> {
    let fits = call.host_ranges.get(&start).is_some_and(|range| range.allocated.is_some() == allocated);
    let range = fits.then(|| call.host_ranges.remove(&start)).flatten();
    let range = range.ok_or(status::HOST_MEMORY_NOT_REGISTERED)?;
    let clock = call.host.clone();
    if let Some(clash) = call.shadow.end(start, range.end, &clock)
        && let Some((how, by)) = clash.earlier
    {
        let text = format!(
            "{} unlocks host memory; the host has not waited for {}, which has {how} it",
            call.name, by.text
        );
        call.violate(text);
    }
    Ok(range)
}

#[unsafe(no_mangle)]
extern "C" fn cuMemHostUnregister(start: *mut c_void) -> Status {
    enter("cuMemHostUnregister", Needs::Context, |call| remove_range(call, start as u64, false).map(drop))
}

#[unsafe(no_mangle)]
extern "C" fn cuMemHostAlloc(start: *mut *mut c_void, bytes: usize, flags: u32) -> Status {
    enter("cuMemHostAlloc", Needs::Context, |call| {
        if bytes == 0 || flags > 7 {
            return Err(status::INVALID_VALUE);
        }
        let flags_of = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice.
        let made = unsafe { libc::mmap(std::ptr::null_mut(), bytes, access, flags_of, -1, 0) };
        if made == libc::MAP_FAILED {
            return Err(status::OUT_OF_MEMORY);
        }
        put(start, made)?;
        enter_range(call, made as u64, bytes, flags, true);
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemAllocHost_v2(start: *mut *mut c_void, bytes: usize) -> Status {
    cuMemHostAlloc(start, bytes, 0)
}

#[unsafe(no_mangle)]
extern "C" fn cuMemFreeHost(start: *mut c_void) -> Status {
    enter("cuMemFreeHost", Needs::Context, |call| {
        let range = remove_range(call, start as u64, true)?;
        let bytes = range.allocated.unwrap_or(0);
        // SAFETY: the mapping was made by `cuMemHostAlloc`, and was removed from the list.
        unsafe { libc::munmap(start, bytes) };
        Ok(())
    })
}

/// `CU_POINTER_ATTRIBUTE_MEMORY_TYPE`; 1 is host memory, 2 device memory.
const MEMORY_TYPE: c_int = 2;

#[unsafe(no_mangle)]
extern "C" fn cuPointerGetAttribute(value: *mut c_void, attribute: c_int, pointer: u64) -> Status {
    enter("cuPointerGetAttribute", Needs::Context, |call| {
        if attribute != MEMORY_TYPE {
            return Err(status::NOT_SUPPORTED);
        }
        let live = call.memory.find(pointer).is_some_and(|found| found.freed.is_none());
        let locked = call.is_locked(pointer, pointer + 1, call.context);
        match (live, locked) {
            (true, _) => put(value.cast::<u32>(), 2),
            (_, true) => put(value.cast::<u32>(), 1),
            _ => Err(status::INVALID_VALUE),
        }
    })
}
