//! Libraries that are too old or too new (made with the C compiler) are skipped with a reason, and their functions are
//! not called.

use std::path::Path;
use std::process::Command;

use nvjpeg_sys::safe::{Allocator, Backend, Handle};
use nvjpeg_sys::{Library, Search};

/// Compiles a library with one function, which returns this major version.
fn make(directory: &Path, name: &str, major: u32) -> Search {
    let lib = directory.join("nvidia/cu13/lib");
    std::fs::create_dir_all(&lib).unwrap();
    let source = directory.join("nvjpeg.c");
    let text =
        format!("int nvjpegGetProperty(int type, int *value) {{ *value = type ? 0 : {major}; return 0; }}");
    std::fs::write(&source, text).unwrap();
    let done = Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(lib.join(name)).arg(source).status();
    assert!(done.is_ok_and(|status| status.success()), "cc makes a library");
    Search { packages: vec![directory.to_owned()], newest: None }
}

struct Nothing;

// SAFETY: it never returns memory.
unsafe impl Allocator for Nothing {
    fn allocate(&self, _bytes: usize, _stream: u64) -> Option<u64> {
        None
    }

    fn free(&self, _address: u64, _bytes: usize, _stream: u64) {}
}

#[test]
fn what_does_not_serve_is_passed_over_and_what_is_missing_not_called() {
    if Library::load(&Search::default()).is_ok() {
        println!("skipped: this machine has nvJPEG");
        return;
    }
    let load = |name, major, newest| {
        let directory = tempfile::tempdir().unwrap();
        let search = Search { newest, ..make(directory.path(), name, major) };
        Library::load(&search).map_err(|error| error.to_string())
    };
    let error = load("libnvjpeg.so.12", 11, None).unwrap_err();
    assert!(error.contains("libnvjpeg.so.12: version 11.0.0 is none of [13, 12]"), "{error}");
    let error = load("libnvjpeg.so", 13, Some(12)).unwrap_err();
    assert!(
        error.starts_with("nvJPEG was not found: pip install nvidia-nvjpeg-cu12 (passed over: "),
        "{error}"
    );
    assert!(error.contains("version 13.0.0 needs a driver for CUDA 13, not 12"), "{error}");
    let library = load("libnvjpeg.so.12", 12, Some(12)).unwrap();
    assert_eq!(library.version().to_string(), "12.0.0");
    assert!(library.path().ends_with("nvidia/cu13/lib/libnvjpeg.so.12"), "{library:?}");
    let handle =
        Handle::new(&library, Backend::NVJPEG_BACKEND_DEFAULT, Box::new(Nothing), Box::new(Nothing), 0);
    assert_eq!(handle.unwrap_err().to_string(), "nvjpegCreateExV2: this nvJPEG is too old to have it");
}
