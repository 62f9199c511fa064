//! Writes `sys.rs` from NVIDIA's headers: only the part of nvJPEG that Foreload uses.
//!
//! `make bindings` runs it as `nvjpeg-bindings HEADER OUTPUT INCLUDE…`.

use std::env::args;
use std::process::ExitCode;

const FUNCTIONS: &[&str] = &[
    "nvjpegGetProperty",
    "nvjpegCreateExV2",
    "nvjpegDestroy",
    "nvjpegGetHardwareDecoderInfo",
    "nvjpegJpegStateCreate",
    "nvjpegJpegStateDestroy",
    "nvjpegDecodeBatchedInitialize",
    "nvjpegDecodeBatchedPreAllocate",
    "nvjpegDecodeBatched",
    "nvjpegDecodeBatchedEx",
    "nvjpegDecodeBatchedSupported",
    "nvjpegDecodeBatchedSupportedEx",
    "nvjpegBufferPinnedCreateV2",
    "nvjpegBufferPinnedDestroy",
    "nvjpegBufferDeviceCreateV2",
    "nvjpegBufferDeviceDestroy",
    "nvjpegStateAttachPinnedBuffer",
    "nvjpegStateAttachDeviceBuffer",
    "nvjpegJpegStreamCreate",
    "nvjpegJpegStreamDestroy",
    "nvjpegJpegStreamParse",
    "nvjpegDecodeParamsCreate",
    "nvjpegDecodeParamsDestroy",
    "nvjpegDecodeParamsSetOutputFormat",
    "nvjpegDecodeParamsSetROI",
    "nvjpegDecoderCreate",
    "nvjpegDecoderDestroy",
    "nvjpegDecoderJpegSupported",
    "nvjpegDecoderStateCreate",
    "nvjpegDecodeJpegHost",
    "nvjpegDecodeJpegTransferToDevice",
    "nvjpegDecodeJpegDevice",
];

const HEADER: &str = "\
//! nvJPEG's functions and types, written by `make bindings` from NVIDIA's header; not to be edited.

#![allow(missing_docs, non_camel_case_types, non_snake_case, non_upper_case_globals)]
#![allow(clippy::all, clippy::undocumented_unsafe_blocks, clippy::missing_safety_doc)]
";

fn main() -> ExitCode {
    let arguments: Vec<String> = args().skip(1).collect();
    let [header, output, includes @ ..] = &arguments[..] else {
        eprintln!("usage: nvjpeg-bindings HEADER OUTPUT INCLUDE...");
        return ExitCode::from(2);
    };
    let constants = r"NVJPEG_VER_(MAJOR|MINOR)|NVJPEG_FLAGS_BITSTREAM_STRICT";
    let Ok(target) = bindgen::RustTarget::stable(85, 0) else { return ExitCode::FAILURE };
    let mut builder = bindgen::Builder::default()
        .header(header)
        .clang_args(includes.iter().flat_map(|include| ["-isystem", include]))
        .raw_line(HEADER)
        .allowlist_recursively(true)
        .allowlist_var(constants)
        .dynamic_library_name("NvJpeg")
        .dynamic_link_require_all(false)
        // A status or format that a newer library adds must not be undefined behaviour.
        .default_enum_style(bindgen::EnumVariation::NewType { is_bitfield: false, is_global: false })
        .prepend_enum_name(false)
        // The runtime's own type is opaque here: a stream is a pointer.
        .opaque_type("CUstream_st")
        .wrap_unsafe_ops(true)
        .rust_target(target)
        .rust_edition(bindgen::RustEdition::Edition2024)
        .merge_extern_blocks(true)
        .generate_comments(false)
        .layout_tests(false)
        .disable_header_comment();
    for function in FUNCTIONS {
        builder = builder.allowlist_function(format!("^{function}$"));
    }
    match builder.generate() {
        Ok(bindings) => match bindings.write_to_file(output) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("write {output}: {error}");
                ExitCode::FAILURE
            }
        },
        Err(error) => {
            eprintln!("{header}: {error}");
            ExitCode::FAILURE
        }
    }
}
