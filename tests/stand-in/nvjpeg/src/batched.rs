//! Decoding in batches: on the engine, or on the caller's stream.

use std::ffi::c_int;
use std::sync::{Arc, Mutex};

use nvjpeg_sys::sys::*;

use crate::control::knob;
use crate::driver;
use crate::handles::{Params, Parsed};
use crate::header::Header;
use crate::image::{Planes, Wish, decode, is_known};
use crate::objects::{Buffer, Instance, alone, end, get, give};
use crate::phased::State;
use crate::{Answer, Status, answer};

const INVALID: Status = Status::NVJPEG_STATUS_INVALID_PARAMETER;

/// A state for batches.
pub struct Batch {
    instance: usize,
    prepared: Option<(usize, nvjpegOutputFormat_t)>,
    staging: Buffer,
}

/// Whether the backend takes a file.
fn takes(instance: &Instance, header: &Header, params: &Params) -> bool {
    if instance.engine.is_none() {
        return is_known(header);
    }
    let refused = match header.sampling() {
        nvjpegChromaSubsampling_t::NVJPEG_CSS_444 => "refuse-444",
        nvjpegChromaSubsampling_t::NVJPEG_CSS_422 => "refuse-422",
        nvjpegChromaSubsampling_t::NVJPEG_CSS_420 => "refuse-420",
        nvjpegChromaSubsampling_t::NVJPEG_CSS_440 => "refuse-440",
        nvjpegChromaSubsampling_t::NVJPEG_CSS_GRAY => "refuse-gray",
        // "410 and 411 sub-samplings are not supported" (nvjpeg.h).
        _ => return false,
    };
    // "supports baseline JPEG bitstream with single scan" (nvjpeg.h).
    let baseline = header.marker == 0xC0 && header.precision == 8 && header.scan == header.factors.len();
    baseline && !knob(refused) && !(params.region.is_some() && knob("no-region"))
}

#[unsafe(no_mangle)]
extern "C" fn nvjpegDecodeBatchedSupportedEx(
    handle: nvjpegHandle_t,
    stream: nvjpegJpegStream_t,
    params: nvjpegDecodeParams_t,
    is_supported: *mut c_int,
) -> Status {
    answer("nvjpegDecodeBatchedSupportedEx", || {
        let instance = get::<Instance, _>(handle)?;
        let (parsed, params) = (get::<Mutex<Parsed>, _>(stream)?, get::<Mutex<Params>, _>(params)?);
        let parsed = alone(&parsed);
        let header = parsed.header.as_ref().ok_or(INVALID)?;
        if is_supported.is_null() {
            return Err(INVALID);
        }
        let no = c_int::from(!takes(&instance, header, &alone(&params)));
        // SAFETY: not null, and the caller's to write.
        unsafe { *is_supported = no };
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn nvjpegJpegStateCreate(handle: nvjpegHandle_t, state: *mut nvjpegJpegState_t) -> Status {
    answer("nvjpegJpegStateCreate", || {
        let instance = get::<Instance, _>(handle)?;
        let staging = Buffer::of_host(&instance.pinned)?;
        give(State::Batch(Mutex::new(Batch { instance: handle as usize, prepared: None, staging })), state)
    })
}

#[unsafe(no_mangle)]
extern "C" fn nvjpegJpegStateDestroy(state: nvjpegJpegState_t) -> Status {
    answer("nvjpegJpegStateDestroy", || end::<State, _>(state))
}

/// The state for batches behind a handle, which must be of this instance.
fn with<T>(
    handle: nvjpegHandle_t,
    state: nvjpegJpegState_t,
    act: impl FnOnce(&Arc<Instance>, &mut Batch) -> Answer<T>,
) -> Answer<T> {
    let instance = get::<Instance, _>(handle)?;
    match &*get::<State, _>(state)? {
        State::Batch(batch) => {
            let mut batch = alone(batch);
            if batch.instance != handle as usize {
                return Err(INVALID);
            }
            act(&instance, &mut batch)
        }
        State::Phases(_) => Err(INVALID),
    }
}

#[unsafe(no_mangle)]
extern "C" fn nvjpegDecodeBatchedPreAllocate(
    handle: nvjpegHandle_t,
    state: nvjpegJpegState_t,
    batch_size: c_int,
    width: c_int,
    height: c_int,
    _sampling: nvjpegChromaSubsampling_t,
    _format: nvjpegOutputFormat_t,
) -> Status {
    answer("nvjpegDecodeBatchedPreAllocate", || {
        with(handle, state, |_, batch| {
            if batch_size < 0 || width < 1 || height < 1 {
                return Err(INVALID);
            }
            let bytes = 3 * batch_size as usize * width as usize * height as usize;
            batch.staging.room(bytes, 0).map(drop)
        })
    })
}

#[unsafe(no_mangle)]
extern "C" fn nvjpegDecodeBatchedInitialize(
    handle: nvjpegHandle_t,
    state: nvjpegJpegState_t,
    batch_size: c_int,
    max_cpu_threads: c_int,
    format: nvjpegOutputFormat_t,
) -> Status {
    answer("nvjpegDecodeBatchedInitialize", || {
        with(handle, state, |_, batch| {
            if batch_size < 1 || max_cpu_threads < 1 {
                return Err(INVALID);
            }
            batch.prepared = Some((batch_size as usize, format));
            Ok(())
        })
    })
}

#[unsafe(no_mangle)]
extern "C" fn nvjpegDecodeBatchedEx(
    handle: nvjpegHandle_t,
    state: nvjpegJpegState_t,
    data: *const *const u8,
    lengths: *const usize,
    destinations: *mut nvjpegImage_t,
    params: *mut nvjpegDecodeParams_t,
    stream: cudaStream_t,
) -> Status {
    answer("nvjpegDecodeBatchedEx", || {
        driver::context()?;
        with(handle, state, |instance, batch| {
            let (count, format) = batch.prepared.ok_or(INVALID)?;
            if data.is_null() || lengths.is_null() || destinations.is_null() || params.is_null() {
                return Err(INVALID);
            }
            // SAFETY: the caller vouches for as many entries as the batch was prepared for.
            let (data, lengths, targets, params) = unsafe {
                (
                    std::slice::from_raw_parts(data, count),
                    std::slice::from_raw_parts(lengths, count),
                    std::slice::from_raw_parts(destinations, count),
                    std::slice::from_raw_parts(params, count),
                )
            };
            let mut done: Vec<(Planes, &nvjpegImage_t)> = Vec::with_capacity(count);
            let mut failure = Ok(());
            for image in 0..count {
                let one = || {
                    if data[image].is_null() {
                        return Err(INVALID);
                    }
                    // SAFETY: the caller vouches for as many bytes.
                    let file = unsafe { std::slice::from_raw_parts(data[image], lengths[image]) };
                    let params = get::<Mutex<Params>, _>(params[image])?;
                    one(instance, file, &alone(&params), format, &targets[image])
                };
                match one() {
                    Ok(planes) => done.push((planes, &targets[image])),
                    Err(status) => {
                        // Those before it may be under way: a batch has one status only.
                        failure = Err(status);
                        break;
                    }
                }
            }
            if instance.engine.is_some() && knob("skip") && !done.is_empty() {
                done.remove(0);
            }
            send(instance, batch, &done, stream as u64)?;
            failure
        })
    })
}

fn one(
    instance: &Instance,
    file: &[u8],
    params: &Params,
    format: nvjpegOutputFormat_t,
    target: &nvjpegImage_t,
) -> Answer<Planes> {
    if !takes(instance, &Header::parse(file)?, params) {
        return Err(Status::NVJPEG_STATUS_JPEG_NOT_SUPPORTED);
    }
    let mut region = params.region;
    if let Some(region) = region.as_mut().filter(|_| instance.engine.is_some() && knob("askew")) {
        region.0 = if region.0 == 0 { 8 } else { region.0 - 8 };
        region.2 = region.2.saturating_sub(8).max(1);
    }
    let planes = decode(file, &Wish { format, region, strict: instance.strict })?;
    planes.check(target)?;
    Ok(planes)
}

/// Queues what was decoded.
fn send(instance: &Instance, batch: &mut Batch, done: &[(Planes, &nvjpegImage_t)], stream: u64) -> Answer {
    let total = done.iter().map(|(planes, _)| planes.bytes.len()).sum();
    if total == 0 {
        return Ok(());
    }
    let mut at = batch.staging.room(total, stream)?;
    // On real hardware too the engine does not wait for what the caller's stream has queued before.
    let worker = instance.engine.as_ref().map_or(stream, |engine| engine.0);
    let mut sent = Ok(());
    for (planes, target) in done {
        // SAFETY: the buffer has room for all, and no work uses it.
        unsafe { std::ptr::copy_nonoverlapping(planes.bytes.as_ptr(), at as *mut u8, planes.bytes.len()) };
        sent = planes.send(at, false, target, worker);
        if sent.is_err() {
            break;
        }
        at += planes.bytes.len() as u64;
    }
    // Also where it failed: what was sent is under way, and the caller can only wait for its own stream.
    let marked = batch.staging.used_by(worker);
    let held = marked.and_then(|()| if worker != stream { batch.staging.hold(stream) } else { Ok(()) });
    if held.is_err() {
        driver::synchronize(worker)?;
    }
    sent.and(held)
}
