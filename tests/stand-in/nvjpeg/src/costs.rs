//! Simulated costs of calls: the caller's processor spins, the device is kept busy, and both are added up.
//!
//! `FORELOAD_STANDIN_NVJPEG_COSTS` or `nvjpeg_standin_costs` set the costs, with microseconds each. `huffman` is for an
//! image whose codes the host decodes: the calling thread spins. `engine` and `kernels` are for an image on the engine
//! or by kernels: that part of the device does nothing else. `create` is for a handle: the calling thread sleeps. With
//! `virtual`, no thread spins or sleeps, and costs are only added up.

use std::collections::BTreeMap;
use std::ffi::{CStr, c_char, c_void};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::Answer;
use crate::driver;

/// The number of images that the engine decodes in parallel: one more than a multiple of it costs as much as the next
/// multiple.
pub const CORES: u32 = 7;

#[derive(Default)]
struct Costs {
    read: bool,
    of_one: BTreeMap<String, u64>,
    spent: BTreeMap<&'static str, u64>,
}

static COSTS: Mutex<Option<Costs>> = Mutex::new(None);

/// The parts of the device. Each does one thing at a time, for all callers.
static ENGINE: Mutex<()> = Mutex::new(());
static KERNELS: Mutex<()> = Mutex::new(());

fn alone<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn with<T>(act: impl FnOnce(&mut Costs) -> T) -> T {
    let mut guard = alone(&COSTS);
    let costs = guard.get_or_insert_with(Costs::default);
    if !costs.read {
        costs.read = true;
        costs.of_one = parse(&std::env::var("FORELOAD_STANDIN_NVJPEG_COSTS").unwrap_or_default());
    }
    act(costs)
}

fn parse(wishes: &str) -> BTreeMap<String, u64> {
    let one = |wish: &str| {
        let (name, cost) = wish.split_once(':').unwrap_or((wish, "1"));
        Some((name.to_owned(), cost.parse().ok()?))
    };
    wishes.split(',').filter(|wish| !wish.is_empty()).filter_map(one).collect()
}

/// Adds `count` times the cost of `name`; returns the part of it that must actually be spent.
fn charge(name: &'static str, count: u32) -> Duration {
    with(|costs| {
        let cost = costs.of_one.get(name).copied().unwrap_or(0) * u64::from(count);
        *costs.spent.entry(name).or_default() += cost;
        let spared = costs.of_one.contains_key("virtual");
        if spared { Duration::ZERO } else { Duration::from_micros(cost) }
    })
}

/// Charges this thread for decoding the codes of `images` on the host.
pub fn huffman(images: u32) {
    let cost = charge("huffman", images);
    let until = processor_time() + cost;
    while cost > Duration::ZERO && processor_time() < until {
        std::hint::spin_loop();
    }
}

/// Charges for making a handle.
pub fn create() {
    std::thread::sleep(charge("create", 1));
}

/// Charges for the engine's decoding of `images`, before later work of `stream`.
pub fn engine(images: u32, stream: u64) -> Answer {
    occupy(&ENGINE, charge("engine", images.next_multiple_of(CORES)), stream)
}

/// Charges for the kernels' decoding of `images`, before later work of `stream`.
pub fn kernels(images: u32, stream: u64) -> Answer {
    occupy(&KERNELS, charge("kernels", images), stream)
}

type Part = (&'static Mutex<()>, Duration);

fn occupy(part: &'static Mutex<()>, cost: Duration, stream: u64) -> Answer {
    if cost.is_zero() {
        return Ok(());
    }
    let data = Box::into_raw(Box::new((part, cost)));
    driver::call_host(stream, work, data.cast()).inspect_err(|_| {
        // SAFETY: the call failed, so no other code has the pointer.
        drop(unsafe { Box::<Part>::from_raw(data) });
    })
}

extern "C" fn work(data: *mut c_void) {
    // SAFETY: `occupy` made it, and this runs once.
    let (part, cost) = *unsafe { Box::<Part>::from_raw(data.cast()) };
    let _alone = alone(part);
    std::thread::sleep(cost);
}

/// The processor time of this thread, which does not depend on the load of other threads.
fn processor_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is valid for the call.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn text(name: *const c_char) -> String {
    // SAFETY: the caller guarantees a string that ends in NUL.
    unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned()
}

/// Replaces all costs by those of a list separated by commas; the sums start from 0.
#[unsafe(no_mangle)]
extern "C" fn nvjpeg_standin_costs(costs: *const c_char) {
    with(|all| *all = Costs { read: true, of_one: parse(&text(costs)), ..Costs::default() });
}

/// The microseconds that were spent on a kind of cost since the costs were set.
#[unsafe(no_mangle)]
extern "C" fn nvjpeg_standin_spent(name: *const c_char) -> u64 {
    with(|costs| costs.spent.get(text(name).as_str()).copied().unwrap_or(0))
}
