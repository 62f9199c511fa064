//! NVIDIA's library has every function that Foreload uses. Tested where `make bindings` or `make check` has fetched it.

use std::path::Path;

use nvjpeg_sys::{Library, Search, sys};

#[test]
fn the_library_has_every_function() {
    let packages = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.envs/bindings");
    if !packages.join("nvidia/cu13/lib").exists() {
        println!("skipped: make bindings has not been run");
        return;
    }
    let library = Library::load(&Search { packages: vec![packages], newest: None }).unwrap();
    assert!(library.version().major == sys::NVJPEG_VER_MAJOR || library.version().major == 12, "{library:?}");
    macro_rules! has {
        ($($function:ident),* $(,)?) => {
            $(assert!(library.sys().$function.is_ok(), "{} of {library:?}", stringify!($function));)*
        };
    }
    has!(
        nvjpegCreateExV2,
        nvjpegDestroy,
        nvjpegGetHardwareDecoderInfo,
        nvjpegJpegStateCreate,
        nvjpegJpegStateDestroy,
        nvjpegDecodeBatchedInitialize,
        nvjpegDecodeBatchedPreAllocate,
        nvjpegDecodeBatched,
        nvjpegDecodeBatchedEx,
        nvjpegDecodeBatchedSupported,
        nvjpegDecodeBatchedSupportedEx,
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
        nvjpegDecoderStateCreate,
        nvjpegDecodeJpegHost,
        nvjpegDecodeJpegTransferToDevice,
        nvjpegDecodeJpegDevice,
    );
}
