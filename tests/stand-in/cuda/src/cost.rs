//! What calls would cost the host on a real machine, as an account: nobody waits, but tests can hold starts and ends to
//! a budget, on a machine of any load. The figures are estimates, on the high side; calls that are not here cost next
//! to nothing.

/// The name of the counter, which is in microseconds.
pub const COUNTER: &str = "cost";

/// The microseconds of a call, beside what depends on its arguments.
pub fn of(name: &str) -> u64 {
    match name {
        // This is machine code that is copied to the device; PTX, which is compiled, costs more.
        "cuModuleLoadData" => 5_000,
        "cuModuleUnload" => 1_000,
        "cuMemPoolCreate" | "cuMemPoolDestroy" => 100,
        "cuStreamCreate" | "cuStreamCreateWithPriority" | "cuStreamDestroy_v2" => 50,
        "cuEventCreate" | "cuEventDestroy_v2" => 2,
        "cuMemHostRegister_v2" | "cuMemHostUnregister" | "cuMemHostAlloc" | "cuMemFreeHost" => 100,
        _ => 0,
    }
}

/// The microseconds of page-locking: 0.1 s a gigabyte.
pub fn registering(bytes: usize) -> u64 {
    bytes as u64 / 10_000
}
