//! The library's handles, parameters and buffers.

use std::ffi::{c_int, c_uint};
use std::sync::Mutex;

use nvjpeg_sys::sys::*;

use crate::control::knob;
use crate::costs::{self, CORES};
use crate::driver::{self, Stream};
use crate::image::Rectangle;
use crate::objects::{Buffer, Instance, alone, end, get, give};
use crate::{Answer, Status, answer};

/// `nvjpegDecodeParams`.
pub struct Params {
    pub format: nvjpegOutputFormat_t,
    pub region: Option<Rectangle>,
}

impl Default for Params {
    fn default() -> Self {
        Self { format: nvjpegOutputFormat_t::NVJPEG_OUTPUT_UNCHANGED, region: None }
    }
}

const INVALID: Status = Status::NVJPEG_STATUS_INVALID_PARAMETER;

fn store<T>(place: *mut T, value: T) -> Answer {
    if place.is_null() {
        return Err(INVALID);
    }
    // SAFETY: not null, and the caller allows writing it.
    unsafe { *place = value };
    Ok(())
}

#[unsafe(no_mangle)]
extern "C" fn nvjpegGetProperty(property: libraryPropertyType, value: *mut c_int) -> Status {
    answer("nvjpegGetProperty", || {
        let version = match property {
            libraryPropertyType_t::MAJOR_VERSION => 13,
            libraryPropertyType_t::MINOR_VERSION => 3,
            libraryPropertyType_t::PATCH_LEVEL => 0,
            _ => return Err(INVALID),
        };
        store(value, version)
    })
}

#[unsafe(no_mangle)]
extern "C" fn nvjpegCreateExV2(
    backend: nvjpegBackend_t,
    device: *mut nvjpegDevAllocatorV2_t,
    pinned: *mut nvjpegPinnedAllocatorV2_t,
    flags: c_uint,
    handle: *mut nvjpegHandle_t,
) -> Status {
    answer("nvjpegCreateExV2", || {
        driver::context()?;
        if device.is_null() || pinned.is_null() {
            return Err(INVALID);
        }
        let hardware = backend == nvjpegBackend_t::NVJPEG_BACKEND_HARDWARE;
        if hardware && knob("no-hardware") {
            return Err(Status::NVJPEG_STATUS_ARCH_MISMATCH);
        }
        // SAFETY: not null, and the caller's.
        let (device, pinned) = unsafe { (*device, *pinned) };
        costs::create();
        let strict = flags & NVJPEG_FLAGS_BITSTREAM_STRICT != 0;
        let engine = if hardware { Some(Stream::new()?) } else { None };
        // Refuses an allocator that lacks one of its two functions.
        Buffer::of_device(&device)?;
        give(Instance { pinned, strict, backend, engine }, handle)
    })
}

#[unsafe(no_mangle)]
extern "C" fn nvjpegDestroy(handle: nvjpegHandle_t) -> Status {
    answer("nvjpegDestroy", || end::<Instance, _>(handle))
}

#[unsafe(no_mangle)]
extern "C" fn nvjpegGetHardwareDecoderInfo(
    handle: nvjpegHandle_t,
    engines: *mut c_uint,
    cores: *mut c_uint,
) -> Status {
    answer("nvjpegGetHardwareDecoderInfo", || {
        if get::<Instance, _>(handle)?.engine.is_none() {
            return Err(Status::NVJPEG_STATUS_ARCH_MISMATCH);
        }
        store(engines, 1)?;
        store(cores, CORES)
    })
}

#[unsafe(no_mangle)]
extern "C" fn nvjpegDecodeParamsCreate(handle: nvjpegHandle_t, params: *mut nvjpegDecodeParams_t) -> Status {
    answer("nvjpegDecodeParamsCreate", || {
        get::<Instance, _>(handle)?;
        give(Mutex::new(Params::default()), params)
    })
}

#[unsafe(no_mangle)]
extern "C" fn nvjpegDecodeParamsDestroy(params: nvjpegDecodeParams_t) -> Status {
    answer("nvjpegDecodeParamsDestroy", || end::<Mutex<Params>, _>(params))
}

#[unsafe(no_mangle)]
extern "C" fn nvjpegDecodeParamsSetOutputFormat(
    params: nvjpegDecodeParams_t,
    format: nvjpegOutputFormat_t,
) -> Status {
    answer("nvjpegDecodeParamsSetOutputFormat", || {
        let params = get::<Mutex<Params>, _>(params)?;
        alone(&params).format = format;
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn nvjpegDecodeParamsSetROI(
    params: nvjpegDecodeParams_t,
    x: c_int,
    y: c_int,
    width: c_int,
    height: c_int,
) -> Status {
    answer("nvjpegDecodeParamsSetROI", || {
        let params = get::<Mutex<Params>, _>(params)?;
        let region = match (x, y, width, height) {
            (0, 0, -1, -1) => None,
            (0.., 0.., 1..=65535, 1..=65535) => Some((x as u32, y as u32, width as u32, height as u32)),
            _ => return Err(INVALID),
        };
        alone(&params).region = region;
        Ok(())
    })
}

/// `nvjpegBufferPinned`.
pub struct PinnedBuffer(pub Mutex<Buffer>);

/// `nvjpegBufferDevice`.
pub struct DeviceBuffer(pub Mutex<Buffer>);

#[unsafe(no_mangle)]
extern "C" fn nvjpegBufferPinnedCreateV2(
    handle: nvjpegHandle_t,
    allocator: *mut nvjpegPinnedAllocatorV2_t,
    buffer: *mut nvjpegBufferPinned_t,
) -> Status {
    answer("nvjpegBufferPinnedCreateV2", || {
        get::<Instance, _>(handle)?;
        if allocator.is_null() {
            return Err(INVALID);
        }
        // SAFETY: not null, and the caller's.
        give(PinnedBuffer(Mutex::new(Buffer::of_host(unsafe { &*allocator })?)), buffer)
    })
}

#[unsafe(no_mangle)]
extern "C" fn nvjpegBufferPinnedDestroy(buffer: nvjpegBufferPinned_t) -> Status {
    answer("nvjpegBufferPinnedDestroy", || end::<PinnedBuffer, _>(buffer))
}

#[unsafe(no_mangle)]
extern "C" fn nvjpegBufferDeviceCreateV2(
    handle: nvjpegHandle_t,
    allocator: *mut nvjpegDevAllocatorV2_t,
    buffer: *mut nvjpegBufferDevice_t,
) -> Status {
    answer("nvjpegBufferDeviceCreateV2", || {
        get::<Instance, _>(handle)?;
        if allocator.is_null() {
            return Err(INVALID);
        }
        // SAFETY: not null, and the caller's.
        give(DeviceBuffer(Mutex::new(Buffer::of_device(unsafe { &*allocator })?)), buffer)
    })
}

#[unsafe(no_mangle)]
extern "C" fn nvjpegBufferDeviceDestroy(buffer: nvjpegBufferDevice_t) -> Status {
    answer("nvjpegBufferDeviceDestroy", || end::<DeviceBuffer, _>(buffer))
}

/// `nvjpegJpegStream`: a file whose headers were parsed.
#[derive(Default)]
pub struct Parsed {
    pub header: Option<crate::header::Header>,
    /// The address and length of the file, if it was parsed whole: it is not copied.
    pub file: Option<(usize, usize)>,
}

#[unsafe(no_mangle)]
extern "C" fn nvjpegJpegStreamCreate(handle: nvjpegHandle_t, stream: *mut nvjpegJpegStream_t) -> Status {
    answer("nvjpegJpegStreamCreate", || {
        get::<Instance, _>(handle)?;
        give(Mutex::new(Parsed::default()), stream)
    })
}

#[unsafe(no_mangle)]
extern "C" fn nvjpegJpegStreamDestroy(stream: nvjpegJpegStream_t) -> Status {
    answer("nvjpegJpegStreamDestroy", || end::<Mutex<Parsed>, _>(stream))
}

fn parse(data: *const u8, length: usize, stream: nvjpegJpegStream_t) -> Answer {
    if data.is_null() {
        return Err(INVALID);
    }
    let parsed = get::<Mutex<Parsed>, _>(stream)?;
    let mut parsed = alone(&parsed);
    *parsed = Parsed::default();
    // SAFETY: the caller guarantees `length` bytes.
    let file = unsafe { std::slice::from_raw_parts(data, length) };
    parsed.header = Some(crate::header::Header::parse(file)?);
    if !crate::header::is_whole(file) {
        return Err(Status::NVJPEG_STATUS_BAD_JPEG);
    }
    parsed.file = Some((data as usize, length));
    Ok(())
}

#[unsafe(no_mangle)]
extern "C" fn nvjpegJpegStreamParse(
    handle: nvjpegHandle_t,
    data: *const u8,
    length: usize,
    save_metadata: c_int,
    save_stream: c_int,
    stream: nvjpegJpegStream_t,
) -> Status {
    answer("nvjpegJpegStreamParse", || {
        get::<Instance, _>(handle)?;
        if save_metadata != 0 || save_stream != 0 {
            return Err(Status::NVJPEG_STATUS_IMPLEMENTATION_NOT_SUPPORTED);
        }
        parse(data, length, stream)
    })
}
