//! `foreload doctor` reports every reason why a GPU cannot be used in one sentence, and never panics.

use crate::stand_in;
use serde_json::Value;
use std::path::Path;
use std::process::Command;

/// The JSON of `foreload doctor --json` with this folder on the library path.
fn doctor(folder: &Path, environment: &[(&str, &str)]) -> Value {
    let mut command = Command::new(env!("CARGO_BIN_EXE_foreload"));
    command.args(["doctor", "--json"]).env("LD_LIBRARY_PATH", folder).env_remove("CUDA_VISIBLE_DEVICES");
    let output = command.envs(environment.iter().copied()).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && errors.is_empty(), "{:?}: {errors}", output.status);
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Checks that the CPU is used, and that the reason contains these words.
#[track_caller]
fn assert_none(found: &Value, words: &[&str]) {
    assert_eq!(found["device"]["chosen"], "cpu", "{found}");
    let because = found["device"]["because"].as_str().unwrap();
    for word in words {
        assert!(because.contains(word), "{word} is missing: {because}");
    }
    assert!(!because.contains('\n') && because.len() < 300, "one sentence: {because}");
    assert_eq!(found["gpu"]["problem"], because);
}

#[test]
fn devices_are_listed() {
    let folder = stand_in::cuda_folder();
    stand_in::nvjpeg_folder();
    let found = doctor(folder, &[("FORELOAD_STANDIN_DEVICES", "2")]);
    assert_eq!(found["device"]["chosen"], "cuda:0");
    assert_eq!(found["gpu"]["driver"], serde_json::json!({ "major": 13, "minor": 0 }));
    assert_eq!(found["gpu"]["devices"][1]["memory"], 1 << 30);
    assert_eq!(found["gpu"]["problem"], Value::Null);
    let mut shown = Command::new(env!("CARGO_BIN_EXE_foreload"));
    let shown = shown.arg("doctor").env("LD_LIBRARY_PATH", folder).output().unwrap();
    let shown = String::from_utf8(shown.stdout).unwrap();
    for line in [
        "  device       cuda:0: Foreload stand-in",
        "  nvJPEG       13.",
        "  driver       supports CUDA up to 13.0",
        "  decoders     all: images are decoded by the engine, else by CUDA kernels",
        "  streams      batches are ordered with the consumer's stream",
        "  cuda:0       Foreload stand-in, compute capability 9.0, 1.07 GB",
    ] {
        assert!(shown.contains(line), "{line} is missing: {shown}");
    }
}

#[test]
fn no_driver() {
    let empty = tempfile::tempdir().unwrap();
    // SAFETY: only checks whether the library exists.
    if unsafe { libloading::Library::new("libcuda.so.1") }.is_ok() {
        println!("skipped: this machine has a driver");
        return;
    }
    let found = doctor(empty.path(), &[]);
    assert_none(&found, &["no NVIDIA driver can be loaded", "libcuda.so.1", "No such file"]);
    assert_eq!(found["gpu"]["driver"], Value::Null);
}

#[test]
fn a_broken_library() {
    let folder = tempfile::tempdir().unwrap();
    for bytes in [&b""[..], b"not a library, but long enough to have a header of sixty-four bytes and more"] {
        std::fs::write(folder.path().join("libcuda.so.1"), bytes).unwrap();
        assert_none(&doctor(folder.path(), &[]), &["no NVIDIA driver can be loaded", "libcuda.so.1"]);
    }
}

#[test]
fn a_library_that_lacks_functions() {
    let folder = tempfile::tempdir().unwrap();
    let compile = |source: &str| {
        let file = folder.path().join("driver.c");
        std::fs::write(&file, source).unwrap();
        let mut compiler = Command::new("cc");
        compiler.args(["-shared", "-fPIC", "-o"]).arg(folder.path().join("libcuda.so.1")).arg(&file);
        assert!(compiler.status().unwrap().success());
    };
    compile("int cuSomething(void) { return 0; }");
    assert_none(&doctor(folder.path(), &[]), &["has no function cuDriverGetVersion"]);
    compile("int cuDriverGetVersion(int* v) { *v = 13000; return 0; } int cuInit(unsigned f) { return 0; }");
    assert_none(&doctor(folder.path(), &[]), &["has no function cuGetErrorName", "a driver for CUDA 12.2"]);
    // An old driver lacks functions, too. Its age is the better reason.
    compile("int cuDriverGetVersion(int* v) { *v = 11040; return 0; }");
    assert_none(&doctor(folder.path(), &[]), &["supports CUDA up to 11.4", "driver 535"]);
    // The toolkit's stub library answers every call with CUDA_ERROR_STUB_LIBRARY.
    compile("int cuDriverGetVersion(int* v) { return 34; }");
    assert_none(&doctor(folder.path(), &[]), &["libcuda.so.1 has no function"]);
}

#[test]
fn drivers_that_refuse() {
    let folder = stand_in::cuda_folder();
    let none =
        |environment: &[(&str, &str)], words: &[&str]| assert_none(&doctor(folder, environment), words);
    none(&[("FORELOAD_STANDIN_VERSION", "12010")], &["supports CUDA up to 12.1"]);
    none(&[("FORELOAD_STANDIN_DEVICES", "0")], &["the NVIDIA driver finds no device"]);
    let hidden = [("FORELOAD_STANDIN_DEVICES", "0"), ("CUDA_VISIBLE_DEVICES", "7")];
    none(&hidden, &["finds no device; CUDA_VISIBLE_DEVICES is \"7\""]);
    let fail = |what: &'static str| [("FORELOAD_STANDIN_FAIL", what)];
    none(&fail("cuInit:1:3"), &["forked", "spawn"]);
    none(&fail("cuInit:1:34"), &["stub", "LD_LIBRARY_PATH"]);
    none(&fail("cuInit:1:999"), &["cannot be initialised: cuInit: CUDA_ERROR_UNKNOWN: unknown error"]);
    // Only newer drivers have this error code.
    none(&fail("cuInit:1:919"), &["cannot be initialised: cuInit: CUDA error 919"]);
    none(&fail("cuDriverGetVersion:1:999"), &["cannot read the NVIDIA driver's version"]);
    none(&fail("cuDeviceGetCount:1:101"), &["cuDeviceGetCount: CUDA_ERROR_INVALID_DEVICE"]);
    let old = [("FORELOAD_STANDIN_CAPABILITY", "7.5"), ("FORELOAD_STANDIN_DEVICES", "2")];
    none(&old, &["cuda:0 (Foreload stand-in) cannot be used", "7.5, but 8.0 or newer is required; cuda:1"]);
}
