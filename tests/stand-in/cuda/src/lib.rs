//! A `libcuda.so.1` for machines without a GPU. It tests the orchestration, but not speed.
//!
//! Device memory is host memory in its own address range, every stream is a thread with random delays, and kernels run
//! through their CPU build. Vector clocks check each access of each operation against all others, as in a race
//! detector. Accesses that are not ordered by a stream, an event or a wait of the host are a violation, even if the
//! result is right. Violations are printed and, unless a test turns that off, abort the process.
//!
//! Of captures of CUDA graphs, only the effects on other code are simulated (`capture.rs`). The costs of calls that are
//! slow on a real machine are added up (`cost.rs`).
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
//! `control.rs` has the functions that tests call in the process.

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
