//! Decoding in batches: on the engine, or on the caller's stream.

use std::ffi::c_int;
use std::sync::{Arc, Mutex};

use nvjpeg_sys::sys::*;

use crate::control::knob;
use crate::costs;
use crate::driver;
use crate::handles::{Params, Parsed};
use crate::header::{Header, is_whole};
use crate::image::{Planes, Wish, decode, is_known};
use crate::objects::{Buffer, Instance, alone, end, get, give};
use crate::phased::State;
use crate::{Answer, Status, answer, misuse};

const INVALID: Status = Status::NVJPEG_STATUS_INVALID_PARAMETER;

/// The state of a decoder for batches.
pub struct Batch {
    instance: usize,
    prepared: Option<(usize, nvjpegOutputFormat_t)>,
    staging: Buffer,
}

/// Whether the backend supports a file.
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

/// Gives the same result for every backend, by the kind of the file, even for a backend that then refuses all batches.
fn say(
    handle: nvjpegHandle_t,
    stream: nvjpegJpegStream_t,
    params: &Params,
    is_supported: *mut c_int,
) -> Answer {
    let instance = get::<Instance, _>(handle)?;
    let parsed = get::<Mutex<Parsed>, _>(stream)?;
    let parsed = alone(&parsed);
    let header = parsed.header.as_ref().ok_or(INVALID)?;
    if is_supported.is_null() {
        return Err(INVALID);
    }
    let no = c_int::from(!takes(&instance, header, params));
    // SAFETY: not null, and the caller's to write.
    unsafe { *is_supported = no };
    Ok(())
}

#[unsafe(no_mangle)]
extern "C" fn nvjpegDecodeBatchedSupported(
    handle: nvjpegHandle_t,
    stream: nvjpegJpegStream_t,
    is_supported: *mut c_int,
) -> Status {
    answer("nvjpegDecodeBatchedSupported", || say(handle, stream, &Params::default(), is_supported))
}

#[unsafe(no_mangle)]
extern "C" fn nvjpegDecodeBatchedSupportedEx(
    handle: nvjpegHandle_t,
    stream: nvjpegJpegStream_t,
    params: nvjpegDecodeParams_t,
    is_supported: *mut c_int,
) -> Status {
    answer("nvjpegDecodeBatchedSupportedEx", || {
        let params = get::<Mutex<Params>, _>(params)?;
        let params = alone(&params);
        say(handle, stream, &params, is_supported)
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

/// Calls `act` with the state for batches of a handle, which must belong to this instance.
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

/// The images of a call as the caller passes them. Without parameters, whole images in the batch's format are decoded.
struct Images {
    data: *const *const u8,
    lengths: *const usize,
    targets: *mut nvjpegImage_t,
    params: Option<*mut nvjpegDecodeParams_t>,
}

impl Images {
    /// # Safety
    /// There must be more than `image` of them.
    unsafe fn decode(
        &self,
        image: usize,
        instance: &Instance,
        format: nvjpegOutputFormat_t,
    ) -> Answer<Decoded> {
        // SAFETY: the caller guarantees that the entries are valid, and the number of bytes that the pointer points to.
        let (file, target) = unsafe {
            let data = *self.data.add(image);
            if data.is_null() {
                return Err(INVALID);
            }
            (std::slice::from_raw_parts(data, *self.lengths.add(image)), *self.targets.add(image))
        };
        let params = match self.params {
            // SAFETY: as above.
            Some(params) => Some(get::<Mutex<Params>, _>(unsafe { *params.add(image) })?),
            None => None,
        };
        let region = params.and_then(|params| alone(&params).region);
        let (planes, header) = one(instance, file, &Params { format, region }, &target)?;
        Ok(Decoded { planes, target, header })
    }
}

struct Decoded {
    planes: Planes,
    target: nvjpegImage_t,
    header: Header,
}

fn decode_all(
    handle: nvjpegHandle_t,
    state: nvjpegJpegState_t,
    images: &Images,
    stream: cudaStream_t,
) -> Answer {
    driver::context()?;
    with(handle, state, |instance, batch| {
        let (count, format) = batch.prepared.ok_or(INVALID)?;
        let no_params = images.params.is_some_and(|params| params.is_null());
        if images.data.is_null() || images.lengths.is_null() || images.targets.is_null() || no_params {
            return Err(INVALID);
        }
        if images.params.is_some() && instance.engine.is_none() {
            // The library throws: "API not supported for selected backend".
            return Err(Status::NVJPEG_STATUS_IMPLEMENTATION_NOT_SUPPORTED);
        }
        let mut done: Vec<Decoded> = Vec::with_capacity(count);
        let mut failure = Ok(());
        for image in 0..count {
            // SAFETY: the caller guarantees as many entries as the batch was prepared for.
            match unsafe { images.decode(image, instance, format) } {
                Ok(decoded) => done.push(decoded),
                Err(status) => {
                    // Work of earlier images may be queued, but a batch has only one status.
                    failure = Err(status);
                    break;
                }
            }
        }
        if instance.engine.is_none() {
            // "GPU decoding for baseline JPEG bitstreams with interleaved scan when batch size is bigger than 50"
            // (nvjpeg.h).
            let by_host = |decoded: &&Decoded| {
                let baseline =
                    decoded.header.marker == 0xC0 && decoded.header.scan == decoded.header.factors.len();
                let hybrid = instance.backend == nvjpegBackend_t::NVJPEG_BACKEND_GPU_HYBRID;
                !(hybrid && baseline && count > 50)
            };
            costs::huffman(done.iter().filter(by_host).count() as u32);
        }
        if instance.engine.is_some() && knob("skip") && !done.is_empty() {
            done.remove(0);
        }
        send(instance, batch, &done, stream as u64)?;
        failure
    })
}

#[unsafe(no_mangle)]
extern "C" fn nvjpegDecodeBatched(
    handle: nvjpegHandle_t,
    state: nvjpegJpegState_t,
    data: *const *const u8,
    lengths: *const usize,
    targets: *mut nvjpegImage_t,
    stream: cudaStream_t,
) -> Status {
    let images = Images { data, lengths, targets, params: None };
    answer("nvjpegDecodeBatched", || decode_all(handle, state, &images, stream))
}

#[unsafe(no_mangle)]
extern "C" fn nvjpegDecodeBatchedEx(
    handle: nvjpegHandle_t,
    state: nvjpegJpegState_t,
    data: *const *const u8,
    lengths: *const usize,
    targets: *mut nvjpegImage_t,
    params: *mut nvjpegDecodeParams_t,
    stream: cudaStream_t,
) -> Status {
    let images = Images { data, lengths, targets, params: Some(params) };
    answer("nvjpegDecodeBatchedEx", || decode_all(handle, state, &images, stream))
}

fn one(
    instance: &Instance,
    file: &[u8],
    params: &Params,
    target: &nvjpegImage_t,
) -> Answer<(Planes, Header)> {
    let header = Header::parse(file)?;
    if !takes(instance, &header, params) {
        return Err(Status::NVJPEG_STATUS_JPEG_NOT_SUPPORTED);
    }
    let engine = instance.engine.is_some();
    if engine && !is_whole(file) {
        misuse("the engine was given a file that nvjpegJpegStreamParse refuses");
    }
    let mut region = params.region;
    if let Some(region) = region.as_mut().filter(|_| engine) {
        if knob("askew") {
            region.0 = if region.0 == 0 { 8 } else { region.0 - 8 };
            region.2 = region.2.saturating_sub(8).max(1);
        }
        if knob("ignore-region") {
            (region.0, region.1) = (0, 0);
        }
    }
    let floor_chroma = engine && knob("floor-chroma");
    let mut planes =
        decode(file, &Wish { format: params.format, region, strict: instance.strict, floor_chroma })?;
    let wrong = |knobs: &str, multiple| knob(knobs) && !header.width.is_multiple_of(multiple);
    if engine && (wrong("wrong-beside-2", 2) || wrong("wrong-beside-8", 8)) {
        planes.bytes.last_mut().into_iter().for_each(|sample| *sample ^= 0x40);
    }
    planes.check(target)?;
    Ok((planes, header))
}

/// Queues the copies of the decoded planes.
fn send(instance: &Instance, batch: &mut Batch, done: &[Decoded], stream: u64) -> Answer {
    let total = done.iter().map(|decoded| decoded.planes.bytes.len()).sum();
    if total == 0 {
        return Ok(());
    }
    let mut at = batch.staging.room(total, stream)?;
    // As on real hardware, the engine does not wait for earlier work of the caller's stream.
    let worker = instance.engine.as_ref().map_or(stream, |engine| engine.0);
    let cost = if instance.engine.is_some() { costs::engine } else { costs::kernels };
    let mut sent = cost(done.len() as u32, worker);
    for Decoded { planes, target, .. } in done {
        if sent.is_err() {
            break;
        }
        // SAFETY: the buffer is large enough, and no work uses it.
        unsafe { std::ptr::copy_nonoverlapping(planes.bytes.as_ptr(), at as *mut u8, planes.bytes.len()) };
        sent = planes.send(at, false, target, worker);
        at += planes.bytes.len() as u64;
    }
    // Also after a failure: queued copies may still run, and the caller can only wait for its own stream.
    let marked = batch.staging.used_by(worker);
    let held = marked.and_then(|()| if worker != stream { batch.staging.hold(stream) } else { Ok(()) });
    if held.is_err() {
        driver::synchronize(worker)?;
    }
    sent.and(held)
}
