//! The processor time that each thread spent in this library, without what it spent in the driver; the rest of a
//! caller's time is its own.

use std::ffi::{c_int, c_long};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use libloading::os::unix::{Library, RTLD_NOW};

/// The nanoseconds by thread id; its lower bits are enough to tell the threads of one test apart.
static SPENT: [AtomicU64; 1 << 16] = [const { AtomicU64::new(0) }; 1 << 16];

/// `struct timespec`.
#[repr(C)]
struct Time {
    seconds: c_long,
    nanoseconds: c_long,
}

const CLOCK_THREAD_CPUTIME_ID: c_int = 3;

unsafe extern "C" {
    fn clock_gettime(clock: c_int, time: *mut Time) -> c_int;
    fn gettid() -> c_int;
}

/// Adds the time of the calling thread until it is dropped.
pub struct Spending {
    thread: u32,
    began: u64,
}

impl Spending {
    pub fn begin() -> Self {
        // SAFETY: no arguments, always succeeds.
        let thread = unsafe { gettid() } as u32;
        Self { thread, began: own(thread) }
    }
}

impl Drop for Spending {
    fn drop(&mut self) {
        let spent = own(self.thread).saturating_sub(self.began);
        SPENT[(self.thread & 0xffff) as usize].fetch_add(spent, Ordering::Relaxed);
    }
}

/// The calling thread's time without the driver's.
fn own(thread: u32) -> u64 {
    let mut time = Time { seconds: 0, nanoseconds: 0 };
    // SAFETY: the pointer is valid for the call.
    unsafe { clock_gettime(CLOCK_THREAD_CPUTIME_ID, &mut time) };
    (time.seconds as u64 * 1_000_000_000 + time.nanoseconds as u64).saturating_sub(in_driver(thread))
}

/// The time that the stand-in for the driver has counted; zero where the driver is another.
fn in_driver(thread: u32) -> u64 {
    static COUNTED: OnceLock<Option<extern "C" fn(u32) -> u64>> = OnceLock::new();
    let find = || {
        // SAFETY: it is loaded already, or its initialisers are those of any driver.
        let library = unsafe { Library::open(Some("libcuda.so.1"), RTLD_NOW) }.ok()?;
        // SAFETY: the type is that of the stand-in's `cpu.rs`.
        let counted = unsafe { library.get(b"standin_cpu").map(|symbol| *symbol) }.ok();
        std::mem::forget(library);
        counted
    };
    COUNTED.get_or_init(find).map_or(0, |counted| counted(thread))
}

/// The nanoseconds that a thread spent in calls.
#[unsafe(no_mangle)]
extern "C" fn nvjpeg_standin_cpu(thread: u32) -> u64 {
    SPENT[(thread & 0xffff) as usize].load(Ordering::Relaxed)
}
