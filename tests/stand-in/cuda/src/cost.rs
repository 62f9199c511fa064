//! Adds up what calls cost the host on a real machine. No call actually waits, but tests can compare starts and ends
//! with a budget, on a machine with any load. The figures are estimates, on the high side; calls that are not listed
//! cost almost nothing.

/// The name of the counter, which is in microseconds.
pub const COUNTER: &str = "cost";

/// The fixed cost of a call in microseconds, without the part that depends on its arguments.
pub fn of(name: &str) -> u64 {
    match name {
        // For machine code, which is only copied to the device. PTX, which is compiled, costs more.
        "cuModuleLoadData" => 5_000,
        "cuModuleUnload" => 1_000,
        "cuMemPoolCreate" | "cuMemPoolDestroy" => 100,
        "cuStreamCreate" | "cuStreamCreateWithPriority" | "cuStreamDestroy_v2" => 50,
        "cuEventCreate" | "cuEventDestroy_v2" => 2,
        "cuMemHostRegister_v2" | "cuMemHostUnregister" | "cuMemHostAlloc" | "cuMemFreeHost" => 100,
        _ => 0,
    }
}

/// The cost of page-locking in microseconds: 0.1 s per gigabyte.
pub fn registering(bytes: usize) -> u64 {
    bytes as u64 / 10_000
}
