//! Decoding in phases: host, transfer, device.

use std::ffi::c_int;
use std::sync::{Arc, Mutex};

use nvjpeg_sys::sys::*;

use crate::batched::Batch;
use crate::costs;
use crate::driver;
use crate::handles::{DeviceBuffer, Params, Parsed, PinnedBuffer};
use crate::header::Header;
use crate::image::{Planes, Wish, decode, is_known};
use crate::objects::{Instance, alone, end, get, give};
use crate::{Answer, Status, answer};

const INVALID: Status = Status::NVJPEG_STATUS_INVALID_PARAMETER;

/// `nvjpegJpegState`.
pub enum State {
    /// The state that `nvjpegJpegStateCreate` makes.
    Batch(Mutex<Batch>),
    /// The state that `nvjpegDecoderStateCreate` makes.
    Phases(Mutex<Phases>),
}

/// The state of a decoder between its phases.
pub struct Phases {
    decoder: usize,
    pinned: Option<Arc<PinnedBuffer>>,
    device: Option<Arc<DeviceBuffer>>,
    /// The planes of the host phase, and their address after the transfer.
    planes: Option<Planes>,
    address: Option<u64>,
}

/// `nvjpegJpegDecoder`.
pub struct Decoder {
    backend: nvjpegBackend_t,
}

impl Decoder {
    fn takes(&self, header: &Header) -> bool {
        let baseline = header.marker == 0xC0 && header.scan == header.factors.len();
        is_known(header) && (baseline || self.backend != nvjpegBackend_t::NVJPEG_BACKEND_GPU_HYBRID)
    }
}

#[unsafe(no_mangle)]
extern "C" fn nvjpegDecoderCreate(
    handle: nvjpegHandle_t,
    backend: nvjpegBackend_t,
    decoder: *mut nvjpegJpegDecoder_t,
) -> Status {
    answer("nvjpegDecoderCreate", || {
        get::<Instance, _>(handle)?;
        match backend {
            nvjpegBackend_t::NVJPEG_BACKEND_HYBRID | nvjpegBackend_t::NVJPEG_BACKEND_GPU_HYBRID => {
                give(Decoder { backend }, decoder)
            }
            _ => Err(Status::NVJPEG_STATUS_IMPLEMENTATION_NOT_SUPPORTED),
        }
    })
}

#[unsafe(no_mangle)]
extern "C" fn nvjpegDecoderDestroy(decoder: nvjpegJpegDecoder_t) -> Status {
    answer("nvjpegDecoderDestroy", || end::<Decoder, _>(decoder))
}

#[unsafe(no_mangle)]
extern "C" fn nvjpegDecoderJpegSupported(
    decoder: nvjpegJpegDecoder_t,
    stream: nvjpegJpegStream_t,
    params: nvjpegDecodeParams_t,
    is_supported: *mut c_int,
) -> Status {
    answer("nvjpegDecoderJpegSupported", || {
        let decoder = get::<Decoder, _>(decoder)?;
        let parsed = get::<Mutex<Parsed>, _>(stream)?;
        get::<Mutex<Params>, _>(params)?;
        let parsed = alone(&parsed);
        let header = parsed.header.as_ref().ok_or(INVALID)?;
        if is_supported.is_null() {
            return Err(INVALID);
        }
        // SAFETY: not null, and the caller's to write.
        unsafe { *is_supported = c_int::from(!decoder.takes(header)) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn nvjpegDecoderStateCreate(
    handle: nvjpegHandle_t,
    decoder: nvjpegJpegDecoder_t,
    state: *mut nvjpegJpegState_t,
) -> Status {
    answer("nvjpegDecoderStateCreate", || {
        get::<Instance, _>(handle)?;
        get::<Decoder, _>(decoder)?;
        let phases =
            Phases { decoder: decoder as usize, pinned: None, device: None, planes: None, address: None };
        give(State::Phases(Mutex::new(phases)), state)
    })
}

fn with<T>(state: nvjpegJpegState_t, act: impl FnOnce(&mut Phases) -> Answer<T>) -> Answer<T> {
    match &*get::<State, _>(state)? {
        State::Phases(phases) => act(&mut alone(phases)),
        State::Batch(_) => Err(INVALID),
    }
}

#[unsafe(no_mangle)]
extern "C" fn nvjpegStateAttachPinnedBuffer(
    state: nvjpegJpegState_t,
    buffer: nvjpegBufferPinned_t,
) -> Status {
    answer("nvjpegStateAttachPinnedBuffer", || {
        let buffer = get(buffer)?;
        with(state, |phases| {
            phases.pinned = Some(buffer);
            Ok(())
        })
    })
}

#[unsafe(no_mangle)]
extern "C" fn nvjpegStateAttachDeviceBuffer(
    state: nvjpegJpegState_t,
    buffer: nvjpegBufferDevice_t,
) -> Status {
    answer("nvjpegStateAttachDeviceBuffer", || {
        let buffer = get(buffer)?;
        with(state, |phases| {
            phases.device = Some(buffer);
            Ok(())
        })
    })
}

#[unsafe(no_mangle)]
extern "C" fn nvjpegDecodeJpegHost(
    handle: nvjpegHandle_t,
    decoder: nvjpegJpegDecoder_t,
    state: nvjpegJpegState_t,
    params: nvjpegDecodeParams_t,
    stream: nvjpegJpegStream_t,
) -> Status {
    answer("nvjpegDecodeJpegHost", || {
        driver::context()?;
        let (instance, implementation) = (get::<Instance, _>(handle)?, get::<Decoder, _>(decoder)?);
        let (params, parsed) = (get::<Mutex<Params>, _>(params)?, get::<Mutex<Parsed>, _>(stream)?);
        let (params, parsed) = (alone(&params), alone(&parsed));
        with(state, |phases| {
            (phases.planes, phases.address) = (None, None);
            // The library says: "Decoder state does not belong to decoder".
            if phases.decoder != decoder as usize {
                return Err(INVALID);
            }
            let (address, length) = parsed.file.ok_or(INVALID)?;
            if !implementation.takes(parsed.header.as_ref().ok_or(INVALID)?) {
                return Err(Status::NVJPEG_STATUS_JPEG_NOT_SUPPORTED);
            }
            // SAFETY: the caller keeps the parsed file valid.
            let file = unsafe { std::slice::from_raw_parts(address as *const u8, length) };
            let wish = Wish {
                format: params.format,
                region: params.region,
                strict: instance.strict,
                floor_chroma: false,
            };
            let planes = decode(file, &wish)?;
            if implementation.backend != nvjpegBackend_t::NVJPEG_BACKEND_GPU_HYBRID {
                costs::huffman(1);
            }
            let pinned = phases.pinned.as_ref().ok_or(INVALID)?;
            let to = alone(&pinned.0).room(planes.bytes.len(), 0)?;
            // SAFETY: the buffer is large enough, and no work uses it.
            unsafe {
                std::ptr::copy_nonoverlapping(planes.bytes.as_ptr(), to as *mut u8, planes.bytes.len())
            };
            phases.planes = Some(planes);
            Ok(())
        })
    })
}

#[unsafe(no_mangle)]
extern "C" fn nvjpegDecodeJpegTransferToDevice(
    handle: nvjpegHandle_t,
    _decoder: nvjpegJpegDecoder_t,
    state: nvjpegJpegState_t,
    _stream: nvjpegJpegStream_t,
    stream: cudaStream_t,
) -> Status {
    answer("nvjpegDecodeJpegTransferToDevice", || {
        driver::context()?;
        get::<Instance, _>(handle)?;
        let stream = stream as u64;
        with(state, |phases| {
            // The library says: "nvjpegDecodeJpegHost did not complete sucessfully".
            let bytes = phases.planes.as_ref().ok_or(INVALID)?.bytes.len();
            let pinned = phases.pinned.as_ref().ok_or(INVALID)?;
            let device = phases.device.as_ref().ok_or(INVALID)?;
            let (mut pinned, mut device) = (alone(&pinned.0), alone(&device.0));
            let (from, to) = (pinned.room(bytes, stream)?, device.room(bytes, stream)?);
            driver::copy(to, from, bytes, stream)?;
            pinned.used_by(stream)?;
            phases.address = Some(to);
            Ok(())
        })
    })
}

#[unsafe(no_mangle)]
extern "C" fn nvjpegDecodeJpegDevice(
    handle: nvjpegHandle_t,
    _decoder: nvjpegJpegDecoder_t,
    state: nvjpegJpegState_t,
    destination: *mut nvjpegImage_t,
    stream: cudaStream_t,
) -> Status {
    answer("nvjpegDecodeJpegDevice", || {
        driver::context()?;
        get::<Instance, _>(handle)?;
        if destination.is_null() {
            return Err(INVALID);
        }
        // SAFETY: not null, and the caller's.
        let target = unsafe { &*destination };
        with(state, |phases| {
            // The library says: "nvjpegDecodeJpegTransferToDevice did not complete sucessfully".
            let address = phases.address.take().ok_or(INVALID)?;
            let planes = phases.planes.take().ok_or(INVALID)?;
            planes.check(target)?;
            costs::kernels(1, stream as u64)?;
            planes.send(address, true, target, stream as u64)?;
            let device = phases.device.as_ref().ok_or(INVALID)?;
            alone(&device.0).used_by(stream as u64)
        })
    })
}
