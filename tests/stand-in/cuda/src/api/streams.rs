//! Streams, events and host functions.

use crate::entry::{Call, IN_HOST_FUNCTION, Needs, enter, put};
use crate::status::{self, Status};
use crate::stream::{Event, Plan};
use std::ffi::{c_int, c_void};
use std::sync::PoisonError;

/// `CU_EVENT_BLOCKING_SYNC`: a wait for such an event sleeps; in all other waits a real driver may spin.
const BLOCKING: u32 = 1;

/// `CU_EVENT_DISABLE_TIMING`.
const NO_TIMING: u32 = 2;

fn create(call: &mut Call, stream: *mut u64, flags: u32) -> Result<(), Status> {
    if flags > 1 {
        return Err(status::INVALID_VALUE);
    }
    let handle = call.new_handle();
    put(stream, handle)?;
    let context = call.context;
    let actor = call.open_stream(context, flags, false);
    call.by_handle.insert(handle, actor);
    Ok(())
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamCreate(stream: *mut u64, flags: u32) -> Status {
    enter("cuStreamCreate", Needs::Context, |call| create(call, stream, flags))
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamCreateWithPriority(stream: *mut u64, flags: u32, _priority: c_int) -> Status {
    enter("cuStreamCreateWithPriority", Needs::Context, |call| create(call, stream, flags))
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamDestroy_v2(stream: u64) -> Status {
    enter("cuStreamDestroy_v2", Needs::Context, |call| {
        let actor = call.stream(stream)?;
        if call.by_handle.remove(&stream).is_none() {
            return Err(status::INVALID_HANDLE);
        }
        call.bury(stream, "stream");
        call.close_stream(actor);
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamSynchronize(stream: u64) -> Status {
    enter("cuStreamSynchronize", Needs::Context, |call| {
        let actor = call.stream(stream)?;
        let (queued, clock) = (call.streams[actor].queued, call.streams[actor].clock.clone());
        if call.streams[actor].done < queued {
            call.count("spinning waits", 1);
        }
        call.wait_until(|world| world.streams[actor].done >= queued);
        call.host_joins(&clock);
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamQuery(stream: u64) -> Status {
    enter("cuStreamQuery", Needs::Context, |call| {
        let actor = call.stream(stream)?;
        if call.streams[actor].done < call.streams[actor].queued {
            return Err(status::NOT_READY);
        }
        let clock = call.streams[actor].clock.clone();
        call.host_joins(&clock);
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamGetCtx(stream: u64, context: *mut u64) -> Status {
    enter("cuStreamGetCtx", Needs::Context, |call| {
        let actor = call.stream(stream)?;
        put(context, call.streams[actor].context)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamGetFlags(stream: u64, flags: *mut u32) -> Status {
    enter("cuStreamGetFlags", Needs::Context, |call| {
        let actor = call.stream(stream)?;
        put(flags, call.streams[actor].flags)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamWaitEvent(stream: u64, event: u64, _flags: u32) -> Status {
    enter("cuStreamWaitEvent", Needs::Context, |call| {
        let actor = call.stream(stream)?;
        let record = known(call, event)?.record.clone();
        // An event that was never recorded is not waited for.
        if let Some(record) = record {
            let plan = Plan { after: vec![record], ..Plan::default() };
            call.queue(actor, "cuStreamWaitEvent", plan, |_| ());
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuLaunchHostFunc(
    stream: u64,
    function: Option<extern "C" fn(*mut c_void)>,
    data: *mut c_void,
) -> Status {
    enter("cuLaunchHostFunc", Needs::Context, |call| {
        let actor = call.stream(stream)?;
        let function = function.ok_or(status::INVALID_VALUE)?;
        let data = data as usize;
        call.host_writers += 1;
        call.queue(actor, "cuLaunchHostFunc", Plan::default(), move |_| {
            IN_HOST_FUNCTION.set(true);
            function(data as *mut c_void);
            IN_HOST_FUNCTION.set(false);
            crate::world::lock().host_writers -= 1;
        });
        Ok(())
    })
}

fn known(call: &mut Call, event: u64) -> Result<&mut Event, Status> {
    if !call.events.contains_key(&event) {
        let name = call.name;
        return Err(call.bad_handle(name, event));
    }
    call.events.get_mut(&event).ok_or(status::INVALID_HANDLE)
}

#[unsafe(no_mangle)]
extern "C" fn cuEventCreate(event: *mut u64, flags: u32) -> Status {
    enter("cuEventCreate", Needs::Context, |call| {
        if flags > 7 {
            return Err(status::INVALID_VALUE);
        }
        let handle = call.new_handle();
        put(event, handle)?;
        let context = call.context;
        call.events.insert(handle, Event { context, flags, record: None });
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuEventDestroy_v2(event: u64) -> Status {
    enter("cuEventDestroy_v2", Needs::Context, |call| {
        known(call, event)?;
        call.events.remove(&event);
        call.bury(event, "event");
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuEventRecord(event: u64, stream: u64) -> Status {
    enter("cuEventRecord", Needs::Context, |call| {
        let actor = call.stream(stream)?;
        let context = known(call, event)?.context;
        if context != call.streams[actor].context {
            return Err(status::INVALID_HANDLE);
        }
        let record = call.record(actor);
        known(call, event)?.record = Some(record);
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuEventQuery(event: u64) -> Status {
    enter("cuEventQuery", Needs::Context, |call| {
        let Some(record) = known(call, event)?.record.clone() else { return Ok(()) };
        if call.streams[record.stream].done < record.number {
            return Err(status::NOT_READY);
        }
        call.host_joins(&record.clock);
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuEventSynchronize(event: u64) -> Status {
    enter("cuEventSynchronize", Needs::Context, |call| {
        let event = known(call, event)?;
        let (flags, Some(record)) = (event.flags, event.record.clone()) else { return Ok(()) };
        if flags & BLOCKING == 0 && call.streams[record.stream].done < record.number {
            call.count("spinning waits", 1);
        }
        call.wait_until(|world| world.streams[record.stream].done >= record.number);
        call.host_joins(&record.clock);
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuEventElapsedTime(milliseconds: *mut f32, start: u64, end: u64) -> Status {
    enter("cuEventElapsedTime", Needs::Context, |call| {
        let mut passed = |event| {
            let event = known(call, event)?;
            let record = event.record.as_ref().filter(|_| event.flags & NO_TIMING == 0);
            let passed = record.ok_or(status::INVALID_HANDLE)?.passed.clone();
            let passed = *passed.lock().unwrap_or_else(PoisonError::into_inner);
            passed.ok_or(status::NOT_READY)
        };
        let (start, end) = (passed(start)?, passed(end)?);
        put(milliseconds, end.saturating_duration_since(start).as_secs_f32() * 1e3)
    })
}
