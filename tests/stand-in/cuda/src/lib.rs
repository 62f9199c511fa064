//! A `libcuda.so.1` for machines without a GPU. It proves orchestration, never speed.
//!
//! Device memory is host memory in an address range of its own, every stream is a thread with random delays, and
//! kernels run through their CPU build. Each access of each operation is checked against all others by vector clocks,
//! as a race detector does: accesses that are not ordered by a stream, an event or a wait of the host are a violation
//! even when all went well. Violations are printed and, unless a test asks otherwise, abort the process.
//!
//! Captures of CUDA graphs are simulated by what they forbid others (`capture.rs`), and calls that take long on a real
//! machine by an account of what they would cost (`cost.rs`).
//!
//! | environment | meaning |
//! |---|---|
//! | `FORELOAD_STANDIN_FAIL=cuMemAllocFromPoolAsync:3` | the third call fails; `:700`: its error; several with commas |
//! | `FORELOAD_STANDIN_SEED=1` | of the delays |
//! | `FORELOAD_STANDIN_DELAY_US=300` | longest delay before an operation and inside of it; 0 for none |
//! | `FORELOAD_STANDIN_DEVICES=1` | number of devices |
//! | `FORELOAD_STANDIN_CAPABILITY=9.0` | their compute capability |
//! | `FORELOAD_STANDIN_MEMORY=1073741824` | bytes of memory of each |
//! | `FORELOAD_STANDIN_VERSION=13000` | CUDA version of the driver |
//! | `FORELOAD_STANDIN_VIOLATIONS=abort` | or `record`: only print and count |
//! | `FORELOAD_STANDIN_LEAKS=fail` | at exit: or `print`, `ignore` |
//!
//! `control.rs` has what tests call in the process.

mod api;
mod augment;
mod capture;
mod clock;
mod control;
mod cost;
mod decode;
mod entry;
mod faults;
mod kernels;
mod memory;
mod pool;
mod settings;
mod shadow;
mod status;
mod stream;
mod world;
