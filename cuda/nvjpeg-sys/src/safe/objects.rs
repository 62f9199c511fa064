//! Objects that are made from a handle: parsed files, parameters, states, decoders, buffers.

use std::fmt;
use std::ptr::{null, null_mut};

use super::{Backend, ChromaSubsampling, Handle, Image, OutputFormat};
use crate::call;
use crate::result::Result;
use crate::sys;

/// Defines a handle from its raw type, the function that makes it and the function that frees it.
macro_rules! handle {
    ($(#[$doc:meta])* $name:ident, $raw:ident, $create:ident, $destroy:ident) => {
        $(#[$doc])*
        pub struct $name {
            pub(super) root: Handle,
            pub(super) raw: sys::$raw,
        }

        // SAFETY: one thread at a time uses the object, not always the same thread.
        unsafe impl Send for $name {}

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(stringify!($name))
            }
        }

        impl Drop for $name {
            fn drop(&mut self) {
                // SAFETY: the library made it, and it is freed once, before its handle.
                let _ = unsafe { call!(self.root.0.library, $destroy(self.raw)) };
            }
        }
    };
    ($(#[$doc:meta])* $name:ident, $raw:ident, $create:ident, $destroy:ident, new) => {
        handle!($(#[$doc])* $name, $raw, $create, $destroy);

        impl $name {
            /// Makes a new object.
            ///
            /// # Errors
            /// The errors of the library.
            pub fn new(root: &Handle) -> Result<Self> {
                let mut raw = null_mut();
                // SAFETY: the handle and the pointer are valid.
                unsafe { call!(root.0.library, $create(root.0.raw, &mut raw)) }?;
                Ok(Self { root: root.clone(), raw })
            }
        }
    };
}

handle!(
    /// A JPEG file that nvJPEG has parsed.
    BitStream, nvjpegJpegStream_t, nvjpegJpegStreamCreate, nvjpegJpegStreamDestroy, new
);
handle!(
    /// The parameters by which an image is decoded.
    Params, nvjpegDecodeParams_t, nvjpegDecodeParamsCreate, nvjpegDecodeParamsDestroy, new
);
handle!(
    /// The state of a decoder between its phases.
    State, nvjpegJpegState_t, nvjpegJpegStateCreate, nvjpegJpegStateDestroy, new
);
handle!(
    /// One implementation of the decoder.
    Decoder, nvjpegJpegDecoder_t, nvjpegDecoderCreate, nvjpegDecoderDestroy
);
handle!(
    /// Page-locked memory that a state works with.
    PinnedBuffer, nvjpegBufferPinned_t, nvjpegBufferPinnedCreateV2, nvjpegBufferPinnedDestroy
);
handle!(
    /// Device memory that a state works with.
    DeviceBuffer, nvjpegBufferDevice_t, nvjpegBufferDeviceCreateV2, nvjpegBufferDeviceDestroy
);

impl BitStream {
    /// Parses a whole file. The file must not change until its host phase and its transfer are done.
    ///
    /// # Errors
    /// Fails for damaged files and unknown kinds of files.
    ///
    /// # Safety
    /// nvJPEG may keep the address of `bytes` until the stream parses another file or is dropped.
    pub unsafe fn parse(&mut self, bytes: &[u8]) -> Result<()> {
        // SAFETY: the handles are valid; nvJPEG stores only the address, and the caller keeps the bytes there.
        unsafe {
            call!(
                self.root.0.library,
                nvjpegJpegStreamParse(self.root.0.raw, bytes.as_ptr(), bytes.len(), 0, 0, self.raw)
            )
        }
    }
}

impl Params {
    /// Sets the format of the output.
    ///
    /// # Errors
    /// The errors of the library.
    pub fn set_output(&mut self, format: OutputFormat) -> Result<()> {
        // SAFETY: the handle is valid.
        unsafe { call!(self.root.0.library, nvjpegDecodeParamsSetOutputFormat(self.raw, format)) }
    }

    /// Sets the rectangle of the image to decode, (x, y, width, height) in pixels; `None` means all of it.
    ///
    /// # Errors
    /// The errors of the library.
    pub fn set_region(&mut self, region: Option<(u32, u32, u32, u32)>) -> Result<()> {
        // SAFETY: the handle is valid. JPEG's sizes are at most 65535.
        unsafe {
            match region {
                Some((x, y, width, height)) => call!(
                    self.root.0.library,
                    nvjpegDecodeParamsSetROI(self.raw, x as i32, y as i32, width as i32, height as i32)
                ),
                None => call!(self.root.0.library, nvjpegDecodeParamsSetROI(self.raw, 0, 0, -1, -1)),
            }
        }
    }
}

impl State {
    /// Makes a state for the phases of `decoder`.
    ///
    /// # Errors
    /// The errors of the library.
    pub fn of(decoder: &Decoder) -> Result<Self> {
        let root = &decoder.root;
        let mut raw = null_mut();
        // SAFETY: the handles and the pointer are valid.
        unsafe { call!(root.0.library, nvjpegDecoderStateCreate(root.0.raw, decoder.raw, &mut raw)) }?;
        Ok(Self { root: root.clone(), raw })
    }

    /// Makes the state use `buffer`, until it is given another.
    ///
    /// # Errors
    /// The errors of the library.
    ///
    /// # Safety
    /// The buffer must outlive its use, and earlier work that used it must be done.
    pub unsafe fn attach_pinned(&mut self, buffer: &PinnedBuffer) -> Result<()> {
        // SAFETY: the handles are valid; the rest is the caller's promise.
        unsafe { call!(self.root.0.library, nvjpegStateAttachPinnedBuffer(self.raw, buffer.raw)) }
    }

    /// Makes the state use `buffer`, until it is given another.
    ///
    /// # Errors
    /// The errors of the library.
    ///
    /// # Safety
    /// The buffer must outlive its use, and work of other streams that uses it must be done.
    pub unsafe fn attach_device(&mut self, buffer: &DeviceBuffer) -> Result<()> {
        // SAFETY: the handles are valid; the rest is the caller's promise.
        unsafe { call!(self.root.0.library, nvjpegStateAttachDeviceBuffer(self.raw, buffer.raw)) }
    }

    /// Prepares for batches of `count` images.
    ///
    /// # Errors
    /// The errors of the library.
    pub fn initialise_batch(&mut self, count: usize, format: OutputFormat) -> Result<()> {
        // SAFETY: the handles are valid.
        unsafe {
            call!(
                self.root.0.library,
                nvjpegDecodeBatchedInitialize(self.root.0.raw, self.raw, count as i32, 1, format)
            )
        }
    }

    /// Allocates the memory that batches of `count` images of up to this size need.
    ///
    /// # Errors
    /// The errors of the library.
    pub fn preallocate(
        &mut self,
        count: usize,
        (width, height): (u32, u32),
        sampling: ChromaSubsampling,
        format: OutputFormat,
    ) -> Result<()> {
        let (root, count) = (&self.root.0, count as i32);
        let (width, height) = (width as i32, height as i32);
        // SAFETY: the handles are valid.
        unsafe {
            call!(
                root.library,
                nvjpegDecodeBatchedPreAllocate(root.raw, self.raw, count, width, height, sampling, format)
            )
        }
    }

    /// Decodes a batch of as many images as the state was prepared for, on `stream`. Without `params` the images are
    /// decoded whole. With `params`, which only the engine's backend supports, image i is decoded by the parameters at
    /// the given index plus i.
    ///
    /// # Errors
    /// The errors of the library. The contents of all images are then undefined.
    ///
    /// # Panics
    /// If the slices have different lengths.
    ///
    /// # Safety
    /// The files and the images' memory must stay valid until the stream has completed the batch. The memory must be
    /// large enough for the output that the parameters request. The last batch of this state must be done.
    pub unsafe fn decode_batch(
        &mut self,
        files: &[*const u8],
        lengths: &[usize],
        images: &mut [Image],
        params: Option<(&Batch, usize)>,
        stream: u64,
    ) -> Result<()> {
        let count = files.len();
        assert!(lengths.len() == count && images.len() == count, "equal lengths");
        let (root, stream) = (&self.root.0, stream as sys::cudaStream_t);
        let (files, lengths, images) = (files.as_ptr(), lengths.as_ptr(), images.as_mut_ptr());
        // SAFETY: the handles are valid, and each pointer is followed by `count` valid entries.
        unsafe {
            match params {
                None => call!(
                    root.library,
                    nvjpegDecodeBatched(root.raw, self.raw, files, lengths, images, stream)
                ),
                Some((params, first)) => {
                    let params = params.raw[first..][..count].as_ptr().cast_mut();
                    call!(
                        root.library,
                        nvjpegDecodeBatchedEx(root.raw, self.raw, files, lengths, images, params, stream)
                    )
                }
            }
        }
    }
}

/// The parameters for the images of a batch.
#[derive(Debug, Default)]
pub struct Batch {
    params: Vec<Params>,
    raw: Vec<sys::nvjpegDecodeParams_t>,
}

// SAFETY: the pointers are those of `params`.
unsafe impl Send for Batch {}

impl Batch {
    /// The parameters of image `index`; creates them if they do not exist yet.
    ///
    /// # Errors
    /// The errors of the library.
    pub fn get(&mut self, root: &Handle, index: usize) -> Result<&mut Params> {
        while self.params.len() <= index {
            let params = Params::new(root)?;
            self.raw.push(params.raw);
            self.params.push(params);
        }
        Ok(&mut self.params[index])
    }
}

impl Decoder {
    /// Makes a decoder that is the implementation `backend`.
    ///
    /// # Errors
    /// Fails if the instance does not have this implementation.
    pub fn new(root: &Handle, backend: Backend) -> Result<Self> {
        let mut raw = null_mut();
        // SAFETY: the handle and the pointer are valid.
        unsafe { call!(root.0.library, nvjpegDecoderCreate(root.0.raw, backend, &mut raw)) }?;
        Ok(Self { root: root.clone(), raw })
    }

    /// Whether the decoder supports the parsed file with these parameters.
    ///
    /// # Errors
    /// The errors of the library.
    pub fn takes(&self, stream: &BitStream, params: &Params) -> Result<bool> {
        let mut supported = -1;
        // SAFETY: all handles are valid.
        unsafe {
            call!(
                self.root.0.library,
                nvjpegDecoderJpegSupported(self.raw, stream.raw, params.raw, &mut supported)
            )
        }?;
        // 0 means yes.
        Ok(supported == 0)
    }

    /// Runs the phase on the host: decodes the Huffman codes into the state's page-locked buffer.
    ///
    /// # Errors
    /// Fails if the codes are damaged.
    ///
    /// # Safety
    /// The parsed file must still be valid, and earlier work that used the page-locked buffer must be done.
    pub unsafe fn decode_host(&self, state: &mut State, params: &Params, stream: &BitStream) -> Result<()> {
        let root = &self.root.0;
        // SAFETY: the handles are valid; the rest is the caller's promise.
        unsafe {
            call!(root.library, nvjpegDecodeJpegHost(root.raw, self.raw, state.raw, params.raw, stream.raw))
        }
    }

    /// Queues the phases of the device on `stream`: copies the buffer and makes the planes.
    ///
    /// # Errors
    /// The errors of the library.
    ///
    /// # Safety
    /// The host phase must have used this state. The file, the buffers and the image's memory must stay valid until the
    /// stream has completed the work. The memory must be large enough for the output that the parameters request.
    pub unsafe fn decode_device(
        &self,
        state: &mut State,
        bits: &BitStream,
        image: &mut Image,
        stream: u64,
    ) -> Result<()> {
        let root = &self.root.0;
        let stream = stream as sys::cudaStream_t;
        // SAFETY: the handles are valid; the rest is the caller's promise.
        unsafe {
            call!(
                root.library,
                nvjpegDecodeJpegTransferToDevice(root.raw, self.raw, state.raw, bits.raw, stream)
            )?;
            call!(
                root.library,
                nvjpegDecodeJpegDevice(root.raw, self.raw, state.raw, std::ptr::from_mut(image), stream)
            )
        }
    }
}

impl PinnedBuffer {
    /// Makes a buffer that takes its memory from the handle's allocator on demand.
    ///
    /// # Errors
    /// The errors of the library.
    pub fn new(root: &Handle) -> Result<Self> {
        let mut raw = null_mut();
        let allocator = std::ptr::from_ref(&*root.0.pinned).cast_mut();
        // SAFETY: the handle and the pointers are valid.
        unsafe { call!(root.0.library, nvjpegBufferPinnedCreateV2(root.0.raw, allocator, &mut raw)) }?;
        Ok(Self { root: root.clone(), raw })
    }
}

impl DeviceBuffer {
    /// Makes a buffer that takes its memory from the handle's allocator on demand.
    ///
    /// # Errors
    /// The errors of the library.
    pub fn new(root: &Handle) -> Result<Self> {
        let mut raw = null_mut();
        let allocator = std::ptr::from_ref(&*root.0.device).cast_mut();
        // SAFETY: the handle and the pointers are valid.
        unsafe { call!(root.0.library, nvjpegBufferDeviceCreateV2(root.0.raw, allocator, &mut raw)) }?;
        Ok(Self { root: root.clone(), raw })
    }
}

/// An image with these planes, each given by (device address, bytes from one row to the next).
pub fn image(planes: &[(u64, u32)]) -> Image {
    let mut image = Image { channel: [null::<u8>().cast_mut(); 4], pitch: [0; 4] };
    for (index, &(address, stride)) in planes.iter().enumerate().take(4) {
        (image.channel[index], image.pitch[index]) = (address as *mut u8, stride as usize);
    }
    image
}
