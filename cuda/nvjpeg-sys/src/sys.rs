//! nvJPEG's functions and types, written by `make bindings` from NVIDIA's header; not to be edited.

#![allow(missing_docs, non_camel_case_types, non_snake_case, non_upper_case_globals)]
#![allow(clippy::all, clippy::undocumented_unsafe_blocks, clippy::missing_safety_doc)]

pub const NVJPEG_VER_MAJOR: u32 = 13;
pub const NVJPEG_VER_MINOR: u32 = 3;
pub const NVJPEG_FLAGS_BITSTREAM_STRICT: u32 = 4;
#[repr(C)]
#[derive(Debug)]
pub struct CUstream_st {
    _unused: [u8; 0],
}
pub type cudaStream_t = *mut CUstream_st;
impl libraryPropertyType_t {
    pub const MAJOR_VERSION: libraryPropertyType_t = libraryPropertyType_t(0);
    pub const MINOR_VERSION: libraryPropertyType_t = libraryPropertyType_t(1);
    pub const PATCH_LEVEL: libraryPropertyType_t = libraryPropertyType_t(2);
}
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct libraryPropertyType_t(pub ::std::os::raw::c_uint);
pub use self::libraryPropertyType_t as libraryPropertyType;
impl nvjpegStatus_t {
    pub const NVJPEG_STATUS_SUCCESS: nvjpegStatus_t = nvjpegStatus_t(0);
    pub const NVJPEG_STATUS_NOT_INITIALIZED: nvjpegStatus_t = nvjpegStatus_t(1);
    pub const NVJPEG_STATUS_INVALID_PARAMETER: nvjpegStatus_t = nvjpegStatus_t(2);
    pub const NVJPEG_STATUS_BAD_JPEG: nvjpegStatus_t = nvjpegStatus_t(3);
    pub const NVJPEG_STATUS_JPEG_NOT_SUPPORTED: nvjpegStatus_t = nvjpegStatus_t(4);
    pub const NVJPEG_STATUS_ALLOCATOR_FAILURE: nvjpegStatus_t = nvjpegStatus_t(5);
    pub const NVJPEG_STATUS_EXECUTION_FAILED: nvjpegStatus_t = nvjpegStatus_t(6);
    pub const NVJPEG_STATUS_ARCH_MISMATCH: nvjpegStatus_t = nvjpegStatus_t(7);
    pub const NVJPEG_STATUS_INTERNAL_ERROR: nvjpegStatus_t = nvjpegStatus_t(8);
    pub const NVJPEG_STATUS_IMPLEMENTATION_NOT_SUPPORTED: nvjpegStatus_t = nvjpegStatus_t(9);
    pub const NVJPEG_STATUS_INCOMPLETE_BITSTREAM: nvjpegStatus_t = nvjpegStatus_t(10);
}
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct nvjpegStatus_t(pub ::std::os::raw::c_uint);
impl nvjpegChromaSubsampling_t {
    pub const NVJPEG_CSS_444: nvjpegChromaSubsampling_t = nvjpegChromaSubsampling_t(0);
    pub const NVJPEG_CSS_422: nvjpegChromaSubsampling_t = nvjpegChromaSubsampling_t(1);
    pub const NVJPEG_CSS_420: nvjpegChromaSubsampling_t = nvjpegChromaSubsampling_t(2);
    pub const NVJPEG_CSS_440: nvjpegChromaSubsampling_t = nvjpegChromaSubsampling_t(3);
    pub const NVJPEG_CSS_411: nvjpegChromaSubsampling_t = nvjpegChromaSubsampling_t(4);
    pub const NVJPEG_CSS_410: nvjpegChromaSubsampling_t = nvjpegChromaSubsampling_t(5);
    pub const NVJPEG_CSS_GRAY: nvjpegChromaSubsampling_t = nvjpegChromaSubsampling_t(6);
    pub const NVJPEG_CSS_410V: nvjpegChromaSubsampling_t = nvjpegChromaSubsampling_t(7);
    pub const NVJPEG_CSS_UNKNOWN: nvjpegChromaSubsampling_t = nvjpegChromaSubsampling_t(-1);
}
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct nvjpegChromaSubsampling_t(pub ::std::os::raw::c_int);
impl nvjpegOutputFormat_t {
    pub const NVJPEG_OUTPUT_UNCHANGED: nvjpegOutputFormat_t = nvjpegOutputFormat_t(0);
    pub const NVJPEG_OUTPUT_YUV: nvjpegOutputFormat_t = nvjpegOutputFormat_t(1);
    pub const NVJPEG_OUTPUT_Y: nvjpegOutputFormat_t = nvjpegOutputFormat_t(2);
    pub const NVJPEG_OUTPUT_RGB: nvjpegOutputFormat_t = nvjpegOutputFormat_t(3);
    pub const NVJPEG_OUTPUT_BGR: nvjpegOutputFormat_t = nvjpegOutputFormat_t(4);
    pub const NVJPEG_OUTPUT_RGBI: nvjpegOutputFormat_t = nvjpegOutputFormat_t(5);
    pub const NVJPEG_OUTPUT_BGRI: nvjpegOutputFormat_t = nvjpegOutputFormat_t(6);
    pub const NVJPEG_OUTPUT_UNCHANGEDI_U16: nvjpegOutputFormat_t = nvjpegOutputFormat_t(7);
    pub const NVJPEG_OUTPUT_NV12: nvjpegOutputFormat_t = nvjpegOutputFormat_t(8);
    pub const NVJPEG_OUTPUT_YUY2: nvjpegOutputFormat_t = nvjpegOutputFormat_t(9);
    pub const NVJPEG_OUTPUT_UNCHANGEDI: nvjpegOutputFormat_t = nvjpegOutputFormat_t(10);
    pub const NVJPEG_OUTPUT_FORMAT_MAX: nvjpegOutputFormat_t = nvjpegOutputFormat_t(10);
}
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct nvjpegOutputFormat_t(pub ::std::os::raw::c_uint);
impl nvjpegBackend_t {
    pub const NVJPEG_BACKEND_DEFAULT: nvjpegBackend_t = nvjpegBackend_t(0);
    pub const NVJPEG_BACKEND_HYBRID: nvjpegBackend_t = nvjpegBackend_t(1);
    pub const NVJPEG_BACKEND_GPU_HYBRID: nvjpegBackend_t = nvjpegBackend_t(2);
    pub const NVJPEG_BACKEND_HARDWARE: nvjpegBackend_t = nvjpegBackend_t(3);
    pub const NVJPEG_BACKEND_GPU_HYBRID_DEVICE: nvjpegBackend_t = nvjpegBackend_t(4);
    pub const NVJPEG_BACKEND_HARDWARE_DEVICE: nvjpegBackend_t = nvjpegBackend_t(5);
    pub const NVJPEG_BACKEND_LOSSLESS_JPEG: nvjpegBackend_t = nvjpegBackend_t(6);
}
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct nvjpegBackend_t(pub ::std::os::raw::c_uint);
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct nvjpegImage_t {
    pub channel: [*mut ::std::os::raw::c_uchar; 4usize],
    pub pitch: [usize; 4usize],
}
pub type tDevMallocV2 = ::std::option::Option<
    unsafe extern "C" fn(
        ctx: *mut ::std::os::raw::c_void,
        ptr: *mut *mut ::std::os::raw::c_void,
        size: usize,
        stream: cudaStream_t,
    ) -> ::std::os::raw::c_int,
>;
pub type tDevFreeV2 = ::std::option::Option<
    unsafe extern "C" fn(
        ctx: *mut ::std::os::raw::c_void,
        ptr: *mut ::std::os::raw::c_void,
        size: usize,
        stream: cudaStream_t,
    ) -> ::std::os::raw::c_int,
>;
pub type tPinnedMallocV2 = ::std::option::Option<
    unsafe extern "C" fn(
        ctx: *mut ::std::os::raw::c_void,
        ptr: *mut *mut ::std::os::raw::c_void,
        size: usize,
        stream: cudaStream_t,
    ) -> ::std::os::raw::c_int,
>;
pub type tPinnedFreeV2 = ::std::option::Option<
    unsafe extern "C" fn(
        ctx: *mut ::std::os::raw::c_void,
        ptr: *mut ::std::os::raw::c_void,
        size: usize,
        stream: cudaStream_t,
    ) -> ::std::os::raw::c_int,
>;
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct nvjpegDevAllocatorV2_t {
    pub dev_malloc: tDevMallocV2,
    pub dev_free: tDevFreeV2,
    pub dev_ctx: *mut ::std::os::raw::c_void,
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct nvjpegPinnedAllocatorV2_t {
    pub pinned_malloc: tPinnedMallocV2,
    pub pinned_free: tPinnedFreeV2,
    pub pinned_ctx: *mut ::std::os::raw::c_void,
}
#[repr(C)]
#[derive(Debug)]
pub struct nvjpegHandle {
    _unused: [u8; 0],
}
pub type nvjpegHandle_t = *mut nvjpegHandle;
#[repr(C)]
#[derive(Debug)]
pub struct nvjpegJpegState {
    _unused: [u8; 0],
}
pub type nvjpegJpegState_t = *mut nvjpegJpegState;
#[repr(C)]
#[derive(Debug)]
pub struct nvjpegBufferPinned {
    _unused: [u8; 0],
}
pub type nvjpegBufferPinned_t = *mut nvjpegBufferPinned;
#[repr(C)]
#[derive(Debug)]
pub struct nvjpegBufferDevice {
    _unused: [u8; 0],
}
pub type nvjpegBufferDevice_t = *mut nvjpegBufferDevice;
#[repr(C)]
#[derive(Debug)]
pub struct nvjpegJpegStream {
    _unused: [u8; 0],
}
pub type nvjpegJpegStream_t = *mut nvjpegJpegStream;
#[repr(C)]
#[derive(Debug)]
pub struct nvjpegDecodeParams {
    _unused: [u8; 0],
}
pub type nvjpegDecodeParams_t = *mut nvjpegDecodeParams;
#[repr(C)]
#[derive(Debug)]
pub struct nvjpegJpegDecoder {
    _unused: [u8; 0],
}
pub type nvjpegJpegDecoder_t = *mut nvjpegJpegDecoder;
pub struct NvJpeg {
    __library: ::libloading::Library,
    pub nvjpegGetProperty: Result<
        unsafe extern "C" fn(type_: libraryPropertyType, value: *mut ::std::os::raw::c_int) -> nvjpegStatus_t,
        ::libloading::Error,
    >,
    pub nvjpegCreateExV2: Result<
        unsafe extern "C" fn(
            backend: nvjpegBackend_t,
            dev_allocator: *mut nvjpegDevAllocatorV2_t,
            pinned_allocator: *mut nvjpegPinnedAllocatorV2_t,
            flags: ::std::os::raw::c_uint,
            handle: *mut nvjpegHandle_t,
        ) -> nvjpegStatus_t,
        ::libloading::Error,
    >,
    pub nvjpegDestroy:
        Result<unsafe extern "C" fn(handle: nvjpegHandle_t) -> nvjpegStatus_t, ::libloading::Error>,
    pub nvjpegGetHardwareDecoderInfo: Result<
        unsafe extern "C" fn(
            handle: nvjpegHandle_t,
            num_engines: *mut ::std::os::raw::c_uint,
            num_cores_per_engine: *mut ::std::os::raw::c_uint,
        ) -> nvjpegStatus_t,
        ::libloading::Error,
    >,
    pub nvjpegJpegStateCreate: Result<
        unsafe extern "C" fn(handle: nvjpegHandle_t, jpeg_handle: *mut nvjpegJpegState_t) -> nvjpegStatus_t,
        ::libloading::Error,
    >,
    pub nvjpegJpegStateDestroy:
        Result<unsafe extern "C" fn(jpeg_handle: nvjpegJpegState_t) -> nvjpegStatus_t, ::libloading::Error>,
    pub nvjpegDecodeBatchedInitialize: Result<
        unsafe extern "C" fn(
            handle: nvjpegHandle_t,
            jpeg_handle: nvjpegJpegState_t,
            batch_size: ::std::os::raw::c_int,
            max_cpu_threads: ::std::os::raw::c_int,
            output_format: nvjpegOutputFormat_t,
        ) -> nvjpegStatus_t,
        ::libloading::Error,
    >,
    pub nvjpegDecodeBatched: Result<
        unsafe extern "C" fn(
            handle: nvjpegHandle_t,
            jpeg_handle: nvjpegJpegState_t,
            data: *const *const ::std::os::raw::c_uchar,
            lengths: *const usize,
            destinations: *mut nvjpegImage_t,
            stream: cudaStream_t,
        ) -> nvjpegStatus_t,
        ::libloading::Error,
    >,
    pub nvjpegDecodeBatchedPreAllocate: Result<
        unsafe extern "C" fn(
            handle: nvjpegHandle_t,
            jpeg_handle: nvjpegJpegState_t,
            batch_size: ::std::os::raw::c_int,
            width: ::std::os::raw::c_int,
            height: ::std::os::raw::c_int,
            chroma_subsampling: nvjpegChromaSubsampling_t,
            output_format: nvjpegOutputFormat_t,
        ) -> nvjpegStatus_t,
        ::libloading::Error,
    >,
    pub nvjpegBufferPinnedCreateV2: Result<
        unsafe extern "C" fn(
            handle: nvjpegHandle_t,
            pinned_allocator: *mut nvjpegPinnedAllocatorV2_t,
            buffer: *mut nvjpegBufferPinned_t,
        ) -> nvjpegStatus_t,
        ::libloading::Error,
    >,
    pub nvjpegBufferPinnedDestroy:
        Result<unsafe extern "C" fn(buffer: nvjpegBufferPinned_t) -> nvjpegStatus_t, ::libloading::Error>,
    pub nvjpegBufferDeviceCreateV2: Result<
        unsafe extern "C" fn(
            handle: nvjpegHandle_t,
            device_allocator: *mut nvjpegDevAllocatorV2_t,
            buffer: *mut nvjpegBufferDevice_t,
        ) -> nvjpegStatus_t,
        ::libloading::Error,
    >,
    pub nvjpegBufferDeviceDestroy:
        Result<unsafe extern "C" fn(buffer: nvjpegBufferDevice_t) -> nvjpegStatus_t, ::libloading::Error>,
    pub nvjpegStateAttachPinnedBuffer: Result<
        unsafe extern "C" fn(
            decoder_state: nvjpegJpegState_t,
            pinned_buffer: nvjpegBufferPinned_t,
        ) -> nvjpegStatus_t,
        ::libloading::Error,
    >,
    pub nvjpegStateAttachDeviceBuffer: Result<
        unsafe extern "C" fn(
            decoder_state: nvjpegJpegState_t,
            device_buffer: nvjpegBufferDevice_t,
        ) -> nvjpegStatus_t,
        ::libloading::Error,
    >,
    pub nvjpegJpegStreamCreate: Result<
        unsafe extern "C" fn(handle: nvjpegHandle_t, jpeg_stream: *mut nvjpegJpegStream_t) -> nvjpegStatus_t,
        ::libloading::Error,
    >,
    pub nvjpegJpegStreamDestroy:
        Result<unsafe extern "C" fn(jpeg_stream: nvjpegJpegStream_t) -> nvjpegStatus_t, ::libloading::Error>,
    pub nvjpegJpegStreamParse: Result<
        unsafe extern "C" fn(
            handle: nvjpegHandle_t,
            data: *const ::std::os::raw::c_uchar,
            length: usize,
            save_metadata: ::std::os::raw::c_int,
            save_stream: ::std::os::raw::c_int,
            jpeg_stream: nvjpegJpegStream_t,
        ) -> nvjpegStatus_t,
        ::libloading::Error,
    >,
    pub nvjpegDecodeParamsCreate: Result<
        unsafe extern "C" fn(
            handle: nvjpegHandle_t,
            decode_params: *mut nvjpegDecodeParams_t,
        ) -> nvjpegStatus_t,
        ::libloading::Error,
    >,
    pub nvjpegDecodeParamsDestroy: Result<
        unsafe extern "C" fn(decode_params: nvjpegDecodeParams_t) -> nvjpegStatus_t,
        ::libloading::Error,
    >,
    pub nvjpegDecodeParamsSetOutputFormat: Result<
        unsafe extern "C" fn(
            decode_params: nvjpegDecodeParams_t,
            output_format: nvjpegOutputFormat_t,
        ) -> nvjpegStatus_t,
        ::libloading::Error,
    >,
    pub nvjpegDecodeParamsSetROI: Result<
        unsafe extern "C" fn(
            decode_params: nvjpegDecodeParams_t,
            offset_x: ::std::os::raw::c_int,
            offset_y: ::std::os::raw::c_int,
            roi_width: ::std::os::raw::c_int,
            roi_height: ::std::os::raw::c_int,
        ) -> nvjpegStatus_t,
        ::libloading::Error,
    >,
    pub nvjpegDecoderCreate: Result<
        unsafe extern "C" fn(
            nvjpeg_handle: nvjpegHandle_t,
            implementation: nvjpegBackend_t,
            decoder_handle: *mut nvjpegJpegDecoder_t,
        ) -> nvjpegStatus_t,
        ::libloading::Error,
    >,
    pub nvjpegDecoderDestroy: Result<
        unsafe extern "C" fn(decoder_handle: nvjpegJpegDecoder_t) -> nvjpegStatus_t,
        ::libloading::Error,
    >,
    pub nvjpegDecoderJpegSupported: Result<
        unsafe extern "C" fn(
            decoder_handle: nvjpegJpegDecoder_t,
            jpeg_stream: nvjpegJpegStream_t,
            decode_params: nvjpegDecodeParams_t,
            is_supported: *mut ::std::os::raw::c_int,
        ) -> nvjpegStatus_t,
        ::libloading::Error,
    >,
    pub nvjpegDecodeBatchedSupported: Result<
        unsafe extern "C" fn(
            handle: nvjpegHandle_t,
            jpeg_stream: nvjpegJpegStream_t,
            is_supported: *mut ::std::os::raw::c_int,
        ) -> nvjpegStatus_t,
        ::libloading::Error,
    >,
    pub nvjpegDecodeBatchedSupportedEx: Result<
        unsafe extern "C" fn(
            handle: nvjpegHandle_t,
            jpeg_stream: nvjpegJpegStream_t,
            decode_params: nvjpegDecodeParams_t,
            is_supported: *mut ::std::os::raw::c_int,
        ) -> nvjpegStatus_t,
        ::libloading::Error,
    >,
    pub nvjpegDecoderStateCreate: Result<
        unsafe extern "C" fn(
            nvjpeg_handle: nvjpegHandle_t,
            decoder_handle: nvjpegJpegDecoder_t,
            decoder_state: *mut nvjpegJpegState_t,
        ) -> nvjpegStatus_t,
        ::libloading::Error,
    >,
    pub nvjpegDecodeJpegHost: Result<
        unsafe extern "C" fn(
            handle: nvjpegHandle_t,
            decoder: nvjpegJpegDecoder_t,
            decoder_state: nvjpegJpegState_t,
            decode_params: nvjpegDecodeParams_t,
            jpeg_stream: nvjpegJpegStream_t,
        ) -> nvjpegStatus_t,
        ::libloading::Error,
    >,
    pub nvjpegDecodeJpegTransferToDevice: Result<
        unsafe extern "C" fn(
            handle: nvjpegHandle_t,
            decoder: nvjpegJpegDecoder_t,
            decoder_state: nvjpegJpegState_t,
            jpeg_stream: nvjpegJpegStream_t,
            stream: cudaStream_t,
        ) -> nvjpegStatus_t,
        ::libloading::Error,
    >,
    pub nvjpegDecodeJpegDevice: Result<
        unsafe extern "C" fn(
            handle: nvjpegHandle_t,
            decoder: nvjpegJpegDecoder_t,
            decoder_state: nvjpegJpegState_t,
            destination: *mut nvjpegImage_t,
            stream: cudaStream_t,
        ) -> nvjpegStatus_t,
        ::libloading::Error,
    >,
    pub nvjpegDecodeBatchedEx: Result<
        unsafe extern "C" fn(
            handle: nvjpegHandle_t,
            jpeg_handle: nvjpegJpegState_t,
            data: *const *const ::std::os::raw::c_uchar,
            lengths: *const usize,
            destinations: *mut nvjpegImage_t,
            decode_params: *mut nvjpegDecodeParams_t,
            stream: cudaStream_t,
        ) -> nvjpegStatus_t,
        ::libloading::Error,
    >,
}
impl NvJpeg {
    pub unsafe fn new<P>(path: P) -> Result<Self, ::libloading::Error>
    where
        P: AsRef<::std::ffi::OsStr>,
    {
        let path = path.as_ref();
        let library = unsafe { ::libloading::Library::new(path) }?;
        unsafe { Self::from_library(library) }
    }
    pub unsafe fn from_library<L>(library: L) -> Result<Self, ::libloading::Error>
    where
        L: Into<::libloading::Library>,
    {
        let __library = library.into();
        let nvjpegGetProperty = unsafe { __library.get(b"nvjpegGetProperty\0") }.map(|sym| *sym);
        let nvjpegCreateExV2 = unsafe { __library.get(b"nvjpegCreateExV2\0") }.map(|sym| *sym);
        let nvjpegDestroy = unsafe { __library.get(b"nvjpegDestroy\0") }.map(|sym| *sym);
        let nvjpegGetHardwareDecoderInfo =
            unsafe { __library.get(b"nvjpegGetHardwareDecoderInfo\0") }.map(|sym| *sym);
        let nvjpegJpegStateCreate = unsafe { __library.get(b"nvjpegJpegStateCreate\0") }.map(|sym| *sym);
        let nvjpegJpegStateDestroy = unsafe { __library.get(b"nvjpegJpegStateDestroy\0") }.map(|sym| *sym);
        let nvjpegDecodeBatchedInitialize =
            unsafe { __library.get(b"nvjpegDecodeBatchedInitialize\0") }.map(|sym| *sym);
        let nvjpegDecodeBatched = unsafe { __library.get(b"nvjpegDecodeBatched\0") }.map(|sym| *sym);
        let nvjpegDecodeBatchedPreAllocate =
            unsafe { __library.get(b"nvjpegDecodeBatchedPreAllocate\0") }.map(|sym| *sym);
        let nvjpegBufferPinnedCreateV2 =
            unsafe { __library.get(b"nvjpegBufferPinnedCreateV2\0") }.map(|sym| *sym);
        let nvjpegBufferPinnedDestroy =
            unsafe { __library.get(b"nvjpegBufferPinnedDestroy\0") }.map(|sym| *sym);
        let nvjpegBufferDeviceCreateV2 =
            unsafe { __library.get(b"nvjpegBufferDeviceCreateV2\0") }.map(|sym| *sym);
        let nvjpegBufferDeviceDestroy =
            unsafe { __library.get(b"nvjpegBufferDeviceDestroy\0") }.map(|sym| *sym);
        let nvjpegStateAttachPinnedBuffer =
            unsafe { __library.get(b"nvjpegStateAttachPinnedBuffer\0") }.map(|sym| *sym);
        let nvjpegStateAttachDeviceBuffer =
            unsafe { __library.get(b"nvjpegStateAttachDeviceBuffer\0") }.map(|sym| *sym);
        let nvjpegJpegStreamCreate = unsafe { __library.get(b"nvjpegJpegStreamCreate\0") }.map(|sym| *sym);
        let nvjpegJpegStreamDestroy = unsafe { __library.get(b"nvjpegJpegStreamDestroy\0") }.map(|sym| *sym);
        let nvjpegJpegStreamParse = unsafe { __library.get(b"nvjpegJpegStreamParse\0") }.map(|sym| *sym);
        let nvjpegDecodeParamsCreate =
            unsafe { __library.get(b"nvjpegDecodeParamsCreate\0") }.map(|sym| *sym);
        let nvjpegDecodeParamsDestroy =
            unsafe { __library.get(b"nvjpegDecodeParamsDestroy\0") }.map(|sym| *sym);
        let nvjpegDecodeParamsSetOutputFormat =
            unsafe { __library.get(b"nvjpegDecodeParamsSetOutputFormat\0") }.map(|sym| *sym);
        let nvjpegDecodeParamsSetROI =
            unsafe { __library.get(b"nvjpegDecodeParamsSetROI\0") }.map(|sym| *sym);
        let nvjpegDecoderCreate = unsafe { __library.get(b"nvjpegDecoderCreate\0") }.map(|sym| *sym);
        let nvjpegDecoderDestroy = unsafe { __library.get(b"nvjpegDecoderDestroy\0") }.map(|sym| *sym);
        let nvjpegDecoderJpegSupported =
            unsafe { __library.get(b"nvjpegDecoderJpegSupported\0") }.map(|sym| *sym);
        let nvjpegDecodeBatchedSupported =
            unsafe { __library.get(b"nvjpegDecodeBatchedSupported\0") }.map(|sym| *sym);
        let nvjpegDecodeBatchedSupportedEx =
            unsafe { __library.get(b"nvjpegDecodeBatchedSupportedEx\0") }.map(|sym| *sym);
        let nvjpegDecoderStateCreate =
            unsafe { __library.get(b"nvjpegDecoderStateCreate\0") }.map(|sym| *sym);
        let nvjpegDecodeJpegHost = unsafe { __library.get(b"nvjpegDecodeJpegHost\0") }.map(|sym| *sym);
        let nvjpegDecodeJpegTransferToDevice =
            unsafe { __library.get(b"nvjpegDecodeJpegTransferToDevice\0") }.map(|sym| *sym);
        let nvjpegDecodeJpegDevice = unsafe { __library.get(b"nvjpegDecodeJpegDevice\0") }.map(|sym| *sym);
        let nvjpegDecodeBatchedEx = unsafe { __library.get(b"nvjpegDecodeBatchedEx\0") }.map(|sym| *sym);
        Ok(NvJpeg {
            __library,
            nvjpegGetProperty,
            nvjpegCreateExV2,
            nvjpegDestroy,
            nvjpegGetHardwareDecoderInfo,
            nvjpegJpegStateCreate,
            nvjpegJpegStateDestroy,
            nvjpegDecodeBatchedInitialize,
            nvjpegDecodeBatched,
            nvjpegDecodeBatchedPreAllocate,
            nvjpegBufferPinnedCreateV2,
            nvjpegBufferPinnedDestroy,
            nvjpegBufferDeviceCreateV2,
            nvjpegBufferDeviceDestroy,
            nvjpegStateAttachPinnedBuffer,
            nvjpegStateAttachDeviceBuffer,
            nvjpegJpegStreamCreate,
            nvjpegJpegStreamDestroy,
            nvjpegJpegStreamParse,
            nvjpegDecodeParamsCreate,
            nvjpegDecodeParamsDestroy,
            nvjpegDecodeParamsSetOutputFormat,
            nvjpegDecodeParamsSetROI,
            nvjpegDecoderCreate,
            nvjpegDecoderDestroy,
            nvjpegDecoderJpegSupported,
            nvjpegDecodeBatchedSupported,
            nvjpegDecodeBatchedSupportedEx,
            nvjpegDecoderStateCreate,
            nvjpegDecodeJpegHost,
            nvjpegDecodeJpegTransferToDevice,
            nvjpegDecodeJpegDevice,
            nvjpegDecodeBatchedEx,
        })
    }
    pub unsafe fn nvjpegGetProperty(
        &self,
        type_: libraryPropertyType,
        value: *mut ::std::os::raw::c_int,
    ) -> nvjpegStatus_t {
        unsafe { (self.nvjpegGetProperty.as_ref().expect("Expected function, got error."))(type_, value) }
    }
    pub unsafe fn nvjpegCreateExV2(
        &self,
        backend: nvjpegBackend_t,
        dev_allocator: *mut nvjpegDevAllocatorV2_t,
        pinned_allocator: *mut nvjpegPinnedAllocatorV2_t,
        flags: ::std::os::raw::c_uint,
        handle: *mut nvjpegHandle_t,
    ) -> nvjpegStatus_t {
        unsafe {
            (self.nvjpegCreateExV2.as_ref().expect("Expected function, got error."))(
                backend,
                dev_allocator,
                pinned_allocator,
                flags,
                handle,
            )
        }
    }
    pub unsafe fn nvjpegDestroy(&self, handle: nvjpegHandle_t) -> nvjpegStatus_t {
        unsafe { (self.nvjpegDestroy.as_ref().expect("Expected function, got error."))(handle) }
    }
    pub unsafe fn nvjpegGetHardwareDecoderInfo(
        &self,
        handle: nvjpegHandle_t,
        num_engines: *mut ::std::os::raw::c_uint,
        num_cores_per_engine: *mut ::std::os::raw::c_uint,
    ) -> nvjpegStatus_t {
        unsafe {
            (self.nvjpegGetHardwareDecoderInfo.as_ref().expect("Expected function, got error."))(
                handle,
                num_engines,
                num_cores_per_engine,
            )
        }
    }
    pub unsafe fn nvjpegJpegStateCreate(
        &self,
        handle: nvjpegHandle_t,
        jpeg_handle: *mut nvjpegJpegState_t,
    ) -> nvjpegStatus_t {
        unsafe {
            (self.nvjpegJpegStateCreate.as_ref().expect("Expected function, got error."))(handle, jpeg_handle)
        }
    }
    pub unsafe fn nvjpegJpegStateDestroy(&self, jpeg_handle: nvjpegJpegState_t) -> nvjpegStatus_t {
        unsafe { (self.nvjpegJpegStateDestroy.as_ref().expect("Expected function, got error."))(jpeg_handle) }
    }
    pub unsafe fn nvjpegDecodeBatchedInitialize(
        &self,
        handle: nvjpegHandle_t,
        jpeg_handle: nvjpegJpegState_t,
        batch_size: ::std::os::raw::c_int,
        max_cpu_threads: ::std::os::raw::c_int,
        output_format: nvjpegOutputFormat_t,
    ) -> nvjpegStatus_t {
        unsafe {
            (self.nvjpegDecodeBatchedInitialize.as_ref().expect("Expected function, got error."))(
                handle,
                jpeg_handle,
                batch_size,
                max_cpu_threads,
                output_format,
            )
        }
    }
    pub unsafe fn nvjpegDecodeBatched(
        &self,
        handle: nvjpegHandle_t,
        jpeg_handle: nvjpegJpegState_t,
        data: *const *const ::std::os::raw::c_uchar,
        lengths: *const usize,
        destinations: *mut nvjpegImage_t,
        stream: cudaStream_t,
    ) -> nvjpegStatus_t {
        unsafe {
            (self.nvjpegDecodeBatched.as_ref().expect("Expected function, got error."))(
                handle,
                jpeg_handle,
                data,
                lengths,
                destinations,
                stream,
            )
        }
    }
    pub unsafe fn nvjpegDecodeBatchedPreAllocate(
        &self,
        handle: nvjpegHandle_t,
        jpeg_handle: nvjpegJpegState_t,
        batch_size: ::std::os::raw::c_int,
        width: ::std::os::raw::c_int,
        height: ::std::os::raw::c_int,
        chroma_subsampling: nvjpegChromaSubsampling_t,
        output_format: nvjpegOutputFormat_t,
    ) -> nvjpegStatus_t {
        unsafe {
            (self.nvjpegDecodeBatchedPreAllocate.as_ref().expect("Expected function, got error."))(
                handle,
                jpeg_handle,
                batch_size,
                width,
                height,
                chroma_subsampling,
                output_format,
            )
        }
    }
    pub unsafe fn nvjpegBufferPinnedCreateV2(
        &self,
        handle: nvjpegHandle_t,
        pinned_allocator: *mut nvjpegPinnedAllocatorV2_t,
        buffer: *mut nvjpegBufferPinned_t,
    ) -> nvjpegStatus_t {
        unsafe {
            (self.nvjpegBufferPinnedCreateV2.as_ref().expect("Expected function, got error."))(
                handle,
                pinned_allocator,
                buffer,
            )
        }
    }
    pub unsafe fn nvjpegBufferPinnedDestroy(&self, buffer: nvjpegBufferPinned_t) -> nvjpegStatus_t {
        unsafe { (self.nvjpegBufferPinnedDestroy.as_ref().expect("Expected function, got error."))(buffer) }
    }
    pub unsafe fn nvjpegBufferDeviceCreateV2(
        &self,
        handle: nvjpegHandle_t,
        device_allocator: *mut nvjpegDevAllocatorV2_t,
        buffer: *mut nvjpegBufferDevice_t,
    ) -> nvjpegStatus_t {
        unsafe {
            (self.nvjpegBufferDeviceCreateV2.as_ref().expect("Expected function, got error."))(
                handle,
                device_allocator,
                buffer,
            )
        }
    }
    pub unsafe fn nvjpegBufferDeviceDestroy(&self, buffer: nvjpegBufferDevice_t) -> nvjpegStatus_t {
        unsafe { (self.nvjpegBufferDeviceDestroy.as_ref().expect("Expected function, got error."))(buffer) }
    }
    pub unsafe fn nvjpegStateAttachPinnedBuffer(
        &self,
        decoder_state: nvjpegJpegState_t,
        pinned_buffer: nvjpegBufferPinned_t,
    ) -> nvjpegStatus_t {
        unsafe {
            (self.nvjpegStateAttachPinnedBuffer.as_ref().expect("Expected function, got error."))(
                decoder_state,
                pinned_buffer,
            )
        }
    }
    pub unsafe fn nvjpegStateAttachDeviceBuffer(
        &self,
        decoder_state: nvjpegJpegState_t,
        device_buffer: nvjpegBufferDevice_t,
    ) -> nvjpegStatus_t {
        unsafe {
            (self.nvjpegStateAttachDeviceBuffer.as_ref().expect("Expected function, got error."))(
                decoder_state,
                device_buffer,
            )
        }
    }
    pub unsafe fn nvjpegJpegStreamCreate(
        &self,
        handle: nvjpegHandle_t,
        jpeg_stream: *mut nvjpegJpegStream_t,
    ) -> nvjpegStatus_t {
        unsafe {
            (self.nvjpegJpegStreamCreate.as_ref().expect("Expected function, got error."))(
                handle,
                jpeg_stream,
            )
        }
    }
    pub unsafe fn nvjpegJpegStreamDestroy(&self, jpeg_stream: nvjpegJpegStream_t) -> nvjpegStatus_t {
        unsafe {
            (self.nvjpegJpegStreamDestroy.as_ref().expect("Expected function, got error."))(jpeg_stream)
        }
    }
    pub unsafe fn nvjpegJpegStreamParse(
        &self,
        handle: nvjpegHandle_t,
        data: *const ::std::os::raw::c_uchar,
        length: usize,
        save_metadata: ::std::os::raw::c_int,
        save_stream: ::std::os::raw::c_int,
        jpeg_stream: nvjpegJpegStream_t,
    ) -> nvjpegStatus_t {
        unsafe {
            (self.nvjpegJpegStreamParse.as_ref().expect("Expected function, got error."))(
                handle,
                data,
                length,
                save_metadata,
                save_stream,
                jpeg_stream,
            )
        }
    }
    pub unsafe fn nvjpegDecodeParamsCreate(
        &self,
        handle: nvjpegHandle_t,
        decode_params: *mut nvjpegDecodeParams_t,
    ) -> nvjpegStatus_t {
        unsafe {
            (self.nvjpegDecodeParamsCreate.as_ref().expect("Expected function, got error."))(
                handle,
                decode_params,
            )
        }
    }
    pub unsafe fn nvjpegDecodeParamsDestroy(&self, decode_params: nvjpegDecodeParams_t) -> nvjpegStatus_t {
        unsafe {
            (self.nvjpegDecodeParamsDestroy.as_ref().expect("Expected function, got error."))(decode_params)
        }
    }
    pub unsafe fn nvjpegDecodeParamsSetOutputFormat(
        &self,
        decode_params: nvjpegDecodeParams_t,
        output_format: nvjpegOutputFormat_t,
    ) -> nvjpegStatus_t {
        unsafe {
            (self.nvjpegDecodeParamsSetOutputFormat.as_ref().expect("Expected function, got error."))(
                decode_params,
                output_format,
            )
        }
    }
    pub unsafe fn nvjpegDecodeParamsSetROI(
        &self,
        decode_params: nvjpegDecodeParams_t,
        offset_x: ::std::os::raw::c_int,
        offset_y: ::std::os::raw::c_int,
        roi_width: ::std::os::raw::c_int,
        roi_height: ::std::os::raw::c_int,
    ) -> nvjpegStatus_t {
        unsafe {
            (self.nvjpegDecodeParamsSetROI.as_ref().expect("Expected function, got error."))(
                decode_params,
                offset_x,
                offset_y,
                roi_width,
                roi_height,
            )
        }
    }
    pub unsafe fn nvjpegDecoderCreate(
        &self,
        nvjpeg_handle: nvjpegHandle_t,
        implementation: nvjpegBackend_t,
        decoder_handle: *mut nvjpegJpegDecoder_t,
    ) -> nvjpegStatus_t {
        unsafe {
            (self.nvjpegDecoderCreate.as_ref().expect("Expected function, got error."))(
                nvjpeg_handle,
                implementation,
                decoder_handle,
            )
        }
    }
    pub unsafe fn nvjpegDecoderDestroy(&self, decoder_handle: nvjpegJpegDecoder_t) -> nvjpegStatus_t {
        unsafe {
            (self.nvjpegDecoderDestroy.as_ref().expect("Expected function, got error."))(decoder_handle)
        }
    }
    pub unsafe fn nvjpegDecoderJpegSupported(
        &self,
        decoder_handle: nvjpegJpegDecoder_t,
        jpeg_stream: nvjpegJpegStream_t,
        decode_params: nvjpegDecodeParams_t,
        is_supported: *mut ::std::os::raw::c_int,
    ) -> nvjpegStatus_t {
        unsafe {
            (self.nvjpegDecoderJpegSupported.as_ref().expect("Expected function, got error."))(
                decoder_handle,
                jpeg_stream,
                decode_params,
                is_supported,
            )
        }
    }
    pub unsafe fn nvjpegDecodeBatchedSupported(
        &self,
        handle: nvjpegHandle_t,
        jpeg_stream: nvjpegJpegStream_t,
        is_supported: *mut ::std::os::raw::c_int,
    ) -> nvjpegStatus_t {
        unsafe {
            (self.nvjpegDecodeBatchedSupported.as_ref().expect("Expected function, got error."))(
                handle,
                jpeg_stream,
                is_supported,
            )
        }
    }
    pub unsafe fn nvjpegDecodeBatchedSupportedEx(
        &self,
        handle: nvjpegHandle_t,
        jpeg_stream: nvjpegJpegStream_t,
        decode_params: nvjpegDecodeParams_t,
        is_supported: *mut ::std::os::raw::c_int,
    ) -> nvjpegStatus_t {
        unsafe {
            (self.nvjpegDecodeBatchedSupportedEx.as_ref().expect("Expected function, got error."))(
                handle,
                jpeg_stream,
                decode_params,
                is_supported,
            )
        }
    }
    pub unsafe fn nvjpegDecoderStateCreate(
        &self,
        nvjpeg_handle: nvjpegHandle_t,
        decoder_handle: nvjpegJpegDecoder_t,
        decoder_state: *mut nvjpegJpegState_t,
    ) -> nvjpegStatus_t {
        unsafe {
            (self.nvjpegDecoderStateCreate.as_ref().expect("Expected function, got error."))(
                nvjpeg_handle,
                decoder_handle,
                decoder_state,
            )
        }
    }
    pub unsafe fn nvjpegDecodeJpegHost(
        &self,
        handle: nvjpegHandle_t,
        decoder: nvjpegJpegDecoder_t,
        decoder_state: nvjpegJpegState_t,
        decode_params: nvjpegDecodeParams_t,
        jpeg_stream: nvjpegJpegStream_t,
    ) -> nvjpegStatus_t {
        unsafe {
            (self.nvjpegDecodeJpegHost.as_ref().expect("Expected function, got error."))(
                handle,
                decoder,
                decoder_state,
                decode_params,
                jpeg_stream,
            )
        }
    }
    pub unsafe fn nvjpegDecodeJpegTransferToDevice(
        &self,
        handle: nvjpegHandle_t,
        decoder: nvjpegJpegDecoder_t,
        decoder_state: nvjpegJpegState_t,
        jpeg_stream: nvjpegJpegStream_t,
        stream: cudaStream_t,
    ) -> nvjpegStatus_t {
        unsafe {
            (self.nvjpegDecodeJpegTransferToDevice.as_ref().expect("Expected function, got error."))(
                handle,
                decoder,
                decoder_state,
                jpeg_stream,
                stream,
            )
        }
    }
    pub unsafe fn nvjpegDecodeJpegDevice(
        &self,
        handle: nvjpegHandle_t,
        decoder: nvjpegJpegDecoder_t,
        decoder_state: nvjpegJpegState_t,
        destination: *mut nvjpegImage_t,
        stream: cudaStream_t,
    ) -> nvjpegStatus_t {
        unsafe {
            (self.nvjpegDecodeJpegDevice.as_ref().expect("Expected function, got error."))(
                handle,
                decoder,
                decoder_state,
                destination,
                stream,
            )
        }
    }
    pub unsafe fn nvjpegDecodeBatchedEx(
        &self,
        handle: nvjpegHandle_t,
        jpeg_handle: nvjpegJpegState_t,
        data: *const *const ::std::os::raw::c_uchar,
        lengths: *const usize,
        destinations: *mut nvjpegImage_t,
        decode_params: *mut nvjpegDecodeParams_t,
        stream: cudaStream_t,
    ) -> nvjpegStatus_t {
        unsafe {
            (self.nvjpegDecodeBatchedEx.as_ref().expect("Expected function, got error."))(
                handle,
                jpeg_handle,
                data,
                lengths,
                destinations,
                decode_params,
                stream,
            )
        }
    }
}
