//! Programs that end badly, each in its own process: with errors, with leaks, after a fork, or with calls that fail at
//! the end.

use crate::common::{Dataset, await_no_threads, child};
use crate::pipeline::{epoch, options, pipeline};
use crate::stand_in;
use crate::work::everything;
use foreload::testing::config::AllowedBackends;
use foreload::testing::gpu::{GpuDevice, InFlight, MemoryPool, Stream};
use std::process::{Command, Output};

/// Runs an ignored test in a child process, and returns its output.
pub fn run(child: &mut Command) -> (Output, String) {
    let output = child.output().unwrap();
    let texts = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text).into_owned());
    (output, texts.concat())
}

#[test]
fn a_leak_fails_at_the_end() {
    let (output, shown) = run(&mut child(leaks_on_purpose));
    assert_eq!(output.status.code(), Some(97), "{shown}");
    assert!(shown.contains("LEAK: 1 streams, 1 retained primary contexts at exit"), "{shown}");
}

#[test]
#[ignore = "run by the test above, in a process of its own"]
fn leaks_on_purpose() {
    let cuda = stand_in::cuda();
    let device = GpuDevice::open(0).unwrap();
    std::mem::forget(Stream::new(&device).unwrap());
    std::mem::forget(cuda);
}

#[test]
fn a_violation_aborts() {
    let (output, shown) = run(&mut child(errs_on_purpose));
    assert!(!output.status.success() && !shown.contains("survived"), "{shown}");
    assert!(
        shown.contains("VIOLATION: cuMemcpyDtoDAsync_v2") && shown.contains("were never written"),
        "{shown}"
    );
}

#[test]
#[ignore = "run by the test above, in a process of its own"]
fn errs_on_purpose() {
    let cuda = stand_in::cuda();
    cuda.abort_on_violation();
    let device = GpuDevice::open(0).unwrap();
    let stream = Stream::new(&device).unwrap();
    let pool = MemoryPool::new(&device, 1 << 20).unwrap();
    let [to, from] = [(); 2].map(|()| pool.allocate(&stream, 100).unwrap());
    InFlight::new(&stream).unwrap().copy_on_device(to.whole(), from.whole()).unwrap();
    stream.synchronize().unwrap();
    println!("survived");
}

#[test]
fn a_forked_child_is_told_so() {
    let (output, shown) = run(&mut child(forks_on_purpose));
    assert!(output.status.success(), "{shown}");
    assert!(
        shown.contains("child: this process was forked after CUDA was started and cannot use it"),
        "{shown}"
    );
}

#[test]
#[ignore = "run by the test above, in a process of its own"]
fn forks_on_purpose() {
    let cuda = stand_in::cuda();
    cuda.abort_on_violation();
    let device = GpuDevice::open(0).unwrap();
    let stream = Stream::new(&device).unwrap();
    let nvjpeg = stand_in::nvjpeg(&cuda);
    epoch(&pipeline(&Dataset::folder(8), &options(), AllowedBackends::All), 0);
    await_no_threads();
    // SAFETY: the child only checks and exits; no other thread holds a lock that the child needs.
    let child = unsafe { libc::fork() };
    if child == 0 {
        println!("child: {}", stream.synchronize().unwrap_err());
        assert!(GpuDevice::open(0).is_err());
        // Dropping the parent's objects must not call the driver, which would make the stand-in abort.
        drop((stream, device));
        // SAFETY: ends the child at once, without the parent's exit handlers.
        unsafe { libc::_exit(0) };
    }
    let mut status = 0;
    // SAFETY: waits for our own child.
    unsafe { libc::waitpid(child, &mut status, 0) };
    assert_eq!(status, 0, "the child's end");
    drop((stream, device, nvjpeg));
    drop(cuda);
}

#[test]
fn what_fails_at_the_end_is_no_panic() {
    let (output, shown) = run(child(ends_that_fail).env("FORELOAD_STANDIN_LEAKS", "ignore"));
    assert!(output.status.success() && !shown.contains("panicked"), "{shown}");
}

#[test]
#[ignore = "run by the test above, in a process of its own"]
fn ends_that_fail() {
    let cuda = stand_in::cuda();
    let ends = [
        "cuCtxSynchronize",
        "cuModuleUnload",
        "cuEventDestroy_v2",
        "cuStreamDestroy_v2",
        "cuMemFreeAsync",
        "cuMemPoolDestroy",
        "cuDevicePrimaryCtxRelease_v2",
        // This call must be the last one: an address that stays registered cannot be registered again.
        "cuMemHostUnregister",
    ];
    for call in ends {
        let before = cuda.calls(call);
        cuda.fail(call, 1, 0);
        assert_eq!(everything(&[1; 1000]).unwrap(), [4; 1000], "{call}");
        assert!(cuda.calls(call) > before, "{call} is never called");
    }
    assert!(!cuda.leaks().is_empty(), "what was not given back is seen");
    std::mem::forget(cuda);
}
