//! Each call of the driver fails in turn: an error names it, nothing leaks, and no batch is wrong.

use crate::stand_in;
use crate::work::everything;
use foreload::Error;

/// The functions that `everything` calls, except those that free resources, whose failures cannot be handled.
const CALLS: &[&str] = &[
    "cuDeviceGetCount",
    "cuDeviceGet",
    "cuDeviceGetName",
    "cuDeviceGetAttribute",
    "cuDeviceTotalMem_v2",
    "cuDevicePrimaryCtxRetain",
    "cuCtxGetCurrent",
    "cuCtxSetCurrent",
    "cuMemHostRegister_v2",
    "cuMemPoolCreate",
    "cuMemPoolSetAttribute",
    "cuModuleLoadData",
    "cuModuleGetFunction",
    "cuStreamCreateWithPriority",
    "cuMemAllocFromPoolAsync",
    "cuEventCreate",
    "cuMemcpyHtoDAsync_v2",
    "cuMemsetD8Async",
    "cuLaunchKernel",
    "cuEventRecord",
    "cuStreamWaitEvent",
    "cuMemcpyDtoDAsync_v2",
    "cuMemcpyDtoHAsync_v2",
    "cuStreamSynchronize",
    "cuEventSynchronize",
    "cuEventQuery",
];

#[test]
fn every_call_may_fail() {
    let mut cuda = stand_in::cuda();
    let bytes = [1; 1000];
    for call in CALLS {
        let before = cuda.calls(call);
        everything(&bytes).unwrap();
        let times = cuda.calls(call) - before;
        assert!(times > 0, "{call} is never called");
        // Without its context nothing can be freed. So these calls fail only before anything is allocated.
        let times = if call.starts_with("cuCtx") { 1 } else { times };
        let mut failures = 0;
        for nth in 1..=times {
            cuda.fail(call, nth, 0);
            match everything(&bytes) {
                Ok(result) => assert_eq!(result, [4; 1000]),
                Err(Error::Gpu { call: named, status, .. }) => {
                    assert_eq!(&named, call);
                    assert!(status.starts_with("CUDA_ERROR_"), "{call}: {status}");
                    failures += 1;
                }
                Err(other) => panic!("{call}, call {nth}: {other}"),
            }
            assert!(cuda.leaks().is_empty(), "{call}, call {nth}: {:?}", cuda.leaks());
            let violations = cuda.violations();
            assert!(violations.is_empty(), "{call}, call {nth}: {violations:#?}");
            cuda.reset();
        }
        assert!(failures > 0, "{call}: no failure was told");
    }
}
